//! Sides that end late, never, or with an error.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::limit::GlobalLimitExec;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;

use super::plans::*;
use crate::feed::{Then, feed, going_on, partition, plan};
use horton_test_support::joins::*;

/// The device, and the host.
const PLACES: [At; 2] = [At::Device, At::Host];

/// A join of what `left` and `right` say, which go on as they say.
fn join_of(case: &Case, left: (&Side, &[Then]), right: (&Side, &[Then])) -> Arc<HortonJoinExec> {
    let stock = case.stock_of(feed(left.0, left.1), feed(right.0, right.1));
    case.put_on_device(stock)
}

/// Rows of `join` until there are `rows`, or it ends. Its streams are dropped then.
fn first_rows(join: &Arc<HortonJoinExec>, case: &Case, rows: usize) -> Vec<String> {
    let (join, context) = (Arc::clone(join), case.context());
    let batches: Result<Vec<RecordBatch>> = block_on(async move {
        let partitions = join.properties().output_partitioning().partition_count();
        let streams = (0..partitions).map(|p| join.execute(p, Arc::clone(&context)));
        let mut streams = futures::stream::select_all(streams.collect::<Result<Vec<_>>>()?);
        let (mut batches, mut found) = (Vec::new(), 0);
        while found < rows {
            let Some(batch) = streams.try_next().await? else {
                break;
            };
            found += batch.num_rows();
            batches.push(batch);
        }
        Ok(batches)
    });
    sorted(text(&batches.unwrap()))
}

// ---------------------------------------------------------------- late, never

#[test]
fn a_side_that_never_ends_is_probed_once_it_has_more_rows_than_the_other() {
    // A side is read as far as its reads go: 16, 32, 64 rows.
    let cases = [
        ((64, Then::Wait), (63, Then::End), (Right, 63)),
        ((16, Then::Wait), (15, Then::End), (Right, 15)),
        ((63, Then::End), (32, Then::Wait), (Left, 63)),
        ((31, Then::End), (16, Then::Wait), (Left, 31)),
        ((15, Then::End), (0, Then::Wait), (Left, 15)),
        ((15, Then::End), (200, Then::Wait), (Left, 15)),
    ];
    for at in PLACES {
        for ((left, then_left), (right, then_right), build) in cases {
            let mut case = open(side(1, left), side(2, right), at);
            // Rows leave the join on their own.
            case.batch_size = 1;
            let expected = expected(&case);
            let join = join_of(
                &case,
                (&case.build, &[then_left]),
                (&case.probe, &[then_right]),
            );
            let about = format!("{at:?} {build:?} {case}");
            assert_eq!(
                first_rows(&join, &case, expected.len()),
                expected,
                "{about}"
            );
            if expected.is_empty() {
                continue;
            }
            let decisions = join.decisions();
            let decision = only(&decisions);
            assert_eq!((decision.build, decision.rows), build, "{about}");
            assert_place(decision, at, &about);
        }
    }
}

#[test]
fn the_left_side_is_built_while_the_right_one_waits_for_its_first_row() {
    for at in PLACES {
        let case = open(side(1, 15), side(2, 0), at);
        let join = join_of(
            &case,
            (&case.build, &[Then::End]),
            (&case.probe, &[Then::Wait]),
        );
        let (plan, context) = (Arc::clone(&join), case.context());
        block_on(async move {
            let mut stream = plan.execute(0, context).unwrap();
            while plan.decisions().is_empty() {
                assert!(futures::poll!(stream.next()).is_pending());
                tokio::task::yield_now().await;
            }
        });
        let decisions = join.decisions();
        assert_eq!((only(&decisions).build, only(&decisions).rows), (Left, 15));
    }
}

/// One of several partitions waits: the others have the rows of a read.
#[test]
fn a_partition_that_waits_does_not_hold_up_a_read() {
    for at in PLACES {
        let left = side(1, 100).in_partitions(2, |row| usize::from(row >= 80));
        let mut case = open(left.in_batches_of(7), side(2, 40), at);
        case.batch_size = 1;
        let mut there = case.clone();
        there.build.partitions[1].clear();
        let expected = expected(&there);
        let join = join_of(
            &case,
            (&there.build, &[Then::End, Then::Wait]),
            (&case.probe, &[Then::End]),
        );
        assert_eq!(first_rows(&join, &case, expected.len()), expected);
        let decisions = join.decisions();
        assert_eq!((only(&decisions).build, only(&decisions).rows), (Right, 40));
    }
}

