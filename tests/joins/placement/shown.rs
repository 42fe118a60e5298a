//! The text that EXPLAIN shows of a decision, before and after; and the plan above and below such a
//! join.

use std::sync::Arc;

use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::BoundedWindowAggExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, HortonConfig};

use super::plans::*;
use super::session::*;
use horton_test_support::joins::*;

/// Left is `big`, right is `small`, which ends first.
const QUERY: &str = "SELECT big.v, small.v FROM big JOIN small ON big.k = small.k";

/// The answer to `text`, a line per row.
fn answer(sessions: &Sessions, text_of: &str) -> String {
    side_by_side();
    text(&sql(&sessions.horton, text_of).unwrap()).join("\n")
}

fn explained(horton: HortonConfig, query: &str) -> String {
    answer(
        &Sessions::new(&config(), horton),
        &format!("EXPLAIN {query}"),
    )
}

fn analyzed(horton: HortonConfig, query: &str) -> String {
    let sessions = Sessions::new(&config(), horton);
    answer(&sessions, &format!("EXPLAIN ANALYZE {query}"))
}

fn assert_says(text: &str, says: &str) {
    assert!(text.contains(says), "no {says} in\n{text}");
}

#[test]
fn explain_shows_by_which_rules_a_join_will_be_placed() {
    let device = asked();
    let open = "build=the smaller side, left read first";
    let of = |config: HortonConfig, query: &str| explained(config, query);
    let (auto, not_in) = (
        horton(),
        "SELECT v FROM big WHERE k NOT IN (SELECT k FROM small)",
    );
    let says = format!("horton=[{open}, device='{device}' from 1 rows]");
    assert_says(&of(auto.clone(), QUERY), &says);
    let says = format!("horton=[build=left, device='{device}' from 1 rows]");
    assert_says(&of(auto.clone(), not_in), &says);

    let always = HortonConfig {
        enabled: Enabled::Always,
        ..auto.clone()
    };
    let says = format!("horton=[{open}, device='{device}' from any rows]");
    assert_says(&of(always, QUERY), &says);
    let default = HortonConfig {
        min_build_rows: 0,
        ..auto.clone()
    };
    let says = format!("horton=[{open}, device='{device}' from the device's default of rows]");
    assert_says(&of(default, QUERY), &says);
    let never = HortonConfig {
        enabled: Enabled::Never,
        ..auto
    };
    assert!(!of(never, QUERY).contains("orton"));
}

#[test]
fn explain_as_a_tree_shows_the_rules_too() {
    let tree = explained(horton(), &format!("FORMAT TREE {QUERY}"));
    assert_says(&tree, "HortonJoinExec");
    assert_says(&tree, "horton:");
}

#[test]
fn explain_analyze_shows_the_side_its_rows_and_the_device() {
    let device = device().info().name.clone();
    let text = analyzed(horton(), QUERY);
    assert_says(
        &text,
        &format!("horton=[build=right, 40 rows, on {device}]"),
    );
    assert_says(&text, "build_input_rows=40");
    assert_says(&text, "kernel_launches=");
    let other = "SELECT big.v, small.v FROM small JOIN big ON big.k = small.k";
    let text = analyzed(horton(), other);
    assert_says(&text, &format!("horton=[build=left, 40 rows, on {device}]"));
}

#[test]
fn explain_analyze_shows_why_a_join_ran_on_the_host_and_what_it_did_there() {
    let few = HortonConfig {
        min_build_rows: 41,
        ..horton()
    };
    let text = analyzed(few, QUERY);
    assert_says(
        &text,
        "horton=[build=right, 40 rows, on the host: fewer than horton.min_build_rows = 41]",
    );
    assert_says(&text, "build_input_rows=40");
    assert_says(&text, "build_mem_used=");
    assert!(!text.contains("kernel_launches="), "{text}");
    let rows = Sessions::new(&config(), horton())
        .same_rows(QUERY)
        .rows
        .len();
    let line = text.lines().find(|line| line.contains("HortonJoinExec"));
    assert_says(&shown_rows(line.unwrap()), &rows.to_string());
}

/// The value of `output_rows` in a line of EXPLAIN ANALYZE, without its unit.
fn shown_rows(line: &str) -> String {
    let from = line.find("output_rows=").unwrap() + "output_rows=".len();
    let value = line[from..].split(',').next().unwrap();
    value.trim_end_matches(']').to_owned()
}

// ---------------------------------------------------------------- the plan around it

/// The nodes from the top of `plan` to its first join.
fn above(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut nodes = Vec::new();
    let mut node = Arc::clone(plan);
    while HortonJoinExec::downcast(node.as_ref()).is_none() {
        let below = node.children().first().copied().cloned();
        nodes.push(std::mem::replace(&mut node, below.expect("a join")));
    }
    nodes
}

/// Returns whether some node above the join of `plan` repartitions by keys.
fn is_repartitioned(plan: &Arc<dyn ExecutionPlan>) -> bool {
    above(plan).iter().any(|node| {
        let repartition = node.downcast_ref::<RepartitionExec>();
        repartition.is_some_and(|node| matches!(node.partitioning(), Partitioning::Hash(..)))
    })
}

