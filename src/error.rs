//! One error type for joins, and its one conversion into [`DataFusionError`].
//!
//! ```text
//!  horton_tables::Error ─ Device ─┐
//!                 other variants ─┴▶ Error ─┬─ blame ─▶ Device, Driver: noted (`device_health`)
//!                                           │           Room: waits, or does with less
//!                                           │           Query, Bug: the query ends
//!                                           └─ into ──▶ DataFusionError: ResourcesExhausted,
//!                                                       Internal (Bug), its own, or External
//! ```
//!
//! Every text says what failed, where, and then what the user of SQL can do: tables give advice for
//! programs, so the advice of their errors is replaced. The first part, before the semicolon,
//! stands alone beside a plan node (`brief`).

use datafusion::error::DataFusionError;

pub use horton_tables::Error as DeviceError;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong between a join and its device.
///
/// A join's errors reach DataFusion's users as a `DataFusionError`: memory as `ResourcesExhausted`,
/// [`Internal`](Error::Internal) as `Internal`, all others as `External`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device or its tables failed. Joins go on without it, unless
    /// `horton.on_device_error = 'error'`. A device that is unknown or unsuitable is the user's to
    /// change.
    #[error("{}", .0.text_with(advice_on(.0).as_deref()))]
    Device(DeviceError),

    /// Invalid argument or option (caller error).
    #[error("{0}")]
    Invalid(String),

    /// An invariant of this crate is broken: its authors' mistake.
    #[error(
        "horton-join {version} has a bug: {0}; please report this to the authors of horton-join, \
         not of DataFusion",
        version = env!("CARGO_PKG_VERSION")
    )]
    Internal(String),

    /// The rows are more than can be numbered: in one table, or in a build side of many.
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

    /// DataFusion or Arrow failed (an input stream, an expression, a cast, …). That error is the
    /// source, and so found by those who look for the root of another.
    #[error("{0}")]
    DataFusion(#[from] DataFusionError),
}

/// Returns what a user of SQL can do about an error of a device.
fn advice_on(error: &DeviceError) -> Option<String> {
    let fixed = match error {
        DeviceError::UnsuitableDevice { .. } => "SET horton.device = 'auto', or to another device",
        DeviceError::OpenCl { .. } if error.is_driver_memory() => {
            "free memory of the device, or lower horton.device_memory_limit"
        }
        DeviceError::OpenCl { .. }
        | DeviceError::ProgramBuild { .. }
        | DeviceError::SelfTest { .. }
        | DeviceError::WrongAnswer { .. } => {
            "update its driver, or SET horton.device to another device"
        }
        DeviceError::DeviceMemory { .. } => {
            "raise horton.device_memory_limit or join a smaller build side"
        }
        DeviceError::QueueStopped { .. } => {
            "restart the program, or SET horton.device to another device"
        }
        _ => return error.advice(),
    };
    Some(fixed.to_owned())
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
    /// Returns the error of the device that this one is.
    fn of_device(&self) -> Option<&DeviceError> {
        match self {
            Self::Device(error) => Some(error),
            _ => None,
        }
    }

    /// Returns whether less work at once could succeed: the device has no memory left.
    pub fn is_device_memory(&self) -> bool {
        self.of_device().is_some_and(DeviceError::is_device_memory)
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
        self.of_device().is_some_and(DeviceError::is_of_device)
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
        self.of_device().is_some_and(DeviceError::is_driver_memory)
    }

    /// Returns whose failure the error is if a join gets it from its device.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Error::Device(error) => Blame::from_device(error),
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

impl Blame {
    fn from_device(error: &DeviceError) -> Self {
        match error {
            DeviceError::DeviceMemory { .. } => Blame::Room,
            error if error.is_driver_memory() => Blame::Driver,
            error if error.is_of_device() => Blame::Device,
            // A join's tables grow, and it groups keys that repeat before it builds their table.
            DeviceError::TableFull { .. }
            | DeviceError::NoRoom { .. }
            | DeviceError::DuplicateKeys => Blame::Device,
            DeviceError::Internal(_) => Blame::Bug,
            _ => Blame::Query,
        }
    }
}

/// Mistakes of callers, bugs and rows beyond a table's limit are this crate's own kinds of error.
impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        match error {
            DeviceError::Invalid(what) => Self::Invalid(what),
            DeviceError::Internal(what) => Self::Internal(what),
            DeviceError::TooManyRows { rows, limit } => Self::TooManyRows { rows, limit },
            other => Self::Device(other),
        }
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
            Error::Device(DeviceError::DeviceMemory { .. }) => {
                DataFusionError::ResourcesExhausted(error.to_string())
            }
            Error::Internal(_) | Error::Device(DeviceError::Internal(_)) => {
                DataFusionError::Internal(error.to_string())
            }
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
    fn errors_of_devices_give_advice_for_sql() {
        let (device, reason) = (|| "X".to_owned(), || "Y".to_owned());
        let errors = [
            DeviceError::UnsuitableDevice {
                device: device(),
                reason: reason(),
            },
            DeviceError::SelfTest {
                device: device(),
                reason: reason(),
            },
            DeviceError::WrongAnswer {
                device: device(),
                what: reason(),
            },
            DeviceError::QueueStopped {
                device: device(),
                reason: reason(),
            },
            DeviceError::DeviceMemory {
                what: "a table",
                device: device(),
                wanted: 2,
                limit: 1,
                used: 0,
            },
            DeviceError::OpenCl {
                call: "clFinish".to_owned(),
                device: device(),
                status: "CL_OUT_OF_HOST_MEMORY".to_owned(),
            },
        ];
        for error in errors {
            let (problem, text) = (error.problem(), Error::from(error).to_string());
            assert!(text.starts_with(&problem), "{text}");
            assert!(text.contains("horton.device"), "{text}");
        }
    }

    #[test]
    fn an_argument_outside_its_range_is_its_givers_fault() {
        let error = Error::Invalid("5 slots".to_owned());
        assert_eq!(error.blame(), Blame::Query);
        assert!(matches!(error.into(), DataFusionError::External(_)));
    }
}
