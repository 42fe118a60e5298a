//! Consumers of every kind, with inputs of different numbers of partitions.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{JoinType, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt};
use horton_join::{HortonJoinExec, HostReason};

use super::plans::*;
use horton_test_support::joins::*;

/// Partitions of the left and the right side.
const PARTS: [(usize, usize); 4] = [(1, 4), (4, 1), (3, 2), (2, 3)];

/// Rows of the sides, and which one is built.
const SIZES: [(usize, usize, Which); 2] = [(40, 200, Left), (200, 40, Right)];

/// A join of sides in `parts` partitions.
fn case_of((left, right): (usize, usize), parts: (usize, usize), at: At) -> Case {
    let left = in_parts(side(1, left), parts.0);
    let right = in_parts(side(2, right), parts.1);
    open(left, right, at)
}

/// Runs `check` with joins of all `PARTS` and `SIZES`, at every place.
fn each(check: impl Fn(&Case, &Arc<HortonJoinExec>, Which, At)) {
    for at in At::ALL {
        for parts in PARTS {
            for (left, right, build) in SIZES {
                let case = case_of((left, right), parts, at);
                check(&case, &case.on_device(), build, at);
            }
        }
    }
}

fn streams(
    join: &Arc<HortonJoinExec>,
    partitions: impl IntoIterator<Item = usize>,
    context: &Arc<TaskContext>,
) -> Result<Vec<SendableRecordBatchStream>> {
    let partitions = partitions.into_iter();
    partitions
        .map(|partition| join.execute(partition, Arc::clone(context)))
        .collect()
}

fn count(join: &Arc<HortonJoinExec>) -> usize {
    join.properties().output_partitioning().partition_count()
}

/// Hash tables that were filled: one, or one per partition.
pub fn tables_filled(join: &HortonJoinExec) -> usize {
    let metrics = join.metrics().unwrap();
    let filled = metrics
        .iter()
        .map(|metric| metric.value())
        .filter(|value| value.name() == "build_input_rows" && value.as_usize() > 0);
    filled.count()
}

/// The way in which a consumer reads.
#[derive(Debug, Clone, Copy)]
enum Reads {
    /// Asks for a partition once it has read the one before to its end.
    OneByOne,
    /// Asks for all partitions, then reads each to its end.
    AllAsked,
    /// A batch of each partition in turn.
    InTurn,
    /// All at once, each as a task.
    AtOnce,
}

const WAYS: [Reads; 4] = [
    Reads::OneByOne,
    Reads::AllAsked,
    Reads::InTurn,
    Reads::AtOnce,
];

impl Reads {
    async fn read(
        self,
        join: Arc<HortonJoinExec>,
        order: Vec<usize>,
        context: Arc<TaskContext>,
    ) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        if let Reads::OneByOne = self {
            for partition in order {
                let stream = join.execute(partition, Arc::clone(&context))?;
                batches.extend(stream.try_collect::<Vec<_>>().await?);
            }
            return Ok(batches);
        }
        let mut streams = streams(&join, order, &context)?;
        match self {
            Reads::InTurn => {
                while !streams.is_empty() {
                    let mut left = Vec::new();
                    for mut stream in streams {
                        if let Some(batch) = stream.try_next().await? {
                            batches.push(batch);
                            left.push(stream);
                        }
                    }
                    streams = left;
                }
            }
            Reads::AtOnce => {
                let tasks = streams
                    .into_iter()
                    .map(|stream| tokio::spawn(stream.try_collect::<Vec<_>>()));
                for task in join_all(tasks).await {
                    batches.extend(task.unwrap()?);
                }
            }
            Reads::OneByOne | Reads::AllAsked => {
                for stream in streams {
                    batches.extend(stream.try_collect::<Vec<_>>().await?);
                }
            }
        }
        Ok(batches)
    }

    /// The rows of the partitions in `order`, sorted.
    fn rows(
        self,
        join: &Arc<HortonJoinExec>,
        order: Vec<usize>,
        context: &Arc<TaskContext>,
    ) -> Vec<String> {
        let read = self.read(Arc::clone(join), order, Arc::clone(context));
        sorted(text(&block_on(read).unwrap()))
    }
}

