//! Pairs of buckets that streams have yet to join.
//!
//! ```text
//!  Lane: pairs [p4 p3 p2], begun p1 ─┬─ stream 0 takes part 2 of p1
//!                                    └─ stream 1 takes part 3 of p1, then begins p2
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::execution::SendableRecordBatchStream;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};

use crate::error::{Error, Result};
use crate::join::decide::Decided;

use super::bucket::Pair;

/// The pairs of all streams, or the one error of scattering.
pub type Lanes = Result<Arc<Vec<Lane>>, Arc<Error>>;

/// Pairs that are still to be joined. Streams share one, or have one each.
#[derive(Default)]
pub struct Lane(Mutex<Waiting>);

/// The pairs that a lane's streams take next.
#[derive(Default)]
struct Waiting {
    /// The last is taken first.
    pairs: Vec<Pair>,
    /// A pair of which parts of the probe side are left, and the first of those. It stays here
    /// until all are taken: a stream that took one may be dropped.
    begun: Option<(Arc<Begun>, usize)>,
}

/// A pair that streams join together, each a part of its probe side.
pub struct Begun {
    parts: usize,
    rows: Shared<BoxFuture<'static, Result<Arc<Rows>, Arc<Error>>>>,
}

/// The rows of a pair.
pub enum Rows {
    /// There are none.
    None,
    /// They come of smaller pairs, for the stream that takes these first.
    Split(Mutex<Vec<Pair>>),
    /// All of them.
    All(Mutex<Option<SendableRecordBatchStream>>),
    /// The rows of each part, while the pair's memory is held.
    Parts(
        Decided,
        #[expect(dead_code, reason = "its rows are reserved while it is there")] Pair,
    ),
}

impl Rows {
    /// Returns the rows of a pair that one stream joins.
    pub fn all(rows: SendableRecordBatchStream) -> Self {
        Rows::All(Mutex::new(Some(rows)))
    }
}

impl Begun {
    /// Returns a pair of which streams take `parts` parts of what `join` makes. It stays in a lane,
    /// so that `join` must hold none.
    pub fn new(parts: usize, join: impl Future<Output = Result<Rows>> + Send + 'static) -> Self {
        let rows = async move { join.await.map(Arc::new).map_err(Arc::new) };
        let rows = rows.boxed().shared();
        Self { parts, rows }
    }

    /// Waits for the pair's rows until they can be read.
    ///
    /// # Errors
    /// The one of joining the pair, for each stream that takes a part.
    pub async fn rows(&self) -> Result<Arc<Rows>, Arc<Error>> {
        self.rows.clone().await
    }
}

impl Lane {
    /// Returns a lane of these pairs.
    pub fn of(pairs: Vec<Pair>) -> Self {
        let begun = None;
        Self(Mutex::new(Waiting { pairs, begun }))
    }

    /// Adds smaller pairs of one that was too large.
    pub fn extend(&self, pairs: Vec<Pair>) {
        self.lock().pairs.extend(pairs);
    }

    /// Returns the next part of a pair, and its number. `begin` begins a pair of which no part was
    /// taken.
    pub fn take(&self, begin: impl FnOnce(Pair) -> Begun) -> Option<(Arc<Begun>, usize)> {
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

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::join::spill::bucket::Bucket;

    use super::*;

    fn pair() -> Pair {
        let bucket = || {
            Arc::new(Bucket {
                rows: 0,
                bytes: 0,
                kept: None,
                file: None,
            })
        };
        Pair::new(bucket(), bucket(), 0)
    }

    #[tokio::test]
    async fn parts_stay_for_others_when_the_stream_that_began_their_pair_is_dropped() {
        let begun = AtomicUsize::new(0);
        let begin = |_| {
            begun.fetch_add(1, Ordering::Relaxed);
            Begun::new(3, async { Ok(Rows::None) })
        };
        let lane = Lane::of(vec![pair()]);
        let (first, part) = lane.take(begin).unwrap();
        assert_eq!(part, 0);
        // Left in the middle of a poll, and dropped.
        drop(futures::poll!(Box::pin(first.rows())));
        drop(first);
        for expected in [1, 2] {
            let (other, part) = lane.take(begin).unwrap();
            assert_eq!(part, expected);
            assert!(matches!(*other.rows().await.unwrap(), Rows::None));
        }
        assert!(lane.take(begin).is_none());
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}
