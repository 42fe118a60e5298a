//! The health of devices: those that a session or a worker still trusts.
//!
//! ```text
//!  a join's OpenCL error ─▶ note: logged, once ─▶ later joins: on another device, or the host
//!  SET horton.device = … ─▶ trusted again
//!  a driver without memory ─▶ the same, for a few seconds
//! ```
//!
//! A device that failed once may fail at every query, each time after half of the work. So the
//! session that got the error no longer uses that device for joins. Other sessions are not told.
//! They may use another configuration, and find out at the cost of one query. Health travels with
//! the session's options, where rules and plan nodes find it. A worker has one for all of its tasks
//! ([`on_device`](crate::on_device)), and trusts a device again when it is started anew.
//!
//! A driver runs short of memory when other processes take it, and they give it back. A refusal of
//! our own [`Budget`](crate::device::Budget) is no failure of the device. It comes before any work
//! is done, so the device is asked again at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::device::DeviceInfo;
use crate::device::budget::PATIENCE;
use crate::error::{Blame, Error};

/// The time for which a device is not used after its driver had no memory. A join that finds it
/// still short waits in vain, which then costs a hundredth of the time.
pub const SHORT_FOR: Duration = PATIENCE.saturating_mul(100);

/// Failures of the devices of one session or worker; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<(usize, usize), Failure>>>);

#[derive(Debug)]
struct Failure {
    reason: String,
    /// Time at which it is forgotten.
    until: Option<Instant>,
}

impl Failure {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
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
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failures.get(&device.index);
        let failure = failure.filter(|failure| !failure.is_over());
        failure.map(|failure| failure.reason.clone())
    }

    /// Stops trusting the device if the `error` is its failure, and says so if it is the first
    /// time.
    pub fn note(&self, device: &DeviceInfo, error: &Error) {
        let until = match error.blame() {
            Blame::Device => None,
            Blame::Driver => Some(Instant::now() + SHORT_FOR),
            Blame::Room | Blame::Query | Blame::Bug => return,
        };
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = failures.get(&device.index);
        let is_known = known.is_some_and(|known| {
            let outlasts = known.until.is_none() || until.is_some();
            outlasts && !known.is_over()
        });
        if is_known {
            return;
        }
        match until {
            // That a self-test failed has been said, and holds for all sessions.
            _ if matches!(error, Error::SelfTest { .. }) => {}
            None => log::warn!(
                "{error}; joins no longer use the device \
                 (in a session, SET horton.device = … lets them use it again)"
            ),
            Some(_) => log::warn!(
                "{error}; joins no longer use the device for {} seconds",
                SHORT_FOR.as_secs()
            ),
        }
        let reason = error.brief();
        failures.insert(device.index, Failure { reason, until });
    }
}
