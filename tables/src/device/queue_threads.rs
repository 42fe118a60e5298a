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
//! of the driver is replaced (`watchdog`). Where the system has no thread for that, it is tried
//! again. A device without any thread of a kind is not asked until then.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::{Error, Result};

use super::budget::Budget;
use super::inbox::Inbox;
use super::info::DeviceInfo;
use super::memory_threads::MemoryWork;
use super::queue::Queue;
use super::shared::{Shared, stopped};
use super::status::without_panic;
use super::upload_permits::Permits;
use super::watchdog::{Late, Role, Watched};

/// Pauses after which threads are started again where the system had none, at first and at most.
const PAUSE_LEAST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(60);

/// What a queue thread runs with its queue, or with the reason why it has none.
pub(super) type Work = Box<dyn FnOnce(Result<&mut Queue>) + Send>;

/// What makes the threads of a device.
#[derive(Clone)]
pub(super) struct ThreadMaker {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) budget: Arc<Budget>,
    pub(super) shared: Arc<Shared>,
    pub(super) jobs: Inbox<Work>,
    pub(super) memory_jobs: Inbox<MemoryWork>,
    pub(super) uploads: Arc<Permits>,
}

impl ThreadMaker {
    /// Starts a thread.
    pub(super) fn start_thread(&self, role: Role) -> Result<()> {
        let watched = self.shared.watch.add(role);
        let (maker, watched_here) = (self.clone(), Arc::clone(&watched));
        let started = match role {
            Role::Queue => self.start("horton", move || maker.serve_queue(&watched_here)),
            Role::Memory => self.start("horton memory", move || maker.serve_memory(&watched_here)),
        };
        if started.is_err() {
            self.shared.watch.remove(&watched);
        }
        started
    }

    /// Starts the thread that looks after the others.
    pub(super) fn start_watchdog(&self) -> Result<()> {
        let maker = self.clone();
        self.start("horton watchdog", move || maker.watch_threads())
    }

    /// Looks after the other threads for as long as the process runs. Those that could not be
    /// started are tried again after pauses that grow.
    fn watch_threads(&self) {
        let (mut missing, mut pause) = (Vec::new(), PAUSE_LEAST);
        loop {
            let most = (!missing.is_empty()).then_some(pause);
            match self.shared.watch.wait_for_late(most) {
                Some(late) => {
                    missing.extend(self.replace_threads(late));
                    pause = PAUSE_LEAST;
                }
                None => {
                    missing = self.start_threads(missing);
                    pause = (2 * pause).min(PAUSE_MOST);
                }
            }
        }
    }

    fn start(&self, name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        #[cfg(debug_assertions)]
        super::faults::pass_thread().map_err(|failed| failed.error(name, &self.info.label()))?;
        let thread = std::thread::Builder::new().name(format!("{name} {}", self.info.label()));
        let started = thread.spawn(work);
        started.map_err(|e| stopped(&self.info, e.to_string()))?;
        Ok(())
    }

    /// Takes the device as lost, as a call of its driver hangs, and all jobs as failed. Other
    /// threads take the places of those that are busy. Returns the roles for which there are none.
    fn replace_threads(&self, late: Late) -> Vec<Role> {
        let error = late.error(&self.info);
        log::warn!("{error}");
        self.shared.abandon(&error.problem());
        let abandoned = self.shared.watch.abandon_busy();
        let queues = abandoned.iter().filter(|role| **role == Role::Queue);
        self.uploads.renew(queues.count());
        let missing = self.start_threads(abandoned);
        self.shared.hangs.send_replace(Some(late));
        missing
    }

    /// Starts threads of these `roles`. Returns those of which none could be started, and notes
    /// whether all threads of a role are missing then.
    fn start_threads(&self, mut roles: Vec<Role>) -> Vec<Role> {
        roles.retain(|role| {
            let started = self.start_thread(*role);
            started.inspect_err(|error| log::warn!("{error}")).is_err()
        });
        let is_missing = |role| self.shared.watch.count(role) == 0;
        let is_stopped = is_missing(Role::Queue) || is_missing(Role::Memory);
        self.shared.is_stopped.store(is_stopped, Ordering::Relaxed);
        roles
    }

    /// Runs jobs with a queue until every handle is gone, or until the thread was abandoned in one.
    /// A device that cannot be opened fails the job, and is opened again for the next, as is one
    /// whose context was lost.
    fn serve_queue(&self, watched: &Arc<Watched>) {
        let mut queue: Option<Queue> = None;
        let work = |work| self.work(&mut queue, work);
        if !self.jobs.serve(&self.shared.watch, watched, work) {
            // To release what it has may hang once more.
            std::mem::forget(queue);
        }
    }

    fn serve_memory(&self, watched: &Arc<Watched>) {
        self.memory_jobs.serve(&self.shared.watch, watched, |work| {
            if let Err(panic) = without_panic(work) {
                log::warn!("{}", stopped(&self.info, panic));
            }
        });
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
            log::warn!("{}", stopped(&self.info, panic));
            // Nobody knows what it has been left in.
            std::mem::forget(queue.take());
        }
    }

    fn open(&self) -> Result<Queue> {
        without_panic(|| Queue::open(self.shared.open(&self.info, &self.budget)?))
            .unwrap_or_else(|panic| Err(stopped(&self.info, panic)))
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
