//! A client whose session has our rules, as if it ran its joins itself.

use datafusion::execution::SessionStateBuilder;

use crate::answers::{analyzed, assert_same, launches, rows};
use crate::data::{ROWS, Tables};
use crate::joins::PARTITIONED;
use crate::setup::{Cluster, Executor, Scheduler, config};

const JOIN: &str = "SELECT s, t, count(*) FROM build LEFT JOIN probe ON k = j GROUP BY s, t";

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_a_client_change_nothing() {
    let tables = Tables::to_join(ROWS).await;
    let cluster = Cluster::start(Scheduler::Ours, &[Executor::always(), Executor::always()]);
    let expected = rows(&tables.local().await, JOIN).await.unwrap();
    for settings in [&PARTITIONED[..], &[]] {
        let builder = SessionStateBuilder::new()
            .with_config(config())
            .with_default_features();
        let state = horton_join::install(builder).build();
        let session = cluster.connect(state, settings).await;
        tables.register(&session).await;
        let found = rows(&session, JOIN).await.unwrap();
        assert_same(&found, &expected, JOIN);
        let plan = analyzed(&session, JOIN).await;
        assert!(launches(&plan) > 0, "{plan}");
    }
}
