//! OpenCL errors under their names.
//!
//! ```text
//!  ocl::Error: banner, nested enums ─▶ Failed::Status("CL_OUT_OF_RESOURCES") ─▶ Error::OpenCl
//! ```
//!
//! `ocl` prints a banner around each status and hides program logs in a nested enum. A user needs
//! one line: the call, the device and the status.

use ocl::core::{Error as OclError, Status};

use crate::error::Error;

/// The reason why an OpenCL call failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The status code's name, or the first meaningful line of `ocl`'s message.
    Status(String),
    /// The compiler's log.
    BuildLog(String),
    /// `ocl` panicked, as it does on status codes that it does not know; its message.
    Panic(String),
}

/// The status codes after which a context is not trusted: drivers report a kernel's fault under one
/// of them, at the call that comes next.
const FATAL: [&str; 5] = [
    "CL_OUT_OF_RESOURCES",
    "CL_DEVICE_NOT_AVAILABLE",
    "CL_INVALID_CONTEXT",
    "CL_INVALID_COMMAND_QUEUE",
    "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
];

impl Failed {
    /// Returns whether the context must be taken as lost.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Failed::Status(name) => FATAL.contains(&name.as_str()),
            Failed::BuildLog(_) => false,
            Failed::Panic(_) => true,
        }
    }

    /// Returns the error of one `call` on `device`.
    pub(super) fn error(&self, call: impl Into<String>, device: &str) -> Error {
        Error::OpenCl {
            call: call.into(),
            device: device.to_owned(),
            status: self.to_string(),
        }
    }
}

/// The status codes that failing commands end with; drivers have codes of their own, too.
const ENDS: [Status; 5] = [
    Status::CL_DEVICE_NOT_AVAILABLE,
    Status::CL_MEM_OBJECT_ALLOCATION_FAILURE,
    Status::CL_OUT_OF_RESOURCES,
    Status::CL_OUT_OF_HOST_MEMORY,
    Status::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
];

impl Failed {
    /// Returns the failure of a command that ended with `code`.
    pub(super) fn ended(code: i32) -> Self {
        Failed::Status(match ENDS.iter().find(|end| **end as i32 == code) {
            Some(end) => format!("{end:?}"),
            None => format!("status {code}"),
        })
    }
}

impl From<OclError> for Failed {
    fn from(error: OclError) -> Self {
        match error {
            OclError::ProgramBuild(log) => Failed::BuildLog(log.to_string()),
            error => Failed::Status(name(&error)),
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Status(text) | Failed::BuildLog(text) | Failed::Panic(text) => {
                f.write_str(text)
            }
        }
    }
}

/// Returns the status code's name, or the error's first meaningful line.
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
