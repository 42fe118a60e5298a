//! The stream of one probe partition.
//!
//! ```text
//!     ┌──────────── chunk used up ───────────┐
//!     ▼                                      │
//!   Fetch ── chunk looked up ──▶ Emit ───────┘
//!     └── input ended ──▶ Unmatched ──▶ Done ── output flushed ──▶ Ended
//!                  nothing can come of it ─▶ Done
//!
//!   input ──▶ gathered, encoded ──▶ [in flight] [in flight] ──▶ answered, resolved ──▶ output
//! ```
//!
//! A device wants many keys at a time, so probe batches are gathered into chunks. The batches of a
//! chunk are then resolved one by one, in order. A chunk ends at a number of rows or of bytes, or
//! where the memory pool refuses more ([`memory`](super::memory)). While the device works on one
//! chunk, the next is gathered and encoded. The first chunk is a quarter of a chunk. Where the join
//! itself has a LIMIT it is a few batches, of which the answer is awaited. Each is larger than the
//! one before.
//!
//! The device's answers come through a channel. A stream that waits for them blocks no thread, and
//! dropping it cancels the lookups that have not begun.
//!
//! A chunk that the device has no room for waits for others to give memory back, and is split if
//! they do not. If the device has no room even then, or fails, another device that has the table,
//! or gets it, looks the keys up. If there is none, the host does
//! ([`failover`](crate::join::lookup::failover)): from the chunk's first batch, or from its next
//! pair.
//!
//! The states are here. `input` is read, `lookup` hands chunks to the device, `output` makes rows
//! of the results.

pub mod chunk;
mod chunk_sizing;
mod input;
mod lookup;
mod output;
mod spec;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::coalesce::LimitedBatchCoalescer;
use datafusion::physical_plan::metrics::RecordOutput;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use futures::future::BoxFuture;

use crate::device::Answer;
use crate::error::{Error, Result};

use super::build_side::build_output::Batches;
use super::build_side::replicate::{fail_over, replicate};
use super::build_side::side::BuildSide;
use super::memory::ProbeMemory;
use super::metrics::JoinMetrics;
use crate::join::lookup::result::{ChunkPosition, LookupKind, LookupResult};
use crate::join::lookup::table::JoinTable;
use crate::join::probe::chunk::{Chunk, ProbeBatch};

pub use spec::ProbeSpec;

use chunk_sizing::ChunkSizing;
use input::ProbeInput;

/// Chunks that a stream has on the device at once.
const IN_FLIGHT: usize = 2;

/// Steps without an output batch, after which a stream yields.
const STEPS: usize = 64;

/// Pairs of a window that is not halved again.
const WINDOW_PAIRS_MIN: usize = 64;

/// A chunk on its way through the device.
struct LookupInFlight {
    batches: VecDeque<ProbeBatch>,
    memory: ProbeMemory,
    wanted: LookupKind,
    /// The table that is asked; `None` for the host's, or if no row can match.
    table: Option<Arc<JoinTable>>,
    answer: BoxFuture<'static, Result<Answer<LookupResult>>>,
}

/// The reason why a chunk was not sent.
struct Refused {
    /// The table whose device had no room; `None` if the error is of another kind.
    table: Option<Arc<JoinTable>>,
    error: Error,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { table: None, error }
    }
}

enum State {
    Fetch(Arc<BuildSide>),
    Emit(Arc<BuildSide>, Box<Chunk>),
    Unmatched(Arc<BuildSide>, Batches, Range<u32>),
    Done,
    Ended,
}

/// One partition's probe.
pub struct Probe {
    spec: Arc<ProbeSpec>,
    /// Number of the probe side's partition.
    partition: usize,
    input: ProbeInput,
    state: State,
    in_flight: VecDeque<LookupInFlight>,
    wanted: LookupKind,
    output: LimitedBatchCoalescer,
    sizing: ChunkSizing,
    /// True once a chunk was answered, or if the join has no LIMIT.
    is_answered: bool,
    /// The stream's reservation, from which chunks have theirs.
    memory: ProbeMemory,
    metrics: JoinMetrics,
}

impl Probe {
    /// Returns a stream over `input`, partition `partition` of the probe side, the keys of which
    /// are looked up in the table of `build`.
    pub fn new(
        spec: Arc<ProbeSpec>,
        build: Arc<BuildSide>,
        (partition, input): (usize, SendableRecordBatchStream),
        memory: ProbeMemory,
        metrics: JoinMetrics,
    ) -> Self {
        let output = LimitedBatchCoalescer::new(
            Arc::clone(&spec.output.schema),
            spec.batch_size,
            spec.fetch,
        );
        let chunk_rows = spec.most_chunk_rows(&build);
        let limited_batch = spec.fetch.is_some().then_some(spec.batch_size);
        let sizing = ChunkSizing::new(chunk_rows, spec.most_bytes(chunk_rows), limited_batch);
        let join_type = spec.join_type;
        let nothing = (build.rows().is_empty()
            && join_type.empty_build_side_produces_empty_result())
            || (!build.can_match() && join_type.empty_map_produces_empty_result());
        Self {
            wanted: spec.wanted(&build),
            sizing,
            is_answered: spec.fetch.is_none(),
            memory,
            spec,
            partition,
            input: ProbeInput::new(input, metrics.clone()),
            state: if nothing {
                State::Done
            } else {
                State::Fetch(build)
            },
            in_flight: VecDeque::new(),
            output,
            metrics,
        }
    }

