//! Deadlines of a device's jobs, and what happens to a driver that misses one.
//!
//! ```text
//!  thread         Idle ── begins a job ──▶ Busy ── ends it ──▶ Idle
//!                                           │ no OpenCL call began or ended for too long
//!                                           ▼
//!  watchdog                             Abandoned ─▶ the device is lost, all jobs fail, and
//!                                                    other threads do what comes after
//! ```
//!
//! A driver can hang in any call, and a call cannot be ended from outside. So the thread is left to
//! itself, and ends when the call returns. Everything that a call may still write to is kept for
//! good: that memory is never used again, nor given back to the driver.
//!
//! Each thread of a device notes when its job, or a call of it, began or ended. The time until the
//! next such moment comes from the session, and grows with the memory that the commands under way
//! use. A compiler has more. Time in which the whole process was stopped does not count.
//! Not only calls are timed, as a job may also wait for a lock that a thread holds which hangs in a
//! call.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time in which a driver must answer, unless a session says otherwise.
pub const DEVICE_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between looks of the watchdog.
const TICK: Duration = Duration::from_millis(200);

/// Bytes of commands for which the time is granted once more.
const BYTES_PER_TIMEOUT: u64 = 1 << 30;

/// The factor by which a compiler may take longer, and whoever waits for one.
pub(super) const COMPILER_PATIENCE: u32 = 10;

thread_local! {
    /// What this thread notes its progress in, if it is one of a device's.
    static THIS_THREAD: RefCell<Option<Arc<Watched>>> = const { RefCell::new(None) };
}

/// What a thread does for its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It runs jobs with a queue of its own.
    Queue,
    /// It creates and releases memory.
    Memory,
}

/// The progress of one thread.
#[derive(Debug)]
pub(super) struct Watched {
    role: Role,
    phase: Mutex<Phase>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Idle,
    Busy(Busy),
    Abandoned,
}

#[derive(Debug)]
struct Busy {
    /// The time that a session grants; `None` without limit.
    timeout: Option<Duration>,
    /// Bytes of the commands that the next call waits for.
    bytes: u64,
    /// The function of the call that the driver has not answered, and the factor by which it may
    /// take longer.
    call: Option<(&'static str, u32)>,
    /// The last progress.
    since: Instant,
}

impl Busy {
    /// Returns the time within which there must be progress, if the device works on `bytes`.
    fn allowed(&self, bytes: u64) -> Option<Duration> {
        let of_call = self.call.map_or(1, |(_, factor)| factor);
        let of_bytes = u32::try_from(1 + bytes / BYTES_PER_TIMEOUT).unwrap_or(u32::MAX);
        Some(self.timeout?.saturating_mul(of_call.max(of_bytes)))
    }

    /// Returns what hangs, and for how long, if there was no progress for too long at `now`.
    fn late(&self, now: Instant, bytes: u64) -> Option<Late> {
        let allowed = self.allowed(bytes)?;
        (now.saturating_duration_since(self.since) > allowed).then(|| Late {
            call: self.call.map_or("a job", |(function, _)| function),
            allowed,
        })
    }
}

/// A call that did not return in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Late {
    /// The OpenCL function.
    pub(super) call: &'static str,
    /// The time that it had.
    pub(super) allowed: Duration,
}

impl Watched {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes this thread note its progress here.
    pub(super) fn watch_this_thread(self: &Arc<Self>) {
        THIS_THREAD.set(Some(Arc::clone(self)));
    }

    /// Begins a job that has `timeout` for each step.
    fn begin(&self, timeout: Option<Duration>) {
        *self.phase() = Phase::Busy(Busy {
            timeout,
            bytes: 0,
            call: None,
            since: Instant::now(),
        });
    }

    /// Ends the job. Returns whether the thread goes on: it does not if it was abandoned.
    fn end(&self) -> bool {
        let mut phase = self.phase();
        let goes_on = !matches!(*phase, Phase::Abandoned);
        if goes_on {
            *phase = Phase::Idle;
        }
        goes_on
    }

    /// Returns the bytes that its call waits for.
    fn bytes(&self) -> u64 {
        match &*self.phase() {
            Phase::Busy(busy) => busy.bytes,
            Phase::Idle | Phase::Abandoned => 0,
        }
    }

