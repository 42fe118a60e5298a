//! Memory pools that have room for one side, or for none.
//!
//! ```text
//!  pool   ▓▓▓▓▓▓▓ 7 batches of the first side ░ the 8th is refused: the first side is out
//!                                             ▓ the second one fits, and is built
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{DataFusionError, JoinType};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryPool;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;

use super::plans::*;
use crate::feed::{Then, going_on, partition, plan};
use horton_test_support::joins::*;

/// Rows and bytes of a batch.
const BATCH: usize = 4000;
const BATCH_BYTES: usize = BATCH * size_of::<i64>();

/// Room for seven batches, and most of an eighth.
const LIMIT: usize = 8 * BATCH_BYTES - 1;

/// Rows of a side that has no room.
const LARGE: usize = 10 * BATCH;

/// Rows of a side that fits, with all that is built of it, into what seven batches leave.
const SMALL: usize = 50;

/// Keys `0..rows`, no two batches of which share a buffer.
fn apart(rows: usize, parts: usize) -> Side {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
    let batch = |at: usize| {
        let keys = Int64Array::from_iter_values(at as i64..(at + BATCH).min(rows) as i64);
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys) as ArrayRef]).unwrap()
    };
    let mut partitions = vec![Vec::new(); parts];
    for (i, at) in (0..rows).step_by(BATCH).enumerate() {
        partitions[i % parts].push(batch(at));
    }
    Side {
        schema,
        partitions,
        sorted_by: None,
    }
}

/// A join of so many rows, read in long reads.
fn case_of((left, right): (usize, usize), parts: usize, at: At) -> Case {
    let mut case = open(apart(left, parts), apart(right, parts), at);
    case.config.knobs.sample_rows = 1 << 20;
    // What does not fit is an error here; tests/joins/join/spill.rs has what goes to disk.
    case.config.spill = false;
    case
}

#[test]
fn a_left_side_that_the_pool_refuses_is_probed() {
    side_by_side();
    let in_parts = [(JoinType::Inner, 3), (JoinType::LeftAnti, 3)];
    for at in At::ALL {
        let types = JOIN_TYPES.map(|join_type| (join_type, 1));
        for (join_type, parts) in types.into_iter().chain(in_parts) {
            let mut case = case_of((LARGE, SMALL), parts, at);
            case.join_type = join_type;
            let about = format!("{at:?} {parts} {case}");
            let (pool, context) = pooled(at, LIMIT);
            let found = outcome(&case.on_device(), context);
            let found = found.unwrap_or_else(|e| panic!("{about}: {e}"));
            assert_eq!(found.rows, expected(&case), "{about}");
            assert_decision(&found, (Right, SMALL), at, &about);
            given_back(&pool, &about);
        }
    }
}

/// A join whose right side is read first: it has a LIMIT.
fn right_first(case: &Case) -> Arc<HortonJoinExec> {
    let right = GlobalLimitExec::new(coalesced(case.probe.exec()), 0, Some(1 << 30));
    case.put_on_device(case.stock_of(case.build.exec(), Arc::new(right)))
}

#[test]
fn a_right_side_that_is_read_first_and_refused_is_probed() {
    side_by_side();
    for at in At::ALL {
        let mut case = case_of((SMALL, LARGE), 1, at);
        case.join_type = JoinType::Right;
        let (pool, context) = pooled(at, LIMIT);
        let found = outcome(&right_first(&case), context).unwrap();
        assert_eq!(found.rows, expected(&case), "{at:?}");
        assert_decision(&found, (Left, SMALL), at, &format!("{at:?}"));
        given_back(&pool, &format!("{at:?}"));
    }
}

/// The errors of all partitions of `join`.
fn errors(join: &Arc<HortonJoinExec>, context: &Arc<TaskContext>) -> Vec<DataFusionError> {
    let (join, context) = (Arc::clone(join), Arc::clone(context));
    block_on(async move {
        let partitions = join.properties().output_partitioning().partition_count();
        let streams = (0..partitions).map(|p| join.execute(p, Arc::clone(&context)).unwrap());
        let all = streams.map(|stream| stream.try_collect::<Vec<_>>());
        let results = futures::future::join_all(all).await;
        results
            .into_iter()
            .map(|result| result.unwrap_err())
            .collect()
    })
}

