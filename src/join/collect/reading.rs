//! One input of a join, read as far as was asked for and kept.
//!
//! ```text
//!  part 0 ▓▓▓▓▓▓▓▓▓░░░░░░        a turn reads all parts side by side, until
//!  part 1 ▓▓▓▓▓┃                   Ended    every part has ended
//!  part 2 ▓▓▓▓▓▓▓▓▓▓▓░░░░          Full     so many rows are there
//!                                  Refused  the memory pool has no room for more
//!
//!  collect      ─▶ the kept batches, and what they reserve
//!  set_aside    ─▶ the kept batches go to a file a part
//!  into_streams ─▶ a stream a part: its file, the kept batches, then the rest
//! ```
//!
//! A join learns which side is smaller by reading both. Nothing is read twice: the side that is not
//! built is probed from its first batch on, and gives back the memory of each batch that it hands
//! out. With each batch goes the memory of its share of a hash table on the host: a side that was
//! read can be built.
//!
//! A sparing reading leaves half of a limited memory pool to others, but for [`FLOOR`] bytes of its
//! own. Its turns end at a number of bytes, too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::resources_datafusion_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use datafusion::execution::spill_file::SpillFile;
use datafusion::physical_plan::SpillManager;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{Either, select};
use futures::{StreamExt, TryStreamExt};
use tokio::sync::watch;

use crate::error::{Error, Result};

use crate::join::memory::{FLOOR, ROW_BYTES, leaves_half, table_bytes};
use crate::join::rows::NO_ROW;
use crate::join::weight::Weigher;
use crate::parts::task_failed;

/// Rows of a build side, which are numbered in 32 bits.
const MOST_ROWS: usize = NO_ROW as usize - 1;

/// How a turn ended.
#[derive(Debug)]
pub enum Turn {
    /// All rows are there.
    Ended,
    /// As many rows are there as were asked for.
    Full,
    /// The memory pool refused a batch, which is kept, and asked for again by the next turn.
    Refused(Error),
    /// The input failed: whoever reads its rows to their end meets the error.
    Failed,
}

/// An input of a join.
pub struct Reading {
    schema: SchemaRef,
    parts: Vec<Part>,
    kept: Arc<Kept>,
}

/// What all parts have of an input.
struct Kept {
    rows: AtomicUsize,
    batches: AtomicUsize,
    /// Batches can be slices of one larger batch, whose buffers count once.
    counter: Mutex<RecordBatchMemoryCounter>,
    /// Bytes that are reserved for a hash table of the rows.
    table: Mutex<usize>,
    memory: MemoryReservation,
    /// What a sparing reading goes by.
    sparing: Mutex<Option<Sparing>>,
}

/// What a sparing reading goes by.
struct Sparing {
    /// Half of it is left to others.
    pool: Arc<dyn MemoryPool>,
    /// Of the rows that are kept. Slices of a large array reserve all of it, but weigh what they show.
    weigher: Weigher,
    /// Bytes that they weigh.
    weight: usize,
}

#[derive(Default)]
struct Part {
    /// `None` once it has ended.
    stream: Option<SendableRecordBatchStream>,
    /// The first batches, if they were set aside, and what reads them.
    aside: Option<(Arc<dyn SpillFile>, SpillManager)>,
    /// Batches with rows, and the bytes that they reserve.
    batches: VecDeque<(RecordBatch, usize)>,
    /// A batch that the pool refused, and its bytes.
    refused: Option<(RecordBatch, usize)>,
    /// What ended the stream.
    error: Option<DataFusionError>,
}

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
    /// What counted them.
    pub counter: RecordBatchMemoryCounter,
    /// What they reserve, with `table` bytes for a hash table on the host.
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

    /// The rows as `parts` streams, which give back what each batch reserves.
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

    /// The rows twice: for a build that may fail, without their memory, and with it for what comes
    /// then.
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

impl Reading {
    /// Nothing read yet of `streams`; what is kept is reserved under `memory`.
    pub fn new(
        schema: SchemaRef,
        streams: Vec<SendableRecordBatchStream>,
        memory: MemoryReservation,
    ) -> Self {
        let part = |stream| Part {
            stream: Some(stream),
            ..Part::default()
        };
        Self {
            schema,
            parts: streams.into_iter().map(part).collect(),
            kept: Arc::new(Kept {
                rows: AtomicUsize::new(0),
                batches: AtomicUsize::new(0),
                counter: Mutex::new(RecordBatchMemoryCounter::new()),
                table: Mutex::new(0),
                memory,
                sparing: Mutex::new(None),
            }),
        }
    }

