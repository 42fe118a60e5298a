//! Plans that are executed more than once, and consumers of every kind.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use horton_join::config::{Enabled, HortonConfig};
use horton_join::{Health, HortonJoinExec, on_device};
use horton_test_support::plans::nodes;

use super::data::*;

const QUERY: &str = "SELECT big.v, small.v FROM (SELECT * FROM small WHERE v < 90) small \
                     JOIN big ON small.k = big.k JOIN wide ON wide.k = big.k";

/// Plans of one partition: DataFusion's repartitions run only once.
fn one_partition() -> SessionConfig {
    SessionConfig::new().with_target_partitions(1)
}

/// `plan` for another run: a scan of files has to be reset, as its partitions share a queue.
fn again(plan: &Arc<dyn ExecutionPlan>, place: Place) -> Arc<dyn ExecutionPlan> {
    match place {
        Place::Memory => Arc::clone(plan),
        Place::Parquet => reset_plan_states(Arc::clone(plan)).unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_runs_twice_and_at_the_same_time() {
    let tables = Tables::new().await;
    for place in PLACES {
        let expected = run(&tables.stock(place).await, QUERY).await.rows;
        let session = tables.horton_of(one_partition(), place, &[]).await;
        let plan = plan(&session, QUERY).await.unwrap();
        for _ in 0..3 {
            let batches = collect(again(&plan, place), session.task_ctx()).await;
            assert_eq!(sorted(&batches.unwrap()), expected, "{place:?}");
        }
        let at_once = (0..8).map(|_| {
            let (plan, context) = (again(&plan, place), session.task_ctx());
            tokio::spawn(async move { collect(plan, context).await })
        });
        for run in futures::future::join_all(at_once).await {
            let batches = run.unwrap().unwrap();
            assert_eq!(sorted(&batches), expected, "{place:?}");
        }
        let (seen, passed) = scanned(&plan);
        assert!(place == Place::Parquet || passed < seen);
    }
}

/// A scan of files gives its rows once. Joins may read before they are polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_dropped_unread_take_no_rows_from_the_next_ones() {
    let query = "SELECT small.v, big.v FROM small JOIN big ON small.k = big.k \
                 JOIN wide ON wide.k = big.k";
    let tables = Tables::new().await;
    let stock = SessionContext::new_with_config(one_partition());
    tables.register(&stock, Place::Parquet).await;
    let expected = run(&stock, query).await.rows;
    for enabled in ["always", "auto"] {
        let options = [("horton.enabled", enabled)];
        let session = tables
            .horton_of(one_partition(), Place::Parquet, &options)
            .await;
        let open = plan(&session, query).await.unwrap();
        let mut plans = vec![open];
        for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
            let planned = plan(&stock, query).await.unwrap();
            let with_mode = planned.transform_down(|node| {
                let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                    return Ok(Transformed::no(node));
                };
                let join = join.builder().with_partition_mode(mode);
                let join = join.recompute_properties().build()?;
                Ok(Transformed::yes(Arc::new(join)))
            });
            let task = session.task_ctx();
            let options = task.session_config().options();
            let plan = on_device(with_mode.unwrap().data, options, &Health::default());
            plans.push(plan.unwrap());
        }
        for (at, plan) in plans.iter().enumerate() {
            assert_eq!(nodes::<HortonJoinExec>(plan).len(), 2);
            for wait in [0, 30, 30] {
                let unread = plan.execute(0, session.task_ctx()).unwrap();
                tokio::time::sleep(Duration::from_millis(wait)).await;
                drop(unread);
            }
            let batches = collect(Arc::clone(plan), session.task_ctx()).await.unwrap();
            assert_eq!(sorted(&batches), expected, "{enabled}, plan {at}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_is_reset_runs_again() {
    let tables = Tables::new().await;
    for place in PLACES {
        let expected = run(&tables.stock(place).await, QUERY).await.rows;
        for enabled in ["always", "auto"] {
            let session = tables.horton(place, &[("horton.enabled", enabled)]).await;
            let mut plan = plan(&session, QUERY).await.unwrap();
            for _ in 0..3 {
                let batches = collect(Arc::clone(&plan), session.task_ctx()).await;
                assert_eq!(sorted(&batches.unwrap()), expected, "{place:?} {enabled}");
                plan = reset_plan_states(plan).unwrap();
            }
        }
    }
}

/// The build side is other rows of `small` each time; `big` has partners of each key, so a run
/// that met another's filter would count fewer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_filtered_by_the_keys_of_another() {
    let tables = Tables::new().await;
    let counts = |from: &str| {
        format!(
            "SELECT small.v, count(*) FROM {from} small JOIN big ON small.k = big.k GROUP BY small.v"
        )
    };
    for place in PLACES {
        let session = tables.horton_of(one_partition(), place, &[]).await;
        let all: HashSet<String> = run(&session, &counts("small"))
            .await
            .rows
            .into_iter()
            .collect();
        let some = counts("(SELECT * FROM small WHERE random() < 0.3)");
        let plan = plan(&session, &some).await.unwrap();
        let mut found = 0;
        for _ in 0..5 {
            let at_once = (0..4).map(|_| collect(again(&plan, place), session.task_ctx()));
            for batches in futures::future::join_all(at_once).await {
                let rows = sorted(&batches.unwrap());
                found += rows.len();
                for row in rows {
                    assert!(all.contains(&row), "{place:?}: a row lost partners: {row}");
                }
            }
        }
        assert!(
            found > 0 && found < 20 * all.len(),
            "{found} of {}",
            all.len()
        );
    }
}

/// Reads the partitions of `plan` in `order`, each to its end before the next is polled.
async fn one_by_one(
    plan: &Arc<dyn ExecutionPlan>,
    session: &SessionContext,
    (order, ask_first): (&[usize], bool),
) -> Vec<RecordBatch> {
    let context = session.task_ctx();
    let ask = |p: usize| plan.execute(p, Arc::clone(&context)).unwrap();
    let mut batches = Vec::new();
    match ask_first {
        true => {
            let streams: Vec<_> = order.iter().map(|p| ask(*p)).collect();
            for stream in streams {
                batches.extend(stream.try_collect::<Vec<_>>().await.unwrap());
            }
        }
        false => {
            for p in order {
                batches.extend(ask(*p).try_collect::<Vec<_>>().await.unwrap());
            }
        }
    }
    batches
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_read_partitions_in_any_order() {
    let tables = Tables::new().await;
    let queries = [
        QUERY,
        "SELECT small.v, big.v FROM small LEFT JOIN big ON small.k = big.k",
        "SELECT small.v, big.v FROM small FULL JOIN big ON small.k = big.k",
        "SELECT v FROM small WHERE k NOT IN (SELECT k FROM big WHERE v < 2000 AND k IS NOT NULL)",
    ];
    for place in PLACES {
        let stock = tables.stock(place).await;
        let open = tables.horton(place, &[]).await;
        let planned = tables.as_planned(place, &[]).await;
        for (name, session) in [("open", open), ("as planned", planned)] {
            for query in queries {
                let expected = run(&stock, query).await.rows;
                let planned = plan(&session, query).await.unwrap();
                let count = planned.output_partitioning().partition_count();
                let forward: Vec<usize> = (0..count).collect();
                let backward: Vec<usize> = (0..count).rev().collect();
                for order in [&forward, &backward] {
                    for ask_first in [true, false] {
                        let plan = plan(&session, query).await.unwrap();
                        let rows = one_by_one(&plan, &session, (order, ask_first));
                        let rows = tokio::time::timeout(PATIENCE, rows).await;
                        let rows = rows.unwrap_or_else(|_| panic!("no end: {query}"));
                        assert_eq!(
                            sorted(&rows),
                            expected,
                            "{place:?} sides {name} {ask_first} {query}"
                        );
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_that_is_dropped_midway_leaves_a_plan_that_runs() {
    let tables = Tables::new().await;
    let session = tables.horton_of(one_partition(), Place::Memory, &[]);
    let session = session.await;
    let expected = run(&session, QUERY).await.rows;
    let plan = plan(&session, QUERY).await.unwrap();
    let context = session.task_ctx();
    for polls in 0..4 {
        let mut stream = plan.execute(0, Arc::clone(&context)).unwrap();
        for _ in 0..polls {
            drop(stream.next().await);
        }
        drop(stream);
        let batches = collect(Arc::clone(&plan), Arc::clone(&context))
            .await
            .unwrap();
        assert_eq!(sorted(&batches), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partitioned_join_that_is_dropped_midway_gives_its_memory_back() {
    let tables = Tables::new().await;
    let partitioned = HortonConfig {
        enabled: Enabled::Always,
        ..HortonConfig::default()
    };
    let (pool, session) = pooled(&tables, partitioned, true).await;
    let query =
        "SELECT big.v FROM (SELECT * FROM wide WHERE v % 3 > 0) wide JOIN big ON wide.k = big.k";
    let mut held = 0;
    for polls in 0..8 {
        let plan = plan(&session, query).await.unwrap();
        let context = session.task_ctx();
        let count = plan.output_partitioning().partition_count();
        let mut streams: Vec<_> = (0..count)
            .map(|p| plan.execute(p, Arc::clone(&context)).unwrap())
            .collect();
        for _ in 0..polls {
            drop(futures::poll!(streams[0].next()));
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        held = held.max(pool.reserved());
        drop(streams);
        drop(plan);
        given_back(&pool, &format!("after {polls} polls")).await;
    }
    assert!(held > 0);
}
