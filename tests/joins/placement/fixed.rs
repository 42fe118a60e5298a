//! Joins whose left side is built, however large it is.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, RunArray};
use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::limit::GlobalLimitExec;
use horton_join::HortonJoinExec;
use horton_join::config::HortonConfig;
use horton_test_support::internals::can_swap;
use horton_test_support::internals::{ReplaceJoins, ReplaceSwappableJoins};

use super::plans::*;
use crate::feed::{Then, going_on, partition, plan};
use horton_test_support::joins::*;

/// `join` as both rules leave it in a session with options `horton`.
fn ruled(join: HashJoinExec, horton: &HortonConfig) -> Arc<HortonJoinExec> {
    let mut options = ConfigOptions::default();
    options.extensions.insert(horton.clone());
    let rules: [&dyn PhysicalOptimizerRule; 2] = [&ReplaceSwappableJoins, &ReplaceJoins];
    let join = Arc::new(join) as Arc<dyn ExecutionPlan>;
    let join = rules
        .into_iter()
        .try_fold(join, |plan, rule| rule.optimize(plan, &options))
        .unwrap();
    let join: Arc<dyn std::any::Any + Send + Sync> = join;
    join.downcast().expect("a join is taken")
}

/// A join that DataFusion planned as CollectLeft, of a left side that is larger.
fn planned(at: At) -> Case {
    let mut case = open(side(1, 200), side(2, 20), at);
    case.mode = PartitionMode::CollectLeft;
    case
}

/// Runs `join`, made of `case`; checks that its left side of 200 rows was built.
fn assert_left_is_built(case: &Case, join: &Arc<HortonJoinExec>, at: At) {
    let found = outcome(join, case.context()).unwrap();
    assert_eq!(found.rows, expected(case), "{at:?} {case}");
    assert_decision(&found, (Left, 200), at, &format!("{at:?} {case}"));
}

#[test]
fn a_join_that_nothing_fixes_is_opened_by_the_rules() {
    for join_type in JOIN_TYPES {
        let mut case = planned(At::Host);
        case.join_type = join_type;
        assert!(can_swap(&case.stock()), "{join_type}");
        let join = ruled(case.stock(), &case.config);
        assert_eq!(*join.stock().partition_mode(), PartitionMode::Auto);
        let found = outcome(&join, case.context()).unwrap();
        assert_eq!(found.rows, expected(&case), "{case}");
        assert_decision(&found, (Right, 20), At::Host, &case.to_string());
    }
}

#[test]
fn a_limit_in_the_join_fixes_its_sides() {
    for at in [At::Device, At::Host] {
        for join_type in [JoinType::Inner, JoinType::Left, JoinType::RightSemi] {
            let mut case = open(side(1, 200), side(2, 20), at);
            case.join_type = join_type;
            let all = expected(&case);
            case.fetch = Some(5);
            let found = outcome(&case.on_device(), case.context()).unwrap();
            assert_decision(&found, (Left, 200), at, &case.to_string());
            assert_eq!(found.rows.len(), 5, "{case}");
            assert!(found.rows.iter().all(|row| all.contains(row)), "{case}");
        }
    }
}

#[test]
fn a_limit_that_comes_later_fixes_an_open_join() {
    let case = open(side(1, 200), side(2, 20), At::Host);
    let open = case.on_device();
    let limited = open.with_fetch(Some(5)).unwrap();
    let text = datafusion::physical_plan::displayable(limited.as_ref());
    let text = text.one_line().to_string();
    assert!(text.contains("build=left,"), "{text}");
    let run = run(limited, case.context()).unwrap();
    assert_eq!(run.count(), 5);
}

#[test]
fn not_in_fixes_its_sides() {
    for at in [At::Device, At::Host] {
        let without_nulls: Vec<Option<i64>> = (0..20).map(Some).collect();
        let right = Side::new(vec![("k", ints(&without_nulls)), ("v", payload(20))]);
        for right in [right, side(2, 20)] {
            let mut case = planned(at);
            case.probe = right;
            case.join_type = JoinType::LeftAnti;
            case.null_aware = true;
            assert!(!can_swap(&case.stock()));
            let join = ruled(case.stock(), &case.config);
            assert_eq!(*join.stock().partition_mode(), PartitionMode::CollectLeft);
            assert_left_is_built(&case, &join, at);
        }
    }
}

#[test]
fn an_ordered_right_side_fixes_its_sides_and_stays_ordered() {
    let mut keys = repeating_keys(3, 20, 30);
    keys.sort_unstable();
    let right = Side::new(vec![("k", ints(&keys)), ("v", payload(20))]);
    let right = right.in_batches_of(3).sorted_by(0);
    for at in [At::Device, At::Host] {
        for join_type in [
            JoinType::Inner,
            JoinType::Right,
            JoinType::RightSemi,
            JoinType::RightAnti,
            JoinType::RightMark,
        ] {
            let mut case = planned(at);
            case.probe = right.clone();
            case.join_type = join_type;
            assert!(!can_swap(&case.stock()));
            let join = ruled(case.stock(), &case.config);
            assert!(join.properties().output_ordering().is_some(), "{case}");
            assert_eq!(join.maintains_input_order(), [false, true]);
            assert_left_is_built(&case, &join, at);
            let in_order = run(join, case.context()).unwrap().rows();
            let stock = run(Arc::new(case.stock()), case.context()).unwrap();
            assert_eq!(in_order, stock.rows(), "{case}");
        }
    }
}

