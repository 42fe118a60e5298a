//! The stream of one probe partition.
//!
//! ```text
//!          ┌──────────── chunk used up ───────────┐
//!          ▼                                      │
//!   Build ─▶ Fetch ── chunk looked up ──▶ Emit ───┘
//!     │        └── input ended ──▶ Unmatched ──▶ Done ── output flushed ──▶ Ended
//!     └── nothing can come of it ───────────────▶ Done
//!
//!   input ──▶ gathered, encoded ──▶ [asked] [asked] ──▶ answered, resolved ──▶ output
//! ```
//!
//! Probe batches are gathered into chunks, because a device wants 64 K keys and more at a
//! time (a batch of 8,192 rows costs twice as much a row); a chunk's batches are then
//! resolved one by one, in order. While the device works on one chunk the next is gathered
//! and encoded. The first chunks are small, so that a LIMIT is not kept
//! waiting. The device's answers come through a channel: a stream waiting for them blocks
//! no thread, and dropping it cancels what was not started. A chunk that the device has no room for is
//! split. One that the device fails to answer is looked up on the host ([`fallback`](super::fallback)),
//! from its first batch or from the pair on that comes next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::coalesce::{LimitedBatchCoalescer, PushBatchStatus};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryStreamExt};

use crate::device::Answer;
use crate::error::{Error, Result};

use super::build::BuildSide;
use super::chunk::{Chunk, ProbeBatch, Step};
use super::columns::Source;
use super::emit::{Located, Pairs, Shape};
use super::host::HostMatches;
use super::keys::{equal_pairs, equal_strings, equal_views};
use super::lookup::{Access, Found, Rest, Wanted, Window, Words};
use super::metrics::JoinMetrics;
use super::pairs::Outcome;
use super::tables::BuildTable;

/// Rows of the first chunk; each next one has twice as many, up to `chunk_rows`.
const FIRST_CHUNK_ROWS: usize = 1 << 15;

/// Chunks that a stream has on the device at once.
const IN_FLIGHT: usize = 2;

/// Bytes of a chunk's keys where they are of more than two words: page-locking more memory costs more
/// than larger chunks gain.
const LONG_KEYS: usize = 8 << 20;

/// Pairs of a window for each row of a chunk: fewer windows for small fan-outs.
const WINDOW_PAIRS: usize = 4;

/// Rows of a chunk that is not split again if the device has no room for it.
const LEAST_CHUNK_ROWS: usize = 64;

/// Pairs of a window that is not halved again.
const LEAST_WINDOW: usize = 64;

/// Host bytes of a row's key and hits, beside the row itself, while a table is lent to the device.
const HIT_BYTES: usize = 40;

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
    /// The device and the limit on its memory.
    pub access: Access,
}

/// A chunk on its way through the device.
struct Asked {
    batches: VecDeque<ProbeBatch>,
    memory: Option<MemoryReservation>,
    by_device: bool,
    answer: BoxFuture<'static, Result<Answer<Found>>>,
}

enum State {
    Build(SharedBuild),
    Fetch(Arc<BuildSide>),
    Emit(Arc<BuildSide>, Box<Chunk>),
    Unmatched(Arc<BuildSide>, u32),
    Done,
    Ended,
}

/// One partition's probe.
pub struct Probe {
    spec: Arc<ProbeSpec>,
    input: Option<SendableRecordBatchStream>,
    state: State,
    asked: VecDeque<Asked>,
    wanted: Wanted,
    output: LimitedBatchCoalescer,
    /// Rows of a chunk at most.
    chunk_rows: usize,
    /// Whether the device had no room for a chunk: they are smaller since, and batches are cut.
    is_short: bool,
    next_chunk_rows: usize,
    /// Batches that come before the input's: they were in a chunk that had no room.
    pending: VecDeque<RecordBatch>,
    /// For rows that wait for a table to come back to the device.
    memory: MemoryReservation,
    metrics: JoinMetrics,
}

