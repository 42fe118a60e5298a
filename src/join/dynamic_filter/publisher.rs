//! The execution of a join that may set its filters.
//!
//! ```text
//!  one begins:   filters let everything through again
//!  one ends:     the sets that its filters point to are emptied
//!  two at once:  filters let everything through, as neither can tell whose scan asks
//! ```
//!
//! Dynamic filters are objects of the plan, not of an execution, and a plan can be executed more
//! than once. So a join counts its executions, with those of nodes that have the same filters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};

use futures::future::BoxFuture;
use tokio::task::JoinSet;

use crate::keys::membership::FilterHandle;

/// Publishes the filters of one execution of a join, and keeps the sets that they point to.
#[derive(Debug)]
pub struct FilterPublisher {
    /// The number of executions of the join.
    executions: Arc<Mutex<usize>>,
    /// The sets of the filters that it has set.
    published: Mutex<Vec<Arc<FilterHandle>>>,
    /// Builds that go on although nobody may poll their streams. They end with the execution.
    builds: Mutex<JoinSet<()>>,
}

impl FilterPublisher {
    /// Begins one more of the `executions` of a join, and sets `filters` back.
    ///
    /// # Errors
    /// If a filter cannot be set back.
    pub fn begin(
        executions: &Arc<Mutex<usize>>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
    ) -> Result<Arc<Self>> {
        let publisher = Arc::new(Self {
            executions: Arc::clone(executions),
            published: Mutex::default(),
            builds: Mutex::default(),
        });
        let mut alive = lock(executions);
        *alive += 1;
        for filter in filters {
            filter.update(lit(true))?;
        }
        Ok(publisher)
    }

    /// Has `builds` go on, each as a task.
    pub fn drive(&self, builds: impl IntoIterator<Item = BoxFuture<'static, ()>>) {
        let mut tasks = lock(&self.builds);
        for build in builds {
            tasks.spawn(build);
        }
    }

    /// Sets `filter` to `predicate`, which tests the sets in `slots`, unless another execution
    /// could mistake it for its own.
    ///
    /// # Errors
    /// If the filter cannot be set.
    pub fn publish(
        &self,
        filter: &DynamicFilterPhysicalExpr,
        predicate: PhysicalExprRef,
        slots: impl IntoIterator<Item = Arc<FilterHandle>>,
    ) -> Result<()> {
        // No execution begins while this is held.
        let alive = lock(&self.executions);
        if *alive == 1 {
            filter.update(predicate)?;
            lock(&self.published).extend(slots);
        }
        Ok(())
    }
}

impl Drop for FilterPublisher {
    fn drop(&mut self) {
        *lock(&self.executions) -= 1;
        lock(&self.published).iter().for_each(|slot| slot.clear());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
