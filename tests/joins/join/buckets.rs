//! Build sides that the device has no room for: spill partitions in memory, rows as the stock
//! join's, and nothing left behind.

use std::sync::Arc;

use arrow::array::{AsArray, StringViewArray};
use arrow::datatypes::Int64Type;
use datafusion::common::JoinType;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::prelude::SessionConfig;
use futures::{FutureExt, StreamExt};

use horton_join::{PartitionStorage, Place};

use horton_test_support::env::small;
use horton_test_support::joins::*;

/// Both sides with NULLs and repeating keys; tables of at most `most` rows.
fn keyed(to_column: ToColumn, distinct: u32, most: usize) -> Case {
    let (build, probe) = (2000, 2500);
    let build_keys = to_column(&repeating_keys(1, build, distinct));
    let probe_keys = to_column(&repeating_keys(2, probe, distinct + distinct / 4));
    let left = Side::new(vec![("k", build_keys), ("b", payload(build))]);
    let right = Side::new(vec![("k", probe_keys), ("p", payload(probe))]);
    let mut case = Case::new(left.in_batches_of(300), right.in_batches_of(400));
    case.config.knobs.max_table_rows = most;
    case
}

fn sorted(run: &Run) -> Vec<String> {
    let mut rows: Vec<String> = run.rows().into_iter().flatten().collect();
    rows.sort_unstable();
    rows
}

/// Checks that the join is in spill partitions, some on the device, and gives the stock join's
/// rows.
fn check(case: &Case, context: Arc<TaskContext>, home: PartitionStorage) -> Run {
    let mut collected = case.clone();
    if case.mode == PartitionMode::Auto {
        collected.mode = PartitionMode::CollectLeft;
        collected.build = case.build.clone().in_partitions(1, |row| row);
    }
    let expected = run(Arc::new(collected.stock()), case.context()).unwrap();
    let join = case.on_device();
    let found = run(join.clone(), context).unwrap();
    assert!(sorted(&expected) == sorted(&found), "{case}");
    assert_eq!(found.metric("output_rows"), found.count(), "{case}");
    let decisions = join.decisions();
    assert!(decisions.len() > 2, "{decisions:?}");
    let is_home = |bucket: Option<PartitionStorage>| bucket == Some(home);
    assert!(
        decisions.iter().all(|d| is_home(d.storage)),
        "{decisions:?} {case}"
    );
    found
}

fn in_memory(case: &Case) -> Run {
    check(case, case.context(), PartitionStorage::Memory)
}

#[test]
pub fn every_join_type_goes_to_buckets_in_every_mode() {
    side_by_side();
    let modes = [
        (PartitionMode::Auto, 3),
        (PartitionMode::CollectLeft, 1),
        (PartitionMode::CollectLeft, 3),
    ];
    let modes = &modes[..if small() { 1 } else { 3 }];
    for join_type in JOIN_TYPES {
        for null_equality in NULL_EQUALITIES {
            for &(mode, parts) in modes {
                let mut case = keyed(ints, 600, 400);
                (case.join_type, case.null_equality, case.mode) = (join_type, null_equality, mode);
                case.probe = case.probe.in_partitions(parts, |row| row);
                if mode == PartitionMode::Auto {
                    case.build = case.build.in_partitions(2, |row| row);
                }
                let found = in_memory(&case);
                assert!(found.metric("kernel_launches") > 0, "{case}");
                assert_eq!(found.metric("spill_count"), 0, "{case}");
                if null_equality == NULL_EQUALITIES[0] {
                    in_memory(&case.with_filter(1, 1));
                }
            }
        }
    }
}

#[test]
fn partitioned_joins_go_to_buckets() {
    side_by_side();
    for join_type in JOIN_TYPES {
        let mut case = keyed(ints, 600, 100);
        (case.join_type, case.mode) = (join_type, PartitionMode::Partitioned);
        let part = |side: &Side| {
            let keys = Arc::clone(side.batch().column(0));
            let keys = keys.as_primitive::<Int64Type>().iter();
            let keys: Vec<usize> = keys.map(|key| key.unwrap_or(0) as usize).collect();
            side.clone().in_partitions(3, move |row| keys[row])
        };
        (case.build, case.probe) = (part(&case.build), part(&case.probe));
        in_memory(&case);
    }
}

#[test]
pub fn keys_of_all_kinds_go_to_buckets() {
    side_by_side();
    for to_column in [ints as ToColumn, sparse_ints, strings] {
        for join_type in [JoinType::Inner, JoinType::Full, JoinType::RightAnti] {
            let mut case = keyed(to_column, 600, 300);
            case.join_type = join_type;
            in_memory(&case);
        }
    }
}

#[test]
fn texts_of_a_bucket_are_its_own() {
    side_by_side();
    let mut case = keyed(ints, 600, 300);
    let texts = (0..2000).map(|row| format!("a text that is no part of a view, of row {row}"));
    let texts = StringViewArray::from_iter_values(texts);
    let keys = Arc::clone(case.build.batch().column(0));
    case.build = Side::new(vec![("k", keys), ("b", Arc::new(texts))]).in_batches_of(300);
    in_memory(&case);
}