fn has<T: ExecutionPlan>(plan: &Arc<dyn ExecutionPlan>) -> bool {
    above(plan).iter().any(|node| node.is::<T>())
}

/// Hash repartitions below the joins of `plan`.
fn below_joins(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let joins = nodes::<HortonJoinExec>(plan).into_iter();
    let below = joins.flat_map(|join| nodes::<RepartitionExec>(&join));
    let by_keys = below.filter(|node| {
        let node = node.downcast_ref::<RepartitionExec>();
        node.is_some_and(|node| matches!(node.partitioning(), Partitioning::Hash(..)))
    });
    by_keys.count()
}

/// Both ways round, at every place.
fn each_way(query: &str, check: impl Fn(&Ran)) {
    for at in At::ALL {
        let horton = HortonConfig {
            min_build_rows: at.min_build_rows(),
            ..horton()
        };
        let mut config = at.config();
        config.options_mut().optimizer.join_reordering = false;
        let sessions = Sessions::new(&config, horton);
        for (from, build) in [
            ("big JOIN small ON big.k = small.k", Right),
            ("small JOIN big ON big.k = small.k", Left),
        ] {
            let ran = sessions.same_rows(&query.replace("FROM both", &format!("FROM {from}")));
            let decisions = decisions(&ran.plan);
            assert_eq!(only(&decisions).build, build, "{query}");
            assert_place(only(&decisions), at, query);
            check(&ran);
        }
    }
}

#[test]
fn an_aggregate_above_an_open_join_gets_its_repartition() {
    each_way(
        "SELECT big.k, count(*), sum(small.v) FROM both GROUP BY big.k",
        |ran| {
            let plan = shown(&ran.plan);
            assert!(has::<AggregateExec>(&ran.plan), "{plan}");
            assert!(is_repartitioned(&ran.plan), "{plan}");
            assert_eq!(below_joins(&ran.plan), 0, "{plan}");
        },
    );
}

#[test]
fn a_window_above_an_open_join_gets_its_repartition_and_sort() {
    let query = "SELECT big.k, big.v, small.v, \
                 rank() OVER (PARTITION BY big.k ORDER BY big.v, small.v) FROM both";
    each_way(query, |ran| {
        let plan = shown(&ran.plan);
        assert!(has::<BoundedWindowAggExec>(&ran.plan), "{plan}");
        assert!(
            is_repartitioned(&ran.plan) && has::<SortExec>(&ran.plan),
            "{plan}"
        );
        assert_eq!(below_joins(&ran.plan), 0, "{plan}");
    });
}

#[test]
fn an_order_above_an_open_join_gets_its_sort() {
    let query = "SELECT big.k, big.v, small.v FROM both ORDER BY big.v, small.v, big.k";
    each_way(query, |ran| {
        assert!(has::<SortExec>(&ran.plan), "{}", shown(&ran.plan))
    });
    // The rows come in that order, too.
    let sessions = Sessions::new(&config(), horton());
    for from in ["FROM big JOIN small", "FROM small JOIN big"] {
        let query = query.replace("FROM both", &format!("{from} ON big.k = small.k"));
        let rows = |session| text(&sql(session, &query).unwrap());
        assert_eq!(rows(&sessions.horton), rows(&sessions.stock));
    }
}

#[test]
fn an_order_that_the_left_side_has_is_not_promised_by_the_join() {
    let query = "SELECT b.k, b.v FROM (SELECT * FROM big ORDER BY v LIMIT 2000) b \
                 JOIN small ON b.k = small.k ORDER BY b.v, b.k";
    let sessions = Sessions::new(&config(), horton());
    let ran = sessions.same_rows(query);
    assert!(has::<SortExec>(&ran.plan), "{}", shown(&ran.plan));
    let rows = |session| text(&sql(session, query).unwrap());
    assert_eq!(rows(&sessions.horton), rows(&sessions.stock));
}

#[test]
fn joins_of_joins_decide_each_for_itself() {
    let query = "SELECT b.v, small.v, c.v FROM big b JOIN small ON b.k = small.k \
                 JOIN (SELECT * FROM big WHERE v < 20) c ON c.k = b.k";
    for at in At::ALL {
        let horton = HortonConfig {
            min_build_rows: at.min_build_rows(),
            ..horton()
        };
        let mut config = at.config();
        config.options_mut().optimizer.join_reordering = false;
        let ran = Sessions::new(&config, horton).same_rows(query);
        let decisions = decisions(&ran.plan);
        assert_eq!(decisions.len(), 2, "{}", shown(&ran.plan));
        assert_eq!((decisions[1].build, decisions[1].rows), (Right, 40));
        assert_eq!(decisions[0].build, Right, "{}", shown(&ran.plan));
        assert!(
            decisions
                .iter()
                .all(|d| host_reason(d).is_none() == (at == At::Device))
        );
    }
}
