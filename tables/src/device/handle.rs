//! The handle of one opened device, through which all others use it.
//!
//! ```text
//!   Device (cloneable) ──Job──▶ channel ─▶ queue threads: job(&mut Queue) ─┐
//!        ▲                                                                  │
//!        └───────────────────── Answer { value, cost } ─────────────────────┘
//! ```
//!
//! A device is opened once in a process and stays open. Compiling its kernels costs up to half a
//! second, and each context pins memory of the driver. A job whose caller is gone before it starts
//! is skipped: dropping a stream cancels its work.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Either, ready, select};
use ocl::core::OclPrm;
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};

use super::budget::Budget;
use super::context::Opened;
use super::inbox::{Inbox, Job};
use super::info::DeviceInfo;
use super::job::Answer;
use super::kind::DeviceKind;
use super::load::Load;
use super::memory_threads::MemoryThreads;
use super::pick::{is_open, pick_all};
use super::queue::Queue;
use super::queue_threads::{ThreadMaker, Work};
use super::self_test_cache::{self, SelfTestResult};
use super::shared::{Shared, stopped};
use super::staging::Staging;
use super::status::without_panic;
use super::upload_permits::{Permit, Permits};
use super::watchdog::{DEVICE_TIMEOUT, Late, Role};

/// Queue threads of a device to which data is copied: one uploads, one computes, one downloads.
const QUEUE_THREADS: usize = 3;

/// Memory threads of such a device. Streams that begin at once want memory at once.
const MEMORY_THREADS: usize = 4;

/// Requests that are remembered. Sessions may be able to ask for any text.
const MOST_REQUESTS: usize = 64;

/// An opened device. Clones share its queue threads.
///
/// ```text
///  Device::open ─▶ run(job) ─▶ a queue thread: job(&mut Queue) ─▶ Answer { value, cost }
/// ```
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::error::Error;
///
/// # fn main() -> Result<(), Error> {
/// let device = match Device::open("auto") {
///     Ok(device) => device,
///     Err(Error::NoPlatform(_) | Error::NoUsableDevice(_)) => return Ok(()),
///     Err(error) => return Err(error),
/// };
/// let read = device.run_blocking(|queue| {
///     let buffer = queue.buffer_from("numbers", &[1u32, 2, 3])?;
///     queue.read(&buffer, 3)
/// })?;
/// assert_eq!(read.value, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
///
/// See also: [`list`](super::list) for all devices, [`Queue`] for what a job can do.
#[derive(Clone)]
pub struct Device {
    info: Arc<DeviceInfo>,
    budget: Arc<Budget>,
    shared: Arc<Shared>,
    load: Arc<Load>,
    uploads: Arc<Permits>,
    jobs: Sender<Job<Work>>,
    timeout: Option<Duration>,
}

/// The permit to fill memory that the device copies from.
///
/// It goes to the job that sends the memory, and no await may come in between: a stream that is
/// left in the middle of a poll would keep it from all others.
#[derive(Debug)]
pub struct UploadPermit {
    _permit: Permit,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info.label())
    }
}

impl Device {
    /// Opens the device that `asked` means (see [`pick`](super::pick)), the first one if it means
    /// several. A queue thread creates its context for the first job. But the first call of the
    /// process lists the devices on this thread, which a driver may hang in.
    ///
    /// # Errors
    /// Those of [`pick`](super::pick); [`Error::QueueStopped`] if its thread cannot be started.
    pub fn open(asked: &str) -> Result<Self> {
        let all = Self::open_all(asked)?;
        let reason = || Error::NoUsableDevice(vec![format!("'{asked}' names none")]);
        all.first().cloned().ok_or_else(reason)
    }

