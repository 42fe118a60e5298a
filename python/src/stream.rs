//! Rows on their way out, by Arrow's C stream interface.
//!
//! ```text
//!  a task: run ─▶ batches ─▶ a short queue ─▶ Rows.next ◀── get_next ── pyarrow, polars, duckdb …
//!    starts with the first get_next            the caller waits without the GIL
//!    stops when the stream is released         Ctrl-C ─▶ an error; in Python KeyboardInterrupt
//! ```
//!
//! Batches are handed over as they are: nothing is copied. The C interface knows numbers and texts
//! of errors only. So the failure itself is left in a slot, where `frame` finds it for callers of
//! its own.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ffi_stream::FFI_ArrowArrayStream;
use futures::StreamExt;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use tokio::sync::mpsc;

use crate::caller::Caller;
use crate::failure::Failure;
use crate::gil;
use crate::run::Run;
use crate::runtime::Task;

/// Batches that may wait for the one that takes them.
const WAITING: usize = 16;

/// An error of a stream, for the one who made it.
#[derive(Debug, Clone, Default)]
pub struct Slot(Arc<Mutex<Option<Failure>>>);

impl Slot {
    /// Returns the failure, once.
    pub fn take(&self) -> Option<Failure> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }

    fn put(&self, failure: Failure) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(failure);
    }
}

/// The receiver of failures, such as Ctrl-C.
#[derive(Debug, Clone)]
pub enum FailureSink {
    /// The interpreter, as the taker of rows is another package.
    Interpreter,
    /// A caller in this crate, who looks there.
    Caller(Slot),
}

/// The rows of a run.
pub struct Rows {
    schema: SchemaRef,
    state: State,
    caller: Caller,
    failures: FailureSink,
}

enum State {
    Planned(Run),
    Running(mpsc::Receiver<RecordBatch>, Task<Result<(), Failure>>),
    Over,
}

impl Rows {
    /// Returns the rows of `run`, which starts when the first are asked for.
    pub fn new(py: Python<'_>, run: Run, failures: FailureSink) -> Self {
        Self {
            schema: run.plan.schema(),
            state: State::Planned(run),
            caller: Caller::new(py),
            failures,
        }
    }

    /// Returns them as a capsule that Arrow's libraries take.
    pub fn into_capsule(self, py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        let stream = FFI_ArrowArrayStream::new(Box::new(self));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Returns the next batch.
    fn pull(&mut self) -> Result<Option<RecordBatch>, Failure> {
        if let State::Planned(_) = self.state
            && let State::Planned(run) = mem::replace(&mut self.state, State::Over)
        {
            let (sender, receiver) = mpsc::channel(WAITING);
            self.state = State::Running(receiver, Task::spawn(send(run, sender))?);
        }
        let State::Running(receiver, task) = &mut self.state else {
            return Ok(None);
        };
        if let Ok(batch) = receiver.try_recv() {
            return Ok(Some(batch));
        }
        self.caller.wait(async {
            match receiver.recv().await {
                Some(batch) => Ok(Some(batch)),
                None => task.done().await?.map(|()| None),
            }
        })
    }

    /// Reports `failure`. Returns its error of the C interface.
    fn report(&self, failure: Failure) -> ArrowError {
        // The interface's texts end with a zero byte.
        let text = failure.text().replace('\0', " ");
        match &self.failures {
            FailureSink::Caller(slot) => slot.put(failure),
            // The taker's own exception comes first. This one is due as soon as Python runs again.
            FailureSink::Interpreter => interrupt(failure),
        }
        ArrowError::ExternalError(text.into())
    }
}

/// Runs `run`. Its decisions are known before the queue ends.
async fn send(run: Run, sender: mpsc::Sender<RecordBatch>) -> Result<(), Failure> {
    let mut stream = run.start()?;
    while let Some(batch) = stream.next().await {
        if sender.send(batch?).await.is_err() {
            break;
        }
    }
    drop(stream);
    drop(run);
    drop(sender);
    Ok(())
}

/// Makes Python raise KeyboardInterrupt if `failure` is one. It comes from the caller's thread.
fn interrupt(failure: Failure) {
    let Failure::Raised(error, _) = failure else {
        return;
    };
    // With the GIL the error is dropped, too.
    gil::held(move |py| {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            let module = py.import("_thread");
            let _ = module.and_then(|module| module.call_method0("interrupt_main"));
        }
    });
}

impl Iterator for Rows {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The caller is C: no panic may reach it.
        let pulled = catch_unwind(AssertUnwindSafe(|| self.pull()));
        match pulled.unwrap_or_else(|panic| Err(Failure::from_panic(panic.as_ref()))) {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => {
                self.state = State::Over;
                None
            }
            Err(failure) => {
                self.state = State::Over;
                Some(Err(self.report(failure)))
            }
        }
    }
}

impl RecordBatchReader for Rows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Rows that are taken once, by a package that `frame` calls.
#[pyclass(frozen, skip_from_py_object)]
pub struct Once(Mutex<Option<Rows>>);

impl Once {
    /// Returns `rows` as an object with `__arrow_c_stream__`.
    pub fn new(rows: Rows) -> Self {
        Self(Mutex::new(Some(rows)))
    }
}

#[pymethods]
impl Once {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore it.
        drop(requested_schema);
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.take();
        let taken = || Failure::Query("these rows were taken already".to_owned());
        rows.ok_or_else(taken)?.into_capsule(py)
    }
}
