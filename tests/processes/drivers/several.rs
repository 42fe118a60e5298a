//! Two devices that share joins, one of which can go down.
//!
//! PoCL offers its device twice, and the shim makes GPUs of them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream_partitioned};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use horton_join::device::pick_all;
use horton_join::{HortonJoinExec, Place, warm_up};

use super::child::{QUERIES, check_rows, is_child, session, sql};

/// A session whose joins go to both devices.
async fn both() -> SessionContext {
    let session = session().await;
    sql(&session, "SET horton.device = 'all'").await;
    sql(&session, "SET datafusion.execution.target_partitions = 4").await;
    sql(&session, "SET datafusion.execution.batch_size = 256").await;
    warm_up(&session).await.unwrap();
    session
}

async fn plan(session: &SessionContext, query: &str) -> Arc<dyn ExecutionPlan> {
    let query = session.sql(query).await.unwrap();
    query.create_physical_plan().await.unwrap()
}

/// The devices that the joins of an executed plan were on.
fn devices(plan: &Arc<dyn ExecutionPlan>) -> BTreeSet<(usize, usize)> {
    let joins = HortonJoinExec::all_in(plan).into_iter();
    let places = joins.flat_map(|join| join.decisions());
    let places = places.map(|decision| match decision.place {
        Place::Device(device) => device.info().index,
        Place::Host(reason) => panic!("on the host: {reason}"),
    });
    places.collect()
}

