//! Two devices that share joins, one of which can go down.
//!
//! PoCL offers its device twice, and the shim makes GPUs of them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;
use arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect, execute_stream_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use horton_join::device::pick_all;
use horton_join::{Decision, Health, HortonJoinExec, HostReason, Place, on_device, warm_up};

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

/// Runs `query`. Returns its plan, as it ran, and its rows.
async fn ran(session: &SessionContext, query: &str) -> (Arc<dyn ExecutionPlan>, Vec<RecordBatch>) {
    let plan = plan(session, query).await;
    let rows = collect(Arc::clone(&plan), session.task_ctx()).await;
    (plan, rows.unwrap())
}

/// Runs `plan`, and takes the first device `down`: `before` it is executed, or after its first
/// batch. Returns the number of its rows.
async fn rows_with_a_loss(
    session: &SessionContext,
    plan: &Arc<dyn ExecutionPlan>,
    down: &Path,
    before: bool,
) -> usize {
    if before {
        std::fs::write(down, "").unwrap();
    }
    let streams = execute_stream_partitioned(Arc::clone(plan), session.task_ctx());
    let mut streams = streams.unwrap();
    let mut found = 0;
    if let Some(batch) = streams[0].next().await {
        found += batch.unwrap().num_rows();
    }
    std::fs::write(down, "").unwrap();
    for stream in streams {
        found += rows(&stream.try_collect::<Vec<_>>().await.unwrap());
    }
    std::fs::remove_file(down).unwrap();
    found
}

