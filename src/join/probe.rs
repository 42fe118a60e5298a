//! The stream of one probe partition.
//!
//! ```text
//!          ┌──────────── chunk used up ───────────┐
//!          ▼                                      │
//!   Build ─▶ Fetch ── chunk looked up ──▶ Emit ───┘
//!     │        └── input ended ──▶ Unmatched ──▶ Done ── output flushed ──▶ Ended
//!     └── nothing can come of it ───────────────▶ Done
//! ```
//!
//! Probe batches are gathered into chunks, because a device wants 64 K keys and more at a
//! time (a batch of 8,192 rows costs twice as much a row); a chunk's batches are then
//! resolved one by one, in order. The first chunks are small, so that a LIMIT is not kept
//! waiting. The device's answers come through a channel: a stream waiting for them blocks
//! no thread, and dropping it cancels what was not started.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{JoinType, NullEquality};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::coalesce::{LimitedBatchCoalescer, PushBatchStatus};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryStreamExt};

use crate::device::Device;
use crate::error::{Error, Result};
use crate::table::horton::MISS;

use super::build::BuildSide;
use super::emit::{Located, Pairs, Shape};
use super::keys::equal_pairs;
use super::metrics::JoinMetrics;
use super::pairs::{Cursor, Outcome};
use super::table::{JoinTable, Rows};

/// Rows of the first chunk; each next one has twice as many, up to `chunk_rows`.
const FIRST_CHUNK_ROWS: usize = 1 << 15;

/// The build side, or the one error of its build for all probe streams.
pub type SharedBuild = Shared<BoxFuture<'static, Result<Arc<BuildSide>, Arc<Error>>>>;

/// What all probe streams of a join know.
#[derive(Debug)]
pub struct ProbeSpec {
    /// Key expressions over the probe side.
    pub on: Vec<PhysicalExprRef>,
    /// Whether NULL keys match each other.
    pub null_equality: NullEquality,
    /// Join type.
    pub join_type: JoinType,
    /// What the join type does with a step's matches.
    pub outcome: Outcome,
    /// NOT IN: a NULL on either side decides for no row.
    pub null_aware: bool,
    /// The residual filter and its input.
    pub filter: Option<(PhysicalExprRef, Shape)>,
    /// The output.
    pub output: Shape,
    /// Rows of an output batch.
    pub batch_size: usize,
    /// Rows to return at most.
    pub fetch: Option<usize>,
    /// Rows of a chunk.
    pub chunk_rows: usize,
    /// Whether to wait for a whole chunk: not with an unbounded input.
    pub whole_chunks: bool,
    /// Device memory limit in bytes.
    pub memory_limit: u64,
    /// The device.
    pub device: Device,
}

/// Looked-up batches, waiting to be resolved.
type Chunk = VecDeque<ProbeBatch>;

struct ProbeBatch {
    batch: RecordBatch,
    keys: Vec<ArrayRef>,
    /// The device's answer for each row.
    answers: Vec<u32>,
    cursor: Cursor,
}

enum State {
    Build(SharedBuild),
    Fetch(Arc<BuildSide>),
    Emit(Arc<BuildSide>, Chunk),
    Unmatched(Arc<BuildSide>, u32),
    Done,
    Ended,
}

/// One partition's probe.
pub struct Probe {
    spec: Arc<ProbeSpec>,
    input: Option<SendableRecordBatchStream>,
    state: State,
    output: LimitedBatchCoalescer,
    next_chunk_rows: usize,
    metrics: JoinMetrics,
}

impl Probe {
    /// A stream over `input` that waits for `build` first.
    pub fn new(
        spec: Arc<ProbeSpec>,
        build: SharedBuild,
        input: SendableRecordBatchStream,
        metrics: JoinMetrics,
    ) -> Self {
        let output = LimitedBatchCoalescer::new(
            Arc::clone(&spec.output.schema),
            spec.batch_size,
            spec.fetch,
        );
        Self {
            next_chunk_rows: FIRST_CHUNK_ROWS.min(spec.chunk_rows),
            spec,
            input: Some(input),
            state: State::Build(build),
            output,
            metrics,
        }
    }

