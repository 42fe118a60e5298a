//! Scans that are read ahead while they wait for a filter of another join.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch, not};
use arrow::datatypes::Int64Type;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use futures::TryStreamExt;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::nodes;

use super::data::*;
use crate::feed::{Then, going_on, partition};

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
async fn rows_read_ahead_that_nobody_takes_go_with_the_plan() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Parquet, &[]).await;
    let pool = Arc::clone(&session.runtime_env().memory_pool);
    let plan = plan(&session, QUERY).await.unwrap();
    let streams = streams(&session, &plan, false);
    until_prefetched(&plan, AHEAD).await;
    assert!(pool.reserved() > 0);
    drop((streams, plan));
    given_back(&pool, QUERY).await;
}

/// Partitions of a scan take its files from one queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_read_ahead_that_nobody_takes_are_in_the_next_execution() {
    let tables = Tables::new().await;
    let expected = run(&tables.stock(Place::Parquet).await, QUERY).await.rows;
    for enabled in ["always", "auto"] {
        let session = tables
            .horton(Place::Parquet, &[("horton.enabled", enabled)])
            .await;
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

/// A table of which the first execution has the rows with small keys, and all others have the rest.
fn changing(small: &RecordBatch) -> Arc<StreamingTable> {
    let executions = AtomicUsize::new(0);
    let keys = small.column(0).as_primitive::<Int64Type>().clone();
    let low = BooleanArray::from_iter(keys.iter().map(|key| Some(key.is_some_and(|k| k < 200))));
    let parts = [&low, &not(&low).unwrap()].map(|of| filter_record_batch(small, of).unwrap());
    let rows = partition(&small.schema(), move || {
        let number = executions.fetch_add(1, Ordering::SeqCst);
        going_on(vec![parts[number.min(1)].clone()], Then::End)
    });
    Arc::new(StreamingTable::try_new(small.schema(), vec![rows]).unwrap())
}

/// The join in the middle waits, and its filter reaches the scan that is read ahead. The second
/// execution must not prune by what the first one left in that filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scan_read_ahead_is_not_pruned_by_the_keys_of_the_execution_before() {
    let tables = Tables::new().await;
    let query = "SELECT x.v, x.k FROM other o JOIN (SELECT s.v, y.k FROM small s JOIN \
                 (SELECT w.k FROM sorted w JOIN wide b ON w.s = b.s) y ON s.k = y.k) x ON o.v = x.v";
    let mut rows = Vec::new();
    for stock in [true, false] {
        let session = match stock {
            true => tables.stock(Place::Parquet).await,
            false => {
                let as_written = [("datafusion.optimizer.join_reordering", "false")];
                tables.horton(Place::Parquet, &as_written).await
            }
        };
        // Row groups of few keys each.
        let by_key = session.sql("SELECT * FROM big ORDER BY k").await.unwrap();
        let by_key = by_key.collect().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let by_key = concat_batches(&by_key[0].schema(), &by_key).unwrap();
        write(folder.path(), "sorted", &by_key).await;
        let file = folder.path().join("sorted.parquet");
        let options = ParquetReadOptions::default();
        let file = file.to_str().unwrap();
        session
            .register_parquet("sorted", file, options)
            .await
            .unwrap();
        session.deregister_table("small").unwrap();
        session
            .register_table("small", changing(&tables.tables[2].1.slice(0, 300)))
            .unwrap();
        let plan = plan(&session, query).await.unwrap();
        // Copies have the same filters, and none is set back once the first one has run.
        let copy = reset_plan_states(Arc::clone(&plan)).unwrap();
        for plan in [plan, copy] {
            let streams = streams(&session, &plan, false);
            if !stock {
                until_prefetched(&plan, 1).await;
            }
            let parts = streams.into_iter().map(TryStreamExt::try_collect::<Vec<_>>);
            let batches = futures::future::try_join_all(parts).await.unwrap().concat();
            rows.push(sorted(&batches));
        }
    }
    let [first, second, ours_first, ours_second] = &rows[..] else {
        panic!("{rows:?}");
    };
    assert!(!first.is_empty() && !second.is_empty() && first != second);
    assert_eq!((ours_first, ours_second), (first, second));
}
