//! Workers without OpenCL, and workers that die.

use std::time::Duration;

use crate::coordinator::{
    Addresses, analyzed, coordinator, is_distributed, launches, plan, rows, run, stock, try_run,
};
use crate::tables::{register, small, write};
use crate::workers::{Cluster, Setup};

const JOIN: &str = "SELECT a, b FROM few JOIN many ON few.k = many.k";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_opencl_joins_on_the_host() {
    let folder = small().await;
    let cluster = Cluster::start(&[Setup::default(), Setup::without_opencl()]);
    let log = cluster.workers[1].log();
    assert!(
        log.contains("joins run on the host: no device: no OpenCL platform"),
        "{log}"
    );
    let addresses = Addresses::new(&cluster.urls);
    let (session, stock) = (coordinator(&addresses), stock());
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    run(&session, "SET horton.enabled = 'always'").await;
    let expected = rows(&stock, JOIN).await;
    assert_eq!(rows(&session, JOIN).await, expected);
    // Each of the two has one of the tasks.
    assert!(launches(&analyzed(&session, JOIN).await) > 0);
    *addresses.0.lock().unwrap() = cluster.urls[1..].to_vec();
    let analyzed = analyzed(&session, JOIN).await;
    assert_eq!(launches(&analyzed), 0, "{analyzed}");
    assert_eq!(rows(&session, JOIN).await, expected);
}

/// Twenty million pairs, of which none is left.
const LONG: &str = "SELECT count(*) FROM wide a JOIN wide b ON a.k = b.k WHERE a.v + b.v < 0";

#[tokio::test(flavor = "multi_thread")]
async fn a_query_fails_with_its_worker_and_runs_on_those_left() {
    let folder = small().await;
    write(folder.path(), "wide", 21_000, "value % 20 AS k, value AS v").await;
    let mut cluster = Cluster::pair();
    let addresses = Addresses::new(&cluster.urls);
    let (session, stock) = (coordinator(&addresses), stock());
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    run(&session, "SET horton.enabled = 'always'").await;

    let query = tokio::spawn({
        let session = session.clone();
        async move { try_run(&session, LONG).await }
    });
    let victim = &mut cluster.workers[0];
    tokio::task::block_in_place(|| {
        let has_join = |log: String| log.contains("a task has 1 joins");
        let limit = Duration::from_secs(60);
        victim.wait_until("a task is there", limit, |worker| has_join(worker.log()));
    });
    assert!(!query.is_finished(), "the query is too short");
    victim.kill();
    let error = query
        .await
        .unwrap()
        .map(|_| ())
        .expect_err("rows of a worker that was killed");
    println!("the query that lost its worker: {error}");

    // As long as the address is known, tasks are sent there.
    let dead = try_run(&session, JOIN).await.map(|_| ());
    let dead = dead.expect_err("a worker that is dead answered");
    println!("the next query, with the old addresses: {dead}");

    *addresses.0.lock().unwrap() = cluster.urls[1..].to_vec();
    assert!(is_distributed(&plan(&session, LONG).await));
    assert_eq!(rows(&session, LONG).await, rows(&stock, LONG).await);
    assert_eq!(rows(&session, JOIN).await, rows(&stock, JOIN).await);
    assert!(launches(&analyzed(&session, JOIN).await) > 0);
}
