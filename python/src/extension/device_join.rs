//! A join of ours in a plan of `datafusion`.
//!
//! ```text
//!  datafusion ─ execute ─▶ DeviceJoin ─▶ HortonJoinExec      with our memory and options
//!  datafusion ─ name ─▶ the join's line in EXPLAIN           all else of a node is not asked for
//!  datafusion ─ children ─▶ ShownExec, not its own nodes     which it would make again (shown.rs)
//! ```
//!
//! `datafusion-ffi` gives our node a context without the session's memory limit, and without our
//! options. So the join has a context of its own, made of that one.

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, exec_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr,
    PlanProperties, ReplaceChildrenOptions,
};
use horton_join::{HortonJoinExec, on_device};

use super::decisions::Watched;
use super::guarded::{Guarded, guarded};
use super::session::Session;
use super::shown::ShownExec;

/// What all partitions of a join share.
#[derive(Debug)]
struct Started {
    /// `datafusion-ffi` makes one for each partition, and those of one build belong together.
    context: Arc<TaskContext>,
    watched: Arc<Watched>,
}

/// A join and the nodes of `datafusion` below it.
#[derive(Debug)]
pub struct DeviceJoin {
    name: String,
    join: Arc<dyn ExecutionPlan>,
    shown: Vec<Arc<dyn ExecutionPlan>>,
    session: Arc<Session>,
    started: OnceLock<Started>,
}

impl DeviceJoin {
    /// Returns `join` as one of ours; `None` if it has to stay DataFusion's, as where a key is
    /// random.
    ///
    /// # Errors
    /// If it does not take its inputs.
    pub fn new(join: &HashJoinExec, session: &Arc<Session>) -> Result<Option<Self>> {
        // Its filter belongs to the join that goes: scans in another library would not hear of it.
        let join: Arc<dyn ExecutionPlan> = Arc::new(join.builder().reset_state().build()?);
        let inputs: Vec<_> = join.children().into_iter().cloned().collect();
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let join = join.replace_children(session.inputs(&inputs), options)?;
        let join = on_device(join, session.config().options(), session.health())?;
        if HortonJoinExec::downcast(join.as_ref()).is_none() {
            return Ok(None);
        }
        let shown = inputs.iter().map(ShownExec::around).collect();
        Ok(Some(Self::of(join, shown, session)))
    }

    fn of(
        join: Arc<dyn ExecutionPlan>,
        shown: Vec<Arc<dyn ExecutionPlan>>,
        session: &Arc<Session>,
    ) -> Self {
        let line = DisplayableExecutionPlan::new(join.as_ref());
        let line = line.one_line().to_string();
        Self {
            name: line.trim_end().to_owned(),
            join,
            shown,
            session: Arc::clone(session),
            started: OnceLock::new(),
        }
    }
}

impl DisplayAs for DeviceJoin {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.join.fmt_as(t, f)
    }
}

impl ExecutionPlan for DeviceJoin {
    fn name(&self) -> &str {
        &self.name
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.join.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.shown.iter().collect()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.join.apply_expressions(f)
    }

    /// Returns a join that was not run yet. Its inputs stay: the children are there to be seen.
    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let join = Arc::clone(&self.join).reset_state()?;
        Ok(Arc::new(Self::of(join, self.shown.clone(), &self.session)))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        asked: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition >= self.properties().output_partitioning().partition_count() {
            return exec_err!("the join has no partition {partition}");
        }
        let runtime = self.session.runtime();
        let started = self.started.get_or_init(|| Started {
            context: self.session.context(&asked),
            watched: Arc::new(self.session.decisions().watch(&self.join)),
        });
        let stream = guarded(runtime, || {
            self.join.execute(partition, Arc::clone(&started.context))
        })?;
        Ok(Box::pin(Guarded::new(
            stream,
            runtime.clone(),
            Arc::clone(&started.watched),
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.join.metrics()
    }
}
