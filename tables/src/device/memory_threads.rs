//! The threads that call the driver for memory where no job does.
//!
//! ```text
//!  a stream: no staging memory is idle ──▶ stock ───┐
//!                                                   ├─▶ memory thread: create, map, unmap, release
//!  any thread: the last owner of a block is gone ───┘
//! ```
//!
//! Locking pages takes a third of a millisecond per megabyte, and a driver may wait for all its
//! queues when memory is released. Any of these calls may hang. So a stream must not make them on a
//! thread of its runtime, nor whoever drops a plan. The watchdog looks after these threads as it
//! does after those of queues. Theirs is another line: there is memory to be had while kernels run.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::inbox::{Inbox, Job};
use super::watchdog::DEVICE_TIMEOUT;

/// What a memory thread does.
pub(super) type MemoryWork = Box<dyn FnOnce() + Send>;

/// The memory threads of a device. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct MemoryThreads {
    jobs: Arc<Mutex<Sender<Job<MemoryWork>>>>,
    /// The time of the session that asked last and sets one. Whoever lets memory go has none of its
    /// own.
    timeout: Arc<Mutex<Duration>>,
}

impl MemoryThreads {
    /// Returns the threads' handle, and the line that they are to serve.
    pub(super) fn new() -> (Self, Inbox<MemoryWork>) {
        let (jobs, inbox) = Inbox::new();
        let jobs = Arc::new(Mutex::new(jobs));
        let timeout = Arc::new(Mutex::new(DEVICE_TIMEOUT));
        (Self { jobs, timeout }, inbox)
    }

    /// Notes the time that a session gives the driver, if it sets one.
    pub(super) fn note(&self, timeout: Option<Duration>) {
        if let Some(timeout) = timeout {
            *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
        }
    }

    /// Has `work` done, for which the driver has `timeout`. Returns whether a thread is running.
    pub(super) fn run(&self, timeout: Option<Duration>, work: MemoryWork) -> bool {
        let job = Job { work, timeout };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = jobs.send(job);
        // Work that nobody takes is dropped without the lock: that may release memory.
        drop(jobs);
        sent.is_ok()
    }

    /// Has `work` done that releases memory. Returns whether a thread is running.
    pub(super) fn release(&self, work: MemoryWork) -> bool {
        let timeout = *self.timeout.lock().unwrap_or_else(PoisonError::into_inner);
        self.run(Some(timeout), work)
    }

    /// Has the threads end after what is in line. They share this handle, so the line would never
    /// close by itself.
    pub(super) fn stop(&self) {
        let (nobody, _) = Inbox::new();
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = nobody;
    }
}
