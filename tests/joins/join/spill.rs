//! Joins that the memory pool has no room for: rows as without a limit, and nothing left behind.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{DataFusionError, JoinType};
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::test::TestMemoryExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, displayable,
};
use datafusion::prelude::SessionConfig;
use futures::{FutureExt, StreamExt};
use horton_join::config::Enabled;
use horton_join::{HortonJoinExec, HostReason, Place};

use crate::feed::{Then, feed};
use horton_test_support::joins::*;

/// A session of its own, with a limit on memory and files in a folder of their own.
pub(super) struct Limited {
    pub(super) context: Arc<TaskContext>,
    pool: Arc<dyn MemoryPool>,
    pub(super) files: tempfile::TempDir,
}

impl Limited {
    pub(super) fn new(bytes: usize) -> Self {
        Self::with(bytes, |builder| builder)
    }

    pub(super) fn with(
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
        let config = SessionConfig::new().with_batch_size(512);
        let context = context_in(config, runtime.unwrap());
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

    pub(super) fn assert_clean(&self, what: &str) {
        eventually(&format!("nothing reserved: {what}"), || {
            self.pool.reserved() == 0
        });
        eventually(&format!("no file is left: {what}"), || self.files() == 0);
        let disk = &self.context.runtime_env().disk_manager;
        assert_eq!(disk.used_disk_space(), 0, "{what}");
    }
}

/// A case with both sides in batches of 500 rows.
pub(super) fn case(
    build: Vec<(&str, ArrayRef)>,
    probe: Vec<(&str, ArrayRef)>,
    parts: usize,
) -> Case {
    let probe = Side::new(probe).in_partitions(parts, |row| row);
    let build = Side::new(build).in_batches_of(500);
    Case::new(build, probe.in_batches_of(500))
}

pub(super) fn keyed(to_column: ToColumn, rows: [usize; 2], distinct: u32, parts: usize) -> Case {
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
    let (expected, rows) = (expected.sorted_rows(), found.sorted_rows());
    assert_eq!(expected.len(), rows.len(), "{case}");
    assert!(expected == rows, "{case}");
    assert_eq!(found.metric("output_rows"), rows.len(), "{case}");
    assert!(join.decisions().iter().all(|d| d.is_spilled), "{case}");
    let shown = displayable(join.as_ref()).one_line().to_string();
    let builds = join.decisions().len();
    let says = format!("spilled to {builds} partitions");
    assert!(builds == 0 || shown.contains(&says), "{shown}");
    drop(join);
    limited.assert_clean(&case.to_string());
    found
}

/// The same, with spill partitions joined on the host: a device takes its time for each of them.
pub(super) fn on_host(mut case: Case) -> Case {
    case.config.enabled = Enabled::Auto;
    case.config.min_build_rows = 1 << 30;
    case
}

#[test]
fn every_join_type_spills_in_every_mode() {
    side_by_side();
    for join_type in JOIN_TYPES {
        for null_equality in NULL_EQUALITIES {
            for (mode, parts) in [
                (PartitionMode::CollectLeft, 1),
                (PartitionMode::CollectLeft, 3),
                (PartitionMode::Auto, 3),
            ] {
                let mut case = on_host(keyed(ints, [2500, 3000], 2000, parts));
                (case.join_type, case.null_equality, case.mode) = (join_type, null_equality, mode);
                if mode == PartitionMode::Auto {
                    case.build = case.build.in_partitions(2, |row| row);
                }
                check(&case, 24 << 10);
                if null_equality == NULL_EQUALITIES[0] {
                    check(&case.with_filter(1, 1), 24 << 10);
                }
            }
        }
    }
}

#[test]
fn spill_partitions_are_joined_on_the_device() {
    side_by_side();
    for join_type in JOIN_TYPES {
        let mut case = keyed(ints, [6000, 8000], 5000, 2);
        case.join_type = join_type;
        let found = check(&case, 128 << 10);
        assert!(found.metric("kernel_launches") > 0, "{case}");
    }
}

#[test]
fn spill_partitions_too_large_for_the_device_are_joined_on_the_host() {
    side_by_side();
    for join_type in JOIN_TYPES {
        let mut case = keyed(ints, [6000, 8000], 5000, 2);
        case.join_type = join_type;
        case.config.knobs.max_table_rows = 10;
        let limited = Limited::new(128 << 10);
        let expected = run(Arc::new(case.stock()), case.context()).unwrap();
        let join = case.on_device();
        let found = run(join.clone(), Arc::clone(&limited.context)).unwrap();
        assert_eq!(found.sorted_rows(), expected.sorted_rows(), "{case}");
        let decisions = join.decisions();
        let (large, small): (Vec<_>, Vec<_>) = decisions.iter().partition(|d| d.rows > 10);
        assert!(large.len() > 2 && small.is_empty(), "{decisions:?} {case}");
        for decision in large {
            let place = &decision.place;
            assert!(decision.is_spilled, "{decision:?} {case}");
            assert!(
                matches!(place, Place::Host(HostReason::DoesNotFit)),
                "{decision:?} {case}"
            );
        }
    }
}

#[test]
fn partitioned_joins_spill() {
    side_by_side();
    for join_type in JOIN_TYPES {
        let mut case = on_host(keyed(ints, [9000, 9000], 6000, 3));
        // Rows with equal keys are in partitions of one number.
        let by_key = |side: &Side| {
            let keys = side.batch().column(0).as_primitive::<Int64Type>().clone();
            let key = move |row| {
                if keys.is_valid(row) {
                    keys.value(row) as usize
                } else {
                    0
                }
            };
            side.clone().in_partitions(3, key)
        };
        (case.build, case.probe) = (by_key(&case.build), by_key(&case.probe));
        (case.mode, case.join_type) = (PartitionMode::Partitioned, join_type);
        check(&case, 64 << 10);
    }
}

#[test]
fn keys_of_all_kinds_spill() {
    side_by_side();
    let views: ToColumn = |keys| cast(&strings(keys), &DataType::Utf8View).unwrap();
    let dictionaries: ToColumn = |keys| {
        let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        cast(&strings(keys), &kind).unwrap()
    };
    for to_column in [short_strings, strings, sparse_ints, views, dictionaries] {
        for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftMark] {
            let mut case = on_host(keyed(to_column, [2500, 3000], 2000, 2));
            case.join_type = join_type;
            check(&case, 32 << 10);
        }
    }
}