fn assert_exhausted(errors: &[DataFusionError], consumer: &str, pool: &Arc<dyn MemoryPool>) {
    for error in errors {
        let root = error.find_root();
        assert!(
            matches!(root, DataFusionError::ResourcesExhausted(_)),
            "{error}"
        );
        assert!(error.to_string().contains(consumer), "{error}");
    }
    given_back(pool, consumer);
}

#[test]
fn two_sides_that_the_pool_refuses_are_resources_exhausted() {
    side_by_side();
    for at in At::ALL {
        for parts in [1, 3] {
            let case = case_of((LARGE, LARGE), parts, at);
            for (join, side) in [(case.on_device(), "right"), (right_first(&case), "left")] {
                let (pool, context) = pooled(at, LIMIT);
                let errors = errors(&join, &context);
                assert_eq!(errors.len(), parts);
                let consumer = format!("HortonJoinBuild[0]: {side} rows");
                assert_exhausted(&errors, &consumer, &pool);
                assert!(join.decisions().is_empty());
            }
        }
    }
}

#[test]
fn a_left_side_that_alone_may_be_built_and_is_refused_is_resources_exhausted() {
    side_by_side();
    for at in [At::Device, At::Host] {
        let mut case = case_of((LARGE, SMALL), 1, at);
        case.fetch = Some(10);
        let (pool, context) = pooled(at, LIMIT);
        let join = case.on_device();
        let errors = errors(&join, &context);
        assert_exhausted(&errors, "HortonJoinBuild[0]: left rows", &pool);
    }
}

#[test]
fn a_side_that_fits_but_its_table_does_not_is_resources_exhausted() {
    side_by_side();
    for (at, consumer) in [
        (At::Device, "HortonJoinBuild"),
        (At::Host, "HortonJoinBuild"),
    ] {
        let case = case_of((LARGE, LARGE), 1, at);
        let (pool, context) = pooled(at, 10 * BATCH_BYTES + BATCH_BYTES / 2);
        let join = case.on_device();
        let errors = errors(&join, &context);
        assert_exhausted(&errors, consumer, &pool);
    }
}

#[test]
fn a_plan_that_ran_out_of_memory_runs_in_a_larger_pool() {
    side_by_side();
    for at in At::ALL {
        let case = case_of((LARGE, LARGE), 3, at);
        let join = case.on_device();
        let (pool, context) = pooled(at, LIMIT);
        assert_exhausted(&errors(&join, &context), "HortonJoinBuild", &pool);
        let (pool, context) = pooled(at, PLENTY);
        let found = outcome(&join, context).unwrap();
        assert_eq!(found.rows, expected(&case), "{at:?}");
        assert_decision(&found, (Left, LARGE), at, &format!("{at:?}"));
        given_back(&pool, &format!("{at:?}"));
    }
}

#[test]
fn rows_of_the_side_that_is_probed_are_given_back_as_they_are_probed() {
    side_by_side();
    for at in [At::Device, At::Host] {
        // All of the left side is read in its first read, but for its end.
        let mut case = case_of((LARGE, SMALL), 1, at);
        case.config.knobs.sample_rows = LARGE;
        case.config.chunk_rows = BATCH;
        case.join_type = JoinType::Left;
        let (pool, context) = pooled(at, PLENTY);
        let (join, of_read) = (case.on_device(), Arc::clone(&pool));
        let reserved: Vec<usize> = block_on(async move {
            let stream = join.execute(0, context).unwrap();
            let reserved = stream.map_ok(|_| of_read.reserved());
            reserved.try_collect().await.unwrap()
        });
        let first = reserved.first().copied().unwrap();
        assert!(first >= 5 * BATCH_BYTES, "{at:?}: {reserved:?}");
        let half = reserved[reserved.len() / 2];
        assert!(half <= first - 3 * BATCH_BYTES, "{at:?}: {reserved:?}");
        let last = reserved.last().copied().unwrap();
        assert!(last <= 2 * BATCH_BYTES, "{at:?}: {reserved:?}");
        given_back(&pool, &format!("{at:?}"));
    }
}

/// Returns the bytes of a pool with room for `rows` rows of keys and a hash table of them, the
/// host's or the device's. No more than a batch fits beside.
fn room_for(rows: usize) -> usize {
    rows * (size_of::<i64>() + 40) + 2 * BATCH_BYTES
}