/// The batches of `side`; before each of them other tasks run for a while.
fn late(side: &Side) -> Arc<dyn ExecutionPlan> {
    let partitions = side.partitions.iter().map(|batches| {
        let batches = batches.clone();
        partition(&side.schema, move || {
            let batches = going_on(batches.clone(), Then::End);
            let late = batches.then(|batch| async {
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
                batch
            });
            late.boxed()
        })
    });
    plan(partitions.collect(), false)
}

#[test]
fn rows_decide_and_not_the_time_that_they_take() {
    for at in PLACES {
        for (left, right, build) in [(40, 200, Left), (200, 40, Right), (40, 40, Left)] {
            let case = open(side(3, left), side(4, right), at);
            for (is_late_left, is_late_right) in [(true, false), (false, true), (true, true)] {
                let input = |side: &Side, is_late| match is_late {
                    true => late(side),
                    false => side.exec(),
                };
                let (left, right) = (&case.build, &case.probe);
                let stock = case.stock_of(input(left, is_late_left), input(right, is_late_right));
                let found = outcome(&case.put_on_device(stock), case.context()).unwrap();
                assert_eq!(found.rows, expected(&case), "{at:?} {case}");
                assert_decision(&found, (build, 40), at, &format!("{at:?} {case}"));
            }
        }
    }
}

// ---------------------------------------------------------------- errors

/// The left side's error, and the right one's.
const LEFT: Then = Then::Error("the left side fails");
const RIGHT: Then = Then::Error("the right side fails");

/// Returns the rows of all partitions of `join`, or the error of the first one that fails.
fn ends(join: &Arc<HortonJoinExec>, case: &Case) -> Result<usize> {
    outcome(join, case.context()).map(|found| found.rows.len())
}

fn assert_fails(join: &Arc<HortonJoinExec>, case: &Case, then: Then, about: &str) {
    let Then::Error(text) = then else {
        panic!("{then:?} is no error");
    };
    let error = ends(join, case).unwrap_err().to_string();
    assert!(error.contains(text), "{about}: {error}");
}

#[test]
fn a_left_side_that_fails_is_the_error_of_every_join_type() {
    for at in PLACES {
        for join_type in JOIN_TYPES {
            // In its first read, in a later one, and after the other side was built.
            for (left, right) in [(10, 5), (10, 200), (100, 200), (100, 5)] {
                let mut case = open(side(5, left), side(6, right), at);
                case.join_type = join_type;
                let join = join_of(&case, (&case.build, &[LEFT]), (&case.probe, &[Then::End]));
                assert_fails(&join, &case, LEFT, &format!("{at:?} {case}"));
            }
        }
    }
}

#[test]
fn a_right_side_that_fails_while_the_left_one_is_read_is_met_when_probed() {
    for at in PLACES {
        for join_type in JOIN_TYPES {
            for (left, right) in [(40, 5), (200, 40), (10, 5)] {
                let mut case = open(side(7, left), side(8, right), at);
                case.join_type = join_type;
                let join = join_of(&case, (&case.build, &[Then::End]), (&case.probe, &[RIGHT]));
                let about = format!("{at:?} {case}");
                assert_fails(&join, &case, RIGHT, &about);
                let decisions = join.decisions();
                let decision = only(&decisions);
                assert_eq!((decision.build, decision.rows), (Left, left), "{about}");
            }
        }
    }
}

/// Returns whether a join of this type has no rows if the side that is built has none.
fn is_nothing_without(build: Which, join_type: JoinType) -> bool {
    match join_type {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => true,
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => build == Left,
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => build == Right,
        JoinType::Full => false,
    }
}

