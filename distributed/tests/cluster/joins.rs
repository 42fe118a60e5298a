//! Every join type, broadcast and partitioned.
//!
//! ```text
//!  stock plan of the coordinator     as stages
//!  CollectLeft, build rows unseen    build side broadcast to two tasks
//!  CollectLeft, build rows emitted   made Partitioned by their planner
//!  Partitioned (thresholds of 0)     both sides shuffled by key
//! ```

use datafusion::prelude::SessionContext;

use crate::coordinator::{
    Addresses, analyzed, coordinator, is_distributed, launches, plan, rows, run, stock,
};
use crate::tables::{register, small};
use crate::workers::Cluster;

/// DataFusion's way to plan it, the query, and whether its build side may be broadcast.
const CASES: [(&str, &str, bool); 10] = [
    (
        "Inner",
        "SELECT a, b FROM few JOIN many ON few.k = many.k",
        true,
    ),
    (
        "Left",
        "SELECT a, b FROM few LEFT JOIN many ON few.k = many.k AND b < a",
        false,
    ),
    (
        "Right",
        "SELECT a, b FROM few RIGHT JOIN many ON few.k = many.k",
        true,
    ),
    (
        "Full",
        "SELECT a, b FROM few FULL JOIN many ON few.k = many.k",
        false,
    ),
    (
        "LeftSemi",
        "SELECT a FROM few LEFT SEMI JOIN many ON few.k = many.k",
        false,
    ),
    (
        "LeftAnti",
        "SELECT a FROM few LEFT ANTI JOIN many ON few.k = many.k",
        false,
    ),
    (
        "LeftMark",
        "SELECT a FROM few WHERE a = 'few 7' OR EXISTS (SELECT 1 FROM many WHERE many.k = few.k)",
        false,
    ),
    (
        "RightSemi",
        "SELECT b FROM few RIGHT SEMI JOIN many ON few.k = many.k",
        true,
    ),
    (
        "RightAnti",
        "SELECT b FROM few RIGHT ANTI JOIN many ON few.k = many.k",
        true,
    ),
    (
        "RightMark",
        "SELECT b FROM many WHERE b = 'many 11' OR EXISTS (SELECT 1 FROM few WHERE few.k = many.k)",
        true,
    ),
];

/// Runs `sql` on both sessions; returns its plan and the kernels launched.
async fn check(session: &SessionContext, sql: &str, expected: &[String]) -> (String, u64) {
    let plan = plan(session, sql).await;
    let actual = rows(session, sql).await;
    assert!(
        actual == expected,
        "{sql}: {} rows, not {}\n{plan}",
        actual.len(),
        expected.len()
    );
    (plan, launches(&analyzed(session, sql).await))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_broadcast_and_partitioned() {
    let folder = small().await;
    let cluster = Cluster::pair();
    let stock = stock();
    let session = coordinator(&Addresses::new(&cluster.urls));
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    run(&session, "SET horton.enabled = 'always'").await;
    for (partitioned, threshold) in [(false, None), (true, Some(0))] {
        if let Some(bytes) = threshold {
            for name in ["", "_rows"] {
                let option = format!("optimizer.hash_join_single_partition_threshold{name}");
                run(&session, &format!("SET datafusion.{option} = {bytes}")).await;
            }
        }
        for (join_type, sql, may_broadcast) in CASES {
            let expected = rows(&stock, sql).await;
            assert!(!expected.is_empty(), "{sql}");
            let (plan, launches) = check(&session, sql, &expected).await;
            assert!(
                plan.contains(&format!("join_type={join_type},")),
                "{join_type}\n{plan}"
            );
            assert!(is_distributed(&plan), "{join_type}\n{plan}");
            let broadcast = may_broadcast && !partitioned;
            let (mode, boundary) = match broadcast {
                true => ("mode=CollectLeft", "NetworkBroadcastExec"),
                false => ("mode=Partitioned", "NetworkShuffleExec"),
            };
            assert!(
                plan.contains(mode) && plan.contains(boundary),
                "{join_type}\n{plan}"
            );
            assert!(launches > 0, "{join_type}, {mode}: no kernel was launched");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn not_in() {
    let folder = small().await;
    let cluster = Cluster::pair();
    let stock = stock();
    let session = coordinator(&Addresses::new(&cluster.urls));
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    run(&session, "SET horton.enabled = 'always'").await;
    for (sql, is_empty) in [
        (
            "SELECT b FROM many WHERE k NOT IN (SELECT k FROM few)",
            true,
        ),
        (
            "SELECT b FROM many WHERE k NOT IN (SELECT k FROM sparse)",
            false,
        ),
        (
            "SELECT a FROM few WHERE k NOT IN (SELECT k FROM sparse)",
            false,
        ),
        (
            "SELECT a FROM few WHERE k NOT IN (SELECT k FROM many WHERE k > 70)",
            false,
        ),
    ] {
        let expected = rows(&stock, sql).await;
        assert_eq!(expected.is_empty(), is_empty, "{sql}");
        // One task must know of every NULL. Where nothing is above it, that is the coordinator's.
        let (plan, _) = check(&session, sql, &expected).await;
        assert!(plan.contains("null_aware"), "{plan}");
    }
    // Something above it, so it is a worker's.
    let sql = "SELECT a, b FROM (SELECT * FROM few WHERE k NOT IN (SELECT k FROM sparse)) f \
               JOIN many ON f.k = many.k";
    let (plan, launches) = check(&session, sql, &rows(&stock, sql).await).await;
    let head = plan.split("Stage").next().unwrap();
    assert!(
        plan.contains("null_aware") && !head.contains("null_aware"),
        "{plan}"
    );
    assert!(launches > 0, "no kernel was launched\n{plan}");
}
