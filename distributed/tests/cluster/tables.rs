//! Small tables in several Parquet files each.
//!
//! ```text
//!  few   3 files    90 rows   keys 0..29 three times, every seventh NULL
//!  many  3 files  9000 rows   keys 0..59, every eleventh NULL
//!  sparse           few without NULLs
//! ```
//!
//! One table is small, as DataFusion builds the smaller side: which side a join type is planned
//! with depends on it.

use std::path::Path;

use datafusion::prelude::{ParquetReadOptions, SessionContext};
use tempfile::TempDir;

use crate::coordinator::{run, stock};

/// Name and query of the rows; `value` counts them.
const TABLES: [(&str, u64, &str); 3] = [
    (
        "few",
        90,
        "CASE WHEN value % 7 = 0 THEN NULL ELSE value % 30 END AS k, 'few ' || value AS a",
    ),
    ("sparse", 40, "value % 25 AS k, 'sparse ' || value AS c"),
    (
        "many",
        9000,
        "CASE WHEN value % 11 = 0 THEN NULL ELSE value % 60 END AS k, 'many ' || value AS b",
    ),
];

/// Files of a table.
const FILES: u64 = 3;

/// Returns the tables of this module in a folder.
pub async fn small() -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, rows, columns) in TABLES {
        write(folder.path(), name, rows, columns).await;
    }
    folder
}

/// Writes `rows` rows of `columns` as a folder `name` of several files.
pub async fn write(folder: &Path, name: &str, rows: u64, columns: &str) {
    let session = stock();
    let share = rows / FILES;
    for file in 0..FILES {
        let (from, to) = (file * share, (file + 1) * share);
        let path = folder.join(name).join(format!("{file}.parquet"));
        let path = path.display();
        let sql = format!(
            "COPY (SELECT {columns} FROM range({from}, {to})) TO '{path}' STORED AS PARQUET"
        );
        run(&session, &sql).await;
    }
}

/// Makes the tables in `folder` known: files and folders of Parquet.
pub async fn register(session: &SessionContext, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let path = path.to_str().unwrap();
        let options = ParquetReadOptions::default();
        session.register_parquet(name, path, options).await.unwrap();
    }
}