#[test]
fn a_hot_key_is_joined_in_passes() {
    side_by_side();
    for join_type in JOIN_TYPES {
        for filtered in [false, true] {
            // One key has nearly all rows of both sides: no hash takes them apart.
            let keys = |rows: usize, other: i64| -> Vec<Option<i64>> {
                let key = |row: usize| match row % 40 {
                    0 => None,
                    1 => Some(other + row as i64),
                    _ => Some(7),
                };
                (0..rows).map(key).collect()
            };
            let columns = |keys: Vec<Option<i64>>, name| {
                vec![("k", ints(&keys)), (name, payload(keys.len()))]
            };
            let build = columns(keys(2000, 1000), "b");
            let probe = columns(keys(300, 1000), "p");
            let (build, probe) = match join_type {
                // The side whose unmatched rows are emitted is the larger one.
                JoinType::Right | JoinType::RightAnti => (probe, build),
                _ => (build, probe),
            };
            let mut case = on_host(case(build, probe, 2));
            case.join_type = join_type;
            let case = if filtered {
                case.with_filter(1, 1)
            } else {
                case
            };
            let found = check(&case, 6 << 10);
            // 2300 rows, each written once: a spill partition of one hot key is not cut again.
            let rows = found.metric("spilled_rows");
            assert!((1..=2300).contains(&rows), "{rows} rows written: {case}");
        }
    }
}

