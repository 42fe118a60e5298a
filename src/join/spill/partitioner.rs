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
//! But where it is the device that is too small, rows stay, while the pool grants them
//! ([`PartitionStorage::Memory`]):
//!
//! ```text
//!  batch ─▶ hash of keys ─▶ rows in the order of partitions ─▶ each one's, in batches of full size
//!                                                               │ the pool is half full
//!                                                               ▼
//!                                                   all rows ─▶ files, as above
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{BatchCoalescer, take_record_batch};
use arrow::datatypes::DataType;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::join::concat::concatenate::compact;
use crate::join::decision::PartitionStorage;
use crate::join::memory;
use crate::parallel::{map_parallel, task_failed};

use super::partition::SpillPartition;
use super::partition_function::{DROPPED, in_order, partition_numbers};
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
    /// Rows in memory, while they have a place there.
    keeping: Option<InMemoryPartitions>,
    state: Mutex<State>,
}

/// Rows that stay in memory. Each partition has a lock of its own, as streams fill them side by
/// side.
struct InMemoryPartitions {
    partitions: Vec<StdMutex<BatchCoalescer>>,
    /// True if the pool has refused some rows.
    is_refused: AtomicBool,
}

impl InMemoryPartitions {
    fn of(spec: &PartitionSpec) -> Option<Self> {
        if spec.home == PartitionStorage::Disk {
            return None;
        }
        let batch = spec.batch_size.max(1);
        let partition =
            |_| StdMutex::new(BatchCoalescer::new(Arc::clone(spec.files.schema()), batch));
        Some(Self {
            partitions: (0..=spec.partitions).map(partition).collect(),
            is_refused: AtomicBool::new(false),
        })
    }

    fn partition(&self, at: usize) -> MutexGuard<'_, BatchCoalescer> {
        self.partitions[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rows of a partition, which has none then.
    fn take(&self, at: usize) -> Result<Vec<RecordBatch>> {
        let mut partition = self.partition(at);
        partition.finish_buffered_batch()?;
        Ok(std::iter::from_fn(|| partition.next_completed_batch()).collect())
    }
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
            keeping: InMemoryPartitions::of(&spec),
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
            if let Some(keeping) = self.in_memory() {
                if self.hold(keeping, &batch)? {
                    continue;
                } else {
                    self.give_up(keeping).await?
                }
            }
            let parts = self.parts(&batch)?;
            drop(batch);
            self.keep(parts).await?;
        }
        Ok(())
    }

    /// Returns where rows are kept, if they still are.
    fn in_memory(&self) -> Option<&InMemoryPartitions> {
        let keeping = self.keeping.as_ref();
        keeping.filter(|keeping| !keeping.is_refused.load(Ordering::Acquire))
    }

    /// Keeps the rows of a batch in memory; whether the pool grants it.
    fn hold(&self, keeping: &InMemoryPartitions, batch: &RecordBatch) -> Result<bool> {
        let numbers = partition_numbers(&self.spec, batch)?;
        let (rows, ends) = in_order(&numbers, self.spec.partitions + 1);
        let sorted = compacted(take_record_batch(batch, &UInt32Array::from(rows))?)?;
        let bytes = sorted.get_array_memory_size();
        if !memory::leaves_half(&self.spec.pool, bytes) || self.spec.memory.try_grow(bytes).is_err()
        {
            return Ok(false);
        }
        let mut from = 0;
        for (at, to) in ends.into_iter().enumerate() {
            if from < to {
                keeping
                    .partition(at)
                    .push_batch(sorted.slice(from, to - from))?;
            }
            from = to;
        }
        Ok(true)
    }

    /// Moves all rows into files, and those that come.
    async fn give_up(&self, keeping: &InMemoryPartitions) -> Result<()> {
        let mut state = self.state.lock().await;
        // If this is dropped, the rows lie in the files or in the queues of those who write them.
        keeping.is_refused.store(true, Ordering::Release);
        self.unkeep(keeping, &mut state)?;
        self.write(&mut state).await
    }

    /// Hands rows that were kept to those who write them.
    fn unkeep(&self, keeping: &InMemoryPartitions, state: &mut State) -> Result<()> {
        for at in 0..keeping.partitions.len() {
            for batch in keeping.take(at)? {
                let bytes = batch.get_array_memory_size();
                state.filling[at].push(batch, bytes);
            }
        }
        Ok(())
    }

    /// Returns the partitions in memory.
    fn kept(&self, keeping: &InMemoryPartitions) -> Result<PartitionedSide> {
        let memory = &self.spec.memory;
        let partition = |at| {
            let batches = keeping.take(at)?;
            let rows = batches.iter().map(RecordBatch::num_rows).sum();
            let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
            let memory = memory.split(memory.size().min(bytes));
            Ok(Arc::new(SpillPartition {
                rows,
                bytes,
                kept: Some((batches, memory)),
                file: None,
            }))
        };
        let partitions = (0..keeping.partitions.len()).map(partition);
        let mut partitions = partitions.collect::<Result<Vec<_>>>()?;
        memory.free();
        let nulls = partitions.split_off(self.spec.partitions).remove(0);
        Ok(PartitionedSide { partitions, nulls })
    }

    /// Returns the rows of each partition, and those that are separate.
    fn parts(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
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
        if let Some(keeping) = self.in_memory() {
            return self.kept(keeping);
        }
        let mut state = self.state.lock().await;
        if let Some(keeping) = &self.keeping {
            self.unkeep(keeping, &mut state)?;
        }
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
