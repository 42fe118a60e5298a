//! The line in which jobs wait for threads that the watchdog looks after.
//!
//! ```text
//!  Sender<Job> ──▶ Inbox ─┬▶ serve: one job after the other ─┐ a thread that hangs in one
//!                         └▶ serve                           └▶ is abandoned, and ends after it
//! ```

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::watchdog::{Watch, Watched};

/// What a thread does, and how long it may take.
#[derive(Debug)]
pub(super) struct Job<W> {
    pub(super) work: W,
    /// The time that the driver has for each step; `None` without limit.
    pub(super) timeout: Option<Duration>,
}

/// Jobs in line. Clones share it.
#[derive(Debug)]
pub(super) struct Inbox<W>(Arc<Mutex<Receiver<Job<W>>>>);

impl<W> Clone for Inbox<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W> Inbox<W> {
    /// Returns an empty line, and the way into it.
    pub(super) fn new() -> (Sender<Job<W>>, Self) {
        let (jobs, inbox) = channel();
        (jobs, Self(Arc::new(Mutex::new(inbox))))
    }

    /// Does jobs on this thread, each by `work`. Returns true when nobody can send any more, and
    /// false if the thread was abandoned in one.
    pub(super) fn serve(
        &self,
        watch: &Watch,
        watched: &Arc<Watched>,
        mut work: impl FnMut(W),
    ) -> bool {
        watched.watch_this_thread();
        let mut goes_on = true;
        while goes_on && let Some(job) = self.next() {
            goes_on = watch.run(watched, job.timeout, || work(job.work));
        }
        goes_on
    }

    /// Waits for a job; idle threads wait at the lock.
    fn next(&self) -> Option<Job<W>> {
        let inbox = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.recv().ok()
    }
}