impl Probe {
    /// A stream over `input` that waits for `build` first.
    pub fn new(
        spec: Arc<ProbeSpec>,
        build: SharedBuild,
        input: SendableRecordBatchStream,
        (memory, metrics): (MemoryReservation, JoinMetrics),
    ) -> Self {
        let output = LimitedBatchCoalescer::new(
            Arc::clone(&spec.output.schema),
            spec.batch_size,
            spec.fetch,
        );
        Self {
            chunk_rows: spec.chunk_rows.max(1),
            is_short: false,
            next_chunk_rows: FIRST_CHUNK_ROWS.min(spec.chunk_rows).max(1),
            pending: VecDeque::new(),
            memory,
            spec,
            input: Some(input),
            state: State::Build(build),
            asked: VecDeque::new(),
            wanted: Wanted::Count,
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
                State::Emit(build, chunk) => self.emit(build, chunk).await?,
                State::Unmatched(build, row) => self.emit_unmatched(build, row).await?,
                State::Done => {
                    self.input = None;
                    self.pending.clear();
                    self.asked.clear();
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
            || (!build.can_match() && join_type.empty_map_produces_empty_result());
        self.wanted = self.spec.wanted(&build);
        self.chunk_rows = self.spec.most_rows(build.encoder.words());
        if let Some(table) = &build.table {
            self.chunk_rows = table.chunk_rows(self.chunk_rows);
        }
        self.next_chunk_rows = self.next_chunk_rows.min(self.chunk_rows);
        Ok(match nothing {
            true => State::Done,
            false => State::Fetch(build),
        })
    }

    /// Keeps the device busy and waits for the first of the chunks it has.
    async fn fetch(&mut self, build: Arc<BuildSide>) -> Result<State> {
        while self.asked.len() < self.in_flight(&build) && self.has_input() {
            let (batches, memory) = self.gather(&build).await?;
            if batches.is_empty() {
                continue;
            }
            let rows = batches.iter().map(RecordBatch::num_rows).sum();
            match self.ask(&build, &batches).await {
                Ok(asked) => self.asked.push_back(Asked { memory, ..asked }),
                Err(error) => self.split(error, rows, batches)?,
            }
        }
        let Some(asked) = self.asked.pop_front() else {
            return Ok(State::Unmatched(build, 0));
        };
        let found = match asked.answer.await {
            Ok(answer) => {
                self.metrics.add_cost(&answer.cost);
                if asked.by_device {
                    self.keep_visits(&build, &asked.batches).await?;
                }
                answer.value
            }
            Err(error) if error.is_device_memory() => {
                let rows = asked.batches.iter().map(|b| b.batch.num_rows()).sum();
                let later = self.asked.drain(..).flat_map(|asked| asked.batches);
                let batches = asked.batches.into_iter().chain(later);
                let batches = batches.map(|b| b.batch).collect();
                self.split(error, rows, batches)?;
                return Ok(State::Fetch(build));
            }
            Err(error) => {
                build.fallback.take_over(error, &self.metrics)?;
                self.look_up_again(&build, &asked.batches, (0, 0))
                    .await?
                    .found(self.wanted)
            }
        };
        if let Some(buckets) = found.buckets_read {
            self.metrics.add_lookups(found.keys, buckets);
        }
        let chunk = Chunk::new(asked.batches, asked.memory, found);
        Ok(State::Emit(build, Box::new(chunk)))
    }

    /// Chunks that are on the device at once.
    fn in_flight(&self, build: &BuildSide) -> usize {
        let is_lent = build.table.as_ref().is_some_and(BuildTable::is_lent);
        match self.spec.whole_chunks && !is_lent && !self.is_short {
            true => IN_FLIGHT,
            // An unbounded input may not go on before its rows are answered.
            false => 1,
        }
    }

    fn has_input(&self) -> bool {
        self.input.is_some() || !self.pending.is_empty()
    }

    /// If the device had no room for a chunk of `rows` rows: smaller ones from now on, `batches`
    /// first.
    ///
    /// # Errors
    /// Any other, or if there is nothing to split.
    fn split(&mut self, error: Error, rows: usize, batches: Vec<RecordBatch>) -> Result<()> {
        let windows = error.is_device_memory() && self.shrink_windows();
        if !error.is_device_memory() || (rows <= LEAST_CHUNK_ROWS && !windows) {
            return Err(error);
        }
        log::debug!("a chunk of {rows} probe rows is split: {error}");
        self.is_short = true;
        self.chunk_rows = (rows / 2).clamp(1, self.chunk_rows);
        self.next_chunk_rows = self.chunk_rows;
        batches
            .into_iter()
            .rev()
            .for_each(|batch| self.pending.push_front(batch));
        Ok(())
    }

    /// Halves the windows of pairs; whether they can be.
    fn shrink_windows(&mut self) -> bool {
        let Wanted::Pairs { window, .. } = &mut self.wanted else {
            return false;
        };
        let smaller = (*window / 2).max(LEAST_WINDOW);
        std::mem::replace(window, smaller.min(*window)) > smaller
    }

    /// Batches with rows, up to the chunk's size, and what they reserve if they are more than
    /// usual; none at the end of the input.
    async fn gather(
        &mut self,
        build: &BuildSide,
    ) -> Result<(Vec<RecordBatch>, Option<MemoryReservation>)> {
        let mut batches = Vec::new();
        let mut rows = 0;
        let wanted = self.next_chunk_rows;
        self.next_chunk_rows = (2 * wanted).min(self.chunk_rows).max(1);
        let is_lent = build.table.as_ref().is_some_and(BuildTable::is_lent);
        let memory = is_lent.then(|| self.memory.new_empty());
        while rows < wanted {
            let Some(batch) = self.next_batch(batches.is_empty()).await? else {
                break;
            };
            let (batch, rest) = match batch.num_rows() > wanted - rows && self.is_short {
                true => {
                    let len = wanted - rows;
                    let rest = batch.slice(len, batch.num_rows() - len);
                    (batch.slice(0, len), Some(rest))
                }
                false => (batch, None),
            };
            if let Some(rest) = rest {
                self.pending.push_front(rest);
            }
            let bytes = batch.get_array_memory_size() + HIT_BYTES * batch.num_rows();
            let refused = memory.as_ref().map(|memory| memory.try_grow(bytes));
            rows += batch.num_rows();
            batches.push(batch);
            // A chunk of the usual size needs no leave.
            if matches!(refused, Some(Err(_))) && rows >= self.spec.chunk_rows {
                break;
            }
        }
        Ok((batches, memory))
    }

    /// The next batch with rows; only what is at hand unless it is the chunk's `first`, or chunks are
    /// whole. `None` at the end of the input, or if there is none at hand.
    async fn next_batch(&mut self, first: bool) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.pending.pop_front() {
            return Ok(Some(batch));
        }
        while let Some(input) = self.input.as_mut() {
            let next = if self.spec.whole_chunks || first {
                input.try_next().await?
            } else {
                match input.try_next().now_or_never() {
                    Some(next) => next?,
                    None => return Ok(None),
                }
            };
            let Some(batch) = next else {
                self.input = None;
                break;
            };
            self.metrics.input_batches.add(1);
            self.metrics.input_rows.add(batch.num_rows());
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Encodes `batches` and hands their keys to the device, or to the host in its place.
    async fn ask(&mut self, build: &Arc<BuildSide>, batches: &[RecordBatch]) -> Result<Asked> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let words = build.encoder.words();
        let mut keys = match build.can_match() {
            true => Some(self.room_for_keys(build, rows * words).await?),
            false => None,
        };
        let _timer = self.metrics.join_time.timer();
        let mut place = 0;
        let mut chunk = VecDeque::with_capacity(batches.len());
        for batch in batches {
            let columns = evaluate_expressions_to_arrays(&self.spec.on, batch)?;
            if self.spec.null_aware {
                note_nulls(build, &columns);
            }
            let from = place;
            let mut matchable = None;
            if let Some((_, keys)) = &mut keys {
                let (at, rows) = (place * words, batch.num_rows());
                let out = &mut keys[at..at + rows * words];
                matchable = build.encoder.encode_matchable(&columns, out)?;
                place += matchable.as_ref().map_or(rows, Vec::len);
            }
            let columns = match build.encoder.is_exact() && !build.visits_on_device() {
                true => Vec::new(),
                false => columns,
            };
            let places = from as u32..place as u32;
            chunk.push_back(ProbeBatch::new(batch.clone(), columns, places, matchable));
        }
        let (by_device, answer) = match keys.filter(|_| place > 0) {
            Some((table, mut keys)) => {
                keys.truncate(place * words);
                match table {
                    Some(table) => (true, table.look_up(&self.spec.access, keys, self.wanted)),
                    None => {
                        let (build, keys) = (Arc::clone(build), keys.into_vec());
                        (false, look_up_on_host(build, keys, self.wanted))
                    }
                }
            }
            None => (false, nothing_found()),
        };
        Ok(Asked {
            batches: chunk,
            memory: None,
            by_device,
            answer,
        })
    }

    /// The table that answers a chunk, `None` for the host's, and room for the chunk's keys where it
    /// wants them.
    async fn room_for_keys(
        &mut self,
        build: &BuildSide,
        words: usize,
    ) -> Result<(Option<BuildTable>, Words)> {
        if let Some(table) = build.table.as_ref().filter(|_| !build.fallback.is_taken()) {
            match table.keys_with_room(&self.spec.access, words).await {
                Ok(keys) => return Ok((Some(table.clone()), keys)),
                Err(error) => build.fallback.take_over(error, &self.metrics)?,
            }
        }
        Ok((None, Words::Host(vec![0; words])))
    }

    /// The host's answer to what is left of a chunk, from the key at a place and its first pair
    /// on, after the device failed.
    async fn look_up_again(
        &mut self,
        build: &BuildSide,
        batches: &VecDeque<ProbeBatch>,
        from: (u32, u64),
    ) -> Result<HostMatches> {
        let mut keys = Vec::new();
        for probe in batches {
            let columns = evaluate_expressions_to_arrays(&self.spec.on, &probe.batch)?;
            let before = keys.len();
            let rows = append_matchable(build, &columns, &mut keys)?;
            let places = (keys.len() - before) / build.encoder.words();
            if places != probe.places.len() || rows != probe.rows {
                let reason = "key expressions gave other values when evaluated again";
                return Err(Error::Invalid(reason.to_owned()));
            }
        }
        host_matches(build, &keys, from).await
    }

    /// Keeps what the device was asked, where it alone knows which build rows were met.
    async fn keep_visits(
        &mut self,
        build: &BuildSide,
        batches: &VecDeque<ProbeBatch>,
    ) -> Result<()> {
        if !build.visits_on_device() {
            return Ok(());
        }
        let columns = batches.iter().map(|batch| batch.keys.clone());
        match build.fallback.keep(columns, build.rows.len()) {
            true => self.collect_visits(build).await,
            false => Ok(()),
        }
    }

    /// What comes next of a chunk: one step of its first batch, or all it is wanted for.
    async fn emit(&mut self, build: Arc<BuildSide>, mut chunk: Box<Chunk>) -> Result<State> {
        // A NOT IN whose other side has a NULL returns nothing at all.
        if self.spec.null_aware && build.probe_seen.null.load(Ordering::Relaxed) {
            return Ok(State::Fetch(build));
        }
        match self.wanted {
            Wanted::Visits => {
                self.count_chunk(&chunk);
                Ok(State::Fetch(build))
            }
            Wanted::Count => {
                // Once: what is left of a chunk to emit has no batches.
                if !chunk.batches.is_empty() {
                    self.count_chunk(&chunk);
                    chunk.batches.clear();
                }
                self.emit_count(build, chunk)
            }
            Wanted::Bits => self.emit_batch(build, chunk),
            Wanted::Pairs { .. } => {
                while let Some(first) = chunk.missing(self.step_pairs()) {
                    self.fetch_window(&build, &mut chunk, first).await?;
                }
                self.emit_step(build, chunk)
            }
        }
    }

    /// Metrics of a chunk whose matches are the device's.
    fn count_chunk(&self, chunk: &Chunk) {
        let rows: usize = chunk.batches.iter().map(|b| b.batch.num_rows()).sum();
        self.count_matches(&chunk.found, rows);
    }

    fn count_matches(&self, found: &Found, rows: usize) {
        let metrics = &self.metrics;
        metrics.probe_hit_rate.add_total(rows);
        metrics.probe_hit_rate.add_part(found.matched as usize);
        metrics.avg_fanout.add_part(found.total as usize);
        metrics.avg_fanout.add_total(found.matched as usize);
    }

    /// Rows without columns, as many as there are pairs.
    fn emit_count(&mut self, build: Arc<BuildSide>, mut chunk: Box<Chunk>) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let rows = chunk.found.total.min(self.spec.batch_size as u64) as usize;
        if rows == 0 {
            return Ok(State::Fetch(build));
        }
        chunk.found.total -= rows as u64;
        let pairs = Pairs::default();
        let batch = self.spec.output.batch(&build.rows, None, &pairs, rows)?;
        timer.done();
        self.push_and(batch, State::Emit(build, chunk))
    }

    /// The whole first batch of a chunk, for a join type that asks only which rows match.
    fn emit_batch(&mut self, build: Arc<BuildSide>, mut chunk: Box<Chunk>) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let Some(probe) = chunk.batches.pop_front() else {
            self.count_matches(&chunk.found, 0);
            return Ok(State::Fetch(build));
        };
        let rows = probe.batch.num_rows();
        self.metrics.probe_hit_rate.add_total(rows);
        let matched = probe.matched(chunk.found.bits.as_deref());
        let pairs = self.spec.outcome.resolve(&matched, 0..rows);
        let count = pairs.probe.len();
        let output = &self.spec.output;
        let batch = output.batch(&build.rows, Some(&probe.batch), &pairs, count)?;
        timer.done();
        self.push_and(batch, State::Emit(build, chunk))
    }

