//! The device of an executor, made ready before it takes a task.
//!
//! ```text
//!  start ─▶ open ─┬─ a name that no device has ─▶ error, with the devices there are
//!                 ├─ no OpenCL, no device      ─▶ host
//!                 └─ opened ─▶ warm up ─┬─ self-test passed ─▶ device
//!                                       └─ failed            ─▶ host
//! ```
//!
//! Opening a device and compiling kernels takes seconds. The first task would pay them, while the
//! scheduler takes the executor for idle. A wrong name ends the program: whoever starts it reads
//! that, while the error of a task reaches a client who can do nothing about it.

use horton_join::config::{Enabled, HortonConfig};
use horton_join::device::Device;
use horton_join::error::{Error, Result};
use horton_join::warm_up_for;

/// Where the joins of an executor run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On the device of this name.
    Device(String),
    /// On the host, for this reason.
    Host(String),
}

/// Makes the device that `options` ask for ready: open, its kernels compiled and tested.
///
/// # Errors
/// If `horton.device` names a device that is not there, or one that cannot run the kernels. A
/// machine without any device is no error.
pub async fn make_ready(options: &HortonConfig) -> Result<Place> {
    if options.enabled == Enabled::Never {
        return Ok(Place::Host("horton.enabled is 'never'".to_owned()));
    }
    if let Err(error) = open(options).await {
        return refuse_or_host(error);
    }
    if let Err(error) = warm_up_for(options).await {
        return Ok(Place::Host(error.to_string()));
    }
    // 'auto' may mean another device after the self-test.
    match open(options).await {
        Ok(name) => Ok(Place::Device(name)),
        Err(error) => refuse_or_host(error),
    }
}

/// Tells mistakes of the user from machines without a device.
fn refuse_or_host(error: Error) -> Result<Place> {
    match error {
        Error::UnknownDevice { .. } | Error::UnsuitableDevice { .. } => Err(error),
        error => Ok(Place::Host(error.to_string())),
    }
}

/// Opens the device on a thread that may wait, and returns its name.
async fn open(options: &HortonConfig) -> Result<String> {
    let asked = options.device.clone();
    let open = move || Device::open(&asked).map(|device| device.info().label());
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or_else(|error| Err(Error::Internal(format!("opening a device: {error}"))))
}
