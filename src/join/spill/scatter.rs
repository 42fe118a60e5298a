//! One side of a join, scattered over buckets by a hash of its keys.
//!
//! ```text
//!  batch ─▶ hash of keys ─▶ rows of bucket 0, 1, … 15 ─▶ kept in memory
//!                                                          │ they are many, or the pool refuses more
//!                                                          ▼
//!                                    all buckets' rows ─▶ files, in batches of their own
//! ```
//!
//! No row stays in memory: a bucket's table needs it, and so do the operators above and below. But where
//! it is the device that is too small, rows stay, while the pool grants them ([`Home::Memory`]):
//!
//! ```text
//!  batch ─▶ hash of keys ─▶ rows in the order of buckets ─▶ each bucket's, in batches of full size
//!                                                            │ the pool is half full
//!                                                            ▼
//!                                                   all rows ─▶ files, as above
//! ```
//!
//! The hash is DataFusion's, by which its joins find equal keys, with a seed of its own at each level:
//! rows that share a bucket, or came through a `RepartitionExec`, are spread again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::{BatchCoalescer, concat_batches, take_record_batch};
use arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use datafusion::execution::spill_file::SpillFile;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::SpillManager;
use futures::TryStreamExt;
use tokio::sync::Mutex;

use crate::error::Result;
use crate::join::arrays::join::compact;
use crate::join::decision::Home;
use crate::join::memory;
use crate::parts::{side_by_side, task_failed};

use super::bucket::Bucket;

/// Buckets of a side at most: a bucket is so much smaller than what it comes of.
const MOST_BUCKETS: usize = 16;

/// Buckets of a side at least: with two, one has half of the rows without a hot key.
pub const LEAST_BUCKETS: usize = 3;

/// Files that the streams of a join have open together: a half of what a process may have by
/// default (`ulimit -n`, 1024).
const OPEN_FILES: usize = 512;

/// Open files a bucket: that of one side, and two while the other side's is written.
const FILES_A_BUCKET: usize = 3;

/// Buckets of a side in memory at most: should they have to go to files, `lanes` times as many.
pub fn most_in_memory(lanes: usize) -> usize {
    (OPEN_FILES / FILES_A_BUCKET / lanes.max(1)).max(LEAST_BUCKETS)
}

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
    /// Where rows are.
    pub home: Home,
    /// How often its rows were scattered before.
    pub level: u64,
    /// Writes files.
    pub manager: SpillManager,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Buckets that are written at a time.
    pub width: usize,
    /// What rows in memory are reserved under.
    pub memory: MemoryReservation,
    /// Where that is.
    pub pool: Arc<dyn MemoryPool>,
}

impl ScatterSpec {
    /// The same with so many buckets, there.
    pub fn at_home(self, home: Home, buckets: usize) -> Self {
        Self {
            home,
            buckets,
            ..self
        }
    }

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
            pool: Arc::clone(&self.pool),
            ..*self
        }
    }
}

/// A side that is being scattered.
pub struct Scatter {
    spec: ScatterSpec,
    /// Rows in memory, while they have a place there.
    keeping: Option<Keeping>,
    state: Mutex<State>,
}

/// Rows that stay in memory. Each bucket has a lock of its own, as streams fill them side by side.
struct Keeping {
    buckets: Vec<StdMutex<BatchCoalescer>>,
    /// Whether the pool has refused some.
    is_refused: AtomicBool,
}

impl Keeping {
    fn of(spec: &ScatterSpec) -> Option<Self> {
        if spec.home == Home::Disk {
            return None;
        }
        let batch = spec.batch_size.max(1);
        let bucket = |_| {
            StdMutex::new(BatchCoalescer::new(
                Arc::clone(spec.manager.schema()),
                batch,
            ))
        };
        Some(Self {
            buckets: (0..=spec.buckets).map(bucket).collect(),
            is_refused: AtomicBool::new(false),
        })
    }

    fn bucket(&self, at: usize) -> MutexGuard<'_, BatchCoalescer> {
        self.buckets[at]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of a bucket, which has none then.
    fn take(&self, at: usize) -> Result<Vec<RecordBatch>> {
        let mut bucket = self.bucket(at);
        bucket.finish_buffered_batch()?;
        Ok(std::iter::from_fn(|| bucket.next_completed_batch()).collect())
    }
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
            keeping: Keeping::of(&spec),
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

    /// Where rows are kept, if they still are.
    fn in_memory(&self) -> Option<&Keeping> {
        let keeping = self.keeping.as_ref();
        keeping.filter(|keeping| !keeping.is_refused.load(Ordering::Acquire))
    }

