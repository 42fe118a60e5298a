//! Build rows that a join emits after the probe, and the probe streams that emit them.
//!
//! ```text
//!  stream 0 ── ends ── waits ─┐              ┌─ batch 0 ── batch 3 ─▶
//!  stream 1 ───── ends, waits ┼─ last ends ──┼─ batch 1 ── batch 4 ─▶
//!  stream 2 ─────────── ends ─┘              └─ batch 2 ─▶
//! ```
//!
//! The join knows the matched rows only once all partitions of the probe side were read to their
//! ends. Were the last stream to emit them alone, as in DataFusion's `CollectLeft` joins, all nodes
//! above would work on one core. So streams that have ended wait for it, and each emits a part.
//!
//! A consumer may read one stream to its end before the next, so nobody waits for a stream that
//! does not go on. After `STALL_TIMEOUT` without progress of any, streams that have ended leave. A
//! task keeps the time, as any stream may be left in the middle of a poll. It sleeps on a thread
//! for blocking work: a runtime may have no timer.
//!
//! A partition may be read by several consumers, who cannot be told apart, and each must get every
//! row once. So rows belong to partitions: to the one that was the last to be read to its end for
//! the first time, and to those whose streams wait for that. No stream of these has ended without
//! its part. Whoever reads them later gets the same rows.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;
use tokio::sync::watch;

/// The time for which streams that have ended wait for others that do not go on.
const STALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The build rows that are emitted after the probe, and who emits them.
#[derive(Debug)]
pub struct BuildOutput {
    /// True if it pays to wait.
    is_shared: bool,
    state: Arc<SharedState>,
    /// The task that keeps the time, once a stream waits.
    timekeeper: Mutex<Option<SpawnedTask<()>>>,
}

/// The state that the streams of one build share.
#[derive(Debug)]
struct SharedState {
    /// Grows whenever a stream goes on.
    progress: AtomicUsize,
    partitions: Mutex<Partitions>,
    /// Notified when waiting streams may go on.
    changed: watch::Sender<()>,
}

/// The partitions of the probe side, and who emits.
#[derive(Debug)]
struct Partitions {
    each: Vec<Partition>,
    phase: Phase,
    /// True once streams that had ended left: none waits any more.
    is_alone: bool,
}

#[derive(Debug, Clone, Default)]
struct Partition {
    /// Some stream of it was read to its end.
    is_probed: bool,
    /// A stream of it has ended without build rows.
    has_left: bool,
    /// Streams of it that wait.
    waiting: usize,
}

/// ```text
///   Probing ── all partitions are probed ──▶ Last ── its visits are known ──▶ Emitting
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Probing,
    /// This partition was probed last: a stream of it brings back which rows were matched.
    Last(usize),
    /// These partitions emit the rows.
    Emitting(Vec<usize>),
}

/// What a stream does for the build rows that are emitted after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Other streams emit the rows.
    None,
    /// It brings back which rows were matched, calls [`BuildOutput::begin_output`], and emits a
    /// part.
    Leader,
    /// It emits a part.
    Helper(Batches),
}

/// The batches of the build side whose rows a stream emits: every so many, from `next` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    next: usize,
    step: usize,
}

impl Batches {
    /// Returns the next one of `count`.
    pub fn take(&mut self, count: usize) -> Option<usize> {
        let next = self.next;
        self.next += self.step;
        (next < count).then_some(next)
    }
}

impl BuildOutput {
    /// Returns the record for `partitions` partitions of the probe side, whose streams wait for
    /// each other if rows `are_many`.
    pub fn new(partitions: usize, are_many: bool) -> Self {
        Self {
            is_shared: are_many && partitions > 1,
            state: Arc::new(SharedState {
                progress: AtomicUsize::new(0),
                partitions: Mutex::new(Partitions {
                    each: vec![Partition::default(); partitions],
                    phase: Phase::Probing,
                    is_alone: false,
                }),
                changed: watch::Sender::new(()),
            }),
            timekeeper: Mutex::default(),
        }
    }