    /// The next output batch.
    ///
    /// # Errors
    /// The inputs', the residual filter's, the device's.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.output.next_completed_batch() {
                return Ok(Some(batch));
            }
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::Build(build) => self.await_build(build).await?,
                State::Fetch(build) => self.fetch(build).await?,
                State::Emit(build, chunk) => self.emit(build, chunk)?,
                State::Unmatched(build, row) => self.emit_unmatched(build, row)?,
                State::Done => {
                    self.input = None;
                    self.output.finish()?;
                    State::Ended
                }
                State::Ended => return Ok(None),
            };
        }
    }

    async fn await_build(&mut self, build: SharedBuild) -> Result<State> {
        let build = build.await.map_err(|e| Error::DataFusion(shared(e)))?;
        let join_type = self.spec.join_type;
        let nothing = (build.rows.is_empty() && join_type.empty_build_side_produces_empty_result())
            || (build.table.is_none() && join_type.empty_map_produces_empty_result());
        Ok(match nothing {
            true => State::Done,
            false => State::Fetch(build),
        })
    }

    /// Gathers a chunk and looks it up.
    async fn fetch(&mut self, build: Arc<BuildSide>) -> Result<State> {
        let batches = self.gather().await?;
        if batches.is_empty() {
            self.input = None;
            return Ok(State::Unmatched(build, 0));
        }
        let chunk = self.look_up(&build, batches).await?;
        Ok(State::Emit(build, chunk))
    }

    /// Batches with rows, up to the chunk's size; none at the end of the input.
    async fn gather(&mut self) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let mut rows = 0;
        let wanted = self.next_chunk_rows;
        self.next_chunk_rows = (2 * wanted).min(self.spec.chunk_rows).max(1);
        while let Some(input) = self.input.as_mut().filter(|_| rows < wanted) {
            let next = if self.spec.whole_chunks || batches.is_empty() {
                input.try_next().await?
            } else {
                match input.try_next().now_or_never() {
                    Some(next) => next?,
                    None => break,
                }
            };
            let Some(batch) = next else {
                self.input = None;
                break;
            };
            self.metrics.input_batches.add(1);
            self.metrics.input_rows.add(batch.num_rows());
            rows += batch.num_rows();
            if batch.num_rows() > 0 {
                batches.push(batch);
            }
        }
        Ok(batches)
    }

    async fn look_up(&mut self, build: &BuildSide, batches: Vec<RecordBatch>) -> Result<Chunk> {
        let timer = self.metrics.join_time.timer();
        let mut chunk = Chunk::with_capacity(batches.len());
        let mut keys = Vec::new();
        let mut masks = Vec::with_capacity(batches.len());
        for batch in batches {
            let columns = evaluate_expressions_to_arrays(&self.spec.on, &batch)?;
            if self.spec.null_aware {
                note_nulls(build, &columns);
            }
            if build.table.is_some() {
                masks.push(append_matchable(build, &columns, &mut keys)?);
            }
            chunk.push_back(ProbeBatch {
                answers: vec![MISS; batch.num_rows()],
                batch,
                keys: if build.encoder.is_exact() {
                    Vec::new()
                } else {
                    columns
                },
                cursor: Cursor::default(),
            });
        }
        timer.done();
        if let Some(table) = build.table.as_ref().filter(|_| !keys.is_empty()) {
            let answers = self.ask_device(Arc::clone(table), keys).await?;
            let _timer = self.metrics.join_time.timer();
            distribute(&answers, &mut chunk, &masks);
        }
        Ok(chunk)
    }

    /// The device's answers to `keys`.
    async fn ask_device(&mut self, table: Arc<JoinTable>, keys: Vec<u32>) -> Result<Vec<u32>> {
        let n = keys.len();
        let limit = self.spec.memory_limit;
        let answer = self
            .spec
            .device
            .run(move |queue| {
                queue.limit_memory(limit);
                let keys = queue.buffer_from("probe keys", &keys)?;
                let values = queue.allocate("lookup answers", n)?;
                let reads = queue.buffer_from("bucket reads", &[0])?;
                table.table.lookup(queue, &keys, &values, &reads, n)?;
                Ok((queue.read(&values, n)?, queue.read(&reads, 1)?[0]))
            })
            .await?;
        let (answers, second_reads) = answer.value;
        self.metrics.add_cost(&answer.cost);
        self.metrics.add_lookups(n, n + second_reads as usize);
        Ok(answers)
    }

    /// One step of the chunk's first batch.
    fn emit(&mut self, build: Arc<BuildSide>, mut chunk: Chunk) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let Some(probe) = chunk.front_mut() else {
            return Ok(State::Fetch(build));
        };
        // A NOT IN whose other side has a NULL returns nothing at all.
        if self.spec.null_aware && build.probe_seen.null.load(Ordering::Relaxed) {
            return Ok(State::Fetch(build));
        }
        if probe.cursor.is_done(&probe.answers) {
            self.metrics
                .probe_hit_rate
                .add_total(probe.batch.num_rows());
            chunk.pop_front();
            return Ok(State::Emit(build, chunk));
        }
        let matches = self.matches(&build, probe)?;
        let range = probe.cursor.resolve(&matches, &probe.answers);
        let pairs = self.spec.outcome.apply(matches, range);
        let rows = pairs.probe.len();
        let output = &self.spec.output;
        let batch = output.batch(&build.rows, Some(&probe.batch), &pairs, rows)?;
        timer.done();
        Ok(match self.push(batch)? {
            PushBatchStatus::Continue => State::Emit(build, chunk),
            PushBatchStatus::LimitReached => State::Done,
        })
    }

    /// The next step's candidates that are matches: equal keys, residual filter passed.
    fn matches(&self, build: &BuildSide, probe: &mut ProbeBatch) -> Result<Pairs> {
        let limit = self.spec.batch_size;
        let rows = build
            .table
            .as_ref()
            .map_or(&Rows::Unique, |table| &table.rows);
        let mut pairs = probe.cursor.candidates(&probe.answers, rows, limit);
        if pairs.probe.is_empty() {
            return Ok(pairs);
        }
        if !build.encoder.is_exact() {
            pairs = self.verify(build, probe, pairs)?;
        }
        self.metrics.avg_fanout.add_part(pairs.probe.len());
        let hits = pairs.probe.chunk_by(|a, b| a == b).count();
        self.metrics.avg_fanout.add_total(hits);
        self.metrics.probe_hit_rate.add_part(hits);
        if let Some((filter, shape)) = &self.spec.filter {
            let rows = pairs.probe.len();
            let input = shape.batch(&build.rows, Some(&probe.batch), &pairs, rows)?;
            let passed = filter.evaluate(&input)?.into_array(rows)?;
            pairs = keep(pairs, as_boolean_array(&passed)?);
        }
        if let Some(visited) = &build.visited {
            pairs.build.iter().for_each(|row| visited.set(*row));
        }
        Ok(pairs)
    }

    /// Drops candidates whose keys only share a surrogate.
    fn verify(&self, build: &BuildSide, probe: &ProbeBatch, pairs: Pairs) -> Result<Pairs> {
        let located = Located::new(&build.rows, &pairs.build);
        let picked = UInt32Array::from(pairs.probe.clone());
        let mut build_columns = Vec::with_capacity(probe.keys.len());
        let mut probe_columns = Vec::with_capacity(probe.keys.len());
        for (c, key) in probe.keys.iter().enumerate() {
            let column = |batch: usize| Arc::clone(&build.keys[batch][c]);
            build_columns.push(build.rows.gather(column, &located, key.data_type())?);
            probe_columns.push(take(key, &picked, None)?);
        }
        let equal = equal_pairs(&build_columns, &probe_columns, self.spec.null_equality)?;
        Ok(keep(pairs, &BooleanArray::new(equal, None)))
    }

    /// At the end of the last probe stream: up to a batch of build rows from `row` on that
    /// their join type owes.
    fn emit_unmatched(&mut self, build: Arc<BuildSide>, row: u32) -> Result<State> {
        let Some(visited) = &build.visited else {
            return Ok(State::Done);
        };
        let null_aware = self.spec.null_aware;
        if null_aware && build.probe_seen.null.load(Ordering::Relaxed) {
            return Ok(State::Done);
        }
        if row == 0 && !build.probe_ended() {
            return Ok(State::Done);
        }
        let timer = self.metrics.join_time.timer();
        let skip_null_keys = null_aware && build.probe_seen.any.load(Ordering::Relaxed);
        let owed = |row: &u32| match self.spec.join_type {
            JoinType::LeftSemi => visited.get(*row),
            JoinType::LeftMark => true,
            _ => !(visited.get(*row) || skip_null_keys && build.first_key_is_null(*row)),
        };
        let end = build.rows.len() as u32;
        let mut rows = row..end;
        let owed: Vec<u32> = rows
            .by_ref()
            .filter(owed)
            .take(self.spec.batch_size)
            .collect();
        // As in the stock join, the rows owed count as one more input batch.
        self.metrics.input_batches.add(usize::from(row == 0));
        self.metrics.input_rows.add(owed.len());
        if owed.is_empty() {
            return Ok(State::Done);
        }
        let mark = owed.iter().map(|row| Some(visited.get(*row))).collect();
        let pairs = Pairs {
            mark: Some(mark),
            build: owed,
            probe: Vec::new(),
        };
        let count = pairs.build.len();
        let batch = self.spec.output.batch(&build.rows, None, &pairs, count)?;
        timer.done();
        let limit_reached = self.push(batch)? == PushBatchStatus::LimitReached;
        Ok(match limit_reached || rows.start == end {
            true => State::Done,
            false => State::Unmatched(build, rows.start),
        })
    }

    /// Hands rows to the output, which passes a large batch on as it is: so no more than a
    /// batch's rows at a time.
    fn push(&mut self, batch: RecordBatch) -> Result<PushBatchStatus> {
        let (rows, size) = (batch.num_rows(), self.spec.batch_size);
        for at in (0..rows).step_by(size) {
            let part = batch.slice(at, size.min(rows - at));
            if self.output.push_batch(part)? == PushBatchStatus::LimitReached {
                return Ok(PushBatchStatus::LimitReached);
            }
        }
        Ok(PushBatchStatus::Continue)
    }
}

