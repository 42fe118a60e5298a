//! The tables: TPC-H made in memory, or Parquet files.
//!
//! ```text
//!   scale ─▶ (table, part) jobs, largest first ─▶ a thread per core ─▶ MemTable of partitions
//!   DIR   ─▶ lineitem.parquet | lineitem/*.parquet ─▶ ListingTable ─ in memory? ─▶ MemTable
//! ```
//!
//! `tpchgen` makes the rows of the official dbgen, any part of a table independently of the others.
//! So a table's parts become its partitions without a copy. In memory, scale 1 takes a little over
//! 1 GB. Parquet files are read by every query again, as in a program that queries them: then both
//! plans' times include reading.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::error::ArrowError;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::common::TableReference;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::Result;

/// Rows in a generated batch: DataFusion's default batch size.
const BATCH_ROWS: usize = 8192;

/// Named tables, to be registered in every context.
pub struct Data {
    /// Name and contents.
    pub tables: Vec<(String, Arc<dyn TableProvider>)>,
    /// One line for the user.
    pub about: String,
}

impl Data {
    /// Makes the tables known to `context`.
    ///
    /// # Errors
    /// A table of that name exists already.
    pub fn register(&self, context: &SessionContext) -> Result<()> {
        for (name, table) in &self.tables {
            context.register_table(TableReference::bare(name.as_str()), Arc::clone(table))?;
        }
        Ok(())
    }
}

/// Returns the same tables, read into memory in `partitions` partitions each.
///
/// # Errors
/// Names the table that cannot be read.
pub async fn in_memory(data: Data, partitions: usize) -> Result<Data> {
    let context = SessionContext::new();
    data.register(&context)?;
    let mut tables = vec![];
    for (name, table) in &data.tables {
        let frame = context.table(TableReference::bare(name.as_str())).await?;
        let batches = frame.collect().await;
        let batches = batches.map_err(|e| format!("cannot read table '{name}': {e}"))?;
        let share = batches.len().div_ceil(partitions).max(1);
        let parts = batches.chunks(share).map(<[RecordBatch]>::to_vec);
        let mut parts: Vec<Vec<RecordBatch>> = parts.collect();
        // A table without rows has a partition without batches.
        parts.resize_with(parts.len().max(1), Vec::new);
        let contents = MemTable::try_new(table.schema(), parts)?;
        tables.push((name.clone(), Arc::new(contents) as Arc<dyn TableProvider>));
    }
    Ok(Data {
        about: format!("{}, read into memory", data.about),
        tables,
    })
}

/// TPC-H's tables, largest first so that the last jobs to run are the short ones.
#[derive(Clone, Copy, PartialEq)]
enum Table {
    LineItem,
    Orders,
    PartSupp,
    Part,
    Customer,
    Supplier,
    Nation,
    Region,
}

impl Table {
    const ALL: [Self; 8] = [
        Self::LineItem,
        Self::Orders,
        Self::PartSupp,
        Self::Part,
        Self::Customer,
        Self::Supplier,
        Self::Nation,
        Self::Region,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::LineItem => "lineitem",
            Self::Orders => "orders",
            Self::PartSupp => "partsupp",
            Self::Part => "part",
            Self::Customer => "customer",
            Self::Supplier => "supplier",
            Self::Nation => "nation",
            Self::Region => "region",
        }
    }

    /// Rows at `scale`; for lineitem about that many (one to seven per order).
    fn rows(self, scale: f64) -> u64 {
        let at_one = match self {
            Self::LineItem => 6_000_000.0,
            Self::Orders => 1_500_000.0,
            Self::PartSupp => 800_000.0,
            Self::Part => 200_000.0,
            Self::Customer => 150_000.0,
            Self::Supplier => 10_000.0,
            Self::Nation => return 25,
            Self::Region => return 5,
        };
        (at_one * scale) as u64
    }

    /// Returns a reader of part `part` (from 1) of `parts`.
    fn reader(self, scale: f64, part: i32, parts: i32) -> Box<dyn RecordBatchReader> {
        macro_rules! reader {
            ($arrow:ident, $generator:ident) => {
                Box::new(
                    $arrow::new($generator::new(scale, part, parts)).with_batch_size(BATCH_ROWS),
                )
            };
        }
        match self {
            Self::LineItem => reader!(LineItemArrow, LineItemGenerator),
            Self::Orders => reader!(OrderArrow, OrderGenerator),
            Self::PartSupp => reader!(PartSuppArrow, PartSuppGenerator),
            Self::Part => reader!(PartArrow, PartGenerator),
            Self::Customer => reader!(CustomerArrow, CustomerGenerator),
            Self::Supplier => reader!(SupplierArrow, SupplierGenerator),
            Self::Nation => reader!(NationArrow, NationGenerator),
            Self::Region => reader!(RegionArrow, RegionGenerator),
        }
    }
}

