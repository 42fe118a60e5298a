//! Scans that are read ahead while they wait for a filter of another join.

use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::nodes;

use super::data::*;

/// The filter of `small` reaches `wide`, which the join below reads first.
const QUERY: &str = "SELECT small.v, x.v FROM small JOIN \
                     (SELECT w.k, b.v FROM (SELECT * FROM wide WHERE v < 900) w \
                      JOIN big b ON w.s = b.s) x ON small.k = x.k";

/// Rows of `wide` that its pages are not pruned of.
const AHEAD: usize = 900;

fn prefetched(plan: &Arc<dyn ExecutionPlan>) -> usize {
    metric::<DynamicFilterExec>(plan, "prefetched_rows")
}

/// Every partition of `plan`, each under a context of its own if `apart`.
fn streams(
    session: &SessionContext,
    plan: &Arc<dyn ExecutionPlan>,
    apart: bool,
) -> Vec<SendableRecordBatchStream> {
    let shared = session.task_ctx();
    let partitions = 0..plan.output_partitioning().partition_count();
    let context = || match apart {
        true => session.task_ctx(),
        false => Arc::clone(&shared),
    };
    partitions
        .map(|p| plan.execute(p, context()).unwrap())
        .collect()
}

/// Waits until so many rows are read ahead.
async fn until_prefetched(plan: &Arc<dyn ExecutionPlan>, rows: usize) {
    for _ in 0..1000 {
        if prefetched(plan) >= rows {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of {rows} rows are read ahead", prefetched(plan));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_read_ahead_are_filtered_when_the_filter_is_there() {
    let tables = Tables::new().await;
    let expected = run(&tables.stock(Place::Parquet).await, QUERY).await.rows;
    assert!(!expected.is_empty());
    for enabled in ["always", "auto"] {
        for partitions in [1, 3] {
            let config = SessionConfig::new().with_target_partitions(partitions);
            let options = [
                ("horton.enabled", enabled),
                ("datafusion.optimizer.repartition_file_min_size", "0"),
            ];
            let session = tables.horton_of(config, Place::Parquet, &options).await;
            for apart in [false, true] {
                let plan = plan(&session, QUERY).await.unwrap();
                let streams = streams(&session, &plan, apart);
                // Before anything is polled.
                until_prefetched(&plan, AHEAD).await;
                let parts = streams.into_iter().map(TryStreamExt::try_collect::<Vec<_>>);
                let parts = futures::future::try_join_all(parts);
                let batches = tokio::time::timeout(PATIENCE, parts).await.unwrap();
                let batches = batches.unwrap().concat();
                assert_eq!(sorted(&batches), expected, "{enabled} {partitions} {apart}");
                let scans = nodes::<DynamicFilterExec>(&plan).into_iter();
                let ahead: Vec<_> = scans.filter(|scan| prefetched(scan) > 0).collect();
                let [(AHEAD, left)] = ahead.iter().map(scanned).collect::<Vec<_>>()[..] else {
                    panic!("{ahead:?}");
                };
                assert!(left < AHEAD / 2, "{left} of {AHEAD} rows are left");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_read_ahead_that_nobody_takes_give_their_memory_back() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Parquet, &[]).await;
    let pool = Arc::clone(&session.runtime_env().memory_pool);
    let plan = plan(&session, QUERY).await.unwrap();
    let streams = streams(&session, &plan, false);
    until_prefetched(&plan, AHEAD).await;
    assert!(pool.reserved() > 0);
    drop(streams);
    given_back(&pool, QUERY).await;
}

/// Partitions of a scan take its files from one queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_read_ahead_that_nobody_takes_are_in_the_next_execution() {
    let tables = Tables::new().await;
    let expected = run(&tables.stock(Place::Parquet).await, QUERY).await.rows;
    for enabled in ["always", "auto"] {
        // What is opened at once is in memory.
        let session = tables
            .horton(Place::Parquet, &[("horton.enabled", enabled)])
            .await;
        session.deregister_table("small").unwrap();
        in_memory(&session, "small", &tables.tables[0].1);
        let plan = plan(&session, QUERY).await.unwrap();
        for _ in 0..3 {
            let unread = streams(&session, &plan, false);
            until_prefetched(&plan, AHEAD).await;
            drop(unread);
        }
        let parts = streams(&session, &plan, false).into_iter();
        let parts = parts.map(TryStreamExt::try_collect::<Vec<_>>);
        let batches = futures::future::try_join_all(parts).await.unwrap().concat();
        assert_eq!(sorted(&batches), expected, "{enabled}");
    }
}

/// The rows of the join below, for a consumer of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_reader_of_the_join_below_has_all_rows() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Parquet, &[]).await;
    session.deregister_table("small").unwrap();
    in_memory(&session, "small", &tables.tables[0].1);
    let below = QUERY.split_once("JOIN (").unwrap().1;
    let below = below.rsplit_once(") x ON").unwrap().0;
    let expected = run(&tables.stock(Place::Parquet).await, below).await.rows;
    for reader_is_first in [true, false] {
        let plan = plan(&session, QUERY).await.unwrap();
        let join = Arc::clone(plan.children()[1]);
        let mut whole = Vec::new();
        if !reader_is_first {
            whole = streams(&session, &plan, false);
            until_prefetched(&plan, AHEAD).await;
        }
        let reader = streams(&session, &join, false);
        if reader_is_first {
            whole = streams(&session, &plan, false);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(whole);
        let parts = reader.into_iter().map(TryStreamExt::try_collect::<Vec<_>>);
        let batches = futures::future::try_join_all(parts).await.unwrap().concat();
        assert_eq!(sorted(&batches).len(), expected.len(), "{reader_is_first}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_read_ahead_of_memory_or_into_a_limited_pool() {
    let tables = Tables::new().await;
    let expected = run(&tables.stock(Place::Parquet).await, QUERY).await.rows;
    let limited = [("datafusion.runtime.memory_limit", "1G")];
    for (place, options) in [(Place::Memory, &[][..]), (Place::Parquet, &limited[..])] {
        let session = tables.horton(place, options).await;
        let found = run(&session, QUERY).await;
        assert_eq!(found.rows, expected);
        assert_eq!(prefetched(&found.plan), 0, "{place:?}");
    }
}

/// A table of more rows than a first read may be left out in large part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_table_is_not_read_ahead() {
    let tables = Tables::new().await;
    let expected = run(&tables.stock(Place::Parquet).await, QUERY).await.rows;
    let config = config().with_option_extension(horton_join::config::HortonConfig {
        knobs: horton_join::config::Knobs {
            sample_rows: 4000,
            ..Default::default()
        },
        ..Default::default()
    });
    let session = tables.horton_of(config, Place::Parquet, &[]).await;
    let found = run(&session, QUERY).await;
    assert_eq!(found.rows, expected);
    assert_eq!(prefetched(&found.plan), 0);
}