    /// Notes that a stream goes on.
    pub fn note_progress(&self) {
        if self.is_shared {
            self.state.progress.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends a stream of partition `at`; returns its role.
    pub async fn end(&self, at: usize) -> Role {
        let mut changed = self.state.changed.subscribe();
        if let Some(role) = self.state.end(at, self.is_shared) {
            return role;
        }
        let waits = Waits {
            state: &self.state,
            at,
        };
        self.keep_time();
        loop {
            // The sender lives as long as this borrow.
            let _ = changed.changed().await;
            if let Some(role) = waits.role() {
                return role;
            }
        }
    }

    /// Lets streams emit, as the visits are known. Returns the role of partition `at`, whose stream
    /// was the [leader](Role::Leader) until then.
    pub fn begin_output(&self, at: usize) -> Role {
        let mut partitions = self.state.lock();
        if partitions.phase == Phase::Last(at) {
            let waiting = partitions.each.iter().enumerate();
            let waiting = waiting.filter(|(_, one)| one.waiting > 0 && !one.has_left);
            let others = waiting.map(|(other, _)| other).filter(|other| *other != at);
            let emits = others.chain([at]).collect();
            partitions.phase = Phase::Emitting(emits);
        }
        self.state.changed.send_replace(());
        partitions.role(at)
    }

    /// Has the time kept from now on, unless it is.
    fn keep_time(&self) {
        let mut timekeeper = lock(&self.timekeeper);
        timekeeper.get_or_insert_with(|| SpawnedTask::spawn(Arc::clone(&self.state).keep_time()));
    }
}

impl Partitions {
    /// Returns the role of partition `at` once streams emit.
    fn role(&self, at: usize) -> Role {
        let Phase::Emitting(emits) = &self.phase else {
            return Role::None;
        };
        match emits.iter().position(|emits| *emits == at) {
            Some(next) => Role::Helper(Batches {
                next,
                step: emits.len(),
            }),
            None => Role::None,
        }
    }
}

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, Partitions> {
        lock(&self.partitions)
    }

    /// Ends a stream of partition `at`. Returns its role, or `None` if it waits now.
    fn end(&self, at: usize, is_shared: bool) -> Option<Role> {
        let mut partitions = self.lock();
        let Some(one) = partitions.each.get_mut(at) else {
            return Some(Role::None);
        };
        one.is_probed = true;
        if partitions.phase == Phase::Probing && partitions.each.iter().all(|one| one.is_probed) {
            partitions.phase = Phase::Last(at);
        }
        match partitions.phase {
            Phase::Emitting(_) => return Some(partitions.role(at)),
            Phase::Last(last) if last == at => return Some(Role::Leader),
            Phase::Probing | Phase::Last(_) => {}
        }
        let waits = is_shared && !partitions.is_alone;
        let one = &mut partitions.each[at];
        one.waiting += usize::from(waits);
        one.has_left |= !waits;
        (!waits).then_some(Role::None)
    }

    /// Lets streams that have ended leave once nobody goes on, or until they may emit.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let before = self.progress.load(Ordering::Relaxed);
            let pause = tokio::task::spawn_blocking(|| std::thread::sleep(STALL_TIMEOUT));
            // Without a pause the runtime is ending.
            let is_over = pause.await.is_err();
            let mut partitions = self.lock();
            if matches!(partitions.phase, Phase::Emitting(_)) {
                return;
            }
            if is_over || self.progress.load(Ordering::Relaxed) == before {
                partitions.is_alone = true;
                for one in partitions.each.iter_mut().filter(|one| one.waiting > 0) {
                    one.has_left = true;
                }
                self.changed.send_replace(());
                return;
            }
        }
    }
}

/// A stream of partition `at` that waits.
struct Waits<'a> {
    state: &'a SharedState,
    at: usize,
}

