//! Joins of which neither side fits into memory.
//!
//! ```text
//!  left side  ─▶ scatter ─▶ buckets 0 … 15 ┐ by a hash of the keys, in temporary files
//!  right side ─▶ scatter ─▶ buckets 0 … 15 ┘
//!
//!  streams: take a pair of buckets ─▶ its smaller side fits ─▶ joined as any join (decide)
//!                                   ├▶ too large            ─▶ scattered again, by another hash
//!                                   └▶ that did not help    ─▶ passes: as many rows as fit at a time
//! ```
//!
//! A Grace hash join (Kitsuregawa, Tanaka and Moto-oka 1983), begun only when DataFusion's memory pool
//! refuses what is read: a join that fits costs nothing more. Rows with equal keys are in one pair, so
//! each pair is a join of its own, on the device or on the host, and the join types need no care. Both
//! sides of a pair are known, so the smaller one is built, whatever the plan said. Streams of one
//! join take pairs from one list and wait for nobody: a consumer may read one stream to its end before
//! the next. Only where the plan promises that a stream keeps its partition's rows, or follows two orders
//! at once, each has a list of its own (a lane).
//!
//! DataFusion's `SpillManager` writes the files and its `DiskManager` deletes them when they are let go. A
//! sort-merge join instead would need keys that sort, and has no NOT IN.

mod bucket;
mod order;
mod passes;
mod scatter;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::Result as DataFusionResult;
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, SpillManager,
};
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};

use crate::error::{Error, Result};

use super::decide::{At, Node, for_another};
use super::parts::side_by_side;
use super::reading::{Reading, Turn};
use super::sides::Side;

use bucket::{Bucket, Pair};
use order::promised;
use scatter::{NullKeys, Scatter, ScatterSpec, Scattered, buckets};

/// A join whose sides are in buckets.
pub struct Spilled {
    node: Node,
    /// The join as planned: `node` has one for buckets.
    planned: Arc<HashJoinExec>,
    lanes: Shared<BoxFuture<'static, Lanes>>,
    /// What writes and reads files of the left and of the right side.
    managers: [SpillManager; 2],
    next_bucket: AtomicUsize,
}

/// The pairs of all streams, or the one error of scattering.
type Lanes = Result<Arc<Vec<Lane>>, Arc<Error>>;

/// Pairs that are still to be joined. Streams share one, or have one each.
type Lane = Mutex<Vec<Pair>>;

impl Spilled {
    /// The join of two sides that were read as far as the memory pool allowed.
    ///
    /// # Errors
    /// The pool's `error`, if the session does not want joins to spill, or they cannot.
    pub fn new(node: Node, readings: [Reading; 2], error: Error) -> Result<Arc<Self>> {
        if let Some(advice) = obstacle(&node) {
            return Err(error.with_advice(advice));
        }
        log::debug!("a join goes to disk: {error}");
        let planned = Arc::clone(&node.planned);
        let join = planned.builder().with_null_aware(false).with_fetch(None);
        let join = join.with_partition_mode(PartitionMode::CollectLeft);
        let node = Node {
            planned: Arc::new(join.build()?),
            ..node
        };
        let metrics = SpillMetrics::new(&node.shown.metrics, node.partition);
        let managers = [&readings[0], &readings[1]].map(|side| manager_of(&node, side, &metrics));
        let scattering = Scattering {
            specs: Side::BOTH.map(|side| spec(&node, &planned, &managers, side)),
            own_lanes: keeps_partitions(&planned),
            null_aware: planned.null_aware,
            width: node.context.session_config().target_partitions(),
        };
        let lanes = scattering.lanes(readings).map_ok(Arc::new);
        Ok(Arc::new(Self {
            lanes: lanes.map_err(Arc::new).boxed().shared(),
            node,
            planned,
            managers,
            next_bucket: AtomicUsize::new(0),
        }))
    }

