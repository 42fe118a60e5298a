//! Chunks on their way through the device, or through the host in its place.
//!
//! ```text
//!  gathered ─▶ keys in staging memory ─▶ [in flight] [in flight] ─▶ answered chunk ─▶ next window
//!     ▲                │ no room                │ no room                              │ no room
//!     └─ put back: once more, or smaller ◀──────┘                  a smaller one ◀─────┘
//! ```
//!
//! While the device works on one chunk, the next is gathered and encoded. The device's answers come
//! through a channel. A stream that waits for them blocks no thread, and dropping it cancels the
//! lookups that have not begun.
//!
//! A chunk that the device has no room for waits for others to give memory back, and is split if
//! they do not. If the device has no room even then, or fails, another device that has the table,
//! or gets it, looks the keys up. If there is none, the host does
//! ([`failover`](crate::join::lookup::failover)): from the chunk's first batch, or from its next
//! pair.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use tracing::{Instrument, trace_span};

use crate::device::Answer;
use crate::error::{Error, Result};
use crate::join::build_side::replicate::fail_over;
use crate::join::build_side::side::BuildSide;
use crate::join::lookup::result::{ChunkPosition, LookupKind, LookupResult, Window};
use crate::join::lookup::table::JoinTable;
use crate::join::memory::{FALLBACK_BYTES, ProbeMemory};
use crate::join::metrics::JoinMetrics;

use super::chunk::{Chunk, ProbeBatch};
use super::chunk_queue::{ChunkQueue, Queued};
use super::chunk_sizing::{ChunkSizing, ChunkUse};
use super::gather::{ChunkGatherer, GatheredBatches};
use super::host_lookup::lookup_again;
use super::send::{LookupInFlight, Refused};
use super::spec::ProbeSpec;
use super::visits::record_visits;

/// Chunks that a stream sends, at most, before it looks for answers.
const SENT_AT_ONCE: usize = 2;

/// Pairs of a window that is not halved again.
const WINDOW_PAIRS_MIN: usize = 64;

/// What a stream does next.
pub enum Next {
    /// Emits this chunk.
    Emit(Chunk),
    /// Looks once more: chunks were put back, or other streams have taken all there were.
    Again,
    /// Ends: nothing is left.
    End,
}

/// The lookups of one probe stream: batches in, answered chunks out.
pub struct ChunkLookups {
    spec: Arc<ProbeSpec>,
    gatherer: ChunkGatherer,
    /// Chunks on their way, which other streams may share.
    queue: Arc<ChunkQueue>,
    /// Number of this stream among them.
    stream: usize,
    /// The form in which the next chunks bring their matches back.
    wanted: LookupKind,
    sizing: ChunkSizing,
    /// True once a chunk was answered, or if the join has no LIMIT.
    is_answered: bool,
    metrics: JoinMetrics,
}

impl ChunkLookups {
    /// Returns the lookups of the chunks of `gatherer` in the tables of `build`.
    pub fn new(
        spec: Arc<ProbeSpec>,
        build: &BuildSide,
        gatherer: ChunkGatherer,
        (queue, stream): (Arc<ChunkQueue>, usize),
        metrics: JoinMetrics,
    ) -> Self {
        let chunk_rows = spec.most_chunk_rows(build);
        let bytes = spec.most_bytes(chunk_rows);
        Self {
            wanted: spec.wanted(build),
            sizing: ChunkSizing::new(
                (chunk_rows, bytes),
                spec.batch_size,
                chunk_use(&spec, build),
                queue.streams(),
            ),
            is_answered: spec.fetch.is_none(),
            spec,
            gatherer,
            queue,
            stream,
            metrics,
        }
    }

