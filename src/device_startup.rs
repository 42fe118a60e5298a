//! Devices made ready in the background: no query waits for a driver, unless it asks to.
//!
//! ```text
//!  first planned join, warm_up ─▶ begin ─▶ a thread: open ─▶ self-test, which compiles ─▶ finished
//!                                                      │     a thread per device
//!  a join's build side is there ─▶ now ◀───────────────┘   Opening │ Compiling │ Ready │ …
//! ```
//!
//! A start that failed is tried again for each new plan, as a device may have been added. While
//! that try opens devices, joins give the reason of the one before.
//!
//! A session can ask for several devices. It is ready with those that pass; the others are named in
//! the log.
//!
//! Opening a device takes time, and compiling its kernels for the first time seconds. A planner's
//! or runtime's thread must not do either, and a join under `auto` need not wait: the host joins as
//! fast as DataFusion does. Under `always` joins wait for it, and where a device is named they wait
//! until it is open, for the name may be wrong. No thread is blocked.
//!
//! A driver may hang before it lists its devices. After `horton.device_timeout` it counts as not
//! there until it has listed them. Whatever comes after that has a deadline of the device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::executor::block_on;
use horton_tables::self_test;
use tokio::sync::watch;

use crate::config::{Enabled, HortonConfig};
use crate::device::{Device, Devices};
use crate::error::{DeviceError, Error, Result};

/// The state of the devices that a session asks for.
#[derive(Debug, Clone)]
pub enum Readiness {
    /// Devices are being opened.
    Opening {
        /// The reason why the last try found none. It likely still holds.
        last_reason: Option<String>,
    },
    /// Kernels of the devices are being compiled and tested.
    Compiling,
    /// Devices that have passed their self-tests.
    Ready(Devices),
    /// No device is there, or none is to be trusted, for this reason.
    Unavailable(String),
    /// The session asks for a device that is not there or cannot be used.
    Invalid(DeviceError),
}

/// The reason why no session has a device any more, where the process can still find out.
const THREAD_ENDED: &str = "the thread that made the device ready has ended";

/// Requests whose states are kept. Sessions may be able to ask for any text.
const MOST_REQUESTS: usize = 64;

/// By the device that sessions ask for. Those that ask for the same share it. The sender of a state
/// is dropped when its thread ends.
type States = BTreeMap<String, watch::Receiver<Readiness>>;

fn states() -> MutexGuard<'static, States> {
    static STATES: Mutex<States> = Mutex::new(States::new());
    STATES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the device of a session ready in the background, unless it is or that was begun. What
/// failed before is tried again: a device may have been added since.
pub fn begin(config: &HortonConfig) {
    drop(receiver(config));
}

/// Returns the state now.
pub fn now(config: &HortonConfig) -> Readiness {
    let known = states()
        .get(&config.device)
        .map(|state| state.borrow().clone());
    let state = known.unwrap_or_else(|| receiver(config).borrow().clone());
    for_session(state, config)
}

/// Returns `state` with devices that have the timeout of the session with `config`.
fn for_session(state: Readiness, config: &HortonConfig) -> Readiness {
    match state {
        Readiness::Ready(devices) => {
            Readiness::Ready(devices.with_timeout(config.device_timeout()))
        }
        other => other,
    }
}

/// Returns the state once the device is open: never [`Readiness::Opening`].
pub async fn opened(config: &HortonConfig) -> Readiness {
    once(config, |state| !matches!(state, Readiness::Opening { .. })).await
}

/// Returns the state once startup has finished: neither [`Readiness::Opening`] nor
/// [`Readiness::Compiling`].
pub async fn finished(config: &HortonConfig) -> Readiness {
    once(config, has_finished).await
}

async fn once(config: &HortonConfig, holds: impl FnMut(&Readiness) -> bool) -> Readiness {
    let known = states().get(&config.device).cloned();
    let mut state = known.unwrap_or_else(|| receiver(config));
    match state.wait_for(holds).await {
        Ok(state) => for_session(state.clone(), config),
        Err(_) => Readiness::Unavailable(THREAD_ENDED.to_owned()),
    }
}

/// Says why a session has no device to warm up.
pub(crate) const UNUSED: &str = "joins of this session use no device: call horton_join::install, and set \
                      horton.enabled = 'auto'";

/// Waits until joins with the options `config` can use their device. For workers, which have
/// options when they start, and no session. Returns the devices.
///
/// See also: [`warm_up`](crate::warm_up) for sessions.
///
/// # Errors
/// [`Error::Invalid`] if there is no device that joins can use: they run on the host.
/// [`DeviceError::UnknownDevice`] and [`DeviceError::UnsuitableDevice`] if `horton.device` names a
/// device that is not there, or one that cannot run the kernels: joins fail.
pub async fn warm_up_for(config: &HortonConfig) -> Result<Devices> {
    if config.enabled == Enabled::Never {
        return Err(Error::Invalid(UNUSED.to_owned()));
    }
    begin(config);
    match finished(config).await {
        Readiness::Ready(devices) => Ok(devices),
        Readiness::Unavailable(reason) => Err(Error::Invalid(reason)),
        Readiness::Invalid(error) => Err(error.into()),
        Readiness::Opening { .. } | Readiness::Compiling => Err(Error::Internal(
            "a device whose startup has finished is not open".to_owned(),
        )),
    }
}

