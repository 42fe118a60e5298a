//! Pairs of spill partitions that streams have yet to join.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

use super::partition::PartitionPair;

/// The pairs of all streams, or the one error of partitioning.
pub type PairQueues = Result<Arc<Vec<PairQueue>>, Arc<Error>>;

/// Pairs that a stream has still to join.
pub struct PairQueue(Mutex<Vec<PartitionPair>>);

impl PairQueue {
    /// Returns a queue of these pairs. The last is taken first.
    pub fn new(pairs: Vec<PartitionPair>) -> Self {
        Self(Mutex::new(pairs))
    }

    /// Adds smaller pairs of one that was too large.
    pub fn extend(&self, pairs: Vec<PartitionPair>) {
        self.lock().extend(pairs);
    }

    /// Takes the next pair.
    pub fn take(&self) -> Option<PartitionPair> {
        self.lock().pop()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PartitionPair>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
