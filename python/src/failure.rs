//! Errors, from wherever they come to Python's exceptions.
//!
//! ```text
//!  DataFusionError, horton_join's Error, a panic ─▶ Failure::Query ──▶ HortonError
//!  a signal handler that raised, as Ctrl-C's does ▶ Failure::Raised ─▶ that very exception
//! ```

use std::any::Any;

use datafusion::error::DataFusionError;
use pyo3::prelude::*;

mod exception {
    // The macro documents the type for Python only.
    #![allow(missing_docs)]
    pyo3::create_exception!(
        horton_join,
        HortonError,
        pyo3::exceptions::PyException,
        "A query, a table or a device failed. The text says what, and what to do."
    );
}

pub use exception::HortonError;

/// The reason why there are no (more) rows.
#[derive(Debug)]
pub enum Failure {
    /// A text of what failed, for people.
    Query(String),
    /// A signal handler of Python raised this, which reads so.
    Raised(PyErr, String),
}

impl Failure {
    /// Returns the failure for what a signal handler raised. Its text is asked for here, with the
    /// GIL.
    pub fn raised(py: Python<'_>, error: PyErr) -> Self {
        let text = error.value(py).str();
        let text = text.map(|text| text.to_string()).unwrap_or_default();
        let kind = error.get_type(py).name().map(|name| name.to_string());
        Self::Raised(error, format!("{}: {text}", kind.unwrap_or_default()))
    }

    /// Returns the failure for what `catch_unwind` caught, or a task ended with.
    pub fn from_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Self::Query(format!("internal error, please report it: {text}"))
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        match self {
            Self::Query(text) | Self::Raised(_, text) => text,
        }
    }
}

impl From<DataFusionError> for Failure {
    fn from(error: DataFusionError) -> Self {
        Self::Query(error.strip_backtrace())
    }
}

impl From<horton_join::error::Error> for Failure {
    fn from(error: horton_join::error::Error) -> Self {
        Self::Query(error.to_string())
    }
}

impl From<arrow::error::ArrowError> for Failure {
    fn from(error: arrow::error::ArrowError) -> Self {
        Self::Query(error.to_string())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Query(text) => HortonError::new_err(text),
            Failure::Raised(error, _) => error,
        }
    }
}
