//! Build sides that are opened with a join further above.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, Filters, HortonConfig};

use super::data::*;

/// The filter of `small` reaches `big`, so that the join below is opened late. No filter reaches
/// `other`.
const QUERY: &str = "SELECT small.v, x.v FROM small JOIN \
                     (SELECT b.k, b.v FROM (SELECT * FROM other WHERE v > 5) o \
                      JOIN (SELECT * FROM big WHERE f > 0) b ON o.v = b.v) x ON small.k = x.k";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_side_is_read_before_the_join_above_is_polled() {
    let tables = Tables::new().await;
    for enabled in ["always", "auto"] {
        let session = tables
            .horton(Place::Memory, &[("horton.enabled", enabled)])
            .await;
        let plan = plan(&session, QUERY).await.unwrap();
        let context = session.task_ctx();
        let count = plan.output_partitioning().partition_count();
        let streams: Vec<_> = (0..count)
            .map(|p| plan.execute(p, Arc::clone(&context)).unwrap())
            .collect();
        let read = || metric::<FilterExec>(&plan, "output_rows");
        for _ in 0..500 {
            if read() > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(read() > 0, "{enabled}");
        assert_eq!(metric::<HortonJoinExec>(&plan, "build_input_rows"), 0);
        drop(streams);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_side_that_nobody_takes_is_let_go() {
    let tables = Tables::new().await;
    let expected = run(&tables.stock(Place::Memory).await, QUERY).await.rows;
    let always = HortonConfig {
        enabled: Enabled::Always,
        ..HortonConfig::default()
    };
    let (pool, session) = pooled(&tables, always, false).await;
    // A sort between: its memory is reserved while the build side waits for its join.
    let sorted_build = QUERY.replace("WHERE v > 5", "ORDER BY s DESC LIMIT 400");
    for query in [QUERY, &sorted_build] {
        for asks_for_all in [false, true] {
            let plan = plan(&session, query).await.unwrap();
            let context = session.task_ctx();
            let count = plan.output_partitioning().partition_count();
            let asked = if asks_for_all { count } else { 1 };
            let streams: Vec<_> = (0..asked)
                .map(|p| plan.execute(p, Arc::clone(&context)).unwrap())
                .collect();
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(streams);
            // The node keeps its build for partitions that may be asked for.
            let plan = Some(plan).filter(|_| asks_for_all);
            given_back(&pool, &format!("{asked} of {count}: {query}")).await;
            drop(plan);
        }
    }
    assert_eq!(run(&session, QUERY).await.rows, expected);
}

/// Joins without joins below them stay on the host, however many rows they have.
#[derive(Debug)]
struct LowestStay;

impl PhysicalOptimizerRule for LowestStay {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            let Some(join) = HortonJoinExec::downcast(node.as_ref()) else {
                return Ok(Transformed::no(node));
            };
            if join.children().into_iter().any(has_join) {
                return Ok(Transformed::no(node));
            }
            let stays = HortonJoinExec::new(
                Arc::clone(join.stock()),
                HortonConfig {
                    min_build_rows: usize::MAX,
                    filters: Filters::Off,
                    ..HortonConfig::default()
                },
            );
            Ok(Transformed::yes(Arc::new(stays) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "lowest_stay"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn has_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    HortonJoinExec::downcast(plan.as_ref()).is_some() || plan.children().into_iter().any(has_join)
}

/// DataFusion's own join runs as one in all partitions, below a join that opens it late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_join_on_the_host_below_one_on_the_device_ends_without_our_filters() {
    let tables = Tables::new().await;
    for place in PLACES {
        let expected = run(&tables.stock(place).await, QUERY).await.rows;
        let options = [
            ("horton.filters", "off"),
            // More partitions than one of a small file.
            ("datafusion.optimizer.repartition_file_min_size", "0"),
        ];
        let state = tables.horton(place, &options).await.state();
        let mut builder = SessionStateBuilder::new_from_existing(state);
        let optimizer = builder.physical_optimizers().take().unwrap();
        let mut rules = optimizer.rules;
        let after = rules
            .iter()
            .position(|rule| rule.name() == "horton_replace_joins");
        rules.insert(after.unwrap() + 1, Arc::new(LowestStay));
        let state = builder.with_physical_optimizer_rules(rules).build();
        let found = run(&SessionContext::new_with_state(state), QUERY).await;
        assert_eq!(found.rows, expected, "{place:?}");
        assert!(launches(&found.plan) > 0);
        let places = |plan: &Arc<dyn ExecutionPlan>| {
            let mut places = Vec::new();
            let note = |node: &Arc<dyn ExecutionPlan>| {
                let join = HortonJoinExec::downcast(node.as_ref());
                places.extend(join.map(|join| join.device_name().is_some()));
                Ok(TreeNodeRecursion::Continue)
            };
            plan.apply(note).unwrap();
            places
        };
        // The join above, and the one below it.
        assert_eq!(places(&found.plan), [true, false]);
    }
}

/// The second input of a recursive query reads what its first left: it is not for others to open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joins_in_recursive_queries_are_not_opened_early() {
    let tables = Tables::new().await;
    let query = "WITH RECURSIVE r AS (SELECT k, 0 d FROM small WHERE v < 3 UNION ALL \
                 SELECT big.v % 200, d + 1 FROM r JOIN big ON big.k = r.k WHERE d < 2) \
                 SELECT o.v, x.k FROM other o \
                 JOIN (SELECT w.s, r.k FROM wide w JOIN r ON r.k = w.k) x ON o.s = x.s";
    for place in PLACES {
        let expected = run(&tables.stock(place).await, query).await.rows;
        for partitions in [1, 3] {
            let config = SessionConfig::new().with_target_partitions(partitions);
            let session = tables.horton_of(config, place, &[]).await;
            assert_eq!(run(&session, query).await.rows, expected, "{place:?}");
        }
    }
}
