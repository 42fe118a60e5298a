//! One partition of an input, and what all partitions have together.
//!
//! ```text
//!  stream ─▶ refused ── granted by the memory pool ─▶ batches
//!                └────── refused ─▶ the read ends; asked for again by the next
//! ```

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::resources_datafusion_err;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use datafusion::execution::spill_file::SpillFile;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{Either, select};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::join::batch_bytes::BatchBytes;
use crate::join::input::build_batches::empty_stream;
use crate::join::input::files::SpillFiles;
use crate::join::memory::{FALLBACK_BYTES, ROW_BYTES, leaves_half, table_bytes};
use crate::join::rows::NO_ROW;

/// Rows of a build side, which are numbered in 32 bits.
pub const MOST_ROWS: usize = NO_ROW.0 as usize - 1;

/// The rows that all partitions of an input have, and their memory.
pub struct BufferState {
    pub rows: AtomicUsize,
    pub batches: AtomicUsize,
    /// Batches can be slices of one larger batch, whose buffers count once.
    pub counter: Mutex<RecordBatchMemoryCounter>,
    /// Bytes that are reserved for a hash table of the rows.
    pub table: Mutex<usize>,
    pub memory: MemoryReservation,
    /// The measure of an input that yields memory.
    pub yielding_memory: Mutex<Option<YieldingMemory>>,
}

/// The measure of an input that yields memory.
pub struct YieldingMemory {
    /// Half of it is left to others.
    pub pool: Arc<dyn MemoryPool>,
    /// Counts the bytes of rows that are kept. Slices of a large array reserve all of it, but count
    /// as what they show.
    pub counter: BatchBytes,
    /// These bytes.
    pub bytes: usize,
}

#[derive(Default)]
pub struct InputPartition {
    /// `None` once it has ended.
    pub stream: Option<SendableRecordBatchStream>,
    /// The first batches, if they were moved to a file, and what reads them.
    pub spilled: Option<(Arc<dyn SpillFile>, SpillFiles)>,
    /// Batches with rows, and the bytes that they reserve.
    pub batches: VecDeque<(RecordBatch, usize)>,
    /// A batch that the pool refused, and its bytes.
    pub refused: Option<(RecordBatch, usize)>,
    /// The error that ended the stream.
    pub error: Option<DataFusionError>,
}

impl InputPartition {
    pub fn has_ended(&self) -> bool {
        self.stream.is_none() && self.refused.is_none()
    }

    /// Returns whether all of its rows are still to come from its stream.
    pub fn is_unread(&self) -> bool {
        let has_rows = !self.batches.is_empty() || self.refused.is_some();
        !has_rows && self.spilled.is_none() && self.error.is_none()
    }

    pub fn into_stream(
        mut self,
        schema: &SchemaRef,
        kept: Arc<BufferState>,
    ) -> SendableRecordBatchStream {
        let refused = self.refused.take().map(|(batch, _)| (batch, 0));
        self.batches.extend(refused);
        let error = futures::stream::iter(self.error.map(Err));
        let rest = self.stream.unwrap_or_else(|| empty_stream(schema));
        let spilled = self.spilled.map(|(file, files)| {
            // Opened when its rows are asked for.
            let opened = async move { files.read(file) };
            futures::stream::once(opened).try_flatten()
        });
        let spilled = futures::stream::iter(spilled).flatten();
        let batches = futures::stream::iter(self.batches).map(move |(batch, bytes)| {
            kept.memory.shrink(bytes);
            Ok(batch)
        });
        let stream = spilled.chain(batches).chain(error).chain(rest);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream))
    }
}

/// One read, as a partition sees it.
pub struct Reader {
    pub kept: Arc<BufferState>,
    /// Rows of the input at which the read ends.
    pub rows: usize,
    pub stop: Arc<watch::Sender<bool>>,
    pub stopped: watch::Receiver<bool>,
}

impl Reader {
    /// Reads `part`; with the pool's error, if it refused a batch.
    pub async fn read(mut self, mut part: InputPartition) -> (InputPartition, Option<Error>) {
        loop {
            if let Some((batch, bytes)) = part.refused.take() {
                if let Err(error) = self.kept.grant(batch.num_rows(), bytes) {
                    part.refused = Some((batch, bytes));
                    // A read that is dropped is dropped with all of its readers.
                    self.stop.send_replace(true);
                    return (part, Some(error));
                }
                part.batches.push_back((batch, bytes));
            }
            if self.kept.has(self.rows) {
                // As above: no reader is left to wait for one that was dropped.
                self.stop.send_replace(true);
            }
            let Some(stream) = part.stream.as_mut().filter(|_| !*self.stopped.borrow()) else {
                return (part, None);
            };
            let stopped = std::pin::pin!(self.stopped.wait_for(|stopped| *stopped));
            let next = match select(stream.next(), stopped).await {
                Either::Left((next, _)) => next,
                // The others have what was asked for; nothing of the stream is lost.
                Either::Right(_) => continue,
            };
            match next {
                Some(Ok(batch)) => {
                    self.kept.batches.fetch_add(1, Ordering::AcqRel);
                    if batch.num_rows() > 0 {
                        let bytes = self.kept.bytes_of(&batch);
                        part.refused = Some((batch, bytes));
                    }
                }
                Some(Err(error)) => {
                    (part.stream, part.error) = (None, Some(error));
                    self.stop.send_replace(true);
                }
                None => part.stream = None,
            }
        }
    }
}

impl BufferState {
    /// Returns whether `rows` rows are buffered, or `rows` times `ROW_BYTES` bytes.
    pub fn has(&self, rows: usize) -> bool {
        let most = rows.saturating_mul(ROW_BYTES);
        let is_full = |yielding_memory: &YieldingMemory| yielding_memory.bytes >= most;
        self.rows.load(Ordering::Acquire) >= rows
            || lock(&self.yielding_memory).as_ref().is_some_and(is_full)
    }

    /// Returns the bytes that `batch` reserves.
    pub fn bytes_of(&self, batch: &RecordBatch) -> usize {
        if let Some(yielding_memory) = &mut *lock(&self.yielding_memory) {
            yielding_memory.bytes += yielding_memory.counter.count(batch, &[]);
        }
        lock(&self.counter).count_batch(batch)
    }

    /// Reserves `bytes` for `rows` rows, and their share of a hash table.
    pub fn grant(&self, rows: usize, bytes: usize) -> Result<()> {
        let mut table = lock(&self.table);
        let all = self.rows.load(Ordering::Acquire) + rows;
        if all > MOST_ROWS {
            let limit = MOST_ROWS;
            return Err(Error::TooManyRows { rows: all, limit });
        }
        let wanted = table_bytes(all).max(*table);
        let more = bytes + wanted - *table;
        if let Some(yielding_memory) = &*lock(&self.yielding_memory)
            && self.memory.size() + more > FALLBACK_BYTES
            && !leaves_half(&yielding_memory.pool, more)
        {
            let text = "this side may use at most half of the memory pool";
            return Err(Error::DataFusion(resources_datafusion_err!("{text}")));
        }
        self.memory.try_grow(more)?;
        *table = wanted;
        self.rows.store(all, Ordering::Release);
        Ok(())
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
