//! The stream that a join hands out, which may be polled in a plan of any depth, and yields.
//!
//! ```text
//!  poll ─▶ 128 batches without a pause?  yes ─▶ pending, woken at once: others go on
//!              │ no
//!              ▼
//!          256 KiB of stack left?        no ──▶ goes on in a new segment of 4 MiB
//!              │ yes
//!              ▼
//!          the join's rows, of streams below, which may be joins again
//! ```
//!
//! A chain of some hundred joins would overflow the stack of a runtime's thread, which ends the
//! process. DataFusion's planner avoids that in the same way (its feature `recursive_protection`).
//! Its operators do not, but take less stack per level than a join that decides where it runs.
//!
//! A join can make thousands of batches of one that it reads, and consumers such as aggregates take
//! them all in one poll. Such a query could not be cancelled. DataFusion's `CooperativeStream` is
//! not used here. It takes from the budget of tokio's task before it polls its input. Of more than
//! 128 of them, one inside the other, the innermost would never be polled.

use std::pin::Pin;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::{Stream, StreamExt};

/// Bytes of stack for one level: those of a join, and of all operators between it and the next.
const LEVEL_STACK_BYTES: usize = 256 << 10;

/// Bytes of a new segment of stack.
const SEGMENT_BYTES: usize = 4 << 20;

/// Batches between two yields: tokio's own budget of a task.
const BATCHES_PER_YIELD: usize = 128;

/// Runs one `level` of a plan with stack enough for it.
pub fn with_stack<R>(level: impl FnOnce() -> R) -> R {
    stacker::maybe_grow(LEVEL_STACK_BYTES, SEGMENT_BYTES, level)
}

/// The stream of a join's partition.
pub struct JoinStream {
    rows: SendableRecordBatchStream,
    /// Batches since the last pause.
    batches: usize,
}

impl JoinStream {
    /// Returns the batches of `rows`.
    pub fn boxed(rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        Box::pin(Self { rows, batches: 0 })
    }
}

impl Stream for JoinStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.batches == BATCHES_PER_YIELD {
            self.batches = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = with_stack(|| self.rows.poll_next_unpin(context));
        self.batches = match next {
            Poll::Ready(_) => self.batches + 1,
            Poll::Pending => 0,
        };
        next
    }
}

impl RecordBatchStream for JoinStream {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }
}
