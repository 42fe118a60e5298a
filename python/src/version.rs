//! The version of PyPI's `datafusion` that this package works with.
//!
//! ```text
//!  importlib.metadata ─▶ '55.0.0' ─▶ fine;  '54.1.0' ─▶ an error that says what to install
//! ```

use pyo3::prelude::*;

use crate::failure::HortonError;

/// The major version.
pub const MAJOR: &str = "55";

/// Checks the installed version. `what` is the begin of the error's sentence.
pub fn check(py: Python<'_>, what: &str) -> PyResult<()> {
    let metadata = py.import("importlib.metadata")?;
    let version: String = metadata
        .call_method1("version", ("datafusion",))?
        .extract()?;
    if version.split('.').next() == Some(MAJOR) {
        return Ok(());
    }
    Err(HortonError::new_err(format!(
        "{what} datafusion {MAJOR}, not {version}; pip install 'datafusion=={MAJOR}.*'"
    )))
}