    /// Keeps the rows of a batch in memory; whether the pool grants it.
    fn hold(&self, keeping: &Keeping, batch: &RecordBatch) -> Result<bool> {
        let numbers = self.numbers(batch)?;
        let (rows, ends) = in_order(&numbers, self.spec.buckets + 1);
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
                    .bucket(at)
                    .push_batch(sorted.slice(from, to - from))?;
            }
            from = to;
        }
        Ok(true)
    }

    /// Moves all rows into files, and those that come.
    async fn give_up(&self, keeping: &Keeping) -> Result<()> {
        let mut state = self.state.lock().await;
        keeping.is_refused.store(true, Ordering::Release);
        self.unkeep(keeping, &mut state)?;
        self.write(&mut state).await
    }

    /// Hands rows that were kept to those who write them.
    fn unkeep(&self, keeping: &Keeping, state: &mut State) -> Result<()> {
        for at in 0..keeping.buckets.len() {
            for batch in keeping.take(at)? {
                let bytes = batch.get_array_memory_size();
                state.filling[at].push(batch, bytes);
            }
        }
        Ok(())
    }

    /// The buckets in memory.
    fn kept(&self, keeping: &Keeping) -> Result<Scattered> {
        let memory = &self.spec.memory;
        let bucket = |at| {
            let batches = keeping.take(at)?;
            let rows = batches.iter().map(RecordBatch::num_rows).sum();
            let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
            let memory = memory.split(memory.size().min(bytes));
            Ok(Arc::new(Bucket {
                rows,
                bytes,
                kept: Some((batches, memory)),
                file: None,
            }))
        };
        let buckets = (0..keeping.buckets.len()).map(bucket);
        let mut buckets = buckets.collect::<Result<Vec<_>>>()?;
        memory.free();
        let nulls = buckets.split_off(self.spec.buckets).remove(0);
        Ok(Scattered { buckets, nulls })
    }

    /// Each row's bucket.
    fn numbers(&self, batch: &RecordBatch) -> Result<Vec<u32>> {
        let keys = evaluate_expressions_to_arrays(&self.spec.keys, batch)?;
        let buckets = self.spec.buckets;
        let mut hashes = vec![0; batch.num_rows()];
        let seed = RandomState::with_seed(SEED.wrapping_add(self.spec.level));
        create_hashes(&keys, &seed, &mut hashes)?;
        let nulls = null_rows(&keys, self.spec.null_keys);
        let number = |(row, hash): (usize, u64)| match (&nulls, self.spec.null_keys) {
            (Some(nulls), null_keys) if nulls[row] => match null_keys {
                NullKeys::Drop => NOWHERE,
                NullKeys::Apart => buckets as u32,
                _ => (row % buckets) as u32,
            },
            _ => bucket_of(hash, buckets) as u32,
        };
        Ok(hashes.into_iter().enumerate().map(number).collect())
    }

    /// The rows of each bucket, and those that are apart.
    fn parts(&self, batch: &RecordBatch) -> Result<Vec<(usize, RecordBatch)>> {
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); self.spec.buckets + 1];
        for (row, at) in self.numbers(batch)?.into_iter().enumerate() {
            if at != NOWHERE {
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

    /// Writes what is in memory, some buckets at a time.
    async fn write(&self, state: &mut State) -> Result<()> {
        let filling = std::mem::take(&mut state.filling);
        let (manager, batch_size) = (self.spec.manager.clone(), self.spec.batch_size);
        let write = |mut bucket: Filling| {
            let manager = manager.clone();
            async move {
                let written = SpawnedTask::spawn_blocking(move || {
                    let written = bucket.write(&manager, batch_size);
                    (bucket, written)
                });
                written.join().await.map_err(|e| task_failed(&e))
            }
        };
        let written = side_by_side(filling, self.spec.width, write).await?;
        let (filling, written): (Vec<_>, Vec<_>) = written.into_iter().unzip();
        state.filling = filling;
        (state.counter, state.bytes) = (RecordBatchMemoryCounter::new(), 0);
        self.spec.memory.free();
        Ok(written.into_iter().collect::<DataFusionResult<()>>()?)
    }

    /// The buckets.
    ///
    /// # Errors
    /// Those of writing files.
    pub async fn finish(&self) -> Result<Scattered> {
        if let Some(keeping) = self.in_memory() {
            return self.kept(keeping);
        }
        let mut state = self.state.lock().await;
        if let Some(keeping) = &self.keeping {
            self.unkeep(keeping, &mut state)?;
        }
        self.write(&mut state).await?;
        let filling = std::mem::take(&mut state.filling).into_iter();
        let buckets = filling.map(Filling::finish);
        let mut buckets = buckets.collect::<DataFusionResult<Vec<_>>>()?;
        let nulls = buckets.split_off(self.spec.buckets).remove(0);
        Ok(Scattered { buckets, nulls })
    }
}

/// The bucket of a row that nobody wants.
const NOWHERE: u32 = u32::MAX;

/// Rows in the order of their buckets, and where each of so many `buckets` ends.
fn in_order(numbers: &[u32], buckets: usize) -> (Vec<u32>, Vec<usize>) {
    let mut ends = vec![0; buckets];
    for at in numbers.iter().filter(|at| **at != NOWHERE) {
        ends[*at as usize] += 1;
    }
    let mut all = 0;
    for end in &mut ends {
        (*end, all) = (all, all + *end);
    }
    let mut rows = vec![0; all];
    for (row, at) in numbers.iter().enumerate() {
        if *at != NOWHERE {
            let next = &mut ends[*at as usize];
            rows[*next] = row as u32;
            *next += 1;
        }
    }
    (rows, ends)
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
            append(Some(&batch))?;
        }
        Ok(())
    }

    fn finish(mut self) -> DataFusionResult<Arc<Bucket>> {
        let file = match &mut self.file {
            Some(append) => append(None)?,
            None => None,
        };
        let (rows, bytes) = (self.rows, self.bytes);
        Ok(Arc::new(Bucket {
            rows,
            bytes,
            kept: None,
            file,
        }))
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
fn grouped(batches: Vec<RecordBatch>, batch_size: usize) -> impl Iterator<Item = RecordBatch> {
    let mut batches = batches.into_iter().peekable();
    let groups = std::iter::from_fn(move || {
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
        Some(merged(group))
    });
    groups.flatten()
}

/// One batch, or those that there are if their columns have no room in one.
fn merged(group: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let one = match group.as_slice() {
        [first, _, ..] => concat_batches(&first.schema(), &group).ok(),
        _ => None,
    };
    one.map_or(group, |batch| vec![batch])
}
