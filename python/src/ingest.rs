//! Arrow data of other packages, taken in as a table.
//!
//! ```text
//!  object with __arrow_c_stream__ or __arrow_c_array__
//!      ─▶ batches, as they lie in memory ─▶ MemTable
//! ```
//!
//! The buffers stay where they are, and alive as long as the table.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::ffi_stream::ArrowArrayStreamReader;
use arrow_pyarrow::FromPyArrow;
use datafusion::datasource::MemTable;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::failure::Failure;

/// Returns a table with the rows of `data`.
pub fn table(data: &Bound<'_, PyAny>) -> PyResult<MemTable> {
    let (schema, batches) = if data.hasattr("__arrow_c_stream__")? {
        read(data)?
    } else if data.hasattr("__arrow_c_array__")? {
        let batch = caught(|| RecordBatch::from_pyarrow_bound(data))??;
        (batch.schema(), vec![batch])
    } else {
        return Err(PyTypeError::new_err(format!(
            "register_arrow takes objects with __arrow_c_stream__ or __arrow_c_array__, such as \
             pyarrow.Table and polars.DataFrame, not {}",
            data.get_type().name()?
        )));
    };
    Ok(MemTable::try_new(schema, vec![batches]).map_err(Failure::from)?)
}

/// Reads a stream. Its producer may be Python, which wants the GIL, or take long, without it.
fn read(data: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let py = data.py();
    let mut reader = caught(|| ArrowArrayStreamReader::from_pyarrow_bound(data))??;
    let mut batches = Vec::new();
    while let Some(batch) = py.detach(|| caught(|| reader.next()))? {
        batches.push(batch.map_err(Failure::from)?);
        py.check_signals()?;
    }
    Ok((Arc::clone(&reader.schema()), batches))
}

/// Runs `work` on what others made, where a wrong buffer is a panic.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let panic = Failure::from_panic(panic.as_ref());
        Failure::Query(format!("this Arrow data cannot be read: {}", panic.text()))
    })
}
