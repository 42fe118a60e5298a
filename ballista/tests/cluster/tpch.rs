//! TPC-H's 22 queries at scale 0.01.

use datafusion::prelude::SessionContext;
use horton_test_support::tpch::{query, register, write_tables};

use crate::answers::{analyzed, assert_same, launches, rows};
use crate::setup::{Cluster, Executor, Scheduler};

const SCALE: f64 = 0.01;

#[tokio::test(flavor = "multi_thread")]
async fn all_22_queries() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path(), SCALE).await.unwrap();
    let stock = SessionContext::new();
    register(&stock, dir.path()).await.unwrap();
    let cluster = Cluster::start(Scheduler::Ours, &[Executor::always(), Executor::always()]);
    let session = cluster.session(&[]).await;
    register(&session, dir.path()).await.unwrap();
    let mut with_kernels = 0;
    for number in 1..=22 {
        let sql = query(number, SCALE).unwrap();
        let found = rows(&session, &sql).await.unwrap();
        let expected = rows(&stock, &sql).await.unwrap();
        assert_same(&found, &expected, &format!("Q{number}"));
        // All but Q1 and Q6 join.
        let plan = analyzed(&session, &sql).await;
        with_kernels += usize::from(launches(&plan) > 0);
    }
    assert!(
        with_kernels >= 15,
        "only {with_kernels} queries launched kernels"
    );
}
