//! Partitions of one node: each with a context of its own, late, again, or never; copies of a node.
//!
//! ```text
//!  plan.execute(0, session.task_ctx()) ─┐
//!  plan.execute(1, session.task_ctx()) ─┴ one execution, as in HashJoinExec: one build per node
//!  plan.with_new_children(…)            ─ another node, with a build of its own
//! ```

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_test_support::plans::{nodes, sorted};

use super::sessions::*;

const QUERIES: [&str; 8] = [
    "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k",
    "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k = b.k",
    "SELECT b.k, a.x, b.y FROM a RIGHT JOIN b ON a.k = b.k",
    "SELECT a.k, a.x, b.y FROM a FULL JOIN b ON a.k = b.k",
    "SELECT a.k, a.x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    "SELECT a.k, a.x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k)",
    // Its hash repartition gives each partition out once.
    "SELECT a.k, g.n FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) g ON a.k = g.k",
    // A join per step; its small build side stays as planned (`join/steps.rs`).
    "WITH RECURSIVE r AS (SELECT k, 0 AS d FROM a WHERE k > 3900 UNION ALL \
     SELECT b.y, d + 1 FROM r JOIN b ON b.k = r.k WHERE d < 5) \
     SELECT a.k, r.d FROM r JOIN a ON a.k = r.k",
];

fn fill(session: &SessionContext) {
    let numbers = || (0..4000).collect();
    table(session, "a", &[("k", numbers()), ("x", numbers())]);
    let even = (0..4000).map(|k| 2 * k).collect();
    table(session, "b", &[("k", even), ("y", numbers())]);
}

/// A session whose joins run there, with the tables, and the plan of `sql` in it.
async fn planned(at: At, sql: &str) -> (SessionContext, Arc<dyn ExecutionPlan>) {
    let session = session(at.options());
    fill(&session);
    let plan = plan(&session, sql).await;
    (session, plan)
}

/// The rows that DataFusion's own joins return, sorted.
async fn expected(sql: &str) -> Vec<String> {
    let stock = stock();
    fill(&stock);
    sorted(&query(&stock, sql).await.unwrap().1)
}

