//! Build sides 2, 4 and 10 times as large as the device's limit: several tables beside buckets in memory.
//!
//! ```text
//!   cargo run --release --example large_builds -- --build 10M --probe 30M
//!   tables ─▶ stock, device, segments and buckets under each limit, by turns, checked ─▶ medians
//!          └▶ the same, one process each ─▶ peak resident memory
//! ```
//!
//! The need of a build side is its table and its gathered column, as they are on a device without a
//! limit. Exit status: 1 if an answer was wrong or no kernel ran.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use clap::Parser;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};

use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, HortonConfig};
use horton_join::join::decide::Place;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Build sides larger than the device's limit: several tables beside buckets in memory.
#[derive(Parser, Clone)]
struct Args {
    /// Rows of the build side
    #[arg(long, default_value = "10M", value_parser = rows)]
    build: usize,
    /// Rows of the probe side
    #[arg(long, default_value = "30M", value_parser = rows)]
    probe: usize,
    /// Cases
    #[arg(
        long,
        default_value = "dense,sparse,left,repeat,text",
        value_delimiter = ','
    )]
    cases: Vec<String>,
    /// How many times the device's limit a build side needs
    #[arg(long, default_value = "2,4,10", value_delimiter = ',')]
    factors: Vec<u64>,
    /// Timed runs of each, after one to warm up
    #[arg(long, default_value = "3")]
    repeat: usize,
    /// Partitions [default: all cores]
    #[arg(long)]
    partitions: Option<usize>,
    /// horton.chunk_rows
    #[arg(long, default_value = "0")]
    chunk_rows: usize,
    /// Device: auto, PLATFORM:INDEX, or part of a device's name
    #[arg(long, default_value = "auto")]
    device: String,
    /// Also run each once in a process of its own, for its peak resident memory
    #[arg(long)]
    memory: bool,
    /// Run only this variant, with this limit, once, and print the peak resident memory
    #[arg(long, hide = true, num_args = 2)]
    only: Option<Vec<String>>,
}

fn rows(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix('M') {
        Some(number) => (number, 1_000_000),
        None => (text, 1),
    };
    let number: usize = number.parse().map_err(|_| "rows, as in 10M".to_owned())?;
    Ok(number * unit)
}

const BATCH: usize = 8192;

/// A permutation of 0..2^bits.
fn mixed(i: u64, bits: u32) -> u64 {
    let mask = (1 << bits) - 1;
    let mut x = i & mask;
    for odd in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9_u64] {
        x = x.wrapping_mul(odd) & mask;
        x ^= x >> (bits / 2);
    }
    x
}

/// The `i`th of a permutation of 0..n.
fn permuted(i: u64, n: u64) -> u64 {
    let bits = (64 - n.leading_zeros()).max(2);
    let mut x = mixed(i, bits);
    while x >= n {
        x = mixed(x, bits);
    }
    x
}

fn key(case: &str, k: u64) -> i64 {
    match case {
        "sparse" => (k as i64) << 24,
        _ => k as i64,
    }
}

/// Keys of row `i` of either side.
fn build_key(case: &str, i: u64, n: u64) -> u64 {
    match case {
        "repeat" => permuted(i, n) / 4,
        _ => permuted(i, n),
    }
}

fn probe_key(case: &str, i: u64, m: u64, n: u64) -> u64 {
    let spread = match case {
        // A quarter of the build rows, and half of the probe rows, meet nothing.
        "left" => 2 * (n / 4 * 3),
        "repeat" => n,
        _ => n,
    };
    let k = permuted(i, m) % spread;
    match case {
        "left" if k >= n / 4 * 3 => k + n,
        _ => k,
    }
}