#[test]
fn spill_partitions_that_are_too_large_are_partitioned_again() {
    side_by_side();
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::RightMark] {
        let mut case = on_host(keyed(ints, [60_000, 60_000], 60_000, 2));
        case.join_type = join_type;
        let found = check(&case, 64 << 10);
        // Rows of both sides are written once per level.
        let rows = 120_000 / 8 * 7;
        assert!(found.metric("spilled_rows") > rows * 3 / 2, "{case}");
    }
}

#[test]
fn not_in_spills() {
    side_by_side();
    let build = || {
        let keys = repeating_keys(1, 6000, 5000);
        vec![("k", ints(&keys)), ("b", payload(keys.len()))]
    };
    let few: Vec<Option<i64>> = (0..3000).map(|k| Some(k * 2)).collect();
    let mut with_null = few.clone();
    with_null.push(None);
    for keys in [few, with_null, vec![]] {
        let probe = vec![("k", ints(&keys))];
        let probe = Side::new(probe).in_partitions(2, |row| row);
        let probe = probe.in_batches_of(500);
        let build = Side::new(build()).in_batches_of(500);
        let mut case = on_host(Case::new(build, probe));
        (case.join_type, case.null_aware) = (JoinType::LeftAnti, true);
        check(&case, 64 << 10);
    }
}

#[test]
fn a_promised_order_is_kept() {
    side_by_side();
    for join_type in [
        JoinType::Inner,
        JoinType::Right,
        JoinType::RightSemi,
        JoinType::RightAnti,
    ] {
        let rows = 60_000;
        let keys = repeating_keys(1, rows, 50_000);
        let mut sorted = repeating_keys(2, rows, 50_000);
        sorted.sort_unstable();
        let build = vec![("k", ints(&keys)), ("b", payload(rows))];
        let probe = vec![("k", ints(&sorted)), ("p", payload(rows))];
        let mut case = on_host(case(build, probe, 1));
        case.probe = case.probe.sorted_by(0);
        case.join_type = join_type;
        let found = check(&case, 1 << 20);
        let at = case.stock().schema().index_of("p").unwrap() - 1;
        let keys: Vec<Option<i64>> = found.batches[0]
            .iter()
            .flat_map(|batch| batch.column(at).as_primitive::<Int64Type>().iter())
            .collect();
        assert!(keys.is_sorted(), "{case}");
    }
}

#[test]
fn a_promised_order_is_kept_in_a_pool_of_few_bytes() {
    side_by_side();
    let build = vec![
        ("k", ints(&repeating_keys(1, 3000, 2000))),
        ("b", payload(3000)),
    ];
    let mut sorted = repeating_keys(2, 3000, 2000);
    sorted.sort_unstable();
    let probe = vec![("k", ints(&sorted))];
    for parts in [1, 2] {
        for fetch in [None, Some(0), Some(1), Some(700)] {
            let probe = Side::new(probe.clone()).in_partitions(parts, |row| row);
            let sorted = probe.in_batches_of(500).sorted_by(0);
            let mut case = on_host(Case::new(Side::new(build.clone()), sorted));
            case.join_type = JoinType::Right;
            let limited = Limited::new(1 << 10);
            let all = run(Arc::new(case.stock()), case.context()).unwrap();
            case.fetch = fetch;
            let found = run(case.on_device(), Arc::clone(&limited.context)).unwrap();
            let at = case.stock().schema().fields().len() - 1;
            let keys = |run: &Run| -> Vec<Vec<Option<i64>>> {
                let of = |batch: &RecordBatch| -> Vec<Option<i64>> {
                    batch
                        .column(at)
                        .as_primitive::<Int64Type>()
                        .iter()
                        .collect()
                };
                let partitions = run.batches.iter();
                partitions
                    .map(|p| p.iter().flat_map(of).collect())
                    .collect()
            };
            let found_keys = keys(&found);
            assert!(found_keys.iter().all(|keys| keys.is_sorted()), "{case}");
            let first = |keys: Vec<Vec<Option<i64>>>| {
                let mut keys = keys.concat();
                keys.sort_unstable();
                keys.truncate(fetch.unwrap_or(usize::MAX));
                keys
            };
            assert_eq!(first(found_keys), first(keys(&all)), "{case}");
            assert_eq!(found.metric("output_rows"), found.count(), "{case}");
            limited.assert_clean(&case.to_string());
        }
    }
}

