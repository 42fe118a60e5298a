//! An input whose partitions wait for each other.
//!
//! ```text
//!  partition 0 ── polled, waits ──┐
//!  partition 1 ── polled, waits ──┼─ all are polled ──▶ rows of each
//!  partition 2 ──────── polled ───┘
//! ```
//!
//! A `HashJoinExec` that makes a dynamic filter is one: its partitions wait until each has reported
//! its bounds. Whoever reads some partitions to their end before it polls the others never ends.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};
use futures::TryStreamExt;
use tokio::sync::watch;

/// The rows of its input, once all partitions are polled or dropped.
#[derive(Debug)]
pub struct GatherExec {
    input: Arc<dyn ExecutionPlan>,
    /// Says of each partition whether it was polled.
    polled: watch::Sender<Vec<bool>>,
}

impl GatherExec {
    pub fn over(input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let partitions = input.output_partitioning().partition_count();
        let polled = watch::Sender::new(vec![false; partitions]);
        Arc::new(Self { input, polled })
    }
}

/// The place of a stream, which nobody waits for once it is polled or dropped.
struct Place {
    polled: watch::Sender<Vec<bool>>,
    partition: usize,
}

impl Place {
    fn note(&self) {
        let polled = |polled: &mut Vec<bool>| polled[self.partition] = true;
        self.polled.send_modify(polled);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.note();
    }
}

impl DisplayAs for GatherExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatherExec")
    }
}

impl ExecutionPlan for GatherExec {
    fn name(&self) -> &str {
        "GatherExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Self::over(Arc::clone(&children[0])))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let stream = self.input.execute(partition, context)?;
        let schema = stream.schema();
        let place = Place {
            polled: self.polled.clone(),
            partition,
        };
        let gathered = async move {
            place.note();
            let all = |polled: &Vec<bool>| polled.iter().all(|is_polled| *is_polled);
            // The sender lives in the place.
            let _ = place.polled.subscribe().wait_for(all).await;
            Ok::<_, DataFusionError>(stream)
        };
        let rows = futures::stream::once(gathered).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}
