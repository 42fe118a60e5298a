//! An input of a join that stays in `datafusion`.
//!
//! ```text
//!  HortonJoinExec ─▶ HostInput ─ execute ─▶ the node over there, in a context from over there
//! ```
//!
//! A leaf here, so that no rule of ours looks into the other library's plan.
//!
//! A panic over there would end the process, as C has none. `RepartitionExec` panics where a
//! partition is asked for again. So that is an error before it comes to this.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_ffi::execution::FFI_TaskContextProvider;
use datafusion_ffi::execution_plan::ForeignExecutionPlan;

use super::host;

/// The input.
#[derive(Debug)]
pub struct HostInput {
    plan: Arc<dyn ExecutionPlan>,
    contexts: FFI_TaskContextProvider,
    /// The partitions that were asked for, if that may be done once.
    asked: Option<Mutex<HashSet<usize>>>,
}

/// Returns whether a partition of `plan` may be asked for once only.
fn runs_once(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.name() == "RepartitionExec" || plan.children().into_iter().any(runs_once)
}

impl HostInput {
    /// Returns `plan` as an input.
    pub fn new(plan: Arc<dyn ExecutionPlan>, contexts: FFI_TaskContextProvider) -> Self {
        let asked = runs_once(&plan).then(Mutex::default);
        Self {
            plan,
            contexts,
            asked,
        }
    }

    /// Notes that `partition` is asked for.
    ///
    /// # Errors
    /// If it was before, and must not be.
    fn note(&self, partition: usize) -> Result<()> {
        let Some(asked) = &self.asked else {
            return Ok(());
        };
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !asked.insert(partition) {
            return exec_err!(
                "this plan was run before, and a RepartitionExec of it cannot run again: \
                 plan the query again, as DataFrame.execution_plan does"
            );
        }
        Ok(())
    }
}

impl DisplayAs for HostInput {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostInput: {}", self.plan.name())
    }
}

impl ExecutionPlan for HostInput {
    fn name(&self) -> &str {
        "HostInput"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
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

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.note(partition)?;
        let is_foreign = self.plan.is::<ForeignExecutionPlan>();
        match host::context(&self.contexts).filter(|_| is_foreign) {
            Some(context) => host::run(&self.plan, partition, context),
            // A join of ours, or the session is gone: its context is not to be had any more.
            None => self.plan.execute(partition, context),
        }
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        StatisticsContext::new().compute(self.plan.as_ref(), args)
    }
}
