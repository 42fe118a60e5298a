//! OpenCL errors under their names.
//!
//! `ocl` prints a banner around each status and hides program logs in a nested enum; a
//! user needs the call, the device and `CL_OUT_OF_RESOURCES`, one line.

use ocl::core::Error as OclError;

use crate::error::Error;

/// `ocl`'s error of one `call` on `device`, as ours.
pub(super) fn opencl(call: impl Into<String>, device: &str, error: &OclError) -> Error {
    Error::OpenCl {
        call: call.into(),
        device: device.to_owned(),
        status: name(error),
    }
}

/// The status code's name, or the error's first meaningful line.
fn name(error: &OclError) -> String {
    match error.api_status() {
        Some(status) => format!("{status:?}"),
        None => error
            .to_string()
            .lines()
            .map(str::trim)
            .find(|line| line.chars().any(char::is_alphanumeric))
            .unwrap_or("unknown error")
            .to_owned(),
    }
}

/// Runs `call`, turning a panic inside `ocl` (unknown status codes, zero sizes) into its message.
pub(super) fn without_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).map_err(|panic| {
        panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "panicked".to_owned())
    })
}
