//! Which devices a session still trusts.
//!
//! ```text
//!  a join's OpenCL error ─▶ note: logged, once ─▶ later joins: on the host: device failed: …
//!  SET horton.device = … ─▶ trusted again
//! ```
//!
//! A device that failed once may fail at every query, each time after the work was half done. So
//! the session that met the error asks that device for no more joins: they run on the host.
//! Other sessions of the process are not told: they
//! may use another configuration, and find out at the cost of one query. It travels
//! with the session's options, which is where rules and plan nodes find it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::DeviceInfo;
use crate::error::Error;

/// What went wrong on the devices of one session; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<Mutex<BTreeMap<(usize, usize), String>>>);

/// It is no option: configurations that differ only here are the same.
impl PartialEq for Health {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Health {
    /// Why the device is not trusted any more; `None` if it is.
    pub fn failure(&self, device: &DeviceInfo) -> Option<String> {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&device.index).cloned()
    }

    /// Stops trusting the device, and says so if it is the first time.
    pub fn note(&self, device: &DeviceInfo, error: &Error) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.entry(device.index).or_insert_with(|| {
            // That a self-test failed has been said, and holds for all sessions.
            if !matches!(error, Error::SelfTest { .. }) {
                log::warn!(
                    "{error}; this session's joins stay on the host from now on \
                     (SET horton.device = … trusts the device again)"
                );
            }
            error.brief()
        });
    }
}