/// One part of one table, to be made by one thread.
#[derive(Clone, Copy)]
struct Job {
    table: Table,
    part: i32,
    parts: i32,
}

/// Returns all jobs at `scale`: as many parts as `partitions`, but none smaller than a batch.
fn jobs(scale: f64, partitions: usize) -> Vec<Job> {
    let jobs_of = |table: Table| {
        let batches = table.rows(scale).div_ceil(BATCH_ROWS as u64).max(1);
        let parts = batches.min(partitions as u64) as i32;
        (1..=parts).map(move |part| Job { table, part, parts })
    };
    Table::ALL.into_iter().flat_map(jobs_of).collect()
}

/// Makes TPC-H's eight tables at `scale`, large ones in `partitions` partitions, with as
/// many threads; shows a progress bar on a terminal.
///
/// # Errors
/// What the generator reports.
pub fn generate(scale: f64, partitions: usize) -> Result<Data> {
    let start = Instant::now();
    let jobs = jobs(scale, partitions);
    let bar = progress_bar(scale)?;
    let mut made = run_jobs(&jobs, scale, partitions, &bar)?;
    bar.finish_and_clear();

    let rows: usize = made.iter().flatten().map(RecordBatch::num_rows).sum();
    let mut tables: Vec<(String, Arc<dyn TableProvider>)> = vec![];
    for table in Table::ALL {
        let of_table = jobs.iter().zip(&mut made).filter(|(j, _)| j.table == table);
        let parts = of_table.map(|(_, part)| std::mem::take(part)).collect();
        let schema = table.reader(scale, 1, 1).schema();
        let contents = MemTable::try_new(schema, parts)?;
        tables.push((table.name().to_string(), Arc::new(contents)));
    }
    Ok(Data {
        tables,
        about: format!(
            "TPC-H at scale {scale}: {} rows in 8 tables, up to {partitions} partitions each, \
             made in {:.1} s",
            HumanCount(rows as u64),
            start.elapsed().as_secs_f64()
        ),
    })
}

/// Returns a bar over the rows to make. The generator first fills a text pool, about a second in
/// which no row appears: the bar's spinner shows that something happens.
fn progress_bar(scale: f64) -> Result<ProgressBar> {
    let rows = Table::ALL.iter().map(|table| table.rows(scale)).sum();
    let bar = ProgressBar::new(rows);
    bar.set_style(ProgressStyle::with_template(
        "{spinner} making TPC-H data [{bar:40}] {percent}% {human_pos} of {human_len} rows, {eta} left",
    )?);
    bar.enable_steady_tick(Duration::from_millis(100));
    Ok(bar)
}

/// Runs the jobs on `threads` threads; the batches of `jobs[i]` come back at `i`.
fn run_jobs(
    jobs: &[Job],
    scale: f64,
    threads: usize,
    bar: &ProgressBar,
) -> Result<Vec<Vec<RecordBatch>>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Vec<RecordBatch>)>, ArrowError> {
        let mut done = vec![];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(number) else {
                return Ok(done);
            };
            let reader = job.table.reader(scale, job.part, job.parts);
            let counted = reader.inspect(|batch| {
                bar.inc(batch.as_ref().map_or(0, |batch| batch.num_rows() as u64));
            });
            done.push((number, counted.collect::<Result<_, _>>()?));
        }
    };
    let mut made = vec![vec![]; jobs.len()];
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let done = worker.join().map_err(|_| "the TPC-H generator panicked")?;
            for (number, batches) in done? {
                made[number] = batches;
            }
        }
        Ok(made)
    })
}

