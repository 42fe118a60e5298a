//! Pairs of spill partitions that streams have yet to join.
//!
//! ```text
//!  PairQueue: pairs [p4 p3 p2], begun p1 ─┬─ stream 0 takes part 2 of p1
//!                                         └─ stream 1 takes part 3 of p1, then begins p2
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::execution::SendableRecordBatchStream;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use crate::error::{Error, Result};
use crate::join::prepare::PreparedJoin;

use super::partition::PartitionPair;

/// The pairs of all streams, or the one error of partitioning.
pub type Lanes = Result<Arc<Vec<PairQueue>>, Arc<Error>>;

/// Pairs that are still to be joined. Streams share one queue, or have one each.
#[derive(Default)]
pub struct PairQueue(Mutex<QueueState>);

/// The pairs that a queue's streams take next.
#[derive(Default)]
struct QueueState {
    /// The last is taken first.
    pairs: Vec<PartitionPair>,
    /// A pair of which parts of the probe side are left, and the first of those. It stays here
    /// until all are taken: a stream that took one may be dropped.
    begun: Option<(Arc<PairInProgress>, usize)>,
}

/// A pair that streams join together, each a part of its probe side.
pub struct PairInProgress {
    parts: usize,
    rows: Shared<BoxFuture<'static, Result<Arc<PairRows>, Arc<Error>>>>,
}

/// The rows of a pair.
pub enum PairRows {
    /// There are none.
    None,
    /// They come of smaller pairs, for the stream that takes these first.
    Split(Mutex<Vec<PartitionPair>>),
    /// All of them.
    All(Mutex<Option<SendableRecordBatchStream>>),
    /// The rows of each part, while the pair's memory is held.
    Parts(
        PreparedJoin,
        #[expect(dead_code, reason = "its rows are reserved while it is there")] PartitionPair,
    ),
}

impl PairRows {
    /// Returns the rows of a pair that one stream joins.
    pub fn all(rows: SendableRecordBatchStream) -> Self {
        PairRows::All(Mutex::new(Some(rows)))
    }
}

impl PairInProgress {
    /// Returns a pair of which streams take `parts` parts of what `join` makes. It stays in a
    /// queue, so that `join` must hold none.
    pub fn new(
        parts: usize,
        join: impl Future<Output = Result<PairRows>> + Send + 'static,
    ) -> Self {
        let rows = async move { join.await.map(Arc::new).map_err(Arc::new) };
        let rows = rows.boxed().shared();
        Self { parts, rows }
    }

    /// Waits for the pair's rows until they can be read.
    ///
    /// # Errors
    /// The one of joining the pair, for each stream that takes a part.
    pub async fn rows(&self) -> Result<Arc<PairRows>, Arc<Error>> {
        self.rows.clone().await
    }
}

impl PairQueue {
    /// Returns a queue of these pairs.
    pub fn of(pairs: Vec<PartitionPair>) -> Self {
        let begun = None;
        Self(Mutex::new(QueueState { pairs, begun }))
    }

    /// Adds smaller pairs of one that was too large.
    pub fn extend(&self, pairs: Vec<PartitionPair>) {
        self.lock().pairs.extend(pairs);
    }

    /// Returns the next part of a pair, and its number. `begin` begins a pair of which no part was
    /// taken.
    pub fn take(
        &self,
        begin: impl FnOnce(PartitionPair) -> PairInProgress,
    ) -> Option<(Arc<PairInProgress>, usize)> {
        let mut waiting = self.lock();
        let (begun, part) = match waiting.begun.take() {
            Some(begun) => begun,
            None => (Arc::new(begin(waiting.pairs.pop()?)), 0),
        };
        if part + 1 < begun.parts {
            waiting.begun = Some((Arc::clone(&begun), part + 1));
        }
        Some((begun, part))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::join::spill::partition::SpillPartition;

    use super::*;

    fn pair() -> PartitionPair {
        let partition = || {
            Arc::new(SpillPartition {
                rows: 0,
                bytes: 0,
                kept: None,
                file: None,
            })
        };
        PartitionPair::new(partition(), partition(), 0)
    }

    #[tokio::test]
    async fn parts_stay_for_others_when_the_stream_that_began_their_pair_is_dropped() {
        let begun = AtomicUsize::new(0);
        let begin = |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            PairInProgress::new(3, async { Ok(PairRows::None) })
        };
        let lane = PairQueue::of(vec![pair()]);
        let (first, part) = lane.take(begin).unwrap();
        assert_eq!(part, 0);
        // Left in the middle of a poll, and dropped.
        drop(futures::poll!(Box::pin(first.rows())));
        drop(first);
        for expected in [1, 2] {
            let (other, part) = lane.take(begin).unwrap();
            assert_eq!(part, expected);
            assert!(matches!(*other.rows().await.unwrap(), PairRows::None));
        }
        assert!(lane.take(begin).is_none());
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}