impl Waits<'_> {
    /// Returns its role, if it may go on.
    fn role(&self) -> Option<Role> {
        let partitions = self.state.lock();
        match partitions.phase {
            Phase::Emitting(_) => Some(partitions.role(self.at)),
            _ => partitions.is_alone.then_some(Role::None),
        }
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let mut partitions = self.state.lock();
        if let Some(one) = partitions.each.get_mut(self.at) {
            one.waiting -= 1;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which of ten batches a role emits.
    fn batches(role: Role) -> Vec<usize> {
        match role {
            Role::Helper(mut batches) => std::iter::from_fn(|| batches.take(10)).collect(),
            Role::None | Role::Leader => Vec::new(),
        }
    }

    #[tokio::test]
    async fn streams_that_end_together_share_and_emit_each_batch_once() {
        let output = Arc::new(BuildOutput::new(3, true));
        let wait = |at| {
            let output = Arc::clone(&output);
            tokio::spawn(async move { output.end(at).await })
        };
        let waiting = [wait(2), wait(0)];
        tokio::task::yield_now().await;
        assert_eq!(output.end(1).await, Role::Leader);
        let mut all = batches(output.begin_output(1));
        for stream in waiting {
            let mine = batches(stream.await.unwrap());
            assert!(mine.len() >= 3, "{mine:?}");
            all.extend(mine);
        }
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_stream_does_not_wait_for_one_that_nobody_reads() {
        let output = BuildOutput::new(3, true);
        assert_eq!(output.end(0).await, Role::None);
        // The next one does not wait again.
        let began = std::time::Instant::now();
        assert_eq!(output.end(1).await, Role::None);
        assert!(began.elapsed() < STALL_TIMEOUT);
        assert_eq!(output.end(2).await, Role::Leader);
        assert_eq!(batches(output.begin_output(2)).len(), 10);
    }

    #[tokio::test]
    async fn a_stream_that_is_left_or_dropped_while_it_waits_keeps_nobody() {
        for is_dropped in [false, true] {
            let output = BuildOutput::new(3, true);
            let mut first = Some(Box::pin(output.end(0)));
            assert!(futures::poll!(first.as_mut().unwrap()).is_pending());
            first = first.filter(|_| !is_dropped);
            let second = tokio::time::timeout(100 * STALL_TIMEOUT, output.end(1));
            assert_eq!(second.await.ok(), Some(Role::None));
            if let Some(first) = first {
                assert_eq!(first.await, Role::None);
            }
        }
    }

    #[tokio::test]
    async fn few_rows_are_emitted_by_the_last_partition() {
        let output = BuildOutput::new(2, false);
        assert_eq!(output.end(1).await, Role::None);
        assert_eq!(output.end(0).await, Role::Leader);
        assert_eq!(batches(output.begin_output(0)).len(), 10);
    }

    /// Reads partitions in any order as two consumers, who stop anywhere.
    #[tokio::test]
    async fn every_consumer_gets_every_batch_once() {
        let orders: [&[usize]; 5] = [
            &[0, 1, 2, 0, 1, 2],
            &[0, 0, 1, 1, 2, 2],
            &[2, 1, 0, 0, 1, 2],
            &[0, 2, 0, 1, 2, 1],
            &[1, 0, 1, 2, 0, 2],
        ];
        for order in orders {
            let output = BuildOutput::new(3, false);
            // Which consumer a stream is of: the first that has none of its partition.
            let mut seen: [Vec<usize>; 3] = Default::default();
            for at in order {
                let role = match output.end(*at).await {
                    Role::Leader => output.begin_output(*at),
                    role => role,
                };
                seen[*at].push(batches(role).len());
            }
            for consumer in 0..2 {
                let all: usize = seen.iter().map(|streams| streams[consumer]).sum();
                assert_eq!(all, 10, "{order:?} {seen:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_first_stream_that_is_dropped_leaves_its_part_to_the_next_of_its_partition() {
        let output = BuildOutput::new(2, false);
        assert_eq!(output.end(0).await, Role::None);
        assert_eq!(output.end(1).await, Role::Leader);
        assert_eq!(output.end(0).await, Role::None);
        assert_eq!(output.end(1).await, Role::Leader);
        assert_eq!(batches(output.begin_output(1)).len(), 10);
        assert_eq!(batches(output.end(1).await).len(), 10);
    }
}
