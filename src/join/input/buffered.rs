//! One input of a join, read as far as was asked for and kept.
//!
//! ```text
//!  partition 0 ▓▓▓▓▓▓▓▓▓░░░░░░        a read takes all partitions side by side, until
//!  partition 1 ▓▓▓▓▓┃                   Ended    every partition has ended
//!  partition 2 ▓▓▓▓▓▓▓▓▓▓▓░░░░          Full     so many rows are there
//!                                       Refused  the memory pool has no room for more
//!
//!  collect      ─▶ the kept batches, and what they reserve
//!  spill_kept   ─▶ the kept batches go to a file per partition
//!  into_streams ─▶ a stream per partition: its file, the kept batches, then the rest
//! ```
//!
//! A join learns which side is smaller by reading both. Nothing is read twice. The side that is not
//! built is probed from its first batch on, and gives back the memory of each batch. With each
//! batch goes the memory of its share of a hash table on the host: a side that was read can be
//! built.
//!
//! An input that yields memory leaves half of a limited memory pool to others, but for
//! [`FALLBACK_BYTES`](crate::join::memory::FALLBACK_BYTES) of its own. A read of it ends at a
//! number of bytes, too.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use tokio::sync::watch;
use tracing::{Instrument, trace_span};

use crate::error::{Error, Result};
use crate::join::batch_bytes::BatchBytes;
use crate::join::input::build_batches::{BuildBatches, empty_stream};
use crate::join::input::files::SpillFiles;
use crate::join::input::partition::{
    BufferState, InputPartition, MOST_ROWS, Reader, YieldingMemory, lock,
};
use crate::join::memory::table_bytes;
use crate::parallel::task_failed;

/// The outcome of a read.
#[derive(Debug)]
pub enum ReadOutcome {
    /// All rows are read.
    Ended,
    /// The number of rows asked for is read.
    Full,
    /// The memory pool refused a batch, which is kept, and asked for again by the next read.
    Refused(Error),
    /// The input failed: a reader of its rows gets the error at their end.
    Failed,
}

impl ReadOutcome {
    /// Returns whether all rows are read.
    pub fn has_ended(&self) -> bool {
        matches!(self, ReadOutcome::Ended)
    }
}

/// An input of a join, with the rows of it that are kept.
pub struct BufferedInput {
    schema: SchemaRef,
    parts: Vec<InputPartition>,
    kept: Arc<BufferState>,
}

impl BufferedInput {
    /// Returns the input of `streams`, of which nothing is read yet; what is kept is reserved under
    /// `memory`.
    pub fn new(
        schema: SchemaRef,
        streams: Vec<SendableRecordBatchStream>,
        memory: MemoryReservation,
    ) -> Self {
        let part = |stream| InputPartition {
            stream: Some(stream),
            ..InputPartition::default()
        };
        Self {
            schema,
            parts: streams.into_iter().map(part).collect(),
            kept: Arc::new(BufferState {
                rows: AtomicUsize::new(0),
                batches: AtomicUsize::new(0),
                counter: Mutex::new(RecordBatchMemoryCounter::new()),
                table: Mutex::new(0),
                memory,
                yielding_memory: Mutex::new(None),
            }),
        }
    }

    /// Makes the input one that yields memory: it leaves half of `pool` to others.
    pub fn yielding_memory(self, pool: &Arc<dyn MemoryPool>) -> Self {
        *lock(&self.kept.yielding_memory) = Some(YieldingMemory {
            pool: Arc::clone(pool),
            counter: BatchBytes::default(),
            bytes: 0,
        });
        self
    }

    /// Takes all memory that there is from now on.
    pub fn take_all_memory(&self) {
        *lock(&self.kept.yielding_memory) = None;
    }

    /// Reads on until `rows` rows are there in all, or the input has ended. An input that yields
    /// memory stops at [`ROW_BYTES`](crate::join::memory::ROW_BYTES) bytes per row, too.
    ///
    /// # Errors
    /// [`Error::DataFusion`] if a task panics.
    pub async fn read(&mut self, rows: usize) -> Result<ReadOutcome> {
        // Others of its partitions may never end.
        if self.has_failed() {
            return Ok(ReadOutcome::Failed);
        }
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        let read_part = |part: InputPartition| {
            let reader = Reader {
                kept: Arc::clone(&self.kept),
                rows,
                stop: Arc::clone(&stop),
                stopped: stopped.clone(),
            };
            reader.read(part).instrument(trace_span!("read input"))
        };
        let parts = std::mem::take(&mut self.parts);
        let mut refused = None;
        if let [_] = parts.as_slice() {
            for part in parts {
                let (part, error) = read_part(part).await;
                self.parts.push(part);
                refused = refused.or(error);
            }
        } else {
            let tasks: Vec<_> = parts
                .into_iter()
                .map(|part| SpawnedTask::spawn(read_part(part)))
                .collect();
            for task in tasks {
                let (part, error) = task.join().await.map_err(|e| task_failed(&e))?;
                self.parts.push(part);
                refused = refused.or(error);
            }
        }
        Ok(match refused {
            _ if self.has_failed() => ReadOutcome::Failed,
            Some(error) => ReadOutcome::Refused(error),
            None if self.has_ended() => ReadOutcome::Ended,
            None => ReadOutcome::Full,
        })
    }

