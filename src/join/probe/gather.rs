//! The way from the input to chunks: batches are gathered until a chunk has enough of them.
//!
//! ```text
//!  input ─▶ [batch][batch][batch] │ one that has no room is put back: it begins the next chunk
//!           └── up to a chunk's rows, batches or bytes, or to what the memory pool grants ──┘
//! ```
//!
//! A chunk without any batch would get nobody further. So a stream that has no chunk in flight
//! takes one batch in any case. That is in memory anyway.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

use crate::error::Result;
use crate::join::batch_bytes::BatchBytes;
use crate::join::build_side::side::BuildSide;
use crate::join::memory::ProbeMemory;
use crate::join::metrics::JoinMetrics;

use super::chunk_sizing::{ChunkSizing, QUICK};
use super::input::ProbeInput;
use super::spec::ProbeSpec;

/// Host bytes of what the host finds for a key in the device's place.
const HIT_BYTES: usize = 40;

/// Batches of a chunk, each with its key columns, and what they reserve.
pub struct GatheredBatches {
    /// Batches, and the key columns of each.
    pub batches: Vec<(RecordBatch, Vec<ArrayRef>)>,
    /// Rows of all batches.
    pub rows: usize,
    /// What they reserve.
    pub memory: ProbeMemory,
    bytes: usize,
    /// Bytes of the batches at most, unless there is only one.
    bytes_max: usize,
    /// Bytes that each row takes in addition to its batch.
    row_bytes: usize,
    counter: BatchBytes,
}

impl GatheredBatches {
    fn new(memory: ProbeMemory, bytes_max: usize, row_bytes: usize) -> Self {
        Self {
            batches: Vec::new(),
            rows: 0,
            memory,
            bytes: 0,
            bytes_max,
            row_bytes,
            counter: BatchBytes::default(),
        }
    }

    /// Reserves room for a batch with its key columns. Returns whether the chunk and the memory
    /// pool have some.
    fn has_room(&mut self, batch: &RecordBatch, keys: &[ArrayRef]) -> bool {
        let bytes = self.counter.count(batch, keys);
        self.bytes += bytes;
        let is_full = !self.batches.is_empty() && self.bytes > self.bytes_max;
        !is_full && (self.memory).add_rows(bytes + self.row_bytes * batch.num_rows())
    }

    /// Returns whether the chunk and the memory pool are likely to have room for a batch of `bytes`
    /// bytes.
    fn expects_room(&self, bytes: usize) -> bool {
        let is_full = !self.batches.is_empty() && self.bytes + bytes > self.bytes_max;
        !is_full && self.memory.has_room(bytes)
    }

    fn push(&mut self, batch: RecordBatch, keys: Vec<ArrayRef>) {
        self.rows += batch.num_rows();
        self.batches.push((batch, keys));
    }
}

/// Gathers the batches of one probe partition to chunks.
pub struct ChunkGatherer {
    spec: Arc<ProbeSpec>,
    input: ProbeInput,
    /// The stream's reservation, from which chunks have theirs.
    memory: ProbeMemory,
    metrics: JoinMetrics,
}

impl ChunkGatherer {
    /// Returns a gatherer of the batches of `input`, whose chunks have their memory from `memory`.
    pub fn new(
        spec: Arc<ProbeSpec>,
        input: ProbeInput,
        memory: ProbeMemory,
        metrics: JoinMetrics,
    ) -> Self {
        Self {
            spec,
            input,
            memory,
            metrics,
        }
    }

    /// Returns a chunk: batches with rows, as many as `sizing` and the memory pool allow. Returns
    /// `None` at the end of the input, or if a chunk in flight is to give its memory back first.
    /// No chunk is in flight if the stream `is_idle`, and then one batch is taken in any case.
    ///
    /// # Errors
    /// The errors of the input and of the key expressions.
    pub async fn gather(
        &mut self,
        build: &BuildSide,
        sizing: &mut ChunkSizing,
        is_idle: bool,
    ) -> Result<Option<GatheredBatches>> {
        let size = sizing.next();
        let memory = self.memory.for_chunk();
        let mut gathered = GatheredBatches::new(memory, sizing.bytes_max, row_bytes(build));
        let began = Instant::now();
        let is_full = |rows: usize| {
            rows >= size.rows && (rows >= size.quick_rows || began.elapsed() >= QUICK)
        };
        while !is_full(gathered.rows) && gathered.batches.len() < size.batches {
            let is_least = gathered.batches.is_empty() && is_idle;
            // A batch that is taken and put back is in memory, too, so it is not even taken.
            if !is_least && !gathered.expects_room(sizing.last_batch_bytes) {
                break;
            }
            let waits = self.spec.whole_chunks || gathered.batches.is_empty();
            let Some(batch) = self.input.next(waits).await? else {
                break;
            };
            let batch = if sizing.is_memory_short() {
                self.head(batch, size.rows - gathered.rows)
            } else {
                batch
            };
            let keys = self.keys(&batch)?;
            let before = gathered.bytes;
            let has_room = gathered.has_room(&batch, &keys);
            sizing.last_batch_bytes = gathered.bytes - before;
            if !has_room && !is_least {
                self.input.put_back(batch);
                break;
            }
            gathered.push(batch, keys);
            if !has_room {
                break;
            }
        }
        Ok((!gathered.batches.is_empty()).then_some(gathered))
    }

    /// Returns the first `rows` rows of `batch`; what is left comes next.
    fn head(&mut self, batch: RecordBatch, rows: usize) -> RecordBatch {
        if batch.num_rows() <= rows {
            return batch;
        }
        let rest = batch.slice(rows, batch.num_rows() - rows);
        self.input.put_back(rest);
        batch.slice(0, rows)
    }

    /// Returns the key columns of `batch`.
    fn keys(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        let _timer = self.metrics.join_time.timer();
        Ok(evaluate_expressions_to_arrays(&self.spec.on, batch)?)
    }

    /// Returns whether there may be more batches.
    pub fn has_more(&self) -> bool {
        self.input.has_more()
    }

    /// Makes `batches` come next.
    pub fn put_back(&mut self, batches: Vec<RecordBatch>) {
        let last_first = batches.into_iter().rev();
        last_first.for_each(|batch| self.input.put_back(batch));
    }

    /// Ends the input: nothing more is wanted.
    pub fn close(&mut self) {
        self.input.close();
    }
}

/// Returns the host bytes of a row in addition to its batch: its normalized key, its place, and
/// what the host finds for it.
fn row_bytes(build: &BuildSide) -> usize {
    let by_host = match build.tables().answering() {
        Some(_) => 0,
        None => HIT_BYTES,
    };
    size_of::<u32>() * (build.encoder().words() + 1) + by_host
}
