//! TPC-H on clusters and in this process, by turns.
//!
//! ```text
//!  --local stock    ─┐                       Q1  Q2  …  total
//!  --local horton   ─┼─ each query, each run ─▶ medians, as a table
//!  --scheduler URL  ─┘  one after the other
//! ```
//!
//! By turns, as a machine's speed changes while it runs. One engine after the other would charge
//! that to one of them. All engines must give as many rows, or the run ends.
//!
//! ```text
//! cargo run --release -p horton-ballista --example tpch_cluster -- --data DIR \
//!     --local stock --local horton --scheduler df://127.0.0.1:50050
//! ```

mod engines;
mod queries;
mod report;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use engines::{Engine, Local};
use queries::Query;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// TPC-H on clusters and in this process, by turns.
#[derive(Debug, Parser)]
struct Flags {
    /// Folder of NAME.parquet or NAME/*.parquet for the eight tables; executors must find it
    #[arg(long)]
    data: PathBuf,
    /// Scale factor of the data: Q11 depends on it
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A cluster to run on, such as df://127.0.0.1:50050. Repeatable
    #[arg(long)]
    scheduler: Vec<String>,
    /// Run in this process, too, with DataFusion's joins or with ours. Repeatable
    #[arg(long, value_enum)]
    local: Vec<Local>,
    /// Runs of each query that count, after one that does not
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Partitions; the default is the number of cores in this process, and 16 on clusters
    #[arg(long)]
    partitions: Option<usize>,
    /// The queries; all if none is named
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..=22))]
    queries: Vec<u8>,
    /// An option, such as ballista.optimizer.hash_join_max_build_partition_bytes=0. Repeatable.
    /// Those of ballista are for clusters, those of horton for clusters and ours
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Count the kernels on clusters, by EXPLAIN ANALYZE after all runs
    #[arg(long)]
    kernels: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Flags::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tpch_cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<()> {
    let engines = engines::all(&flags).await?;
    if engines.is_empty() {
        return Err(
            "nothing to run on: name --scheduler URL, --local stock or --local horton".into(),
        );
    }
    let queries = queries::selected(&flags.queries, flags.scale)?;
    let mut medians = vec![];
    for query in &queries {
        eprintln!("Q{} …", query.number);
        medians.push(by_turns(&engines, query, flags.runs).await?);
    }
    print!("{}", report::table(&engines, &queries, &medians));
    if flags.kernels {
        for engine in engines.iter().filter(|engine| engine.is_cluster) {
            let launches = engine.launches(&queries).await?;
            println!(
                "{}: {launches} kernel launches in {} queries",
                engine.name,
                queries.len()
            );
        }
    }
    Ok(())
}

/// Runs a query on all engines by turns, and returns the median time of each.
async fn by_turns(engines: &[Engine], query: &Query, runs: usize) -> Result<Vec<Duration>> {
    let mut times = vec![vec![]; engines.len()];
    let mut expected = None;
    for run in 0..=runs.max(1) {
        for (engine, times) in engines.iter().zip(&mut times) {
            let start = Instant::now();
            let rows = engine.rows(query).await?;
            if run > 0 {
                times.push(start.elapsed());
            }
            let expected = *expected.get_or_insert(rows);
            if rows != expected {
                let (name, number) = (&engine.name, query.number);
                return Err(format!("Q{number}: {rows} rows on {name}, not {expected}").into());
            }
        }
    }
    Ok(times.into_iter().map(report::median).collect())
}
