//! One error type for devices and tables.
//!
//! ```text
//!  Display:  <problem>; <advice>           OpenCL clFinish failed on 'X': CL_…; update its driver
//!                        │ `advice`        and of programs, the compiler's log on further lines
//!             `problem`  └ a caller with options of its own gives its own advice instead
//! ```
//!
//! The problem says what failed, and where. It stands alone where there is no room for advice.
//! OpenCL's status codes have their names, because a bare `-61` helps nobody. Mistakes of callers
//! and of this crate are different variants, [`Error::Invalid`] and [`Error::Internal`]: only the
//! latter are to be reported.

use std::fmt;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with a device or a table.
///
/// ```text
///  Invalid, UnknownDevice, UnsuitableDevice …   the caller's: the text says what to change
///  OpenCl, ProgramBuild, DeviceMemory …         the device's
///  Internal                                     ours: please report it
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The system has no OpenCL loader (libOpenCL), or no platform behind it.
    NoPlatform(String),

    /// Platforms exist, but no device on them can run the kernels. Holds a reason per device.
    NoUsableDevice(Vec<String>),

    /// No device has the name that was asked for.
    UnknownDevice {
        /// The name.
        asked: String,
        /// `<platform>:<index> <name>` of every device there is.
        available: Vec<String>,
    },

    /// The chosen device lacks something that the kernels need.
    UnsuitableDevice {
        /// Name of the device.
        device: String,
        /// The feature that it lacks.
        reason: String,
    },

    /// An OpenCL call failed.
    OpenCl {
        /// The call or kernel.
        call: String,
        /// Name of the device.
        device: String,
        /// Name of the status code, e.g. `CL_OUT_OF_RESOURCES`.
        status: String,
    },

    /// A kernel program did not compile; the compiler's log is included.
    ProgramBuild {
        /// The `.cl` family.
        program: String,
        /// Name of the device.
        device: String,
        /// The compiler's log.
        log: String,
    },

    /// The device lacks an extension that a program uses. Joins need none.
    MissingExtension {
        /// The `.cl` family.
        program: &'static str,
        /// Name of the device.
        device: String,
        /// Name of the missing extension, as OpenCL writes it.
        extension: &'static str,
    },

    /// The device gave wrong answers where right ones are known, or does not compile the kernels;
    /// see [`self_test`](crate::self_test).
    SelfTest {
        /// Name of the device.
        device: String,
        /// The case, and what was wrong in it.
        reason: String,
    },

    /// An answer of the device contradicts the question: what it gives may be wrong.
    WrongAnswer {
        /// Name of the device.
        device: String,
        /// The contradiction in its answer.
        what: String,
    },

    /// A buffer would exceed the device's memory budget or its largest allocation.
    DeviceMemory {
        /// Purpose of the buffer.
        what: &'static str,
        /// Name of the device.
        device: String,
        /// Bytes asked for.
        wanted: u64,
        /// The limit in bytes: the budget, or `CL_DEVICE_MAX_MEM_ALLOC_SIZE`.
        limit: u64,
        /// Bytes in use when it was asked for.
        used: u64,
    },

    /// The same key was given twice to a table of unique keys.
    DuplicateKeys,

    /// A bulk build did not fit after every retry.
    TableFull {
        /// Number of keys given.
        keys: usize,
        /// Keys left without a slot in the last attempt.
        rejected: usize,
        /// Buckets in the last attempt.
        buckets: usize,
        /// Attempts made, each with a new seed and then more buckets.
        attempts: usize,
    },

    /// A table that does not grow by itself had no room for some keys; all others are stored.
    NoRoom {
        /// Kind of the table.
        table: &'static str,
        /// Number of keys given.
        keys: usize,
        /// Keys that are not stored.
        rejected: usize,
    },

    /// A bulk insert into a table without room for all keys; the table is as it was before.
    Rejected {
        /// The keys of the insert that have no room, ascending.
        keys: Vec<u32>,
        /// Items in the table.
        len: usize,
        /// Items that the table has room for.
        capacity: usize,
    },

    /// Invalid argument: the caller's error.
    Invalid(String),

    /// An invariant of this crate is broken: its authors' error.
    Internal(String),

    /// The keys are more than one table can number.
    TooManyRows {
        /// Number of keys given.
        rows: usize,
        /// The largest number of keys.
        limit: usize,
    },

    /// A join on the device has more pairs than 32 bits can number.
    TooManyPairs {
        /// Pairs in all.
        pairs: u64,
    },

    /// The thread that owns the device queue is gone, or a job panicked in it.
    QueueStopped {
        /// Name of the device.
        device: String,
        /// The panic's message, or that the thread ended.
        reason: String,
    },
}

