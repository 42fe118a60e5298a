//! The input of one probe partition: its stream, and batches that were taken and put back.
//!
//! ```text
//!  put back ─┬─▶ the next batch
//!  stream ───┘
//! ```

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use futures::{FutureExt, TryStreamExt};

use crate::join::metrics::JoinMetrics;

/// Batches of the probe side, in order.
pub struct ProbeInput {
    /// `None` once it has ended.
    stream: Option<SendableRecordBatchStream>,
    /// Batches that were taken and put back: they come before the stream's.
    back: VecDeque<RecordBatch>,
    metrics: JoinMetrics,
}

impl ProbeInput {
    /// Returns the batches of `stream`.
    pub fn new(stream: SendableRecordBatchStream, metrics: JoinMetrics) -> Self {
        Self {
            stream: Some(stream),
            back: VecDeque::new(),
            metrics,
        }
    }

    /// Returns the next batch that has rows. Without `waits`, it returns a batch only if one is
    /// ready. It returns `None` at the end, or if none is ready.
    pub async fn next(&mut self, waits: bool) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.back.pop_front() {
            return Ok(Some(batch));
        }
        while let Some(batch) = self.next_of_any_size(waits).await? {
            self.metrics.input_batches.add(1);
            self.metrics.input_rows.add(batch.num_rows());
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    async fn next_of_any_size(&mut self, waits: bool) -> Result<Option<RecordBatch>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let next = if waits {
            stream.try_next().await
        } else {
            match stream.try_next().now_or_never() {
                Some(next) => next,
                None => return Ok(None),
            }
        };
        if !matches!(next, Ok(Some(_))) {
            self.stream = None;
        }
        next
    }

    /// Makes `batch` the next one.
    pub fn put_back(&mut self, batch: RecordBatch) {
        self.back.push_front(batch);
    }

    /// Returns whether there may be more batches.
    pub fn has_more(&self) -> bool {
        self.stream.is_some() || !self.back.is_empty()
    }

    /// Ends it: nothing more is wanted.
    pub fn close(&mut self) {
        self.stream = None;
        self.back.clear();
    }
}
