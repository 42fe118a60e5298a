//! Rows of an input that are to be built, and what they reserve.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::error::Result;
use crate::join::memory::table_bytes;

/// Rows of an input that are to be built.
pub struct Collected {
    /// Batches with rows.
    pub batches: Vec<RecordBatch>,
    /// Their rows.
    pub rows: usize,
    /// How many batches there were, those without rows included.
    pub input_batches: usize,
    /// Bytes of the batches.
    pub bytes: usize,
    /// The counter of these bytes.
    pub counter: RecordBatchMemoryCounter,
    /// Memory that they reserve, with `table` bytes for a hash table on the host.
    pub memory: MemoryReservation,
    /// Bytes for that table.
    pub table: usize,
}

impl Collected {
    /// `batches` whose memory another holds, with a hash table on the host reserved under `memory`.
    ///
    /// # Errors
    /// The memory pool's.
    pub fn held(batches: Vec<RecordBatch>, memory: MemoryReservation) -> Result<Self> {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let table = table_bytes(rows);
        memory.try_grow(table)?;
        let mut counter = RecordBatchMemoryCounter::new();
        Ok(Self {
            bytes: batches.iter().map(|b| counter.count_batch(b)).sum(),
            input_batches: batches.len(),
            batches,
            rows,
            counter,
            memory,
            table,
        })
    }

    /// Returns the rows as `parts` streams, which give back what each batch reserves.
    pub fn into_streams(self, schema: &SchemaRef, parts: usize) -> Vec<SendableRecordBatchStream> {
        self.memory.shrink(self.table);
        let row_bytes = self.memory.size() / self.rows.max(1);
        let memory = Arc::new(self.memory);
        let each = self.batches.len().div_ceil(parts.max(1)).max(1);
        let mut streams: Vec<SendableRecordBatchStream> = Vec::with_capacity(parts);
        let mut batches = self.batches.into_iter().peekable();
        while batches.peek().is_some() {
            let part: Vec<_> = batches.by_ref().take(each).collect();
            let memory = Arc::clone(&memory);
            let part = futures::stream::iter(part).map(move |batch| {
                memory.shrink(row_bytes * batch.num_rows());
                Ok(batch)
            });
            streams.push(Box::pin(RecordBatchStreamAdapter::new(
                Arc::clone(schema),
                part,
            )));
        }
        streams
    }

    /// Returns the rows twice: for a build that may fail, without their memory, and with it for
    /// what comes then.
    pub fn apart(self) -> (Self, Self) {
        let rows = Self {
            batches: self.batches.clone(),
            counter: self.counter,
            memory: self.memory.new_empty(),
            ..self
        };
        let kept = Self {
            counter: RecordBatchMemoryCounter::new(),
            ..self
        };
        (rows, kept)
    }
}

/// Returns a stream without rows.
pub fn empty_stream(schema: &SchemaRef) -> SendableRecordBatchStream {
    let none = futures::stream::empty();
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), none))
}
