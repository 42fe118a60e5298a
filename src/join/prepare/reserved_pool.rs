//! A memory pool of what a join holds already.
//!
//! ```text
//!  HortonJoinBuild[0]: left rows ── 40 MiB: rows, and a hash table of them
//!          │ handed over
//!          ▼
//!  ReservedPool ◀── HashJoinInput: try_grow(rows), try_grow(table)      never refused
//! ```
//!
//! DataFusion's join reserves its build side again while it reads it. Were the first reservation
//! given back for that, another consumer could take it in between, and a join whose rows are there
//! would fail. So its reservations are taken out of the one that is held. Where its estimate is
//! above ours, the query's pool is asked for the rest. If that refuses, the rest is not counted, as
//! a pool over its limit would refuse all others.
//!
//! The sort of a join that went to disk is granted its first bytes in that way, and asks for the
//! rest ([`ReservedPool::sort_context`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionConfig;

use crate::join::memory::FALLBACK_BYTES;

/// A pool that hands out a reservation of another.
#[derive(Debug)]
pub struct ReservedPool {
    held: MemoryReservation,
    used: Mutex<usize>,
    /// Bytes up to which nothing is refused.
    floor: usize,
}

impl ReservedPool {
    /// Returns `context` with a pool that hands out `held`.
    ///
    /// # Errors
    /// If DataFusion cannot make the runtime environment.
    pub fn context(
        context: &Arc<TaskContext>,
        held: MemoryReservation,
    ) -> Result<Arc<TaskContext>> {
        let config = context.session_config().clone();
        Self::new(usize::MAX, held).within(context, config)
    }

    /// Returns `context` for a sort: with a pool that grants [`FALLBACK_BYTES`], and hands out
    /// `held` as far as the query's pool lets that grow.
    ///
    /// # Errors
    /// If DataFusion cannot make the runtime environment.
    pub fn sort_context(
        context: &Arc<TaskContext>,
        held: MemoryReservation,
    ) -> Result<Arc<TaskContext>> {
        let mut config = context.session_config().clone();
        let execution = &mut config.options_mut().execution;
        // What a sort takes before its first row: it must find room for rows then.
        let for_merges = execution
            .sort_spill_reservation_bytes
            .min(FALLBACK_BYTES / 2);
        execution.sort_spill_reservation_bytes = for_merges;
        Self::new(FALLBACK_BYTES, held).within(context, config)
    }

    fn new(floor: usize, held: MemoryReservation) -> Self {
        let used = Mutex::new(0);
        Self { held, used, floor }
    }

    /// Returns `context` with this pool and other `config`. It knows no functions: those are for
    /// plans that are decoded, and to copy them takes longer than a small join.
    fn within(self, context: &Arc<TaskContext>, config: SessionConfig) -> Result<Arc<TaskContext>> {
        let builder = RuntimeEnvBuilder::from_runtime_env(&context.runtime_env());
        let runtime = builder.with_memory_pool(Arc::new(self));
        Ok(Arc::new(TaskContext::new(
            context.task_id(),
            context.session_id(),
            config,
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            HashMap::new(),
            runtime.build_arc()?,
        )))
    }

    fn used(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for ReservedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl MemoryPool for ReservedPool {
    fn name(&self) -> &str {
        "reserved"
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

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<()> {
        let mut used = self.used();
        let wanted = *used + additional;
        let more = wanted.saturating_sub(self.held.size());
        match self.held.try_grow(more) {
            Err(error) if wanted > self.floor => return Err(error),
            _ => *used = wanted,
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        *self.used()
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Infinite
    }
}
