//! The time at which inputs of joins are opened: late for filters, early for other joins' build
//! sides.
//!
//! ```text
//!       Join A ── its filter reaches the scan ──┐    A executed:  opens B's build side already
//!       /    \                                  │    A built:     opens B
//!   build   Join B                              │    B built:     opens the scan
//!            /   \                              ▼
//!         build   scan ◀────────────────────────┘
//! ```
//!
//! An input that a filter reaches is opened when it is first polled, as filters are complete
//! then. Joins below it would open their build sides one after the other, and while each waits for
//! its files, cores are idle. So build sides that no filter reaches are opened together with the
//! first join above that opens an input late. A `CoalescePartitionsExec` starts to read then.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

use crate::plan_nodes::executes_inputs;

use super::exec::HortonJoinExec;
use super::execution::{Begun, Held};
use super::stream::with_stack;

/// Returns the rows of partition `partition` of `plan`, opened when they are first polled if
/// `late`.
///
/// # Errors
/// The errors of opening it.
pub fn open(
    plan: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: &Arc<TaskContext>,
    late: bool,
) -> Result<SendableRecordBatchStream> {
    let (plan, context) = (Arc::clone(plan), Arc::clone(context));
    if !late {
        return plan.execute(partition, context);
    }
    let schema = plan.schema();
    let opened = futures::stream::once(async move { plan.execute(partition, context) });
    let stream = RecordBatchStreamAdapter::new(schema, opened.try_flatten());
    Ok(Box::pin(stream))
}

/// The state of a join's build side once its early opening was tried.
pub enum OpeningBuild {
    /// It is opened with the join. This was begun for it.
    Waits(Begun),
    /// It was opened, for this execution.
    Opened(Held),
    /// The join has an execution already, begun for a join further above.
    AlreadyOpen,
}

/// Has `open` open the build sides of joins in `plan`, which is opened late, as far as no filter
/// reaches them. Scans that one reaches may be read ahead. Adds what has begun to `begun`. It ends
/// with the caller's execution.
///
/// # Errors
/// Those of `open`.
pub fn open_builds(
    plan: &Arc<dyn ExecutionPlan>,
    open: &dyn Fn(&HortonJoinExec) -> Result<OpeningBuild>,
    begun: &mut Begun,
) -> Result<()> {
    let join = HortonJoinExec::downcast(plan.as_ref());
    let build = match join {
        Some(join) => with_stack(|| open(join))?,
        None => OpeningBuild::Waits(Begun::default()),
    };
    match build {
        OpeningBuild::Waits(more) => {
            begun.runs.extend(more.runs);
            begun.scans.extend(more.scans);
        }
        OpeningBuild::Opened(run) => {
            begun.runs.push(run);
            return Ok(());
        }
        OpeningBuild::AlreadyOpen => return Ok(()),
    }
    if join.is_none() && !executes_inputs(plan.as_ref()) {
        return Ok(());
    }
    let mut children = plan.children().into_iter();
    children.try_for_each(|child| open_builds(child, open, begun))
}