    /// The same, sparing `pool`.
    pub fn sparing(self, pool: &Arc<dyn MemoryPool>) -> Self {
        *lock(&self.kept.sparing) = Some(Sparing {
            pool: Arc::clone(pool),
            weigher: Weigher::default(),
            weight: 0,
        });
        self
    }

    /// Takes all memory that there is from now on.
    pub fn spare_nothing(&self) {
        *lock(&self.kept.sparing) = None;
    }

    /// Reads on until `rows` rows are there in all, or the input has ended. A sparing reading stops at
    /// [`ROW_BYTES`] bytes a row, too.
    ///
    /// # Errors
    /// [`Error::DataFusion`] if a task panics.
    pub async fn turn(&mut self, rows: usize) -> Result<Turn> {
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        let read = |part: Part| {
            let turn = Reader {
                kept: Arc::clone(&self.kept),
                rows,
                stop: Arc::clone(&stop),
                stopped: stopped.clone(),
            };
            turn.read(part)
        };
        let parts = std::mem::take(&mut self.parts);
        let mut refused = None;
        if let [_] = parts.as_slice() {
            for part in parts {
                let (part, error) = read(part).await;
                self.parts.push(part);
                refused = refused.or(error);
            }
        } else {
            let tasks: Vec<_> = parts
                .into_iter()
                .map(|part| SpawnedTask::spawn(read(part)))
                .collect();
            for task in tasks {
                let (part, error) = task.join().await.map_err(|e| task_failed(&e))?;
                self.parts.push(part);
                refused = refused.or(error);
            }
        }
        Ok(match refused {
            _ if self.parts.iter().any(|part| part.error.is_some()) => Turn::Failed,
            Some(error) => Turn::Refused(error),
            None if self.parts.iter().all(Part::has_ended) => Turn::Ended,
            None => Turn::Full,
        })
    }

    /// The input's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the memory pool would grant `bytes` for `rows` rows and a hash table of them.
    pub fn has_room(&self, rows: usize, bytes: usize) -> bool {
        let asked = self.kept.memory.new_empty();
        rows <= MOST_ROWS && asked.try_grow(bytes + table_bytes(rows)).is_ok()
    }

    /// The error that ended the input.
    pub fn lost(&mut self) -> Error {
        let lost = || Error::Internal("an input failed without an error".to_owned());
        self.take_error().unwrap_or_else(lost)
    }

    /// Rows that are kept.
    pub fn rows(&self) -> usize {
        self.kept.rows.load(Ordering::Acquire)
    }

    /// The error that ended a part, if one did.
    fn take_error(&mut self) -> Option<Error> {
        let error = self.parts.iter_mut().find_map(|part| part.error.take());
        error.map(Error::DataFusion)
    }

    /// The rows that are kept; those that come are kept anew.
    pub fn collect(&mut self) -> Collected {
        let kept = &self.kept;
        let batches = self
            .parts
            .iter_mut()
            .flat_map(|part| part.batches.drain(..));
        let (batches, bytes): (Vec<_>, Vec<usize>) = batches.unzip();
        let fresh = RecordBatchMemoryCounter::new();
        Collected {
            batches,
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

    /// Whether rows that are kept reserve memory.
    pub fn has_memory(&self) -> bool {
        self.kept.memory.size() > 0
    }

    /// Reads from the first row on again, if some were set aside.
    pub fn fetch_back(&mut self) {
        if self.parts.iter().all(|part| part.aside.is_none()) {
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

    /// Moves the rows that are kept to files, which `manager` writes, and gives their memory back.
    ///
    /// # Errors
    /// Those of writing files; [`Error::DataFusion`] if a task panics.
    pub async fn set_aside(&mut self, manager: &SpillManager) -> Result<()> {
        self.forget_table();
        for part in &mut self.parts {
            if part.aside.is_some() {
                continue;
            }
            let (batches, bytes): (Vec<_>, Vec<usize>) = part.batches.drain(..).unzip();
            let writer = manager.clone();
            let written = SpawnedTask::spawn_blocking(move || {
                writer.spill_record_batch_and_finish(&batches, "rows to probe of a hash join")
            });
            let file = written.join().await.map_err(|e| task_failed(&e))??;
            part.aside = file.map(|file| (file, manager.clone()));
            self.kept.memory.shrink(bytes.iter().sum());
        }
        Ok(())
    }

    /// The input's rows as streams, one a part.
    pub fn into_streams(self) -> Vec<SendableRecordBatchStream> {
        self.forget_table();
        let (schema, kept) = (self.schema, self.kept);
        let streams = self.parts.into_iter().map(|part| {
            if part.is_unread() {
                part.stream.unwrap_or_else(|| nothing(&schema))
            } else {
                part.into_stream(&schema, Arc::clone(&kept))
            }
        });
        streams.collect()
    }
}

/// A stream without rows.
pub fn nothing(schema: &SchemaRef) -> SendableRecordBatchStream {
    let none = futures::stream::empty();
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), none))
}

impl Part {
    fn has_ended(&self) -> bool {
        self.stream.is_none() && self.refused.is_none()
    }

