//! TPC-H for clusters: the tables as Parquet files, the queries' texts.
//!
//! ```text
//!  scale ─▶ tpchgen ─▶ a table in memory ─▶ COPY … TO DIR/NAME/NUMBER.parquet
//! ```
//!
//! Several files per table, as a task scans whole files. The texts are those of the example
//! `tpch_join`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchReader};
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
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

/// The tables' names.
pub const TABLES: [&str; 8] = [
    "lineitem", "orders", "partsupp", "part", "customer", "supplier", "nation", "region",
];

/// The fraction of Q11 at scale 1, as its text has it.
const Q11_FRACTION: &str = "0.0001000000";

/// Returns the text of query `number`, from 1 to 22. Q11's fraction selects as many rows at every
/// `scale`.
///
/// # Errors
/// If there is no such file.
pub fn query(number: usize, scale: f64) -> io::Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tpch_join/queries");
    let file = folder.join(format!("q{number}.sql"));
    let text = std::fs::read_to_string(&file);
    let text = text.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", file.display())))?;
    let fraction = format!("{:.12}", 0.0001 / scale);
    Ok(match number {
        11 => text.replace(Q11_FRACTION, &fraction),
        _ => text,
    })
}

/// Registers the tables of `folder`.
///
/// # Errors
/// If a table's files cannot be read.
pub async fn register(session: &SessionContext, folder: &Path) -> Result<()> {
    for name in TABLES {
        let files = folder.join(name).display().to_string();
        let options = ParquetReadOptions::default();
        session.register_parquet(name, files, options).await?;
    }
    Ok(())
}

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
