//! The devices of an executor, made ready before it takes a task.
//!
//! ```text
//!  start ─▶ warm up ─┬─ self-test passed                 ─▶ devices
//!                    ├─ no OpenCL, no device, it failed  ─▶ host
//!                    └─ a name that no device has        ─▶ error, with the devices there are
//! ```
//!
//! Opening a device and compiling kernels takes seconds. The first task would pay them, while the
//! scheduler takes the executor for idle. A wrong name ends the program: its caller reads that,
//! while the error of a task reaches a client who can do nothing about it.

use horton_join::config::{Enabled, HortonConfig};
use horton_join::device::{Device, Devices};
use horton_join::error::{DeviceError, Error, Result};
use horton_join::warm_up_for;

/// The place where the joins of an executor run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The joins run on the devices of these names.
    Device(String),
    /// The joins run on the host, for this reason.
    Host(String),
}

/// Makes the devices that `options` ask for ready: open, their kernels compiled and tested.
///
/// # Errors
/// If `horton.device` names a device that is not there, or one that cannot run the kernels. A
/// machine without any device is no error.
pub async fn make_ready(options: &HortonConfig) -> Result<Place> {
    if options.enabled == Enabled::Never {
        return Ok(Place::Host("horton.enabled is 'never'".to_owned()));
    }
    match warm_up_for(options).await {
        Ok(devices) => Ok(Place::Device(names(&devices))),
        Err(
            error @ Error::Device(
                DeviceError::UnknownDevice { .. } | DeviceError::UnsuitableDevice { .. },
            ),
        ) => Err(error),
        Err(error) => Ok(Place::Host(error.to_string())),
    }
}

fn names(devices: &Devices) -> String {
    let labels = devices.all().iter().map(Device::info);
    let labels: Vec<String> = labels.map(|info| info.label()).collect();
    labels.join(" and ")
}
