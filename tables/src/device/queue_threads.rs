//! The threads that own one device's queues, and the handle through which the others use it.
//!
//! ```text
//!   Device (cloneable) ──Job──▶ channel ─┬▶ queue thread: Queue ─▶ run, finish, time
//!        ▲                               └▶ queue thread: Queue    │
//!        └───────────── Answer { value, cost } ────────────────────┘
//! ```
//!
//! A job is straight-line code over one in-order queue. A GPU has three queue threads: they overlap
//! the upload of one job with the kernels of another and the download of a third. A CPU device has
//! one queue thread, as its kernels use all cores by themselves.
//!
//! A device is opened once in a process and stays open. Compiling its kernels costs up to half a
//! second, and each context pins memory of the driver. Should the context be lost, the next job
//! opens it again. A thread that hangs in a call of the driver is replaced (`watchdog`). A job
//! whose caller is gone before it starts is skipped: dropping a stream cancels its work.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Either, select};
use ocl::core::OclPrm;
use tokio::sync::{oneshot, watch};

use crate::error::{Error, Result};

use super::budget::Budget;
use super::context::Opened;
use super::info::DeviceInfo;
use super::job::Answer;
use super::kind::DeviceKind;
use super::load::Load;
use super::pick::{is_open, pick_all};
use super::queue::Queue;
use super::self_test_cache::{self, SelfTestResult};
use super::staging::Staging;
use super::status::without_panic;
use super::upload_permits::{Permit, Permits};
use super::watchdog::{self, COMPILER_PATIENCE, DEVICE_TIMEOUT, Late, Watch, Watched};

/// What a queue thread runs with its queue, or with the reason why it has none.
type Work = Box<dyn FnOnce(Result<&mut Queue>) + Send>;

/// Work, and how long it may take.
struct Job {
    run: Work,
    /// The time that the driver has for each step; `None` without limit.
    timeout: Option<Duration>,
}

/// Queue threads of a device to which data is copied: one uploads, one computes, one downloads.
const QUEUE_THREADS: usize = 3;

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
    jobs: Sender<Job>,
    timeout: Option<Duration>,
}

/// The permit to fill memory that the device copies from, with the way to such memory.
///
/// It goes to the job that sends the memory, and no await may come in between: a stream that is
/// left in the middle of a poll would keep it from all others.
pub struct UploadPermit {
    _permit: Permit,
    opened: Arc<Opened>,
}

impl UploadPermit {
    /// Takes host memory as [`Device::staging`] does.
    ///
    /// # Errors
    /// The errors of [`Device::staging`].
    pub fn staging<T: OclPrm>(&self, what: &'static str, len: usize) -> Result<Staging<T>> {
        let _work = tracing::trace_span!("take staging memory").entered();
        self.opened.staging(what, len)
    }
}

impl std::fmt::Debug for UploadPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UploadPermit")
    }
}

/// What the threads of a device share.
struct Shared {
    state: Mutex<State>,
    watch: Watch,
    /// True if no thread is left, and none could be started.
    is_stopped: AtomicBool,
    /// The last loss of a driver that hung, if any. All jobs that were under way then have failed.
    hangs: watch::Sender<Option<Late>>,
    /// The process that has the threads: one that was forked from it has none.
    process: u32,
}

#[derive(Default)]
struct State {
    /// The opened device, once the first queue thread has had a job.
    opened: Option<Arc<Opened>>,
    /// Held by the thread that opens it. Another takes its place if that hangs.
    opening: Arc<Mutex<()>>,
    /// All contexts that may still have memory.
    all: Vec<Weak<Opened>>,
    /// The error by which the last context was lost.
    loss: Option<String>,
}

