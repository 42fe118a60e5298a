//! TPC-H's eight tables as Parquet files.
//!
//! ```text
//!  scale ─▶ tpchgen ─▶ a table in memory ─▶ COPY … TO DIR/NAME/NUMBER.parquet
//! ```
//!
//! Several files a table, as a task scans whole files.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// Files of a large table.
const PARTS: i32 = 3;

/// Writes all tables into `folder`.
///
/// # Errors
/// If a file cannot be written.
pub async fn write_tables(folder: &Path, scale: f64) -> Result<()> {
    macro_rules! write {
        ($name:literal, $parts:expr, $arrow:ident, $generator:ident) => {
            for part in 1..=$parts {
                let rows = $arrow::new($generator::new(scale, part, $parts));
                write(folder, $name, part, rows).await?;
            }
        };
    }
    write!("lineitem", PARTS, LineItemArrow, LineItemGenerator);
    write!("orders", PARTS, OrderArrow, OrderGenerator);
    write!("partsupp", PARTS, PartSuppArrow, PartSuppGenerator);
    write!("part", PARTS, PartArrow, PartGenerator);
    write!("customer", PARTS, CustomerArrow, CustomerGenerator);
    write!("supplier", PARTS, SupplierArrow, SupplierGenerator);
    write!("nation", 1, NationArrow, NationGenerator);
    write!("region", 1, RegionArrow, RegionGenerator);
    Ok(())
}

/// Writes one part of one table.
async fn write(folder: &Path, name: &str, part: i32, rows: impl RecordBatchReader) -> Result<()> {
    let schema = rows.schema();
    let batches = rows.collect::<Result<Vec<RecordBatch>, _>>()?;
    let session = SessionContext::new();
    let table = MemTable::try_new(schema, vec![batches])?;
    session.register_table("part_of_table", Arc::new(table))?;
    let path = folder.join(name).join(format!("{part}.parquet"));
    let path = path.display();
    let sql = format!("COPY part_of_table TO '{path}' STORED AS PARQUET");
    session.sql(&sql).await?.collect().await?;
    Ok(())
}