#[test]
fn an_open_join_promises_no_order() {
    let mut case = open(side(1, 200), side(2, 20), At::Host);
    case.probe.sorted_by = Some(1);
    let join = case.on_device();
    assert!(join.properties().output_ordering().is_none());
    assert_eq!(join.maintains_input_order(), [false, false]);
}

/// `side` with one more column, of runs of one row.
fn with_runs(side: Side) -> Side {
    let batch = side.batch();
    let rows = batch.num_rows();
    let ends = Int32Array::from_iter_values(1..=rows as i32);
    let values = Int64Array::from_iter_values(0..rows as i64);
    let runs: ArrayRef = Arc::new(RunArray::try_new(&ends, &values).unwrap());
    let column = |at: usize| Arc::clone(batch.column(at));
    Side::new(vec![("k", column(0)), ("v", column(1)), ("r", runs)]).in_batches_of(7)
}

#[test]
fn run_end_encoded_columns_fix_its_sides() {
    for at in [At::Device, At::Host] {
        for join_type in JOIN_TYPES {
            let mut case = planned(at);
            case.join_type = join_type;
            case.probe = with_runs(case.probe);
            assert!(!can_swap(&case.stock()), "{join_type}");
            // Arrow's fault with runs would show in rows without a match if this side were built.
            let join = ruled(case.stock(), &case.config);
            assert_left_is_built(&case, &join, at);
        }
    }
}

/// The partitions of `side`, which end although they say that they are endless.
fn endless(side: &Side) -> Arc<dyn ExecutionPlan> {
    let partitions = side.partitions.iter().map(|batches| {
        let batches = batches.clone();
        partition(&side.schema, move || going_on(batches.clone(), Then::End))
    });
    plan(partitions.collect(), true)
}

#[test]
fn an_endless_side_fixes_them() {
    for at in [At::Device, At::Host] {
        let case = planned(at);
        let (left, right) = (case.build.exec(), case.probe.exec());
        for (left, right) in [
            (endless(&case.build), Arc::clone(&right)),
            (Arc::clone(&left), endless(&case.probe)),
        ] {
            let stock = case.stock_of(left, right);
            assert!(!can_swap(&stock));
            assert_left_is_built(&case, &ruled(stock, &case.config), at);
        }
    }
}

#[test]
fn joins_with_a_mode_build_what_was_planned() {
    for at in [At::Device, At::Host] {
        let collected = planned(at);
        assert_left_is_built(&collected, &collected.on_device(), at);

        let key = |side: &Side| {
            let keys = side.batch().column(0).clone();
            let keys = keys.as_any().downcast_ref::<arrow::array::Int64Array>();
            keys.unwrap().iter().collect::<Vec<_>>()
        };
        let apart = |side: Side| {
            let keys = key(&side);
            side.in_partitions(2, |row| keys[row].unwrap_or(0) as usize)
        };
        for join_type in JOIN_TYPES {
            let mut parts = planned(at);
            parts.mode = PartitionMode::Partitioned;
            parts.join_type = join_type;
            parts.build = apart(parts.build);
            parts.probe = apart(parts.probe);
            let found = outcome(&parts.on_device(), parts.context()).unwrap();
            assert_eq!(found.rows, expected(&parts), "{at:?} {parts}");
            assert_eq!(found.decisions.len(), 2, "{at:?} {parts}");
            assert!(found.decisions.iter().all(|d| d.build == Left));
            let rows: usize = found.decisions.iter().map(|d| d.rows).sum();
            assert_eq!(rows, 200, "{at:?} {parts}");
            assert_eq!(found.launches > 0, at == At::Device);
        }
    }
}

#[test]
fn the_partitions_that_differ_have_decisions_of_their_own() {
    // 150 and 50 rows are built: one partition reaches 100.
    let left: Vec<Option<i64>> = (0..200).map(Some).collect();
    let right: Vec<Option<i64>> = (0..60).map(|row| Some(row * 4)).collect();
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(200))]);
    let probe = Side::new(vec![("k", ints(&right)), ("v", payload(60))]);
    let mut case = open(build, probe, At::Device);
    case.mode = PartitionMode::Partitioned;
    case.config.min_build_rows = 100;
    case.build = case.build.in_partitions(2, |row| usize::from(row >= 150));
    case.probe = case
        .probe
        .in_partitions(2, |row| usize::from(row * 4 >= 150));
    let join = case.on_device();
    let found = outcome(&join, case.context()).unwrap();
    assert_eq!(found.rows, expected(&case));
    let rows: Vec<usize> = found.decisions.iter().map(|d| d.rows).collect();
    assert_eq!(rows, [150, 50]);
    assert!(host_reason(&found.decisions[0]).is_none());
    assert!(host_reason(&found.decisions[1]).is_some());
    assert!(found.launches > 0);
    let text = datafusion::physical_plan::displayable(join.as_ref());
    let text = text.one_line().to_string();
    assert!(
        text.contains("build=left, 200 rows, 1 of 2 on the device"),
        "{text}"
    );
}

#[test]
fn a_right_side_with_a_limit_is_not_read_first_where_sides_are_fixed() {
    let mut case = open(side(1, 200), side(2, 20), At::Host);
    case.fetch = Some(1000);
    let right = GlobalLimitExec::new(case.probe.exec(), 0, Some(20));
    let stock = case.stock_of(case.build.exec(), Arc::new(right));
    assert_left_is_built(&case, &case.put_on_device(stock), At::Host);
}
