//! The course of `SET horton.…` from the client to the executors.
//!
//! ```text
//!  client ─▶ our scheduler ─▶ executor     arrives; a device's name does not count
//!  client ─▶ stock scheduler ─▶ executor   dropped without a word: the executor's flags hold
//! ```

use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;

use crate::answers::{analyzed, assert_same, launches, rows};
use crate::data::{ROWS, Tables};
use crate::setup::{Cluster, Executor, Scheduler, config};

const JOIN: &str = "SELECT count(*), sum(v + w) FROM build JOIN probe ON k = j";

/// Kernels of a join after `settings`, whose rows are checked.
async fn launches_after(cluster: &Cluster, tables: &Tables, settings: &[(&str, &str)]) -> usize {
    let session = cluster.session(settings).await;
    tables.register(&session).await;
    let found = rows(&session, JOIN).await.unwrap();
    let expected = rows(&tables.local().await, JOIN).await.unwrap();
    assert_same(&found, &expected, JOIN);
    launches(&analyzed(&session, JOIN).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn our_scheduler_passes_options() {
    let tables = Tables::to_join(ROWS).await;
    let cluster = Cluster::start(Scheduler::Ours, &[Executor::always(), Executor::always()]);
    // What nobody set is what the executors' flags say: these joins are too small for 'auto'.
    assert!(launches_after(&cluster, &tables, &[]).await > 0);
    let never = [("horton.enabled", "never")];
    assert_eq!(launches_after(&cluster, &tables, &never).await, 0);
    // A client names no device of another machine. That is in the log of that machine.
    let device = [("horton.device", "no such device")];
    assert!(launches_after(&cluster, &tables, &device).await > 0);
    let logs: String = cluster.executors.iter().map(|e| e.log()).collect();
    assert!(logs.contains("a client set horton.device = 'no such device'"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_scheduler_drops_options() {
    let tables = Tables::to_join(ROWS).await;
    let cluster = Cluster::start(Scheduler::Stock, &[Executor::always()]);
    let never = [("horton.enabled", "never")];
    assert!(launches_after(&cluster, &tables, &never).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_without_flags_does_what_clients_set() {
    let tables = Tables::to_join(ROWS).await;
    let cluster = Cluster::start(Scheduler::Ours, &[Executor::default()]);
    // By default small joins stay on the host.
    assert_eq!(launches_after(&cluster, &tables, &[]).await, 0);
    let always = [("horton.enabled", "always")];
    assert!(launches_after(&cluster, &tables, &always).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_options_are_the_clients_errors() {
    let cluster = Cluster::start(Scheduler::Ours, &[]);
    let error =
        async |session: &SessionContext, sql: &str| session.sql(sql).await.unwrap_err().to_string();
    let session = cluster.session(&[]).await;
    let unknown = error(&session, "SET horton.colour = 'red'").await;
    assert!(
        unknown.contains("there is no option horton.colour"),
        "{unknown}"
    );
    let wrong = error(&session, "SET horton.enabled = 'maybe'").await;
    assert!(wrong.contains("'auto', 'always' or 'never'"), "{wrong}");

    // A client that was not given the options cannot set them.
    let state = SessionStateBuilder::new()
        .with_config(config())
        .with_default_features();
    let session = cluster.connect(state.build(), &[]).await;
    let absent = error(&session, "SET horton.enabled = 'never'").await;
    assert!(absent.contains("horton"), "{absent}");
}
