//! The budget of a device: how many bytes may be in use.
//!
//! ```text
//!  0 ──────── used ────────┬──── idle ────┬─────────── free ───────────▶ limit
//!      buffers of jobs     │ kept by pools│
//!                          └─ given back first, when a job asks for more than is free
//! ```
//!
//! Drivers cannot be left to refuse. CPU runtimes allocate lazily and abort the process when memory
//! runs out; GPU drivers fail late and then lose the context. So every buffer takes a grant before
//! it is created. The grant goes with the memory: it is idle while a pool keeps the memory, and
//! ends when that is released. The limit is 80 % of the device's memory, or half where that is the
//! host's: on CPUs and integrated GPUs.
//!
//! A refused request takes nothing, not even for a moment, so that a large one cannot make small
//! ones beside it fail. A join that is refused waits for up to [`MEMORY_WAIT`] until others have
//! given back enough, before it goes on with less. Joins wait in line, each in a task of its own: a
//! stream may be left in the middle of a poll, and must not keep its place then. The first in line
//! waits on a thread for blocking work, because a runtime may have no timer. Queue threads never
//! wait: others free their memory there.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::{JoinSet, spawn_blocking};

use super::info::DeviceInfo;

/// The time for which a join waits for memory that others use. It is the time of some chunks, and
/// little beside that of a query that runs out of memory.
pub const MEMORY_WAIT: Duration = Duration::from_millis(100);

/// Bytes in use on one device, and how many there may be.
#[derive(Debug)]
pub struct Budget {
    limit: u64,
    taken: Mutex<Taken>,
    /// Notified when bytes are given back.
    given_back: Condvar,
    /// The lock that the first waiting task holds.
    line: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Bytes of jobs and of what they made.
    used: u64,
    /// Bytes that pools keep for later jobs.
    idle: u64,
    /// The largest sum of both so far.
    peak: u64,
}

/// The reason why bytes are not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too little is free: this many bytes are used.
    Used(u64),
    /// There would be room if this many idle bytes were released.
    Idle(u64),
}

/// A share of a [`Budget`], returned when dropped.
#[derive(Debug)]
pub(super) struct Grant {
    budget: Arc<Budget>,
    bytes: u64,
    is_idle: bool,
}

impl Budget {
    pub(super) fn for_device(info: &DeviceInfo) -> Arc<Self> {
        Self::with_limit(if info.shares_host_memory() {
            info.global_memory / 2
        } else {
            info.global_memory / 5 * 4
        })
    }

    fn with_limit(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            taken: Mutex::default(),
            given_back: Condvar::new(),
            line: tokio::sync::Mutex::default(),
        })
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes that jobs, and what they made, use; idle memory is not among them.
    pub fn used(&self) -> u64 {
        self.taken().used
    }

    /// Returns the bytes that pools keep for later jobs, and release when others need them.
    pub fn idle(&self) -> u64 {
        self.taken().idle
    }

    /// Returns the largest sum of used and idle bytes so far.
    pub fn peak(&self) -> u64 {
        self.taken().peak
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `bytes` if at most `limit` are taken afterwards.
    pub(super) fn take(self: &Arc<Self>, bytes: u64, limit: u64) -> Result<Grant, Refused> {
        let mut taken = self.taken();
        let idle = taken.idle;
        self.use_more(&mut taken, bytes, idle, limit)?;
        Ok(Grant {
            budget: Arc::clone(self),
            bytes,
            is_idle: false,
        })
    }

    /// Counts `bytes` more as used, and `idle` as idle, if that is within `limit`.
    fn use_more(
        &self,
        taken: &mut Taken,
        bytes: u64,
        idle: u64,
        limit: u64,
    ) -> Result<(), Refused> {
        let limit = limit.min(self.limit);
        let used = taken.used.saturating_add(bytes);
        if used > limit {
            return Err(Refused::Used(taken.used));
        }
        match used.saturating_add(idle).saturating_sub(limit) {
            0 => {
                debug_assert!(
                    used + idle <= limit,
                    "{used} used and {idle} idle of {limit}"
                );
                (taken.used, taken.idle) = (used, idle);
                taken.peak = taken.peak.max(used + idle);
                Ok(())
            }
            over => Err(Refused::Idle(over)),
        }
    }

    /// Waits until any bytes are given back, at longest for `time`.
    pub(super) fn wait_for_any(&self, time: Duration) {
        drop(self.given_back.wait_timeout(self.taken(), time));
    }

    /// Waits in line until others have given back `short` of the bytes that are used now. Returns
    /// whether they did so within [`MEMORY_WAIT`].
    pub(crate) async fn wait_for(self: &Arc<Self>, short: u64) -> bool {
        let until = Instant::now() + MEMORY_WAIT;
        let Some(most) = self.used().checked_sub(short) else {
            return false;
        };
        if Handle::try_current().is_err() {
            return false;
        }
        // A set of one task, which ends with it.
        let mut task = JoinSet::new();
        task.spawn(Arc::clone(self).wait_in_line(most, until));
        matches!(task.join_next().await, Some(Ok(true)))
    }

    /// Waits until it is the first in line, and then until at most `most` bytes are used, at
    /// longest until `then`. Runs as a task, which holds its place whoever is polled.
    #[expect(
        clippy::await_holding_invalid_type,
        reason = "it is a task, and the place in line is what it is for"
    )]
    async fn wait_in_line(self: Arc<Self>, most: u64, then: Instant) -> bool {
        let first_in_line = self.line.lock().await;
        let budget = Arc::clone(&self);
        let waited = spawn_blocking(move || budget.wait_until(most, then));
        let waited = waited.await.unwrap_or(false);
        drop(first_in_line);
        waited
    }

    /// Waits until at most `most` bytes are used, at longest until `then`. Returns whether they
    /// are.
    fn wait_until(&self, most: u64, then: Instant) -> bool {
        let left = then.saturating_duration_since(Instant::now());
        let is_short = |taken: &mut Taken| taken.used > most;
        let waited = self
            .given_back
            .wait_timeout_while(self.taken(), left, is_short);
        let (taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        taken.used <= most
    }
}