fn table(
    case: &str,
    (rows, build): (usize, Option<usize>),
    partitions: usize,
) -> Result<Arc<MemTable>> {
    let value = if build.is_some() { "w" } else { "v" };
    let batch = |from: usize| {
        let all = from as u64..(from + BATCH).min(rows) as u64;
        let of = |i| match build {
            None => build_key(case, i, rows as u64),
            Some(n) => probe_key(case, i, rows as u64, n as u64),
        };
        let keys: ArrayRef = match case {
            "text" => Arc::new(StringArray::from_iter_values(
                all.clone().map(|i| format!("customer#{:09}", of(i))),
            )),
            _ => Arc::new(Int64Array::from_iter_values(
                all.clone().map(|i| key(case, of(i))),
            )),
        };
        let values = Int64Array::from_iter_values(all.map(|i| (i % 4093) as i64));
        RecordBatch::try_from_iter([("k", keys), (value, Arc::new(values) as ArrayRef)])
    };
    let each = rows.div_ceil(BATCH).div_ceil(partitions) * BATCH;
    let parts = thread::scope(|scope| {
        let part = |p: usize| {
            let batch = &batch;
            scope.spawn(move || {
                let ends = rows.min((p + 1) * each);
                let batches = (p * each..ends).step_by(BATCH).map(batch);
                batches.collect::<Result<Vec<_>, _>>()
            })
        };
        let parts: Vec<_> = (0..partitions).map(part).collect();
        parts
            .into_iter()
            .map(|part| part.join().map_err(|_| "a thread panicked".into()))
            .collect::<Result<Vec<_>>>()
    })?;
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    let schema = batch(0)?.schema();
    Ok(Arc::new(MemTable::try_new(schema, parts)?))
}

fn sql(case: &str) -> &'static str {
    match case {
        "left" => {
            "SELECT count(*), count(w), sum(v), sum(w), sum(v * w) FROM b LEFT JOIN p ON b.k = p.k"
        }
        _ => "SELECT count(*), sum(v), sum(w), sum(v * w) FROM b JOIN p ON b.k = p.k",
    }
}

/// One way to run a join.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Variant {
    name: String,
    limit: u64,
}

fn session(args: &Args, variant: &Variant) -> SessionContext {
    let partitions = args.partitions();
    let config = SessionConfig::new().with_target_partitions(partitions);
    let name = variant.name.as_str();
    let options = HortonConfig {
        enabled: match name {
            "stock" => Enabled::Never,
            _ => Enabled::Always,
        },
        device: args.device.clone(),
        device_memory_limit: variant.limit,
        segments: name.starts_with("segments"),
        chunk_rows: args.chunk_rows,
        ..HortonConfig::default()
    };
    let state = SessionStateBuilder::new()
        .with_config(config.with_option_extension(options))
        .with_default_features();
    SessionContext::new_with_state(horton_join::install(state).build())
}

impl Args {
    fn partitions(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        self.partitions.unwrap_or_else(cores)
    }
}

/// What was seen of a run.
struct Seen {
    time: Duration,
    rows: String,
    launches: usize,
    table_bytes: usize,
    joins: usize,
    on_device: usize,
}

