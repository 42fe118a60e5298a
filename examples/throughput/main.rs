//! Queries of many sessions at once, on one device and on several.
//!
//! ```text
//!  session 1 ─ join, join, … ─┐
//!  session 2 ─ join, join, … ─┼─▶ horton.device = 'auto' │ 'all'  ─▶ queries per second
//!  session n ─ join, join, … ─┘
//! ```
//!
//! `cargo run --release --example throughput -- --devices auto --devices all --plot throughput.svg`
//!
//! Each session has a context of its own over the same tables in memory, as sessions of a server
//! have. The query counts the pairs of a join: rows that come back would keep the host busy, and
//! what is asked here is how devices share work. `--rows-back` adds a sum over a build column.
//! With `--large`, one join's table is larger than the limit of one device, and is cut into shards.

mod measure;

use clap::Parser;
use datafusion::error::{DataFusionError, Result};
use horton_test_support::plot::{Legend, Line, plot};

use measure::{Tables, Throughput, large, throughput};

/// Queries of many sessions at once, on one device and on several.
#[derive(Debug, Parser)]
pub struct Options {
    /// A value of horton.device; once for each setting to compare.
    #[arg(long = "devices", default_values = ["auto", "all"])]
    devices: Vec<String>,
    /// Numbers of sessions.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32])]
    sessions: Vec<usize>,
    /// Rows of the build side.
    #[arg(long, default_value_t = 1 << 24)]
    build: usize,
    /// Rows of the probe side.
    #[arg(long, default_value_t = 1 << 26)]
    probe: usize,
    /// Seconds for each number of sessions.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Target partitions of a session; 0 for DataFusion's default.
    #[arg(long, default_value_t = 0)]
    partitions: usize,
    /// Sum a column of the build side, so that rows come back.
    #[arg(long)]
    rows_back: bool,
    /// With --large: limits of the memory on each device, in bytes per build row.
    #[arg(long, value_delimiter = ',', default_values_t = [24, 16, 10])]
    row_bytes: Vec<u64>,
    /// Measure one join whose table is larger than one device's limit.
    #[arg(long)]
    large: bool,
    /// A file for the figure.
    #[arg(long)]
    plot: Option<std::path::PathBuf>,
}

#[tokio::main]
async fn main() -> Result<()> {
    env_logger::init();
    let options = Options::parse();
    let tables = Tables::new(options.build, options.probe)?;
    if options.large {
        return large(&tables, &options).await;
    }
    println!(
        "{} build rows, {} probe rows, {:?}",
        options.build, options.probe, options.devices
    );
    println!(
        "{:>10} {:>9} {:>11} {:>14} {:>6}",
        "device", "sessions", "queries/s", "M probe rows/s", "ratio"
    );
    let mut all: Vec<Throughput> = Vec::new();
    for sessions in &options.sessions {
        let mut first = None;
        for device in &options.devices {
            let found = throughput(&tables, &options, device, *sessions).await?;
            let ratio = found.per_second / *first.get_or_insert(found.per_second);
            let rows = found.per_second * options.probe as f64 / 1e6;
            println!(
                "{device:>10} {sessions:>9} {:>11.2} {rows:>14.0} {ratio:>6.2}",
                found.per_second
            );
            all.push(found);
        }
    }
    if let Some(path) = &options.plot {
        let drawn = draw(path, &all, &options);
        drawn.map_err(|e| DataFusionError::Execution(e.to_string()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// Draws a line for each setting of devices.
fn draw(
    path: &std::path::Path,
    all: &[Throughput],
    options: &Options,
) -> horton_test_support::sql_bench::Result<bool> {
    let line = |device: &String| {
        let of_device = all.iter().filter(|found| found.device == *device);
        Line {
            name: format!("horton.device = '{device}'"),
            points: of_device
                .map(|found| (found.sessions as f64, found.per_second))
                .collect(),
        }
    };
    let lines: Vec<Line> = options.devices.iter().map(line).collect();
    let title = format!("{} build rows, {} probe rows", options.build, options.probe);
    plot(
        path,
        &title,
        ("sessions", "queries a second"),
        &lines,
        Legend::Left,
    )
}
