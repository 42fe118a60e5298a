//! Which side is read first above a tree of joins, and what is read ahead.
//!
//! ```text
//!  (a ⋈ b) ⋈ c     a tree and a scan cost their rows, and five times them without a filter;
//!                  the tree does not if neither has one
//! ```

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use futures::StreamExt;
use horton_join::config::{HortonConfig, Knobs};
use horton_test_support::internals::DynamicFilterExec;

use super::plans::*;
use super::session::*;
use horton_test_support::joins::*;
use horton_test_support::plans::metric;

/// A join of equal tables without filters.
const TREE: &str = "(SELECT k ak, v av FROM big) a JOIN (SELECT k bk, v bv FROM big) b ON av = bv";

fn sessions(config: &SessionConfig) -> Sessions {
    let knobs = Knobs::default();
    Sessions::new(config, HortonConfig { knobs, ..horton() })
}

/// Returns the line of the top join of `plan`.
fn top(plan: &Arc<dyn ExecutionPlan>) -> String {
    let plan = shown(plan);
    let line = plan.lines().find(|line| line.contains("HortonJoinExec"));
    line.unwrap_or_else(|| panic!("no join in {plan}"))
        .to_owned()
}

/// Checks which side of the top join of `text` is read first, and its rows. Returns what ran.
fn assert_top(sessions: &Sessions, text: &str, first: Which) -> Ran {
    let line = top(&plan(&sessions.horton, text));
    assert!(
        line.contains(&format!("{first} read first")),
        "{text}\n{line}"
    );
    sessions.same_rows(text)
}

/// Returns the rows that all scans of `plan` gave.
fn rows_read(plan: &Arc<dyn ExecutionPlan>) -> usize {
    metric::<DynamicFilterExec>(plan, "input_rows")
}

#[test]
fn a_filtered_scan_is_read_before_a_tree_of_more_rows() {
    let sessions = sessions(&config());
    for (scan, filter, first) in [
        ("(SELECT * FROM big WHERE v < 5)", "", Right),
        ("small", "", Right),
        // Of two sides without a filter the right one must be much smaller.
        ("big", "", Left),
        ("(SELECT * FROM big WHERE v < 5)", "WHERE ak < 300", Right),
        ("small", "WHERE ak < 300", Right),
        // Without a filter it spares little.
        ("big", "WHERE ak < 300", Left),
        // It is no scan.
        (
            "(SELECT * FROM small UNION ALL SELECT * FROM small)",
            "",
            Left,
        ),
    ] {
        let text = format!("SELECT av, c.k FROM {TREE} JOIN {scan} c ON bv = c.v {filter}");
        assert_top(&sessions, &text, first);
    }
}

#[test]
fn its_keys_are_known_before_the_tree_is_read() {
    let sessions = sessions(&config());
    let text = format!("SELECT av FROM {TREE} JOIN big c ON bv = c.v WHERE c.k < 3");
    let ran = assert_top(&sessions, &text, Right);
    let decisions = decisions(&ran.plan);
    assert_eq!(decisions[0].build, Right);
    // No row of `a` and `b` that `c` excludes was joined.
    let passed = metric::<DynamicFilterExec>(&ran.plan, "output_rows");
    assert!(
        passed <= 3000 + 2 * decisions[0].rows,
        "{passed}: {decisions:?}"
    );
}

#[test]
fn a_tree_of_few_rows_is_read_before_a_scan() {
    let sessions = sessions(&config());
    let tree = "(SELECT s.v FROM small s JOIN small t ON s.v = t.v)";
    for scan in ["big", "(SELECT * FROM big WHERE v >= 0)"] {
        let text = format!("SELECT a.k FROM {scan} a JOIN {tree} b ON a.v = b.v");
        assert_top(&sessions, &text, Right);
        let text = format!("SELECT a.k FROM {tree} b JOIN {scan} a ON a.v = b.v");
        assert_top(&sessions, &text, Left);
    }
}

#[test]
fn a_scan_is_not_read_if_the_tree_is_empty() {
    for partitions in [1, 3] {
        let config = config().with_target_partitions(partitions);
        let sessions = sessions(&config);
        let text = "SELECT count(*) FROM big a JOIN small b ON a.v = b.v \
                    JOIN big c ON a.v = c.v WHERE b.v < -1 AND c.v >= 0";
        let ran = assert_top(&sessions, text, Right);
        let decisions = decisions(&ran.plan);
        assert_eq!((decisions[0].build, decisions[0].rows), (Left, 0));
        assert_eq!(rows_read(&ran.plan), 40, "{partitions}");
    }
}