#[test]
fn a_hot_key_is_joined_on_the_host() {
    side_by_side();
    for join_type in JOIN_TYPES {
        // A quarter of the keys is one, and too many for a table.
        let mut case = keyed(ints, 600, 200);
        let keys = repeating_keys(3, 2000, 600);
        let keys = keys.into_iter().enumerate();
        let hot = |(row, key): (usize, Option<i64>)| if row % 4 == 0 { Some(7) } else { key };
        let keys: Vec<Option<i64>> = keys.map(hot).collect();
        case.build = Side::new(vec![("k", ints(&keys)), ("b", payload(2000))]).in_batches_of(300);
        case.join_type = join_type;
        in_memory(&case);
    }
}

struct Limited {
    context: Arc<TaskContext>,
    pool: Arc<dyn MemoryPool>,
}

impl Limited {
    fn new(bytes: usize) -> Self {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
        let mut config = SessionConfig::new().with_batch_size(512);
        config.options_mut().execution.sort_spill_reservation_bytes = 1 << 10;
        let runtime = runtime.build_arc().unwrap();
        let context = context_in(config, runtime);
        Self { context, pool }
    }

    fn assert_clean(&self) {
        eventually("nothing reserved", || self.pool.reserved() == 0);
        let disk = &self.context.runtime_env().disk_manager;
        eventually("no file is left", || disk.used_disk_space() == 0);
    }
}

#[test]
fn rows_that_the_pool_refuses_go_to_files() {
    side_by_side();
    for join_type in JOIN_TYPES {
        let mut case = keyed(ints, 600, 400);
        case.join_type = join_type;
        let keys = repeating_keys(2, 9000, 700);
        case.probe = Side::new(vec![("k", ints(&keys)), ("p", payload(9000))]).in_batches_of(400);
        // Room for the build side and its table on the host; for the probe side's rows less than a
        // half.
        let limited = Limited::new(140 << 10);
        let found = check(&case, Arc::clone(&limited.context), PartitionStorage::Disk);
        assert!(found.metric("spill_count") > 0, "{case}");
        limited.assert_clean();
    }
}

#[test]
fn what_buckets_reserve_is_given_back() {
    side_by_side();
    let mut case = keyed(ints, 600, 300);
    case.join_type = JoinType::Full;
    case.probe = case.probe.in_partitions(3, |row| row);
    let limited = Limited::new(64 << 20);
    check(
        &case,
        Arc::clone(&limited.context),
        PartitionStorage::Memory,
    );
    limited.assert_clean();
}

#[test]
fn a_device_limit_holds() {
    let _guard = alone();
    for join_type in JOIN_TYPES {
        let (build, probe) = (20_000, 6000);
        let keys = |n: usize| -> Vec<Option<i64>> { (0..n as i64).map(|i| Some(i * 7)).collect() };
        let left = Side::new(vec![("k", ints(&keys(build))), ("b", payload(build))]);
        let right = Side::new(vec![("k", ints(&keys(probe))), ("p", payload(probe))]);
        let mut case = Case::new(left.in_batches_of(1000), right.in_batches_of(1000));
        case.join_type = join_type;
        case.config.chunk_rows = 1000;
        case.config.knobs.sample_rows = 1 << 20;
        case.config.device_memory_limit = 300_000;
        let found = in_memory(&case);
        assert!(found.metric("kernel_launches") > 0, "{case}");
        eventually("device memory is given back", || {
            device().budget().used() == 0
        });
    }
}

#[test]
fn streams_that_are_read_one_after_the_other_share_buckets() {
    side_by_side();
    for join_type in [JoinType::Inner, JoinType::Left, JoinType::Full] {
        let mut case = keyed(ints, 600, 400);
        case.join_type = join_type;
        case.probe = case.probe.in_partitions(3, |row| row);
        let expected = run(Arc::new(case.stock()), case.context()).unwrap();
        let join = case.on_device();
        let context = case.context();
        let rows = block_on(async move {
            let streams: Vec<_> = (0..3)
                .map(|p| join.execute(p, Arc::clone(&context)).unwrap())
                .collect();
            let mut rows = 0;
            for mut stream in streams {
                while let Some(batch) = stream.next().await {
                    rows += batch.unwrap().num_rows();
                }
            }
            rows
        });
        assert_eq!(rows, expected.count(), "{case}");
    }
}

#[test]
fn a_stream_dropped_at_any_poll_leaves_nothing() {
    side_by_side();
    let mut case = keyed(ints, 600, 400);
    case.probe = case.probe.in_partitions(2, |row| row);
    for polls in 0..30 {
        let limited = Limited::new(64 << 20);
        let (join, context) = (case.on_device(), Arc::clone(&limited.context));
        block_on(async move {
            let mut streams: Vec<_> = (0..2)
                .map(|p| join.execute(p, Arc::clone(&context)).unwrap())
                .collect();
            for poll in 0..polls {
                let _ = streams[poll % 2].next().now_or_never();
                tokio::task::yield_now().await;
            }
        });
        limited.assert_clean();
    }
}

#[test]
fn the_plan_says_that_rows_are_in_buckets() {
    side_by_side();
    let case = keyed(ints, 600, 400);
    let join = case.on_device();
    run(join.clone(), case.context()).unwrap();
    let decisions = join.decisions();
    let on_device = decisions
        .iter()
        .filter(|d| matches!(d.place, Place::Device(_)));
    assert!(on_device.count() > 2);
    let shown = datafusion::physical_plan::displayable(join.as_ref());
    let shown = shown.one_line().to_string();
    assert!(
        shown.contains(&format!("in {} spill partitions", decisions.len())),
        "{shown}"
    );
}
