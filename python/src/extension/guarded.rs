//! The rows of a join, for a library that neither has our runtime nor survives a panic of ours.
//!
//! ```text
//!  datafusion's thread ─▶ poll ─▶ our runtime is entered, panics are caught ─▶ the join's stream
//! ```
//!
//! `datafusion-ffi` can enter a runtime, too, and forgets it where a node of the host lies above.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::Stream;
use tokio::runtime::Handle;

use crate::failure::Failure;

use super::decisions::Watched;

/// Runs `work` in our runtime. A panic in it is an error.
///
/// # Errors
/// Those of `work`.
pub fn guarded<T>(runtime: &Handle, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let _entered = runtime.enter();
    let done = catch_unwind(AssertUnwindSafe(work));
    done.unwrap_or_else(|panic| {
        let failure = Failure::from_panic(panic.as_ref());
        Err(DataFusionError::Execution(failure.text().to_owned()))
    })
}

/// A stream that is polled and dropped in our runtime.
pub struct Guarded {
    schema: SchemaRef,
    stream: Option<SendableRecordBatchStream>,
    runtime: Handle,
    _watched: Arc<Watched>,
}

impl Guarded {
    /// Returns `stream`, guarded. Its join is `watched` for as long.
    pub fn new(stream: SendableRecordBatchStream, runtime: Handle, watched: Arc<Watched>) -> Self {
        Self {
            schema: stream.schema(),
            stream: Some(stream),
            runtime,
            _watched: watched,
        }
    }

    /// Drops the stream.
    fn end(&mut self) {
        if let Some(stream) = self.stream.take() {
            // What a stream says while it is dropped, nobody hears.
            let _ = guarded(&self.runtime, || {
                drop(stream);
                Ok(())
            });
        }
    }
}

impl Stream for Guarded {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(None);
        };
        let polled = guarded(&this.runtime, || Ok(stream.as_mut().poll_next(context)));
        let polled = polled.unwrap_or_else(|panic| Poll::Ready(Some(Err(panic))));
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            this.end();
        }
        polled
    }
}

impl RecordBatchStream for Guarded {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.end();
    }
}