    fn has_failed(&self) -> bool {
        self.parts.iter().any(|part| part.error.is_some())
    }

    /// Returns the number of its partitions.
    pub fn partitions(&self) -> usize {
        self.parts.len()
    }

    /// Returns the input's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns whether the memory pool would grant `bytes` for `rows` rows and a hash table of
    /// them.
    pub fn has_room(&self, rows: usize, bytes: usize) -> bool {
        let asked = self.kept.memory.new_empty();
        rows <= MOST_ROWS && asked.try_grow(bytes + table_bytes(rows)).is_ok()
    }

    /// Returns the error that ended the input.
    pub fn failure(&mut self) -> Error {
        let unknown = || Error::Internal("an input failed without an error".to_owned());
        self.take_error().unwrap_or_else(unknown)
    }

    /// Returns whether nothing of it was read.
    pub fn is_unread(&self) -> bool {
        self.parts.iter().all(InputPartition::is_unread)
    }

    /// Returns whether every partition is read to its end.
    pub fn has_ended(&self) -> bool {
        self.parts.iter().all(InputPartition::has_ended)
    }

    /// Returns the number of rows that are kept.
    pub fn rows(&self) -> usize {
        self.kept.rows.load(Ordering::Acquire)
    }

    /// Returns the error that ended a partition, if one did.
    fn take_error(&mut self) -> Option<Error> {
        let error = self.parts.iter_mut().find_map(|part| part.error.take());
        error.map(Error::DataFusion)
    }

    /// Returns the batches that are kept, which stay there.
    pub fn batches(&self) -> Vec<RecordBatch> {
        let batches = self.parts.iter().flat_map(|part| &part.batches);
        batches.map(|(batch, _)| batch.clone()).collect()
    }

    /// Takes the rows that are kept; those that come are kept for a later call.
    pub fn collect(&mut self) -> BuildBatches {
        let kept = &self.kept;
        let parts = self.parts.iter().map(|part| part.batches.len()).collect();
        let batches = self
            .parts
            .iter_mut()
            .flat_map(|part| part.batches.drain(..));
        let (batches, bytes): (Vec<_>, Vec<usize>) = batches.unzip();
        let fresh = RecordBatchMemoryCounter::new();
        BuildBatches {
            batches,
            parts,
            rows: kept.rows.swap(0, Ordering::AcqRel),
            input_batches: kept.batches.swap(0, Ordering::AcqRel),
            bytes: bytes.iter().sum(),
            counter: std::mem::replace(&mut *lock(&kept.counter), fresh),
            memory: kept.memory.split(kept.memory.size()),
            table: std::mem::take(&mut *lock(&kept.table)),
        }
    }

    /// Keeps batches that the memory pool refused, although it does: without one nothing goes on.
    /// They are not reserved, as a pool over its limit would refuse all others.
    pub fn keep_refused(&mut self) {
        for part in &mut self.parts {
            if let Some((batch, _)) = part.refused.take() {
                self.kept.rows.fetch_add(batch.num_rows(), Ordering::AcqRel);
                part.batches.push_back((batch, 0));
            }
        }
    }

    /// Gives back what is reserved for a hash table: the rows are to be probed.
    pub fn forget_table(&self) {
        let table = std::mem::take(&mut *lock(&self.kept.table));
        self.kept.memory.shrink(table);
    }

    /// Returns whether rows that are kept reserve memory.
    pub fn has_memory(&self) -> bool {
        self.kept.memory.size() > 0
    }

    /// Reads from the first row on again, if some were moved to files.
    pub fn read_back(&mut self) {
        if self.parts.iter().all(|part| part.spilled.is_none()) {
            return;
        }
        self.forget_table();
        self.kept.rows.store(0, Ordering::Release);
        self.kept.batches.store(0, Ordering::Release);
        *lock(&self.kept.counter) = RecordBatchMemoryCounter::new();
        for part in &mut self.parts {
            let all = std::mem::take(part);
            part.stream = Some(all.into_stream(&self.schema, Arc::clone(&self.kept)));
        }
    }

    /// Moves the rows that are kept to files, of `files`, and gives their memory back.
    ///
    /// # Errors
    /// The errors of writing files; [`Error::DataFusion`] if a task panics.
    pub async fn spill_kept(&mut self, files: &SpillFiles) -> Result<()> {
        self.forget_table();
        for part in &mut self.parts {
            if part.spilled.is_some() {
                continue;
            }
            let (batches, bytes): (Vec<_>, Vec<usize>) = part.batches.drain(..).unzip();
            let writer = files.clone();
            let written = SpawnedTask::spawn_blocking(move || {
                let _work = trace_span!("write spill file").entered();
                writer.write(&batches)
            });
            let file = written.join().await.map_err(|e| task_failed(&e))??;
            part.spilled = file.map(|file| (file, files.clone()));
            self.kept.memory.shrink(bytes.iter().sum());
        }
        Ok(())
    }

    /// Returns the input's rows as streams, one per partition.
    pub fn into_streams(self) -> Vec<SendableRecordBatchStream> {
        self.forget_table();
        let (schema, kept) = (self.schema, self.kept);
        let streams = self.parts.into_iter().map(|part| {
            if part.is_unread() {
                part.stream.unwrap_or_else(|| empty_stream(&schema))
            } else {
                part.into_stream(&schema, Arc::clone(&kept))
            }
        });
        streams.collect()
    }
}