    /// Pairs of a step at most: one fewer than a window, which tells whether more follow.
    fn step_pairs(&self) -> usize {
        match self.wanted {
            Wanted::Pairs { window, .. } => self.spec.batch_size.min(window - 1),
            _ => self.spec.batch_size,
        }
    }

    /// Brings further pairs. If the device has no room for as many, or fails, none: then fewer are
    /// asked for from now on, or the host.
    async fn fetch_window(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
        first: u64,
    ) -> Result<()> {
        let lost = || Error::Invalid("pairs were lost; please report this".into());
        let asked = (&self.spec.access, self.wanted);
        let window = chunk.found.window_from(build.table.as_ref(), first, asked);
        let window = window.ok_or_else(lost)?;
        // The last one's memory is for the next.
        chunk.found.window = Window {
            first,
            ..Window::default()
        };
        match window.await {
            Ok(answer) => {
                self.metrics.add_cost(&answer.cost);
                chunk.found.window = answer.value;
            }
            Err(error) if error.is_device_memory() && self.shrink_windows() => {}
            Err(error) => {
                build.fallback.take_over(error, &self.metrics)?;
                let from = chunk.front().ok_or_else(lost)?;
                let matches = self.look_up_again(build, &chunk.batches, from).await?;
                chunk.found.rest = Rest::Host(Arc::new(matches));
            }
        }
        Ok(())
    }