fn metric(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let joins = HortonJoinExec::all_in(plan).into_iter();
    let metrics = joins.filter_map(|join| join.metrics()?.sum_by_name(name));
    metrics.map(|value| value.as_usize()).sum()
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_that_run_at_once_are_on_both() {
    if !is_child("several::joins_that_run_at_once_are_on_both", "gpu") {
        return;
    }
    let session = both().await;
    check_rows(&session).await;
    let mut plans = Vec::new();
    for query in [QUERIES, QUERIES].concat() {
        plans.push(plan(&session, query).await);
    }
    let run =
        |plan: &Arc<dyn ExecutionPlan>| tokio::spawn(collect(Arc::clone(plan), session.task_ctx()));
    let running: Vec<_> = plans.iter().map(run).collect();
    for query in running {
        assert_eq!(rows(&query.await.unwrap().unwrap()), 1);
    }
    let used: BTreeSet<_> = plans.iter().flat_map(devices).collect();
    assert_eq!(used, BTreeSet::from([(0, 0), (0, 1)]));
    assert!(plans.iter().all(|plan| metric(plan, "kernel_launches") > 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_fits_neither_is_split_over_both() {
    if !is_child(
        "several::a_table_that_fits_neither_is_split_over_both",
        "gpu",
    ) {
        return;
    }
    let session = both().await;
    let query = "SELECT count(*), sum(a.value) FROM range(0, 60000) a
                 JOIN range(20000, 90000) b ON a.value = b.value";
    let whole = sql(&session, query).await;
    sql(&session, "SET horton.device_memory_limit = 1000000").await;
    assert_eq!(sql(&session, query).await, whole);
    let plan = plan(&session, query).await;
    collect(Arc::clone(&plan), session.task_ctx())
        .await
        .unwrap();
    assert_eq!(devices(&plan), BTreeSet::from([(0, 0), (0, 1)]));
    let join = HortonJoinExec::all_in(&plan)[0];
    assert!(
        join.decisions()
            .iter()
            .all(|decision| decision.bucket.is_some())
    );
}

const ALL_TYPES: [&str; 5] = [
    "SELECT trip.id, km, size FROM trip JOIN city ON trip.city = city.id",
    "SELECT trip.id, km, size FROM city RIGHT JOIN trip ON trip.city = city.id",
    "SELECT trip.id, c.id FROM trip FULL JOIN city c ON trip.city = c.id",
    "SELECT id, name FROM city WHERE id NOT IN (SELECT city FROM trip)",
    "SELECT id, name FROM city c WHERE EXISTS (SELECT 1 FROM trip WHERE trip.city = c.id)",
];

/// The first device goes down before a build, and while chunks are looked up.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_device_leaves_its_work_to_the_other() {
    let test = "several::a_lost_device_leaves_its_work_to_the_other";
    if super::child::role().is_none() {
        let down = std::env::temp_dir().join(format!("horton-down-{}", std::process::id()));
        drop(std::fs::remove_file(&down));
        assert!(!is_child(test, &format!("gpu down={}", down.display())));
        drop(std::fs::remove_file(&down));
        return;
    }
    let shim = std::env::var("HORTON_SHIM").unwrap();
    let down = PathBuf::from(shim.split_once("down=").unwrap().1);
    for query in ALL_TYPES {
        for before in [true, false] {
            let session = both().await;
            sql(&session, "SET horton.chunk_rows = 500").await;
            let expected = plan(&session, query).await;
            let expected = rows(&collect(expected, session.task_ctx()).await.unwrap());
            let plan = plan(&session, query).await;
            if before {
                std::fs::write(&down, "").unwrap();
            }
            let streams = execute_stream_partitioned(Arc::clone(&plan), session.task_ctx());
            let mut streams = streams.unwrap();
            let mut found = 0;
            if let Some(batch) = streams[0].next().await {
                found += batch.unwrap().num_rows();
            }
            std::fs::write(&down, "").unwrap();
            for stream in streams {
                found += rows(&stream.try_collect::<Vec<_>>().await.unwrap());
            }
            std::fs::remove_file(&down).unwrap();
            assert_eq!(found, expected, "{query}, down before: {before}");
            assert!(metric(&plan, "device_errors") > 0, "{query}, {before}");
            let used = devices(&plan);
            if before {
                assert_eq!(used, BTreeSet::from([(0, 1)]), "{query}");
            } else {
                assert_eq!(used, BTreeSet::from([(0, 0)]), "{query}");
                assert_eq!(metric(&plan, "tables_added"), 1, "{query}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_whose_chunks_wait_gets_a_second_table() {
    if !is_child(
        "several::a_join_whose_chunks_wait_gets_a_second_table",
        "gpu",
    ) {
        return;
    }
    let session = both().await;
    sql(&session, "SET datafusion.execution.target_partitions = 16").await;
    sql(&session, "SET horton.chunk_rows = 4096").await;
    sql(&session, "SET horton.filters = 'off'").await;
    let query = "SELECT count(*), sum(a.value) FROM range(0, 1000) a
                 JOIN range(0, 3000000) b ON a.value = b.value % 2000";
    let plan = plan(&session, query).await;
    let found = collect(Arc::clone(&plan), session.task_ctx())
        .await
        .unwrap();
    let found = arrow::util::pretty::pretty_format_batches(&found)
        .unwrap()
        .to_string();
    assert!(metric(&plan, "tables_added") > 0, "{plan:?}");
    sql(&session, "SET horton.enabled = 'never'").await;
    assert_eq!(found, sql(&session, query).await);
}

#[test]
fn names_of_several_devices() {
    if !is_child("several::names_of_several_devices", "gpu") {
        return;
    }
    let index = |asked: &str| -> Vec<_> {
        let picked = pick_all(asked).unwrap().into_iter();
        picked.map(|info| info.index.1).collect()
    };
    assert_eq!(index("auto"), [0]);
    assert_eq!(index("all"), [0, 1]);
    assert_eq!(index("0:1"), [1]);
    assert_eq!(index("0:1, 0:0"), [1, 0]);
    assert_eq!(index("auto,pthread,0:1"), [0, 1]);
    let empty = pick_all("0:1,").unwrap_err().to_string();
    assert!(empty.contains("'0:1,'"), "{empty}");
    let error = pick_all("0:0,nonesuch").unwrap_err().to_string();
    assert!(
        error.contains("'nonesuch'") && error.contains("0:1 "),
        "{error}"
    );
}
