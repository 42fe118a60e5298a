//! Options on their way from coordinators to workers, and flags of workers.

use horton_join::config::Enabled;

use crate::coordinator::{
    Addresses, analyzed, coordinator, failure, launches, rows, run, stock, try_run,
};
use crate::tables::{register, small};
use crate::workers::{Cluster, Setup, Worker};

const JOIN: &str = "SELECT a, b FROM few JOIN many ON few.k = many.k";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_coordinator_sets_reaches_workers() {
    let folder = small().await;
    // The flag alone would join on the device.
    let always = || Setup::options(&["enabled=always"]);
    let cluster = Cluster::start(&[always(), always()]);
    let session = coordinator(&Addresses::new(&cluster.urls));
    let stock = stock();
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    let expected = rows(&stock, JOIN).await;
    assert!(
        launches(&analyzed(&session, JOIN).await) > 0,
        "the flag is not used"
    );
    run(
        &session,
        &format!("SET horton.enabled = '{}'", Enabled::Never),
    )
    .await;
    let analyzed_plan = analyzed(&session, JOIN).await;
    assert_eq!(launches(&analyzed_plan), 0, "{analyzed_plan}");
    assert_eq!(rows(&session, JOIN).await, expected);
    // The default says nothing, so the flag is back.
    run(&session, "SET horton.enabled = 'auto'").await;
    assert!(
        launches(&analyzed(&session, JOIN).await) > 0,
        "the flag is not used again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_options_are_errors_that_help() {
    let folder = small().await;
    let cluster = Cluster::pair();
    let session = coordinator(&Addresses::new(&cluster.urls));
    register(&session, folder.path()).await;

    let unknown = failure(&session, "SET horton.colour = 'red'").await;
    assert!(
        unknown.contains("horton.colour") && unknown.contains("chunk_rows"),
        "{unknown}"
    );
    let value = failure(&session, "SET horton.enabled = 'maybe'").await;
    assert!(value.contains("'always'"), "{value}");

    run(&session, "SET horton.enabled = 'always'").await;
    run(&session, "SET horton.device = 'nonesuch'").await;
    let device = failure(&session, JOIN).await;
    assert!(
        device.contains("no OpenCL device matches 'nonesuch'; available: 0:0"),
        "{device}"
    );

    // A header carries its bytes, which are no text there.
    run(&session, "SET horton.device = 'Gerät™'").await;
    let header = failure(&session, JOIN).await;
    assert!(
        header.contains("not ASCII") && header.contains("PLATFORM:INDEX"),
        "{header}"
    );

    // The session is as good as new.
    run(&session, "SET horton.device = '0:0'").await;
    assert!(launches(&analyzed(&session, JOIN).await) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_keeps_the_device_of_its_flag() {
    let folder = small().await;
    let named = || Setup::options(&["device=0:0", "enabled=always"]);
    let cluster = Cluster::start(&[named(), named()]);
    let session = coordinator(&Addresses::new(&cluster.urls));
    register(&session, folder.path()).await;
    run(&session, "SET horton.device = 'nonesuch'").await;
    assert!(launches(&analyzed(&session, JOIN).await) > 0);
}

/// Starts a worker that must fail; returns its exit code and what it said.
fn refused(setup: &Setup) -> (Option<i32>, String) {
    let mut worker = Worker::start(setup);
    let status = worker.ended();
    (status.code(), worker.log())
}

#[test]
fn workers_refuse_bad_flags() {
    let (code, said) = refused(&Setup::options(&["device=nonesuch"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("no OpenCL device matches 'nonesuch'; available: 0:0"),
        "{said}"
    );

    let (code, said) = refused(&Setup::options(&["colour=red"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("no option horton.colour") && said.contains("chunk_rows"),
        "{said}"
    );

    let (code, said) = refused(&Setup::options(&["device"]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("NAME=VALUE"), "{said}");
}

#[test]
fn workers_refuse_a_port_that_is_taken() {
    let mut first = Worker::start(&Setup::default());
    let port = first.url().port().unwrap();
    let (code, said) = refused(&Setup {
        flags: vec!["--port".to_owned(), port.to_string()],
        variables: vec![],
    });
    assert_eq!(code, Some(1), "{said}");
    let expected = format!("cannot listen on 127.0.0.1:{port}");
    assert!(said.contains(&expected), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_end_when_asked_to() {
    let folder = small().await;
    let mut cluster = Cluster::pair();
    let session = coordinator(&Addresses::new(&cluster.urls));
    register(&session, folder.path()).await;
    // Connections stay open after a query.
    assert!(try_run(&session, JOIN).await.is_ok());
    for worker in &mut cluster.workers {
        let status = worker.terminate();
        assert!(status.success(), "{status}\n{}", worker.log());
        assert!(!worker.log().contains("in progress"), "{}", worker.log());
    }
}