/// Runs `query` until a join of it meets the loss of the first device. Returns its plan. A join
/// that has just ended may still count there, so that the next one goes to the other device.
async fn plan_that_meets_a_loss(
    session: &SessionContext,
    query: &str,
    (down, before): (&Path, bool),
    expected: usize,
) -> Arc<dyn ExecutionPlan> {
    loop {
        let plan = plan(session, query).await;
        let found = rows_with_a_loss(session, &plan, down, before).await;
        assert_eq!(found, expected, "{query}, down before: {before}");
        if metric(&plan, "device_errors") > 0 {
            return plan;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
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

/// A device has room for half of the 60,000 build rows, NULLs among them, and not for all.
const HALF: &str = "SET horton.device_memory_limit = 1450000";

/// Joins of each type, `a` with 60,000 rows that are built, `b` with 70,000. The first five come in
/// shards. The others would ask all shards at once, so the host has them.
const LARGE: [&str; 10] = [
    "count(*), sum(a.k), sum(b.k) FROM a JOIN b ON a.k = b.k",
    "count(*), sum(a.k), count(b.k) FROM a LEFT JOIN b ON a.k = b.k",
    "count(*), sum(k) FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    "count(*), sum(k) FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    "count(*), sum(k) FROM a WHERE k NOT IN (SELECT k FROM b)",
    "count(*), sum(b.k), count(a.k) FROM a RIGHT JOIN b ON a.k = b.k",
    "count(*), sum(a.k), sum(b.k) FROM a FULL JOIN b ON a.k = b.k",
    "count(*), sum(k) FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.k = b.k)",
    "count(*), sum(k) FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = b.k)",
    "count(*), sum(k) FROM b WHERE k NOT IN (SELECT k FROM a)",
];

fn is_too_large(decision: &Decision) -> bool {
    matches!(decision.place, Place::Host(HostReason::DoesNotFit))
}

async fn large_tables(session: &SessionContext) {
    for (name, from, to) in [("a", 0, 60000), ("b", 20000, 90000)] {
        let rows = format!("SELECT value AS k FROM range({from}, {to})");
        sql(session, &format!("CREATE TABLE {name} AS {rows}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_fits_neither_is_on_both_or_on_the_host() {
    let test = "several::a_table_that_fits_neither_is_on_both_or_on_the_host";
    if !is_child(test, "gpu") {
        return;
    }
    let session = both().await;
    large_tables(&session).await;
    for (at, query) in LARGE.iter().enumerate() {
        let query = &format!("SELECT {query}");
        sql(&session, "SET horton.device_memory_limit = 0").await;
        sql(&session, "SET horton.enabled = 'never'").await;
        let stock = sql(&session, query).await;
        sql(&session, "SET horton.enabled = 'always'").await;
        sql(&session, HALF).await;
        assert_eq!(sql(&session, query).await, stock, "{query}");
        let (plan, _) = ran(&session, query).await;
        let decisions = HortonJoinExec::all_in(&plan)[0].decisions();
        let rows: Vec<_> = decisions.iter().map(|decision| decision.rows).collect();
        if at < 5 {
            let both = BTreeSet::from([(0, 0), (0, 1)]);
            assert_eq!(devices(&plan), both, "{query}");
            assert!(metric(&plan, "kernel_launches") > 0, "{query}");
            assert_eq!(metric(&plan, "device_errors"), 0, "{query}");
            assert_eq!(rows, [30000, 30000], "{query}");
        } else {
            assert!(decisions.iter().all(is_too_large), "{query}: {decisions:?}");
            assert_eq!(rows, [60000], "{query}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_takes_shards_too() {
    if !is_child("several::auto_takes_shards_too", "gpu") {
        return;
    }
    let session = both().await;
    large_tables(&session).await;
    sql(&session, HALF).await;
    sql(&session, "SET horton.enabled = 'auto'").await;
    sql(&session, "SET horton.min_build_rows = 1").await;
    for (query, is_shared) in [(LARGE[0], true), (LARGE[5], false)] {
        let (plan, _) = ran(&session, &format!("SELECT {query}")).await;
        let decisions = HortonJoinExec::all_in(&plan)[0].decisions();
        let is_on_device = |decision: &Decision| matches!(decision.place, Place::Device(_));
        assert_eq!(decisions.len(), if is_shared { 2 } else { 1 }, "{query}");
        assert_eq!(decisions.iter().all(is_on_device), is_shared, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promised_order_is_kept_on_the_host() {
    let test = "several::a_promised_order_is_kept_on_the_host";
    if !is_child(test, "gpu") {
        return;
    }
    let session = both().await;
    large_tables(&session).await;
    sql(&session, HALF).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ordered.csv");
    let file = file.display();
    let copy = format!("COPY (SELECT k FROM b ORDER BY k) TO '{file}' STORED AS CSV");
    sql(&session, &copy).await;
    let table = format!(
        "CREATE EXTERNAL TABLE ordered (k BIGINT) STORED AS CSV WITH ORDER (k) LOCATION '{file}'"
    );
    sql(&session, &table).await;
    let query = "SELECT o.k FROM a JOIN ordered o ON a.k = o.k ORDER BY o.k";
    let (plan, batches) = ran(&session, query).await;
    let keys = batches.iter().flat_map(|batch| {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        keys.values().to_vec()
    });
    assert!(keys.eq(20000..60000));
    let decisions = HortonJoinExec::all_in(&plan)[0].decisions();
    assert!(decisions.iter().all(is_too_large), "{decisions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_shard_is_looked_up_elsewhere() {
    let test = "several::a_lost_shard_is_looked_up_elsewhere";
    let Some(down) = child_with_down(test) else {
        return;
    };
    for (query, before) in LARGE[..5].iter().zip([false, true, false, true, false]) {
        let session = both().await;
        large_tables(&session).await;
        sql(&session, "SET horton.chunk_rows = 500").await;
        let query = query.split_once("FROM").unwrap().1;
        let query = format!("SELECT * FROM {query}");
        let whole = plan(&session, &query).await;
        let whole = rows(&collect(whole, session.task_ctx()).await.unwrap());
        sql(&session, HALF).await;
        let plan = plan(&session, &query).await;
        let found = rows_with_a_loss(&session, &plan, &down, before).await;
        assert_eq!(found, whole, "{query}");
        let decisions = HortonJoinExec::all_in(&plan)[0].decisions();
        assert!(
            metric(&plan, "device_errors") > 0,
            "{query}, down before: {before}, {decisions:?}"
        );
    }
}

/// NULLs on either side, a residual filter, and an empty probe side.
#[tokio::test(flavor = "multi_thread")]
async fn shards_see_the_whole_probe_side() {
    if !is_child("several::shards_see_the_whole_probe_side", "gpu") {
        return;
    }
    let session = both().await;
    large_tables(&session).await;
    sql(
        &session,
        "CREATE TABLE nulls AS SELECT * FROM b UNION ALL SELECT NULL",
    )
    .await;
    sql(
        &session,
        "CREATE TABLE some AS SELECT nullif(k, 50000) AS k FROM a",
    )
    .await;
    sql(&session, "CREATE TABLE none AS SELECT k FROM b WHERE k < 0").await;
    for query in [
        "count(*) FROM a WHERE k NOT IN (SELECT k FROM nulls)",
        "count(*) FROM some WHERE k NOT IN (SELECT k FROM b)",
        "count(*) FROM some WHERE k NOT IN (SELECT k FROM none)",
        "count(*), sum(a.k) FROM a JOIN b ON a.k = b.k AND a.k % 7 < b.k % 5",
        "count(*), count(b.k) FROM a LEFT JOIN b ON a.k = b.k AND a.k % 7 < b.k % 5",
        "count(*), sum(a.k) FROM a WHERE NOT EXISTS
            (SELECT 1 FROM b WHERE a.k = b.k AND a.k % 7 < b.k % 5)",
    ] {
        let query = &format!("SELECT {query}");
        sql(&session, "SET horton.enabled = 'never'").await;
        let stock = sql(&session, query).await;
        sql(&session, "SET horton.enabled = 'always'").await;
        sql(&session, HALF).await;
        let (plan, found) = ran(&session, query).await;
        let found = pretty_format_batches(&found).unwrap().to_string();
        assert_eq!(found, stock, "{query}");
        let decisions = HortonJoinExec::all_in(&plan)[0].decisions();
        assert_eq!(decisions.len(), 2, "{query}: {decisions:?}");
        sql(&session, "SET horton.device_memory_limit = 0").await;
    }
}

/// Each partition of a partitioned join builds a table of its own. Partitions that build side by
/// side may find no room for their shards, so that they are asked for one after the other, too.
#[tokio::test(flavor = "multi_thread")]
async fn partitions_come_in_shards() {
    if !is_child("several::partitions_come_in_shards", "gpu") {
        return;
    }
    let session = both().await;
    sql(&session, "SET horton.device_memory_limit = 550000").await;
    // Only plans of others have joins in partitions here.
    let stock = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(4));
    large_tables(&stock).await;
    for limit in ["", "_rows"] {
        let option = "datafusion.optimizer.hash_join_single_partition_threshold";
        sql(&stock, &format!("SET {option}{limit} = 0")).await;
    }
    let query = &format!("SELECT {}", LARGE[0]);
    let whole = sql(&stock, query).await;
    let options = session.state();
    let plan = plan(&stock, query).await;
    let plan = on_device(plan, options.config_options(), &Health::default()).unwrap();
    let found = collect(Arc::clone(&plan), session.task_ctx())
        .await
        .unwrap();
    assert_eq!(pretty_format_batches(&found).unwrap().to_string(), whole);

    // A `RepartitionExec` can be executed once.
    let mut join = reset_plan_states(plan).unwrap();
    while HortonJoinExec::downcast(join.as_ref()).is_none() {
        join = Arc::clone(join.children()[0]);
    }
    let streams = execute_stream_partitioned(Arc::clone(&join), session.task_ctx()).unwrap();
    let mut found = 0;
    for stream in streams {
        found += rows(&stream.try_collect::<Vec<_>>().await.unwrap());
    }
    assert_eq!(found, 40000);
    let decisions = HortonJoinExec::all_in(&join)[0].decisions();
    assert_eq!(decisions.len(), 8, "{decisions:?}");
    let rows: usize = decisions.iter().map(|decision| decision.rows).sum();
    assert_eq!(rows, 60000, "{decisions:?}");
    assert_eq!(devices(&join), BTreeSet::from([(0, 0), (0, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_query_gives_the_memory_of_shards_back() {
    let test = "several::a_dropped_query_gives_the_memory_of_shards_back";
    if !is_child(test, "gpu") {
        return;
    }
    let session = both().await;
    large_tables(&session).await;
    sql(&session, HALF).await;
    let pool = Arc::clone(&session.runtime_env().memory_pool);
    let before = pool.reserved();
    let plan = plan(&session, "SELECT a.k FROM a JOIN b ON a.k = b.k").await;
    let mut streams = execute_stream_partitioned(Arc::clone(&plan), session.task_ctx()).unwrap();
    assert!(streams[0].next().await.unwrap().is_ok());
    assert_eq!(devices(&plan).len(), 2);
    assert!(pool.reserved() > before);
    drop(streams);
    let ended = async {
        while pool.reserved() > before {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), ended).await;
    ended.expect("memory that is not given back");
}

/// Returns the file that takes the first device down, in the child process of `test`.
fn child_with_down(test: &str) -> Option<PathBuf> {
    if super::child::role().is_none() {
        // A file for each test: they run side by side.
        let name = format!("horton-down-{}-{test}", std::process::id());
        let down = std::env::temp_dir().join(name);
        drop(std::fs::remove_file(&down));
        assert!(!is_child(test, &format!("gpu down={}", down.display())));
        drop(std::fs::remove_file(&down));
        return None;
    }
    let shim = std::env::var("HORTON_SHIM").unwrap();
    Some(PathBuf::from(shim.split_once("down=").unwrap().1))
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
    let Some(down) = child_with_down(test) else {
        return;
    };
    for query in ALL_TYPES {
        for before in [true, false] {
            let session = both().await;
            sql(&session, "SET horton.chunk_rows = 500").await;
            let expected = plan(&session, query).await;
            let expected = rows(&collect(expected, session.task_ctx()).await.unwrap());
            let plan = plan_that_meets_a_loss(&session, query, (&down, before), expected);
            let plan = tokio::time::timeout(std::time::Duration::from_secs(20), plan).await;
            let plan = plan.expect("no join meets the loss");
            let used = devices(&plan);
            if before {
                assert_eq!(used, BTreeSet::from([(0, 1)]), "{query}");
            } else {
                assert_eq!(used, BTreeSet::from([(0, 0)]), "{query}");
                assert_eq!(metric(&plan, "tables_replicated"), 1, "{query}");
            }
        }
    }
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