    /// Keeps the device busy: hands it chunks, as long as it may have more.
    ///
    /// # Errors
    /// The input's; the device's, if the session wants to see them.
    pub async fn fill(&mut self, build: &Arc<BuildSide>) -> Result<()> {
        for _ in 0..SENT_AT_ONCE {
            if !self.gatherer.has_more() {
                break;
            }
            let Some(_being_sent) = self.queue.begin(self.most_in_flight()) else {
                break;
            };
            self.reset_chunk_size(build);
            let is_idle = self.queue.is_empty();
            let gathered = self.gatherer.gather(build, &mut self.sizing, is_idle);
            let gathered = gathered.instrument(trace_span!("gather chunk"));
            let Some(gathered) = gathered.await? else {
                break;
            };
            let batches = gathered.batches.iter().map(|(batch, _)| batch.clone());
            let batches: Vec<_> = batches.collect();
            let rows = gathered.rows;
            let wanted = self.first_window(build, &gathered);
            let (spec, metrics) = (&self.spec, &self.metrics);
            match LookupInFlight::send(spec, build, gathered, wanted, metrics).await {
                Ok(lookup) => self.queue.send(lookup.answered_by_host().await),
                Err(Refused { table, error }) => {
                    let table = table.as_deref();
                    self.retry_smaller(build, table, error, rows, batches)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Waits for what comes next of the chunks on their way.
    ///
    /// # Errors
    /// The device's, if the session wants to see them.
    pub async fn next(&mut self, build: &Arc<BuildSide>) -> Result<Next> {
        let wait = trace_span!("wait for lookup", row = "waits");
        let queued = poll_fn(|cx| self.queue.poll_next(self.stream, cx));
        Ok(match queued.instrument(wait).await {
            Queued::Piece(piece) => Next::Emit(piece),
            Queued::Answered(lookup, answer) => {
                // Else it waits for nothing.
                if answer.is_err() || build.visits_on_device() {
                    self.queue.wake_all();
                }
                let resolved = self.resolve(build, lookup, answer).await;
                if !matches!(resolved, Ok(Some(_))) {
                    self.queue.wake_all();
                }
                match resolved? {
                    Some(chunk) => Next::Emit(self.share(chunk)),
                    None => Next::Again,
                }
            }
            Queued::Nothing if self.gatherer.has_more() => Next::Again,
            Queued::Nothing => Next::End,
        })
    }

    /// Hands pieces of `chunk` to the streams that share it. Returns the first.
    fn share(&self, chunk: Chunk) -> Chunk {
        if !self.queue.is_shared() {
            return chunk;
        }
        let mut pieces = chunk.split(self.spec.batch_size).into_iter();
        let Some(first) = pieces.next() else {
            unreachable!("a chunk has a piece");
        };
        self.queue.put(pieces);
        first
    }

    /// Returns the chunk of a lookup that was answered; `None` if it was put back, and comes again.
    async fn resolve(
        &mut self,
        build: &Arc<BuildSide>,
        lookup: LookupInFlight,
        answer: Result<Answer<LookupResult>>,
    ) -> Result<Option<Chunk>> {
        let LookupInFlight {
            batches,
            memory,
            wanted,
            mut table,
            ..
        } = lookup;
        let found = match answer {
            Ok(answer) => {
                self.is_answered = true;
                self.metrics.add_cost(&answer.cost);
                if table.is_some() {
                    self.sizing.note_answered();
                    record_visits(build, &batches, &self.metrics).await?;
                }
                answer.value
            }
            Err(error) if error.is_device_memory() => {
                let rows = batches.iter().map(|b| b.batch.num_rows()).sum();
                let batches = self.with_in_flight(batches);
                self.retry_smaller(build, table.as_deref(), error, rows, batches)
                    .await?;
                return Ok(None);
            }
            Err(error) => {
                self.fail_over(build, table.take().as_deref(), error)
                    .await?;
                if build.tables().answering().is_some() {
                    // Another device has the table. Chunks come in order, so all of them go back.
                    let batches = self.with_in_flight(batches);
                    self.gatherer.put_back(batches);
                    return Ok(None);
                }
                let start = ChunkPosition::default();
                let matches = lookup_again(&self.spec.on, build, &batches, start).await?;
                matches.found(wanted)
            }
        };
        if let Some(buckets) = found.buckets_read {
            self.metrics.add_lookups(found.keys, buckets);
        }
        memory.keep_pairs(found.window.len * ProbeSpec::pair_bytes(build));
        Ok(Some(Chunk::new(batches, memory, found, self.wanted, table)))
    }

    /// Notes that all rows of a chunk were put out: of `rows` rows, in `time`.
    pub fn note_output(&mut self, rows: usize, time: Duration) {
        self.sizing.note_output(rows, time);
    }

    /// Lets go of the input and of the stream's own chunks on their way: nothing more is wanted.
    pub fn close(&mut self) {
        self.gatherer.close();
        self.queue.clear();
    }

    /// Brings further pairs of `chunk`, from pair `first` on. If the device has no room for as
    /// many, or fails, none: then they are asked for again, fewer from now on, or of the host.
    ///
    /// # Errors
    /// The device's, if the session wants to see them.
    pub async fn fetch_window(
        &mut self,
        build: &Arc<BuildSide>,
        chunk: &mut Chunk,
        first: u64,
    ) -> Result<()> {
        let lost = || Error::Internal("pairs were lost".into());
        // The last one's memory is for the next.
        chunk.found.window = Arc::new(Window {
            first,
            ..Window::default()
        });
        let left = usize::try_from(chunk.found.total - first).unwrap_or(usize::MAX);
        reserve_pairs(build, &chunk.memory, left, &mut chunk.wanted);
        let rest = chunk.found.rest.clone().ok_or_else(lost)?;
        let wait = trace_span!("wait for pairs", row = "waits");
        match rest.window(first, chunk.wanted).instrument(wait).await {
            Ok(answer) => {
                self.sizing.note_answered();
                self.metrics.add_cost(&answer.cost);
                chunk.found.window = Arc::new(answer.value);
            }
            Err(error) => {
                let is_room = error.is_device_memory();
                let table = chunk.table.clone();
                if is_room && self.has_room_after(table.as_deref(), &error).await {
                    return Ok(());
                }
                if is_room && chunk.wanted.halve(WINDOW_PAIRS_MIN) {
                    self.shrink_windows();
                    return Ok(());
                }
                self.fail_over(build, table.as_deref(), error).await?;
                chunk.table = None;
                let from = chunk.front().ok_or_else(lost)?;
                let matches = lookup_again(&self.spec.on, build, &chunk.batches, from).await?;
                chunk.found.rest = Some(Arc::new(matches));
            }
        }
        Ok(())
    }

    /// Returns how many chunks of all streams may be on the device at once: one per stream, and one
    /// that the device works on meanwhile.
    fn most_in_flight(&self) -> usize {
        // An unbounded input may not go on before its rows are answered, and the first rows may be
        // all that is wanted.
        let has_more = self.spec.whole_chunks && self.is_answered && !self.sizing.is_memory_short();
        self.queue.streams() + usize::from(has_more)
    }

    /// Goes on after the device of `table` failed with `error`.
    ///
    /// # Errors
    /// The `error`, if no device was asked or the session wants to see it.
    async fn fail_over(
        &mut self,
        build: &Arc<BuildSide>,
        table: Option<&JoinTable>,
        error: Error,
    ) -> Result<()> {
        match table {
            Some(table) => fail_over(build, table, error, &self.metrics).await,
            None => Err(error),
        }
    }

    /// Puts the `batches` back of a chunk of `rows` rows that the device had no room for. They come
    /// next: all at once if others have given memory back, else in smaller chunks, at last on the
    /// host.
    ///
    /// # Errors
    /// The `error`, if it is of another kind or the session wants to see it.
    async fn retry_smaller(
        &mut self,
        build: &Arc<BuildSide>,
        table: Option<&JoinTable>,
        error: Error,
        rows: usize,
        batches: Vec<RecordBatch>,
    ) -> Result<()> {
        if !error.is_device_memory() {
            return Err(error);
        }
        if !self.has_room_after(table, &error).await && !self.split(rows) {
            self.fail_over(build, table, error).await?;
        }
        self.gatherer.put_back(batches);
        Ok(())
    }

    /// Returns the rows of `batches`, and of the stream's own chunks in flight behind them, which
    /// are given up.
    fn with_in_flight(&mut self, batches: VecDeque<ProbeBatch>) -> Vec<RecordBatch> {
        let later = self.queue.take_in_flight().into_iter();
        let later = later.flat_map(|lookup| lookup.batches);
        let all = batches.into_iter().chain(later);
        all.map(|probe| probe.batch).collect()
    }

    /// Returns whether others have given back what `error` was short of; waits for it once per
    /// chunk.
    async fn has_room_after(&mut self, table: Option<&JoinTable>, error: &Error) -> bool {
        if !self.sizing.may_wait() {
            return false;
        }
        match (table, error) {
            (Some(table), Error::Device(error)) => {
                let own = table.bytes() as u64;
                table.device.has_room_after(error, own).await
            }
            _ => false,
        }
    }

    /// Makes chunks of the usual size again, if they were smaller and the host answers them now.
    fn reset_chunk_size(&mut self, build: &BuildSide) {
        if self.sizing.is_memory_short() && build.tables().answering().is_none() {
            self.sizing.reset(self.spec.most_chunk_rows(build));
            self.wanted = self.spec.wanted(build);
        }
    }

    /// Makes chunks smaller than one of `rows` rows, and windows of pairs, from now on; whether
    /// they can be.
    fn split(&mut self, rows: usize) -> bool {
        let has_smaller_windows = self.shrink_windows();
        let is_split = self.sizing.halve(rows);
        if !is_split && has_smaller_windows {
            self.sizing.shrink_to(rows);
        }
        if is_split || has_smaller_windows {
            log::debug!("a chunk of {rows} probe rows is split");
        }
        is_split || has_smaller_windows
    }

    /// Halves the windows of chunks from now on. Returns whether they can be.
    fn shrink_windows(&mut self) -> bool {
        self.wanted.halve(WINDOW_PAIRS_MIN)
    }

    /// Returns the form in which the chunk that was `gathered` brings its matches back. Reserves
    /// its first window.
    fn first_window(&self, build: &BuildSide, gathered: &GatheredBatches) -> LookupKind {
        let mut wanted = self.spec.first_window(self.wanted, gathered.rows);
        let most = if build.table().is_some_and(|table| table.is_unique()) {
            gathered.rows
        } else {
            usize::MAX
        };
        reserve_pairs(build, &gathered.memory, most, &mut wanted);
        wanted
    }
}

/// Returns the use of a join's chunks. A window has all pairs of a chunk if no row has two, and so
/// the chunk can be split.
fn chunk_use(spec: &ProbeSpec, build: &BuildSide) -> ChunkUse {
    let is_unique = build.table().is_some_and(|table| table.is_unique());
    match spec.fetch {
        Some(_) => ChunkUse::Limited,
        None if is_unique => ChunkUse::Split,
        None => ChunkUse::Whole,
    }
}

/// Reserves a window of `wanted`, of so many pairs at most; one that the memory pool refuses is
/// halved.
fn reserve_pairs(build: &BuildSide, memory: &ProbeMemory, most: usize, wanted: &mut LookupKind) {
    let pair_bytes = ProbeSpec::pair_bytes(build);
    let least = (FALLBACK_BYTES / pair_bytes).max(WINDOW_PAIRS_MIN);
    while let LookupKind::Pairs { window, .. } = *wanted {
        let bytes = pair_bytes * window.min(most);
        if memory.set_pairs(bytes) || !wanted.halve(least) {
            return;
        }
    }
}
