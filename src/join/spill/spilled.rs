//! The streams of a join whose sides are in spill partitions.
//!
//! ```text
//!  stream: queue ─ a pair, or a part of one ─▶ joined, in one pass or many, or partitioned again
//!          rows ─▶ in the order that the plan promises ─▶ output
//! ```

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::common::Result as DataFusionResult;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};

use crate::device::Placed;
use crate::error::{Error, Result};
use crate::join::decision::PartitionStorage;
use crate::join::input::buffered::BufferedInput;
use crate::join::input::build_batches::BuildBatches;
use crate::join::memory::of_rows;
use crate::join::prepare::{JoinContext, clone_for_stream};
use crate::join::side::Side;
use crate::join::sides::has_run_ends;

use super::multi_pass;
use super::order::promised;
use super::pairs::PairJoin;
use super::partition::PartitionPair;
use super::plan::{PartitionPlan, files_of, obstacle, partitions_on, queues_of};
use super::queue::{Lanes, PairInProgress, PairQueue, PairRows};

/// A join whose sides are in spill partitions.
pub struct Spilled {
    pairs: Arc<PairJoin>,
    lanes: Shared<BoxFuture<'static, Lanes>>,
    /// Streams that share a queue.
    streams: usize,
    /// Pairs that they join at once, if the rows are in memory.
    at_once: usize,
}

impl Spilled {
    /// Returns the join of two sides that were read as far as the memory pool allowed.
    ///
    /// # Errors
    /// The pool's `error`, if the session does not want joins to spill, or they cannot.
    pub fn new(node: JoinContext, readings: [BufferedInput; 2], error: Error) -> Result<Arc<Self>> {
        if let Some(advice) = obstacle(&node) {
            return Err(error.with_advice(advice));
        }
        log::debug!("a join goes to disk: {error}");
        let device_limit = node.config.memory_limit();
        Self::scattering(node, readings, PartitionStorage::Disk, 0, device_limit).map(Arc::new)
    }

    /// Returns the join of two sides for which the device has no room: the build `side`, which is
    /// there, and the streams of the other one.
    ///
    /// # Errors
    /// If DataFusion cannot make the join of a pair.
    pub fn in_memory(
        node: JoinContext,
        side: Side,
        build: BuildBatches,
        probe: Vec<SendableRecordBatchStream>,
        placed: &Placed,
    ) -> Result<Arc<Self>> {
        let device_limit = node.config.memory_limit().min(placed.budget().limit());
        let partitions = partitions_on(device_limit, &node, build.rows);
        log::debug!(
            "{} build rows go to {partitions} partitions in memory",
            build.rows
        );
        let width = node.context.session_config().target_partitions();
        let schemas = [node.planned.left().schema(), node.planned.right().schema()];
        let reading = |of: Side, streams| {
            let memory = of_rows(node.context.memory_pool(), node.partition, of);
            BufferedInput::new(Arc::clone(&schemas[of as usize]), streams, memory)
        };
        let build = build.into_streams(&schemas[side as usize], width);
        let (build, probe) = (reading(side, build), reading(side.other(), probe));
        let readings = match side {
            Side::Left => [build, probe],
            Side::Right => [probe, build],
        };
        let mut spilled = Self::scattering(
            node,
            readings,
            PartitionStorage::Memory,
            partitions,
            device_limit,
        )?;
        // Pairs are joined one after the other by all streams, or as many at once as devices.
        spilled.at_once = placed.among().all().len();
        Ok(Arc::new(spilled))
    }

    fn scattering(
        node: JoinContext,
        readings: [BufferedInput; 2],
        home: PartitionStorage,
        partitions: usize,
        device_limit: u64,
    ) -> Result<Self> {
        let planned = Arc::clone(&node.planned);
        let join = planned.builder().with_null_aware(false).with_fetch(None);
        let join = join.with_partition_mode(PartitionMode::CollectLeft);
        let node = JoinContext {
            planned: Arc::new(join.build()?),
            ..node
        };
        let metrics = SpillMetrics::new(&node.shown.metrics, node.partition);
        let files = [&readings[0], &readings[1]].map(|side| files_of(&node, side, &metrics));
        let scattering = PartitionPlan::of(&node, &planned, &files).at_home(home, partitions);
        let lanes = scattering.lanes(readings).map_ok(Arc::new);
        Ok(Self {
            at_once: 1,
            lanes: lanes.map_err(Arc::new).boxed().shared(),
            streams: match queues_of(&planned) {
                1 => planned.properties().output_partitioning().partition_count(),
                _ => 1,
            },
            pairs: Arc::new(PairJoin {
                node,
                planned,
                device_limit,
                files,
                next_partition: AtomicUsize::new(0),
            }),
        })
    }

