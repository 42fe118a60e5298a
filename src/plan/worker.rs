//! Plans that a coordinator made, on the worker that runs them.
//!
//! ```text
//!  coordinator:  SQL ─▶ DataFusion's plan ─▶ stages, sent to workers         no rule of this crate
//!  worker:       a stage ─▶ on_device ─▶ its HashJoinExecs are HortonJoinExecs ─▶ run
//! ```
//!
//! Coordinators cut a plan where rows must change places, and send `HashJoinExec` as it is. So a
//! join changes its engine on the worker, and only there. Sides stay as planned: a task has a slice
//! of the rows, and which slice depends on the side that the coordinator builds. The nodes stay as
//! they are, too, since coordinators pair the metrics of a worker with their own plan. So scans
//! prune files by the filters of joins, but leave no rows out.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, config_err};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use crate::config::{Enabled, HortonConfig};
use crate::device_health::Health;

use crate::join::exec::HortonJoinExec;

use super::filters::{guarded, remove_unused};
use super::joins::replace_joins;

/// Returns `plan`, which another process or program planned, with its hash joins on the device.
///
/// ```text
///  stage of a coordinator ─▶ on_device ─▶ the same nodes, HortonJoinExec for HashJoinExec
/// ```
///
/// For workers of distributed engines, whose sessions plan nothing. The options are those under
/// `horton.` in `options`, or the defaults where the session has none. `health` is the worker's:
/// options arrive again with each task, and a device that failed should not be tried by all of
/// them.
///
/// Joins build the side that was planned. `auto` compares the rows of each build with
/// `horton.min_build_rows`, and a worker's build has the rows of its task: a slice, if the rows
/// were partitioned. That is what a device must earn the cost of its calls with.
///
/// ```
/// use datafusion::physical_plan::collect;
/// use datafusion::prelude::SessionContext;
/// use horton_join::config::HortonConfig;
/// use horton_join::{Health, HortonJoinExec, on_device, warm_up_for};
///
/// # #[tokio::main]
/// # async fn main() -> datafusion::error::Result<()> {
/// // When the worker starts.
/// let health = Health::default();
/// if let Err(reason) = warm_up_for(&HortonConfig::default()).await {
///     println!("joins run on the host: {reason}");
/// }
/// // For each task.
/// let session = SessionContext::new();
/// let join = "SELECT a.value FROM range(0, 9) a JOIN range(4, 20) b ON a.value = b.value";
/// let plan = session.sql(join).await?.create_physical_plan().await?;
/// let plan = on_device(plan, session.state().config_options(), &health)?;
/// assert_eq!(HortonJoinExec::all_in(&plan).len(), 1);
/// let rows: usize = collect(plan, session.task_ctx()).await?.iter().map(|b| b.num_rows()).sum();
/// assert_eq!(rows, 5);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the plan comes from a session with the rules of [`install`](crate::install). Its joins have
/// no build side yet, and a task with slices of both sides would lose rows.
///
/// See also: [`warm_up_for`](crate::warm_up_for), to be called when the worker starts.
pub fn on_device(
    plan: Arc<dyn ExecutionPlan>,
    options: &ConfigOptions,
    health: &Health,
) -> Result<Arc<dyn ExecutionPlan>> {
    check_sides(&plan)?;
    let given = options.extensions.get::<HortonConfig>().cloned();
    let horton = HortonConfig {
        health: health.clone(),
        ..given.unwrap_or_default()
    };
    if horton.enabled == Enabled::Never {
        return Ok(plan);
    }
    let has_filters = has_filters(&plan)?;
    let plan = replace_joins(plan, &horton)?;
    if !has_filters {
        return Ok(plan);
    }
    let plan = FilterPushdown::new_post_optimization().optimize(guarded(plan, false)?, options)?;
    remove_unused(plan, &HashSet::new())
}

/// Returns whether the coordinator handed filters of joins to scans. They belong to the joins that
/// go; those that come make their own.
fn has_filters(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        let join = node.downcast_ref::<HashJoinExec>();
        found |= join.is_some_and(|join| !join.dynamic_expressions_produced().is_empty());
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Checks that every join has its sides.
fn check_sides(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut is_open = false;
    plan.apply(|node| {
        // An open join is no HashJoinExec to others.
        let stock = HortonJoinExec::downcast(node.as_ref()).map(|join| join.stock().as_ref());
        let join = stock.or_else(|| node.downcast_ref::<HashJoinExec>());
        is_open |= join.is_some_and(|join| *join.partition_mode() == PartitionMode::Auto);
        Ok(TreeNodeRecursion::Continue)
    })?;
    if is_open {
        return config_err!(
            "a join of this task has no build side (PartitionMode::Auto), as its coordinator's \
             session has the rules of horton_join::install: leave that call out there, and add \
             the options alone, with_option_extension(HortonConfig::default())"
        );
    }
    Ok(())
}