    /// Returns the output batches as a stream.
    pub fn into_stream(self) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.spec.output.schema);
        let metrics = self.metrics.clone();
        let stream = futures::stream::unfold(Some(self), |probe| async move {
            let mut probe = probe?;
            match probe.next().await {
                Ok(batch) => batch.map(|batch| (Ok(batch), Some(probe))),
                // After an error the stream has ended: nothing partial follows.
                Err(error) => Some((Err(Error::into(error)), None)),
            }
        });
        let stream = stream.map(move |batch| batch.record_output(&metrics.baseline));
        Box::pin(RecordBatchStreamAdapter::new(schema, stream))
    }

    /// Returns the next output batch.
    ///
    /// # Errors
    /// The inputs', the residual filter's, the device's.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let mut steps = 0;
        loop {
            if let Some(batch) = self.output.next_completed_batch() {
                return Ok(Some(batch));
            }
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::Fetch(build) => self.fetch(build).await?,
                State::Emit(build, chunk) => self.emit(build, chunk).await?,
                State::Unmatched(build, batches, rows) => {
                    self.emit_unmatched(build, batches, rows).await?
                }
                State::Done => {
                    self.input.close();
                    self.in_flight.clear();
                    self.output.finish()?;
                    State::Ended
                }
                State::Ended => return Ok(None),
            };
            // A residual filter can drop all pairs of many steps.
            steps += 1;
            if steps % STEPS == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Keeps the device busy and waits for the first of the chunks it has.
    async fn fetch(&mut self, build: Arc<BuildSide>) -> Result<State> {
        if let Some(visited) = build.visited() {
            visited.owed().go_on();
        }
        while self.in_flight.len() < self.most_in_flight() && self.input.has_more() {
            let Some(gathered) = self.gather(&build).await? else {
                break;
            };
            let batches: Vec<_> = gathered.batches().collect();
            let rows = batches.iter().map(RecordBatch::num_rows).sum();
            match self.lookup(&build, gathered).await {
                Ok(lookup) => self.in_flight.push_back(lookup),
                Err(Refused { table, error }) => {
                    let table = table.as_deref();
                    self.retry_smaller(&build, table, error, rows, batches)
                        .await?;
                }
            }
        }
        let Some(lookup) = self.in_flight.pop_front() else {
            return self.end_probe(build).await;
        };
        let mut table = lookup.table;
        let found = match lookup.answer.await {
            Ok(answer) => {
                self.is_answered = true;
                self.metrics.add_cost(&answer.cost);
                if table.is_some() {
                    self.sizing.note_answered();
                    self.keep_visits(&build, &lookup.batches).await?;
                    if self.spec.may_replicate && build.tables().press(&answer.cost) {
                        replicate(&build, &self.metrics).await?;
                    }
                }
                answer.value
            }
            Err(error) if error.is_device_memory() => {
                let rows = lookup.batches.iter().map(|b| b.batch.num_rows()).sum();
                let batches = self.with_in_flight(lookup.batches);
                self.retry_smaller(&build, table.as_deref(), error, rows, batches)
                    .await?;
                return Ok(State::Fetch(build));
            }
            Err(error) => {
                self.fail_over(&build, table.take().as_deref(), error)
                    .await?;
                if build.tables().answering().is_some() {
                    // Another device has the table. Chunks come in order, so all of them go back.
                    let batches = self.with_in_flight(lookup.batches);
                    self.put_back(batches);
                    return Ok(State::Fetch(build));
                }
                self.lookup_again(&build, &lookup.batches, ChunkPosition::default())
                    .await?
                    .found(lookup.wanted)
            }
        };
        if let Some(buckets) = found.buckets_read {
            self.metrics.add_lookups(found.keys, buckets);
        }
        let pairs = found.window.len * ProbeSpec::pair_bytes(&build);
        lookup.memory.keep_pairs(pairs);
        let chunk = Chunk::new(lookup.batches, lookup.memory, found, self.wanted, table);
        Ok(State::Emit(build, Box::new(chunk)))
    }

    /// Returns how many chunks may be on the device at once.
    fn most_in_flight(&self) -> usize {
        // An unbounded input may not go on before its rows are answered, and the first rows may be
        // all that is wanted.
        if self.spec.whole_chunks && self.is_answered && !self.sizing.is_memory_short() {
            IN_FLIGHT
        } else {
            1
        }
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
        self.put_back(batches);
        Ok(())
    }

    /// Returns the rows of `batches`, and of all chunks in flight behind them, which are given up.
    fn with_in_flight(&mut self, batches: VecDeque<ProbeBatch>) -> Vec<RecordBatch> {
        let later = self.in_flight.drain(..).flat_map(|lookup| lookup.batches);
        let all = batches.into_iter().chain(later);
        all.map(|probe| probe.batch).collect()
    }

    /// Makes `batches` come next.
    fn put_back(&mut self, batches: Vec<RecordBatch>) {
        let last_first = batches.into_iter().rev();
        last_first.for_each(|batch| self.input.put_back(batch));
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
}
