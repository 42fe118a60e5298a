//! One run of a query: its plan, and the decisions of its joins once it is over.
//!
//! ```text
//!  Run { plan } ─ execute ─▶ rows
//!    └ dropped, at the end or midway ─▶ Decisions: where each join ran      (the plan is freed)
//! ```
//!
//! A plan keeps what its joins have read. So it is not kept for what it shows.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;

use crate::decision::JoinDecision;
use crate::failure::Failure;

/// The decisions of the last run's joins; shared by a frame and its runs.
#[derive(Debug, Clone, Default)]
pub struct Decisions(Arc<Mutex<Vec<JoinDecision>>>);

impl Decisions {
    /// Returns the decisions.
    pub fn all(&self) -> Vec<JoinDecision> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.clone()
    }
}

/// A plan that is run once.
#[derive(Debug)]
pub struct Run {
    /// The plan.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The context that it runs with: memory, options.
    pub task: Arc<TaskContext>,
    /// The place where its decisions go.
    pub decisions: Decisions,
}

impl Run {
    /// Starts it.
    pub fn start(&self) -> Result<SendableRecordBatchStream, Failure> {
        let stream = execute_stream(Arc::clone(&self.plan), Arc::clone(&self.task))?;
        Ok(stream)
    }

    /// Runs it until it has `rows` rows.
    pub async fn rows(&self, rows: usize) -> Result<Vec<RecordBatch>, Failure> {
        let mut stream = self.start()?;
        let (mut batches, mut taken) = (Vec::new(), 0);
        while taken < rows {
            let Some(batch) = stream.next().await else {
                break;
            };
            let batch = batch?;
            taken += batch.num_rows();
            batches.push(batch);
        }
        Ok(batches)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let decisions = JoinDecision::all_in(&self.plan);
        let mut all = self
            .decisions
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *all = decisions;
    }
}
