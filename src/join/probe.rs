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
//! no thread, and dropping it cancels what was not started. A chunk that the device fails to answer
//! is looked up on the host ([`fallback`](super::fallback)), from its first batch or from the
//! pair on that comes next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::coalesce::{LimitedBatchCoalescer, PushBatchStatus};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryStreamExt};

use crate::device::{Answer, Device, Staging};
use crate::error::{Error, Result};

use super::build::BuildSide;
use super::chunk::{Chunk, ProbeBatch, Step};
use super::columns::Source;
use super::emit::{Located, Pairs, Shape};
use super::host::HostMatches;
use super::keys::{equal_pairs, equal_strings, equal_views};
use super::lookup::{Found, Rest, Wanted, Window, Words, look_up};
use super::metrics::JoinMetrics;
use super::pairs::Outcome;
use super::table::JoinTable;

/// Rows of the first chunk; each next one has twice as many, up to `chunk_rows`.
const FIRST_CHUNK_ROWS: usize = 1 << 15;

/// Chunks that a stream has on the device at once.
const IN_FLIGHT: usize = 2;

/// Bytes of a chunk's keys where they are of more than two words: page-locking more memory costs more
/// than larger chunks gain.
const LONG_KEYS: usize = 8 << 20;

/// Pairs of a window for each row of a chunk: fewer windows for small fan-outs.
const WINDOW_PAIRS: usize = 4;

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