impl Error {
    /// Returns what failed, and where, in one line.
    pub fn problem(&self) -> String {
        match self {
            Self::NoPlatform(reason) => format!("no OpenCL platform found ({reason})"),
            Self::NoUsableDevice(reasons) => {
                format!("no usable OpenCL device: {}", reasons.join("; "))
            }
            Self::UnknownDevice { asked, .. } => format!("no OpenCL device matches '{asked}'"),
            Self::UnsuitableDevice { device, reason } => {
                format!("OpenCL device '{device}' cannot be used: {reason}")
            }
            Self::OpenCl {
                call,
                device,
                status,
            } => format!("OpenCL {call} failed on '{device}': {status}"),
            Self::ProgramBuild {
                program, device, ..
            } => format!("OpenCL program '{program}' did not compile on '{device}'"),
            Self::MissingExtension {
                program,
                device,
                extension,
            } => format!("OpenCL device '{device}' lacks {extension}, which {program} needs"),
            Self::SelfTest { device, reason } => {
                format!("OpenCL device '{device}' failed its self-test: {reason}")
            }
            Self::WrongAnswer { device, what } => {
                format!("OpenCL device '{device}' gave a wrong answer: {what}")
            }
            Self::DeviceMemory {
                what,
                device,
                wanted,
                limit,
                used,
            } => format!(
                "no room for {what} on OpenCL device '{device}': {wanted} bytes are needed, \
                 {used} of {limit} are in use"
            ),
            Self::QueueStopped { device, reason } => {
                format!("the queue of OpenCL device '{device}' stopped: {reason}")
            }
            Self::DuplicateKeys => "a key repeats in a table of distinct keys".to_owned(),
            Self::TableFull {
                keys,
                rejected,
                buckets,
                attempts,
            } => format!(
                "a Horton table of {buckets} buckets has no room for {rejected} of {keys} keys \
                 after {attempts} attempts"
            ),
            Self::NoRoom {
                table,
                keys,
                rejected,
            } => format!("{table} has no room for {rejected} of {keys} keys"),
            Self::Rejected {
                keys,
                len,
                capacity,
            } => format!(
                "a table with {len} of at most {capacity} items has no room for {} keys",
                keys.len()
            ),
            Self::TooManyRows { rows, limit } => {
                format!("a table of {rows} keys is over the limit of {limit}")
            }
            Self::TooManyPairs { pairs } => {
                format!("the result has {pairs} pairs, over the limit of 2^32 - 1")
            }
            Self::Internal(what) => format!(
                "horton-tables {} has a bug: {what}",
                env!("CARGO_PKG_VERSION")
            ),
            Self::Invalid(what) => what.clone(),
        }
    }

