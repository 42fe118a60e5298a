//! Errors of inputs and expressions reach the user, and nothing hangs on them.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{BinaryExpr, lit};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use futures::{StreamExt, TryStreamExt};

use crate::feed::{Then, feed};
use horton_test_support::joins::*;

fn sides(parts: usize) -> (Side, Side) {
    let (left, right) = (repeating_keys(41, 100, 40), repeating_keys(42, 300, 40));
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(100))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(300))]);
    (build, probe.in_partitions(parts, |row| row))
}

#[test]
fn a_build_side_error_reaches_every_probe_partition() {
    let (build, probe) = sides(4);
    for join_type in JOIN_TYPES {
        let case = Case {
            join_type,
            ..Case::new(build.clone(), probe.clone())
        };
        let broken = feed(&build, &[Then::Error("the build side broke")]);
        let plan = case.put_on_device(case.stock_of(broken, probe.exec()));
        let context = case.context();
        let errors = block_on(async move {
            let streams = (0..4).map(|p| plan.execute(p, Arc::clone(&context)).unwrap());
            let all = streams.map(|stream| stream.try_collect::<Vec<_>>());
            futures::future::join_all(all).await
        });
        for result in errors {
            let error = result.unwrap_err().to_string();
            assert!(error.contains("the build side broke"), "{error}");
        }
    }
}

#[test]
fn a_probe_side_error_ends_its_stream_and_reaches_the_user() {
    let (build, probe) = sides(2);
    for join_type in JOIN_TYPES {
        for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
            let mut build = build.clone();
            if mode == PartitionMode::Partitioned {
                build = build.in_partitions(2, |row| row);
            }
            let case = Case {
                join_type,
                mode,
                ..Case::new(build, probe.clone())
            };
            let broken = feed(&probe, &[Then::Error("the probe side broke"), Then::End]);
            let plan = case.put_on_device(case.stock_of(case.build.exec(), broken));
            let context = case.context();
            let results = block_on(async move {
                let mut stream = plan.execute(0, Arc::clone(&context)).unwrap();
                let mut results = Vec::new();
                while let Some(batch) = stream.next().await {
                    results.push(batch.map(|batch| batch.num_rows()));
                }
                let other = plan.execute(1, context).unwrap();
                (results, other.try_collect::<Vec<_>>().await)
            });
            let (results, other) = results;
            let error = results.last().unwrap().as_ref().unwrap_err().to_string();
            assert!(error.contains("the probe side broke"), "{error}");
            assert!(results.iter().rev().skip(1).all(Result::is_ok));
            other.unwrap();
        }
    }
}

/// `1 / (column - column)`, which fails for every row that is not NULL.
fn failing(column: PhysicalExprRef) -> PhysicalExprRef {
    let zero = BinaryExpr::new(Arc::clone(&column), Operator::Minus, column);
    Arc::new(BinaryExpr::new(lit(1i64), Operator::Divide, Arc::new(zero)))
}

#[test]
fn a_failing_key_expression_is_an_error() {
    let (build, probe) = sides(1);
    let on = |fails: bool, side: &Side| match fails {
        true => failing(side.column(0)),
        false => side.column(0),
    };
    for (build_fails, probe_fails) in [(true, false), (false, true)] {
        let mut case = Case::new(build.clone(), probe.clone());
        case.on = vec![(on(build_fails, &build), on(probe_fails, &probe))];
        let error = run(case.on_device(), case.context()).err().unwrap();
        assert!(error.to_string().contains("Divide by zero"), "{error}");
    }
}

#[test]
fn a_failing_residual_filter_is_an_error() {
    use datafusion::common::JoinSide;
    use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
    let (build, probe) = sides(1);
    let mut case = Case::new(build, probe);
    let quotient = failing(case.build.column(0));
    let positive = BinaryExpr::new(quotient, Operator::Gt, lit(0i64));
    let column = ColumnIndex {
        index: 0,
        side: JoinSide::Left,
    };
    let schema = case.build.schema.project(&[0]).unwrap();
    let filter = JoinFilter::new(Arc::new(positive), vec![column], Arc::new(schema));
    case.filter = Some(filter);
    for join_type in JOIN_TYPES {
        case.join_type = join_type;
        let error = run(case.on_device(), case.context()).err().unwrap();
        assert!(error.to_string().contains("Divide by zero"), "{error}");
    }
}

