//! An input of a stock join that is opened late, or whose keys are noted on their way.
//!
//! ```text
//!              HashJoinExec of one run
//!               /            \
//!  Tap: notes keys ─▶ Board   Tap: opened when first polled
//!        │                     │
//!  build side                 probe side ◀── filters
//! ```
//!
//! A join that stays on the host tells scans what one on the device does: its own dynamic filter
//! is one over all key columns, whose test costs more than the join. The keys are those arrays
//! that the stock join holds on to anyway.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::metrics::Time;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::StreamExt;

use crate::one_child::with_properties_of;

use super::early::{Opened, open};
use super::filter::{Board, Facts, Reporter};

/// One input of a stock join.
#[derive(Debug)]
pub struct Tap {
    /// The input.
    pub input: Arc<dyn ExecutionPlan>,
    /// Whether it is opened when it is first polled.
    pub opened_late: bool,
    /// Its stream, if it was opened early.
    pub opened: Option<Arc<Opened>>,
    /// Where its keys are told.
    pub keys: Option<KeyTap>,
}

/// What is noted of a build side.
#[derive(Debug, Clone)]
pub struct KeyTap {
    /// Key expressions over the build side.
    pub on: Vec<PhysicalExprRef>,
    /// Where they are told.
    pub board: Arc<Board>,
    /// What that takes.
    pub time: Time,
}

/// Keys noted so far.
struct Noting {
    stream: SendableRecordBatchStream,
    tap: KeyTap,
    reporter: Reporter,
    keys: Vec<Vec<ArrayRef>>,
    rows: usize,
}

impl Noting {
    async fn next(mut self) -> Option<(Result<RecordBatch>, Option<Self>)> {
        match self.stream.next().await {
            Some(Ok(batch)) => {
                let noted = self.note(&batch);
                Some((noted.map(|()| batch), Some(self)))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => {
                let facts = Facts {
                    rows: self.rows,
                    distinct: self.rows,
                    keys: self.keys,
                };
                let told = self.reporter.report(facts, &self.tap.time).await;
                told.err().map(|error| (Err(error.into()), None))
            }
        }
    }

    fn note(&mut self, batch: &RecordBatch) -> Result<()> {
        self.rows += batch.num_rows();
        let keys = evaluate_expressions_to_arrays(&self.tap.on, batch)?;
        self.keys.push(keys);
        Ok(())
    }
}

impl KeyTap {
    /// The build sides of the keys `on`, if they are columns. (DataFusion's planner computes other
    /// keys in a projection below; evaluated here, they would take memory of their own.)
    pub fn of(
        on: &[(PhysicalExprRef, PhysicalExprRef)],
        board: Arc<Board>,
        time: Time,
    ) -> Option<Self> {
        let on: Vec<PhysicalExprRef> = on.iter().map(|(left, _)| Arc::clone(left)).collect();
        let are_columns = on.iter().all(|key| key.downcast_ref::<Column>().is_some());
        are_columns.then_some(Self { on, board, time })
    }
}

impl Tap {
    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            opened_late: self.opened_late,
            opened: self.opened.clone(),
            keys: self.keys.clone(),
        }
    }
}

impl DisplayAs for Tap {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.input.fmt_as(t, f)
    }
}

impl ExecutionPlan for Tap {
    fn name(&self) -> &str {
        "Tap"
    }

    with_properties_of!(input);

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let stream = match self.opened.as_ref().and_then(|opened| opened.take()) {
            Some(stream) => stream,
            None => open(&self.input, partition, &context, self.opened_late)?,
        };
        let Some(tap) = &self.keys else {
            return Ok(stream);
        };
        let schema = stream.schema();
        let noting = Noting {
            stream,
            tap: tap.clone(),
            reporter: tap.board.reporter(partition),
            keys: Vec::new(),
            rows: 0,
        };
        let next = |noting: Option<Noting>| async move { noting?.next().await };
        let stream = futures::stream::unfold(Some(noting), next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}