async fn run(session: &SessionContext, case: &str) -> Result<Seen> {
    let began = Instant::now();
    let plan = session.sql(sql(case)).await?.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await?;
    let mut seen = Seen {
        time: began.elapsed(),
        rows: pretty_format_batches(&batches)?.to_string(),
        launches: 0,
        table_bytes: 0,
        joins: 0,
        on_device: 0,
    };
    plan.apply(|node: &Arc<dyn ExecutionPlan>| {
        if let Some(join) = node.downcast_ref::<HortonJoinExec>() {
            let metrics = join.metrics().unwrap_or_default();
            let metric = |name| metrics.sum_by_name(name).map_or(0, |m| m.as_usize());
            seen.launches += metric("kernel_launches");
            seen.table_bytes += metric("table_bytes");
            let decisions = join.decisions();
            seen.joins += decisions.len();
            let on_device = decisions
                .iter()
                .filter(|d| matches!(d.place, Place::Device(_)));
            seen.on_device += on_device.count();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(seen)
}

fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn register(session: &SessionContext, tables: &[Arc<MemTable>; 2]) -> Result<()> {
    for (name, table) in ["b", "p"].into_iter().zip(tables) {
        session.register_table(name, Arc::clone(table) as _)?;
    }
    Ok(())
}

async fn measure(args: &Args, case: &str) -> Result<usize> {
    let partitions = args.partitions();
    let tables = [
        table(case, (args.build, None), partitions)?,
        table(case, (args.probe, Some(args.build)), partitions)?,
    ];
    let variant = |name: &str, limit| Variant {
        name: name.to_owned(),
        limit,
    };
    if let Some(only) = &args.only {
        let only = variant(&only[0], only[1].parse()?);
        let session = session(args, &only);
        register(&session, &tables)?;
        let before = peak_mib();
        run(&session, case).await?;
        println!("{before} {}", peak_mib());
        return Ok(0);
    }
    let device = variant("device", 0);
    let unlimited = session(args, &device);
    register(&unlimited, &tables)?;
    let seen = run(&unlimited, case).await?;
    let need = seen.table_bytes as u64 + 8 * args.build as u64;
    let mut variants = vec![variant("stock", 0), device];
    for name in ["segments", "buckets"] {
        let limited = args.factors.iter();
        variants.extend(limited.map(|f| variant(&format!("{name}/{f}"), need / f)));
    }
    println!(
        "{case}: {} x {} rows, {partitions} partitions, need {} MiB\n{}",
        args.build,
        args.probe,
        need >> 20,
        seen.rows
    );
    let mut times: BTreeMap<usize, Vec<Duration>> = BTreeMap::new();
    let mut last = Vec::new();
    let sessions: Vec<_> = variants.iter().map(|v| session(args, v)).collect();
    let mut wrong = 0;
    for session in &sessions {
        register(session, &tables)?;
    }
    for turn in 0..=args.repeat {
        last.clear();
        for (v, session) in sessions.iter().enumerate() {
            let found = run(session, case).await?;
            if found.rows != seen.rows {
                eprintln!("{case}, {}: WRONG ROWS\n{}", variants[v].name, found.rows);
                wrong += 1;
            }
            if variants[v].name != "stock" && found.launches == 0 {
                eprintln!("{case}, {}: NO KERNEL RAN", variants[v].name);
                wrong += 1;
            }
            if turn > 0 {
                times.entry(v).or_default().push(found.time);
            }
            last.push(found);
        }
    }
    for (v, times) in &mut times {
        times.sort_unstable();
        let (Variant { name, limit }, seen) = (&variants[*v], &last[*v]);
        let memory = match args.memory {
            true => alone(args, case, &variants[*v])?,
            false => String::new(),
        };
        println!(
            "{case:8}{name:12} limit {:6} MiB  median {:8.0} ms  best {:8.0} ms  {} of {} joins on the device, \
             {} launches, tables {} MiB{memory}",
            limit >> 20,
            times[times.len() / 2].as_secs_f64() * 1e3,
            times[0].as_secs_f64() * 1e3,
            seen.on_device,
            seen.joins,
            seen.launches,
            seen.table_bytes >> 20,
        );
    }
    Ok(wrong)
}

/// Peak resident memory of a process that runs `variant` once.
fn alone(args: &Args, case: &str, variant: &Variant) -> Result<String> {
    let mut command = Command::new(std::env::current_exe()?);
    let (build, probe) = (args.build.to_string(), args.probe.to_string());
    command.args(["--build", &build, "--probe", &probe, "--cases", case]);
    command.args(["--device", &args.device]);
    command.args(["--partitions", &args.partitions().to_string()]);
    command.args(["--chunk-rows", &args.chunk_rows.to_string()]);
    command.args(["--only", &variant.name, &variant.limit.to_string()]);
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let Some((before, after)) = text.split_once(' ') else {
        return Ok(format!(
            ", peak unknown: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    };
    Ok(format!(", peak {after} MiB (tables alone {before})"))
}

#[tokio::main]
async fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let args = Args::parse();
    let mut wrong = 0;
    for case in &args.cases {
        match measure(&args, case).await {
            Ok(found) => wrong += found,
            Err(error) => {
                eprintln!("{case}: {error}");
                wrong += 1;
            }
        }
    }
    match wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