/// Appends the surrogates of the rows that can match; returns which those are.
fn append_matchable(
    build: &BuildSide,
    columns: &[ArrayRef],
    keys: &mut Vec<u32>,
) -> Result<Option<arrow::buffer::BooleanBuffer>> {
    let start = keys.len();
    let mask = build.encoder.encode(columns, keys)?;
    if let Some(mask) = &mask {
        for (to, i) in (start..).zip(mask.set_indices()) {
            keys[to] = keys[start + i];
        }
        keys.truncate(start + mask.count_set_bits());
    }
    Ok(mask)
}

/// Hands the answers of a chunk's matchable rows to its batches.
fn distribute(answers: &[u32], chunk: &mut Chunk, masks: &[Option<arrow::buffer::BooleanBuffer>]) {
    let mut rest = answers;
    for (probe, mask) in chunk.iter_mut().zip(masks) {
        let count = mask
            .as_ref()
            .map_or(probe.answers.len(), |mask| mask.count_set_bits());
        let (mine, others) = rest.split_at(count);
        rest = others;
        match mask {
            None => probe.answers.copy_from_slice(mine),
            Some(mask) => {
                for (row, answer) in mask.set_indices().zip(mine) {
                    probe.answers[row] = *answer;
                }
            }
        }
    }
}