#[test]
fn two_promised_orders_are_kept_at_once() {
    side_by_side();
    // Each partition follows both orders, and the two together do not.
    let column = |first: i64| ints(&(first..first + 1000).map(Some).collect::<Vec<_>>());
    let part = |[a, b]: [i64; 2]| {
        let side = Side::new(vec![("k", column(0)), ("x", column(a)), ("y", column(b))]);
        side.in_batches_of(100)
    };
    let mut probe = part([0, 1000]);
    probe.partitions.extend(part([1000, 0]).partitions);
    let build = Side::new(vec![("k", column(0))]).in_batches_of(100);
    let case = on_host(Case::new(build.clone(), probe.clone()));
    let by = |column| LexOrdering::new([PhysicalSortExpr::new_default(probe.column(column))]);
    let orders = [by(1).unwrap(), by(2).unwrap()];
    let sorted =
        TestMemoryExec::try_new_exec(&probe.partitions, Arc::clone(&probe.schema), None).unwrap();
    let sorted = Arc::unwrap_or_clone(sorted).try_with_sort_information(orders.to_vec());
    let inputs: Vec<Arc<dyn ExecutionPlan>> = vec![build.exec(), Arc::new(sorted.unwrap())];
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let join = case.on_device().replace_children(inputs, options).unwrap();
    let promised = join.properties().equivalence_properties().oeq_class().len();
    assert_eq!(promised, 2);
    let limited = Limited::new(4 << 10);
    let found = run(join, Arc::clone(&limited.context)).unwrap();
    assert!(found.metric("spill_count") > 0);
    assert_eq!(found.count(), 2000);
    for batches in &found.batches {
        for column in [2, 3] {
            let values = batches.iter().flat_map(|batch| {
                let column = batch.column(column).as_primitive::<Int64Type>();
                column.values().to_vec()
            });
            assert!(values.is_sorted(), "column {column}");
        }
    }
    limited.assert_clean("two orders");
}

#[test]
fn a_limit_in_the_join_holds_for_each_stream() {
    side_by_side();
    let mut case = on_host(keyed(ints, [6000, 8000], 5000, 2));
    case.fetch = Some(100);
    let limited = Limited::new(64 << 10);
    let found = run(case.on_device(), Arc::clone(&limited.context)).unwrap();
    assert!(found.metric("spill_count") > 0);
    assert_eq!(found.metric("output_rows"), found.count());
    let rows: Vec<usize> = found.rows().iter().map(Vec::len).collect();
    assert!(
        rows.iter().all(|rows| *rows <= 100) && rows.contains(&100),
        "{rows:?}"
    );
    limited.assert_clean("limit");
}

#[test]
fn there_is_no_limit_below_which_a_join_fails() {
    side_by_side();
    let mut case = on_host(keyed(strings, [3000, 4000], 2000, 2));
    case.join_type = JoinType::Full;
    let expected = run(Arc::new(case.stock()), case.context()).unwrap();
    let mut spilled = Vec::new();
    for log in 0..=12 {
        let limited = Limited::new(1024 << log);
        let join = case.on_device();
        let found = run(join.clone(), Arc::clone(&limited.context)).unwrap();
        assert_eq!(found.count(), expected.count(), "{} KiB", 1 << log);
        spilled.push(join.decisions().iter().any(|decision| decision.is_spilled));
        drop(join);
        limited.assert_clean("sweep");
    }
    assert!(
        spilled[0] && !spilled[12] && spilled.is_sorted_by(|a, b| a >= b),
        "{spilled:?}"
    );
}

