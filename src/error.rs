//! One error type for the crate, and its one conversion into [`DataFusionError`].
//!
//! ```text
//!  Error ─┬─ blame ─▶ Device, Driver: noted (`health`), the host goes on
//!         │           Room: waits, or does with less, or the host goes on
//!         │           Query, Bug: the query ends
//!         └─ into ──▶ DataFusionError: ResourcesExhausted, Internal (Bug), its own, or External
//! ```
//!
//! Every text says what failed, where, and then what the user can do. The first part, before the
//! semicolon, stands alone beside a plan node (`brief`). OpenCL's status codes have their names,
//! because a bare `-61` helps nobody. Mistakes of users and of this crate are different variants,
//! [`Error::Invalid`] and [`Error::Internal`]: only the latter are to be reported.

use datafusion::error::DataFusionError;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong between a join and its device.
///
/// ```text
///  Invalid, UnknownDevice, UnsuitableDevice …   the user's: the text says what to change
///  OpenCl, Build, DeviceMemory …                the device's: joins go on without it, unless
///                                               horton.on_device_error = 'error'
///  Internal                                     ours: please report it
/// ```
///
/// A join's errors reach DataFusion's users as a `DataFusionError`: memory as `ResourcesExhausted`,
/// [`Internal`](Error::Internal) as `Internal`, all others as `External`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no OpenCL loader (libOpenCL) or no platform behind it.
    #[error(
        "no OpenCL platform found ({0}); install a driver for your GPU, or PoCL for the CPU \
         (Debian/Ubuntu: apt-get install pocl-opencl-icd ocl-icd-libopencl1)"
    )]
    NoPlatform(String),

    /// Platforms exist, but no device on them can run the kernels.
    #[error(
        "no usable OpenCL device: {}; install a driver for another device, or PoCL for the CPU",
        .0.join("; ")
    )]
    NoUsableDevice(Vec<String>),

    /// `horton.device` names a device that is not there.
    #[error("no OpenCL device matches '{asked}'; available: {}", available.join(", "))]
    UnknownDevice {
        /// The value of `horton.device`.
        asked: String,
        /// `<platform>:<index> <name>` of every device there is.
        available: Vec<String>,
    },

    /// The chosen device lacks something that the kernels need.
    #[error(
        "OpenCL device '{device}' cannot be used: {reason}; SET horton.device = 'auto', or to \
         another device"
    )]
    UnsuitableDevice {
        /// Name of the device.
        device: String,
        /// The feature that it lacks.
        reason: String,
    },

    /// An OpenCL call failed.
    #[error(
        "OpenCL {call} failed on '{device}': {status}; {}",
        advice_on(.status)
    )]
    OpenCl {
        /// The call or kernel.
        call: String,
        /// Name of the device.
        device: String,
        /// Name of the status code, e.g. `CL_OUT_OF_RESOURCES`.
        status: String,
    },

    /// A kernel program did not compile; the compiler's log is included.
    #[error(
        "OpenCL program '{program}' did not compile on '{device}'; update its driver, or SET \
         horton.device to another device:\n{log}"
    )]
    ProgramBuild {
        /// The `.cl` family.
        program: String,
        /// Name of the device.
        device: String,
        /// The compiler's log.
        log: String,
    },

    /// The device lacks an extension that a program uses. Joins need none.
    #[error(
        "OpenCL device '{device}' lacks {extension}, which {program} needs; use a device that has \
         it, or a Horton table that is built at once"
    )]
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
    #[error(
        "OpenCL device '{device}' failed its self-test: {reason}; update its driver, or SET \
         horton.device to another device"
    )]
    SelfTest {
        /// Name of the device.
        device: String,
        /// The case, and what was wrong in it.
        reason: String,
    },

    /// An answer of the device contradicts the question: rows that it gives may be wrong.
    #[error(
        "OpenCL device '{device}' gave a wrong answer: {what}; update its driver, or SET \
         horton.device to another device"
    )]
    WrongAnswer {
        /// Name of the device.
        device: String,
        /// The contradiction in its answer.
        what: String,
    },

    /// A buffer would exceed the device's memory budget or its largest allocation.
    #[error(
        "no room for {what} on OpenCL device '{device}': {wanted} bytes are needed, {used} of \
         {limit} are in use; raise horton.device_memory_limit or join a smaller build side"
    )]
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
    #[error("a key repeats in a table of distinct keys; build a MultiMap instead")]
    DuplicateKeys,

    /// A bulk build did not fit after every retry.
    #[error(
        "a Horton table of {buckets} buckets has no room for {rejected} of {keys} keys after \
         {attempts} attempts; lower the load factor"
    )]
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
    #[error(
        "{table} has no room for {rejected} of {keys} keys; the others are stored: make room \
         (rehash, or remove and flush) or start with a larger table"
    )]
    NoRoom {
        /// Kind of the table.
        table: &'static str,
        /// Number of keys given.
        keys: usize,
        /// Keys that are not stored.
        rejected: usize,
    },

    /// A bulk insert into a table without room for all keys; the table is as it was before.
    #[error(
        "a table with {len} of at most {capacity} items has no room for {} keys; it is unchanged: \
         insert fewer or build a larger table",
        keys.len()
    )]
    Rejected {
        /// The keys of the insert that have no room, ascending.
        keys: Vec<u32>,
        /// Items in the table.
        len: usize,
        /// Items that the table has room for.
        capacity: usize,
    },

    /// An argument or option outside its range: its giver's mistake.
    #[error("{0}")]
    Invalid(String),

    /// An invariant of this crate is broken: its authors' mistake.
    #[error(
        "horton-join {version} has a bug: {0}; please report this to the authors of horton-join, \
         not of DataFusion",
        version = env!("CARGO_PKG_VERSION")
    )]
    Internal(String),

    /// There are more rows than can be numbered: in one table, or in a build side of many.
    #[error(
        "the build side has {rows} rows, over the limit of {limit}; SET horton.enabled = 'never' \
         leaves the join to DataFusion"
    )]
    TooManyRows {
        /// Rows of the build side.
        rows: usize,
        /// The largest number of rows.
        limit: usize,
    },

    /// A device-resident join has more pairs than 32 bits can number.
    #[error("the result has {pairs} pairs, over the limit of 2^32 - 1; take them in windows")]
    TooManyPairs {
        /// Pairs in all.
        pairs: u64,
    },

    /// The thread that owns the device queue is gone, or a job panicked in it.
    #[error(
        "the queue of OpenCL device '{device}' stopped: {reason}; restart the program, or SET \
         horton.device to another device"
    )]
    QueueStopped {
        /// Name of the device.
        device: String,
        /// The panic's message, or that the thread ended.
        reason: String,
    },

    /// DataFusion or Arrow failed (an input stream, an expression, a cast, …). That error is the
    /// source, and so found by those who look for the root of another.
    #[error("{0}")]
    DataFusion(#[from] DataFusionError),
}

