//! The tables of a graph, in memory or as files.
//!
//! ```text
//!   graph ─▶ batches of 8192 rows ─ by turns ─▶ partitions ─▶ MemTable
//!                                                   └─ COPY ─▶ DIR/tables/t0.parquet …
//!            query ──────────────────────────────────────────▶ DIR/queries/g007.sql
//! ```
//!
//! `tpch_join --data DIR/tables --queries DIR/queries` runs them, too.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::prelude::SessionContext;
use horton_test_support::Result;
use horton_test_support::folder::{Data, copy};

use crate::graph::Graph;
use crate::table::{Table, text};

/// Rows in a batch: DataFusion's default batch size.
const BATCH_ROWS: usize = 8192;

/// Returns the tables of `graph` in memory, each in `partitions` partitions.
///
/// # Errors
/// Of arrow.
pub fn in_memory(graph: &Graph, partitions: usize) -> Result<Data> {
    let mut tables = vec![];
    for (number, table) in graph.tables.iter().enumerate() {
        let rows = rows(table)?;
        let mut parts = vec![vec![]; partitions];
        for (at, from) in (0..rows.num_rows()).step_by(BATCH_ROWS).enumerate() {
            let length = BATCH_ROWS.min(rows.num_rows() - from);
            parts[at % partitions].push(rows.slice(from, length));
        }
        let table: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(rows.schema(), parts)?);
        tables.push((format!("t{number}"), table));
    }
    let about = format!("{} tables in memory", tables.len());
    Ok(Data { tables, about })
}

fn rows(table: &Table) -> Result<RecordBatch> {
    let mut columns: Vec<(String, ArrayRef, bool)> = vec![];
    for (number, keys) in table.keys.iter().enumerate() {
        let name = match number {
            0 => "id".to_owned(),
            _ => format!("k{number}"),
        };
        columns.push((name, Arc::new(Int64Array::from(keys.clone())), number > 0));
    }
    let [x, s] = &table.payloads;
    let x = Int64Array::from_iter_values(x.iter().map(|&x| x as i64));
    let s = StringArray::from_iter_values(s.iter().map(|&s| text(s)));
    columns.push(("x".to_owned(), Arc::new(x), false));
    columns.push(("s".to_owned(), Arc::new(s), false));
    Ok(RecordBatch::try_from_iter_with_nullable(columns)?)
}

/// Writes the tables and the query, named `name`, into `folder`.
///
/// # Errors
/// Names the file or folder that cannot be written.
pub async fn write(data: &Data, name: &str, sql: &str, folder: &Path) -> Result<()> {
    let (tables, queries) = (folder.join("tables"), folder.join("queries"));
    for made in [&tables, &queries] {
        fs::create_dir_all(made).map_err(|e| format!("cannot create {}: {e}", made.display()))?;
    }
    let session = SessionContext::new();
    data.register(&session)?;
    for (table, _) in &data.tables {
        copy(&session, table, &tables.join(format!("{table}.parquet"))).await?;
    }
    let query = queries.join(format!("{name}.sql"));
    let written = fs::write(&query, format!("{sql};\n"));
    Ok(written.map_err(|e| format!("cannot write {}: {e}", query.display()))?)
}