/// Opens every table found in `dir`: `NAME.parquet`, or a folder `NAME` of Parquet files. With
/// `all_of_tpch`, TPC-H's eight tables must be among them.
///
/// # Errors
/// Names the folder or file that cannot be read, or the table that is missing.
pub async fn open(dir: &Path, all_of_tpch: bool) -> Result<Data> {
    let found = find_tables(dir)?;
    let required = Table::ALL.iter().filter(|_| all_of_tpch).map(|t| t.name());
    for name in required {
        if !found.contains_key(name) {
            let dir = dir.display();
            return Err(format!(
                "table '{name}' is missing: there is no {dir}/{name}.parquet and no folder \
                 {dir}/{name} with .parquet files"
            )
            .into());
        }
    }
    let context = SessionContext::new();
    let mut tables = vec![];
    for (name, path) in found {
        let table = open_table(&context, &name, &path).await;
        let table =
            table.map_err(|e| format!("cannot read table '{name}' at {}: {e}", path.display()))?;
        tables.push((name, table));
    }
    Ok(Data {
        about: format!("{} tables of Parquet in {}", tables.len(), dir.display()),
        tables,
    })
}

async fn open_table(
    context: &SessionContext,
    name: &str,
    path: &Path,
) -> Result<Arc<dyn TableProvider>> {
    let text = path.to_str().ok_or("the path is not valid UTF-8")?;
    let name = TableReference::bare(name);
    context
        .register_parquet(name.clone(), text, ParquetReadOptions::default())
        .await?;
    Ok(context.table_provider(name).await?)
}

/// Returns the tables in `dir` by name (in lower case, as SQL folds unquoted names).
fn find_tables(dir: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut tables = BTreeMap::new();
    for path in entries(dir)? {
        let is_table = if path.is_dir() {
            entries(&path)?.iter().any(|file| is_parquet(file))
        } else {
            is_parquet(&path)
        };
        let name = if is_parquet(&path) {
            path.file_stem()
        } else {
            path.file_name()
        };
        let Some(name) = name.filter(|_| is_table) else {
            continue;
        };
        let name = name.to_string_lossy().to_lowercase();
        if let Some(other) = tables.insert(name.clone(), path.clone()) {
            let (one, other) = (path.display(), other.display());
            return Err(format!("table '{name}' is there twice: {one} and {other}").into());
        }
    }
    Ok(tables)
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let describe = |e| format!("cannot read data directory {}: {e}", dir.display());
    let entries = fs::read_dir(dir).map_err(describe)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    Ok(paths.collect::<Result<_, _>>().map_err(describe)?)
}

fn is_parquet(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "parquet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_every_table() {
        let jobs = jobs(0.01, 4);
        let parts = |table| jobs.iter().filter(|job| job.table == table).count();
        assert_eq!(parts(Table::LineItem), 4);
        assert_eq!(parts(Table::Orders), 2);
        assert_eq!(parts(Table::Region), 1);
        assert!(jobs.iter().all(|job| job.part <= job.parts));
    }

    #[test]
    fn tables_are_files_or_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Nation.parquet"), "").unwrap();
        fs::write(dir.path().join("readme.txt"), "").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        fs::create_dir(dir.path().join("orders")).unwrap();
        fs::write(dir.path().join("orders/part-0.parquet"), "").unwrap();
        let found: Vec<_> = find_tables(dir.path()).unwrap().into_keys().collect();
        assert_eq!(found, ["nation", "orders"]);
    }

    #[tokio::test]
    async fn bad_folders_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let message = |result: Result<Data>| result.err().map(|e| e.to_string()).unwrap();

        let missing = message(open(dir.path(), true).await);
        assert!(missing.contains("table 'lineitem' is missing"), "{missing}");

        let absent = message(open(&dir.path().join("absent"), false).await);
        assert!(absent.contains("cannot read data directory"), "{absent}");

        let broken = dir.path().join("nation.parquet");
        fs::write(&broken, "not a Parquet file").unwrap();
        let corrupt = message(open(dir.path(), false).await);
        assert!(corrupt.contains("nation.parquet"), "{corrupt}");

        fs::create_dir(dir.path().join("nation")).unwrap();
        fs::write(dir.path().join("nation/0.parquet"), "").unwrap();
        let twice = message(open(dir.path(), false).await);
        assert!(twice.contains("twice"), "{twice}");
    }
}
