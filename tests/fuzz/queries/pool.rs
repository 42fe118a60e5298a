//! A memory pool that limits all but repartitions.
//!
//! A `RepartitionExec` that spills can wait for ever (apache/datafusion#24883), with DataFusion's
//! joins as well as with ours. Such a query says nothing about either, so no repartition is made to
//! spill here. What it takes is not counted.

use datafusion::error::Result;
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation,
};

/// A [`GreedyMemoryPool`] for all operators but `RepartitionExec`.
#[derive(Debug)]
pub struct Pool(GreedyMemoryPool);

impl Pool {
    /// Returns a pool of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self(GreedyMemoryPool::new(bytes))
    }
}

fn is_counted(reservation: &MemoryReservation) -> bool {
    !reservation.consumer().name().starts_with("Repartition")
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &str {
        "all but repartitions"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.0.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.0.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        if is_counted(reservation) {
            self.0.grow(reservation, additional);
        }
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        if is_counted(reservation) {
            self.0.shrink(reservation, shrink);
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if is_counted(reservation) {
            self.0.try_grow(reservation, additional)?;
        }
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.0.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.0.memory_limit()
    }
}
