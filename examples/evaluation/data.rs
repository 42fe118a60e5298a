//! The Parquet files that queries run over: made once, and kept for the next run.
//!
//! ```text
//!   DATA/tpch-1/              tables/lineitem.parquet …  queries/q01.sql …  by tpch_join --write
//!   DATA/db-benchmark-100000/ tables/x.parquet …         queries/q1_….sql   made here
//! ```
//!
//! A folder gets its name when all of it is there, so one that a run left half made is not used.
//! db-benchmark's files are written without DataFusion's SQL: this program has a sixth of the size
//! of those that it runs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;

use crate::Result;
use crate::db_benchmark::{QUESTIONS, Table};
use crate::run::{Finished, Programs, run};

/// Rows in a batch: DataFusion's default batch size.
const BATCH_ROWS: u64 = 8192;

/// The tables that queries run over.
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
    pub fn make(self, all: &Path, programs: &Programs, log: &Path) -> Result<Finished> {
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
                write_db_benchmark(&partial, rows)?;
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

fn write_db_benchmark(folder: &Path, rows: u64) -> Result<()> {
    let tables = folder.join("tables");
    create_folder(&tables)?;
    thread::scope(|scope| -> Result<()> {
        let write = |table: Table| {
            let path = tables.join(format!("{}.parquet", table.name()));
            write_table(&path, table, rows)
                .map_err(|e| format!("cannot write {}: {e}", path.display()))
        };
        let writers = Table::ALL.map(|table| scope.spawn(move || write(table)));
        for writer in writers {
            writer
                .join()
                .map_err(|_| "a thread that wrote a table panicked")??;
        }
        Ok(())
    })?;
    let texts = folder.join("queries");
    create_folder(&texts)?;
    for (name, text) in QUESTIONS {
        let path = texts.join(format!("{name}.sql"));
        fs::write(&path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    Ok(())
}

fn write_table(path: &Path, table: Table, n: u64) -> Result<()> {
    let level = ZstdLevel::default();
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level));
    let schema = table.batch(n, 0, 0)?.schema();
    let file = File::create(path)?;
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties.build()))?;
    let rows = table.rows(n);
    for from in (0..rows).step_by(BATCH_ROWS as usize) {
        writer.write(&table.batch(n, from, rows.min(from + BATCH_ROWS))?)?;
    }
    writer.close()?;
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
    use datafusion::prelude::{ParquetReadOptions, SessionContext};

    async fn open(tables: &Path) -> SessionContext {
        let session = SessionContext::new();
        for table in Table::ALL {
            let file = tables.join(format!("{}.parquet", table.name()));
            let file = file.display().to_string();
            let options = ParquetReadOptions::default();
            session
                .register_parquet(table.name(), file, options)
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
        data.make(all.path(), &programs, &log).unwrap();
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
        data.make(all.path(), &programs, &log).unwrap();
        assert!(kept.exists());
    }

    #[test]
    fn a_missing_program_is_named() {
        let all = tempfile::tempdir().unwrap();
        let programs = Programs::in_folder(all.path());
        let made = Data::Tpch(0.01).make(all.path(), &programs, all.path());
        assert!(made.unwrap_err().to_string().contains("tpch_join"));
    }
}
