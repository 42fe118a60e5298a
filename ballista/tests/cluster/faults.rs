//! Executors without a device, executors that die, and wrong names.

use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{ExecutorRegistration, RegisterExecutorParams};

use crate::answers::{analyzed, assert_same, launches, rows};
use crate::data::{ROWS, Tables};
use crate::joins::PARTITIONED;
use crate::process::{Process, wait_until};
use crate::setup::{Cluster, Executor, Scheduler};

const JOIN: &str = "SELECT k, count(*), sum(v + w) FROM build JOIN probe ON k = j GROUP BY k";

/// Lines of an executor's log that begin and end a task.
const BEGUN: &str = "Execute task";
const ENDED: &str = "Finished task";

#[tokio::test(flavor = "multi_thread")]
async fn one_executor_without_opencl() {
    let tables = Tables::to_join(ROWS).await;
    let executors = [Executor::always(), Executor::without_opencl()];
    let cluster = Cluster::start(Scheduler::Stock, &executors);
    let session = cluster.session(&PARTITIONED).await;
    tables.register(&session).await;
    let expected = rows(&tables.local().await, JOIN).await.unwrap();
    for _ in 0..3 {
        let found = rows(&session, JOIN).await.unwrap();
        assert_same(&found, &expected, JOIN);
    }
    let plan = analyzed(&session, JOIN).await;
    assert!(launches(&plan) > 0, "{plan}");
    let [with, without] = [0, 1].map(|i: usize| cluster.executors[i].log());
    assert!(with.contains("hash joins run on OpenCL device"), "{with}");
    let reason = "hash joins run on the host: ";
    assert!(without.contains(reason), "{without}");
    assert!(with.contains(ENDED) && without.contains(ENDED));
}

/// Rows of a table whose join takes seconds in a debug build.
const MANY_ROWS: usize = 400_000;

/// Ballista 55 recovers only with care, with its own executors as with ours. Its adaptive planner
/// never ends such a query: "Can't find active stage to update stage outputs". The other one can
/// forget vcores of the tasks that it rolls back, so executors have more than the query needs.
const RECOVERS: [(&str, &str); 5] = [
    ("ballista.planner.adaptive.enabled", "false"),
    ("ballista.scheduler.max_partitions_per_task", "1"),
    ("datafusion.optimizer.prefer_hash_join", "true"),
    (
        "datafusion.optimizer.hash_join_single_partition_threshold",
        "0",
    ),
    (
        "datafusion.optimizer.hash_join_single_partition_threshold_rows",
        "0",
    ),
];

const MANY_VCORES: usize = 16;

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_killed_in_mid_query() {
    let tables = Tables::to_join(MANY_ROWS).await;
    let executor = Executor {
        vcores: Some(MANY_VCORES),
        // Only to see what Ballista's own executors do here.
        is_stock: std::env::var_os("HORTON_TEST_STOCK").is_some(),
        ..Executor::always()
    };
    let mut cluster = Cluster::start(Scheduler::Stock, &[executor.clone(), executor]);
    let session = cluster.session(&RECOVERS).await;
    tables.register(&session).await;
    let query = tokio::spawn(async move { rows(&session, JOIN).await });

    // The first stage has ended, so there are files to lose, and a later one runs.
    let victim = &mut cluster.executors[0];
    let count = |log: &str, line: &str| log.matches(line).count();
    wait_until("a task of the second stage", || {
        let log = victim.log();
        count(&log, ENDED) > 0 && count(&log, BEGUN) > count(&log, ENDED)
    });
    assert!(!query.is_finished(), "the query is too fast for this test");
    victim.kill();
    let log = victim.log();
    assert!(count(&log, BEGUN) > count(&log, ENDED), "it died idle");

    let found = query.await.unwrap().unwrap();
    let expected = rows(&tables.local().await, JOIN).await.unwrap();
    assert_same(&found, &expected, JOIN);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_device_is_refused_and_the_others_go_on() {
    let tables = Tables::to_join(ROWS).await;
    let mut cluster = Cluster::start(Scheduler::Stock, &[Executor::always()]);
    let flags = ["--horton", "device=no such device"].map(str::to_owned);
    cluster.add(&Executor {
        flags: flags.into(),
        ..Executor::default()
    });
    let refused = &mut cluster.executors[1];
    assert_eq!(refused.wait().code(), Some(1));
    let message = "no OpenCL device matches 'no such device'; available: 0:0";
    assert!(refused.log().contains(message), "{}", refused.log());

    let session = cluster.session(&[]).await;
    tables.register(&session).await;
    let found = rows(&session, JOIN).await.unwrap();
    let expected = rows(&tables.local().await, JOIN).await.unwrap();
    assert_same(&found, &expected, JOIN);
}

#[test]
fn a_wrong_flag_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_horton-ballista-executor");
    for (flag, message) in [
        ("colour=red", "there is no option horton.colour"),
        ("enabled=maybe", "'auto', 'always' or 'never'"),
        ("enabled", "NAME=VALUE"),
    ] {
        let mut command = std::process::Command::new(program);
        let mut process = Process::start("wrong", command.args(["--horton", flag]), dir.path());
        assert_eq!(process.wait().code(), Some(2));
        assert!(process.log().contains(message), "{}", process.log());
    }
}

/// Ballista refuses executors of another protocol. No such program is at hand, so this speaks for
/// one.
#[tokio::test(flavor = "multi_thread")]
async fn an_executor_of_another_protocol_is_refused() {
    let cluster = Cluster::start(Scheduler::Ours, &[]);
    let url = format!("http://127.0.0.1:{}", cluster.port);
    let mut scheduler = SchedulerGrpcClient::connect(url).await.unwrap();
    let metadata = ExecutorRegistration {
        id: "old".to_owned(),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION - 1,
        ..ExecutorRegistration::default()
    };
    let registration = RegisterExecutorParams {
        metadata: Some(metadata),
    };
    let refused = scheduler.register_executor(registration).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("protocol version mismatch"), "{refused}");
    assert!(cluster.scheduler.log().contains("Rejecting executor old"));
}