/// A chunk on its way through the device.
struct Asked {
    batches: VecDeque<ProbeBatch>,
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
        Ok(match nothing {
            true => State::Done,
            false => State::Fetch(build),
        })
    }

    /// Keeps the device busy and waits for the first of the chunks it has.
    async fn fetch(&mut self, build: Arc<BuildSide>) -> Result<State> {
        let in_flight = match self.spec.whole_chunks {
            true => IN_FLIGHT,
            // An unbounded input may not go on before its rows are answered.
            false => 1,
        };
        while self.asked.len() < in_flight && self.input.is_some() {
            let batches = self.gather(build.encoder.words()).await?;
            if !batches.is_empty() {
                let asked = self.ask(&build, batches).await?;
                self.asked.push_back(asked);
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
        let chunk = Chunk::new(asked.batches, found);
        Ok(State::Emit(build, Box::new(chunk)))
    }

    /// Batches with rows, up to the chunk's size; none at the end of the input.
    async fn gather(&mut self, key_words: usize) -> Result<Vec<RecordBatch>> {
        let mut batches = Vec::new();
        let mut rows = 0;
        let most = match key_words {
            0..=2 => self.spec.chunk_rows,
            words => self.spec.chunk_rows.min(LONG_KEYS / (4 * words)),
        };
        let wanted = self.next_chunk_rows.min(most);
        self.next_chunk_rows = (2 * wanted).min(most).max(1);
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

    /// Encodes `batches` and hands their keys to the device.
    async fn ask(&mut self, build: &Arc<BuildSide>, batches: Vec<RecordBatch>) -> Result<Asked> {
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
            let columns = evaluate_expressions_to_arrays(&self.spec.on, &batch)?;
            if self.spec.null_aware {
                note_nulls(build, &columns);
            }
            let from = place;
            let mut matchable = None;
            if let Some(keys) = &mut keys {
                let (at, rows) = (place * words, batch.num_rows());
                let out = &mut keys[at..at + rows * words];
                matchable = build.encoder.encode_matchable(&columns, out)?;
                place += matchable.as_ref().map_or(rows, Vec::len);
            }
            let columns = match build.encoder.is_exact() && !build.notes_visits() {
                true => Vec::new(),
                false => columns,
            };
            let places = from as u32..place as u32;
            chunk.push_back(ProbeBatch::new(batch, columns, places, matchable));
        }
        let (by_device, answer) = match (&build.table, keys.filter(|_| place > 0)) {
            (Some(table), Some(Words::Staged(mut keys))) => {
                keys.truncate(place * words);
                (true, self.look_up(Arc::clone(table), keys))
            }
            (_, Some(Words::Host(mut keys))) => {
                keys.truncate(place * words);
                let answer = look_up_on_host(Arc::clone(build), keys, self.wanted);
                (false, answer)
            }
            _ => (false, nothing_found()),
        };
        Ok(Asked {
            batches: chunk,
            by_device,
            answer,
        })
    }

    /// Room for the keys of a chunk, where who answers it wants them.
    async fn room_for_keys(&mut self, build: &BuildSide, words: usize) -> Result<Words> {
        if !build.fallback.is_taken() {
            match self.spec.device.staging("probe keys", words).await {
                Ok(keys) => return Ok(Words::Staged(keys)),
                Err(error) => build.fallback.take_over(error, &self.metrics)?,
            }
        }
        Ok(Words::Host(vec![0; words]))
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
        if !build.notes_visits() {
            return Ok(());
        }
        let columns = batches.iter().map(|batch| batch.keys.clone());
        match build.fallback.keep(columns, build.rows.len()) {
            true => self.collect_visits(build).await,
            false => Ok(()),
        }
    }

    /// The device's answer to `keys`, which it works on from now on.
    fn look_up(
        &self,
        table: Arc<JoinTable>,
        keys: Staging<u32>,
    ) -> BoxFuture<'static, Result<Answer<Found>>> {
        let (limit, wanted) = (self.spec.memory_limit, self.wanted);
        self.spec.device.run(move |queue| {
            queue.limit_memory(limit);
            look_up(queue, &table, keys, wanted)
        })
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
                if let Some(first) = chunk.missing(self.spec.batch_size) {
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

    /// Brings further pairs.
    async fn fetch_window(
        &mut self,
        build: &BuildSide,
        chunk: &mut Chunk,
        first: u64,
    ) -> Result<()> {
        if let Some(window) = self.window_of_device(build, chunk, first).await? {
            chunk.found.window = window;
            return Ok(());
        }
        if let (Rest::Device(_), Some(from)) = (&chunk.found.rest, chunk.front()) {
            let matches = self.look_up_again(build, &chunk.batches, from).await?;
            chunk.found.rest = Rest::Host(Arc::new(matches));
        }
        if let (Rest::Host(matches), Wanted::Pairs { window, .. }) =
            (&chunk.found.rest, self.wanted)
        {
            chunk.found.window = matches.window(first, window);
        }
        Ok(())
    }

    /// The window of pairs from `first` on; `None` if the host must find them.
    async fn window_of_device(
        &mut self,
        build: &BuildSide,
        chunk: &Chunk,
        first: u64,
    ) -> Result<Option<Window>> {
        let table = build.table.as_ref();
        let job = table.and_then(|table| chunk.found.window_from(table, first, self.wanted));
        let Some(job) = job else { return Ok(None) };
        let limit = self.spec.memory_limit;
        let answer = self.spec.device.run(move |queue| {
            queue.limit_memory(limit);
            job(queue)
        });
        match answer.await {
            Ok(answer) => {
                self.metrics.add_cost(&answer.cost);
                Ok(Some(answer.value))
            }
            Err(error) => {
                build.fallback.take_over(error, &self.metrics)?;
                Ok(None)
            }
        }
    }

    /// One step of the chunk's first batch.
    fn emit_step(&mut self, build: Arc<BuildSide>, mut chunk: Box<Chunk>) -> Result<State> {
        let timer = self.metrics.join_time.timer();
        let columns = build.table.as_ref().map_or(&[][..], |table| &table.columns);
        let Some(Step { pairs, is_last }) = chunk.step(self.spec.batch_size, columns)? else {
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
        if !build.fallback.is_taken() {
            let (table, rows) = (Arc::clone(table), build.rows.len());
            let limit = self.spec.memory_limit;
            let bits = self.spec.device.run(move |queue| {
                queue.limit_memory(limit);
                table.visited_rows(queue, rows)
            });
            match bits.await {
                Ok(bits) => {
                    self.metrics.add_cost(&bits.cost);
                    visited.set_all(&bits.value);
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
        let gathered = |source: Source| {
            let columns = build.table.as_ref().map_or(&[][..], |table| &table.columns);
            columns.iter().any(|column| column.source == source)
        };
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
