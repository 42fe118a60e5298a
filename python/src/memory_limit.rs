//! The memory limit of a context of PyPI's `datafusion`.
//!
//! ```text
//!  datafusion.SessionContext ─▶ another context around the same memory ─▶ SHOW … ─▶ '100M'
//! ```
//!
//! Asked through the other one, a context's own settings stay.

use datafusion::prelude::SessionContext;
use pyo3::prelude::*;

use crate::failure::{Failure, HortonError};

const NAME: &str = "datafusion.runtime.memory_limit";

/// Returns the limit as DataFusion writes it; `None` if there is none.
pub fn text(context: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let asked = context.call_method0("enable_url_table")?;
    let sql = |text: &str| {
        let frame = asked.call_method1("sql", (text,))?;
        frame.call_method0("to_pydict")
    };
    sql("SET datafusion.catalog.information_schema = true")?;
    let limits: Vec<String> = sql(&format!("SHOW {NAME}"))?.get_item("value")?.extract()?;
    Ok(limits
        .into_iter()
        .next()
        .filter(|limit| limit != "unlimited"))
}

/// Returns the limit in bytes.
pub fn bytes(context: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    let Some(limit) = text(context)? else {
        return Ok(None);
    };
    let bytes = SessionContext::parse_capacity_limit(NAME, &limit).map_err(Failure::from);
    bytes.map(Some).map_err(|failure| {
        HortonError::new_err(format!(
            "the context's memory limit is not understood, give memory_limit=<bytes>: {}",
            failure.text()
        ))
    })
}
