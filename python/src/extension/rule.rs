//! The optimizer rule that `datafusion` runs after its own.
//!
//! ```text
//!  plan of datafusion ─▶ each HashJoinExec, lower ones first ─▶ DeviceJoin
//!                                       └ cannot be copied   ─▶ stays           log: warn
//!  nodes above are made again; one that would lose its order ─▶ the plan stays  log: warn
//! ```
//!
//! Less is known of a node in another library: its order, and not which columns are equal. A node
//! that is made again above such an input may promise less than its parents count on.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{Result, plan_err};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};
use datafusion_ffi::execution_plan::ForeignExecutionPlan;
use log::warn;

use crate::runtime;

use super::device_join::DeviceJoin;
use super::guarded::guarded;
use super::session::Session;
use super::transcript::transcript;

/// The rule, for one session.
#[derive(Debug)]
pub struct JoinOnDevices(pub Arc<Session>);

impl JoinOnDevices {
    /// Returns `plan` with its joins on devices; `None` if it has none for them.
    fn with_joins(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let mut has_new = false;
        let mut inputs = Vec::new();
        for input in plan.children() {
            let new = self.with_joins(input)?;
            has_new |= new.is_some();
            inputs.push(new.unwrap_or_else(|| Arc::clone(input)));
        }
        let made = has_new.then(|| made_again(plan, inputs)).transpose()?;
        let node = made.as_ref().unwrap_or(plan);
        if node.name() != "HashJoinExec" || !node.is::<ForeignExecutionPlan>() || is_recursive(node)
        {
            return Ok(made);
        }
        match self.on_device(node) {
            Ok(Some(join)) => Ok(Some(Arc::new(join))),
            Ok(None) => Ok(made),
            Err(error) => {
                warn!("a join stays DataFusion's own: {}", error.strip_backtrace());
                Ok(made)
            }
        }
    }

    fn on_device(&self, node: &Arc<dyn ExecutionPlan>) -> Result<Option<DeviceJoin>> {
        let join = transcript(node, self.0.planner(), self.0.state())?;
        let Some(join) = join.downcast_ref::<HashJoinExec>() else {
            return plan_err!("a {} came back for it", join.name());
        };
        let made = DeviceJoin::new(join, &self.0)?;
        if let Some(made) = &made {
            check_promises(node, made)?;
        }
        Ok(made)
    }
}

/// Returns whether `node` reads what a recursive query has made so far. That is put into its plan
/// for each step, which a plan in two libraries does not allow.
fn is_recursive(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.name() == "WorkTableExec" || node.children().into_iter().any(is_recursive)
}

/// Returns `node` with new `inputs`.
fn made_again(
    node: &Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let made = Arc::clone(node).replace_children(inputs, options)?;
    check_promises(node, made.as_ref())?;
    Ok(made)
}

/// Checks that `made` promises what `node` does, as nodes above were planned for that.
fn check_promises(node: &Arc<dyn ExecutionPlan>, made: &dyn ExecutionPlan) -> Result<()> {
    let order = |node: &dyn ExecutionPlan| {
        let order = node.properties().output_ordering();
        order.map(ToString::to_string)
    };
    let partitions = |node: &dyn ExecutionPlan| {
        let partitioning = node.properties().output_partitioning();
        partitioning.partition_count()
    };
    let is_ordered = order(node.as_ref()).is_none_or(|promised| order(made) == Some(promised));
    if !is_ordered || partitions(made) != partitions(node.as_ref()) {
        return plan_err!("{} would lose its order or its partitions", node.name());
    }
    if made.schema() != node.schema() {
        return plan_err!("{} would have other columns", node.name());
    }
    Ok(())
}

impl PhysicalOptimizerRule for JoinOnDevices {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if self.0.is_off() {
            return Ok(plan);
        }
        // In a forked process no thread of ours would run the joins.
        if let Err(failure) = runtime::handle() {
            return plan_err!("{}", failure.text());
        }
        self.0.decisions().forget();
        match guarded(self.0.runtime(), || self.with_joins(&plan)) {
            Ok(made) => Ok(made.unwrap_or(plan)),
            Err(error) => {
                let reason = error.strip_backtrace();
                warn!("a query's joins stay DataFusion's own: {reason}");
                Ok(plan)
            }
        }
    }

    fn name(&self) -> &str {
        "horton_join_on_devices"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