#[test]
fn a_stream_dropped_at_any_poll_leaves_nothing() {
    side_by_side();
    for polls in 0..30 {
        let case = on_host(keyed(ints, [6000, 8000], 5000, 2));
        let limited = Limited::new(64 << 10);
        let (join, context) = (case.on_device(), Arc::clone(&limited.context));
        block_on(async move {
            let mut streams: Vec<_> = (0..2)
                .map(|p| join.execute(p, Arc::clone(&context)).unwrap())
                .collect();
            for _ in 0..polls {
                for stream in &mut streams {
                    let _ = stream.next().now_or_never();
                }
                tokio::time::sleep(std::time::Duration::from_millis(polls)).await;
            }
        });
        limited.assert_clean(&format!("dropped after {polls} polls"));
    }
}

#[test]
fn a_stream_dropped_after_any_batch_leaves_nothing() {
    side_by_side();
    for batches in 1..=12 {
        let mut case = on_host(keyed(ints, [6000, 8000], 5000, 2));
        case.join_type = JoinType::Full;
        let limited = Limited::new(64 << 10);
        let (join, context) = (case.on_device(), Arc::clone(&limited.context));
        block_on(async move {
            let mut first = join.execute(0, Arc::clone(&context)).unwrap();
            let mut second = join.execute(1, context).unwrap();
            let _ = second.next().now_or_never();
            for _ in 0..batches {
                first.next().await.unwrap().unwrap();
            }
            assert!(first.next().now_or_never().is_none_or(|end| end.is_some()));
        });
        limited.assert_clean(&format!("dropped after {batches} batches"));
    }
}

#[test]
fn streams_are_read_in_any_order() {
    side_by_side();
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftAnti] {
        for mode in [PartitionMode::CollectLeft, PartitionMode::Auto] {
            let mut case = on_host(keyed(ints, [6000, 8000], 5000, 3));
            (case.join_type, case.mode) = (join_type, mode);
            let mut collected = case.clone();
            collected.mode = PartitionMode::CollectLeft;
            let expected = run(Arc::new(collected.stock()), case.context()).unwrap();
            for orders in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
                let limited = Limited::new(64 << 10);
                let (join, context) = (case.on_device(), Arc::clone(&limited.context));
                let rows = block_on(async move {
                    let streams = (0..3).map(|p| join.execute(p, Arc::clone(&context)).unwrap());
                    let mut streams: Vec<_> = streams.map(Some).collect();
                    let mut rows = 0;
                    // Each is read to its end before the next is polled.
                    for at in orders {
                        let mut stream = streams[at].take().unwrap();
                        while let Some(batch) = stream.next().await {
                            rows += batch.unwrap().num_rows();
                        }
                    }
                    assert!(join.decisions().iter().all(|d| d.is_spilled));
                    rows
                });
                assert_eq!(rows, expected.count(), "{orders:?}: {case}");
                limited.assert_clean("any order");
            }
        }
    }
}

/// The join of `case` with sides that go on as said, one partition each.
fn going_on(case: &Case, left: Then, right: Then) -> Arc<HortonJoinExec> {
    let right = vec![right; case.probe.partitions.len()];
    let sides = (feed(&case.build, &[left]), feed(&case.probe, &right));
    case.put_on_device(case.stock_of(sides.0, sides.1))
}

