//! The right side is read first where the plan shows why it has few rows.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, displayable,
};
use horton_join::config::{HortonConfig, Knobs};

use super::plans::*;
use super::session::*;
use horton_test_support::joins::*;

/// Reads so long that the side that is read first ends in its first one.
fn long_reads() -> HortonConfig {
    HortonConfig {
        knobs: Knobs::default(),
        ..horton()
    }
}

/// Groups of many rows.
const MANY: &str = "(SELECT k FROM big GROUP BY k HAVING count(*) > 9) many";

/// Checks which side of the only join of `text` is read first, and built.
fn assert_first(sessions: &Sessions, text: &str, first: Which) {
    let planned = shown(&plan(&sessions.horton, text));
    let says = format!("build=the smaller side, {first} read first");
    assert!(planned.contains(&says), "{text}\n{planned}");
    let ran = sessions.same_rows(text);
    assert_eq!(only(&decisions(&ran.plan)).build, first, "{text}");
}

#[test]
fn a_filter_over_an_aggregate_on_the_right_is_read_first() {
    let sessions = Sessions::new(&config(), long_reads());
    // As in TPC-H's query 18, and the same as a join.
    let having = "SELECT k FROM big GROUP BY k HAVING count(*) > 9";
    for text in [
        format!("SELECT v FROM big WHERE k IN ({having})"),
        format!("SELECT big.v FROM big JOIN {MANY} ON big.k = many.k"),
        format!("SELECT big.v FROM big RIGHT JOIN {MANY} ON big.k = many.k"),
        format!("SELECT big.v FROM big JOIN (SELECT k + 1 j FROM {MANY}) m ON big.k = m.j"),
    ] {
        assert_first(&sessions, &text, Right);
    }
}

#[test]
fn a_limit_on_the_right_is_read_first() {
    let sessions = Sessions::new(&config(), long_reads());
    for text in [
        // Limits that leave all rows: which ones others leave is left open.
        "SELECT big.v, few.v FROM big JOIN (SELECT * FROM small LIMIT 99) few ON big.k = few.k",
        "SELECT big.v, few.v FROM big JOIN (SELECT * FROM big LIMIT 9999) few ON big.k = few.k",
        "SELECT v FROM big WHERE k IN (SELECT k FROM small LIMIT 99)",
    ] {
        assert_first(&sessions, text, Right);
    }
}

#[test]
fn the_left_side_is_read_first_if_it_has_a_filter_of_its_own() {
    let sessions = Sessions::new(&config(), long_reads());
    for left in [
        "SELECT * FROM big WHERE v % 3 > 0",
        "SELECT * FROM big ORDER BY v LIMIT 99",
        "SELECT k FROM big GROUP BY k HAVING count(*) > 2",
    ] {
        let text = format!("SELECT b.k FROM ({left}) b JOIN {MANY} ON b.k = many.k");
        assert_first(&sessions, &text, Left);
    }
}

#[test]
fn the_left_side_is_read_first_if_the_plan_shows_no_reason() {
    let sessions = Sessions::new(&config(), long_reads());
    for text in [
        "SELECT big.v FROM big JOIN small ON big.k = small.k".to_owned(),
        // An aggregate without a filter, and a filter without an aggregate.
        "SELECT big.v FROM big JOIN (SELECT DISTINCT k FROM big) d ON big.k = d.k".to_owned(),
        "SELECT big.v FROM big JOIN (SELECT k FROM big WHERE v % 2 > 0) f ON big.k = f.k"
            .to_owned(),
        // The keys of the right side cannot filter the left one.
        format!("SELECT big.v, many.k FROM big LEFT JOIN {MANY} ON big.k = many.k"),
    ] {
        assert_first(&sessions, &text, Left);
    }
}

#[test]
fn the_right_side_is_read_first_only_where_its_keys_filter_the_left_one() {
    for join_type in JOIN_TYPES {
        let mut case = open(side(1, 10), side(2, 10), At::Host);
        case.join_type = join_type;
        let right = Arc::new(GlobalLimitExec::new(case.probe.exec(), 0, Some(10)));
        let join = case.put_on_device(case.stock_of(case.build.exec(), right));
        let first = match join_type {
            JoinType::Left | JoinType::Full | JoinType::LeftAnti | JoinType::LeftMark => Left,
            _ => Right,
        };
        let line = displayable(join.as_ref()).one_line().to_string();
        let says = format!("build=the smaller side, {first} read first");
        assert!(line.contains(&says), "{join_type}: {line}");
        // Both end in their first read.
        let found = outcome(&join, case.context()).unwrap();
        assert_eq!(found.rows, expected(&case), "{join_type}");
        assert_decision(&found, (first, 10), At::Host, &join_type.to_string());
    }
}

#[test]
fn a_side_that_is_read_first_and_is_large_after_all_is_not_built() {
    for at in [At::Device, At::Host] {
        for (left, right, build) in [(40, 200, Left), (200, 40, Right), (40, 40, Right)] {
            let case = open(side(3, left), side(4, right), at);
            let limit = GlobalLimitExec::new(case.probe.exec(), 0, Some(right));
            let stock = case.stock_of(case.build.exec(), Arc::new(limit));
            let join = case.put_on_device(stock);
            let line = displayable(join.as_ref()).one_line().to_string();
            assert!(line.contains("right read first"), "{line}");
            let found = outcome(&join, case.context()).unwrap();
            assert_eq!(found.rows, expected(&case));
            assert_decision(&found, (build, 40), at, &line);
        }
    }
}

fn with_children(
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Arc<dyn ExecutionPlan> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    plan.replace_children(children, options).unwrap()
}

#[test]
fn a_plan_with_new_children_chooses_again_which_side_is_read_first() {
    let case = open(side(5, 10), side(6, 10), At::Host);
    let limited = |side: &Side| -> Arc<dyn ExecutionPlan> {
        Arc::new(GlobalLimitExec::new(side.exec(), 0, Some(10)))
    };
    let join = case.on_device() as Arc<dyn ExecutionPlan>;
    let children = vec![case.build.exec(), limited(&case.probe)];
    let right = with_children(join, children);
    assert!(shown(&right).contains("right read first"));
    let children = vec![limited(&case.build), limited(&case.probe)];
    let left = with_children(right, children);
    assert!(shown(&left).contains("left read first"));
}
