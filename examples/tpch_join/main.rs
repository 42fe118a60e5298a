//! Runs TPC-H (or your own SQL) with hash joins on an OpenCL device, beside stock DataFusion.
//!
//! ```text
//!   cargo run --release --example tpch_join -- --scale 0.1 --query all --check
//!
//!   data ─▶ the same tables in two contexts: stock | horton_join::context
//!   each query ─▶ both ─▶ rows, joins and their devices, times, differences
//! ```
//!
//! What counts as a device join is read off the executed plan, and that kernels were launched
//! off its metrics: a plan that only claims to use the device counts as a difference. A query
//! whose LIMIT cuts through rows that its ORDER BY ties has several right results, which the
//! comparison reports as differences; none of TPC-H's 22 does at the usual scales.
//!
//! Exit status: 0; 1 if rows were compared and differ; 2 for errors. Rows and figures go to
//! standard output, progress and errors to standard error.

mod csv;
mod data;
mod limit;
mod measure;
mod queries;
mod report;
mod write;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use clap::Parser;
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_test_support::folder::{self, Data};
use horton_test_support::status::status;
use horton_trace::{traced, with_trace};

use crate::limit::{Limit, pooled};
use crate::measure::{Effort, Outcome, Sides, measure};
use crate::queries::Selection;

/// Any error, ready to be shown.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Suppliers at TPC-H's scale factor 1.
const SUPPLIERS: f64 = 10_000.0;

/// TPC-H or your own SQL with hash joins on an OpenCL device, beside DataFusion's own joins.
#[derive(Parser)]
struct Args {
    /// TPC-H scale factor of the data to make in memory (1 takes a little over 1 GB)
    #[arg(long, default_value = "0.1", value_parser = scale_factor)]
    scale: f64,

    /// Read Parquet files (DIR/lineitem.parquet or DIR/lineitem/, …) instead of making data
    #[arg(long, value_name = "DIR", conflicts_with = "scale")]
    data: Option<PathBuf>,

    /// Read the files into memory first
    #[arg(long, requires = "data")]
    in_memory: bool,

    /// Run all .sql files of a folder over the tables in --data
    #[arg(long, value_name = "DIR", requires = "data", conflicts_with = "query")]
    queries: Option<PathBuf>,

    /// A TPC-H query's number, 'all', or a query text
    #[arg(long, value_name = "N|all|SQL", default_value = "all")]
    query: Selection,

    /// Compare the rows with those of DataFusion's own plan; exit with 1 if they differ ('--query
    /// all' always compares)
    #[arg(long)]
    check: bool,

    /// Result rows to print [default: 20, or 3 with '--query all']
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// Time N runs by turns, after one to warm up: the best and the median of each side
    #[arg(long, value_name = "N", default_value = "1", value_parser = repeats)]
    repeat: usize,

    /// Go on with each query for so many seconds, beyond N runs
    #[arg(long, value_name = "S", default_value = "0", value_parser = seconds)]
    seconds: f64,

    /// Limit the memory of both plans: in bytes (64M), or as a share (1/4) of what DataFusion's own
    /// plan of a query reserves without a limit; rows are compared with those of a run without one
    #[arg(long, value_name = "SIZE|SHARE")]
    memory_limit: Option<Limit>,

    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write TPC-H's tables (DIR/tables/*.parquet) and queries (DIR/queries/*.sql), and stop
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "query", "csv"])]
    write: Option<PathBuf>,

    /// Write a timeline of all runs to this file, for ui.perfetto.dev (docs/debugging.md)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the executed plan with its metrics
    #[arg(long)]
    explain: bool,

    /// Device: auto, PLATFORM:INDEX, or part of a device's name
    #[arg(long)]
    device: Option<String>,

    /// List the OpenCL devices and stop
    #[arg(long)]
    list_devices: bool,

    /// Which joins run on the device
    #[arg(long, default_value = "always", value_parser = ["auto", "always", "never"])]
    enabled: String,

    /// Another option of horton, as in --set chunk_rows=65536, or of both sides, as in --set
    /// datafusion.execution.batch_size=1024; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,
}

