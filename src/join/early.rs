//! When the inputs of joins are opened: late for filters, early for other joins' build sides.
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
//! then. Joins below it would open their build sides one after the other, and each waits for
//! files and for the cores it leaves idle. So build sides that no filter reaches are opened
//! together with the first join above that opens an input late. DataFusion's nodes that read
//! several partitions into one start to do so when they are opened.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

use super::HortonJoinExec;
use super::run::Held;

/// The rows of partition `partition` of `plan`, opened when they are first polled if `late`.
///
/// # Errors
/// Those of opening it.
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

/// A build side that was opened before its join was executed, until the join takes it.
#[derive(Default)]
pub struct Opened(Mutex<Option<SendableRecordBatchStream>>);

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opened")
    }
}

impl Opened {
    /// Keeps `stream` for the join.
    pub fn put(&self, stream: SendableRecordBatchStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    /// The stream, once.
    pub fn take(&self) -> Option<SendableRecordBatchStream> {
        let mut stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.take()
    }

    /// Whether a stream is kept.
    pub fn is_kept(&self) -> bool {
        let stream = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stream.is_some()
    }
}

/// What became of a join's build side.
pub enum Build {
    /// It is opened with the join.
    Waits,
    /// It was opened, for this execution.
    Opened(Held),
    /// A join further above had it opened, and all below.
    WasOpened,
}

/// Opens the build sides of joins in `plan`, which is opened late, as far as no filter reaches
/// them. Returns the joins' executions, which end with the caller's.
///
/// # Errors
/// Those of opening them.
pub fn open_builds(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Vec<Held>> {
    let mut held = Vec::new();
    visit(plan, context, &mut held)?;
    Ok(held)
}

fn visit(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
    held: &mut Vec<Held>,
) -> Result<()> {
    // A join that stays on the host is a `HashJoinExec` to `downcast_ref`.
    let join = (plan.as_ref() as &dyn Any).downcast_ref::<HortonJoinExec>();
    let build = match join {
        Some(join) => join.open_build(context)?,
        None => Build::Waits,
    };
    let executed = match build {
        Build::Waits => 0,
        Build::Opened(run) => {
            held.push(run);
            1
        }
        Build::WasOpened => return Ok(()),
    };
    let children = plan.children();
    let mut others = children.into_iter().skip(executed);
    others.try_for_each(|child| visit(child, context, held))
}
