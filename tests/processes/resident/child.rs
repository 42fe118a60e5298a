//! The child processes, and what is measured in them.

use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::metrics::MetricValue;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};

use horton_join::config::{HortonConfig, Knobs};
use horton_join::table::multimap::IndexKind;
use horton_test_support::child;

use super::pool::PeakPool;
use super::probe::{SMALL, Texts, table};

/// Rows of a partition of the probe side, instead of a query's own.
const ROWS: &str = "HORTON_TEST_RESIDENT_ROWS";

/// Bytes of the memory pool, instead of `POOL_BYTES`.
const POOL: &str = "HORTON_TEST_RESIDENT_POOL";

/// Bytes of the memory pool of most queries, if that names none.
const POOL_BYTES: usize = 64 << 20;

/// The query that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// Probe rows of 4 KB.
    Wide,
    /// The same in more partitions.
    Streams,
    /// The same as the first, in dictionaries.
    Dictionary,
    /// Build rows in a dictionary of 1,600 batches.
    Batches,
    /// Probe rows that meet 1,000 build rows of 1 KB each.
    Explosion,
    /// Half a million short build rows.
    Build,
    /// Four times as many.
    LongBuild,
}

/// The memory that a process took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Bytes that were resident at once.
    pub peak: usize,
    /// Bytes of them that the query made resident.
    pub resident: usize,
    /// Bytes that were reserved at once.
    pub reserved: usize,
    /// Kernels that joins ran.
    pub launches: usize,
    /// The answer of the query.
    pub answer: String,
}

fn variable(name: &str, otherwise: usize) -> usize {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().unwrap())
}

impl Query {
    /// Bytes of the memory pool.
    pub fn pool_bytes(self) -> usize {
        let usual = match self {
            Self::Build | Self::LongBuild => 1 << 30,
            _ => POOL_BYTES,
        };
        variable(POOL, usual)
    }

    fn sql(self) -> &'static str {
        match self {
            Self::Batches => "SELECT count(*), count(b.s) FROM b JOIN p ON b.k = p.k",
            Self::Explosion => "SELECT count(*), max(length(b.s)) FROM b JOIN p ON b.k = p.k",
            _ => "SELECT count(*), max(length(p.s)) FROM b JOIN p ON b.k = p.k",
        }
    }

    /// Partitions of the probe side.
    pub fn partitions(self) -> usize {
        match self {
            Self::Streams => 16,
            _ => 4,
        }
    }

    /// Rows of each of them.
    pub fn rows(self) -> usize {
        let usual = match self {
            Self::Wide => 25_000,
            Self::Streams => 12_000,
            Self::Dictionary => 150_000,
            Self::Batches => 50_000,
            Self::Explosion => 100,
            // More than are built: the side that ends first is.
            Self::Build => 150_000,
            Self::LongBuild => 600_000,
        };
        variable(ROWS, usual)
    }

    /// Returns the session's options beside the joins' role.
    fn options(self) -> &'static [&'static str] {
        match self {
            // Each stream holds a batch, whatever the pool says: together less than the pool.
            Self::Streams => &["SET datafusion.execution.batch_size = 512"],
            // What would make larger batches before the join does.
            Self::Batches => &[
                "SET horton.filters = 'off'",
                "SET datafusion.optimizer.enable_round_robin_repartition = false",
            ],
            _ => &[],
        }
    }

    /// The index that joins build.
    fn index(self) -> IndexKind {
        match self {
            // A direct table would fit.
            Self::Build | Self::LongBuild => IndexKind::Horton,
            _ => IndexKind::Auto,
        }
    }

    /// The two tables; the probe side has `rows` rows per partition.
    fn register(self, session: &SessionContext, rows: usize) {
        let (build_rows, keys, build, probe) = match self {
            Self::Wide => (1000, 1000, Texts::Short, Texts::Plain),
            Self::Streams => (1000, 1000, Texts::Short, Texts::Cut),
            Self::Dictionary => (1000, 1000, Texts::Short, Texts::Dictionary),
            Self::Batches => (1600 * SMALL, 100_000, Texts::Small, Texts::Short),
            Self::Explosion => (16_000, 16, Texts::Medium, Texts::Short),
            Self::Build => (500_000, 500_000, Texts::Short, Texts::Short),
            Self::LongBuild => (2_000_000, 2_000_000, Texts::Short, Texts::Short),
        };
        let build = table((1, build_rows), keys as i64, build);
        let probe = table((self.partitions(), rows), keys as i64, probe);
        session.register_table("b", build).unwrap();
        session.register_table("p", probe).unwrap();
    }
}