#[test]
fn rows_that_were_read_of_the_other_side_make_room_on_disk() {
    side_by_side();
    let (small, large) = (10 * BATCH, 60 * BATCH);
    for at in At::ALL {
        for parts in [1, 3] {
            for (rows, built) in [((small, large), Left), ((large, small), Right)] {
                let mut case = case_of(rows, parts, at);
                case.config.spill = true;
                // Reads end by rows long before the pool has none left.
                case.config.knobs.sample_rows = 2 * BATCH;
                let about = format!("{at:?} {parts} {rows:?}");
                let (pool, context) = pooled(at, room_for(small));
                let join = case.on_device();
                let found = outcome(&join, context).unwrap_or_else(|e| panic!("{about}: {e}"));
                assert_eq!(found.rows, expected(&case), "{about}");
                assert_built(&found, (built, small), &about);
                given_back(&pool, &about);
            }
        }
    }
}

/// Checks which side was built, wherever: the pool can be too small for the device's table.
fn assert_built(found: &Outcome, built: (Which, usize), about: &str) {
    let decision = only(&found.decisions);
    assert_eq!((decision.build, decision.rows), built, "{about}");
    assert!(!decision.is_spilled, "{about}");
}

#[test]
fn a_first_side_that_does_not_fit_makes_room_for_the_second() {
    side_by_side();
    let (small, large) = (10 * BATCH, 60 * BATCH);
    for at in At::ALL {
        let mut case = case_of((large, small), 3, at);
        // The first side fills the pool in its first read.
        case.config.spill = true;
        let (pool, context) = pooled(at, room_for(small));
        let join = case.on_device();
        let found = outcome(&join, Arc::clone(&context)).unwrap();
        assert_eq!(found.rows, expected(&case), "{at:?}");
        assert_built(&found, (Right, small), &format!("{at:?}"));
        let written = join.metrics().unwrap().spilled_rows();
        assert!(written.is_some_and(|rows| rows < large), "{written:?}");
        given_back(&pool, &format!("{at:?}"));
        assert_eq!(context.runtime_env().disk_manager.used_disk_space(), 0);
    }
}

#[test]
fn the_side_that_is_read_second_leaves_half_of_the_pool() {
    side_by_side();
    let (pool, context) = pooled(At::Host, 8 << 20);
    let mut case = case_of((18 * BATCH, 60 * BATCH), 1, At::Host);
    case.config.knobs.sample_rows = 18 * BATCH;
    let most = Arc::new(AtomicUsize::new(0));
    let (read, of_read) = (Arc::clone(&pool), Arc::clone(&most));
    let batches = case.probe.partitions[0].clone();
    // More of it would be read for as long as the left side goes on.
    let right = partition(&case.probe.schema, move || {
        let (pool, most) = (Arc::clone(&read), Arc::clone(&of_read));
        let batches = futures::stream::iter(batches.clone()).map(move |batch| {
            most.fetch_max(pool.reserved(), Ordering::Relaxed);
            Ok(batch)
        });
        batches.boxed()
    });
    let left = case.build.partitions[0].clone();
    let left = partition(&case.build.schema, move || {
        going_on(left.clone(), Then::Wait)
    });
    let stock = case.stock_of(plan(vec![left], true), plan(vec![right], false));
    let mut stream = case.put_on_device(stock).execute(0, context).unwrap();
    block_on(async move {
        let wait = Duration::from_millis(500);
        let next = tokio::time::timeout(wait, stream.try_next()).await;
        assert!(next.is_err(), "a side that goes on cannot be joined");
    });
    let most = most.load(Ordering::Relaxed);
    // A megabyte of its own is granted.
    assert!((3 << 20..=5 << 20).contains(&most), "{most}");
    given_back(&pool, "dropped");
}

#[test]
fn a_small_side_is_built_though_half_of_the_pool_is_taken() {
    side_by_side();
    for at in At::ALL {
        let mut case = case_of((40 * BATCH, SMALL), 1, at);
        case.config.knobs.sample_rows = 30 * BATCH;
        let (pool, context) = pooled(at, 8 << 20);
        let join = case.on_device();
        let found = outcome(&join, context).unwrap();
        assert_eq!(found.rows, expected(&case), "{at:?}");
        assert_built(&found, (Right, SMALL), &format!("{at:?}"));
        given_back(&pool, &format!("{at:?}"));
    }
}
