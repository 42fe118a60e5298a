//! The tables: TPC-H made in memory, or Parquet files.
//!
//! ```text
//!   scale ─▶ (table, part) jobs, largest first ─▶ a thread per core ─▶ MemTable of partitions
//!   DIR   ─▶ files, as horton_test_support::folder opens them
//! ```
//!
//! `tpchgen` makes the rows of the official dbgen, any part of a table independently of the others.
//! So a table's parts become its partitions without a copy. In memory, scale 1 takes a little over
//! 1 GB. Parquet files are read by every query again, as in a program that queries them: then both
//! plans' times include reading.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::error::ArrowError;
use datafusion::catalog::{MemTable, TableProvider};
use horton_test_support::folder::{self, Data};
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

/// Opens every table found in `dir`. With `all_of_tpch`, TPC-H's eight tables must be among them.
///
/// # Errors
/// Names the folder or file that cannot be read, or the table that is missing.
pub async fn open(dir: &Path, all_of_tpch: bool) -> Result<Data> {
    let names = Table::ALL.map(Table::name);
    folder::open(dir, if all_of_tpch { &names } else { &[] }).await
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
}