/// Returns what stock's joins and ours take in child processes of the test `test`. Returns `None`
/// in a child, which has printed that.
pub fn measured(test: &str, query: Query) -> Option<[Measured; 2]> {
    match child::role() {
        Some(role) => {
            measure(&role, query);
            None
        }
        None => Some(["never", "always"].map(|role| of_child(test, role))),
    }
}

fn of_child(test: &str, role: &str) -> Measured {
    let output = child::command(&format!("resident::{test}"), role)
        .arg("--test-threads=1")
        // Large buffers are the kernel's again once they are dropped.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = child::passed(&output);
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("{name}=")).unwrap();
        rest.split_once(';').unwrap().0.to_owned()
    };
    Measured {
        peak: value("peak").parse().unwrap(),
        resident: value("resident").parse().unwrap(),
        reserved: value("reserved").parse().unwrap(),
        launches: value("launches").parse().unwrap(),
        answer: value("answer"),
    }
}

/// Measures `query` with joins of `role`, and prints what it took.
fn measure(role: &str, query: Query) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    // Kernels are compiled, and the device is there, before anything counts.
    let warm = Arc::new(PeakPool::new(1 << 30));
    runtime.block_on(run(("always", query), 100, warm));
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let pool = Arc::new(PeakPool::new(query.pool_bytes()));
    let ran = runtime.block_on(run((role, query), query.rows(), Arc::clone(&pool)));
    let (answer, launches) = ran;
    let peak = status("VmHWM:");
    let (resident, reserved) = (peak - before, pool.peak());
    println!(
        "peak={peak};resident={resident};reserved={reserved};launches={launches};answer={answer};"
    );
}

/// Bytes that the kernel shows of this process under `name`.
fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    1024 * kilobytes.parse::<usize>().unwrap()
}

/// Runs `query` with `rows` probe rows per partition; its answer, and the kernels that its joins
/// ran.
async fn run((role, query): (&str, Query), rows: usize, pool: Arc<PeakPool>) -> (String, usize) {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let config = SessionConfig::new()
        .with_target_partitions(query.partitions())
        .with_option_extension(HortonConfig {
            knobs: Knobs {
                index: query.index(),
                ..Knobs::default()
            },
            ..HortonConfig::default()
        });
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features();
    let session = SessionContext::new_with_state(horton_join::install(builder).build());
    let of_role = format!("SET horton.enabled = '{role}'");
    // Without it, stock's joins hold as much again in channels between threads.
    let shared_table = "SET datafusion.optimizer.repartition_joins = false";
    let sets = [of_role.as_str(), shared_table];
    for set in sets.iter().chain(query.options()) {
        session.sql(set).await.unwrap().collect().await.unwrap();
    }
    query.register(&session, rows);
    let frame = session.sql(query.sql()).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), session.task_ctx())
        .await
        .unwrap();
    let answer = pretty_format_batches(&batches).unwrap().to_string();
    let launches = sum(&plan, "kernel_launches", MetricValue::as_usize);
    (answer, launches)
}

/// The sum of metric `name` over all nodes, each as `number` says.
fn sum(plan: &Arc<dyn ExecutionPlan>, name: &str, number: fn(&MetricValue) -> usize) -> usize {
    let metrics = plan.metrics().unwrap_or_default();
    let named = metrics.iter().map(|metric| metric.value());
    let own = named.filter(|value| value.name() == name).map(number);
    let below = plan.children().into_iter().map(|c| sum(c, name, number));
    own.sum::<usize>() + below.sum::<usize>()
}
