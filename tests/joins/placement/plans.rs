//! Joins whose sides are open, what they should return, and which decisions they made.

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::HortonJoinExec;
pub use horton_join::Side as Which;
pub use horton_join::Side::{Left, Right};
use horton_join::config::{Enabled, HortonConfig};
use horton_join::{Decision, HostReason, Place};

use horton_test_support::joins::*;

/// Rows of a side's first read.
pub const SAMPLE_ROWS: usize = 16;

/// Memory that no test uses up.
pub const PLENTY: usize = 1 << 30;

/// The place where a test has a join run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    Device,
    /// DataFusion's `CollectLeft` join.
    Host,
    /// DataFusion's `Partitioned` join, where there is more than one output partition.
    HostParts,
}

impl At {
    pub const ALL: [At; 3] = [At::Device, At::Host, At::HostParts];

    pub fn min_build_rows(self) -> usize {
        match self {
            At::Device => 1,
            At::Host | At::HostParts => usize::MAX,
        }
    }

    pub fn config(self) -> SessionConfig {
        let mut config = SessionConfig::new().with_target_partitions(3);
        if self == At::HostParts {
            let options = &mut config.options_mut().optimizer;
            options.hash_join_single_partition_threshold = 0;
            options.hash_join_single_partition_threshold_rows = 0;
        }
        config
    }
}

/// Waits once until a device is ready for all that ask as `config` does.
pub fn warm_up(config: &HortonConfig) -> horton_join::error::Result<()> {
    let config = SessionConfig::new().with_option_extension(config.clone());
    let session = horton_join::context(config);
    block_on(async move { horton_join::warm_up(&session).await })
}

/// The join of `left` and `right` on their first columns, either of which may be built.
pub fn open(left: Side, right: Side, at: At) -> Case {
    static WARM: LazyLock<()> = LazyLock::new(|| {
        let side = Side::new(vec![("k", ints(&[]))]);
        warm_up(&Case::new(side.clone(), side).config).unwrap();
    });
    LazyLock::force(&WARM);
    let mut case = Case::new(left, right);
    case.mode = PartitionMode::Auto;
    case.config.enabled = Enabled::Auto;
    case.config.min_build_rows = at.min_build_rows();
    case.config.knobs.sample_rows = SAMPLE_ROWS;
    case
}

/// Keys, one in eight NULL, and a column of values; in small batches.
pub fn side(seed: u32, rows: usize) -> Side {
    let keys = repeating_keys(seed, rows, 30);
    Side::new(vec![("k", ints(&keys)), ("v", payload(rows))]).in_batches_of(7)
}

/// The same rows in `parts` partitions of small batches.
pub fn in_parts(side: Side, parts: usize) -> Side {
    side.in_partitions(parts, |row| row).in_batches_of(7)
}

/// `plan` as one partition.
pub fn coalesced(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match plan.output_partitioning().partition_count() {
        1 => plan,
        _ => Arc::new(CoalescePartitionsExec::new(plan)),
    }
}

/// The rows that `HashJoinExec` makes of `case`, sorted.
pub fn expected(case: &Case) -> Vec<String> {
    let stock = Case {
        mode: PartitionMode::CollectLeft,
        ..case.clone()
    };
    let stock = stock.stock_of(coalesced(case.build.exec()), coalesced(case.probe.exec()));
    let run = run(Arc::new(stock), case.context()).unwrap();
    sorted(run.rows().concat())
}

pub fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}

/// A context for joins that run at `at`, which takes its memory from a pool of `limit` bytes.
pub fn pooled(at: At, limit: usize) -> (Arc<dyn MemoryPool>, Arc<TaskContext>) {
    pooled_batches(at, limit, at.config().batch_size())
}

/// The same with batches of so many rows.
pub fn pooled_batches(
    at: At,
    limit: usize,
    batch_size: usize,
) -> (Arc<dyn MemoryPool>, Arc<TaskContext>) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
    let runtime = runtime.build_arc().unwrap();
    let session =
        SessionContext::new_with_config_rt(at.config().with_batch_size(batch_size), runtime);
    (pool, session.task_ctx())
}

/// Waits until all memory is given back to `pool`.
pub fn given_back(pool: &Arc<dyn MemoryPool>, about: &str) {
    eventually(&format!("memory is given back: {about}"), || {
        pool.reserved() == 0
    });
}

/// The rows and decisions of a join.
pub struct Outcome {
    /// Its rows, sorted.
    pub rows: Vec<String>,
    pub decisions: Vec<Decision>,
    pub launches: usize,
}

/// Runs `join`, a partition after the other.
pub fn outcome(join: &Arc<HortonJoinExec>, context: Arc<TaskContext>) -> Result<Outcome> {
    let plan = Arc::clone(join) as Arc<dyn ExecutionPlan>;
    let run = run(plan, context)?;
    Ok(Outcome {
        rows: sorted(run.rows().concat()),
        decisions: join.decisions(),
        launches: launches(&run.metrics),
    })
}

/// Kernels that a join launched. A join on the host counts none.
pub fn launches(metrics: &MetricsSet) -> usize {
    let launches = metrics.sum(|metric| metric.value().name() == "kernel_launches");
    launches.map_or(0, |launches| launches.as_usize())
}

/// The only decision.
pub fn only(decisions: &[Decision]) -> &Decision {
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    &decisions[0]
}

/// Returns why a join ran on the host; `None` if it did not.
pub fn host_reason(decision: &Decision) -> Option<&HostReason> {
    match &decision.place {
        Place::Device(_) => None,
        Place::Host(reason) => Some(reason),
    }
}

/// Checks which side was built, and that it ran at `at`.
pub fn assert_decision(found: &Outcome, (build, rows): (Which, usize), at: At, about: &str) {
    let decision = only(&found.decisions);
    assert_eq!((decision.build, decision.rows), (build, rows), "{about}");
    assert_place(decision, at, about);
    assert_eq!(
        found.launches > 0,
        at == At::Device,
        "{} launches: {about}",
        found.launches
    );
}

/// Checks where a join ran.
pub fn assert_place(decision: &Decision, at: At, about: &str) {
    let few = match at {
        At::Device => None,
        At::Host | At::HostParts => Some(HostReason::FewRows {
            min_build_rows: at.min_build_rows(),
        }),
    };
    assert_eq!(host_reason(decision), few.as_ref(), "{about}");
}

/// Runs `case` at `at`; checks its rows, and that it built `build`.
pub fn check(case: &Case, build: (Which, usize), at: At) -> Outcome {
    side_by_side();
    let about = format!("{at:?}, {build:?}: {case}");
    let (_, context) = pooled(at, PLENTY);
    let found = outcome(&case.on_device(), context).unwrap_or_else(|e| panic!("{about}: {e}"));
    assert_eq!(found.rows, expected(case), "{about}");
    assert_decision(&found, build, at, &about);
    found
}
