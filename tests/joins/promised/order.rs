//! Sorts that DataFusion leaves out, above tags that are constant in each part of a UNION ALL.
//!
//! ```text
//!  1 AS tag, t1 ─┐
//!  2 AS tag, t2 ─┴ UNION ALL ─ join ─ ORDER BY tag:  no sort if streams keep their partitions
//! ```

use datafusion::execution::context::SessionContext;
use datafusion::physical_plan::sorts::sort::SortExec;
use horton_join::HortonJoinExec;
use horton_test_support::plans::{metric, nodes, sorted};
use horton_test_support::promises::{self, Promises};

use super::sessions::*;

const TAGGED: &str = "(SELECT 1 AS tag, a FROM t1 UNION ALL SELECT 2 AS tag, a FROM t2) u";

/// Registers `l` and the parts of [`TAGGED`] with so many rows.
fn fill(session: &SessionContext, l: i64, parts: i64) {
    let far = |i: i64| i * 7919 * 104_729;
    table(session, "l", &[("a", (0..l).map(far).collect())]);
    for name in ["t1", "t2"] {
        table(session, name, &[("a", (0..parts).map(far).collect())]);
    }
}

/// Checks that nodes keep what they promise.
async fn assert_kept(session: &SessionContext, sql: &str) {
    let plan = plan(session, sql).await;
    let Promises {
        promises,
        broken,
        failed,
        ..
    } = promises::check(&plan, &session.task_ctx()).await;
    assert!(
        broken.is_empty() && failed.is_empty(),
        "{broken:?} {failed:?}: {sql}"
    );
    assert!(promises > 0, "{sql}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_above_a_union_and_a_semi_join_counts_whole_groups() {
    let sql = format!(
        "SELECT min(n) FROM (SELECT count(*) OVER (ORDER BY tag) AS n FROM \
         (SELECT u.tag, u.a FROM {TAGGED} WHERE EXISTS (SELECT 1 FROM l WHERE l.a = u.a)))"
    );
    for at in At::BOTH {
        let session = session(at.options());
        // The tagged side ends first, and is built.
        fill(&session, 20_000, 4000);
        let (plan, batches) = query(&session, &sql).await.unwrap();
        // The rows of the first tag.
        assert_eq!(first_column(&batches), [4000], "{at:?}");
        at.assert_launched(&plan);
        assert_kept(&session, &sql).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_in_the_order_of_a_tag_whichever_side_is_built() {
    let queries = [
        format!("SELECT u.tag, l.a FROM l JOIN {TAGGED} ON l.a = u.a ORDER BY u.tag"),
        format!("SELECT u.tag, l.a FROM {TAGGED} JOIN l ON l.a = u.a ORDER BY u.tag"),
        format!("SELECT u.tag, l.a FROM l RIGHT JOIN {TAGGED} ON l.a = u.a ORDER BY u.tag"),
    ];
    for (l, parts) in [(6000, 4000), (400, 6000), (8000, 100)] {
        let stock = stock();
        fill(&stock, l, parts);
        for sql in &queries {
            // DataFusion cannot plan all of these with the order.
            let unordered = sql.replace(" ORDER BY u.tag", "");
            let (_, expected) = query(&stock, &unordered).await.unwrap();
            for at in At::BOTH {
                let session = session(at.options());
                fill(&session, l, parts);
                let (_, batches) = query(&session, sql).await.unwrap();
                let about = format!("{at:?}, {l} and {parts} rows: {sql}");
                assert!(first_column(&batches).is_sorted(), "{about}");
                assert_eq!(sorted(&batches), sorted(&expected), "{about}");
                assert_kept(&session, sql).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_join_on_disk_are_in_the_order_of_a_tag() {
    let sql = format!(
        "SELECT u.tag, u.a FROM {TAGGED} WHERE EXISTS (SELECT 1 FROM l WHERE l.a = u.a) \
         ORDER BY u.tag"
    );
    let fill = |session: &SessionContext| {
        // The order of the parts fixes the sides, and stays with the tag.
        for name in ["t1", "t2"] {
            ordered_table(session, name, &[("a", (0..20_000).collect())]);
        }
        table(session, "l", &[("a", (0..10_000).map(|a| 3 * a).collect())]);
    };
    let stock = stock();
    fill(&stock);
    let (_, expected) = query(&stock, &sql).await.unwrap();
    for at in At::BOTH {
        let session = with_memory(at.options(), 200 << 10);
        fill(&session);
        let (plan, batches) = query(&session, &sql).await.unwrap();
        let spilled = metric::<HortonJoinExec>(&plan, "spill_count");
        let sorts = nodes::<SortExec>(&plan).len();
        assert!(
            spilled > 0 && sorts == 0,
            "{at:?}: {spilled} spilled, {sorts} sorts"
        );
        assert!(first_column(&batches).is_sorted(), "{at:?}");
        assert!(sorted(&batches) == sorted(&expected), "{at:?}");
    }
}
