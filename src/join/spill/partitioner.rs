//! One side of a join, partitioned by a hash of its keys.
//!
//! ```text
//!  batch ─▶ hash of keys ─▶ rows of partition 0, 1, … 15 ─▶ kept in memory
//!                                                             │ too many, or refused by the pool
//!                                                             ▼
//!                                    all partitions' rows ─▶ files, in batches of their own
//! ```
//!
//! No row stays in memory: a partition's table needs it, and so do the operators above and below.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use tokio::sync::Mutex;
use tracing::trace_span;

use crate::error::Result;
use crate::join::concat::concatenate::compact;
use crate::parallel::{map_parallel, task_failed};

use super::partition::SpillPartition;
use super::partition_function::{DROPPED, partition_numbers};
use super::spec::PartitionSpec;
use super::writer::PartitionWriter;

/// Bytes of rows that wait to be written together: those of all partitions of a side, in all
/// partitioners that run at once.
const WRITTEN_TOGETHER_BYTES: usize = 8 << 20;

/// Bytes of rows that a side has in memory even if the pool refuses. They are not reserved then.
/// With fewer, files would be of batches of a few rows.
const KEPT_BYTES_MIN: usize = 1 << 20;

/// A side that is being partitioned.
pub struct Partitioner {
    spec: PartitionSpec,
    state: Mutex<State>,
}

struct State {
    /// The partitions, and rows with NULL keys where those are separate.
    filling: Vec<PartitionWriter>,
    /// The counter of bytes in memory: buffers that batches share count once.
    counter: RecordBatchMemoryCounter,
    /// Bytes of it, reserved or not.
    bytes: usize,
}

impl State {
    /// Returns the bytes that `parts` add to what is in memory.
    fn count(&mut self, parts: &[(usize, RecordBatch)]) -> usize {
        let bytes = parts.iter().map(|(_, part)| self.counter.count_batch(part));
        bytes.sum()
    }
}

/// A side in spill partitions.
pub struct PartitionedSide {
    /// Spill partitions by their numbers.
    pub partitions: Vec<Arc<SpillPartition>>,
    /// Rows with NULL keys, where those are separate.
    pub nulls: Arc<SpillPartition>,
}

impl PartitionedSide {
    /// Returns the number of rows, those with NULL keys included.
    pub fn rows(&self) -> usize {
        let rows = self.partitions.iter().map(|partition| partition.rows);
        rows.sum::<usize>() + self.nulls.rows
    }

    /// Returns the bytes that all rows would take in memory.
    pub fn bytes(&self) -> usize {
        self.partitions
            .iter()
            .map(|partition| partition.bytes)
            .sum()
    }
}

// Streams are partitioned by tasks (`all_at_once`).
#[expect(
    clippy::await_holding_invalid_type,
    reason = "whoever waits for the state is a task, as is the one that has it"
)]
impl Partitioner {
    /// Returns a partitioner that has no rows yet.
    pub fn new(spec: PartitionSpec) -> Self {
        let filling = (0..=spec.partitions)
            .map(|_| PartitionWriter::default())
            .collect();
        let state = State {
            filling,
            counter: RecordBatchMemoryCounter::new(),
            bytes: 0,
        };
        Self {
            spec,
            state: Mutex::new(state),
        }
    }

    /// Partitions the rows of `stream`.
    ///
    /// # Errors
    /// The stream's, and the errors of writing files.
    pub async fn add(&self, mut stream: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = stream.try_next().await? {
            let parts = self.parts(&batch)?;
            drop(batch);
            self.keep(parts).await?;
        }
        Ok(())
    }

    /// Returns the rows of each partition, and those that are separate.
    fn parts(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let _work = trace_span!("partition rows").entered();
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.spec.partitions + 1];
        for (row, at) in partition_numbers(&self.spec, batch)?
            .into_iter()
            .enumerate()
        {
            if at != DROPPED {
                rows[at as usize].push(row as u32);
            }
        }
        let mut parts = Vec::with_capacity(rows.len());
        for (at, rows) in rows.into_iter().enumerate() {
            if !rows.is_empty() {
                let part = take_record_batch(batch, &UInt32Array::from(rows))?;
                parts.push((at, compacted(part)?));
            }
        }
        Ok(parts)
    }

    /// Keeps rows; writes all that were kept before if the pool refuses more.
    async fn keep(&self, parts: Vec<(usize, RecordBatch)>) -> Result<()> {
        let mut state = self.state.lock().await;
        let mut bytes = state.count(&parts);
        let is_full = state.bytes + bytes > WRITTEN_TOGETHER_BYTES / self.spec.at_once;
        if is_full || self.spec.memory.try_grow(bytes).is_err() {
            if state.bytes + bytes > KEPT_BYTES_MIN / self.spec.at_once {
                self.write(&mut state).await?;
                bytes = state.count(&parts);
            }
            // If the pool refuses, they are there all the same, and written next if they are many.
            let _ = self.spec.memory.try_grow(bytes);
        }
        state.bytes += bytes;
        let rows: usize = parts.iter().map(|(_, part)| part.num_rows()).sum();
        for (at, part) in parts {
            // Buffers that parts share are nobody's: each has its rows' share of all bytes.
            let shard = bytes * part.num_rows() / rows.max(1);
            state.filling[at].push(part, shard);
        }
        Ok(())
    }

    /// Writes what is in memory, some partitions at a time.
    async fn write(&self, state: &mut State) -> Result<()> {
        let filling = std::mem::take(&mut state.filling);
        let (files, batch_size) = (self.spec.files.clone(), self.spec.batch_size);
        let write = |mut partition: PartitionWriter| {
            let files = files.clone();
            async move {
                let written = SpawnedTask::spawn_blocking(move || {
                    let _work = trace_span!("write spill file").entered();
                    let written = partition.write(&files, batch_size);
                    (partition, written)
                });
                written.join().await.map_err(|e| task_failed(&e))
            }
        };
        let written = map_parallel(filling, self.spec.width, write).await?;
        let (filling, written): (Vec<_>, Vec<_>) = written.into_iter().unzip();
        state.filling = filling;
        (state.counter, state.bytes) = (RecordBatchMemoryCounter::new(), 0);
        self.spec.memory.free();
        Ok(written.into_iter().collect::<DataFusionResult<()>>()?)
    }

    /// Returns the partitions.
    ///
    /// # Errors
    /// The errors of writing files.
    pub async fn finish(&self) -> Result<PartitionedSide> {
        let mut state = self.state.lock().await;
        self.write(&mut state).await?;
        let filling = std::mem::take(&mut state.filling).into_iter();
        let partitions = filling.map(PartitionWriter::finish);
        let mut partitions = partitions.collect::<DataFusionResult<Vec<_>>>()?;
        let nulls = partitions.split_off(self.spec.partitions).remove(0);
        Ok(PartitionedSide { partitions, nulls })
    }
}

/// Returns the batch with the bytes of its views in buffers of its own: other rows' bytes are not
/// kept.
fn compacted(batch: RecordBatch) -> Result<RecordBatch> {
    let is_view =
        |array: &ArrayRef| matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView);
    if !batch.columns().iter().any(is_view) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(|c| compact(Arc::clone(c)));
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}