    /// Opens all devices that `asked` means: every one of a list, or of `all`.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_all(asked: &str) -> Result<Vec<Self>> {
        static STARTED: Mutex<Started> = Mutex::new(Started::new());
        let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        // A device that was picked may have failed its self-test since.
        let failed = |device: &Device| {
            let result = self_test_cache::result(&device.info);
            matches!(result, Some(SelfTestResult::Failed(_)))
        };
        let stands = |all: &&Vec<Device>| !is_open(asked) || !all.iter().any(failed);
        if let Some(all) = started.by_request.get(asked).filter(stands) {
            return Ok(all.clone());
        }
        let picked = pick_all(asked)?.into_iter();
        let all = picked.map(|info| started.start(info));
        let all = all.collect::<Result<Vec<_>>>()?;
        if started.by_request.len() >= MOST_REQUESTS {
            started.by_request.clear();
        }
        started.by_request.insert(asked.to_owned(), all.clone());
        Ok(all)
    }

    fn start(info: DeviceInfo) -> Result<Self> {
        let info = Arc::new(info);
        let budget = Budget::for_device(&info);
        let (memory, memory_jobs) = MemoryThreads::new();
        let shared = Arc::new(Shared::new(memory));
        let (jobs, inbox) = Inbox::new();
        let (threads, memory_threads) = match info.kind {
            DeviceKind::Cpu => (1, 1),
            _ => (QUEUE_THREADS, MEMORY_THREADS),
        };
        let uploads = Permits::new(uploads(threads));
        let maker = ThreadMaker {
            info: Arc::clone(&info),
            budget: Arc::clone(&budget),
            shared: Arc::clone(&shared),
            jobs: inbox,
            memory_jobs,
            uploads: Arc::clone(&uploads),
        };
        let queues = repeat_n(Role::Queue, threads);
        let mut roles = queues.chain(repeat_n(Role::Memory, memory_threads));
        let started = roles.try_for_each(|role| maker.start_thread(role));
        if let Err(error) = started.and_then(|()| maker.start_watchdog()) {
            // Those of queues end with `jobs`.
            shared.memory.stop();
            return Err(error);
        }
        Ok(Self {
            info,
            budget,
            shared,
            load: Arc::default(),
            uploads,
            jobs,
            timeout: Some(DEVICE_TIMEOUT),
        })
    }

    /// Returns the same device, whose driver has `timeout` to answer jobs of this handle: for each
    /// step, and once more for each gigabyte that it works on. `None` sets no limit.
    ///
    /// A job of a driver that takes longer fails, and so do all others of the device.
    pub fn with_timeout(&self, timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            ..self.clone()
        }
    }

    /// Returns its jobs: those in line and those that run.
    pub fn jobs(&self) -> usize {
        self.load.jobs.load(Ordering::Relaxed)
    }

    /// Returns what it has to do.
    pub(super) fn load(&self) -> &Load {
        &self.load
    }

    /// Returns the device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Returns the device's byte budget.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Waits for a moment until others have given back what `error` was short of. Returns whether
    /// they have; `false` at once if they use less, not counting the `own` bytes of the caller.
    pub async fn has_room_after(&self, error: &Error, own: u64) -> bool {
        match error.short_of() {
            Some(short) if short.saturating_add(own) <= self.budget.used() => {
                self.budget.wait_for(short).await
            }
            _ => false,
        }
    }

    /// Takes host memory for `len` elements that are to be sent, with unspecified contents, and the
    /// permit to fill it. `what` names it in errors.
    ///
    /// It comes from a pool. Where that has none, a memory thread makes some, while nobody keeps
    /// the permit: locking pages takes a third of a millisecond per megabyte.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] where the device's memory is the host's; [`Error::OpenCl`], also if
    /// the driver does not answer in time; [`Error::QueueStopped`]; the errors of opening the
    /// device.
    pub async fn upload<T: OclPrm>(
        &self,
        what: &'static str,
        len: usize,
    ) -> Result<(UploadPermit, Staging<T>)> {
        let (mut made, mut rounds) = (None, 0);
        loop {
            self.checked()?;
            let permit = UploadPermit {
                _permit: self.uploads.take().await,
            };
            let Some(opened) = self.shared.opened() else {
                drop(permit);
                // Opens the device, which can take seconds.
                self.run(|_| Ok(())).await?;
                continue;
            };
            let is_of_context = |staging: &Staging<T>| opened.owns_staging(staging);
            let made_for_it = made.take().filter(is_of_context);
            if let Some(staging) = made_for_it.or_else(|| opened.idle_staging(len)) {
                return Ok((permit, staging));
            }
            drop(permit);
            // Others may take idle memory. A stream gets its own in the end.
            rounds += 1;
            made = self.stock(opened, (what, len), rounds > 2).await?;
        }
    }

    /// Has a memory thread make staging memory. Returns it if no pool keeps so much, or if others
    /// are `not_to_take` it.
    fn stock<T: OclPrm>(
        &self,
        opened: Arc<Opened>,
        (what, len): (&'static str, usize),
        not_to_take: bool,
    ) -> impl Future<Output = Result<Option<Staging<T>>>> + use<T> {
        let hangs = self.shared.hangs.subscribe();
        let (reply, answer) = oneshot::channel();
        let stock = move || {
            if !reply.is_closed() {
                drop(reply.send(opened.stock(what, len, not_to_take)));
            }
        };
        let asked = self.checked().map(|()| {
            self.shared.memory.run(self.timeout, Box::new(stock));
        });
        let answer = self.answer(answer, hangs);
        async move {
            asked?;
            answer.await
        }
    }

    /// Runs `job` on a queue thread. It is in line from now on, and is skipped if the future is
    /// dropped before its turn. Waiting for the future blocks no thread.
    ///
    /// # Errors
    /// The job's own, [`Error::QueueStopped`] if it panicked or the thread is gone, and
    /// [`Error::OpenCl`] if the driver does not answer in time
    /// ([`with_timeout`](Self::with_timeout)).
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> BoxFuture<'static, Result<Answer<T>>> {
        // Before the job is in line: it hears of a hang that comes after that.
        let hangs = self.shared.hangs.subscribe();
        let submitted = self.submit(job);
        let answer = |submitted| self.answer(submitted, hangs);
        match submitted.map(answer) {
            Ok(answer) => answer.boxed(),
            Err(error) => ready(Err(error)).boxed(),
        }
    }

    /// Waits for what a thread answers, or for the news that the driver hangs.
    fn answer<T>(
        &self,
        submitted: oneshot::Receiver<Result<T>>,
        mut hangs: watch::Receiver<Option<Late>>,
    ) -> impl Future<Output = Result<T>> + use<T> {
        let (info, shared) = (Arc::clone(&self.info), Arc::clone(&self.shared));
        async move {
            let hang = std::pin::pin!(hangs.changed());
            match select(submitted, hang).await {
                Either::Left((answer, _)) => {
                    answer.map_err(|_| stopped(&info, "its thread ended"))?
                }
                Either::Right(_) => Err(match &*shared.hangs.borrow() {
                    Some(late) => late.error(&info),
                    None => stopped(&info, "its threads ended"),
                }),
            }
        }
    }

    /// Runs `job` and blocks until it is done; for programs without an async runtime.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<Answer<T>> {
        futures::executor::block_on(self.run(job))
    }

    /// Returns an error if no thread is running. Otherwise one is about to be asked.
    fn checked(&self) -> Result<()> {
        if self.shared.process != std::process::id() {
            return Err(stopped(
                &self.info,
                "this process was forked from the one that opened it, and has none of its threads",
            ));
        }
        if self.shared.is_stopped.load(Ordering::Relaxed) {
            return Err(stopped(&self.info, "none of its threads is left"));
        }
        self.shared.memory.note(self.timeout);
        Ok(())
    }

    fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<Answer<T>>>> {
        self.checked()?;
        let (reply, answer) = oneshot::channel();
        let info = Arc::clone(&self.info);
        let asked = Instant::now();
        let counted = Counted::new(&self.load);
        let work: Work = Box::new(move |queue| {
            let _counted = counted;
            if reply.is_closed() {
                return;
            }
            let began = Instant::now();
            let mut result = match queue {
                Ok(queue) => without_panic(|| queue.job(job)).unwrap_or_else(|panic| {
                    drop(queue.finish());
                    Err(stopped(&info, panic))
                }),
                Err(error) => Err(error),
            };
            if let Ok(answer) = &mut result {
                answer.cost.waited = began - asked;
            }
            log::trace!(
                "job: waited {:?}, took {:?}",
                began - asked,
                began.elapsed()
            );
            drop(reply.send(result));
        });
        let timeout = self.timeout;
        let sent = self.jobs.send(Job { work, timeout });
        sent.map_err(|_| stopped(&self.info, "its thread ended"))?;
        Ok(answer)
    }
}

/// A job that is counted until it is done or dropped.
struct Counted(Arc<Load>);

impl Counted {
    fn new(load: &Arc<Load>) -> Self {
        load.jobs.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(load))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns how many uploads a device of `threads` queue threads takes at once: one for each core
/// that fills memory, and two per queue thread in line. More would only have the driver lock more
/// pages.
fn uploads(threads: usize) -> usize {
    std::thread::available_parallelism().map_or(1, usize::from) + 2 * threads
}

/// The devices that this process has opened. Requests are remembered, because every join makes one
/// and drivers are slow to list devices.
struct Started {
    by_request: BTreeMap<String, Vec<Device>>,
    by_place: BTreeMap<(usize, usize), Device>,
}

impl Started {
    const fn new() -> Self {
        Self {
            by_request: BTreeMap::new(),
            by_place: BTreeMap::new(),
        }
    }

    /// Returns the device that `info` describes, started if it was not.
    fn start(&mut self, info: DeviceInfo) -> Result<Device> {
        if let Some(device) = self.by_place.get(&info.index) {
            return Ok(device.clone());
        }
        let device = Device::start(info)?;
        self.by_place.insert(device.info.index, device.clone());
        Ok(device)
    }
}