    /// One step of the chunk's first batch.
    fn emit_step(&mut self, build: Arc<BuildSide>, mut chunk: Box<Chunk>) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let limit = self.step_pairs();
        let Some(Step { pairs, is_last }) = chunk.step(limit, build.gathered())? else {
            return Ok(State::Fetch(build));
        };
        let Some(probe) = chunk.batches.front_mut() else {
            return Ok(State::Fetch(build));
        };
        let matches = self.matches(&build, probe, pairs)?;
        let range = probe.resolve(&matches, is_last);
        let pairs = self.spec.outcome.apply(matches, range)?;
        let rows = pairs.probe.len();
        let output = &self.spec.output;
        let batch = output.batch(&build.rows, Some(&probe.batch), &pairs, rows)?;
        if is_last {
            let rows = probe.batch.num_rows();
            self.metrics.probe_hit_rate.add_total(rows);
            chunk.next_batch();
        }
        timer.done();
        self.push_and(batch, State::Emit(build, chunk))
    }

    /// The step's candidates that are matches: equal keys, residual filter passed.
    fn matches(&self, build: &BuildSide, probe: &ProbeBatch, mut pairs: Pairs) -> Result<Pairs> {
        if pairs.probe.is_empty() {
            return Ok(pairs);
        }
        if !build.encoder.is_exact() {
            pairs = self.verify(build, probe, pairs)?;
        }
        self.metrics.avg_fanout.add_part(pairs.probe.len());
        let hits = pairs.probe_rows();
        self.metrics.avg_fanout.add_total(hits);
        self.metrics.probe_hit_rate.add_part(hits);
        if let Some((filter, shape)) = &self.spec.filter {
            let rows = pairs.probe.len();
            let input = shape.batch(&build.rows, Some(&probe.batch), &pairs, rows)?;
            let passed = filter.evaluate(&input)?.into_array(rows)?;
            pairs = pairs.keep(as_boolean_array(&passed)?)?;
        }
        if let Some(visited) = &build.visited
            && !build.notes_visits()
        {
            pairs.build.iter().for_each(|row| visited.set(*row));
        }
        Ok(pairs)
    }

    /// Drops candidates whose keys only share a surrogate.
    fn verify(&self, build: &BuildSide, probe: &ProbeBatch, pairs: Pairs) -> Result<Pairs> {
        let located = Located::new(&build.rows, &pairs.build);
        let picked = match pairs.are_whole(probe.batch.num_rows()) {
            true => None,
            false => Some(UInt32Array::from(pairs.probe.clone())),
        };
        let mut build_columns = Vec::new();
        let mut probe_columns = Vec::new();
        let mut equal: Option<BooleanBuffer> = None;
        for (c, key) in probe.keys.iter().enumerate() {
            let gathered = pairs.gathered(Source::Key(c));
            if gathered.is_none()
                && let Some(bits) = self.compare_in_place(build, (key, c), &pairs, &located)
            {
                equal = Some(equal.map_or(bits.clone(), |equal| &equal & &bits));
                continue;
            }
            build_columns.push(match gathered {
                Some(values) => Arc::clone(values),
                None => {
                    let column = build.arrays(Source::Key(c));
                    build.rows.gather(column, &located, key.data_type())?
                }
            });
            probe_columns.push(match &picked {
                Some(picked) => take(key, picked, None)?,
                None => Arc::clone(key),
            });
        }
        if !build_columns.is_empty() {
            let bits = equal_pairs(&build_columns, &probe_columns, self.spec.null_equality)?;
            equal = Some(equal.map_or(bits.clone(), |equal| &equal & &bits));
        }
        match equal {
            Some(equal) => pairs.keep(&BooleanArray::new(equal, None)),
            None => Ok(pairs),
        }
    }

    /// Which pairs have equal strings in key column `c`; `None` for other types.
    fn compare_in_place(
        &self,
        build: &BuildSide,
        (key, c): (&ArrayRef, usize),
        pairs: &Pairs,
        located: &Located<'_>,
    ) -> Option<BooleanBuffer> {
        let column = build.arrays(Source::Key(c));
        let (probe, nulls) = ((key, &pairs.probe[..]), self.spec.null_equality);
        match column {
            [array] => equal_views((array, &pairs.build), probe, nulls),
            _ => equal_strings(column, located.places(), probe, nulls),
        }
    }

    /// Brings back which build rows the answered lookups met, or looks their keys up again.
    async fn collect_visits(&mut self, build: &BuildSide) -> Result<()> {
        let (Some(visited), Some(table)) = (&build.visited, &build.table) else {
            return Ok(());
        };
        if !build.notes_visits() {
            return Ok(());
        }
        let journal = build.fallback.take_journal();
        if !(build.visits_on_device() && build.fallback.is_taken()) {
            let rows = (visited, build.rows.len());
            match table.mark_visited(&self.spec.access, rows).await {
                Ok(cost) => {
                    self.metrics.add_cost(&cost);
                    return Ok(());
                }
                Err(error) => build.fallback.take_over(error, &self.metrics)?,
            }
        }
        let mut keys = Vec::new();
        for columns in journal.batches() {
            keys.clear();
            append_matchable(build, columns, &mut keys)?;
            host_matches(build, &keys, (0, 0)).await?;
        }
        Ok(())
    }

    /// At the end of the last probe stream: up to a batch of build rows from `row` on that
    /// their join type owes.
    async fn emit_unmatched(&mut self, build: Arc<BuildSide>, row: u32) -> Result<State> {
        let Some(visited) = &build.visited else {
            return Ok(State::Done);
        };
        let null_aware = self.spec.null_aware;
        if null_aware && build.probe_seen.null.load(Ordering::Relaxed) {
            return Ok(State::Done);
        }
        if row == 0 {
            if !build.probe_ended() {
                return Ok(State::Done);
            }
            self.collect_visits(&build).await?;
        }
        let timer = self.metrics.join_time.timer();
        let skip_null_keys = null_aware && build.probe_seen.any.load(Ordering::Relaxed);
        let owed = |row: &u32| match self.spec.join_type {
            JoinType::LeftSemi => visited.get(*row),
            JoinType::LeftMark => true,
            _ => !(visited.get(*row) || skip_null_keys && build.first_key_is_null(*row)),
        };
        let end = build.rows.len() as u32;
        // Rows of one batch: gathering from many takes several times as long.
        let mut rows = row..build.rows.batch_end(row);
        let owed: Vec<u32> = rows
            .by_ref()
            .filter(owed)
            .take(self.spec.batch_size)
            .collect();
        // As in the stock join, the rows owed count as one more input batch.
        self.metrics.input_batches.add(usize::from(row == 0));
        self.metrics.input_rows.add(owed.len());
        let mark = owed.iter().map(|row| Some(visited.get(*row))).collect();
        let pairs = Pairs {
            mark: Some(mark),
            build: owed,
            ..Pairs::default()
        };
        let count = pairs.build.len();
        let batch = self.spec.output.batch(&build.rows, None, &pairs, count)?;
        timer.done();
        let next = match rows.start == end {
            true => State::Done,
            false => State::Unmatched(build, rows.start),
        };
        self.push_and(batch, next)
    }

    /// Hands rows to the output; goes on to `next` unless that has enough.
    fn push_and(&mut self, batch: RecordBatch, next: State) -> Result<State> {
        Ok(match self.push(batch)? {
            PushBatchStatus::Continue => next,
            PushBatchStatus::LimitReached => State::Done,
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

impl ProbeSpec {
    /// Rows of a chunk with keys of so many words at most.
    fn most_rows(&self, key_words: usize) -> usize {
        let most = match key_words {
            0..=2 => self.chunk_rows,
            words => self.chunk_rows.min(LONG_KEYS / (4 * words)),
        };
        most.max(1)
    }

    /// What lookups must bring back.
    fn wanted(&self, build: &BuildSide) -> Wanted {
        let checked = self.filter.is_some() || !build.encoder.is_exact();
        match self.outcome {
            Outcome::Later if !checked => Wanted::Visits,
            Outcome::Matched | Outcome::Unmatched | Outcome::Marked if !checked => Wanted::Bits,
            Outcome::Matches if !checked && self.output.columns.is_empty() => Wanted::Count,
            _ => Wanted::Pairs {
                build_rows: self.needs_build_rows(build),
                window: (WINDOW_PAIRS * self.chunk_rows).max(self.batch_size + 1),
            },
        }
    }

    /// Whether the host does something with the pairs' build rows.
    fn needs_build_rows(&self, build: &BuildSide) -> bool {
        let gathered = |source: Source| build.is_gathered(source);
        let filter = self.filter.iter().flat_map(|(_, shape)| &shape.columns);
        let mut columns = self.output.columns.iter().chain(filter);
        let keys = match build.encoder.is_exact() {
            true => 0,
            false => self.on.len(),
        };
        (build.visited.is_some() && !build.notes_visits())
            || matches!(self.outcome, Outcome::MatchesAndUnmatched { .. })
            || (0..keys).any(|c| !gathered(Source::Key(c)))
            || columns.any(|c| c.side == JoinSide::Left && !gathered(Source::Batch(c.index)))
    }
}

/// The host's matches of `keys`; notes the visited rows, where lookups do so.
async fn host_matches(build: &BuildSide, keys: &[u32], from: (u32, u64)) -> Result<HostMatches> {
    let keys = (keys, build.encoder.words());
    let matches = HostMatches::new(build.host_table().await?, keys, from);
    if let Some(visited) = &build.visited
        && build.notes_visits()
    {
        matches.build_rows().for_each(|row| visited.set(row));
    }
    Ok(matches)
}

/// The host's answer to the `keys` of a chunk.
fn look_up_on_host(
    build: Arc<BuildSide>,
    keys: Vec<u32>,
    wanted: Wanted,
) -> BoxFuture<'static, Result<Answer<Found>>> {
    let answer = async move {
        let matches = host_matches(&build, &keys, (0, 0)).await?;
        Ok(Answer {
            value: matches.found(wanted),
            cost: Default::default(),
        })
    };
    answer.boxed()
}

/// Appends the surrogates of the rows that can match; returns those rows, or `None` if all can.
fn append_matchable(
    build: &BuildSide,
    columns: &[ArrayRef],
    keys: &mut Vec<u32>,
) -> Result<Option<Vec<u32>>> {
    let (before, words) = (keys.len(), build.encoder.words());
    let rows = columns.first().map_or(0, |column| column.len());
    keys.resize(before + rows * words, 0);
    let matchable = build
        .encoder
        .encode_matchable(columns, &mut keys[before..])?;
    let kept = matchable.as_ref().map_or(rows, Vec::len);
    keys.truncate(before + kept * words);
    Ok(matchable)
}

fn nothing_found() -> BoxFuture<'static, Result<Answer<Found>>> {
    let nothing = Answer {
        value: Found::default(),
        cost: Default::default(),
    };
    futures::future::ready(Ok(nothing)).boxed()
}

/// Notes what a null-aware anti join must know of its probe side.
fn note_nulls(build: &BuildSide, columns: &[ArrayRef]) {
    build.probe_seen.any.store(true, Ordering::Relaxed);
    if columns.iter().any(|key| key.logical_null_count() > 0) {
        build.probe_seen.null.store(true, Ordering::Relaxed);
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
