//! A query that can be run, as often as one likes.
//!
//! ```text
//!  Query::Frame   SQL of our session: planned again for each run, so it sees tables as they are
//!  Query::Plan    planned by another program: the same plan, without what earlier runs left in it
//! ```

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::dataframe::DataFrame;
use datafusion::execution::TaskContext;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::utils::COUNT_STAR_EXPANSION;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::lit;

use crate::failure::Failure;
use crate::run::{Decisions, Run};

/// A query.
#[derive(Debug, Clone)]
pub enum Query {
    /// One of our sessions.
    Frame(Box<DataFrame>),
    /// One that was planned elsewhere.
    Plan(Arc<dyn ExecutionPlan>, Arc<TaskContext>),
}

impl Query {
    /// Returns its columns.
    pub fn schema(&self) -> SchemaRef {
        match self {
            Self::Frame(frame) => Arc::clone(frame.schema().inner()),
            Self::Plan(plan, _) => plan.schema(),
        }
    }

    /// Returns the next run.
    pub async fn run(self, decisions: Decisions) -> Result<Run, Failure> {
        let (plan, task) = match self {
            Self::Frame(frame) => {
                let task = Arc::new(frame.task_ctx());
                (frame.create_physical_plan().await?, task)
            }
            Self::Plan(plan, task) => (reset_plan_states(plan)?, task),
        };
        Ok(Run {
            plan,
            task,
            decisions,
        })
    }

    /// Returns the query that counts this one's rows; `None` if it has a plan and cannot be
    /// changed.
    pub fn counted(&self) -> Result<Option<Self>, Failure> {
        let Self::Frame(frame) = self else {
            return Ok(None);
        };
        let rows = count(lit(COUNT_STAR_EXPANSION));
        let frame = frame.as_ref().clone().aggregate(Vec::new(), vec![rows])?;
        Ok(Some(Self::Frame(Box::new(frame))))
    }
}

/// Returns the number that a counting query gave.
pub fn counted(batches: &[RecordBatch]) -> Result<u64, Failure> {
    let counts = batches
        .iter()
        .filter_map(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
    let count = counts.flat_map(|counts| counts.values().first()).next();
    let count = count.and_then(|count| u64::try_from(*count).ok());
    count.ok_or_else(|| Failure::Query("internal error, please report it: no count".to_owned()))
}
