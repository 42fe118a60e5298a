//! Streams that share the batches of all probe partitions.
//!
//! ```text
//!  probe side   [ ] [ ] [ ] [all rows]  ─▶ four streams with rows
//! ```
//!
//! Joins on a device do so where DataFusion would have repartitioned both sides
//! (`join/prepare/shared_inputs.rs`). A consumer may read their streams one after the other, leave
//! some, or drop them.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, SessionStateBuilder};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::future::join_all;
use futures::{FutureExt, StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_join::config::Filters;
use horton_test_support::joins::eventually;
use horton_test_support::plans::{nodes, sorted};

use super::sessions::*;

const ROWS: i64 = 40_000;

const QUERIES: [&str; 7] = [
    "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k",
    "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT b.k, a.x, b.y FROM a RIGHT JOIN b ON a.k = b.k",
    "SELECT a.k, a.x, b.y FROM a FULL JOIN b ON a.k = b.k",
    "SELECT b.k, b.y FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.k = b.k)",
    "SELECT b.k, b.y FROM b WHERE NOT EXISTS (SELECT 1 FROM a WHERE a.k = b.k)",
    "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k AND a.x % 7 < b.y % 11",
];

/// A session with a small table, and a large one that is in one partition.
fn filled(config: SessionConfig) -> SessionContext {
    let mut horton = At::Device.options();
    // Filters would leave few rows to share.
    horton.filters = Filters::Off;
    let builder = SessionStateBuilder::new()
        .with_config(config.with_option_extension(horton))
        .with_default_features();
    let session = SessionContext::new_with_state(horton_join::install(builder).build());
    fill(&session);
    session
}

fn fill(session: &SessionContext) {
    let numbers = |n| (0..n).collect::<Vec<i64>>();
    let thirds = numbers(3000).into_iter().map(|k| 3 * k).collect();
    table(session, "a", &[("k", thirds), ("x", numbers(3000))]);
    skewed_table(session, "b", &[("k", numbers(ROWS)), ("y", numbers(ROWS))]);
}

async fn planned(sql: &str) -> (SessionContext, Arc<dyn ExecutionPlan>) {
    horton_test_support::turns::side_by_side();
    let session = filled(repartitioning());
    let plan = plan(&session, sql).await;
    (session, plan)
}

async fn expected(sql: &str) -> Vec<String> {
    let stock = stock();
    fill(&stock);
    sorted(&query(&stock, sql).await.unwrap().1)
}

fn streams(
    session: &SessionContext,
    plan: &Arc<dyn ExecutionPlan>,
) -> Vec<SendableRecordBatchStream> {
    let partitions = plan.output_partitioning().partition_count();
    assert_eq!(partitions, 4);
    let context = session.task_ctx();
    let streams = (0..partitions).map(|p| plan.execute(p, Arc::clone(&context)));
    streams.collect::<Result<_>>().unwrap()
}

fn built_left(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let joins = HortonJoinExec::all_in(plan);
    let mut decisions = joins.iter().flat_map(|join| join.decisions());
    decisions.all(|decision| decision.rows == 3000)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_those_of_other_joins() {
    for sql in QUERIES {
        let expected = expected(sql).await;
        let (session, plan) = planned(sql).await;
        let rows = read(streams(&session, &plan)).await.unwrap();
        assert!(sorted(&rows) == expected, "{sql}");
        assert!(built_left(&plan), "{sql}");
        At::Device.assert_launched(&plan);
    }
}

/// All rows are in one partition, and each stream has some of them.
#[tokio::test(flavor = "multi_thread")]
async fn every_stream_has_rows_of_the_one_partition() {
    let sql = QUERIES[2];
    let (session, plan) = planned(sql).await;
    let mut streams = streams(&session, &plan);
    let mut rows = Vec::new();
    for stream in &mut streams {
        let batch = stream.next().await.unwrap().unwrap();
        assert!(batch.num_rows() > 0);
        rows.push(batch);
    }
    for stream in streams {
        rows.extend(stream.try_collect::<Vec<_>>().await.unwrap());
    }
    assert!(sorted(&rows) == expected(sql).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_read_one_after_the_other_have_all_rows() {
    for sql in QUERIES {
        let (session, plan) = planned(sql).await;
        let mut rows = Vec::new();
        for stream in streams(&session, &plan) {
            rows.extend(stream.try_collect::<Vec<_>>().await.unwrap());
        }
        assert!(sorted(&rows) == expected(sql).await, "{sql}");
    }
}

/// Streams that were polled once, and are not polled again while others are read to their end.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_left_keep_no_other_from_its_end() {
    for polled in [0, 1, 3] {
        let (session, plan) = planned(QUERIES[0]).await;
        let mut streams = streams(&session, &plan);
        let rest = streams.split_off(polled);
        for stream in &mut streams {
            // A batch that is there at once is lost, as the stream is.
            let _ = stream.next().now_or_never();
        }
        let read = join_all(
            rest.into_iter()
                .map(|stream| stream.try_collect::<Vec<_>>()),
        );
        let read = tokio::time::timeout(std::time::Duration::from_secs(60), read);
        let read = read.await.expect("no end");
        assert!(read.into_iter().all(|rows| rows.is_ok()));
    }
}

/// An error of one probe partition is that of all streams: whoever reads one must not take what
/// came before for all rows.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_one_partition_ends_all_streams() {
    let sql = format!(
        "SELECT a.k, c.y FROM a JOIN (SELECT k, 10 / ({ROWS} - 100 - k) AS y FROM b) c ON a.k = c.k"
    );
    let (session, plan) = planned(&sql).await;
    for stream in streams(&session, &plan) {
        let outcome = stream.try_collect::<Vec<_>>().await;
        let error = outcome.expect_err("a division by zero").to_string();
        assert!(error.contains("Divide by zero"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_streams_give_all_memory_back() {
    for read in [0, 1, 4] {
        let (session, plan) = planned(QUERIES[2]).await;
        let mut streams = streams(&session, &plan);
        for stream in &mut streams[..read] {
            stream.next().await.unwrap().unwrap();
        }
        drop(streams);
        drop(plan);
        let pool = &session.runtime_env().memory_pool;
        eventually("memory is given back", || pool.reserved() == 0);
    }
}

/// DataFusion's join cannot be executed twice at a time where it repartitions. Streams of two
/// executions would mix their rows here.
#[tokio::test(flavor = "multi_thread")]
async fn executions_that_overlap_fail_and_those_that_follow_do_not() {
    let sql = QUERIES[1];
    let expected = expected(sql).await;
    let (session, plan) = planned(sql).await;
    let first = streams(&session, &plan);
    let second = streams(&session, &plan);
    let (first, second) = futures::future::join(read(first), read(second)).await;
    assert!(sorted(&first.unwrap()) == expected);
    let error = second.unwrap_err().to_string();
    assert!(error.contains("was executed twice"), "{error}");
    let third = read(streams(&session, &plan)).await;
    assert!(sorted(&third.unwrap()) == expected);
}

/// Joins that DataFusion would not repartition keep the rows of each partition, as their streams
/// can be read again.
#[tokio::test(flavor = "multi_thread")]
async fn joins_that_would_not_be_repartitioned_share_nothing() {
    horton_test_support::turns::side_by_side();
    let session = filled(config());
    let plan = plan(&session, QUERIES[0]).await;
    for _ in 0..2 {
        let mut rows = Vec::new();
        for stream in streams(&session, &plan) {
            let read = stream.try_collect::<Vec<_>>().await.unwrap();
            rows.push(read.iter().map(RecordBatch::num_rows).sum::<usize>());
        }
        assert_eq!(rows, [0, 0, 0, 3000]);
    }
    assert!(nodes::<HortonJoinExec>(&plan).len() == 1);
}
