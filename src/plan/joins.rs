//! The two optimizer rules that put [`HortonJoinExec`] in the place of `HashJoinExec`.
//!
//! ```text
//!  JoinSelection ─▶ ReplaceSwappableJoins ─▶ … ─▶ ReplaceJoins ─▶ FilterPushdown(Post) ─▶ …
//!                   joins of which either         all others,
//!                   side may be built             as planned
//! ```
//!
//! Nothing is estimated here: which side is built, and whether on the device, is chosen with the
//! rows at hand ([`sides`](crate::join::sides), [`prepare`](crate::join::prepare)). Joins whose
//! sides are open ask for no distribution of their inputs, so the first rule runs before DataFusion
//! plans repartitions. Joins whose sides are fixed stay `HashJoinExec`s until then, as rules about
//! order and keys look for those. The second rule comes just before dynamic filters are handed out.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;

use crate::config::HortonConfig;
use crate::device_startup;
use crate::join::exec::HortonJoinExec;
use crate::join::sides::can_swap;
use crate::join::steps::is_small_step;
use crate::scan::short_circuit::{by_row, depends_on_batch};

use super::enabled::replaces_joins;

/// Replaces the joins of `plan` that `convert` makes nodes of, and has the device made ready if
/// there are any.
fn replace(
    plan: Arc<dyn ExecutionPlan>,
    horton: &HortonConfig,
    convert: impl Fn(&HashJoinExec) -> Result<Option<HortonJoinExec>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        // A join that was replaced is seen as the one it stands for.
        let is_replaced = HortonJoinExec::downcast(node.as_ref()).is_some();
        let join = node.downcast_ref::<HashJoinExec>();
        let join = join.filter(|join| !is_replaced && !draws_at_random(join));
        let join = match join {
            Some(join) if depends_on_its_batches(join)? => None,
            join => join,
        };
        let Some(exec) = join.map(&convert).transpose()?.flatten() else {
            return Ok(Transformed::no(node));
        };
        Ok(Transformed::yes(Arc::new(exec) as Arc<dyn ExecutionPlan>))
    })?;
    if plan.transformed {
        device_startup::begin(horton);
    }
    Ok(plan).data()
}

/// Returns whether `join` evaluates an expression that differs from one evaluation to the next. A
/// join of this crate may evaluate keys and residual filters more than once: for filters, for spill
/// partitions, after a device failed. So such a join stays DataFusion's own.
fn draws_at_random(join: &HashJoinExec) -> bool {
    let keys = join.on().iter().flat_map(|(left, right)| [left, right]);
    let residual = join.filter().map(|filter| filter.expression());
    keys.chain(residual).any(is_volatile)
}

/// Returns whether a key or the residual filter of `join` depends on the batch
/// ([`depends_on_batch`]), even if AND and OR are evaluated row by row. The batches of a join of
/// this crate are not those of `HashJoinExec`, so such a join stays DataFusion's own.
fn depends_on_its_batches(join: &HashJoinExec) -> Result<bool> {
    let schemas = [join.left().schema(), join.right().schema()];
    let mut keys = join.on().iter().map(|(left, right)| [left, right]);
    if keys.any(|keys| (keys.iter().zip(&schemas)).any(|(key, of)| depends_on_batch(key, of))) {
        return Ok(true);
    }
    let Some(residual) = join.filter() else {
        return Ok(false);
    };
    let condition = by_row(residual.expression(), residual.schema())?;
    Ok(depends_on_batch(&condition, residual.schema()))
}

/// Returns `plan` with its joins replaced, their sides as planned.
///
/// # Errors
/// If a node of the plan does not take its new inputs.
pub fn replace_joins(
    plan: Arc<dyn ExecutionPlan>,
    horton: &HortonConfig,
) -> Result<Arc<dyn ExecutionPlan>> {
    // A filter that the join brings along is none that this one sets.
    replace(plan, horton, |join| {
        let stock = Arc::new(join.builder().reset_state().build()?);
        Ok(Some(HortonJoinExec::new(stock, horton.clone())))
    })
}

/// Rule 1: joins of which either side may be built, to be chosen when they run.
#[derive(Debug)]
pub struct ReplaceSwappableJoins;

impl PhysicalOptimizerRule for ReplaceSwappableJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(horton) = replaces_joins(config) else {
            return Ok(plan);
        };
        replace(plan, horton, |join| {
            if can_swap(join) && !is_small_step(join) {
                HortonJoinExec::open(join, horton.clone()).map(Some)
            } else {
                Ok(None)
            }
        })
    }

    fn name(&self) -> &str {
        "horton_replace_swappable_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Rule 2: all other joins, with their sides as planned.
#[derive(Debug)]
pub struct ReplaceJoins;

impl PhysicalOptimizerRule for ReplaceJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match replaces_joins(config) {
            Some(horton) => replace_joins(plan, horton),
            None => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "horton_replace_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
