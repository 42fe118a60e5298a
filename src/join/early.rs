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
//! then. Joins below it would open their build sides one after the other, and while each waits for
//! its files, cores are idle. So build sides that no filter reaches are opened together with the
//! first join above that opens an input late. A `CoalescePartitionsExec` starts to read then.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
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

/// A build side that is opened before its join is executed.
#[derive(Default)]
pub struct Opened(Mutex<Place>);

#[derive(Default)]
enum Place {
    /// The join opens it.
    #[default]
    Unused,
    /// It waits for the join.
    Kept(SendableRecordBatchStream),
    /// The join has it.
    Taken,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opened")
    }
}

impl Opened {
    /// Keeps `stream` for the join.
    pub fn put(&self, stream: SendableRecordBatchStream) {
        *self.place() = Place::Kept(stream);
    }

    /// The stream, once.
    pub fn take(&self) -> Option<SendableRecordBatchStream> {
        let mut place = self.place();
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Kept(stream) => Some(stream),
            Place::Taken => None,
            Place::Unused => {
                *place = Place::Unused;
                None
            }
        }
    }

    /// Whether a stream was put here, taken or not.
    pub fn is_used(&self) -> bool {
        !matches!(*self.place(), Place::Unused)
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a join's build side.
pub enum Build {
    /// It is opened with the join.
    Waits,
    /// It was opened, for this execution.
    Opened(Held),
    /// The join has an execution already, begun for a join further above.
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
    if !executes_inputs(plan.as_ref()) {
        return Ok(());
    }
    let children = plan.children();
    let mut others = children.into_iter().skip(executed);
    others.try_for_each(|child| visit(child, context, held))
}

/// Whether `node` is known to execute its inputs themselves, once. (A recursive query executes
/// copies of its second one, which read what the first left.)
fn executes_inputs(node: &dyn ExecutionPlan) -> bool {
    node.is::<HashJoinExec>()
        || node.is::<HortonJoinExec>()
        || node.is::<AggregateExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
}