#[test]
fn wrong_partition_counts_are_errors() {
    let (build, probe) = sides(3);
    let two = build.in_partitions(2, |row| row);
    for (mode, text) in [
        (PartitionMode::CollectLeft, "coalesce"),
        (PartitionMode::Partitioned, "repartition"),
    ] {
        let case = Case {
            mode,
            ..Case::new(two.clone(), probe.clone())
        };
        let error = run(case.on_device(), case.context()).err().unwrap();
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn an_endless_probe_side_yields_rows_before_its_chunk_is_full() {
    let left: Vec<Option<i64>> = (0..100).map(Some).collect();
    let build = Side::new(vec![("k", ints(&left))]);
    let probe = Side::new(vec![("k", ints(&left))]);
    let case = Case {
        batch_size: 50,
        ..Case::new(build.clone(), probe.clone())
    };
    let plan = case.put_on_device(case.stock_of(build.exec(), feed(&probe, &[Then::Wait])));
    let context = case.context();
    let first = block_on(async move { plan.execute(0, context)?.try_next().await });
    assert!(first.unwrap().unwrap().num_rows() >= 50);
}

#[test]
fn a_stream_dropped_while_its_build_side_waits_lets_go_of_everything() {
    let (build, probe) = sides(2);
    let case = Case {
        join_type: JoinType::Inner,
        ..Case::new(build.clone(), probe.clone())
    };
    let waiting = feed(&build, &[Then::Wait]);
    let plan = case.put_on_device(case.stock_of(waiting, probe.exec()));
    let context = case.context();
    let pool = Arc::clone(context.memory_pool());
    block_on(async move {
        let mut streams: Vec<_> = (0..2)
            .map(|p| plan.execute(p, Arc::clone(&context)).unwrap())
            .collect();
        for stream in &mut streams {
            assert!(futures::poll!(stream.next()).is_pending());
        }
    });
    assert_eq!(pool.reserved(), 0);
}

#[test]
fn a_probe_stream_goes_on_when_the_one_that_started_the_build_is_dropped() {
    let (build, probe) = sides(2);
    let case = Case::new(build.in_batches_of(10), probe);
    side_by_side();
    let expected = run(case.on_device(), case.context()).unwrap().rows();
    for polls in 0..6 {
        let (plan, context) = (case.on_device(), case.context());
        let batches = block_on(async move {
            let mut first = plan.execute(0, Arc::clone(&context)).unwrap();
            let mut second = plan.execute(1, context).unwrap();
            for _ in 0..polls {
                let _ = futures::poll!(first.next());
                let ready = futures::poll!(second.next()).is_ready();
                assert!(!ready || polls > 1);
                if ready {
                    return None;
                }
            }
            drop(first);
            Some(second.try_collect::<Vec<_>>().await.unwrap())
        });
        if let Some(batches) = batches {
            assert_eq!(text(&batches), expected[1]);
        }
    }
}

#[test]
fn a_stream_that_ended_stays_ended() {
    let (build, probe) = sides(1);
    for (build, fails) in [
        (build.exec(), false),
        (feed(&build, &[Then::Error("broken")]), true),
    ] {
        let case = Case::new(sides(1).0, probe.clone());
        let plan = case.put_on_device(case.stock_of(build, probe.exec()));
        let context = case.context();
        block_on(async move {
            let mut stream = plan.execute(0, context).unwrap();
            let mut failed = false;
            while let Some(batch) = stream.next().await {
                failed |= batch.is_err();
            }
            assert_eq!(failed, fails);
            for _ in 0..3 {
                assert!(stream.next().await.is_none());
            }
        });
    }
}