fn scale_factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (0.001..=100_000.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0.001 to 100000".to_string()),
    }
}

fn repeats(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("a number from 1".to_string()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number from 0 to 86400".to_string()),
    }
}

/// Splits `key=value`; the key gets the prefix `horton.` if it has no other.
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE")?;
    let key = key.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if key.is_empty() || !key.chars().all(is_name) {
        return Err("the key is not an option's name".to_string());
    }
    let is_whole = ["horton.", "datafusion."]
        .iter()
        .any(|prefix| key.starts_with(prefix));
    let prefix = if is_whole { "" } else { "horton." };
    Ok((format!("{prefix}{key}"), value.trim().to_string()))
}

fn main() -> ExitCode {
    let log = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(log).init();
    let args = Args::parse();
    status(with_trace(args.trace.as_deref(), || run(&args)))
}

/// Does what the arguments ask for; returns the number of differences found.
fn run(args: &Args) -> Result<usize> {
    if args.list_devices {
        let mut out = io::stdout().lock();
        for device in horton_join::device::list()? {
            writeln!(out, "{device}")?;
        }
        return Ok(0);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    match &args.write {
        Some(dir) => runtime.block_on(write_tpch(dir, args.scale)),
        None => runtime.block_on(run_queries(args)),
    }
}

/// Writes TPC-H as files; finds no differences.
async fn write_tpch(dir: &Path, scale: f64) -> Result<usize> {
    let partitions = SessionContext::new().state().config().target_partitions();
    let data = data::generate(scale, partitions)?;
    write::write(dir, &data, &Selection::All.queries(scale)).await?;
    writeln!(io::stdout(), "{}, written to {}", data.about, dir.display())?;
    Ok(0)
}

async fn run_queries(args: &Args) -> Result<usize> {
    let mut out = io::stdout();
    let all = args.queries.is_some() || args.query == Selection::All;
    let check = args.check || all;
    let rows = args.rows.unwrap_or(if all { 3 } else { 20 });

    let horton = pooled(&traced(&horton_context(args).await?), None)?;
    let stock = pooled(&traced(&stock_context(args).await?), None)?;
    let data = load(args, stock.state().config().target_partitions()).await?;
    writeln!(out, "{}", data.about)?;
    data.register(&stock)?;
    // The session that scans a table of files first caches their metadata: each needs its own.
    let own = match &args.data {
        Some(dir) if !args.in_memory => Some(data::open(dir, false).await?),
        _ => None,
    };
    own.as_ref().unwrap_or(&data).register(&horton)?;
    let sides = Sides {
        stock,
        horton,
        limit: args.memory_limit,
    };

    let queries = match &args.queries {
        Some(dir) => folder::of_folder(dir)?,
        None => args
            .query
            .queries(data_scale(&sides.stock, &args.query).await?),
    };
    let effort = Effort {
        repeat: args.repeat,
        time: Duration::from_secs_f64(args.seconds),
    };
    let mut csv = args.csv.as_deref().map(csv::create).transpose()?;
    let mut outcomes: Vec<Outcome> = vec![];
    let mut failures: Vec<String> = vec![];
    for query in queries {
        let outcome = match measure(&sides, &query, effort, check).await {
            Ok(outcome) => outcome,
            // One of many does not keep the others from running.
            Err(error) if args.queries.is_some() || args.memory_limit.is_some() => {
                failures.push(error.to_string());
                continue;
            }
            Err(error) => return Err(error),
        };
        report::query(&mut out, &outcome, rows)?;
        if let Some(csv) = &mut csv {
            csv::add(csv, &outcome)?;
        }
        if args.explain {
            report::plan(&mut out, &outcome)?;
        }
        outcomes.push(outcome);
    }
    if all {
        report::summary(&mut out, &outcomes)?;
    }
    report::failures(&mut out, &failures)?;
    if all {
        report::closing_line(&mut out, &outcomes)?;
    }
    out.flush()?;
    if let Some(first) = failures.first() {
        let first = first.lines().next().unwrap_or_default();
        return Err(format!(
            "{} of the queries failed; the first: {first}",
            failures.len()
        )
        .into());
    }
    Ok(outcomes.iter().map(Outcome::difference_count).sum())
}

/// Returns a context with Horton joins and the options of the command line.
async fn horton_context(args: &Args) -> Result<SessionContext> {
    let context = horton_join::context(SessionConfig::new());
    set(&context, "horton.enabled", &args.enabled).await?;
    if let Some(device) = &args.device {
        set(&context, "horton.device", device).await?;
    }
    for (key, value) in &args.set {
        set(&context, key, value).await?;
    }
    Ok(context)
}

/// Returns a context of DataFusion as published, with the options that are its own.
async fn stock_context(args: &Args) -> Result<SessionContext> {
    let context = SessionContext::new();
    for (key, value) in &args.set {
        if key.starts_with("datafusion.") {
            set(&context, key, value).await?;
        }
    }
    Ok(context)
}

async fn set(context: &SessionContext, key: &str, value: &str) -> Result<()> {
    let value = value.replace('\'', "''");
    let statement = format!("SET {key} = '{value}'");
    context.sql(&statement).await?.collect().await?;
    Ok(())
}

async fn load(args: &Args, partitions: usize) -> Result<Data> {
    match &args.data {
        Some(dir) => {
            let all_of_tpch = args.queries.is_none() && args.query.is_tpch();
            let data = data::open(dir, all_of_tpch).await?;
            match args.in_memory {
                true => folder::in_memory(data, partitions).await,
                false => Ok(data),
            }
        }
        None => data::generate(args.scale, partitions),
    }
}

/// Returns the scale factor of the data at hand, for the one TPC-H query that depends on it.
async fn data_scale(context: &SessionContext, selection: &Selection) -> Result<f64> {
    if !selection.is_tpch() {
        return Ok(1.0);
    }
    let frame = context.sql("select count(*) from supplier").await?;
    let batches = frame.collect().await?;
    let suppliers: i64 = batches
        .iter()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values())
        .sum();
    Ok(suppliers.max(1) as f64 / SUPPLIERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |line: &str| Args::try_parse_from(line.split(' '));
        let args = parse("tpch_join").unwrap();
        assert_eq!((args.scale, args.query), (0.1, Selection::All));
        assert_eq!((args.enabled.as_str(), args.repeat), ("always", 1));
        assert!(parse("tpch_join --data some").is_ok());
        assert!(parse("tpch_join --trace some.json").is_ok());
        assert!(parse("tpch_join --data some --in-memory --queries q").is_ok());
        for wrong in [
            "--scale 0",
            "--scale nan",
            "--scale 1 --data some",
            "--query 23",
            "--in-memory",
            "--queries q",
            "--data some --queries q --query 1",
            "--repeat 0",
            "--seconds=-1",
            "--seconds nan",
            "--enabled maybe",
            "--set chunk_rows",
            "--memory-limit 0",
            "--memory-limit 2/1",
            "--write d --data some",
            "--write d --query 1",
        ] {
            assert!(parse(&format!("tpch_join {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_take_an_optional_prefix() {
        let pair = |key: &str, value: &str| Ok((key.to_string(), value.to_string()));
        assert_eq!(
            key_value("chunk_rows=65536"),
            pair("horton.chunk_rows", "65536")
        );
        assert_eq!(
            key_value("horton.device = a=b"),
            pair("horton.device", "a=b")
        );
        let batch_size = "datafusion.execution.batch_size";
        assert_eq!(key_value(&format!("{batch_size}=9")), pair(batch_size, "9"));
        assert!(key_value("a;drop=1").is_err());
    }
}