    /// Returns the rows of stream `at`, which is the node's output partition `partition`.
    ///
    /// # Errors
    /// If the promised order cannot be restored.
    pub fn stream(
        self: &Arc<Self>,
        at: usize,
        partition: usize,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let spilled = Arc::clone(self);
        let opened = async move {
            let lanes = spilled.lanes.clone().await.map_err(clone_for_stream)?;
            let lane = at.min(lanes.len().saturating_sub(1));
            // The state is the pair whose rows are read.
            let pairs =
                futures::stream::try_unfold(None, move |read: Option<Arc<PairInProgress>>| {
                    let (spilled, lanes) = (Arc::clone(&spilled), Arc::clone(&lanes));
                    async move {
                        drop(read);
                        let joined = match lanes.get(lane) {
                            Some(lane) => spilled.next_joined(lane).await?,
                            None => None,
                        };
                        Ok::<_, DataFusionError>(joined.map(|(rows, begun)| (rows, Some(begun))))
                    }
                });
            Ok::<_, DataFusionError>(pairs.try_flatten())
        };
        let rows = futures::stream::once(opened).try_flatten();
        let schema = self.pairs.planned.schema();
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), rows.boxed());
        let node = &self.pairs.node;
        let planned = &self.pairs.planned;
        let rows = promised(planned, Box::pin(stream), &node.context, node.partition)?;
        let metrics = BaselineMetrics::new(&node.shown.metrics, partition);
        let rows = rows.map(move |batch| Ok(batch?.record_output(&metrics)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// Returns the rows of the next pair that has some, and the pair, which they are read with;
    /// `None` if none is left.
    async fn next_joined(
        &self,
        lane: &PairQueue,
    ) -> Result<Option<(SendableRecordBatchStream, Arc<PairInProgress>)>> {
        while let Some((begun, part)) = lane.take(|pair| self.begin(pair)) {
            let rows = begun.rows().await.map_err(clone_for_stream)?;
            let rows = match rows.as_ref() {
                PairRows::None => None,
                PairRows::Split(smaller) => {
                    lane.extend(std::mem::take(&mut *lock(smaller)));
                    None
                }
                PairRows::All(rows) => lock(rows).take(),
                PairRows::Parts(decided, _) => {
                    Some(decided.stream(part, self.pairs.node.partition)?)
                }
            };
            if let Some(rows) = rows {
                return Ok(Some((rows, begun)));
            }
        }
        Ok(None)
    }

    /// Begins to join `pair`.
    fn begin(&self, pair: PartitionPair) -> PairInProgress {
        let parts = if pair.is_in_memory() {
            self.streams.div_ceil(self.at_once)
        } else {
            1
        };
        let pairs = Arc::clone(&self.pairs);
        PairInProgress::new(parts, async move { join(&pairs, pair, parts).await })
    }
}

/// Returns the rows of `pair`, the probe side of which comes in `parts`. One that is too large is
/// partitioned again.
async fn join(pairs: &Arc<PairJoin>, pair: PartitionPair, parts: usize) -> Result<PairRows> {
    if pair.gives_nothing(*pairs.planned.join_type()) {
        return Ok(PairRows::None);
    }
    let build = if has_run_ends(&pairs.planned) {
        Side::Left
    } else {
        pair.smaller()
    };
    if let Some(rows) = pairs.build(&pair, build).await? {
        let probe = pairs.probing(&pair, build.other(), parts)?;
        if let Some(decided) = multi_pass::whole(pairs, &pair, build, rows, probe).await? {
            return Ok(match pair.home() {
                PartitionStorage::Memory => PairRows::Parts(decided, pair),
                PartitionStorage::Disk => {
                    let rows = decided.stream(0, pairs.node.partition)?;
                    PairRows::all(pair.held_by(rows))
                }
            });
        }
    } else if !pair.can_split(build) {
        return Ok(PairRows::all(multi_pass::in_parts(pairs, pair, build)));
    }
    Ok(PairRows::Split(Mutex::new(pairs.split(&pair).await?)))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
