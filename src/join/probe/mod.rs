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
//! chunk, the next is gathered and encoded. The first chunk is small, unless the input is quick.
//! Those after it have as many rows as come out in a short time. Where the join itself has a LIMIT,
//! the answer of the first is awaited. Streams that share the probe side share its chunks, too:
//! each emits a part.
//!
//! The states are here. Each of the two ways is a type of its own, and knows nothing of the other:
//!
//! ```text
//!  Probe ─┬▶ ChunkLookups ─▶ ChunkGatherer ─▶ ProbeInput     batches in, answered chunks out
//!         └▶ ProbeOutput                                     results in, output batches out
//! ```
//!
//! * `gather`: batches become chunks, of a size that `chunk_sizing` says
//! * `lookup`: how chunks come and go, and what is done if a device has no room or fails
//! * `chunk_queue`: chunks in flight and answered, of one stream or of several
//! * `send`: keys go to the engine that answers; `host_lookup`: that is the host
//! * `visits`: which build rows a device found
//! * `output`: results become rows

pub mod chunk;
mod chunk_queue;
mod chunk_sizing;
mod gather;
mod host_lookup;
mod input;
mod lookup;
mod output;
mod send;
mod spec;
mod visits;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::coalesce::PushBatchStatus;
use datafusion::physical_plan::metrics::RecordOutput;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::error::{Error, Result};

use super::build_side::build_output::{Batches, Role};
use super::build_side::side::BuildSide;
use super::memory::ProbeMemory;
use super::metrics::JoinMetrics;

pub use chunk_queue::ChunkQueue;
pub use spec::ProbeSpec;

use chunk::Chunk;
use gather::ChunkGatherer;
use input::ProbeInput;
use lookup::{ChunkLookups, Next};
use output::ProbeOutput;
use visits::collect_visits;

/// Steps without an output batch, after which a stream yields.
const STEPS: usize = 64;

/// The state of a probe stream.
enum ProbeState {
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
    state: ProbeState,
    lookups: ChunkLookups,
    output: ProbeOutput,
    metrics: JoinMetrics,
}

impl Probe {
    /// Returns a stream over `input`, partition `partition` of the probe side, the keys of which
    /// are looked up in the table of `build`. Its chunks are in `queue`.
    pub fn new(
        (spec, build): (Arc<ProbeSpec>, Arc<BuildSide>),
        (partition, input): (usize, SendableRecordBatchStream),
        queue: Arc<ChunkQueue>,
        memory: ProbeMemory,
        metrics: JoinMetrics,
    ) -> Self {
        let input = ProbeInput::new(input, metrics.clone());
        let gatherer = ChunkGatherer::new(Arc::clone(&spec), input, memory, metrics.clone());
        let join_type = spec.join_type;
        let nothing = (build.rows().is_empty()
            && join_type.empty_build_side_produces_empty_result())
            || (!build.can_match() && join_type.empty_map_produces_empty_result());
        Self {
            lookups: ChunkLookups::new(
                Arc::clone(&spec),
                &build,
                gatherer,
                (queue, partition),
                metrics.clone(),
            ),
            output: ProbeOutput::new(Arc::clone(&spec), metrics.clone()),
            spec,
            partition,
            state: if nothing {
                ProbeState::Done
            } else {
                ProbeState::Fetch(build)
            },
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
            if let Some(batch) = self.output.next_batch() {
                return Ok(Some(batch));
            }
            self.state = match std::mem::replace(&mut self.state, ProbeState::Ended) {
                ProbeState::Fetch(build) => self.fetch(build).await?,
                ProbeState::Emit(build, chunk) => self.emit(build, chunk).await?,
                ProbeState::Unmatched(build, batches, rows) => {
                    self.emit_unmatched(build, batches, rows)?
                }
                ProbeState::Done => {
                    self.lookups.close();
                    self.output.finish()?;
                    ProbeState::Ended
                }
                ProbeState::Ended => return Ok(None),
            };
            // A residual filter can drop all pairs of many steps.
            steps += 1;
            if steps % STEPS == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Keeps the device busy and waits for a chunk that it has answered.
    async fn fetch(&mut self, build: Arc<BuildSide>) -> Result<ProbeState> {
        if let Some(visited) = build.visited() {
            visited.output().note_progress();
        }
        self.lookups.fill(&build).await?;
        match self.lookups.next(&build).await? {
            Next::Emit(chunk) => Ok(ProbeState::Emit(build, Box::new(chunk))),
            Next::Again => Ok(ProbeState::Fetch(build)),
            Next::End => self.end_probe(build).await,
        }
    }

    /// Emits what comes next of a chunk, once its pairs are here.
    async fn emit(&mut self, build: Arc<BuildSide>, mut chunk: Box<Chunk>) -> Result<ProbeState> {
        if self.returns_nothing(&build) {
            return Ok(ProbeState::Fetch(build));
        }
        while let Some(first) = self.output.missing_pair(&chunk) {
            self.lookups.fetch_window(&build, &mut chunk, first).await?;
        }
        Ok(match self.output.emit(&build, &mut chunk)? {
            None => {
                self.lookups.note_output(chunk.rows, chunk.began.elapsed());
                ProbeState::Fetch(build)
            }
            Some(PushBatchStatus::Continue) => ProbeState::Emit(build, chunk),
            Some(PushBatchStatus::LimitReached) => ProbeState::Done,
        })
    }

    /// Returns whether the join is a NOT IN whose other side has a NULL: it returns nothing at all.
    fn returns_nothing(&self, build: &BuildSide) -> bool {
        self.spec.null_aware && build.null_aware().null()
    }

    /// Ends the probe: finds out which part of the build output this stream emits.
    async fn end_probe(&mut self, build: Arc<BuildSide>) -> Result<ProbeState> {
        let returns_nothing = self.returns_nothing(&build);
        let Some(visited) = build.visited().filter(|_| !returns_nothing) else {
            return Ok(ProbeState::Done);
        };
        let mut role = visited.output().end(self.partition).await;
        if role == Role::Leader {
            collect_visits(&build, &self.metrics).await?;
            role = visited.output().begin_output(self.partition);
            // As in `HashJoinExec`, the build output counts as one more input batch.
            self.metrics.input_batches.add(1);
        }
        Ok(match role {
            Role::Helper(batches) => ProbeState::Unmatched(build, batches, 0..0),
            Role::None | Role::Leader => ProbeState::Done,
        })
    }

    /// Emits up to a batch of the build output. Its rows are left in `rows`, or of the next of
    /// `batches`.
    fn emit_unmatched(
        &mut self,
        build: Arc<BuildSide>,
        mut batches: Batches,
        rows: Range<u32>,
    ) -> Result<ProbeState> {
        let Some(visited) = build.visited() else {
            return Ok(ProbeState::Done);
        };
        let rows = if rows.is_empty() {
            match batches.take(build.rows().batches().len()) {
                Some(batch) => build.rows().rows_of(batch),
                None => return Ok(ProbeState::Done),
            }
        } else {
            rows
        };
        let (rest, status) = self.output.emit_build_rows(&build, visited.rows(), rows)?;
        Ok(match status {
            PushBatchStatus::Continue => ProbeState::Unmatched(build, batches, rest),
            PushBatchStatus::LimitReached => ProbeState::Done,
        })
    }
}
