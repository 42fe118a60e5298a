//! The plans of a statement, kept while it runs.
//!
//! ```text
//!  statement ─▶ logical plan ─▶ Watch ─▶ physical plan ─▶ rows
//!                                 └─ keeps it: rows read so far, where joins ran
//! ```
//!
//! A query planner sees every plan that is about to run, also those under `CREATE TABLE AS` and
//! `COPY`, which the session runs by itself. Plans are let go with their statement, as a join can
//! hold memory as long as its plan is there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

type Plans = Vec<Arc<dyn ExecutionPlan>>;

/// The plans of the statement that runs. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Watch(Arc<Mutex<Plans>>);

impl Watch {
    /// Returns the plans, and keeps them no longer.
    pub fn take(&self) -> Plans {
        std::mem::take(&mut *self.lock())
    }

    /// Returns the rows that have been read so far, as far as scans count them.
    pub fn rows_read(&self) -> usize {
        // Not under the lock: a planner need not wait for the sum.
        let plans = self.lock().clone();
        plans.iter().map(rows_of_leaves).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Plans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rows_of_leaves(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let children = plan.children();
    if children.is_empty() {
        let metrics = plan.metrics();
        return metrics
            .and_then(|metrics| metrics.output_rows())
            .unwrap_or(0);
    }
    children.into_iter().map(rows_of_leaves).sum()
}

#[async_trait]
impl QueryPlanner for Watch {
    async fn create_physical_plan(
        &self,
        logical_plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::default();
        let plan = planner.create_physical_plan(logical_plan, session).await?;
        self.lock().push(Arc::clone(&plan));
        Ok(plan)
    }
}