/// Notes what a null-aware anti join must know of its probe side.
fn note_nulls(build: &BuildSide, columns: &[ArrayRef]) {
    build.probe_seen.any.store(true, Ordering::Relaxed);
    if columns.iter().any(|key| key.logical_null_count() > 0) {
        build.probe_seen.null.store(true, Ordering::Relaxed);
    }
}

/// The pairs whose bit is set and not NULL.
fn keep(pairs: Pairs, passed: &BooleanArray) -> Pairs {
    if passed.true_count() == passed.len() {
        return pairs;
    }
    let keeps = |i: &usize| passed.is_valid(*i) && passed.value(*i);
    let kept: Vec<usize> = (0..passed.len()).filter(keeps).collect();
    Pairs {
        build: kept.iter().map(|i| pairs.build[*i]).collect(),
        probe: kept.iter().map(|i| pairs.probe[*i]).collect(),
        mark: None,
    }
}

/// The build's one error, for another probe stream.
fn shared(error: Arc<Error>) -> datafusion::error::DataFusionError {
    use datafusion::error::DataFusionError;
    match error.as_ref() {
        Error::DeviceMemory { .. } => DataFusionError::ResourcesExhausted(error.to_string()),
        Error::DataFusion(DataFusionError::ResourcesExhausted(text)) => {
            DataFusionError::ResourcesExhausted(text.clone())
        }
        _ => DataFusionError::External(Box::new(error)),
    }
}