    /// Returns what a program that uses tables can do about it; `None` where the problem says it.
    pub fn advice(&self) -> Option<String> {
        let fixed = match self {
            Self::NoPlatform(_) => {
                "install a driver for your GPU, or PoCL for the CPU (Debian/Ubuntu: apt-get \
                 install pocl-opencl-icd ocl-icd-libopencl1)"
            }
            Self::NoUsableDevice(_) => "install a driver for another device, or PoCL for the CPU",
            Self::UnknownDevice { available, .. } => {
                return Some(format!("available: {}", available.join(", ")));
            }
            Self::UnsuitableDevice { .. } => "open 'auto', or another device",
            Self::OpenCl { .. } if self.is_driver_memory() => {
                "free memory of the device, or lower its budget"
            }
            Self::OpenCl { .. }
            | Self::ProgramBuild { .. }
            | Self::SelfTest { .. }
            | Self::WrongAnswer { .. } => "update its driver, or open another device",
            Self::MissingExtension { .. } => {
                "use a device that has it, or a Horton table that is built at once"
            }
            Self::DeviceMemory { .. } => "raise its budget, or build a smaller table",
            Self::DuplicateKeys => "build a MultiMap instead",
            Self::TableFull { .. } => "lower the load factor",
            Self::NoRoom { .. } => {
                "the others are stored: make room (rehash, or remove and flush) or start with a \
                 larger table"
            }
            Self::Rejected { .. } => "it is unchanged: insert fewer or build a larger table",
            Self::Internal(_) => "please report this to the authors of horton-tables",
            Self::TooManyRows { .. } => "split the keys over several tables",
            Self::TooManyPairs { .. } => "take them in windows",
            Self::QueueStopped { .. } => "restart the program, or open another device",
            Self::Invalid(_) => return None,
        };
        Some(fixed.to_owned())
    }

    /// Returns the whole text with another advice, for callers that have options of their own.
    pub fn text_with(&self, advice: Option<&str>) -> String {
        let mut text = self.problem();
        if let Some(advice) = advice {
            text.push_str("; ");
            text.push_str(advice);
        }
        if let Self::ProgramBuild { log, .. } = self {
            text.push_str(":\n");
            text.push_str(log);
        }
        text
    }

    /// Returns whether less work at once could succeed: the device has no memory left.
    pub fn is_device_memory(&self) -> bool {
        matches!(self, Self::DeviceMemory { .. })
    }

    /// Returns the bytes that others must give back before what was refused has room; `None` if
    /// that would be too large even alone.
    pub(crate) fn short_of(&self) -> Option<u64> {
        match self {
            Self::DeviceMemory {
                wanted,
                limit,
                used,
                ..
            } if wanted <= limit => Some(used.saturating_add(*wanted).saturating_sub(*limit)),
            _ => None,
        }
    }

    /// Returns whether the device failed, rather than an argument or a limit: then the same work
    /// can be done by the host.
    pub fn is_of_device(&self) -> bool {
        matches!(
            self,
            Self::OpenCl { .. }
                | Self::ProgramBuild { .. }
                | Self::QueueStopped { .. }
                | Self::SelfTest { .. }
                | Self::WrongAnswer { .. }
        )
    }

    /// Returns whether the device's driver had no memory left. Other processes may have taken it,
    /// and give it back.
    pub fn is_driver_memory(&self) -> bool {
        let Self::OpenCl { status, .. } = self else {
            return false;
        };
        status == "CL_MEM_OBJECT_ALLOCATION_FAILURE" || status == "CL_OUT_OF_HOST_MEMORY"
    }

    /// Returns the problem as it fits on a line beside other text.
    pub fn brief(&self) -> String {
        let text = self.problem();
        let line = text.lines().next().unwrap_or_default();
        line.split(';').next().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text_with(self.advice().as_deref()))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compilers_log_stands_below_the_advice() {
        let error = Error::ProgramBuild {
            program: "horton".to_owned(),
            device: "X".to_owned(),
            log: "line 1: no".to_owned(),
        };
        let wanted = "OpenCL program 'horton' did not compile on 'X'; update its driver, or open \
                      another device:\nline 1: no";
        assert_eq!(error.to_string(), wanted);
        assert!(
            error
                .text_with(Some("rest"))
                .ends_with("'X'; rest:\nline 1: no")
        );
        assert_eq!(
            error.brief(),
            "OpenCL program 'horton' did not compile on 'X'"
        );
    }

    #[test]
    fn a_broken_invariant_names_this_crate() {
        let error = Error::Internal("pairs were lost".to_owned());
        assert!(!error.is_of_device());
        let ours = concat!("horton-tables ", env!("CARGO_PKG_VERSION"), " has a bug");
        assert!(error.to_string().starts_with(ours), "{error}");
    }
}