#[test]
fn a_side_that_fails_is_not_met_if_the_other_one_has_no_rows_and_nothing_comes_of_it() {
    for at in PLACES {
        for join_type in JOIN_TYPES {
            for (left, right, build) in [
                ((0, Then::End), (5, RIGHT), Left),
                ((100, LEFT), (0, Then::End), Right),
            ] {
                let mut case = open(side(9, left.0), side(10, right.0), at);
                case.join_type = join_type;
                let about = format!("{at:?} {case}");
                let join = join_of(&case, (&case.build, &[left.1]), (&case.probe, &[right.1]));
                match is_nothing_without(build, join_type) {
                    true => assert_eq!(ends(&join, &case).unwrap(), 0, "{about}"),
                    false => {
                        let then = if build == Left { right.1 } else { left.1 };
                        assert_fails(&join, &case, then, &about);
                    }
                }
                let decisions = join.decisions();
                assert_eq!(
                    (only(&decisions).build, only(&decisions).rows),
                    (build, 0),
                    "{about}"
                );
            }
        }
    }
}

#[test]
fn a_left_side_of_null_keys_hides_the_error_of_the_right_one_as_in_the_stock_join() {
    let nulls = Side::new(vec![("k", ints(&[None; 40])), ("v", payload(40))]);
    for at in PLACES {
        for join_type in JOIN_TYPES {
            let mut case = open(nulls.clone().in_batches_of(7), side(11, 5), at);
            case.join_type = join_type;
            let join = join_of(&case, (&case.build, &[Then::End]), (&case.probe, &[RIGHT]));
            let mut stock = case.clone();
            stock.mode = datafusion::physical_plan::joins::PartitionMode::CollectLeft;
            let stock = stock.stock_of(case.build.exec(), feed(&case.probe, &[RIGHT]));
            let stock = run(Arc::new(stock), case.context());
            assert_eq!(ends(&join, &case).is_ok(), stock.is_ok(), "{at:?} {case}");
        }
    }
}

#[test]
fn the_left_side_s_error_comes_first_if_both_fail() {
    for at in PLACES {
        for (left, right) in [(10, 5), (100, 5), (100, 100)] {
            let case = open(side(12, left), side(13, right), at);
            let join = join_of(&case, (&case.build, &[LEFT]), (&case.probe, &[RIGHT]));
            assert_fails(&join, &case, LEFT, &format!("{at:?} {case}"));
        }
    }
}

#[test]
fn a_right_side_that_is_read_first_and_fails_leaves_the_left_one_to_be_built() {
    for at in PLACES {
        for left in [0, 10, 100] {
            let case = open(side(14, left), side(15, 5), at);
            let right = GlobalLimitExec::new(feed(&case.probe, &[RIGHT]), 0, Some(100));
            let stock = case.stock_of(case.build.exec(), Arc::new(right));
            let join = case.put_on_device(stock);
            let about = format!("{at:?} {case}");
            match left {
                0 => assert_eq!(ends(&join, &case).unwrap(), 0, "{about}"),
                _ => assert_fails(&join, &case, RIGHT, &about),
            }
            let decisions = join.decisions();
            let decision = only(&decisions);
            assert_eq!((decision.build, decision.rows), (Left, left), "{about}");
        }
    }
}

#[test]
fn a_left_partition_that_fails_does_not_wait_for_one_that_never_ends() {
    // More rows than a read has, and fewer.
    for rows in [20, 10] {
        for at in PLACES {
            let left = side(16, rows).in_partitions(2, |row| row).in_batches_of(3);
            let case = open(left, side(17, 200), at);
            let join = join_of(
                &case,
                (&case.build, &[Then::Wait, LEFT]),
                (&case.probe, &[Then::End]),
            );
            assert_fails(&join, &case, LEFT, &format!("{at:?}, {rows} rows"));
        }
    }
}

#[test]
fn every_partition_of_a_build_that_fails_has_its_error() {
    for at in At::ALL {
        let left = in_parts(side(18, 10), 2);
        let case = open(left, in_parts(side(19, 200), 3), at);
        let join = join_of(
            &case,
            (&case.build, &[Then::End, LEFT]),
            (&case.probe, &[Then::End; 3]),
        );
        let (pool, context) = pooled(at, PLENTY);
        let errors = block_on(async move {
            let streams = (0..3).map(|p| join.execute(p, Arc::clone(&context)).unwrap());
            let all = streams.map(|stream| stream.try_collect::<Vec<_>>());
            futures::future::join_all(all).await
        });
        assert_eq!(errors.len(), 3);
        for error in errors {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("the left side fails"), "{at:?}: {error}");
        }
        given_back(&pool, "after an error");
    }
}
