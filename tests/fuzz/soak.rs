//! Many queries at once on one device, some of them dropped midway, some in little memory: right
//! rows, no growth of host or device memory, no file left, no deadlock.
//!
//! ```text
//!  32 tasks ─▶ draw a query ─┬─▶ run to its end ─▶ rows as the stock join's?
//!                            └─▶ poll a while, drop
//!  watchdog ─▶ a task that says nothing for four minutes: what every task is at, exit
//!  at the end ─▶ memory pools, device budget: 0 bytes; no file; host memory: as at half time
//! ```
//!
//! `make soak DURATION=600` runs it for so many seconds (`HORTON_SOAK_DURATION`); a plain `cargo
//! test` for twenty. Queries run in sessions of their own limits on device memory, on the rows of a
//! table, and on those of a turn. So joins in one table and in several, of either side, go on side
//! by side. One session has a memory pool of its own, with less than its queries want: joins go to
//! disk. Every other ten seconds all queries are of that one.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, HortonConfig, Knobs, OnDeviceError};
use horton_join::device::Device;
use horton_join::table::horton::MAX_VALUE;
use horton_test_support::env::asked;
use horton_test_support::{child, test_name};
use rand_mt::Mt64;
use tempfile::TempDir;

/// Queries at once.
const TASKS: usize = 32;

/// Seconds of a plain `cargo test`.
const DURATION: u64 = 20;

/// Ticks of a second, each at least, that a task may be at one thing.
const STUCK: usize = 240;

/// Bytes of the memory pool that queries with enough of it share.
const POOL_BYTES: usize = 2 << 30;

/// Bytes of the memory pool that the others share.
const SMALL_POOL_BYTES: usize = 64 << 20;

/// Queries after which the memory that allocators keep does not grow any more. A loaded machine
/// takes more than half of the time for them.
const WARM_QUERIES: usize = 100;

/// Host memory that allocators may keep of what was freed.
const KEPT_BYTES: usize = 128 << 20;

/// Rows of `a` and `b`.
const ROWS: usize = 20_000;

/// Bytes of a long text: the small pool holds one side of them, or two.
const LONG_TEXT: usize = 1000;

/// Each gives one row, or sorted ones.
const QUERIES: [&str; 8] = [
    "SELECT count(*), sum(a.v), sum(b.w) FROM a JOIN b ON a.k = b.k",
    "SELECT count(*), sum(a.v), sum(b.w) FROM a FULL JOIN b ON a.k = b.k AND a.v < b.w",
    "SELECT count(*), sum(a.v) FROM a WHERE a.k NOT IN (SELECT k FROM b WHERE k < 3000)",
    "SELECT count(*), sum(b.w) FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.s = b.s)",
    "SELECT count(*), sum(a.v), min(b.s) FROM a LEFT JOIN b ON a.s = b.s",
    "SELECT count(*), sum(x.v + y.v) FROM a x JOIN b ON x.k = b.k JOIN a y ON y.k = b.w",
    "SELECT a.v, b.w FROM a JOIN b ON a.k = b.k ORDER BY a.v, b.w LIMIT 20",
    "SELECT count(*), sum(octet_length(a.t)), max(b.t) FROM a FULL JOIN b ON a.k = b.k",
];

/// Many rows, to be dropped before the last.
const LONG: [&str; 2] = [
    "SELECT a.v, b.w FROM a JOIN b ON a.k % 50 = b.k % 50",
    "SELECT a.v, b.s FROM a LEFT JOIN b ON a.s = b.s",
];

/// The sessions: limits on device memory (which all queries share; 0: the device's own), rows of a
/// table, and rows after which the other side is read, too.
const SESSIONS: [Limits; 3] = [
    (0, MAX_VALUE as usize, 1 << 20),
    (0, 3000, 5000),
    (1 << 28, MAX_VALUE as usize, 1 << 20),
];

/// The session of the small pool.
const SMALL: usize = 1;

/// Seconds of queries of all sessions, and as many of those of the small pool.
const PHASE: u64 = 10;

type Limits = (u64, usize, usize);