fn partitions(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_with_a_context_each_are_one_execution() {
    for sql in QUERIES {
        let expected = expected(sql).await;
        for at in At::BOTH {
            let (session, plan) = planned(at, sql).await;
            let streams = (0..partitions(&plan)).map(|p| plan.execute(p, session.task_ctx()));
            let streams = streams.collect::<Result<Vec<_>>>().unwrap();
            let batches = read(streams).await.unwrap();
            assert!(sorted(&batches) == expected, "{at:?}: {sql}");
            at.assert_launched(&plan);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_asked_for_late_are_of_the_same_execution() {
    for sql in QUERIES {
        let expected = expected(sql).await;
        for at in At::BOTH {
            for of_its_own in [false, true] {
                let (session, plan) = planned(at, sql).await;
                let shared = session.task_ctx();
                let mut batches = Vec::new();
                // Each is read to its end before the next one is asked for.
                for partition in (0..partitions(&plan)).rev() {
                    let context = match of_its_own {
                        true => session.task_ctx(),
                        false => Arc::clone(&shared),
                    };
                    let stream = plan.execute(partition, context).unwrap();
                    batches.extend(read(vec![stream]).await.unwrap());
                }
                let about = format!("{at:?}, contexts of their own: {of_its_own}: {sql}");
                assert!(sorted(&batches) == expected, "{about}");
            }
        }
    }
}

/// A join whose build side draws keys at random, each of which all four partitions have.
async fn drawing(at: At) -> (SessionContext, Arc<dyn ExecutionPlan>) {
    let session = session(at.options());
    let keys = (0..4000).map(|x| x % 500).collect();
    table(&session, "a", &[("k", keys)]);
    table(&session, "b", &[("k", (0..500).collect())]);
    let sql = "SELECT a.k FROM a JOIN (SELECT k FROM b WHERE random() < 0.5) b ON a.k = b.k";
    let plan = plan(&session, sql).await;
    (session, plan)
}

async fn keys(stream: SendableRecordBatchStream) -> Vec<i64> {
    let mut keys = first_column(&read(vec![stream]).await.unwrap());
    keys.sort_unstable();
    keys
}

/// Four executions at once, each of which has read another partition when the rest is asked for.
/// A build side that draws at random shows whether they still read the one build.
#[tokio::test(flavor = "multi_thread")]
async fn executions_that_lack_partitions_keep_the_build() {
    for at in At::BOTH {
        let (session, plan) = drawing(at).await;
        let count = partitions(&plan);
        assert_eq!(count, 4, "{at:?}");
        let contexts: Vec<_> = (0..count).map(|_| session.task_ctx()).collect();
        let mut drawn = Vec::new();
        for turn in 0..count {
            for (at, context) in contexts.iter().enumerate() {
                let partition = (at + turn) % count;
                let stream = plan.execute(partition, Arc::clone(context)).unwrap();
                drawn.push(keys(stream).await);
            }
        }
        let first = &drawn[0];
        assert!(first.len() > 200 && first.len() < 800, "{}", first.len());
        let other = drawn.iter().position(|keys| keys != first);
        assert_eq!(other, None, "{at:?}: another draw");
        assert_eq!(session.runtime_env().memory_pool.reserved(), 0, "{at:?}");
        at.assert_launched(&plan);
    }
}

/// Their contexts look as if each lacked partitions. An execution that ended must not be taken for
/// one that goes on: its build would be another draw, and filters would rest.
#[tokio::test(flavor = "multi_thread")]
async fn executions_with_a_context_each_build_again() {
    for at in At::BOTH {
        let (session, plan) = drawing(at).await;
        let mut draws = Vec::new();
        for _ in 0..3 {
            let mut drawn = Vec::new();
            for partition in 0..partitions(&plan) {
                let stream = plan.execute(partition, session.task_ctx()).unwrap();
                drawn.push(keys(stream).await);
            }
            assert!(drawn.iter().all(|keys| *keys == drawn[0]), "{at:?}");
            draws.push(drawn.remove(0));
        }
        assert!(draws[0] != draws[1] && draws[1] != draws[2], "{at:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_are_dropped_early_leave_a_plan_that_runs_again() {
    for sql in QUERIES {
        let expected = expected(sql).await;
        for at in At::BOTH {
            let (session, plan) = planned(at, sql).await;
            for partition in 0..partitions(&plan) {
                let mut stream = plan.execute(partition, session.task_ctx()).unwrap();
                // A part may have no rows.
                drop(stream.next().await.transpose().unwrap());
            }
            let plan = reset_plan_states(plan).unwrap();
            let streams = (0..partitions(&plan)).map(|p| plan.execute(p, session.task_ctx()));
            let streams = streams.collect::<Result<Vec<_>>>().unwrap();
            assert!(
                sorted(&read(streams).await.unwrap()) == expected,
                "{at:?}: {sql}"
            );
        }
    }
}

/// Two executions whose partitions are asked for in turn, under one context: nobody can tell them
/// apart, so that a partition must have the same rows both times. Few keys leave spill partitions
/// empty, and rows with NULL keys fill some of these.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_of_a_join_that_spilled_has_the_same_rows_again() {
    let few = |column: &str, table: &str, rows: usize| {
        format!(
            "(SELECT CASE WHEN {column} % 50 <> 7 THEN {column} % 5 END AS k, {column}, \
             repeat('x', 2000) AS s FROM {table} WHERE {column} < {rows})"
        )
    };
    let (a, b) = (few("x", "a", 200), few("y", "b", 100));
    let few_keys = format!("SELECT l.k, x, l.s, y, r.s FROM {a} l FULL JOIN {b} r ON l.k = r.k");
    for sql in [QUERIES[0], QUERIES[3], &few_keys] {
        let expected = expected(sql).await;
        let session = with_memory(At::Host.options(), 64 << 10);
        fill(&session);
        let plan = plan(&session, sql).await;
        let [first, second] = two_in_turn(&session, &plan);
        let rows = futures::future::join(read(first), read(second)).await;
        let joins = nodes::<HortonJoinExec>(&plan);
        let spills = joins
            .iter()
            .filter_map(|join| join.metrics()?.spill_count());
        assert!(spills.sum::<usize>() > 0, "nothing was spilled: {sql}");
        for rows in [rows.0, rows.1] {
            assert!(sorted(&rows.unwrap()) == expected, "{sql}");
        }
    }
}

/// Executions of `plan` whose partitions are asked for in turn, under one context.
fn two_in_turn(
    session: &SessionContext,
    plan: &Arc<dyn ExecutionPlan>,
) -> [Vec<SendableRecordBatchStream>; 2] {
    let context = session.task_ctx();
    let mut both = [Vec::new(), Vec::new()];
    for partition in 0..partitions(plan) {
        for turn in [partition, partition + 1] {
            let stream = plan.execute(partition, Arc::clone(&context)).unwrap();
            both[turn % 2].push(stream);
        }
    }
    both
}

/// A build side that found room once does not the second time. On disk, the join's partitions would
/// have other rows, and both executions have some of either build. All rows of both sides have a
/// match, as any partition may emit the others of the build side. Either side may be built: the
/// pool can refuse one or the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_build_without_room_fails_rather_than_mixes_rows() {
    let sql = "SELECT e.k, e.x, c.y FROM (SELECT * FROM a WHERE k % 2 = 0) e
               FULL JOIN (SELECT * FROM b WHERE k < 4000) c ON e.k = c.k";
    let expected = expected(sql).await;
    let (mut whole, mut refused) = (0, 0);
    for limit in (64..768).step_by(16) {
        let session = with_memory(At::Host.options(), limit << 10);
        fill(&session);
        let plan = plan(&session, sql).await;
        let [first, second] = two_in_turn(&session, &plan);
        let both = futures::future::join(read(first), read(second)).await;
        for rows in [both.0, both.1] {
            match rows {
                Ok(rows) => {
                    assert!(sorted(&rows) == expected, "{limit} KB");
                    whole += 1;
                }
                Err(error) => {
                    let error = error.find_root();
                    let is_memory = matches!(error, DataFusionError::ResourcesExhausted(_));
                    assert!(is_memory, "{limit} KB: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_over_other_inputs_return_their_own_rows() {
    for at in At::BOTH {
        let session = session(at.options());
        for (name, from) in [("a", 0), ("b", 0), ("c", 1_000_000), ("d", 1_000_000)] {
            table(&session, name, &[("k", (from..from + 3000).collect())]);
        }
        let template = plan(&session, "SELECT a.k FROM a JOIN b ON a.k = b.k").await;
        let other = plan(&session, "SELECT c.k FROM c JOIN d ON c.k = d.k").await;
        let copy = |inputs: &Arc<dyn ExecutionPlan>| {
            let inputs = inputs.children().into_iter().cloned().collect();
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(&template)
                .replace_children(inputs, options)
                .unwrap()
        };
        let copies = vec![copy(&template), copy(&other)];
        let each = partitions(&copies[0]);
        let orders: [Vec<usize>; 2] = [
            (0..2 * each).collect(),
            (0..each).flat_map(|p| [p, each + (p + 1) % each]).collect(),
        ];
        for order in orders {
            let union = UnionExec::try_new(copies.clone()).unwrap();
            let union = reset_plan_states(union).unwrap();
            let context = session.task_ctx();
            let streams = order
                .iter()
                .map(|p| union.execute(*p, Arc::clone(&context)));
            let streams = streams.collect::<Result<Vec<_>>>().unwrap();
            // One after the other, as they were asked for.
            let mut rows = Vec::new();
            for stream in streams {
                rows.extend(first_column(&stream.try_collect::<Vec<_>>().await.unwrap()));
            }
            rows.sort_unstable();
            let expected: Vec<i64> = (0..3000).chain(1_000_000..1_003_000).collect();
            assert!(rows == expected, "{at:?} {order:?}: {} rows", rows.len());
        }
    }
}

/// Of executions that overlap there is always a stream, so that the node's run never ends. The
/// builds of those that ended go all the same.
#[tokio::test(flavor = "multi_thread")]
async fn executions_that_overlap_keep_no_builds_of_those_that_ended() {
    for sql in QUERIES {
        for at in At::BOTH {
            let session = with_memory(at.options(), 1 << 30);
            fill(&session);
            let plan = plan(&session, sql).await;
            // No plan with a repartition can be executed twice.
            if !nodes::<RepartitionExec>(&plan).is_empty() {
                continue;
            }
            let begun = || {
                let context = session.task_ctx();
                let streams = (0..partitions(&plan)).map(|p| plan.execute(p, Arc::clone(&context)));
                streams.collect::<Result<Vec<_>>>().unwrap()
            };
            let pool = &session.runtime_env().memory_pool;
            let (mut last, mut reserved) = (begun(), Vec::new());
            for _ in 0..12 {
                let next = begun();
                read(std::mem::replace(&mut last, next)).await.unwrap();
                reserved.push(pool.reserved());
            }
            drop(last);
            let (first, most) = (reserved[2], reserved.iter().skip(2).max().copied());
            assert!(most <= Some(2 * first), "{at:?}: {sql}: {reserved:?}");
        }
    }
}
