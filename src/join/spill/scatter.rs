//! One side of a join, scattered over buckets by a hash of its keys.
//!
//! ```text
//!  batch ─▶ hash of keys ─▶ rows of bucket 0, 1, … 15 ─▶ kept in memory
//!                                                          │ they are many, or the pool refuses more
//!                                                          ▼
//!                                    all buckets' rows ─▶ files, in batches of their own
//! ```
//!
//! No row stays in memory: a bucket's table needs it, and so do the operators above and below.
//!
//! The hash is DataFusion's, by which its joins find equal keys, with a seed of its own at each level:
//! rows that share a bucket, or came through a `RepartitionExec`, are spread again.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::execution::spill_file::SpillFile;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::SpillManager;
use futures::TryStreamExt;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::join::joined::compact;
use crate::join::parts::task_failed;

use super::bucket::Bucket;

/// Buckets of a side at most: a bucket is so much smaller than what it comes of.
const MOST_BUCKETS: usize = 16;

/// Buckets of a side at least: with two, one has half of the rows without a hot key.
const LEAST_BUCKETS: usize = 3;

/// Files that the streams of a join have open together: a half of what a process may have by
/// default (`ulimit -n`, 1024).
const OPEN_FILES: usize = 512;

/// Open files a bucket: that of one side, and two while the other side's is written.
const FILES_A_BUCKET: usize = 3;

/// Buckets of a side where `streams` streams may scatter at once.
pub fn buckets(streams: usize) -> usize {
    let each = OPEN_FILES / FILES_A_BUCKET / streams.max(1);
    each.clamp(LEAST_BUCKETS, MOST_BUCKETS)
}

/// Bytes of rows that wait to be written together, for all buckets of a side.
const WRITTEN_TOGETHER: usize = 8 << 20;

/// Bytes of rows that a side has in memory whatever the pool says, and that are not reserved then:
/// with fewer, files would be of batches of a few rows.
const LEAST_TOGETHER: usize = 1 << 20;

/// Bytes of a batch in a file, about: what a reader has in memory at once.
const FILE_BATCH: usize = 512 << 10;

/// The seed of the first level's hash.
const SEED: u64 = 0x5b1e_a0d1_77c3_42f9;

/// What becomes of rows with a NULL key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullKeys {
    /// They match each other.
    Match,
    /// They match nothing, and are emitted: they go to all buckets by turns.
    Spread,
    /// They match nothing, and nobody wants them.
    Drop,
    /// NOT IN: they are decided on when both sides are known.
    Apart,
}

/// How a side is scattered.
pub struct ScatterSpec {
    /// Its key expressions.
    pub keys: Vec<PhysicalExprRef>,
    /// What becomes of NULLs.
    pub null_keys: NullKeys,
    /// Buckets.
    pub buckets: usize,
    /// How often its rows were scattered before.
    pub level: u64,
    /// Writes files.
    pub manager: SpillManager,
    /// Rows of a batch.
    pub batch_size: usize,
    /// What rows in memory are reserved under.
    pub memory: MemoryReservation,
}

impl ScatterSpec {
    /// The same for rows that were scattered `level` times before.
    pub fn at_level(self, level: u64) -> Self {
        Self { level, ..self }
    }

    /// The same, for other rows.
    pub fn again(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            manager: self.manager.clone(),
            memory: self.memory.new_empty(),
            ..*self
        }
    }
}

/// A side that is being scattered.
pub struct Scatter {
    spec: ScatterSpec,
    state: Mutex<State>,
}

struct State {
    /// The buckets, and rows with NULL keys where those are apart.
    filling: Vec<Filling>,
    /// What is in memory, buffers that batches share once.
    counter: RecordBatchMemoryCounter,
    /// Bytes of it, reserved or not.
    bytes: usize,
}

impl State {
    /// Bytes that `parts` add to what is in memory.
    fn count(&mut self, parts: &[(usize, RecordBatch)]) -> usize {
        let bytes = parts.iter().map(|(_, part)| self.counter.count_batch(part));
        bytes.sum()
    }
}

/// A side in buckets.
pub struct Scattered {
    /// The buckets.
    pub buckets: Vec<Arc<Bucket>>,
    /// Rows with NULL keys, where those are apart.
    pub nulls: Arc<Bucket>,
}

impl Scattered {
    /// Rows, NULL keys among them.
    pub fn rows(&self) -> usize {
        let rows = self.buckets.iter().map(|bucket| bucket.rows);
        rows.sum::<usize>() + self.nulls.rows
    }

    /// Bytes that all rows would take in memory.
    pub fn bytes(&self) -> usize {
        self.buckets.iter().map(|bucket| bucket.bytes).sum()
    }
}