fn table(seed: u64, value: &str) -> MemTable {
    let mut random = Mt64::new(seed);
    let keys: Vec<Option<i64>> = (0..ROWS)
        .map(|_| match random.next_u64() {
            n if n % 50 == 0 => None,
            n => Some((n % (ROWS as u64 / 2)) as i64),
        })
        .collect();
    let texts = keys.iter().map(|k| k.map(|k| format!("text {k}")));
    let long = (0..ROWS).map(|row| format!("{row:LONG_TEXT$}"));
    let columns: [(&str, ArrayRef); 4] = [
        ("k", Arc::new(Int64Array::from(keys.clone()))),
        (
            value,
            Arc::new(Int64Array::from_iter_values(0..ROWS as i64)),
        ),
        ("s", Arc::new(StringArray::from_iter(texts))),
        ("t", Arc::new(StringArray::from_iter_values(long))),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    let batches = (0..ROWS)
        .step_by(4096)
        .map(|at| batch.slice(at, 4096.min(ROWS - at)));
    MemTable::try_new(batch.schema(), vec![batches.collect()]).unwrap()
}

fn session(runtime: &Arc<RuntimeEnv>, horton: Option<Limits>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(4);
    let state = |config| {
        SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(Arc::clone(runtime))
            .with_default_features()
    };
    let state = match horton {
        None => state(config).build(),
        Some((device_memory_limit, max_table_rows, sample_rows)) => {
            let options = HortonConfig {
                enabled: Enabled::Always,
                device: asked(),
                device_memory_limit,
                knobs: Knobs {
                    max_table_rows,
                    sample_rows,
                    ..Knobs::default()
                },
                // The host would hide that the device failed.
                on_device_error: OnDeviceError::Error,
                ..HortonConfig::default()
            };
            horton_join::install(state(config.with_option_extension(options))).build()
        }
    };
    let session = SessionContext::new_with_state(state);
    session
        .register_table("a", Arc::new(table(1, "v")))
        .unwrap();
    session
        .register_table("b", Arc::new(table(2, "w")))
        .unwrap();
    session
}

/// The step that a task is at, and since which tick.
#[derive(Debug, Clone, Default)]
struct At {
    what: String,
    ticks: usize,
}

/// The state that all tasks share.
struct Soak {
    sessions: Vec<SessionContext>,
    expected: Vec<String>,
    stop: AtomicBool,
    at: Vec<Mutex<At>>,
    queries: AtomicUsize,
    cancelled: AtomicUsize,
    exhausted: AtomicUsize,
    start: Instant,
    small: InSmall,
}

/// Queries of the small pool.
#[derive(Default)]
struct InSmall {
    all: AtomicUsize,
    now: AtomicUsize,
    at_once: AtomicUsize,
    /// A join went to disk.
    spilled: AtomicUsize,
    /// An operator that cannot go to disk was refused memory.
    refused: AtomicUsize,
}

impl InSmall {
    fn begin(&self) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let now = 1 + self.now.fetch_add(1, Ordering::Relaxed);
        self.at_once.fetch_max(now, Ordering::Relaxed);
    }

    fn end(&self, plan: &Arc<dyn ExecutionPlan>) {
        self.now.fetch_sub(1, Ordering::Relaxed);
        let spilled = usize::from(files(plan) > 0);
        self.spilled.fetch_add(spilled, Ordering::Relaxed);
    }
}

impl Soak {
    fn say(&self, task: usize, what: String) {
        *self.at[task].lock().unwrap() = At { what, ticks: 0 };
    }

    /// Each query in each session: kernels are compiled while no task waits for them.
    async fn each_once(&self) -> Result<()> {
        for s in 0..self.sessions.len() {
            for query in 0..QUERIES.len() {
                self.run(0, s, query).await?;
            }
        }
        Ok(())
    }

    /// Queries, one after the other, until time is up.
    async fn work(self: Arc<Self>, task: usize) -> Result<()> {
        let mut random = Mt64::new(task as u64);
        while !self.stop.load(Ordering::Relaxed) {
            let below = |random: &mut Mt64, n: usize| (random.next_u64() % n as u64) as usize;
            let s = match self.start.elapsed().as_secs() / PHASE % 2 {
                0 => below(&mut random, self.sessions.len()),
                _ => SMALL,
            };
            if below(&mut random, 4) == 0 {
                let query = LONG[below(&mut random, LONG.len())];
                self.cancel(task, (s, query), below(&mut random, 60))
                    .await?;
            } else {
                self.run(task, s, below(&mut random, QUERIES.len())).await?;
            }
        }
        self.say(task, "done".to_owned());
        Ok(())
    }

