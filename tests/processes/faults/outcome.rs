//! A join of a case, run on the device as it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use horton_join::HortonJoinExec;
use horton_test_support::joins::{Case, context_in, metric, text};

use super::cases::{OnProbe, feed};
use super::watch::watched;

/// A run's rows by partition, and what the plan said of itself.
pub struct Outcome {
    pub rows: Vec<Vec<String>>,
    pub device_errors: usize,
}

pub fn plan(case: &Case, on_probe: &OnProbe) -> Arc<HortonJoinExec> {
    case.put_on_device(case.stock_of(case.build.exec(), feed(&case.probe, on_probe)))
}

pub fn pool() -> Arc<dyn MemoryPool> {
    Arc::new(GreedyMemoryPool::new(1 << 30))
}

pub fn context(case: &Case, pool: &Arc<dyn MemoryPool>) -> Arc<TaskContext> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool));
    let config = SessionConfig::new().with_batch_size(case.batch_size);
    context_in(config, runtime.build_arc().unwrap())
}

pub fn execute(
    what: &str,
    plan: Arc<HortonJoinExec>,
    context: Arc<TaskContext>,
) -> Result<Outcome> {
    watched(what, async move {
        let mut rows = Vec::new();
        for partition in 0..plan.properties().output_partitioning().partition_count() {
            let stream = plan.execute(partition, Arc::clone(&context))?;
            let batches: Vec<RecordBatch> = stream.try_collect().await?;
            rows.push(text(&batches));
        }
        let metrics = plan.metrics().unwrap();
        let on_device = metrics.sum_by_name("device_errors").is_some();
        Ok(Outcome {
            rows: comparable(rows),
            device_errors: match on_device {
                true => metric(&metrics, "device_errors"),
                false => 0,
            },
        })
    })
}

/// Multisets: the order of rows is compared where it is promised, by the tests of join types.
pub fn comparable(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.iter_mut().for_each(|rows| rows.sort_unstable());
    rows
}

pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{what}: not given back"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
