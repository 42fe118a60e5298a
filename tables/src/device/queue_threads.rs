//! The threads that own one device's queues.
//!
//! ```text
//!   jobs ──▶ channel ─┬▶ queue thread: Queue ─▶ run, finish, time ─▶ answers
//!                     └▶ queue thread: Queue
//! ```
//!
//! A job is straight-line code over one in-order queue. A GPU has three queue threads: they overlap
//! the upload of one job with the kernels of another and the download of a third. A CPU device has
//! one queue thread, as its kernels use all cores by themselves.
//!
//! Should the context be lost, the next job opens the device again. A thread that hangs in a call
//! of the driver is replaced (`watchdog`).

use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

use super::budget::Budget;
use super::info::DeviceInfo;
use super::queue::Queue;
use super::shared::{Shared, stopped};
use super::status::without_panic;
use super::upload_permits::Permits;
use super::watchdog::{Late, Watched};

/// What a queue thread runs with its queue, or with the reason why it has none.
pub(super) type Work = Box<dyn FnOnce(Result<&mut Queue>) + Send>;

/// Work, and how long it may take.
pub(super) struct Job {
    pub(super) run: Work,
    /// The time that the driver has for each step; `None` without limit.
    pub(super) timeout: Option<Duration>,
}

/// What makes the threads of a device.
#[derive(Clone)]
pub(super) struct ThreadMaker {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) budget: Arc<Budget>,
    pub(super) shared: Arc<Shared>,
    pub(super) inbox: Arc<Mutex<Receiver<Job>>>,
    pub(super) uploads: Arc<Permits>,
}

impl ThreadMaker {
    /// Starts a thread with a queue of its own.
    pub(super) fn start_thread(&self) -> Result<()> {
        let watched = self.shared.watch.add();
        let thread = QueueThread {
            maker: self.clone(),
            watched: Arc::clone(&watched),
        };
        let started = self.start("horton", move || thread.serve());
        if started.is_err() {
            self.shared.watch.remove(&watched);
        }
        started
    }

    /// Starts the thread that looks after the others.
    pub(super) fn start_watchdog(&self) -> Result<()> {
        let maker = self.clone();
        self.start("horton watchdog", move || {
            loop {
                let late = maker.shared.watch.wait_for_late();
                maker.replace_threads(late);
            }
        })
    }

    fn start(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(format!("{name} {}", self.info.label()));
        let started = thread.spawn(work);
        started.map_err(|e| stopped(&self.info, e.to_string()))?;
        Ok(())
    }

    /// Takes the device as lost, as a call of its driver hangs, and all jobs as failed. Other
    /// threads take the places of those that are busy.
    fn replace_threads(&self, late: Late) {
        let error = late.error(&self.info);
        log::warn!("{error}");
        self.shared.abandon(&error.problem());
        let abandoned = self.shared.watch.abandon_busy();
        self.uploads.renew(abandoned);
        for _ in 0..abandoned {
            if let Err(error) = self.start_thread() {
                log::warn!("{error}");
            }
        }
        let is_stopped = self.shared.watch.count() == 0;
        self.shared.is_stopped.store(is_stopped, Ordering::Relaxed);
        self.shared.hangs.send_replace(Some(late));
    }
}

impl Late {
    /// Returns the error of a job on the device of `info` that a driver does not answer.
    pub(super) fn error(&self, info: &DeviceInfo) -> Error {
        Error::OpenCl {
            call: self.call.to_owned(),
            device: info.label(),
            status: format!(
                "it has not returned for {:.1} s",
                self.allowed.as_secs_f32()
            ),
        }
    }
}

/// A thread with a queue of its own.
struct QueueThread {
    maker: ThreadMaker,
    watched: Arc<Watched>,
}

impl QueueThread {
    /// Runs jobs until every handle is gone, or until the thread was abandoned in one. A device
    /// that cannot be opened fails the job, and is opened again for the next, as is one whose
    /// context was lost.
    fn serve(&self) {
        self.watched.watch_this_thread();
        let mut queue: Option<Queue> = None;
        let mut goes_on = true;
        while goes_on && let Some(Job { run, timeout }) = self.next_job() {
            let work = || self.work(&mut queue, run);
            goes_on = self.maker.shared.watch.run(&self.watched, timeout, work);
        }
        if !goes_on {
            // To release what it has may hang once more.
            std::mem::forget(queue);
        }
    }

    /// Runs `work` with the queue, opened again if it was lost. The thread survives a panic.
    fn work(&self, queue: &mut Option<Queue>, work: Work) {
        let worked = without_panic(|| {
            if let Some(lost) = queue.take_if(|queue| queue.is_lost()) {
                lost.release();
            }
            work(match queue.as_mut() {
                Some(queue) => Ok(queue),
                None => self.open().map(|opened| queue.insert(opened)),
            });
        });
        if let Err(panic) = worked {
            log::warn!("{}", stopped(&self.maker.info, panic));
            // Nobody knows what it has been left in.
            std::mem::forget(queue.take());
        }
    }

    /// Waits for a job; idle threads wait at the lock.
    fn next_job(&self) -> Option<Job> {
        let inbox = &self.maker.inbox;
        let inbox = inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.recv().ok()
    }

    fn open(&self) -> Result<Queue> {
        let ThreadMaker {
            info,
            budget,
            shared,
            ..
        } = &self.maker;
        without_panic(|| Queue::open(shared.open(info, budget)?))
            .unwrap_or_else(|panic| Err(stopped(info, panic)))
    }
}
