//! A memory pool that remembers the most that was reserved.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::common::Result;
use datafusion::execution::memory_pool::{
    GreedyMemoryPool, MemoryLimit, MemoryPool, MemoryReservation,
};

/// A pool with a limit, and its peak.
#[derive(Debug)]
pub struct PeakPool {
    pool: GreedyMemoryPool,
    peak: AtomicUsize,
}

impl PeakPool {
    /// A pool of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            pool: GreedyMemoryPool::new(bytes),
            peak: AtomicUsize::new(0),
        }
    }

    /// The most that was reserved at once.
    pub fn peak(&self) -> usize {
        self.peak.load(Ordering::Acquire)
    }

    fn note(&self) {
        self.peak.fetch_max(self.pool.reserved(), Ordering::AcqRel);
    }
}

impl fmt::Display for PeakPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pool)
    }
}

impl MemoryPool for PeakPool {
    fn name(&self) -> &str {
        "peak"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.pool.grow(reservation, additional);
        self.note();
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.pool.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.pool.try_grow(reservation, additional)?;
        self.note();
        Ok(())
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }
}
