//! A query as Python sees it: lazy, and run by the consumer that takes its rows.
//!
//! ```text
//!  DataFrame ─┬─ __arrow_c_stream__ ─▶ any Arrow library takes the rows     runs as they are taken
//!             ├─ to_polars, to_arrow, to_pandas, count, show                runs
//!             ├─ explain, schema                                            plans
//!             └─ decisions                                                  of the last run
//! ```

use std::time::Instant;

use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use futures::StreamExt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::decision::JoinDecision;
use crate::failure::Failure;
use crate::query::Query;
use crate::run::{Decisions, Run};
use crate::runtime::wait;
use crate::schema::{self, Columns};
use crate::stream::{FailureSink, Once, Rows, Slot};
use crate::text;

/// Rows that a notebook shows.
const SHOWN: usize = 20;

/// A query and its result: the rows are made again whenever they are asked for.
#[pyclass(
    name = "DataFrame",
    module = "horton_join",
    frozen,
    skip_from_py_object
)]
#[derive(Debug)]
pub struct Frame {
    query: Query,
    schema: SchemaRef,
    decisions: Decisions,
}

impl Frame {
    /// Returns the frame of `query`.
    pub fn new(query: Query) -> Self {
        Self {
            schema: query.schema(),
            query,
            decisions: Decisions::default(),
        }
    }

    /// Plans `query` and runs what `work` does with that.
    fn with_run<T, F>(
        &self,
        py: Python<'_>,
        query: Query,
        work: impl FnOnce(Run) -> F + Send + 'static,
    ) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send,
    {
        let decisions = self.decisions.clone();
        wait(py, async move { work(query.run(decisions).await?).await })
    }

    fn rows(&self, py: Python<'_>, failures: FailureSink) -> PyResult<Rows> {
        let run = self.with_run(py, self.query.clone(), |run| async { Ok(run) })?;
        Ok(Rows::new(py, run, failures))
    }

    /// Hands the rows to `function` of the Python package `module`. Errors are those of the query,
    /// not what that package makes of them.
    fn taken_by<'py>(
        &self,
        py: Python<'py>,
        module: &str,
        function: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let function = py.import(module)?.getattr(function)?;
        let slot = Slot::default();
        let rows = self.rows(py, FailureSink::Caller(slot.clone()))?;
        let taken = function.call1((Once::new(rows),));
        taken.map_err(|error| slot.take().map_or(error, PyErr::from))
    }
}

#[pymethods]
impl Frame {
    /// Names and types of the columns.
    #[getter]
    fn schema(&self) -> Columns {
        Columns(SchemaRef::clone(&self.schema))
    }

    /// Returns where each join of the last run was done, and why. A run counts once its rows were
    /// taken, or the consumer let go of them.
    #[getter]
    fn decisions(&self) -> Vec<JoinDecision> {
        self.decisions.all()
    }

    /// Returns the rows as a pyarrow.Table, without a copy.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.taken_by(py, "pyarrow", "table")
    }

    /// Returns the rows as a polars.DataFrame.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.taken_by(py, "polars", "DataFrame")
    }

    /// Returns the rows as a pandas.DataFrame, through pyarrow.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.to_arrow(py)?.call_method0("to_pandas")
    }

    /// Returns the number of rows.
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        if let Some(counted) = self.query.counted()? {
            return self.with_run(py, counted, |run| async move {
                let batches = run.rows(1).await?;
                crate::query::counted(&batches)
            });
        }
        self.with_run(py, self.query.clone(), |run| async move {
            let mut rows = 0;
            let mut stream = run.start()?;
            while let Some(batch) = stream.next().await {
                rows += batch?.num_rows() as u64;
            }
            Ok(rows)
        })
    }

    /// Prints the first `rows` rows.
    #[pyo3(signature = (rows=20))]
    fn show(&self, py: Python<'_>, rows: usize) -> PyResult<()> {
        let schema = SchemaRef::clone(&self.schema);
        let table = self.with_run(py, self.query.clone(), move |run| async move {
            let (batches, _) = text::first(run.rows(rows).await?, rows);
            Ok(text::plain(schema, &batches)?)
        })?;
        py.import("builtins")?.call_method1("print", (table,))?;
        Ok(())
    }

    /// Returns the plan. With `analyze`, runs it, and shows what its operators counted: a join with
    /// kernel_launches of 1 or more ran on a device.
    #[pyo3(signature = (analyze=false))]
    pub fn explain(&self, py: Python<'_>, analyze: bool) -> PyResult<String> {
        self.with_run(py, self.query.clone(), move |run| async move {
            if !analyze {
                let shown = DisplayableExecutionPlan::new(run.plan.as_ref());
                return Ok(shown.indent(false).to_string());
            }
            let mut stream = run.start()?;
            while let Some(batch) = stream.next().await {
                drop(batch?);
            }
            drop(stream);
            let shown = DisplayableExecutionPlan::with_metrics(run.plan.as_ref());
            Ok(shown.indent(true).to_string())
        })
    }

    /// Collects the rows in Rust, drops them, and returns the seconds that this took. Planning
    /// counts, too. For python/benches.
    fn _collect_seconds(&self, py: Python<'_>) -> PyResult<f64> {
        let begun = Instant::now();
        self.with_run(py, self.query.clone(), move |run| async move {
            let rows = run.rows(usize::MAX).await?;
            let seconds = begun.elapsed().as_secs_f64();
            drop(rows);
            Ok(seconds)
        })
    }

    /// Arrow's C stream interface: pyarrow.table, polars.DataFrame, duckdb and others take the
    /// frame itself. Rows come as they are made, and are not copied.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore it.
        drop(requested_schema);
        self.rows(py, FailureSink::Interpreter)?.into_capsule(py)
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema::capsule(py, &self.schema)
    }

    fn __repr__(&self) -> String {
        format!("DataFrame({})", schema::listed(&self.schema))
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let schema = SchemaRef::clone(&self.schema);
        self.with_run(py, self.query.clone(), move |run| async move {
            let (batches, has_more) = text::first(run.rows(SHOWN + 1).await?, SHOWN);
            let note = if has_more {
                format!("the first {SHOWN} rows")
            } else {
                let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
                format!("{rows} rows")
            };
            Ok(text::html(&schema, &batches, &note)?)
        })
    }
}
