//! Every join type, as each of Ballista's planners runs it.
//!
//! ```text
//!  broadcast    AQE, small sides: CollectLeft
//!  partitioned  AQE, no broadcast: Partitioned
//!  static       AQE off, prefer_hash_join on
//! ```

use datafusion::common::JoinType;
use datafusion::prelude::{DataFrame, SessionContext, col};

use crate::answers::{analyzed, analyzed_frame, assert_same, collect, launches, rows};
use crate::data::{ROWS, Tables};
use crate::setup::{Cluster, Executor, Scheduler};

const TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// Settings with which a join of any size is a hash join whose rows are partitioned.
pub const PARTITIONED: [(&str, &str); 3] = [
    ("ballista.optimizer.broadcast_join_threshold_bytes", "0"),
    ("ballista.optimizer.broadcast_join_threshold_rows", "0"),
    (
        "ballista.optimizer.hash_join_max_build_partition_bytes",
        "0",
    ),
];

/// Settings with which the planner without measurements makes hash joins.
const STATIC: [(&str, &str); 2] = [
    ("ballista.planner.adaptive.enabled", "false"),
    ("datafusion.optimizer.prefer_hash_join", "true"),
];

async fn join(session: &SessionContext, join_type: JoinType) -> DataFrame {
    let build = session.table("build").await.unwrap();
    let probe = session.table("probe").await.unwrap();
    // The filter has the join look at rows of both sides beside their keys.
    let filter = (col("v") + col("w")).not_eq(datafusion::prelude::lit(7));
    let joined = build.join(probe, join_type, &["k"], &["j"], Some(filter));
    joined.unwrap()
}

/// Checks all join types, and returns their plans.
async fn check(settings: &[(&str, &str)]) -> Vec<(JoinType, String)> {
    let tables = Tables::to_join(ROWS).await;
    let stock = tables.local().await;
    let cluster = Cluster::start(Scheduler::Stock, &[Executor::always(), Executor::always()]);
    let session = cluster.session(settings).await;
    tables.register(&session).await;
    let mut plans = vec![];
    for join_type in TYPES {
        let expected = collect(join(&stock, join_type).await).await.unwrap();
        let found = collect(join(&session, join_type).await).await.unwrap();
        assert!(!expected.is_empty(), "{join_type}");
        assert_same(&found, &expected, &format!("{join_type} join"));
        let plan = analyzed_frame(join(&session, join_type).await).await;
        assert!(launches(&plan) > 0, "{join_type} join:\n{plan}");
        plans.push((join_type, plan));
    }
    plans
}

#[tokio::test(flavor = "multi_thread")]
async fn all_types_broadcast() {
    for (join_type, plan) in check(&[]).await {
        assert!(plan.contains("HashJoinExec"), "{join_type}:\n{plan}");
        // Ballista broadcasts a side only where each task may answer for itself.
        if matches!(join_type, JoinType::Inner | JoinType::Right) {
            assert!(plan.contains("mode=CollectLeft"), "{join_type}:\n{plan}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_types_partitioned() {
    for (join_type, plan) in check(&PARTITIONED).await {
        assert!(plan.contains("mode=Partitioned"), "{join_type}:\n{plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_types_without_the_adaptive_planner() {
    for (join_type, plan) in check(&STATIC).await {
        assert!(plan.contains("HashJoinExec"), "{join_type}:\n{plan}");
    }
}

const NOT_IN: [&str; 4] = [
    "SELECT * FROM build WHERE k NOT IN (SELECT j FROM probe)",
    "SELECT * FROM build WHERE k NOT IN (SELECT j FROM probe WHERE j IS NOT NULL)",
    "SELECT * FROM build WHERE k NOT IN (SELECT j FROM probe WHERE j < 0)",
    "SELECT * FROM build WHERE v % 3 = 0 OR EXISTS (SELECT * FROM probe WHERE j = k AND w > 1000)",
];

#[tokio::test(flavor = "multi_thread")]
async fn not_in_with_nulls() {
    let tables = Tables::to_join(ROWS).await;
    let stock = tables.local().await;
    let cluster = Cluster::start(Scheduler::Stock, &[Executor::always(), Executor::always()]);
    let rewrite = "ballista.optimizer.not_in_subquery_rewrite";
    for value in ["true", "false"] {
        let session = cluster.session(&[(rewrite, value)]).await;
        tables.register(&session).await;
        for sql in NOT_IN {
            let found = rows(&session, sql).await.unwrap();
            let expected = rows(&stock, sql).await.unwrap();
            assert_same(&found, &expected, sql);
        }
        let plan = analyzed(&session, NOT_IN[1]).await;
        assert!(launches(&plan) > 0, "{plan}");
    }
}
