//! The health of devices: those that a session or a worker still trusts.
//!
//! ```text
//!            a join's OpenCL error              the pause is over
//!  Trusted ─────────────────────────▶ Paused ─────────────────────▶ Tested ── passes ─▶ Trusted
//!     ▲                                │    ▲                          │
//!     └── the driver had no memory,    │    └──── fails: twice as long ┘
//!         and its pause is over ───────┘
//!
//!  SET horton.device = …: all are trusted again
//! ```
//!
//! A device that failed once may fail at every query, each time after half of the work. So the
//! session that got the error no longer uses that device for joins. After a pause its self-test
//! runs in the background, on threads of its own, and joins use the device again once it has
//! passed. Each pause is twice as long as the one before, so that a device that passes the test and
//! fails at joins costs ever less. Other sessions do not learn of it. They may use another
//! configuration, and find out at the cost of one query. Health travels with the session's options,
//! where rules and plan nodes find it, but is none of them: it changes also where options are
//! locked. A worker has one for all of its tasks ([`on_device`](crate::on_device)).
//!
//! A driver runs short of memory when other processes take it, and they give it back. A refusal of
//! our own [`Budget`](crate::device::Budget) is no failure of the device. It comes before any work
//! is done, so the device is asked again at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use horton_tables::self_test_again;

use crate::device::{Device, DeviceInfo, MEMORY_WAIT};
use crate::error::{Blame, DeviceError, Error, Result};

/// The time for which a device is not used after its driver had no memory, and the first pause of
/// one that failed. If memory is still short then, the join wastes one wait: 1 % of this
/// time.
pub const MEMORY_PAUSE: Duration = MEMORY_WAIT.saturating_mul(100);

/// The longest pause. A device that was trusted for as long begins with the shortest again.
const PAUSE_MAX: Duration = MEMORY_PAUSE.saturating_mul(360);

/// By the device's index.
type Records = BTreeMap<(usize, usize), Record>;

/// Failures of the devices of one session or worker; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<Records>>);

/// A device that failed, now or before.
#[derive(Debug)]
struct Record {
    reason: String,
    pause: Duration,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// It is not used until then, or until it has passed its self-test.
    Paused { until: Instant, needs_test: bool },
    /// Its self-test runs.
    Tested,
    /// It is used again, since then.
    Trusted(Instant),
}

impl Record {
    /// Returns why the device is not used.
    fn reason(&self) -> Option<&String> {
        let is_used = match self.state {
            State::Paused { until, needs_test } => !needs_test && until <= Instant::now(),
            State::Tested => false,
            State::Trusted(_) => true,
        };
        (!is_used).then_some(&self.reason)
    }

    /// Returns whether it is used again once it has passed its self-test.
    fn needs_test(&self) -> bool {
        match self.state {
            State::Paused { needs_test, .. } => needs_test,
            State::Tested => true,
            State::Trusted(_) => false,
        }
    }

    /// Returns the pause after one more failure.
    fn next_pause(&self) -> Duration {
        match self.state {
            State::Trusted(since) if since.elapsed() >= PAUSE_MAX => MEMORY_PAUSE,
            State::Paused {
                needs_test: false, ..
            } => MEMORY_PAUSE,
            _ => (2 * self.pause).min(PAUSE_MAX),
        }
    }

    fn start_pause(&mut self) {
        self.state = State::Paused {
            until: Instant::now() + self.pause,
            needs_test: true,
        };
    }
}

/// All are equal: health is no option, so configurations that differ only here are the same.
impl PartialEq for Health {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Health {
    /// Returns why `device` is not trusted any more; `None` if it is.
    pub fn failure(&self, device: &DeviceInfo) -> Option<String> {
        let records = lock(&self.0);
        records.get(&device.index)?.reason().cloned()
    }

    /// Returns the same for a join that would use the device. Begins its self-test, if the pause
    /// is over.
    pub(crate) fn failure_of(&self, device: &Device) -> Option<String> {
        let mut records = lock(&self.0);
        let record = records.get_mut(&device.info().index)?;
        let reason = record.reason()?.clone();
        match record.state {
            State::Paused { until, .. } if until <= Instant::now() => {
                record.state = State::Tested;
                drop(records);
                self.begin_test(device);
            }
            _ => {}
        }
        Some(reason)
    }

    /// Runs the self-test of `device` on a thread of its own, as it can take seconds.
    fn begin_test(&self, device: &Device) {
        let (records, of_thread) = (Arc::downgrade(&self.0), device.clone());
        let thread = std::thread::Builder::new()
            .name("horton self-test".to_owned())
            .spawn(move || note_test(&records, &of_thread, test_again(&of_thread)));
        if let Err(error) = thread {
            let error = Error::Internal(format!("no thread for a self-test: {error}"));
            note_test(&Arc::downgrade(&self.0), device, Err(error));
        }
    }

    /// Stops trusting the device if the `error` is its failure, and says so if it is the first
    /// time.
    pub fn note(&self, device: &DeviceInfo, error: &Error) {
        let needs_test = match error.blame() {
            Blame::Device => true,
            Blame::Driver => false,
            Blame::Room | Blame::Query | Blame::Bug => return,
        };
        let mut records = lock(&self.0);
        let known = records.get(&device.index);
        // That a driver has no memory says nothing new of a device that is not used.
        let is_known = |known: &Record| known.needs_test() || !needs_test;
        if known.is_some_and(|known| known.reason().is_some() && is_known(known)) {
            return;
        }
        let pause = match known {
            Some(known) if needs_test => known.next_pause(),
            _ => MEMORY_PAUSE,
        };
        let seconds = pause.as_secs();
        match needs_test {
            // That a self-test failed has been said, and holds for all sessions.
            _ if matches!(error, Error::Device(DeviceError::SelfTest { .. })) => {}
            true => log::warn!(
                "{error}; joins no longer use the device. It is tested again after {seconds} \
                 seconds (in a session, SET horton.device = … lets joins use it at once)"
            ),
            false => log::warn!("{error}; joins no longer use the device for {seconds} seconds"),
        }
        let record = Record {
            reason: error.brief(),
            pause,
            state: State::Paused {
                until: Instant::now() + pause,
                needs_test,
            },
        };
        records.insert(device.index, record);
    }
}

/// Runs the self-test of a device that has failed since it passed it.
fn test_again(device: &Device) -> Result<()> {
    Ok(block_on(self_test_again(device))?)
}

/// Notes how the self-test of `device` ended, unless nobody asks any more.
fn note_test(records: &Weak<Mutex<Records>>, device: &Device, ended: Result<()>) {
    let Some(records) = records.upgrade() else {
        return;
    };
    let mut records = lock(&records);
    let Some(record) = records.get_mut(&device.info().index) else {
        return;
    };
    match ended {
        Ok(()) => {
            log::info!(
                "joins use {} again: it passed its self-test",
                device.info().label()
            );
            record.state = State::Trusted(Instant::now());
        }
        Err(error) => {
            // A device that others use is not to blame.
            if !error.is_device_memory() {
                record.pause = record.next_pause();
            }
            let seconds = record.pause.as_secs();
            log::info!("{error}; the device is tested again after {seconds} seconds");
            record.reason = error.brief();
            record.start_pause();
        }
    }
}

fn lock(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}