/// Returns what a user can do about a status of OpenCL.
fn advice_on(status: &str) -> &'static str {
    match status {
        "CL_MEM_OBJECT_ALLOCATION_FAILURE" | "CL_OUT_OF_HOST_MEMORY" => {
            "free memory of the device, or lower horton.device_memory_limit"
        }
        _ => "update its driver, or SET horton.device to another device",
    }
}

/// The party whose failure an error of a join is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// The device's: it may fail at every query.
    Device,
    /// Its driver's, which is short of memory for now.
    Driver,
    /// Nobody's: the join has no room on the device.
    Room,
    /// The input's, an option's, a limit's or the host's.
    Query,
    /// This crate's: what it knows of the query may be wrong, so nothing goes on.
    Bug,
}

impl Error {
    /// Returns whether less work at once could succeed: the device has no memory left.
    pub fn is_device_memory(&self) -> bool {
        matches!(self, Error::DeviceMemory { .. })
    }

    /// Returns the bytes that others must give back before what was refused has room; `None` if
    /// that would be too large even alone.
    pub(crate) fn short_of(&self) -> Option<u64> {
        match self {
            Error::DeviceMemory {
                wanted,
                limit,
                used,
                ..
            } if wanted <= limit => Some(used.saturating_add(*wanted).saturating_sub(*limit)),
            _ => None,
        }
    }