fn forward(join: &Arc<HortonJoinExec>) -> Vec<usize> {
    (0..count(join)).collect()
}

#[test]
fn a_join_has_as_many_partitions_as_the_side_that_has_more() {
    each(|case, join, _, _| {
        let most = case.build.partitions.len().max(case.probe.partitions.len());
        assert_eq!(count(join), most);
    });
}

#[test]
fn partitions_are_read_in_any_order() {
    side_by_side();
    each(|case, _, build, at| {
        for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftAnti] {
            let case = Case {
                join_type,
                ..case.clone()
            };
            let expected = expected(&case);
            for reads in WAYS {
                for is_backward in [false, true] {
                    let about = format!("{at:?} {reads:?} backward={is_backward} {case}");
                    let join = case.on_device();
                    let (pool, context) = pooled(at, PLENTY);
                    let mut order = forward(&join);
                    if is_backward {
                        order.reverse();
                    }
                    assert_eq!(reads.rows(&join, order, &context), expected, "{about}");
                    let decisions = join.decisions();
                    assert_eq!(only(&decisions).build, build, "{about}");
                    assert_place(only(&decisions), at, &about);
                    given_back(&pool, &about);
                }
            }
        }
    });
}

#[test]
fn every_join_type_returns_its_rows_from_several_partitions() {
    side_by_side();
    each(|case, _, build, at| {
        for join_type in JOIN_TYPES {
            let case = Case {
                join_type,
                ..case.clone()
            };
            let join = case.on_device();
            // Under a limit on memory the host does not repartition.
            let context = context(at.config());
            let rows = Reads::AtOnce.rows(&join, forward(&join), &context);
            assert_eq!(rows, expected(&case), "{at:?} {build:?} {case}");
            let about = format!("{at:?} {build:?} {case}");
            let output_rows = join.metrics().unwrap().output_rows();
            assert_eq!(output_rows, Some(rows.len()), "{about}");
            assert_eq!(tables_filled(&join) > 1, at == At::HostParts, "{about}");
        }
    });
}

/// Two columns of keys.
fn two_keys(seed: u32, rows: usize) -> Side {
    let keys = |seed, distinct| ints(&repeating_keys(seed, rows, distinct));
    Side::new(vec![("k", keys(seed, 30)), ("l", keys(seed + 2, 3))]).in_batches_of(7)
}

fn column(side: &Side, at: usize) -> PhysicalExprRef {
    Arc::new(Column::new(side.schema.field(at).name(), at))
}

/// The rows of `side` in `parts` partitions, by the hash of its columns `keys`.
fn hashed(side: &Side, (keys, parts): Hashed) -> Arc<dyn ExecutionPlan> {
    let keys = keys.iter().map(|at| column(side, *at));
    let partitioning = Partitioning::Hash(keys.collect(), parts);
    Arc::new(RepartitionExec::try_new(side.exec(), partitioning).unwrap())
}

