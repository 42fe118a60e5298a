//! Placement: the device that a join goes to, or the reason why it stays on the host.
//!
//! ```text
//!  keys that a device can compare? ─▶ devices ready? ─▶ enough rows, healthy, with room? ─▶ Placed
//!        │ no                              │ no               │ no
//!        └─────────────────────────────────┴──────────────────┴─▶ HostReason
//! ```
//!
//! DuckDB and DataFusion decide on perfect hashing at the same point (`try_create_array_map`): the
//! build rows are counted by then, so nothing is estimated.

use tracing::{Instrument, trace_span};

use crate::config::{Enabled, HortonConfig};
use crate::device::{Device, DeviceKind, Devices, Placed, names_device};
use crate::device_startup::{self, Readiness};
use crate::error::Result;
use crate::join::build_side::table::KEY_BYTES;
use crate::join::decision::HostReason;

use super::oriented::OrientedJoin;

/// Returns the device with room and the least work for a build side of `rows` rows, which counts
/// the join from then on; or why the host joins it. Devices in `tried` are left out.
///
/// # Errors
/// [`UnknownDevice`](crate::error::DeviceError::UnknownDevice) and
/// [`UnsuitableDevice`](crate::error::DeviceError::UnsuitableDevice): `horton.device` names a
/// device that is not there or cannot run the kernels.
pub async fn place(
    oriented: &OrientedJoin,
    rows: usize,
    tried: &[Device],
) -> Result<Result<Placed, HostReason>> {
    let config = oriented.config();
    if let Some(reason) = oriented.unsupported_keys()? {
        return Ok(Err(HostReason::KeyType(reason)));
    }
    let readiness = match config.enabled {
        Enabled::Always => {
            let wait = trace_span!("wait for start of device", row = "waits");
            device_startup::finished(config).instrument(wait).await
        }
        // The name may be wrong.
        _ if names_device(&config.device) => device_startup::opened(config).await,
        _ => device_startup::now(config),
    };
    let reason = match readiness {
        Readiness::Unavailable(reason)
        | Readiness::Opening {
            last_reason: Some(reason),
        } => HostReason::NotReady(reason),
        Readiness::Opening { last_reason: None } => HostReason::Opening,
        Readiness::Compiling => HostReason::Compiling,
        Readiness::Invalid(error) => return Err(error.into()),
        Readiness::Ready(devices) => return Ok(place_on(&devices, config, rows, tried)),
    };
    Ok(Err(reason))
}

/// Returns whether a device other than a CPU is expected to look up all probe rows of a build side
/// of `rows` rows. Nothing is placed yet.
///
/// # Errors
/// The errors of [`place`].
pub async fn is_for_gpu(oriented: &OrientedJoin, rows: usize) -> Result<bool> {
    let config = oriented.config();
    if rows < config.min_build_rows(DeviceKind::Gpu) || oriented.join().filter().is_some() {
        return Ok(false);
    }
    let placed = place(oriented, rows, &[]).await?;
    Ok(placed.is_ok_and(|placed| {
        let kind = placed.info().kind;
        kind != DeviceKind::Cpu
            && config.min_probe_rows(kind, rows, || false) == 0
            && placed.has_room()
    }))
}

/// Places a build side of `rows` rows on one of `devices`.
///
/// # Errors
/// Why none of them takes it.
fn place_on(
    devices: &Devices,
    config: &HortonConfig,
    rows: usize,
    tried: &[Device],
) -> Result<Placed, HostReason> {
    let is_tried = |device: &Device| tried.iter().any(|t| t.info().index == device.info().index);
    let has_rows = |device: &Device| rows >= config.min_build_rows(device.info().kind);
    let is_asked = |device: &Device| {
        has_rows(device) && !is_tried(device) && config.health.failure_of(device).is_none()
    };
    let bytes = KEY_BYTES * rows as u64;
    if let Some(placed) = devices.place(bytes, config.memory_limit(), is_asked) {
        return Ok(placed);
    }
    let all = devices.all();
    let mut large = all.iter().filter(|device| has_rows(device));
    if let Some(reason) = large.find_map(|device| config.health.failure_of(device)) {
        return Err(HostReason::FailedBefore(reason));
    }
    if all.iter().any(has_rows) {
        return Err(HostReason::DoesNotFit);
    }
    let least = all
        .iter()
        .map(|device| config.min_build_rows(device.info().kind));
    let min_build_rows = least.min().unwrap_or_default();
    Err(HostReason::FewRows { min_build_rows })
}
