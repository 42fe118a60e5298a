//! Tables in memory, sessions over them, and what they get done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::config::{Enabled, HortonConfig};
use horton_join::{HortonJoinExec, Place, warm_up};

use crate::Options;

/// Rows of a batch.
const BATCH: usize = 1 << 16;

/// The sides of the join.
pub struct Tables {
    build: Arc<MemTable>,
    probe: Arc<MemTable>,
}

/// Work that a number of sessions got done on a setting of devices.
#[derive(Debug, Clone)]
pub struct Throughput {
    /// The value of horton.device.
    pub device: String,
    /// Sessions at once.
    pub sessions: usize,
    /// Queries per second.
    pub per_second: f64,
}

/// Returns a bijection of 32-bit numbers, so that keys are unique and in no order.
fn mixed(number: u32) -> u32 {
    let mut x = number.wrapping_mul(0x9e37_79b1);
    x ^= x >> 15;
    x.wrapping_mul(0x85eb_ca77)
}

fn table(rows: usize, key: impl Fn(u32) -> u32) -> Result<Arc<MemTable>> {
    let partitions = std::thread::available_parallelism().map_or(1, usize::from);
    let mut batches: Vec<Vec<RecordBatch>> = vec![Vec::new(); partitions];
    let mut schema: Option<SchemaRef> = None;
    for (i, first) in (0..rows).step_by(BATCH).enumerate() {
        let numbers = first as u32..rows.min(first + BATCH) as u32;
        let keys: UInt32Array = numbers.clone().map(&key).collect();
        let values: Int64Array = numbers.map(i64::from).collect();
        let batch = RecordBatch::try_from_iter([
            ("k", Arc::new(keys) as ArrayRef),
            ("v", Arc::new(values) as ArrayRef),
        ])?;
        schema.get_or_insert_with(|| batch.schema());
        batches[i % partitions].push(batch);
    }
    let schema = schema.ok_or_else(|| DataFusionError::Execution("a table needs rows".into()))?;
    Ok(Arc::new(MemTable::try_new(schema, batches)?))
}

impl Tables {
    /// Makes `build` rows with unique keys, and `probe` rows, half of which meet one.
    pub fn new(build: usize, probe: usize) -> Result<Self> {
        let twice = (2 * build).min(u32::MAX as usize) as u32;
        Ok(Self {
            build: table(build, mixed)?,
            probe: table(probe, |row| mixed(mixed(row) % twice))?,
        })
    }

    fn session(&self, horton: HortonConfig, partitions: usize) -> Result<SessionContext> {
        let mut config = SessionConfig::new().with_option_extension(horton);
        if partitions > 0 {
            config = config.with_target_partitions(partitions);
        }
        let session = horton_join::context(config);
        session.register_table("build", Arc::clone(&self.build) as _)?;
        session.register_table("probe", Arc::clone(&self.probe) as _)?;
        Ok(session)
    }
}

fn on(device: &str) -> HortonConfig {
    HortonConfig {
        enabled: Enabled::Always,
        device: device.to_owned(),
        ..HortonConfig::default()
    }
}

fn query(options: &Options) -> &'static str {
    if options.rows_back {
        "SELECT count(*), sum(build.v) FROM build JOIN probe ON build.k = probe.k"
    } else {
        "SELECT count(*) FROM build JOIN probe ON build.k = probe.k"
    }
}

/// Runs the query once. Returns what its joins say of themselves.
async fn run(session: &SessionContext, query: &str) -> Result<String> {
    let plan = session.sql(query).await?.create_physical_plan().await?;
    collect(Arc::clone(&plan), session.task_ctx()).await?;
    let joins = HortonJoinExec::all_in(&plan).into_iter();
    let decisions: Vec<_> = joins.flat_map(|join| join.decisions()).collect();
    let tables = decisions.len();
    let mut places: Vec<String> = Vec::new();
    for decision in decisions {
        match decision.place {
            Place::Device(device) => places.push(device.info().label()),
            Place::Host(reason) => {
                let reason = format!("a join ran on the host: {reason}");
                return Err(DataFusionError::Execution(reason));
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    Ok(format!("{tables} tables, on {}", places.join(" and ")))
}

/// Returns what `sessions` sessions get done with `device`.
pub async fn throughput(
    tables: &Tables,
    options: &Options,
    device: &str,
    sessions: usize,
) -> Result<Throughput> {
    let (done, ends) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let mut running = Vec::new();
    for _ in 0..sessions {
        let session = tables.session(on(device), options.partitions)?;
        warm_up(&session).await?;
        let (done, ends, query) = (Arc::clone(&done), Arc::clone(&ends), query(options));
        running.push(tokio::spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                run(&session, query).await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, DataFusionError>(())
        }));
    }
    // The first queries make pools full, and are not counted.
    tokio::time::sleep(Duration::from_secs_f64(options.seconds / 3.0)).await;
    let (before, began) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs_f64(options.seconds)).await;
    let (after, took) = (done.load(Ordering::Relaxed), began.elapsed());
    ends.store(true, Ordering::Relaxed);
    for session in running {
        let ended = session
            .await
            .map_err(|e| DataFusionError::External(e.into()))?;
        ended?;
    }
    Ok(Throughput {
        device: device.to_owned(),
        sessions,
        per_second: (after - before) as f64 / took.as_secs_f64(),
    })
}

/// Runs of which the median counts.
const RUNS: usize = 7;

/// Measures one join: on the first device, whose table fits, and on all, under limits that it does
/// not fit. A table takes about eight bytes per row, and its keys four while it is built.
pub async fn large(tables: &Tables, options: &Options) -> Result<()> {
    let mut first = None;
    let limits = [0].iter().chain(&options.row_bytes);
    let limits = limits.map(|row_bytes| row_bytes * options.build as u64);
    let settings = limits.map(|limit| options.devices.iter().map(move |d| (d, limit)));
    for (device, limit) in settings.flatten() {
        let horton = HortonConfig {
            device_memory_limit: limit,
            ..on(device)
        };
        let session = tables.session(horton, options.partitions)?;
        warm_up(&session).await?;
        let mut times = Vec::new();
        let mut places = String::new();
        for _ in 0..=RUNS {
            let began = Instant::now();
            places = run(&session, query(options)).await?;
            times.push(began.elapsed().as_secs_f64());
        }
        times.remove(0);
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        let ratio = *first.get_or_insert(median) / median;
        println!(
            "{device:>5}, limit {limit:>12}: {median:.4} s, {ratio:.2} of the speed, {places}"
        );
    }
    Ok(())
}