impl Shared {
    fn new() -> Self {
        Self {
            state: Mutex::default(),
            watch: Watch::default(),
            is_stopped: AtomicBool::new(false),
            hangs: watch::Sender::new(None),
            process: std::process::id(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the device unless that was done and its context still stands.
    fn open(&self, info: &Arc<DeviceInfo>, budget: &Arc<Budget>) -> Result<Arc<Opened>> {
        let turn = Arc::clone(&self.state().opening);
        // Another thread may hold it while it opens the device.
        let waits = watchdog::call("clCreateContext", COMPILER_PATIENCE);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waits);
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let loss = {
            let mut state = self.state();
            if let Some(loss) = state.opened.as_ref().and_then(|opened| opened.loss()) {
                state.loss = Some(loss);
            }
            state.loss.clone()
        };
        // Without the lock of the state: a driver takes its time.
        let new = Arc::new(Opened::new(Arc::clone(info), Arc::clone(budget), loss)?);
        let mut state = self.state();
        if !Arc::ptr_eq(&state.opening, &turn) {
            return Err(stopped(info, "it was opened too late"));
        }
        state.all.retain(|context| context.strong_count() > 0);
        state.all.push(Arc::downgrade(&new));
        let lost = state.opened.replace(Arc::clone(&new));
        drop(state);
        drop(lost);
        Ok(new)
    }

    fn opened(&self) -> Option<Arc<Opened>> {
        let opened = self.state().opened.clone();
        opened.filter(|opened| !opened.is_lost())
    }

    /// Takes the context as lost, and all that were lost before: a call of the driver hangs.
    fn abandon(&self, reason: &str) {
        let mut state = self.state();
        state.opening = Arc::default();
        state.loss = Some(reason.to_owned());
        let all: Vec<_> = state.all.drain(..).filter_map(|of| of.upgrade()).collect();
        let opened = state.opened.take();
        drop(state);
        all.iter().for_each(|context| context.abandon(reason));
        drop((all, opened));
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.info.label())
    }
}

impl Device {
    /// Opens the device that `asked` means (see [`pick`](super::pick)), the first one if it means
    /// several. A queue thread creates its context for the first job, so this does not wait for the
    /// driver.
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
        // What was picked may have failed its self-test since.
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
        let shared = Arc::new(Shared::new());
        let (jobs, inbox) = channel::<Job>();
        let threads = match info.kind {
            DeviceKind::Cpu => 1,
            _ => QUEUE_THREADS,
        };
        let uploads = Permits::new(uploads(threads));
        let maker = ThreadMaker {
            info: Arc::clone(&info),
            budget: Arc::clone(&budget),
            shared: Arc::clone(&shared),
            inbox: Arc::new(Mutex::new(inbox)),
            uploads: Arc::clone(&uploads),
        };
        for _ in 0..threads {
            maker.start_thread()?;
        }
        maker.start_watchdog()?;
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

    /// Waits for the permit to fill host memory that is to be sent.
    ///
    /// # Errors
    /// The errors of opening the device.
    pub async fn upload(&self) -> Result<UploadPermit> {
        loop {
            // Opens the device before it takes a permit, as that can take seconds.
            if self.shared.opened().is_none() {
                self.run(|_| Ok(())).await?;
            }
            let permit = self.uploads.take().await;
            if let Some(opened) = self.shared.opened() {
                return Ok(UploadPermit {
                    _permit: permit,
                    opened,
                });
            }
        }
    }

    /// Takes host memory for `len` elements that are to be sent, with unspecified contents. It
    /// comes from a pool; if that is empty, locking pages takes about a millisecond per megabyte.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] where the device's memory is the host's, [`Error::OpenCl`].
    pub async fn staging<T: OclPrm>(&self, what: &'static str, len: usize) -> Result<Staging<T>> {
        match self.shared.opened() {
            Some(opened) => opened.staging(what, len),
            None => Ok(self.run(move |queue| queue.staging(what, len)).await?.value),
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
        let mut hangs = self.shared.hangs.subscribe();
        let submitted = self.submit(job);
        let (info, shared) = (Arc::clone(&self.info), Arc::clone(&self.shared));
        let answer = async move {
            let submitted = submitted?;
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
        };
        answer.boxed()
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

    fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<Answer<T>>>> {
        if self.shared.process != std::process::id() {
            return Err(stopped(
                &self.info,
                "this process was forked from the one that opened it, and has none of its threads",
            ));
        }
        if self.shared.is_stopped.load(Ordering::Relaxed) {
            return Err(stopped(&self.info, "none of its threads is left"));
        }
        let (reply, answer) = oneshot::channel();
        let info = Arc::clone(&self.info);
        let asked = Instant::now();
        let counted = Counted::new(&self.load);
        let run: Work = Box::new(move |queue| {
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
        let sent = self.jobs.send(Job { run, timeout });
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

fn stopped(info: &DeviceInfo, reason: impl Into<String>) -> Error {
    Error::QueueStopped {
        device: info.label(),
        reason: reason.into(),
    }
}

/// What makes the threads of a device.
#[derive(Clone)]
struct ThreadMaker {
    info: Arc<DeviceInfo>,
    budget: Arc<Budget>,
    shared: Arc<Shared>,
    inbox: Arc<Mutex<Receiver<Job>>>,
    uploads: Arc<Permits>,
}

impl ThreadMaker {
    /// Starts a thread with a queue of its own.
    fn start_thread(&self) -> Result<()> {
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
    fn start_watchdog(&self) -> Result<()> {
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
    fn error(&self, info: &DeviceInfo) -> Error {
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
