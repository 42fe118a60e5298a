//! A join of a case, run on the device as it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use horton_join::HortonJoinExec;
use horton_test_support::joins::{Case, context_in, metric, text};
use horton_test_support::patience::Patience;

use super::cases::{OnProbe, feed};
use super::watch::watched;

/// A run's batches by partition, and what the plan said of itself.
pub struct Outcome {
    pub partitions: Vec<Vec<RecordBatch>>,
    pub device_errors: usize,
}

/// The rows that a run of a case must return.
pub struct Expected {
    case: Case,
    encoded: Vec<Vec<Vec<u8>>>,
    rows: Vec<Vec<String>>,
}

impl Expected {
    pub fn new(case: &Case, partitions: &[Vec<RecordBatch>]) -> Self {
        Self {
            case: case.clone(),
            encoded: case.comparable(encoded(partitions)),
            rows: case.comparable(rows(partitions)),
        }
    }

    /// Panics with `what` if these are others, or in another order where that is promised. Only
    /// then are they made to texts, which takes as long as the join.
    pub fn check(&self, what: &str, partitions: &[Vec<RecordBatch>]) {
        if self.case.comparable(encoded(partitions)) != self.encoded {
            let found = self.case.comparable(rows(partitions));
            assert_eq!(found, self.rows, "{what}");
            panic!("{what}: rows that are not equal look alike");
        }
    }
}

fn rows(partitions: &[Vec<RecordBatch>]) -> Vec<Vec<String>> {
    partitions.iter().map(|batches| text(batches)).collect()
}

/// The rows of each partition as bytes.
fn encoded(partitions: &[Vec<RecordBatch>]) -> Vec<Vec<Vec<u8>>> {
    let of_partition =
        |batches: &Vec<RecordBatch>| batches.iter().flat_map(encoded_batch).collect();
    partitions.iter().map(of_partition).collect()
}

fn encoded_batch(batch: &RecordBatch) -> Vec<Vec<u8>> {
    if batch.num_columns() == 0 {
        return vec![Vec::new(); batch.num_rows()];
    }
    let types = batch
        .columns()
        .iter()
        .map(|of| SortField::new(of.data_type().clone()));
    let converter = RowConverter::new(types.collect()).unwrap();
    let rows = converter.convert_columns(batch.columns()).unwrap();
    rows.iter().map(|row| row.as_ref().to_vec()).collect()
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
        let mut partitions = Vec::new();
        for partition in 0..plan.properties().output_partitioning().partition_count() {
            let stream = plan.execute(partition, Arc::clone(&context))?;
            partitions.push(stream.try_collect().await?);
        }
        let metrics = plan.metrics().unwrap();
        let on_device = metrics.sum_by_name("device_errors").is_some();
        Ok(Outcome {
            partitions,
            device_errors: match on_device {
                true => metric(&metrics, "device_errors"),
                false => 0,
            },
        })
    })
}

pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let mut patience = Patience::default();
    loop {
        let second = Instant::now();
        while second.elapsed() < Duration::from_secs(1) {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!patience.is_over(), "{what}: not given back");
    }
}