    /// The rows of stream `at`, which is the node's output partition `partition`.
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
            let lanes = spilled.lanes.clone().await.map_err(for_another)?;
            let lane = at.min(lanes.len().saturating_sub(1));
            let pairs = futures::stream::try_unfold((), move |()| {
                let (spilled, lanes) = (Arc::clone(&spilled), Arc::clone(&lanes));
                async move {
                    let joined = match lanes.get(lane) {
                        Some(lane) => spilled.next_joined(lane).await?,
                        None => None,
                    };
                    Ok::<_, DataFusionError>(joined.map(|stream| (stream, ())))
                }
            });
            Ok::<_, DataFusionError>(pairs.try_flatten())
        };
        let rows = futures::stream::once(opened).try_flatten();
        let schema = self.planned.schema();
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), rows.boxed());
        let node = &self.node;
        let rows = promised(
            &self.planned,
            Box::pin(stream),
            (&node.context, node.partition),
        )?;
        let metrics = BaselineMetrics::new(&node.shown.metrics, partition);
        let rows = rows.map(move |batch| Ok(batch?.record_output(&metrics)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// The rows of the next pair that has some; `None` if none is left.
    async fn next_joined(
        self: &Arc<Self>,
        lane: &Lane,
    ) -> Result<Option<SendableRecordBatchStream>> {
        while let Some(pair) = pop(lane) {
            if let Some(joined) = self.join(pair, lane).await? {
                return Ok(Some(joined));
            }
        }
        Ok(None)
    }

    /// The rows of a pair. One that is too large is scattered again, into `lane`.
    async fn join(
        self: &Arc<Self>,
        pair: Pair,
        lane: &Lane,
    ) -> Result<Option<SendableRecordBatchStream>> {
        if pair.gives_nothing(*self.planned.join_type()) {
            return Ok(None);
        }
        let build = pair.smaller();
        let mut reading = self.reading(&pair, build)?;
        if self.fits(&pair, build, &mut reading).await? {
            let stream = passes::whole(self, &pair, build, reading).await?;
            return Ok(Some(stream));
        }
        drop(reading);
        match pair.can_split(build) {
            true => {
                let pairs = self.split(&pair).await?;
                lane.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(pairs);
                Ok(None)
            }
            false => Ok(Some(passes::in_parts(self, pair, build))),
        }
    }

    /// Whether all rows of the build side are there now.
    async fn fits(&self, pair: &Pair, build: Side, reading: &mut Reading) -> Result<bool> {
        // Asked first: what cannot fit need not be read.
        if !reading.has_room(pair.bucket(build).rows, pair.bucket(build).bytes) {
            return Ok(false);
        }
        match reading.turn(usize::MAX).await? {
            Turn::Ended => Ok(true),
            Turn::Failed => Err(reading.lost()),
            _ => Ok(false),
        }
    }

    /// A side of a pair, not read yet.
    fn reading(&self, pair: &Pair, side: Side) -> Result<Reading> {
        let manager = &self.managers[side as usize];
        let stream = pair.bucket(side).stream(manager)?;
        let pool = self.node.context.memory_pool();
        let memory = super::memory::of_rows(pool, self.node.partition, side);
        let schema = Arc::clone(manager.schema());
        Ok(Reading::new(schema, vec![stream], memory))
    }

    /// The pairs of a pair, by another hash.
    async fn split(&self, pair: &Pair) -> Result<Vec<Pair>> {
        let level = pair.level + 1;
        let spec = |side| spec(&self.node, &self.planned, &self.managers, side).at_level(level);
        let streams = |side| Ok::<_, Error>(self.reading(pair, side)?.into_streams());
        let left = scatter_all(spec(Side::Left), streams(Side::Left)?, 1).await?;
        let right = scatter_all(spec(Side::Right), streams(Side::Right)?, 1).await?;
        Ok(pairs_of(&left, &right, level))
    }

    fn next_at(&self) -> At {
        let bucket = self.next_bucket.fetch_add(1, Ordering::Relaxed);
        self.node.at(Some(bucket))
    }
}

/// What writes and reads files of rows of `side`; `None` if the join cannot go to disk.
pub fn manager(node: &Node, side: &Reading) -> Option<SpillManager> {
    let metrics = || SpillMetrics::new(&node.shown.metrics, node.partition);
    (obstacle(node).is_none()).then(|| manager_of(node, side, &metrics()))
}

fn manager_of(node: &Node, side: &Reading, metrics: &SpillMetrics) -> SpillManager {
    let runtime = node.context.runtime_env();
    let manager = SpillManager::new(runtime, metrics.clone(), Arc::clone(side.schema()));
    manager.with_compression_type(node.context.session_config().spill_compression())
}

fn pop(lane: &Lane) -> Option<Pair> {
    lane.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Why a join cannot go to disk, and what to do.
fn obstacle(node: &Node) -> Option<&'static str> {
    let inputs = [node.planned.left(), node.planned.right()];
    if !node.config.spill {
        return Some("SET horton.spill = true lets the join go to disk");
    }
    if inputs.into_iter().any(|i| i.boundedness().is_unbounded()) {
        return Some("the join cannot go to disk, as an input has no end");
    }
    if !node.context.runtime_env().disk_manager.tmp_files_enabled() {
        return Some(
            "the join could go to disk if the session's DiskManager allowed temporary files",
        );
    }
    None
}

/// How a side of `node`, which was `planned`, is scattered at the first level.
fn spec(
    node: &Node,
    planned: &HashJoinExec,
    managers: &[SpillManager; 2],
    side: Side,
) -> ScatterSpec {
    use JoinType::{Full, Left, LeftAnti, LeftMark, Right, RightAnti, RightMark};
    let emits = match side {
        Side::Left => matches!(planned.join_type(), Left | Full | LeftAnti | LeftMark),
        Side::Right => matches!(planned.join_type(), Right | Full | RightAnti | RightMark),
    };
    let null_keys = match (planned.null_equality(), emits) {
        (NullEquality::NullEqualsNull, _) => NullKeys::Match,
        (_, _) if planned.null_aware => NullKeys::Apart,
        (_, true) => NullKeys::Spread,
        (_, false) => NullKeys::Drop,
    };
    let streams = planned.properties().output_partitioning();
    ScatterSpec {
        keys: keys(planned, side),
        null_keys,
        buckets: buckets(streams.partition_count()),
        level: 0,
        manager: managers[side as usize].clone(),
        batch_size: node.context.session_config().batch_size(),
        memory: super::memory::of_buckets(node.context.memory_pool(), node.partition, side),
    }
}

/// The key expressions of a side.
fn keys(planned: &HashJoinExec, side: Side) -> Vec<PhysicalExprRef> {
    let key = |(left, right): &(PhysicalExprRef, PhysicalExprRef)| match side {
        Side::Left => Arc::clone(left),
        Side::Right => Arc::clone(right),
    };
    planned.on().iter().map(key).collect()
}

/// Whether the plan promises that an output partition has the rows of one probe partition alone, or two
/// orders at once, which rows of several partitions may not follow.
fn keeps_partitions(planned: &HashJoinExec) -> bool {
    let properties = planned.properties();
    let by_keys = matches!(
        properties.output_partitioning(),
        Partitioning::Hash(..) | Partitioning::Range(..)
    );
    let orders = properties.equivalence_properties().oeq_class().len();
    *planned.partition_mode() == PartitionMode::CollectLeft && (by_keys || orders > 1)
}

/// How both sides become pairs of buckets.
struct Scattering {
    specs: [ScatterSpec; 2],
    own_lanes: bool,
    null_aware: bool,
    width: usize,
}

impl Scattering {
    async fn lanes(self, [left, right]: [Reading; 2]) -> Result<Vec<Lane>> {
        let [left_spec, right_spec] = &self.specs;
        let left = scatter_all(left_spec.again(), left.into_streams(), self.width).await?;
        let right = right.into_streams();
        let groups: Vec<Vec<_>> = match self.own_lanes {
            true => right.into_iter().map(|stream| vec![stream]).collect(),
            false => vec![right],
        };
        let mut lanes = Vec::with_capacity(groups.len());
        for streams in groups {
            let right = scatter_all(right_spec.again(), streams, self.width).await?;
            lanes.push(Mutex::new(self.pairs(&left, &right)));
        }
        Ok(lanes)
    }

    /// The pairs that the join's rows come of.
    fn pairs(&self, left: &Scattered, right: &Scattered) -> Vec<Pair> {
        if !self.null_aware {
            return pairs_of(left, right, 0);
        }
        // NOT IN: a NULL on the right decides for no row, and a NULL on the left is in no list but
        // the empty one.
        match (right.nulls.rows, right.rows()) {
            (1.., _) => Vec::new(),
            (0, 0) => {
                let nulls = Pair::new(Arc::clone(&left.nulls), Arc::clone(&right.nulls), 0);
                let mut pairs = pairs_of(left, right, 0);
                pairs.extend((!nulls.is_empty()).then_some(nulls));
                pairs
            }
            _ => pairs_of(left, right, 0),
        }
    }
}

/// Scatters all `streams` of a side, `width` at a time.
async fn scatter_all(
    spec: ScatterSpec,
    streams: Vec<SendableRecordBatchStream>,
    width: usize,
) -> Result<Scattered> {
    let scatter = Arc::new(Scatter::new(spec));
    side_by_side(streams, width, |stream| {
        let scatter = Arc::clone(&scatter);
        async move { scatter.add(stream).await }
    })
    .await?;
    scatter.finish().await
}

/// The pairs of two sides.
fn pairs_of(left: &Scattered, right: &Scattered, level: u64) -> Vec<Pair> {
    let sizes = [left.bytes(), right.bytes()];
    let pairs = left.buckets.iter().zip(&right.buckets);
    let pair = |(left, right): (&Arc<Bucket>, &Arc<Bucket>)| {
        Pair::new(Arc::clone(left), Arc::clone(right), level).of(sizes)
    };
    let pairs = pairs.map(pair).filter(|pair| !pair.is_empty());
    pairs.collect()
}