#[test]
fn an_input_without_memory_is_no_reason_to_spill() {
    side_by_side();
    let exhausted = Then::Exhausted("a sort below has no memory");
    for mode in [PartitionMode::CollectLeft, PartitionMode::Auto] {
        for (left, right) in [(exhausted, Then::End), (Then::End, exhausted)] {
            let mut case = on_host(keyed(ints, [6000, 8000], 5000, 2));
            case.mode = mode;
            let limited = Limited::new(8 << 20);
            let join = going_on(&case, left, right);
            let failed = run(join.clone(), Arc::clone(&limited.context));
            let error = failed.map(|_| ()).unwrap_err();
            assert!(
                matches!(error.find_root(), DataFusionError::ResourcesExhausted(text)
                    if text == "a sort below has no memory"),
                "{error}"
            );
            assert_eq!(spilled(&join, "spill_count"), 0, "{error}");
            drop(join);
            limited.assert_clean("an input without memory");
        }
    }
}

#[test]
fn an_input_that_fails_while_it_is_partitioned_leaves_nothing() {
    side_by_side();
    for text in ["the file is torn", "a sort below has no memory"] {
        let then = match text.starts_with("a sort") {
            true => Then::Exhausted(text),
            false => Then::Error(text),
        };
        for mode in [PartitionMode::CollectLeft, PartitionMode::Auto] {
            for (left, right) in [(then, Then::End), (Then::End, then)] {
                // More than what waits in memory to be written together.
                let mut case = on_host(keyed(ints, [150_000, 150_000], 100_000, 2));
                case.mode = mode;
                let limited = Limited::new(64 << 10);
                let join = going_on(&case, left, right);
                let failed = run(join.clone(), Arc::clone(&limited.context));
                let error = failed.map(|_| ()).unwrap_err().to_string();
                assert!(error.contains(text), "{error}");
                assert!(spilled(&join, "spill_count") > 0, "{mode:?} {error}");
                drop(join);
                limited.assert_clean(&error);
            }
        }
    }
}

/// As with DataFusion's join, what the right side gives does not matter then, nor that it fails.
#[test]
fn a_left_side_without_a_key_that_matches_leaves_the_right_one_unread() {
    side_by_side();
    let fails = Then::Error("nobody may ask for this");
    for join_type in [JoinType::Inner, JoinType::LeftSemi, JoinType::RightSemi] {
        // The right side fails after the pool has refused it, or before.
        for (mode, right_rows) in [
            (PartitionMode::CollectLeft, 50_000),
            (PartitionMode::Auto, 50_000),
            (PartitionMode::Auto, 100),
        ] {
            let mut case = on_host(keyed(ints, [150_000, right_rows], 1000, 2));
            for batch in case.build.partitions.iter_mut().flatten() {
                let mut columns = batch.columns().to_vec();
                columns[0] = new_null_array(columns[0].data_type(), batch.num_rows());
                *batch = RecordBatch::try_new(batch.schema(), columns).unwrap();
            }
            (case.mode, case.join_type) = (mode, join_type);
            let right = vec![fails; case.probe.partitions.len()];
            let left = feed(&case.build, &[Then::End]);
            let mut collected = case.clone();
            collected.mode = PartitionMode::CollectLeft;
            let stock = collected.stock_of(left, feed(&case.probe, &right));
            let expected = run(Arc::new(stock), case.context()).unwrap();
            let limited = Limited::new(64 << 10);
            let join = going_on(&case, Then::End, fails);
            let found = run(join.clone(), Arc::clone(&limited.context)).unwrap();
            let rows = [found.sorted_rows(), expected.sorted_rows()];
            assert!(rows.iter().all(Vec::is_empty), "{case}");
            // It is all in spill partitions, or there would be a decision on its build.
            assert!(join.decisions().is_empty(), "{case}");
            drop(join);
            limited.assert_clean(&case.to_string());
        }
    }
}

/// A metric of `join`; 0 if there is none.
fn spilled(join: &Arc<HortonJoinExec>, name: &str) -> usize {
    let metrics = join.metrics().unwrap_or_default();
    let value = metrics.sum(|metric| metric.value().name() == name);
    value.map_or(0, |value| value.as_usize())
}
