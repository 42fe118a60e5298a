//! The thread that owns one device, and the handle through which the others use it.
//!
//! ```text
//!   Device (cloneable) ──Job──▶ channel ──▶ thread: Queue ─▶ run, finish, time
//!        ▲                                      │
//!        └───────────── Answer { value, cost } ─┘
//! ```
//!
//! A device is opened once in a process and stays open: compiling its kernels costs up to
//! half a second, and a context pins driver memory only once that way. A job whose asker
//! is gone before it starts is skipped, which is how dropping a stream cancels its work.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

use super::info::{DeviceInfo, pick};
use super::memory::Budget;
use super::queue::Queue;
use super::status::without_panic;

/// What a job cost on the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Kernels launched.
    pub launches: u64,
    /// Time of host-to-device transfers, from the device's event clock.
    pub upload: Duration,
    /// Time of kernels and fills.
    pub kernel: Duration,
    /// Time of device-to-host transfers.
    pub download: Duration,
    /// Bytes sent to the device.
    pub uploaded: u64,
    /// Bytes brought back.
    pub downloaded: u64,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.launches += other.launches;
        self.upload += other.upload;
        self.kernel += other.kernel;
        self.download += other.download;
        self.uploaded += other.uploaded;
        self.downloaded += other.downloaded;
    }
}

/// A job's result and its cost.
#[derive(Debug)]
pub struct Answer<T> {
    /// What the job returned.
    pub value: T,
    /// What it cost on the device.
    pub cost: Cost,
}

type Job = Box<dyn FnOnce(Result<&mut Queue>) + Send>;

/// An opened device. Clones share the one owner thread.
#[derive(Clone)]
pub struct Device {
    info: Arc<DeviceInfo>,
    budget: Arc<Budget>,
    jobs: Sender<Job>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info.label())
    }
}

impl Device {
    /// The device that `asked` means (see [`pick`]). Its context is created by its own thread
    /// when the first job comes, so this does not wait for the driver to do so.
    ///
    /// # Errors
    /// Those of [`pick`]; [`Error::QueueStopped`] if its thread cannot be started.
    pub fn open(asked: &str) -> Result<Self> {
        static OPENED: Mutex<Opened> = Mutex::new(Opened::new());
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = opened.by_request.get(asked) {
            return Ok(device.clone());
        }
        let info = pick(asked)?;
        let device = match opened.by_place.get(&info.index) {
            Some(device) => device.clone(),
            None => Self::start(info)?,
        };
        opened.by_place.insert(device.info.index, device.clone());
        opened.by_request.insert(asked.to_owned(), device.clone());
        Ok(device)
    }

    fn start(info: DeviceInfo) -> Result<Self> {
        let info = Arc::new(info);
        let budget = Budget::for_device(&info);
        let (jobs, inbox) = channel::<Job>();
        let (thread_info, thread_budget) = (Arc::clone(&info), Arc::clone(&budget));
        std::thread::Builder::new()
            .name(format!("horton {}", info.label()))
            .spawn(move || serve(thread_info, thread_budget, &inbox))
            .map_err(|e| stopped(&info, e.to_string()))?;
        Ok(Self { info, budget, jobs })
    }

    /// The device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The device's byte budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Runs `job` on the owner thread and waits without blocking the calling thread.
    ///
    /// # Errors
    /// The job's own, or [`Error::QueueStopped`] if it panicked or the thread is gone.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        self.submit(job)?
            .await
            .map_err(|_| stopped(&self.info, "its thread ended"))?
    }

    /// As [`run`](Self::run), blocking; for programs outside an async runtime.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        futures::executor::block_on(self.run(job))
    }

    fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<Answer<T>>>> {
        let (reply, answer) = oneshot::channel();
        let info = Arc::clone(&self.info);
        self.jobs
            .send(Box::new(move |queue| {
                if reply.is_closed() {
                    return;
                }
                let result = match queue {
                    Ok(queue) => without_panic(|| queue.job(job))
                        .unwrap_or_else(|panic| Err(stopped(&info, panic))),
                    Err(error) => Err(error),
                };
                drop(reply.send(result));
            }))
            .map_err(|_| stopped(&self.info, "its thread ended"))?;
        Ok(answer)
    }
}

/// The devices that this process has opened. Requests are remembered, because every planned
/// join makes one and drivers take their time to list devices.
struct Opened {
    by_request: BTreeMap<String, Device>,
    by_place: BTreeMap<(usize, usize), Device>,
}

impl Opened {
    const fn new() -> Self {
        Self {
            by_request: BTreeMap::new(),
            by_place: BTreeMap::new(),
        }
    }
}

fn stopped(info: &DeviceInfo, reason: impl Into<String>) -> Error {
    Error::QueueStopped {
        device: info.label(),
        reason: reason.into(),
    }
}

/// The owner thread: runs jobs until every handle is gone. A device that cannot be opened
/// fails the job that asked, and is tried again for the next.
fn serve(info: Arc<DeviceInfo>, budget: Arc<Budget>, inbox: &Receiver<Job>) {
    let mut opened: Option<Queue> = None;
    while let Ok(job) = inbox.recv() {
        let queue = match opened.as_mut() {
            Some(queue) => Ok(queue),
            None => open(&info, &budget).map(|queue| opened.insert(queue)),
        };
        job(queue);
    }
}

fn open(info: &Arc<DeviceInfo>, budget: &Arc<Budget>) -> Result<Queue> {
    without_panic(|| Queue::open(Arc::clone(info), Arc::clone(budget)))
        .unwrap_or_else(|panic| Err(stopped(info, panic)))
}
