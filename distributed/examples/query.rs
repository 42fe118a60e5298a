//! A coordinator: queries over Parquet files, run by workers whose joins are on devices.
//!
//! ```text
//!   cargo run --example query -- --worker http://127.0.0.1:8081 --worker http://127.0.0.1:8082 \
//!       --data DIR --tpch 0.01 --file q5.sql --analyze
//!
//!   DIR/NAME.parquet, DIR/NAME/*.parquet ─▶ tables ─▶ SQL ─▶ stages ─▶ workers ─▶ rows
//! ```
//!
//! All of it is datafusion-distributed's, but for one line: the options `horton.…`. Workers open
//! the files themselves, so DIR must be on every machine, under the same path.
//!
//! Exit status: 0; 1 for errors; 2 for flags that cannot be read.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use arrow::util::pretty::pretty_format_batches;
use clap::Parser;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, WorkerResolver};
use horton_join::config::HortonConfig;
use url::Url;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Queries over Parquet files, run by workers whose joins are on devices.
#[derive(Parser)]
struct Args {
    /// Address of a worker, such as http://127.0.0.1:8081; once for each
    #[arg(long = "worker", value_name = "URL", required = true)]
    workers: Vec<Url>,

    /// Folder of tables: NAME.parquet, or folders NAME of Parquet files
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Write TPC-H's tables of this scale factor into the folder first
    #[arg(long, value_name = "SCALE")]
    tpch: Option<f64>,

    /// Option of the session, such as horton.enabled=always
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Bytes of files that a partition reads; fewer make more tasks
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
    partition_bytes: usize,

    /// Show the plan that ran, with its metrics, instead of rows
    #[arg(long)]
    analyze: bool,

    /// Query text
    #[arg(long)]
    sql: Vec<String>,

    /// File with one query
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
}

/// The workers that were named.
struct Workers(Vec<Url>);

impl WorkerResolver for Workers {
    fn get_urls(&self) -> datafusion::error::Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<()> {
    if let Some(scale) = args.tpch {
        fs::create_dir_all(&args.data)?;
        horton_test_support::tpch::write_tables(&args.data, scale).await?;
    }
    let session = coordinator(args.workers, args.partition_bytes)?;
    register(&session, &args.data).await?;
    for option in &args.set {
        let (name, value) = option.split_once('=').ok_or("--set expects NAME=VALUE")?;
        let value = value.replace('\'', "''");
        session.sql(&format!("SET {name} = '{value}'")).await?;
    }
    let mut queries = args.sql;
    for file in &args.file {
        let text = fs::read_to_string(file);
        queries.push(text.map_err(|error| format!("{}: {error}", file.display()))?);
    }
    for query in queries {
        show(&session, &query, args.analyze).await?;
    }
    Ok(())
}

/// Returns the session of a coordinator.
fn coordinator(workers: Vec<Url>, partition_bytes: usize) -> Result<SessionContext> {
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_distributed_planner()
        .with_distributed_worker_resolver(Workers(workers))
        .with_distributed_file_scan_config_bytes_per_partition(partition_bytes)?
        // SET horton.… then travels with each query.
        .with_distributed_option_extension(HortonConfig::default())
        .build();
    Ok(SessionContext::new_with_state(state))
}

/// Makes the tables in `folder` known by the names of their files or folders.
async fn register(session: &SessionContext, folder: &Path) -> Result<()> {
    let describe = |error| format!("cannot read {}: {error}", folder.display());
    // Workers may run in another folder.
    let folder = folder.canonicalize().map_err(describe)?;
    for entry in fs::read_dir(&folder).map_err(describe)? {
        let path = entry?.path();
        let is_table = path.is_dir() || path.extension().is_some_and(|end| end == "parquet");
        let name = path.file_stem().and_then(|name| name.to_str());
        if let (true, Some(name), Some(path)) = (is_table, name, path.to_str()) {
            let options = ParquetReadOptions::default();
            session.register_parquet(name, path, options).await?;
        }
    }
    Ok(())
}

/// Prints the rows of `query`, or its plan with metrics.
async fn show(session: &SessionContext, query: &str, analyze: bool) -> Result<()> {
    let explain = if analyze { "EXPLAIN ANALYZE " } else { "" };
    let frame = session.sql(&format!("{explain}{query}")).await?;
    let batches = frame.collect().await?;
    if analyze {
        for batch in &batches {
            let plan = arrow::util::display::array_value_to_string(batch.column(1), 0)?;
            println!("{plan}");
        }
    } else {
        println!("{}", pretty_format_batches(&batches)?);
    }
    Ok(())
}
