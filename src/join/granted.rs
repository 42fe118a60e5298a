//! A memory pool of what a join holds already.
//!
//! ```text
//!  HortonJoinBuild[0]: left rows ── 40 MiB: rows, and a hash table of them
//!          │ handed over
//!          ▼
//!  Granted ◀── HashJoinInput: try_grow(rows), try_grow(table)      never refused
//! ```
//!
//! DataFusion's join reserves its build side again while it reads it. Were the first reservation given
//! back for that, another consumer could take it in between, and a join whose rows are there would
//! fail. So its reservations are taken out of the one that is held. What its estimate is above ours
//! is asked of the query's pool, too, and not counted if that refuses: a pool over its limit would
//! refuse all others.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;

/// A pool that hands out a reservation of another.
#[derive(Debug)]
pub struct Granted {
    held: MemoryReservation,
    used: Mutex<usize>,
}

impl Granted {
    /// `context` with a pool that hands out `held`.
    ///
    /// # Errors
    /// If DataFusion cannot make the runtime environment.
    pub fn context(
        context: &Arc<TaskContext>,
        held: MemoryReservation,
    ) -> Result<Arc<TaskContext>> {
        let used = Mutex::new(0);
        let builder = RuntimeEnvBuilder::from_runtime_env(&context.runtime_env());
        let runtime = builder.with_memory_pool(Arc::new(Self { held, used }));
        Ok(Arc::new(TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone(),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            runtime.build_arc()?,
        )))
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl MemoryPool for Granted {
    fn name(&self) -> &str {
        "granted"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        let mut used = self.used();
        *used += additional;
        let _ = self.held.try_grow(used.saturating_sub(self.held.size()));
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        let mut used = self.used();
        *used -= shrink;
        let unused = self.held.size().saturating_sub(*used);
        self.held.shrink(shrink.min(unused));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.grow(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        *self.used()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Infinite
    }
}