    async fn run(&self, task: usize, s: usize, query: usize) -> Result<()> {
        let (limit, ..) = SESSIONS[s];
        self.say(task, format!("{:?}: {}", SESSIONS[s], QUERIES[query]));
        let frame = self.sessions[s].sql(QUERIES[query]).await?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let small = Some(&self.small).filter(|_| s == SMALL);
        small.inspect(|small| small.begin());
        let collected = collect(Arc::clone(&plan), context).await;
        small.inspect(|small| small.end(&plan));
        match collected {
            Ok(batches) => {
                let found = pretty_format_batches(&batches)?.to_string();
                assert_eq!(found, self.expected[query], "{}", QUERIES[query]);
                self.queries.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            // The tables of 32 queries can fill a limit; a session without one has enough.
            Err(error) if limit > 0 && is_exhausted(&error) => {
                self.exhausted.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            // Operators that do not go to disk.
            Err(error) if s == SMALL && is_exhausted(&error) && !is_of_join(&error) => {
                print(&format!("soak: refused: {error}: {}", QUERIES[query]));
                self.small.refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Polls a query's stream a while, and drops it.
    async fn cancel(&self, task: usize, (s, query): (usize, &str), polls: usize) -> Result<()> {
        self.say(
            task,
            format!("{:?}, dropped after {polls} polls: {query}", SESSIONS[s]),
        );
        let mut stream = self.sessions[s].sql(query).await?.execute_stream().await?;
        for _ in 0..polls {
            match futures::poll!(stream.next()) {
                std::task::Poll::Ready(None) => break,
                std::task::Poll::Ready(Some(Err(error)))
                    if !is_exhausted(&error) || is_of_join(&error) =>
                {
                    return Err(error);
                }
                _ => tokio::task::yield_now().await,
            }
        }
        drop(stream);
        self.cancelled.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Once a second of time that this process was given.
    fn watch(&self) {
        let mut stuck = false;
        for at in &self.at {
            let mut at = at.lock().unwrap();
            at.ticks += 1;
            stuck |= at.ticks > STUCK && at.what != "done";
        }
        if stuck {
            print("soak: stuck; what each task is at, and for how many seconds:");
            for (task, at) in self.at.iter().enumerate() {
                let at = at.lock().unwrap();
                print(&format!("  task {task}: {} s, {}", at.ticks, at.what));
            }
            std::process::exit(1);
        }
    }
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Returns whether the memory pool refused what a join asked for.
fn is_of_join(error: &DataFusionError) -> bool {
    error.to_string().contains("HortonJoin")
}

/// Files that joins of `plan` wrote.
fn files(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let below: usize = plan.children().into_iter().map(files).sum();
    let join = HortonJoinExec::downcast(plan.as_ref());
    let metrics = join.and_then(|join| join.metrics());
    let own = metrics.and_then(|metrics| metrics.spill_count());
    below + own.unwrap_or(0)
}

/// Memory and files of the queries of the small pool.
struct Small {
    runtime: Arc<RuntimeEnv>,
    folder: TempDir,
}

impl Small {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mode = DiskManagerMode::Directories(vec![folder.path().to_owned()]);
        let disk = DiskManagerBuilder::default().with_mode(mode);
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(GreedyMemoryPool::new(SMALL_POOL_BYTES)))
            .with_disk_manager_builder(disk)
            .build_arc();
        let runtime = runtime.unwrap();
        Self { runtime, folder }
    }

    fn reserved(&self) -> usize {
        self.runtime.memory_pool.reserved()
    }

    /// Files below the folders that the session made.
    fn files(&self) -> usize {
        let folders = std::fs::read_dir(self.folder.path()).unwrap();
        let folders = folders.map(|folder| std::fs::read_dir(folder.unwrap().path()).unwrap());
        folders.map(Iterator::count).sum()
    }
}

/// Resident bytes of this process.
fn host_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<usize>().ok());
    1024 * kib.unwrap_or(0)
}

/// Prints past the test harness, which keeps what a passing test says to itself.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[test]
fn queries_at_once_give_the_right_rows_and_their_memory_back() {
    if child::role().is_none() {
        let test = test_name!("queries_at_once_give_the_right_rows_and_their_memory_back");
        // What it prints goes where this process prints, as it runs.
        let status = child::command(&test, "soak").status().unwrap();
        assert!(status.success(), "{status}");
        return;
    }
    let duration = std::env::var("HORTON_SOAK_DURATION").ok();
    let duration = duration
        .and_then(|text| text.parse().ok())
        .unwrap_or(DURATION);
    let duration = Duration::from_secs(duration);
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(POOL_BYTES));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
    let runtime = runtime.build_arc().unwrap();
    let small = Small::new();
    let device = Device::open(&asked()).unwrap();

    let tokio = tokio::runtime::Runtime::new().unwrap();
    let stock = session(&runtime, None);
    let expected = tokio.block_on(async {
        let mut expected = Vec::new();
        for query in QUERIES {
            let batches = stock.sql(query).await.unwrap().collect().await.unwrap();
            expected.push(pretty_format_batches(&batches).unwrap().to_string());
        }
        expected
    });
    let soak = Arc::new(Soak {
        sessions: SESSIONS
            .iter()
            .enumerate()
            .map(|(s, limits)| match s {
                SMALL => session(&small.runtime, Some(*limits)),
                _ => session(&runtime, Some(*limits)),
            })
            .collect(),
        expected,
        stop: AtomicBool::new(false),
        at: (0..TASKS).map(|_| Mutex::default()).collect(),
        queries: AtomicUsize::new(0),
        cancelled: AtomicUsize::new(0),
        exhausted: AtomicUsize::new(0),
        start: Instant::now(),
        small: InSmall::default(),
    });
    tokio.block_on(soak.each_once()).unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| tokio.spawn(Arc::clone(&soak).work(task)))
        .collect();

    let start = Instant::now();
    let (mut half, mut peak, mut half_time) = (0, 0, start);
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        std::thread::sleep(Duration::from_secs(1));
        soak.watch();
        peak = peak.max(host_bytes());
        let queries = soak.queries.load(Ordering::Relaxed);
        let is_warm = queries >= WARM_QUERIES || start.elapsed() > 3 * duration;
        if start.elapsed() > duration / 2 && is_warm && half == 0 {
            (half, half_time) = (peak, Instant::now());
        }
        let is_over = half > 0 && half_time.elapsed() > duration / 2;
        if is_over || tasks.iter().any(|task| task.is_finished()) {
            soak.stop.store(true, Ordering::Relaxed);
        }
    }
    for task in tasks {
        tokio.block_on(task).unwrap().unwrap();
    }