impl Scatter {
    /// Nothing scattered yet.
    pub fn new(spec: ScatterSpec) -> Self {
        let filling = (0..=spec.buckets).map(|_| Filling::default()).collect();
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

    /// Scatters the rows of `stream`.
    ///
    /// # Errors
    /// The stream's, and those of writing files.
    pub async fn add(&self, mut stream: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = stream.try_next().await? {
            let parts = self.parts(&batch)?;
            drop(batch);
            self.keep(parts).await?;
        }
        Ok(())
    }

    /// The rows of each bucket, and those that are apart.
    fn parts(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let keys = evaluate_expressions_to_arrays(&self.spec.keys, batch)?;
        let buckets = self.spec.buckets;
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); buckets + 1];
        let mut hashes = vec![0; batch.num_rows()];
        let seed = RandomState::with_seed(SEED.wrapping_add(self.spec.level));
        create_hashes(&keys, &seed, &mut hashes)?;
        let nulls = null_rows(&keys, self.spec.null_keys);
        for (row, hash) in hashes.into_iter().enumerate() {
            let at = match (nulls.as_ref().is_some_and(|n| n[row]), self.spec.null_keys) {
                (true, NullKeys::Drop) => continue,
                (true, NullKeys::Apart) => buckets,
                (true, NullKeys::Spread) => row % buckets,
                _ => bucket_of(hash, buckets),
            };
            rows[at].push(row as u32);
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
        let is_full = state.bytes + bytes > WRITTEN_TOGETHER;
        if is_full || self.spec.memory.try_grow(bytes).is_err() {
            if state.bytes + bytes > LEAST_TOGETHER {
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
            let share = bytes * part.num_rows() / rows.max(1);
            state.filling[at].push(part, share);
        }
        Ok(())
    }

    /// Writes what is in memory.
    async fn write(&self, state: &mut State) -> Result<()> {
        let mut filling = std::mem::take(&mut state.filling);
        let (manager, batch_size) = (self.spec.manager.clone(), self.spec.batch_size);
        let written = SpawnedTask::spawn_blocking(move || {
            let written = filling
                .iter_mut()
                .try_for_each(|bucket| bucket.write(&manager, batch_size));
            (filling, written)
        });
        let (filling, written) = written.join().await.map_err(|e| task_failed(&e))?;
        state.filling = filling;
        (state.counter, state.bytes) = (RecordBatchMemoryCounter::new(), 0);
        self.spec.memory.free();
        Ok(written?)
    }

    /// The buckets.
    ///
    /// # Errors
    /// Those of writing files.
    pub async fn finish(&self) -> Result<Scattered> {
        let mut state = self.state.lock().await;
        self.write(&mut state).await?;
        let filling = std::mem::take(&mut state.filling).into_iter();
        let buckets = filling.map(Filling::finish);
        let mut buckets = buckets.collect::<DataFusionResult<Vec<_>>>()?;
        let nulls = buckets.split_off(self.spec.buckets).remove(0);
        Ok(Scattered { buckets, nulls })
    }
}

/// The bucket of a hash: by its high bits after Fibonacci hashing, as a table's bits are the low ones.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    let high = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((high * buckets as u64) >> 32) as usize
}

/// Whether each row has a NULL key, where that matters.
fn null_rows(keys: &[ArrayRef], null_keys: NullKeys) -> Option<Vec<bool>> {
    if null_keys == NullKeys::Match || keys.iter().all(|key| key.logical_null_count() == 0) {
        return None;
    }
    let nulls: Vec<_> = keys.iter().filter_map(|key| key.logical_nulls()).collect();
    let rows = 0..keys.first().map_or(0, |key| key.len());
    Some(
        rows.map(|row| nulls.iter().any(|n| n.is_null(row)))
            .collect(),
    )
}

/// The batch with the bytes of its views in buffers of its own: other rows' bytes are not kept.
fn compacted(batch: RecordBatch) -> Result<RecordBatch> {
    let is_view =
        |array: &ArrayRef| matches!(array.data_type(), DataType::Utf8View | DataType::BinaryView);
    if !batch.columns().iter().any(is_view) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(|c| compact(Arc::clone(c)));
    Ok(RecordBatch::try_new(batch.schema(), columns.collect())?)
}

/// Appends batches to a file, and ends it.
type Append = Box<dyn FnMut(Option<&RecordBatch>) -> DataFusionResult<Ended> + Send>;

/// The file, once it has ended.
type Ended = Option<Arc<dyn SpillFile>>;

/// A bucket that is being filled.
#[derive(Default)]
struct Filling {
    kept: Vec<RecordBatch>,
    file: Option<Append>,
    rows: usize,
    bytes: usize,
}

impl Filling {
    fn push(&mut self, part: RecordBatch, bytes: usize) {
        self.rows += part.num_rows();
        self.bytes += bytes;
        self.kept.push(part);
    }

    /// Moves all rows into the file.
    fn write(&mut self, manager: &SpillManager, batch_size: usize) -> DataFusionResult<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let append = match &mut self.file {
            Some(append) => append,
            None => self.file.insert(new_file(manager)?),
        };
        for batch in grouped(std::mem::take(&mut self.kept), batch_size) {
            append(Some(&batch?))?;
        }
        Ok(())
    }

    fn finish(mut self) -> DataFusionResult<Arc<Bucket>> {
        let file = match &mut self.file {
            Some(append) => append(None)?,
            None => None,
        };
        let (rows, bytes) = (self.rows, self.bytes);
        Ok(Arc::new(Bucket { rows, bytes, file }))
    }
}

fn new_file(manager: &SpillManager) -> DataFusionResult<Append> {
    let mut file = manager.create_in_progress_file("a bucket of a hash join")?;
    Ok(Box::new(move |batch| match batch {
        Some(batch) => file.append_batch(batch).map(|_| None),
        None => file.finish(),
    }))
}

/// The same rows in batches of up to `batch_size` rows and about [`FILE_BATCH`] bytes.
fn grouped(
    batches: Vec<RecordBatch>,
    batch_size: usize,
) -> impl Iterator<Item = DataFusionResult<RecordBatch>> {
    let mut batches = batches.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = batches.next()?;
        let (mut rows, mut bytes) = (first.num_rows(), first.get_array_memory_size());
        let mut group = vec![first];
        while let Some(next) = batches.peek() {
            rows += next.num_rows();
            bytes += next.get_array_memory_size();
            if rows > batch_size || bytes > FILE_BATCH {
                break;
            }
            group.extend(batches.next());
        }
        Some(match group.as_slice() {
            [only] => Ok(only.clone()),
            [first, ..] => concat_batches(&first.schema(), &group).map_err(Into::into),
            [] => return None,
        })
    })
}