/// Returns the state of what `config` asks for, which a thread makes ready if it is not.
fn receiver(config: &HortonConfig) -> watch::Receiver<Readiness> {
    let asked = &config.device;
    let mut states = states();
    let mut last_reason = None;
    if let Some(state) = states.get(asked) {
        match &*state.borrow() {
            // Its thread hangs, and another one would, too.
            _ if state.has_changed().is_ok() => return state.clone(),
            Readiness::Unavailable(reason) => last_reason = Some(reason.clone()),
            Readiness::Invalid(_) => {}
            _ => return state.clone(),
        }
    }
    let (publisher, state) = watch::channel(Readiness::Opening { last_reason });
    if let Err(error) = begin_threads(asked, config.device_timeout(), publisher) {
        return watch::channel(Readiness::Unavailable(format!(
            "no thread to open the device: {error}"
        )))
        .1;
    }
    if states.len() >= MOST_REQUESTS {
        // They are found again at once: devices stay open, and results of self-tests are kept.
        states.retain(|_, state| !has_finished(&state.borrow()));
    }
    states.insert(asked.clone(), state.clone());
    state
}

/// Starts the thread that makes the device ready which is `asked` for, and the one that looks
/// whether it is open in time.
fn begin_threads(
    asked: &str,
    timeout: Option<Duration>,
    publisher: watch::Sender<Readiness>,
) -> std::io::Result<()> {
    let publisher = Arc::new(publisher);
    let (ends, ended) = channel::<()>();
    if let Some(timeout) = timeout {
        let publisher = Arc::downgrade(&publisher);
        let wait = move || {
            if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(timeout)
                && let Some(publisher) = publisher.upgrade()
            {
                publisher.send_if_modified(|state| is_late(state, timeout));
            }
        };
        let thread = std::thread::Builder::new().name("horton warm-up watch".to_owned());
        thread.spawn(wait)?;
    }
    let asked = asked.to_owned();
    let thread = std::thread::Builder::new().name("horton warm-up".to_owned());
    thread.spawn(move || {
        let _ends = ends;
        let finished = prepare(&asked, timeout, &publisher);
        publisher.send_replace(finished);
    })?;
    Ok(())
}

/// Makes a device unavailable that is not open after `timeout`. Returns whether it is not.
fn is_late(state: &mut Readiness, timeout: Duration) -> bool {
    let is_late = matches!(state, Readiness::Opening { .. });
    if is_late {
        let reason = not_listed(timeout.as_secs());
        log::warn!("{reason}; joins stay on the host");
        *state = Readiness::Unavailable(reason);
    }
    is_late
}

/// Returns the reason why there is no device, if drivers have not listed any for so many seconds.
pub(crate) fn not_listed(seconds: u64) -> String {
    format!("no OpenCL driver has listed its devices for {seconds} s")
}

fn has_finished(state: &Readiness) -> bool {
    !matches!(state, Readiness::Opening { .. } | Readiness::Compiling)
}

/// Opens the devices and runs their self-tests.
fn prepare(
    asked: &str,
    timeout: Option<Duration>,
    publisher: &watch::Sender<Readiness>,
) -> Readiness {
    let mut tried = BTreeSet::new();
    loop {
        let devices: Vec<Device> = match Device::open_all(asked) {
            Ok(devices) => {
                let devices = devices.iter();
                devices.map(|device| device.with_timeout(timeout)).collect()
            }
            Err(error @ (DeviceError::NoPlatform(_) | DeviceError::NoUsableDevice(_))) => {
                warn_once(&error.clone().into());
                return Readiness::Unavailable(format!("no device: {}", error.brief()));
            }
            Err(
                error @ (DeviceError::UnknownDevice { .. } | DeviceError::UnsuitableDevice { .. }),
            ) => {
                return Readiness::Invalid(error);
            }
            Err(error) => return Readiness::Unavailable(error.brief()),
        };
        publisher.send_replace(Readiness::Compiling);
        let (passed, failed) = tested(&devices);
        let Some(error) = failed.into_iter().next() else {
            return ready(passed);
        };
        if !passed.is_empty() {
            log::warn!("{error}; joins go to the other devices");
            return ready(passed);
        }
        // 'auto' means another device once one has failed.
        let is_first = tried.insert(devices.first().map(|device| device.info().index));
        if !is_first || !matches!(error, Error::Device(DeviceError::SelfTest { .. })) {
            return Readiness::Unavailable(error.brief());
        }
    }
}

fn ready(passed: Vec<Device>) -> Readiness {
    match Devices::new(passed) {
        Some(devices) => Readiness::Ready(devices),
        None => Readiness::Unavailable("horton.device names no device".to_owned()),
    }
}

/// Runs the self-tests of all devices at once. Returns the devices that passed, and the errors.
fn tested(devices: &[Device]) -> (Vec<Device>, Vec<Error>) {
    let results: Vec<Result<Device>> = std::thread::scope(|scope| {
        let test = |device: &Device| {
            let device = device.clone();
            let test = move || Ok(block_on(trusted(&device)).map(|()| device)?);
            std::thread::Builder::new().spawn_scoped(scope, test)
        };
        let tests: Vec<_> = devices.iter().map(test).collect();
        let ended = || Err(Error::Internal(THREAD_ENDED.to_owned()));
        let joined = tests.into_iter().map(|test| match test {
            Ok(test) => test.join().unwrap_or_else(|_| ended()),
            Err(error) => Err(Error::Internal(format!(
                "no thread for a self-test: {error}"
            ))),
        });
        joined.collect()
    });
    let (mut passed, mut failed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(device) => passed.push(device),
            Err(error) => failed.push(error),
        }
    }
    (passed, failed)
}

/// Tests the device, and opens it where an earlier process did the former. A driver takes a tenth
/// of a second to make a context, and the first join would wait for it.
async fn trusted(device: &Device) -> horton_tables::error::Result<()> {
    self_test(device).await?;
    device.run(|_| Ok(())).await?;
    Ok(())
}

/// Says each error once in this process.
fn warn_once(error: &Error) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(error.to_string()) {
        log::warn!("{error}; joins stay on the host");
    }
}
