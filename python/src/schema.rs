//! The columns of a result, for readers of Arrow's C interface.
//!
//! ```text
//!  SchemaRef ─▶ Schema { names, __arrow_c_schema__ } ─▶ pyarrow.schema(…), polars
//! ```

use arrow::datatypes::{Schema, SchemaRef};
use arrow::ffi::FFI_ArrowSchema;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::failure::Failure;

/// Names and types of columns. `pyarrow.schema(…)` takes it.
#[pyclass(name = "Schema", module = "horton_join", frozen, skip_from_py_object)]
#[derive(Debug)]
pub struct Columns(pub SchemaRef);

#[pymethods]
impl Columns {
    /// Returns the names, in order.
    #[getter]
    fn names(&self) -> Vec<String> {
        let fields = self.0.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.0.fields().len()
    }

    fn __repr__(&self) -> String {
        format!("Schema({})", listed(&self.0))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsule(py, &self.0)
    }
}

/// Returns `name: type` of all columns.
pub fn listed(schema: &Schema) -> String {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| format!("{}: {}", field.name(), field.data_type()));
    fields.collect::<Vec<_>>().join(", ")
}

/// Returns `schema` as a capsule that Arrow's libraries take.
pub fn capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(Failure::from)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}