    /// Whether all of its rows are still to come from its stream.
    fn is_unread(&self) -> bool {
        let has_rows = !self.batches.is_empty() || self.refused.is_some();
        !has_rows && self.aside.is_none() && self.error.is_none()
    }

    fn into_stream(mut self, schema: &SchemaRef, kept: Arc<Kept>) -> SendableRecordBatchStream {
        let refused = self.refused.take().map(|(batch, _)| (batch, 0));
        self.batches.extend(refused);
        let error = futures::stream::iter(self.error.map(Err));
        let rest = self.stream.unwrap_or_else(|| nothing(schema));
        let aside = self.aside.map(|(file, manager)| {
            // Opened when its rows are asked for.
            let opened = async move { manager.read_spill_as_stream(file, None) };
            futures::stream::once(opened).try_flatten()
        });
        let aside = futures::stream::iter(aside).flatten();
        let batches = futures::stream::iter(self.batches).map(move |(batch, bytes)| {
            kept.memory.shrink(bytes);
            Ok(batch)
        });
        let stream = aside.chain(batches).chain(error).chain(rest);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream))
    }
}

/// One turn, as a part sees it.
struct Reader {
    kept: Arc<Kept>,
    /// Rows of the input at which the turn ends.
    rows: usize,
    stop: Arc<watch::Sender<bool>>,
    stopped: watch::Receiver<bool>,
}

impl Reader {
    /// Reads `part`; with the pool's error, if it refused a batch.
    async fn read(mut self, mut part: Part) -> (Part, Option<Error>) {
        loop {
            if let Some((batch, bytes)) = part.refused.take() {
                if let Err(error) = self.kept.grant(batch.num_rows(), bytes) {
                    part.refused = Some((batch, bytes));
                    self.stop.send_replace(true);
                    return (part, Some(error));
                }
                part.batches.push_back((batch, bytes));
            }
            if self.kept.has(self.rows) {
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

impl Kept {
    /// Whether so many rows are there, or the bytes of as many.
    fn has(&self, rows: usize) -> bool {
        let most = rows.saturating_mul(ROW_BYTES);
        let is_heavy = |sparing: &Sparing| sparing.weight >= most;
        self.rows.load(Ordering::Acquire) >= rows
            || lock(&self.sparing).as_ref().is_some_and(is_heavy)
    }

    /// Bytes that `batch` reserves.
    fn bytes_of(&self, batch: &RecordBatch) -> usize {
        if let Some(sparing) = &mut *lock(&self.sparing) {
            sparing.weight += sparing.weigher.weigh(batch, &[]);
        }
        lock(&self.counter).count_batch(batch)
    }

    /// Reserves `bytes` for `rows` rows, and their share of a hash table.
    fn grant(&self, rows: usize, bytes: usize) -> Result<()> {
        let mut table = lock(&self.table);
        let all = self.rows.load(Ordering::Acquire) + rows;
        if all > MOST_ROWS {
            let limit = MOST_ROWS;
            return Err(Error::TooManyRows { rows: all, limit });
        }
        let wanted = table_bytes(all).max(*table);
        let more = bytes + wanted - *table;
        if let Some(sparing) = &*lock(&self.sparing)
            && self.memory.size() + more > FLOOR
            && !leaves_half(&sparing.pool, more)
        {
            let text = "half of the memory pool is left to others";
            return Err(Error::DataFusion(resources_datafusion_err!("{text}")));
        }
        self.memory.try_grow(more)?;
        *table = wanted;
        self.rows.store(all, Ordering::Release);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