/// Columns by whose hash a side is in so many partitions.
type Hashed = (&'static [usize], usize);

#[test]
fn sides_that_are_hashed_by_the_keys_are_joined_by_partition() {
    side_by_side();
    // Keys of the join, how its sides are hashed, and whether equal keys are in equal partitions.
    let sides: [(&[usize], Hashed, Hashed, bool); 7] = [
        (&[0], (&[0], 3), (&[0], 3), true),
        (&[0], (&[0], 3), (&[0], 2), false),
        (&[0], (&[1], 3), (&[1], 3), false),
        (&[0], (&[0, 1], 3), (&[0, 1], 3), false),
        (&[0, 1], (&[0, 1], 3), (&[0, 1], 3), true),
        (&[0, 1], (&[1], 3), (&[1], 3), true),
        (&[0, 1], (&[0, 1], 3), (&[1, 0], 3), false),
    ];
    for (keys, by_left, by_right, by_partition) in sides {
        for (left, right, build) in SIZES {
            for join_type in JOIN_TYPES {
                let (left, right) = (two_keys(1, left), two_keys(2, right));
                let mut case = open(left, right, At::HostParts);
                case.join_type = join_type;
                let key = |at: &usize| (column(&case.build, *at), column(&case.probe, *at));
                case.on = keys.iter().map(key).collect();
                let left = hashed(&case.build, by_left);
                let right = hashed(&case.probe, by_right);
                let join = case.put_on_device(case.stock_of(left, right));
                // Partitions have several batches. A limit keeps the host from repartitioning.
                let (pool, context) = pooled_batches(At::HostParts, PLENTY, 4);
                let rows = Reads::AtOnce.rows(&join, forward(&join), &context);
                let about = format!("{keys:?} {by_left:?} {by_right:?} {build:?} {case}");
                assert_eq!(rows, expected(&case), "{about}");
                assert_eq!(only(&join.decisions()).build, build, "{about}");
                assert_eq!(tables_filled(&join) > 1, by_partition, "{about}");
                given_back(&pool, &about);
            }
        }
    }
}

#[test]
fn hashed_sides_are_one_table_where_memory_has_no_room_for_several() {
    // Tables of so many parts take much more memory than one: many limits lie between.
    const PARTS: usize = 16;
    side_by_side();
    let mut tables = Vec::new();
    for limit in (1000..20_000).step_by(250).chain([PLENTY]) {
        for join_type in [JoinType::Inner, JoinType::Full] {
            let mut case = open(two_keys(1, 56), two_keys(2, 200), At::HostParts);
            case.join_type = join_type;
            let left = hashed(&case.build, (&[0], PARTS));
            let right = hashed(&case.probe, (&[0], PARTS));
            let join = case.put_on_device(case.stock_of(left, right));
            let (pool, context) = pooled_batches(At::HostParts, limit, 4);
            let rows = Reads::AtOnce.rows(&join, forward(&join), &context);
            let about = format!("{limit} bytes, {case}");
            assert_eq!(rows, expected(&case), "{about}");
            tables.push(tables_filled(&join));
            given_back(&pool, &about);
        }
    }
    let by_part = *tables.last().unwrap();
    assert!(tables.contains(&1), "{tables:?}");
    assert!(1 < by_part && by_part <= PARTS, "{tables:?}");
}

#[test]
fn a_partition_alone_returns_the_rows_that_are_its_own() {
    side_by_side();
    each(|case, join, _, at| {
        let (pool, context) = pooled(at, PLENTY);
        let mut rows = Vec::new();
        for partition in forward(join) {
            let alone = case.on_device();
            rows.extend(Reads::AllAsked.rows(&alone, vec![partition], &context));
        }
        assert_eq!(sorted(rows), expected(case), "{at:?} {case}");
        given_back(&pool, &format!("{at:?} {case}"));
    });
}

#[test]
fn partitions_that_nobody_polls_take_nothing_from_the_others() {
    side_by_side();
    each(|case, join, _, at| {
        let (pool, context) = pooled(at, PLENTY);
        let mut rows = Vec::new();
        for partition in forward(join) {
            let plan = case.on_device();
            let (asked, context) = (forward(join), Arc::clone(&context));
            let read = async move {
                let mut all = streams(&plan, asked, &context)?;
                let wanted = all.swap_remove(partition);
                let batches = wanted.try_collect::<Vec<_>>().await;
                drop(all);
                batches
            };
            rows.extend(text(&block_on(read).unwrap()));
        }
        assert_eq!(sorted(rows), expected(case), "{at:?} {case}");
        given_back(&pool, &format!("{at:?} {case}"));
    });
}

#[test]
fn streams_that_are_dropped_early_leave_a_plan_that_runs_and_no_memory() {
    side_by_side();
    each(|case, join, build, at| {
        let expected = expected(case);
        for polls in 0..4 {
            let about = format!("{polls} polls, {at:?} {case}");
            let (pool, context) = pooled(at, PLENTY);
            let (plan, of_read) = (Arc::clone(join), Arc::clone(&context));
            block_on(async move {
                let mut all = streams(&plan, 0..count(&plan), &of_read).unwrap();
                for _ in 0..polls {
                    drop(all[0].next().await);
                }
                // One after the other, the first one last.
                while all.pop().is_some() {
                    tokio::task::yield_now().await;
                }
            });
            given_back(&pool, &about);
            let rows = Reads::AllAsked.rows(join, forward(join), &context);
            assert_eq!(rows, expected, "{about}");
            assert_eq!(only(&join.decisions()).build, build, "{about}");
        }
    });
}

#[test]
fn a_plan_runs_again_and_keeps_no_memory_in_between() {
    side_by_side();
    each(|case, join, build, at| {
        let (pool, context) = pooled(at, PLENTY);
        for run in 0..3 {
            let about = format!("run {run} at {at:?} {case}");
            let rows = Reads::AllAsked.rows(join, forward(join), &context);
            assert_eq!(rows, expected(case), "{about}");
            assert_eq!(only(&join.decisions()).build, build, "{about}");
            given_back(&pool, &about);
        }
    });
}

#[test]
fn a_plan_runs_several_times_at_once() {
    side_by_side();
    each(|case, join, build, at| {
        let about = format!("{at:?} {case}");
        let expected = expected(case);
        let (pool, shared) = pooled(at, PLENTY);
        let (other_pool, other) = pooled(at, PLENTY);
        // Two of them with one context: both ask for each partition.
        let runs = [&shared, &other, &shared].map(|context| {
            let reads = Reads::AtOnce;
            reads.read(Arc::clone(join), forward(join), Arc::clone(context))
        });
        for batches in block_on(join_all(runs)) {
            assert_eq!(sorted(text(&batches.unwrap())), expected, "{about}");
        }
        assert_eq!(only(&join.decisions()).build, build, "{about}");
        given_back(&pool, &about);
        given_back(&other_pool, &about);
    });
}

/// Build rows from which the streams of a join on the device emit unmatched rows together.
const MANY: usize = 70_000;

/// A join that builds many rows, most of them without a partner: of the left side, or the right.
fn with_unmatched_build_rows(build: Which) -> (Case, Arc<HortonJoinExec>) {
    let keys = |rows: usize| -> Vec<Option<i64>> { (0..rows as i64).map(Some).collect() };
    let many = Side::new(vec![("k", ints(&keys(MANY)))]).in_batches_of(5000);
    let few = Side::new(vec![("k", ints(&keys(30)))]);
    let few = few.in_partitions(3, |row| row).in_batches_of(4);
    let sides = match build {
        Left => (many, few),
        Right => (few, many),
    };
    let mut case = open(sides.0, sides.1, At::Device);
    // The side that is read first ends in its first read, and is built though the other is smaller.
    case.config.knobs.sample_rows = usize::MAX;
    let (left, mut right) = (case.build.exec(), case.probe.exec());
    case.join_type = JoinType::LeftAnti;
    if build == Right {
        case.join_type = JoinType::RightAnti;
        right = Arc::new(GlobalLimitExec::new(right, 0, Some(MANY)));
    }
    let join = case.put_on_device(case.stock_of(left, right));
    (case, join)
}

#[test]
fn unmatched_rows_of_a_large_build_side_reach_consumers_of_every_kind() {
    side_by_side();
    for build in [Left, Right] {
        for reads in WAYS {
            let (case, join) = with_unmatched_build_rows(build);
            let about = format!("{build:?} {reads:?} {case}");
            let (pool, context) = pooled(At::Device, PLENTY);
            let order = forward(&join).into_iter().rev().collect();
            let rows = reads.rows(&join, order, &context);
            assert!(rows == expected(&case), "{} rows: {about}", rows.len());
            let decisions = join.decisions();
            let decision = only(&decisions);
            assert_eq!((decision.build, decision.rows), (build, MANY), "{about}");
            given_back(&pool, &about);
        }
    }
}

#[test]
fn a_stream_that_is_dropped_keeps_no_other_from_a_large_build_side_s_end() {
    side_by_side();
    for build in [Left, Right] {
        let (_, join) = with_unmatched_build_rows(build);
        let (pool, context) = pooled(At::Device, PLENTY);
        let ended = block_on(async move {
            let mut all = streams(&join, 0..count(&join), &context)?;
            // Never polled: nobody emits unmatched build rows, and nobody waits for that.
            let last = all.pop();
            let others = all.into_iter().map(|stream| stream.try_collect::<Vec<_>>());
            let others = join_all(others).await;
            drop(last);
            others.into_iter().collect::<Result<Vec<_>>>()
        });
        assert_eq!(text(&ended.unwrap().concat()).len(), 0, "{build:?}");
        given_back(&pool, &format!("{build:?}"));
    }
}

/// Where rows need not move, the host's join is a match for any device.
#[test]
fn by_default_sides_that_are_hashed_by_the_keys_stay_on_the_host() {
    const ROWS: usize = 1 << 20;
    side_by_side();
    let keys: Vec<Option<i64>> = (0..ROWS as i64).map(Some).collect();
    let side = Side::new(vec![("k", ints(&keys))]).in_batches_of(8192);
    for is_hashed in [true, false] {
        let mut case = open(side.clone(), side.clone(), At::Device);
        case.config.min_build_rows = 0;
        case.projection = Some(Vec::new());
        let input = |side: &Side| match is_hashed {
            true => hashed(side, (&[0], 3)),
            false => side.exec(),
        };
        let (left, right) = (input(&case.build), input(&case.probe));
        let join = case.put_on_device(case.stock_of(left, right));
        let found = run(join.clone(), case.context()).unwrap();
        assert_eq!(found.count(), ROWS);
        let decisions = join.decisions();
        let reason = is_hashed.then_some(HostReason::HashedByKeys);
        assert_eq!(host_reason(only(&decisions)), reason.as_ref());
    }
}

/// The host evaluates the filter for all pairs, wherever they are found.
#[test]
fn by_default_semi_joins_with_many_pairs_for_a_residual_filter_stay_on_the_host() {
    const ROWS: i64 = 1 << 20;
    side_by_side();
    for (per_key, join_type, is_filtered, is_left) in [
        (16, JoinType::LeftSemi, true, true),
        (16, JoinType::RightSemi, true, true),
        (4, JoinType::LeftSemi, true, false),
        (16, JoinType::LeftSemi, false, false),
        (16, JoinType::Inner, true, false),
    ] {
        let side = |rows: i64, key: &dyn Fn(i64) -> i64| {
            let keys: Vec<Option<i64>> = (0..rows).map(|row| Some(key(row))).collect();
            let values: Vec<Option<i64>> = (0..rows).map(|row| Some(row % 7)).collect();
            Side::new(vec![("k", ints(&keys)), ("v", ints(&values))]).in_batches_of(8192)
        };
        // Few of the keys have matches. The left side is the smaller one.
        let build = side(ROWS, &|row| row / per_key);
        let probe = side(ROWS + 8192, &|row| row + ROWS / per_key - 500);
        let mut case = open(build, probe, At::Device);
        case.join_type = join_type;
        if is_filtered {
            case = case.with_filter(1, 1);
        }
        case.config.min_build_rows = 0;
        let join = case.put_on_device(case.stock());
        let found = run(join.clone(), case.context()).unwrap();
        let about = format!("{per_key} {case}");
        let mut rows = found.rows().concat();
        rows.sort_unstable();
        assert!(rows == expected(&case), "{about}");
        let decisions = join.decisions();
        let reason = is_left.then_some(HostReason::ManyPairs);
        assert_eq!(host_reason(only(&decisions)), reason.as_ref(), "{about}");
    }
}
