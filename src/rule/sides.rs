//! Joins build the side that an aggregate with a HAVING makes small.
//!
//! ```text
//!      LeftSemi                          RightSemi
//!      /      \                          /       \
//!  6 M rows   Filter 20 %        ─▶   Filter     6 M rows ◀── the few keys reach these scans
//!             Aggregate               Aggregate
//! ```
//!
//! An aggregate keeps its groups until the last row came, and the filter above it is there to
//! leave few. Once they are built, their keys filter the other side; as the probe side they come
//! too late for that. `JoinSelection` compares bytes, which statistics of aggregates do not
//! have, so it leaves such a join as it was written. Here rows decide: those that statistics
//! expect of the aggregate, against those of the largest table of the other side. (What they
//! expect of a join over tables without statistics of columns is the rows of its smallest table.)
//! A side with a filter of its own stays: it may have few rows, whose keys are worth more to the
//! aggregate's scan.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::config::Filters;

use super::options;

/// The rule, to run after `JoinSelection`.
#[derive(Debug)]
pub struct BuildFilteredAggregates;

impl PhysicalOptimizerRule for BuildFilteredAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let is_on = options(config)
            .is_some_and(|horton| horton.filters == Filters::Auto && !horton.keep_partitions);
        if !is_on {
            return Ok(plan);
        }
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>() {
            Some(join) if swaps(join) => {
                let swapped = join.swap_inputs(*join.partition_mode())?;
                Ok(Transformed::yes(swapped))
            }
            _ => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "horton_build_filtered_aggregates"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn swaps(join: &HashJoinExec) -> bool {
    let (left, right) = (join.left(), join.right());
    // Once swapped, the keys of the aggregate must be allowed to filter the other side.
    let (_, filters_probe) = join.join_type().swap().on_lr_is_preserved();
    let can_swap = join.join_type().supports_swap()
        && filters_probe
        && !join.null_aware
        && *join.partition_mode() != PartitionMode::Auto
        && right.output_ordering().is_none();
    can_swap
        && is_filtered_aggregate(right, false)
        && !has_filter(left)
        && rows(right)
            .zip(largest_scan(left))
            .is_some_and(|(right, left)| right < left)
}

/// Whether some row of the tables below `plan` is left out by a filter or a LIMIT.
fn has_filter(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FilterExec>() || plan.fetch().is_some() || plan.children().into_iter().any(has_filter)
}

/// Whether `plan` is a filter over an aggregate, with nothing else that drops or adds rows.
fn is_filtered_aggregate(plan: &Arc<dyn ExecutionPlan>, filtered: bool) -> bool {
    if plan.is::<AggregateExec>() {
        return filtered;
    }
    let passes = plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<CoalescePartitionsExec>();
    match plan.children().as_slice() {
        [child] if passes => is_filtered_aggregate(child, filtered || plan.is::<FilterExec>()),
        _ => false,
    }
}

/// The rows that DataFusion's statistics expect.
fn rows(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let context = StatisticsContext::new();
    let statistics = context
        .compute(plan.as_ref(), &StatisticsArgs::new())
        .ok()?;
    statistics.num_rows.get_value().copied()
}

/// The rows of the largest scan below.
fn largest_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    match plan.children().is_empty() {
        true => rows(plan),
        false => plan.children().into_iter().filter_map(largest_scan).max(),
    }
}