    /// Returns whether a memory pool, or what reports as one, had no room.
    pub(crate) fn is_pool_memory(&self) -> bool {
        matches!(
            self,
            Error::DataFusion(DataFusionError::ResourcesExhausted(_))
        )
    }

    /// Returns whether the device failed, rather than the input, an option or a limit: then the
    /// same work can be done by the host.
    pub fn is_of_device(&self) -> bool {
        matches!(
            self,
            Error::OpenCl { .. }
                | Error::ProgramBuild { .. }
                | Error::QueueStopped { .. }
                | Error::SelfTest { .. }
                | Error::WrongAnswer { .. }
        )
    }

    /// Returns the same error, if a memory pool had no room, with `advice`.
    pub(crate) fn with_advice(self, advice: &str) -> Self {
        match self {
            Error::DataFusion(DataFusionError::ResourcesExhausted(text)) => {
                let text = format!("{text}; {advice}");
                DataFusionError::ResourcesExhausted(text).into()
            }
            other => other,
        }
    }

    /// Returns whether the device's driver had no memory left. Other processes may have taken it,
    /// and give it back.
    pub fn is_driver_memory(&self) -> bool {
        let Error::OpenCl { status, .. } = self else {
            return false;
        };
        status == "CL_MEM_OBJECT_ALLOCATION_FAILURE" || status == "CL_OUT_OF_HOST_MEMORY"
    }

    /// Returns the same error for another query, if it is about the name of a device. Returns
    /// any other as [`Error::Invalid`] with its text.
    pub(crate) fn of_name(&self) -> Self {
        match self {
            Error::UnknownDevice { asked, available } => Error::UnknownDevice {
                asked: asked.clone(),
                available: available.clone(),
            },
            Error::UnsuitableDevice { device, reason } => Error::UnsuitableDevice {
                device: device.clone(),
                reason: reason.clone(),
            },
            other => Error::Invalid(other.to_string()),
        }
    }

    /// Returns whose failure the error is if a join gets it from its device.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Error::DeviceMemory { .. } => Blame::Room,
            error if error.is_driver_memory() => Blame::Driver,
            error if error.is_of_device() => Blame::Device,
            // A join's tables grow, and it groups keys that repeat before it builds their table.
            Error::TableFull { .. } | Error::NoRoom { .. } | Error::DuplicateKeys => Blame::Device,
            Error::Internal(_) => Blame::Bug,
            _ => Blame::Query,
        }
    }

    /// Returns the part that fits beside a plan node: the first line, without the advice.
    pub(crate) fn brief(&self) -> String {
        let text = self.to_string();
        let line = text.lines().next().unwrap_or_default();
        line.split(';').next().unwrap_or_default().to_owned()
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Error::DataFusion(error.into())
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::DataFusion(inner) => inner,
            Error::DeviceMemory { .. } => DataFusionError::ResourcesExhausted(error.to_string()),
            Error::Internal(_) => DataFusionError::Internal(error.to_string()),
            other => DataFusionError::External(Box::new(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_invariant_is_an_internal_error_and_nobody_elses_fault() {
        let error = Error::Internal("pairs were lost".to_owned());
        assert_eq!(error.blame(), Blame::Bug);
        assert!(!error.is_of_device());
        assert!(error.brief().ends_with("has a bug: pairs were lost"));
        let shown = DataFusionError::from(error);
        assert!(matches!(shown, DataFusionError::Internal(_)), "{shown:?}");
        let text = shown.to_string();
        let ours = concat!("horton-join ", env!("CARGO_PKG_VERSION"), " has a bug");
        assert!(
            text.contains(ours) && text.contains("please report this"),
            "{text}"
        );
    }

    #[test]
    fn an_argument_outside_its_range_is_its_givers_fault() {
        let error = Error::Invalid("5 slots".to_owned());
        assert_eq!(error.blame(), Blame::Query);
        assert!(matches!(error.into(), DataFusionError::External(_)));
    }
}
