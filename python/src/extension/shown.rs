//! What EXPLAIN shows below a join of ours.
//!
//! ```text
//!  datafusion's node ─▶ ShownExec: its name and metrics, and those below
//! ```
//!
//! `datafusion-ffi` makes a plan again whenever it is copied, if a node of ours in there has
//! children of the host. Of a `RepartitionExec` there would be many then, each with a part of the
//! rows. Nodes that are all ours it leaves alone.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_ffi::execution_plan::ForeignExecutionPlan;

/// A node to be seen, not to be run.
#[derive(Debug)]
pub struct ShownExec {
    plan: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
}

impl ShownExec {
    /// Returns what is shown of `plan`. Joins of ours show themselves.
    pub fn around(plan: &Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        if !plan.is::<ForeignExecutionPlan>() {
            return Arc::clone(plan);
        }
        Arc::new(Self {
            plan: Arc::clone(plan),
            children: plan.children().into_iter().map(Self::around).collect(),
        })
    }
}

impl DisplayAs for ShownExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())
    }
}

impl ExecutionPlan for ShownExec {
    fn name(&self) -> &str {
        self.plan.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("{} is shown, and run by the join above", self.name())
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.plan.metrics()
    }
}
