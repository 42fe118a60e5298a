//! The child processes, and what is measured in them.

use std::process::Command;
use std::sync::Arc;

use arrow::util::pretty::pretty_format_batches;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};

use super::pool::PeakPool;
use super::probe::{Texts, table};

/// Tells a child which joins it measures.
const ROLE: &str = "HORTON_TEST_RESIDENT_ROLE";

/// Rows of a partition of the probe side, instead of a query's own.
const ROWS: &str = "HORTON_TEST_RESIDENT_ROWS";

/// Bytes of the memory pool, instead of `POOL_BYTES`.
const POOL: &str = "HORTON_TEST_RESIDENT_POOL";

/// Bytes of the memory pool.
pub const POOL_BYTES: usize = 64 << 20;

const PARTITIONS: usize = 4;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// Probe rows of 4 KB.
    Wide,
    /// The same, in dictionaries.
    Dictionary,
    /// Probe rows that meet 1,000 build rows of 1 KB each.
    Explosion,
}

/// What a process took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Bytes that were resident at once.
    pub peak: usize,
    /// Those of them that the query made so.
    pub resident: usize,
    /// Bytes that were reserved at once.
    pub reserved: usize,
    /// Kernels that joins ran.
    pub launches: usize,
    /// What the query answered.
    pub answer: String,
}

fn variable(name: &str, otherwise: usize) -> usize {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().unwrap())
}

impl Query {
    fn sql(self) -> &'static str {
        match self {
            Self::Explosion => "SELECT count(*), max(length(b.s)) FROM b JOIN p ON b.k = p.k",
            _ => "SELECT count(*), max(length(p.s)) FROM b JOIN p ON b.k = p.k",
        }
    }

    /// The two tables; the probe side has `rows` rows a partition.
    fn register(self, session: &SessionContext, rows: Option<usize>) {
        let rows = |usual| rows.unwrap_or_else(|| variable(ROWS, usual));
        let (build, probe) = match self {
            Self::Wide => (
                table((1, 1000), 1000, Texts::Short),
                table((PARTITIONS, rows(25_000)), 1000, Texts::Plain),
            ),
            Self::Dictionary => (
                table((1, 1000), 1000, Texts::Short),
                table((PARTITIONS, rows(150_000)), 1000, Texts::Dictionary),
            ),
            Self::Explosion => (
                table((1, 16_000), 16, Texts::Medium),
                table((PARTITIONS, rows(100)), 16, Texts::Short),
            ),
        };
        session.register_table("b", build).unwrap();
        session.register_table("p", probe).unwrap();
    }
}

/// What stock's joins and ours take in child processes of the test `test`; `None` in a child, which has
/// printed that.
pub fn measured(test: &str, query: Query) -> Option<[Measured; 2]> {
    match std::env::var(ROLE) {
        Ok(role) => {
            measure(&role, query);
            None
        }
        Err(_) => Some(["never", "always"].map(|role| child(test, role))),
    }
}

fn child(test: &str, role: &str) -> Measured {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        // Large buffers are the kernel's again once they are dropped.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .env("MALLOC_ARENA_MAX", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{role}: {text}\n{errors}");
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
    runtime.block_on(run(("always", query), Some(100), warm));
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmRSS:");
    let pool = Arc::new(PeakPool::new(variable(POOL, POOL_BYTES)));
    let (answer, launches) = runtime.block_on(run((role, query), None, Arc::clone(&pool)));
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

/// Runs `query` with `rows` probe rows a partition; its answer, and kernels of its joins.
async fn run(
    (role, query): (&str, Query),
    rows: Option<usize>,
    pool: Arc<PeakPool>,
) -> (String, usize) {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let config = SessionConfig::new().with_target_partitions(PARTITIONS);
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features();
    let session = SessionContext::new_with_state(horton_join::install(builder).build());
    let of_role = format!("SET horton.enabled = '{role}'");
    // Without it, stock's joins hold as much again in channels between threads.
    let side_by_side = "SET datafusion.optimizer.repartition_joins = false";
    for set in [of_role.as_str(), side_by_side] {
        session.sql(set).await.unwrap().collect().await.unwrap();
    }
    query.register(&session, rows);
    let frame = session.sql(query.sql()).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), session.task_ctx())
        .await
        .unwrap();
    let answer = pretty_format_batches(&batches).unwrap().to_string();
    (answer, launches(&plan))
}

fn launches(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let metrics = plan.metrics();
    let own = metrics.and_then(|metrics| metrics.sum_by_name("kernel_launches"));
    let below = plan.children().into_iter().map(launches).sum::<usize>();
    own.map_or(0, |value| value.as_usize()) + below
}