    fn late(&self, now: Instant, bytes: u64) -> Option<Late> {
        match &*self.phase() {
            Phase::Busy(busy) => busy.late(now, bytes),
            Phase::Idle | Phase::Abandoned => None,
        }
    }

    /// Abandons the thread if it is busy. Returns whether it was.
    fn abandon(&self) -> bool {
        let mut phase = self.phase();
        let was_busy = matches!(*phase, Phase::Busy(_));
        if was_busy {
            *phase = Phase::Abandoned;
        }
        was_busy
    }

    fn forgive(&self, time: Duration) {
        if let Phase::Busy(busy) = &mut *self.phase() {
            busy.since += time;
        }
    }

    fn note(&self, change: impl FnOnce(&mut Busy)) {
        if let Phase::Busy(busy) = &mut *self.phase() {
            change(busy);
            busy.since = Instant::now();
        }
    }
}

/// Notes that a call of `function` begins, which may take `factor` times as long as others, until
/// what is returned is dropped.
pub(super) fn call(function: &'static str, factor: u32) -> CallUnderWay {
    note(|busy| busy.call = Some((function, factor)));
    CallUnderWay
}

/// Notes the `bytes` of the commands that the next call waits for.
pub(super) fn expect(bytes: u64) {
    note(|busy| busy.bytes = bytes);
}

fn note(change: impl FnOnce(&mut Busy)) {
    // A thread that ends may call once more, when its variables are gone.
    let _ = THIS_THREAD.try_with(|this| {
        if let Some(watched) = &*this.borrow() {
            watched.note(change);
        }
    });
}

/// Returns whether a call of this thread that hangs is noticed.
pub(super) fn looks_after_this_thread() -> bool {
    let is_watched = THIS_THREAD.try_with(|this| this.borrow().is_some());
    is_watched.unwrap_or(false)
}

/// A call that a driver has not answered.
pub(super) struct CallUnderWay;

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        note(|busy| (busy.call, busy.bytes) = (None, 0));
    }
}

/// The threads of a device.
#[derive(Debug, Default)]
pub(super) struct Watch {
    threads: Mutex<Vec<Arc<Watched>>>,
    /// Number of jobs that run on threads which are not abandoned.
    jobs: Mutex<usize>,
    /// Notified when the first of them begins.
    began: Condvar,
}

impl Watch {
    /// Adds a thread.
    pub(super) fn add(&self, role: Role) -> Arc<Watched> {
        let watched = Arc::new(Watched {
            role,
            phase: Mutex::default(),
        });
        self.threads().push(Arc::clone(&watched));
        watched
    }

    /// Returns the number of threads of this role.
    pub(super) fn count(&self, role: Role) -> usize {
        let threads = self.threads();
        threads
            .iter()
            .filter(|watched| watched.role == role)
            .count()
    }

    /// Takes a thread out that could not be started.
    pub(super) fn remove(&self, watched: &Arc<Watched>) {
        self.threads().retain(|other| !Arc::ptr_eq(other, watched));
    }

    /// Runs a job on the thread of `watched`, with `timeout` for each step. Returns whether the
    /// thread goes on.
    pub(super) fn run(
        &self,
        watched: &Watched,
        timeout: Option<Duration>,
        job: impl FnOnce(),
    ) -> bool {
        let mut jobs = self.jobs();
        *jobs += 1;
        if *jobs == 1 {
            self.began.notify_all();
        }
        drop(jobs);
        watched.begin(timeout);
        job();
        let goes_on = watched.end();
        if goes_on {
            *self.jobs() -= 1;
        }
        goes_on
    }

