//! Joins that the memory pool has no room for: rows as without a limit, and nothing left behind.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, JoinType, NullEquality};
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{FutureExt, StreamExt, TryStreamExt};

use super::harness::*;

/// A session of its own, with a limit on memory and files in a folder of their own.
struct Limited {
    context: Arc<TaskContext>,
    pool: Arc<dyn MemoryPool>,
    files: tempfile::TempDir,
}

impl Limited {
    fn new(bytes: usize) -> Self {
        Self::with(bytes, |builder| builder)
    }

    fn with(
        bytes: usize,
        change: impl Fn(DiskManagerBuilder) -> DiskManagerBuilder,
    ) -> Self {
        let files = tempfile::tempdir().unwrap();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let mode = DiskManagerMode::Directories(vec![files.path().to_owned()]);
        let disk = change(DiskManagerBuilder::default().with_mode(mode));
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::clone(&pool))
            .with_disk_manager_builder(disk)
            .build_arc();
        let mut config = SessionConfig::new().with_batch_size(512);
        // A sort that restores an order has to do with the memory there is.
        config.options_mut().execution.sort_spill_reservation_bytes = bytes / 8;
        let context = SessionContext::new_with_config_rt(config, runtime.unwrap()).task_ctx();
        Self {
            context,
            pool,
            files,
        }
    }

    /// Files below the session's folder.
    fn files(&self) -> usize {
        let folders = std::fs::read_dir(self.files.path()).unwrap();
        let folders = folders.map(|folder| folder.unwrap().path());
        folders
            .map(|folder| std::fs::read_dir(folder).unwrap().count())
            .sum()
    }

    fn assert_clean(&self, what: &str) {
        eventually(&format!("nothing reserved: {what}"), || {
            self.pool.reserved() == 0
        });
        eventually(&format!("no file is left: {what}"), || self.files() == 0);
        let disk = &self.context.runtime_env().disk_manager;
        assert_eq!(disk.used_disk_space(), 0, "{what}");
    }
}

/// A case with both sides in batches of 500 rows.
fn case(build: Vec<(&str, ArrayRef)>, probe: Vec<(&str, ArrayRef)>, parts: usize) -> Case {
    let probe = Side::new(probe).in_partitions(parts, |row| row);
    let build = Side::new(build).in_batches_of(500);
    Case::new(build, probe.in_batches_of(500))
}

fn keyed(to_column: ToColumn, rows: [usize; 2], distinct: u32, parts: usize) -> Case {
    let [build, probe] = rows;
    case(
        vec![
            ("k", to_column(&repeating_keys(1, build, distinct))),
            ("b", payload(build)),
        ],
        vec![
            ("k", to_column(&repeating_keys(2, probe, distinct))),
            ("p", payload(probe)),
        ],
        parts,
    )
}

/// Checks that the join spills within `bytes` of memory, and gives the stock join's rows.
fn check(case: &Case, bytes: usize) -> Run {
    let mut collected = case.clone();
    if case.mode == PartitionMode::Auto {
        collected.mode = PartitionMode::CollectLeft;
        collected.build = case.build.clone().in_partitions(1, |row| row);
    }
    let expected = run(Arc::new(collected.stock()), case.context()).unwrap();
    let limited = Limited::new(bytes);
    let join = case.on_device();
    let found = run(join.clone(), Arc::clone(&limited.context)).unwrap();
    assert!(found.metric("spill_count") > 0, "nothing spilled: {case}");
    let sorted = |run: &Run| {
        let mut rows: Vec<String> = run.rows().into_iter().flatten().collect();
        rows.sort_unstable();
        rows
    };
    let (expected, rows) = (sorted(&expected), sorted(&found));
    assert_eq!(expected.len(), rows.len(), "{case}");
    assert!(expected == rows, "{case}");
    assert_eq!(found.metric("output_rows"), rows.len(), "{case}");
    assert!(join.decisions().iter().all(|d| d.spilled), "{case}");
    drop(join);
    limited.assert_clean(&case.to_string());
    found
}

#[test]
fn every_join_type_spills_in_every_mode() {
    let _guard = side_by_side();
    for join_type in JOIN_TYPES {
        for null_equality in NULL_EQUALITIES {
            for (mode, parts) in [
                (PartitionMode::CollectLeft, 1),
                (PartitionMode::CollectLeft, 3),
                (PartitionMode::Auto, 3),
            ] {
                let mut case = keyed(ints, [6000, 8000], 5000, parts);
                (case.join_type, case.null_equality, case.mode) = (join_type, null_equality, mode);
                if mode == PartitionMode::Auto {
                    case.build = case.build.in_partitions(2, |row| row);
                }
                check(&case, 64 << 10);
                check(&case.with_filter(1, 1), 64 << 10);
            }
        }
    }
}
