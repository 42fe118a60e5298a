//! The Parquet files that queries run over: made once, and kept for the next run.
//!
//! ```text
//!   DATA/tpch-1/              tables/lineitem.parquet …  queries/q01.sql …  by tpch_join --write
//!   DATA/db-benchmark-100000/ tables/x/1.parquet …       queries/q1_….sql   made here
//! ```
//!
//! A folder gets its name when all of it is there, so one that a run left half made is not used.
//! A table's file has at most five million rows: that much is in memory at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use datafusion::catalog::MemTable;
use datafusion::prelude::SessionContext;

use crate::Result;
use crate::db_benchmark::{QUESTIONS, Table};
use crate::run::{Finished, Programs, run};

/// Rows in a file.
const FILE_ROWS: u64 = 5_000_000;

/// Rows in a batch: DataFusion's default batch size.
const BATCH_ROWS: u64 = 8192;

/// What queries run over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Data {
    /// TPC-H at a scale factor.
    Tpch(f64),
    /// db-benchmark's join task, with so many rows in its largest tables.
    DbBenchmark(u64),
}

impl Data {
    /// Its folder in `all`.
    pub fn folder(self, all: &Path) -> PathBuf {
        all.join(match self {
            Self::Tpch(scale) => format!("tpch-{scale}"),
            Self::DbBenchmark(rows) => format!("db-benchmark-{rows}"),
        })
    }

    /// Makes its files in `all` if they are not there; what `tpch_join` prints goes to `log`.
    ///
    /// # Errors
    /// Names the file that cannot be written, or the program that is missing.
    pub async fn make(self, all: &Path, programs: &Programs, log: &Path) -> Result<Finished> {
        let folder = self.folder(all);
        if folder.is_dir() {
            let command = format!("({} was there)", folder.display());
            return Ok(Finished::well(command, Duration::ZERO));
        }
        let partial = folder.with_added_extension("partial");
        if partial.exists() {
            let describe = |e| format!("cannot remove {}: {e}", partial.display());
            fs::remove_dir_all(&partial).map_err(describe)?;
        }
        let finished = match self {
            Self::Tpch(scale) => {
                let mut command = programs.command("tpch_join")?;
                command.arg("--scale").arg(scale.to_string());
                command.arg("--write").arg(&partial);
                run(command, None, log)
            }
            Self::DbBenchmark(rows) => {
                let begun = Instant::now();
                write_db_benchmark(&partial, rows).await?;
                Finished::well("(made by the evaluation)".to_string(), begun.elapsed())
            }
        };
        if finished.failure.is_none() {
            let describe = |e| format!("cannot name {}: {e}", folder.display());
            fs::rename(&partial, &folder).map_err(describe)?;
        }
        Ok(finished)
    }
}

async fn write_db_benchmark(folder: &Path, rows: u64) -> Result<()> {
    let tables = folder.join("tables");
    for table in Table::ALL {
        write_table(&tables.join(table.name()), table, rows).await?;
    }
    let texts = folder.join("queries");
    create_folder(&texts)?;
    for (name, text) in QUESTIONS {
        let path = texts.join(format!("{name}.sql"));
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(())
}

async fn write_table(folder: &Path, table: Table, n: u64) -> Result<()> {
    create_folder(folder)?;
    let rows = table.rows(n);
    for (number, from) in (1..).zip((0..rows).step_by(FILE_ROWS as usize)) {
        let to = rows.min(from + FILE_ROWS);
        let batch = |from| table.batch(n, from, to.min(from + BATCH_ROWS));
        let batches = (from..to).step_by(BATCH_ROWS as usize).map(batch);
        let batches = batches.collect::<Result<Vec<RecordBatch>, _>>()?;
        write_file(&folder.join(format!("{number}.parquet")), batches).await?;
    }
    Ok(())
}

async fn write_file(path: &Path, batches: Vec<RecordBatch>) -> Result<()> {
    let describe = |e| format!("cannot write {}: {e}", path.display());
    let text = path.to_str().ok_or("the path is not valid UTF-8")?;
    let schema = batches.first().ok_or("a table has no rows")?.schema();
    let session = SessionContext::new();
    session.register_table("part", Arc::new(MemTable::try_new(schema, vec![batches])?))?;
    let sql = format!(
        "COPY part TO '{}' STORED AS PARQUET",
        text.replace('\'', "''")
    );
    let frame = session.sql(&sql).await.map_err(describe)?;
    frame.collect().await.map_err(describe)?;
    Ok(())
}

/// Makes a folder and those above it.
///
/// # Errors
/// Names the folder.
pub fn create_folder(folder: &Path) -> Result<()> {
    let describe = |e| format!("cannot create {}: {e}", folder.display());
    Ok(fs::create_dir_all(folder).map_err(describe)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::ParquetReadOptions;

    async fn open(tables: &Path) -> SessionContext {
        let session = SessionContext::new();
        for table in Table::ALL {
            let files = tables.join(table.name()).display().to_string();
            let options = ParquetReadOptions::default();
            session
                .register_parquet(table.name(), files, options)
                .await
                .unwrap();
        }
        session
    }

    #[tokio::test]
    async fn db_benchmark_is_made_once_and_joins_nine_of_ten_rows() {
        let all = tempfile::tempdir().unwrap();
        let data = Data::DbBenchmark(30_000);
        let half_made = all.path().join("db-benchmark-30000.partial");
        fs::create_dir(&half_made).unwrap();
        let programs = Programs::in_folder(all.path());
        let log = all.path().join("log");
        data.make(all.path(), &programs, &log).await.unwrap();
        assert!(!half_made.exists());

        let session = open(&data.folder(all.path()).join("tables")).await;
        for (name, text) in QUESTIONS {
            let batches = session.sql(text).await.unwrap().collect().await.unwrap();
            let shown = arrow::util::pretty::pretty_format_batches(&batches).unwrap();
            assert_eq!(batches[0].num_rows(), 1, "{name}");
            if name == "q5_big_inner" {
                assert!(shown.to_string().contains("| 27000 "), "{shown}");
            }
        }
        let kept = data.folder(all.path()).join("kept");
        fs::write(&kept, "").unwrap();
        data.make(all.path(), &programs, &log).await.unwrap();
        assert!(kept.exists());
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let all = tempfile::tempdir().unwrap();
        let programs = Programs::in_folder(all.path());
        let made = Data::Tpch(0.01)
            .make(all.path(), &programs, all.path())
            .await;
        assert!(made.unwrap_err().to_string().contains("tpch_join"));
    }
}