    /// Waits until a job is late, for the time `most` if there is one. Returns `None` then.
    pub(super) fn wait_for_late(&self, most: Option<Duration>) -> Option<Late> {
        let until = most.map(|most| Instant::now() + most);
        loop {
            let none = |jobs: &mut usize| *jobs == 0;
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => drop(self.began.wait_while(self.jobs(), none)),
                Some(Duration::ZERO) => return None,
                Some(left) => drop(self.began.wait_timeout_while(self.jobs(), left, none)),
            }
            let slept = Instant::now();
            std::thread::sleep(TICK);
            self.forgive(slept.elapsed().saturating_sub(2 * TICK));
            let (now, threads) = (Instant::now(), self.threads());
            // One call may wait for the commands of others.
            let bytes = threads.iter().map(|watched| watched.bytes()).sum();
            if let Some(late) = threads.iter().find_map(|watched| watched.late(now, bytes)) {
                return Some(late);
            }
        }
    }

    /// Does not count a time in which the watchdog did not run, either: the process was stopped, or
    /// the machine had no core for it.
    fn forgive(&self, time: Duration) {
        if time > Duration::ZERO {
            for watched in self.threads().iter() {
                watched.forgive(time);
            }
        }
    }

    /// Abandons all threads that are busy: what one hangs in may hold up the others. Returns their
    /// roles.
    pub(super) fn abandon_busy(&self) -> Vec<Role> {
        let mut abandoned = Vec::new();
        self.threads().retain(|watched| {
            let was_busy = watched.abandon();
            abandoned.extend(was_busy.then_some(watched.role));
            !was_busy
        });
        *self.jobs() -= abandoned.len();
        abandoned
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Arc<Watched>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> MutexGuard<'_, usize> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// What is late after so many minutes without progress.
    fn late(watched: &Watched, minutes: u32) -> Option<(&'static str, Duration)> {
        let late = watched.late(Instant::now() + minutes * HOUR / 60, watched.bytes())?;
        Some((late.call, late.allowed))
    }

    /// Runs `job` on a thread that is watched, with an hour for each step.
    fn run(job: impl FnOnce(&Watch, &Watched)) {
        let watch = Watch::default();
        let watched = watch.add(Role::Queue);
        watched.watch_this_thread();
        assert!(watch.run(&watched, Some(HOUR), || job(&watch, &watched)));
        assert_eq!(late(&watched, 600), None, "it is idle");
        THIS_THREAD.set(None);
    }

    #[test]
    fn a_job_is_late_that_makes_no_progress_in_its_time() {
        run(|_, watched| {
            assert_eq!(late(watched, 59), None);
            assert_eq!(late(watched, 61), Some(("a job", HOUR)));
            let under_way = call("clFinish", 1);
            assert_eq!(late(watched, 59), None);
            assert_eq!(late(watched, 61), Some(("clFinish", HOUR)));
            drop(under_way);
            assert_eq!(late(watched, 61), Some(("a job", HOUR)));
        });
    }

    #[test]
    fn more_memory_and_a_compiler_have_more_time() {
        run(|_, watched| {
            expect(2 * BYTES_PER_TIMEOUT + 1);
            let under_way = call("clEnqueueReadBuffer", 1);
            assert_eq!(late(watched, 179), None);
            assert_eq!(late(watched, 181), Some(("clEnqueueReadBuffer", 3 * HOUR)));
            drop(under_way);
            assert_eq!(late(watched, 61), Some(("a job", HOUR)));
            let under_way = call("clBuildProgram", 10);
            assert_eq!(late(watched, 599), None);
            assert_eq!(late(watched, 601), Some(("clBuildProgram", 10 * HOUR)));
            drop(under_way);
        });
    }

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        run(|watch, watched| {
            watch.forgive(HOUR / 4);
            assert!(late(watched, 74).is_none() && late(watched, 76).is_some());
            drop(call("clFlush", 1));
            assert!(late(watched, 59).is_none() && late(watched, 61).is_some());
        });
    }

    #[test]
    fn without_a_timeout_no_job_is_late() {
        let watch = Watch::default();
        let watched = watch.add(Role::Queue);
        let goes_on = watch.run(&watched, None, || {
            assert_eq!(late(&watched, 6000), None);
        });
        assert!(goes_on);
    }

    #[test]
    fn threads_that_are_busy_are_abandoned_and_end() {
        let watch = Watch::default();
        let [busy, idle] = [Role::Memory, Role::Queue].map(|role| watch.add(role));
        let short = Duration::from_millis(20);
        let goes_on = watch.run(&busy, Some(short), || {
            assert_eq!(watch.wait_for_late(Some(Duration::ZERO)), None);
            let late = watch.wait_for_late(None).unwrap();
            assert_eq!((late.call, late.allowed), ("a job", short));
            assert_eq!(watch.abandon_busy(), [Role::Memory]);
            assert_eq!(watch.count(Role::Memory), 0);
        });
        assert!(!goes_on);
        assert_eq!(*watch.jobs(), 0);
        assert!(watch.run(&idle, Some(short), || {}));
        assert_eq!(watch.abandon_busy(), []);
        watch.remove(&idle);
        assert_eq!(watch.count(Role::Queue), 0);
    }
}