/// The tree has no rows, which nothing but reading it shows. DataFusion's join reads no more then.
#[test]
fn a_scan_that_can_fail_is_not_read_before_a_tree() {
    let sessions = sessions(&config());
    let tree = "(SELECT av FROM (SELECT v av FROM big) a \
                JOIN (SELECT v + 1000000 bv FROM big) b ON av = bv) t";
    let fails = "(SELECT v FROM small WHERE CAST(concat('x', v) AS BIGINT) > 0)";
    for text in [
        format!("SELECT count(*) FROM {tree} JOIN {fails} c ON av = c.v"),
        format!("SELECT count(*) FROM {tree} WHERE av IN (SELECT v FROM {fails} c)"),
    ] {
        assert_top(&sessions, &text, Left);
    }
    let text = format!("SELECT count(*) FROM {tree} JOIN small c ON av = c.v WHERE c.v > 0");
    assert_top(&sessions, &text, Right);
}

/// The tree of `b` and `d` is read before `a`, and so before `c` is opened.
#[test]
fn a_scan_is_not_read_if_a_join_that_began_early_reads_nothing() {
    for partitions in [1, 3] {
        let config = config().with_target_partitions(partitions);
        let sessions = sessions(&config);
        let tree = "(SELECT s.v FROM small s JOIN small t ON s.v = t.v WHERE s.v < -1)";
        let text = format!(
            "SELECT count(*) FROM big a JOIN {tree} b ON a.v = b.v \
             JOIN big c ON a.k = c.k WHERE c.v >= 0"
        );
        let ran = assert_top(&sessions, &text, Right);
        let decided = decisions(&ran.plan);
        assert_eq!((decided[0].build, decided[0].rows), (Left, 0));
        assert!(rows_read(&ran.plan) <= 80, "{partitions}");
    }
}

#[test]
fn rows_that_are_read_ahead_are_joined_once() {
    for partitions in [1, 3] {
        let config = config().with_target_partitions(partitions);
        let sessions = sessions(&config);
        for filter in ["b.v = 7", "b.v < 20", "b.v >= 0"] {
            let text = format!(
                "SELECT a.k, b.v, c.k FROM big a JOIN small b ON a.k = b.k \
                 JOIN big c ON a.v = c.v WHERE {filter} AND c.v < 2900"
            );
            let ran = assert_top(&sessions, &text, Right);
            assert!(rows_read(&ran.plan) > 40);
        }
    }
}

#[test]
fn an_empty_side_that_others_need_not_match_does_not_make_a_tree_empty() {
    let sessions = sessions(&config());
    let none = "(SELECT * FROM small WHERE v < -1)";
    for join in ["LEFT JOIN", "LEFT ANTI JOIN"] {
        let text = format!(
            "SELECT a.v, c.k FROM big a {join} {none} b ON a.v = b.v \
             JOIN big c ON a.v = c.v WHERE c.v < 9"
        );
        let ran = assert_top(&sessions, &text, Right);
        assert_eq!(decisions(&ran.plan)[0].build, Right, "{join}");
    }
}

#[test]
fn a_join_above_that_is_dropped_gives_back_what_was_read_ahead() {
    let sessions = sessions(&config());
    let text = "SELECT a.k, b.v, c.k FROM big a JOIN small b ON a.k = b.k \
                JOIN big c ON a.v = c.v WHERE b.v >= 0 AND c.v < 2900";
    let expected = query(&sessions.stock, text).rows;
    for polls in [0, 1] {
        let plan = plan(&sessions.horton, text);
        let context = sessions.horton.task_ctx();
        let (first, of_first) = (Arc::clone(&plan), Arc::clone(&context));
        block_on(async move {
            let mut stream = first.execute(0, of_first).unwrap();
            for _ in 0..polls {
                stream.next().await.unwrap().unwrap();
            }
        });
        drop(plan);
        let pool = &context.runtime_env().memory_pool;
        for _ in 0..1000 {
            if pool.reserved() == 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(pool.reserved(), 0, "{polls}");
        assert_eq!(query(&sessions.horton, text).rows, expected);
    }
}
