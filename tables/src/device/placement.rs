//! The devices that share work, and which of them a join goes to.
//!
//! ```text
//!  Devices [0:0, 0:1, …] ─ place(bytes) ─▶ has room? ─▶ fewest joins, jobs, bytes ─▶ Placed
//!                                                                                      │
//!  a join counts on its device until the last clone of its Placed is dropped ◀─────────┘
//! ```
//!
//! Joins are counted from the moment that they are placed. Jobs in line say what a device has to do
//! now, but of joins that begin together none has sent a job yet. The bytes in use come last: they
//! tell apart devices with the same work.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::handle::Device;

/// Open devices that share the work of joins; at least one.
#[derive(Debug, Clone)]
pub struct Devices(Arc<[Device]>);

/// A device with a join placed on it. Clones are the same join's.
#[derive(Debug, Clone)]
pub struct Placed(Arc<Place>);

#[derive(Debug)]
struct Place {
    device: Device,
    among: Devices,
    has_room: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.device.load().joins.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Placed {
    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns whether the device had room for the join when it was placed, as far as known.
    pub fn has_room(&self) -> bool {
        self.0.has_room
    }

    /// Returns the devices among which it was chosen.
    pub fn among(&self) -> &Devices {
        &self.0.among
    }
}

impl Deref for Placed {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.0.device
    }
}

impl Devices {
    /// Returns the devices together; `None` if there are none.
    pub fn new(devices: Vec<Device>) -> Option<Self> {
        (!devices.is_empty()).then(|| Self(devices.into()))
    }

    /// Returns all of them, in the order in which they were asked for.
    pub fn all(&self) -> &[Device] {
        &self.0
    }

    /// Returns the same devices, whose drivers have `timeout` to answer
    /// ([`Device::with_timeout`]).
    pub fn with_timeout(&self, timeout: Option<Duration>) -> Self {
        let all = self.0.iter().map(|device| device.with_timeout(timeout));
        Self(all.collect())
    }

    /// Places a join on one of the devices that are `wanted`: the one with room and the least work.
    /// The join takes about `bytes` of device memory, of which `limit` may be in use.
    pub fn place(
        &self,
        bytes: u64,
        limit: u64,
        wanted: impl Fn(&Device) -> bool,
    ) -> Option<Placed> {
        // One at a time: joins that begin together see each other.
        static PLACING: Mutex<()> = Mutex::new(());
        let _one = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = self.0.iter().filter(|device| wanted(device));
        let is_full = |device: &Device| {
            let budget = device.budget();
            budget.used().saturating_add(bytes) > limit.min(budget.limit())
        };
        let best = wanted.min_by_key(|device| {
            let (used, load) = (device.budget().used(), device.load());
            let joins = load.joins.load(Ordering::Relaxed);
            let jobs = load.jobs.load(Ordering::Relaxed);
            (is_full(device), joins, jobs, used)
        });
        let device = best?.clone();
        device.load().joins.fetch_add(1, Ordering::Relaxed);
        Some(Placed(Arc::new(Place {
            has_room: !is_full(&device),
            among: self.clone(),
            device,
        })))
    }
}
