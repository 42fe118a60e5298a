//! Build rows that a join owes once the probe has ended, emitted by all probe streams together.
//!
//! ```text
//!  stream 0 ── ends ── waits ─┐              ┌─ batch 0 ── batch 3 ─▶
//!  stream 1 ───── ends, waits ┼─ last ends ──┼─ batch 1 ─▶
//!  stream 2 ─────────── ends ─┘              └─ batch 2 ── batch 4 ─▶
//! ```
//!
//! Which rows were matched is known when the last stream has ended. Were that stream to emit them
//! alone, as in DataFusion's `CollectLeft` joins, all nodes above would work on one core. A
//! consumer may read one stream to its end before the next, so nobody waits for a stream that does
//! not go on. After `PATIENCE` without progress of any, streams that have ended leave, and the last
//! one emits alone. The first to wait keeps the time, on a thread for blocking work: a runtime may
//! have no timer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

/// The time for which streams that have ended wait for others that do not go on.
const PATIENCE: Duration = Duration::from_millis(100);

/// The state that the streams of one build share.
///
/// ```text
///   Probing ── last one ended, visits are known ──▶ Shared
///      └────── nobody went on for a while ────────▶ Alone
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Probing,
    Shared,
    Alone,
}

/// The rows that a build's join type owes.
#[derive(Debug)]
pub struct Owed {
    /// Streams that have not ended.
    probing: AtomicUsize,
    /// Grows whenever a stream goes on.
    progress: AtomicUsize,
    has_timekeeper: AtomicBool,
    phase: watch::Sender<Phase>,
    /// True if it pays to wait.
    is_shared: bool,
    next_batch: AtomicUsize,
}

/// The share of the owed rows that a stream emits after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// None: another stream emits the rows.
    Nothing,
    /// A part, after the visits are brought back.
    First,
    /// A part of the rows.
    Part,
}

impl Owed {
    /// Returns the record for `streams` streams, which wait for each other if rows `are_many`.
    pub fn new(streams: usize, are_many: bool) -> Self {
        Self {
            probing: AtomicUsize::new(streams),
            progress: AtomicUsize::new(0),
            has_timekeeper: AtomicBool::new(false),
            phase: watch::Sender::new(Phase::Probing),
            is_shared: are_many && streams > 1,
            next_batch: AtomicUsize::new(0),
        }
    }

    /// Notes that a stream goes on.
    pub fn go_on(&self) {
        if self.is_shared {
            self.progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a stream; returns its share of the rows.
    pub async fn end(&self) -> Share {
        if self.probing.fetch_sub(1, Ordering::AcqRel) == 1 {
            return Share::First;
        }
        if !self.is_shared {
            return Share::Nothing;
        }
        if !self.has_timekeeper.swap(true, Ordering::AcqRel) {
            self.keep_time().await;
        }
        let mut phase = self.phase.subscribe();
        // The sender lives as long as this borrow.
        let settled = phase.wait_for(|phase| *phase != Phase::Probing).await;
        match settled.as_deref() {
            Ok(Phase::Shared) => Share::Part,
            _ => Share::Nothing,
        }
    }

    /// Lets all streams emit, as the visits are known.
    pub fn share(&self) {
        self.phase.send_replace(Phase::Shared);
    }

    /// Returns the next of `batches` batches to emit, if one is left.
    pub fn claim(&self, batches: usize) -> Option<usize> {
        let batch = self.next_batch.fetch_add(1, Ordering::AcqRel);
        (batch < batches).then_some(batch)
    }

    /// Waits until the phase is settled, or settles it once nobody goes on.
    async fn keep_time(&self) {
        // Should this stream be dropped, nobody waits without a timekeeper.
        let leaving = Leaving(self);
        let mut phase = self.phase.subscribe();
        loop {
            let before = self.progress.load(Ordering::Relaxed);
            let pause = tokio::task::spawn_blocking(|| std::thread::sleep(PATIENCE));
            let settled = std::pin::pin!(phase.wait_for(|phase| *phase != Phase::Probing));
            let is_settled = matches!(
                futures::future::select(settled, pause).await,
                futures::future::Either::Left(_)
            );
            if is_settled || self.progress.load(Ordering::Relaxed) == before {
                return drop(leaving);
            }
        }
    }
}

struct Leaving<'a>(&'a Owed);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.phase.send_if_modified(|phase| {
            let waits = *phase == Phase::Probing;
            if waits {
                *phase = Phase::Alone;
            }
            waits
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn streams_that_end_together_share_and_claim_each_batch_once() {
        let owed = Arc::new(Owed::new(3, true));
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let owed = Arc::clone(&owed);
                tokio::spawn(async move { owed.end().await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(owed.end().await, Share::First);
        owed.share();
        for stream in waiting {
            assert_eq!(stream.await.unwrap(), Share::Part);
        }
        let claimed: Vec<_> = (0..3).map(|_| owed.claim(2)).collect();
        assert_eq!(claimed, [Some(0), Some(1), None]);
    }

    #[tokio::test]
    async fn a_stream_does_not_wait_for_one_that_nobody_reads() {
        let owed = Owed::new(3, true);
        assert_eq!(owed.end().await, Share::Nothing);
        // The next one does not wait again.
        let began = std::time::Instant::now();
        assert_eq!(owed.end().await, Share::Nothing);
        assert!(began.elapsed() < PATIENCE);
        assert_eq!(owed.end().await, Share::First);
    }

    #[tokio::test]
    async fn a_dropped_timekeeper_leaves_nobody_waiting() {
        let owed = Arc::new(Owed::new(3, true));
        let first = Arc::clone(&owed);
        let keeper = tokio::spawn(async move { first.end().await });
        tokio::task::yield_now().await;
        let second = Arc::clone(&owed);
        let waiting = tokio::spawn(async move { second.end().await });
        tokio::task::yield_now().await;
        keeper.abort();
        assert_eq!(waiting.await.unwrap(), Share::Nothing);
    }

    #[tokio::test]
    async fn few_rows_are_emitted_by_the_last_stream() {
        let owed = Owed::new(2, false);
        assert_eq!(owed.end().await, Share::Nothing);
        assert_eq!(owed.end().await, Share::First);
    }
}
