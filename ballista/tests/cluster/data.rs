//! Two tables to join, as folders of Parquet files.
//!
//! ```text
//!  build (k, v, s)   ROWS rows, keys of which half meet a row of the other, some NULL
//!  probe (j, w, t)   twice as many, each key several times
//! ```

use std::path::Path;

use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use tempfile::TempDir;

use crate::setup::PARTITIONS;

/// Rows of the smaller table.
pub const ROWS: usize = 2000;

/// Folders of Parquet files, by the names of their tables.
pub struct Tables {
    dir: TempDir,
    names: Vec<&'static str>,
}

impl Tables {
    /// Writes each query's rows as the table of its name.
    pub async fn for_queries(queries: &[(&'static str, String)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let session = local();
        for (name, sql) in queries {
            write(&session, sql, &dir.path().join(name)).await;
        }
        let names = queries.iter().map(|(name, _)| *name).collect();
        Self { dir, names }
    }

    /// Returns two tables to join, of `rows` rows and twice as many.
    pub async fn to_join(rows: usize) -> Self {
        let keys = rows / 2;
        let build = format!(
            "SELECT CASE WHEN value % 97 = 0 THEN NULL ELSE value % {keys} END AS k, value AS v, \
             'build ' || (value % 13) AS s FROM range(0, {rows})"
        );
        let probe = format!(
            "SELECT CASE WHEN value % 89 = 0 THEN NULL ELSE value % {keys} + {} END AS j, \
             value AS w, 'probe ' || (value % 7) AS t FROM range(0, {})",
            keys / 2,
            2 * rows
        );
        Self::for_queries(&[("build", build), ("probe", probe)]).await
    }

    /// Makes the tables known to `session`.
    pub async fn register(&self, session: &SessionContext) {
        for name in &self.names {
            let path = self.dir.path().join(name);
            let options = ParquetReadOptions::default();
            let path = path.to_str().unwrap();
            session
                .register_parquet(*name, path, options)
                .await
                .unwrap();
        }
    }

    /// Returns a session of stock DataFusion that knows the tables.
    pub async fn local(&self) -> SessionContext {
        let session = local();
        self.register(&session).await;
        session
    }
}

fn local() -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_target_partitions(PARTITIONS))
}

/// Writes the rows of `sql` into files in `folder`, several if they are many.
async fn write(session: &SessionContext, sql: &str, folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    let frame = session.sql(sql).await.unwrap();
    let rows = frame.clone().count().await.unwrap();
    let files = if rows < PARTITIONS { 1 } else { PARTITIONS };
    for file in 0..files {
        let at = file * rows / files;
        let count = (file + 1) * rows / files - at;
        let part = frame.clone().limit(at, Some(count)).unwrap();
        let path = folder.join(format!("{file}.parquet"));
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        let path = path.to_str().unwrap();
        part.write_parquet(path, options, None).await.unwrap();
    }
}