impl Grant {
    /// Counts the bytes as idle: a pool has the memory now.
    pub(super) fn lay_idle(&mut self) {
        let mut taken = self.budget.taken();
        debug_assert!(!self.is_idle && taken.used >= self.bytes, "laid idle twice");
        taken.used -= self.bytes;
        taken.idle += self.bytes;
        self.is_idle = true;
        self.budget.given_back.notify_all();
    }

    /// Counts the bytes as used for good: nobody can give the memory back.
    pub(super) fn strand(self) {
        if self.is_idle {
            let mut taken = self.budget.taken();
            taken.idle -= self.bytes;
            taken.used += self.bytes;
        }
        std::mem::forget(self);
    }

    /// Counts the bytes as used again, if at most `limit` bytes are then taken.
    pub(super) fn use_again(&mut self, limit: u64) -> Result<(), Refused> {
        let mut taken = self.budget.taken();
        debug_assert!(self.is_idle && taken.idle >= self.bytes, "used twice");
        let idle = taken.idle - self.bytes;
        self.budget.use_more(&mut taken, self.bytes, idle, limit)?;
        self.is_idle = false;
        Ok(())
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let mut taken = self.budget.taken();
        if self.is_idle {
            taken.idle -= self.bytes;
        } else {
            taken.used -= self.bytes;
        }
        self.budget.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_return_their_bytes() {
        let budget = Budget::with_limit(100);
        let first = budget.take(60, u64::MAX).unwrap();
        assert_eq!(budget.take(60, u64::MAX).unwrap_err(), Refused::Used(60));
        assert_eq!(budget.take(20, 70).unwrap_err(), Refused::Used(60));
        drop(first);
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.peak(), 60);
    }

    #[test]
    fn idle_bytes_count_and_are_in_nobodys_way() {
        let budget = Budget::with_limit(100);
        let mut idle = budget.take(40, u64::MAX).unwrap();
        idle.lay_idle();
        assert_eq!((budget.used(), budget.idle()), (0, 40));
        let other = budget.take(50, u64::MAX).unwrap();
        assert_eq!(budget.take(20, 100).unwrap_err(), Refused::Idle(10));
        assert_eq!(budget.take(51, 100).unwrap_err(), Refused::Used(50));
        // A limit of less counts it, too.
        assert_eq!(idle.use_again(80).unwrap_err(), Refused::Used(50));
        idle.use_again(90).unwrap();
        assert_eq!((budget.used(), budget.idle()), (90, 0));
        drop(other);
        idle.lay_idle();
        drop(idle);
        assert_eq!((budget.used(), budget.idle(), budget.peak()), (0, 0, 90));
    }

    #[test]
    fn bytes_that_are_stranded_stay_used() {
        let budget = Budget::with_limit(100);
        let [mut idle, used] = [40, 20].map(|bytes| budget.take(bytes, u64::MAX).unwrap());
        idle.lay_idle();
        idle.strand();
        used.strand();
        assert_eq!((budget.used(), budget.idle()), (60, 0));
        assert_eq!(budget.take(50, 100).unwrap_err(), Refused::Used(60));
    }

    #[test]
    fn a_large_request_that_is_refused_takes_nothing_from_small_ones() {
        let budget = Budget::with_limit(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        assert!(budget.take(1001, u64::MAX).is_err());
                    }
                });
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        budget.take(250, u64::MAX).unwrap();
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_others_have_given_back_enough() {
        let budget = Budget::with_limit(100);
        let held = [30, 30, 40].map(|bytes| budget.take(bytes, u64::MAX).unwrap());
        let began = Instant::now();
        assert!(!budget.wait_for(101).await, "nobody can give back so much");
        assert!(began.elapsed() < MEMORY_WAIT);
        let giver = std::thread::spawn(move || {
            for grant in held {
                std::thread::sleep(MEMORY_WAIT / 50);
                drop(grant);
            }
        });
        assert!(budget.wait_for(50).await);
        assert!(budget.used() <= 50);
        giver.join().unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_is_left_in_the_middle_of_a_poll_keeps_no_place_in_line() {
        let budget = Budget::with_limit(100);
        let _held = budget.take(100, u64::MAX).unwrap();
        let mut left: Vec<_> = (0..3).map(|_| Box::pin(budget.wait_for(10))).collect();
        for waiting in &mut left {
            assert!(futures::poll!(waiting).is_pending());
        }
        let other = tokio::time::timeout(100 * MEMORY_WAIT, budget.wait_for(10));
        assert_eq!(other.await.ok(), Some(false));
    }

    #[tokio::test]
    async fn all_in_line_wait_for_no_longer_than_the_timeout() {
        let budget = Budget::with_limit(100);
        let _held = budget.take(100, u64::MAX).unwrap();
        let began = Instant::now();
        let waiting = (0..8).map(|_| budget.wait_for(10));
        let waited = futures::future::join_all(waiting).await;
        assert!(waited.iter().all(|is_given| !is_given));
        assert!(began.elapsed() >= MEMORY_WAIT && began.elapsed() < 7 * MEMORY_WAIT);
    }
}