    // What was dropped midway ends on the device's thread.
    let end = Instant::now();
    let reserved = || pool.reserved() + small.reserved();
    while device.budget().used() > 0 || reserved() > 0 || small.files() > 0 {
        assert!(
            end.elapsed() < Duration::from_secs(60),
            "{} bytes of the device, {} of the pools and {} files were not given back",
            device.budget().used(),
            reserved(),
            small.files()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let last = host_bytes();
    let count = |n: &AtomicUsize| n.load(Ordering::Relaxed);
    print(&format!(
        "soak: {} queries, {} cancellations, {} out of device memory, {} with {} MiB, {} at once: {} spilled, {} refused, \
         in {:.0?}; host bytes: half time {half}, peak {peak}, final {last}; device bytes: peak {}, final {}; \
         pools: final {}; files: final {}",
        count(&soak.queries),
        count(&soak.cancelled),
        count(&soak.exhausted),
        count(&soak.small.all),
        SMALL_POOL_BYTES >> 20,
        count(&soak.small.at_once),
        count(&soak.small.spilled),
        count(&soak.small.refused),
        start.elapsed(),
        device.budget().peak(),
        device.budget().used(),
        reserved(),
        small.files(),
    ));
    assert!(count(&soak.queries) > 0 && count(&soak.cancelled) > 0);
    assert!(device.budget().peak() > 0, "no join ran on the device");
    assert!(
        count(&soak.exhausted) <= count(&soak.queries) / 10,
        "most queries should have found room"
    );
    assert!(count(&soak.small.spilled) > 0, "no join went to disk");
    assert!(
        10 * count(&soak.small.refused) <= count(&soak.small.all),
        "most queries should have gone to disk"
    );
    assert!(
        last <= half + KEPT_BYTES,
        "host memory grew from {half} to {last} bytes in the second half"
    );
}
