//! Joins of which neither side fits into memory, or the build side not on the device.
//!
//! ```text
//!  left side  ─▶ scatter ─▶ buckets 0, 1, … ┐ by a hash of the keys, in temporary files,
//!  right side ─▶ scatter ─▶ buckets 0, 1, … ┘ or in memory if only the device is too small
//!
//!  streams: take a pair of buckets ─▶ its smaller side fits ─▶ joined as any join (decide)
//!                                   ├▶ too large            ─▶ scattered again, by another hash
//!                                   └▶ that did not help    ─▶ passes: as many rows as fit at a time
//! ```
//!
//! A Grace hash join (Kitsuregawa, Tanaka and Moto-oka 1983), begun only when DataFusion's memory pool
//! refuses what is read, or the device a table: a join that fits costs nothing more. Rows with equal
//! keys are in one pair, so each pair is a join of its own, on the device or on the host, and the join
//! types need no care. Both sides of a pair are known, so the smaller one is built, whatever the plan
//! said. Streams of one join take pairs from one list, and join one in memory together, each a part of
//! its probe side. No stream waits for rows of another: a consumer may read one to its end before the
//! next. Only where the plan promises that a stream keeps its partition's rows, or follows two
//! orders at once, each has a list of its own (a lane).
//!
//! DataFusion's `SpillManager` writes the files and its `DiskManager` deletes them when they are let go.
//! A sort-merge join instead would need keys that sort, and has no NOT IN.

mod bucket;
mod order;
mod passes;
mod scatter;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::datatypes::SchemaRef;
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

use crate::config::Enabled;
use crate::device::Device;
use crate::error::{Error, Result};

use super::decide::{At, Decided, Home, Node, for_another};
use super::joined::has_dictionary;
use super::parts::side_by_side;
use super::reading::{Collected, Reading, Turn};
use super::sides::Side;

use bucket::{Bucket, Pair};
use order::promised;
use scatter::{LEAST_BUCKETS, NullKeys, Scatter, ScatterSpec, Scattered, buckets, most_in_memory};

/// A join whose sides are in buckets.
pub struct Spilled {
    node: Node,
    /// The join as planned: `node` has one for buckets.
    planned: Arc<HashJoinExec>,
    lanes: Shared<BoxFuture<'static, Lanes>>,
    /// Streams that share a lane.
    streams: usize,
    /// Bytes that joins may take on the device.
    device_limit: u64,
    /// What writes and reads files of the left and of the right side.
    managers: [SpillManager; 2],
    next_bucket: AtomicUsize,
}

/// The pairs of all streams, or the one error of scattering.
type Lanes = Result<Arc<Vec<Lane>>, Arc<Error>>;

/// Pairs that are still to be joined. Streams share one, or have one each.
#[derive(Default)]
struct Lane(Mutex<Waiting>);

/// What a lane's streams take next.
#[derive(Default)]
struct Waiting {
    /// The last is taken first.
    pairs: Vec<Pair>,
    /// A pair of which parts of the probe side are left, and the first of those. Who took one before
    /// holds it until it takes another: held here, its future would keep what it is a part of.
    begun: Option<(Weak<Begun>, usize)>,
}

/// A pair that streams join together, each a part of its probe side.
struct Begun {
    parts: usize,
    rows: Shared<BoxFuture<'static, Result<Arc<Rows>, Arc<Error>>>>,
}

/// The rows of a pair.
enum Rows {
    /// There are none, or they come of smaller pairs.
    None,
    /// All of them.
    All(Mutex<Option<SendableRecordBatchStream>>),
    /// Those of each part, while the pair's memory is held.
    Parts(
        Decided,
        #[expect(dead_code, reason = "its rows are reserved while it is there")] Pair,
    ),
}

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
        let device_limit = node.config.memory_limit();
        Self::scattering(node, readings, (Home::Disk, 0), device_limit)
    }

    /// The join of two sides for which the device has no room: the build `side`, which is there, and
    /// the streams of the other one.
    ///
    /// # Errors
    /// If DataFusion cannot make the join of buckets.
    pub fn in_memory(
        node: Node,
        (side, build, probe): (Side, Collected, Vec<SendableRecordBatchStream>),
        device: &Device,
    ) -> Result<Arc<Self>> {
        let device_limit = node.config.memory_limit().min(device.budget().limit());
        let buckets = buckets_on(device_limit, &node, build.rows);
        log::debug!(
            "{} build rows go to {buckets} buckets in memory",
            build.rows
        );
        let width = node.context.session_config().target_partitions();
        let schemas = [node.planned.left().schema(), node.planned.right().schema()];
        let reading = |of: Side, streams| {
            let memory = super::memory::of_rows(node.context.memory_pool(), node.partition, of);
            Reading::new(Arc::clone(&schemas[of as usize]), streams, memory)
        };
        let build = build.into_streams(&schemas[side as usize], width);
        let (build, probe) = (reading(side, build), reading(side.other(), probe));
        let readings = match side {
            Side::Left => [build, probe],
            Side::Right => [probe, build],
        };
        Self::scattering(node, readings, (Home::Memory, buckets), device_limit)
    }

    fn scattering(
        node: Node,
        readings: [Reading; 2],
        (home, in_memory): (Home, usize),
        device_limit: u64,
    ) -> Result<Arc<Self>> {
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
            specs: Side::BOTH.map(|side| {
                let spec = spec(&node, &planned, &managers, side);
                match home {
                    Home::Disk => spec,
                    Home::Memory => spec.at_home(home, in_memory),
                }
            }),
            own_lanes: keeps_partitions(&planned),
            null_aware: planned.null_aware,
            width: node.context.session_config().target_partitions(),
        };
        let lanes = scattering.lanes(readings).map_ok(Arc::new);
        Ok(Arc::new(Self {
            lanes: lanes.map_err(Arc::new).boxed().shared(),
            streams: match lanes_of(&planned) {
                1 => planned.properties().output_partitioning().partition_count(),
                _ => 1,
            },
            device_limit,
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
            let pairs = futures::stream::try_unfold(None, move |begun| {
                let (spilled, lanes) = (Arc::clone(&spilled), Arc::clone(&lanes));
                async move {
                    let joined = spilled.next_joined(&lanes, lane, begun).await?;
                    Ok::<_, DataFusionError>(joined.map(|(rows, begun)| (rows, Some(begun))))
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
        lanes: &Arc<Vec<Lane>>,
        lane: usize,
        mut last: Option<Arc<Begun>>,
    ) -> Result<Option<(SendableRecordBatchStream, Arc<Begun>)>> {
        while let Some((begun, part)) = self.take(lanes, lane) {
            // Not before: of the last pair parts may be left.
            last.replace(Arc::clone(&begun));
            let rows = begun.rows.clone().await.map_err(for_another)?;
            let rows = match rows.as_ref() {
                Rows::None => None,
                Rows::All(rows) => rows.lock().unwrap_or_else(PoisonError::into_inner).take(),
                Rows::Parts(decided, _) => Some(decided.stream(part, self.node.partition)?),
            };
            if let Some(rows) = rows {
                return Ok(Some((rows, begun)));
            }
        }
        Ok(None)
    }

    /// A part of a pair that is still to be joined.
    fn take(self: &Arc<Self>, lanes: &Arc<Vec<Lane>>, lane: usize) -> Option<(Arc<Begun>, usize)> {
        let mut waiting = lanes.get(lane)?.lock();
        let begun = waiting.begun.take();
        let begun = begun.and_then(|(begun, part)| Some((begun.upgrade()?, part)));
        let (begun, part) = match begun {
            Some(begun) => begun,
            None => {
                let pair = waiting.pairs.pop()?;
                let parts = match pair.is_in_memory() {
                    true => self.streams,
                    false => 1,
                };
                let (spilled, lanes) = (Arc::clone(self), Arc::clone(lanes));
                let rows = async move {
                    let rows = spilled.join(pair, parts, &lanes[lane]).await;
                    rows.map(Arc::new).map_err(Arc::new)
                };
                let rows = rows.boxed().shared();
                (Arc::new(Begun { parts, rows }), 0)
            }
        };
        if part + 1 < begun.parts {
            waiting.begun = Some((Arc::downgrade(&begun), part + 1));
        }
        Some((begun, part))
    }

    /// The rows of a pair, the probe side of which comes in `parts`. A pair that is too large is
    /// scattered again, into `lane`.
    async fn join(self: &Arc<Self>, pair: Pair, parts: usize, lane: &Lane) -> Result<Rows> {
        if pair.gives_nothing(*self.planned.join_type()) {
            return Ok(Rows::None);
        }
        let build = pair.smaller();
        if let Some(rows) = self.build(&pair, build).await? {
            let probe = self.probing(&pair, build.other(), parts)?;
            if let Some(decided) = passes::whole(self, &pair, (build, rows), probe).await? {
                return Ok(match pair.home() {
                    Home::Memory => Rows::Parts(decided, pair),
                    Home::Disk => {
                        let rows = decided.stream(0, self.node.partition)?;
                        Rows::all(pair.held_by(rows))
                    }
                });
            }
        } else if !pair.can_split(build) {
            return Ok(Rows::all(passes::in_parts(self, pair, build)));
        }
        let pairs = self.split(&pair).await?;
        lane.lock().pairs.extend(pairs);
        Ok(Rows::None)
    }

    /// The rows of the build side, if the memory pool has room for them.
    async fn build(&self, pair: &Pair, build: Side) -> Result<Option<Collected>> {
        if pair.is_in_memory() {
            let pool = self.node.context.memory_pool();
            let memory = super::memory::of_rows(pool, self.node.partition, build);
            let batches = pair.bucket(build).batches().to_vec();
            if let Ok(held) = Collected::held(batches, memory) {
                return Ok(Some(held));
            }
        }
        let mut reading = self.reading(pair, build)?;
        match self.fits(pair, build, &mut reading).await? {
            true => Ok(Some(reading.collect())),
            false => Ok(None),
        }
    }

    /// The other side of a pair, in `parts`.
    fn probing(&self, pair: &Pair, side: Side, parts: usize) -> Result<Reading> {
        if parts == 1 {
            return self.reading(pair, side);
        }
        let manager = &self.managers[side as usize];
        let streams = pair.bucket(side).streams(manager, parts);
        Ok(self.reading_of(side, streams))
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
        Ok(self.reading_of(side, vec![stream]))
    }

    fn reading_of(&self, side: Side, streams: Vec<SendableRecordBatchStream>) -> Reading {
        let pool = self.node.context.memory_pool();
        let memory = super::memory::of_rows(pool, self.node.partition, side);
        let schema = Arc::clone(self.managers[side as usize].schema());
        Reading::new(schema, streams, memory)
    }

    /// The pairs of a pair, by another hash.
    async fn split(&self, pair: &Pair) -> Result<Vec<Pair>> {
        let level = pair.level + 1;
        let spec = |side| {
            let spec = spec(&self.node, &self.planned, &self.managers, side).at_level(level);
            match pair.is_in_memory() {
                true => spec.at_home(Home::Memory, AGAIN),
                false => spec,
            }
        };
        let streams = |side| Ok::<_, Error>(self.reading(pair, side)?.into_streams());
        let left = scatter_all(spec(Side::Left), streams(Side::Left)?, 1).await?;
        let right = scatter_all(spec(Side::Right), streams(Side::Right)?, 1).await?;
        Ok(pairs_of(&left, &right, level))
    }

    /// Whether smaller buckets than one of `rows` build rows may have room on the device. Where its
    /// table is a 64th of the limit already, others have the room.
    fn can_shrink(&self, rows: usize) -> bool {
        let most = self.device_limit / 64;
        KEY_BYTES * rows as u64 > most || rows > self.node.config.knobs.max_table_rows
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

impl Rows {
    fn all(rows: SendableRecordBatchStream) -> Self {
        Rows::All(Mutex::new(Some(rows)))
    }
}

impl Lane {
    fn of(pairs: Vec<Pair>) -> Self {
        let begun = None;
        Self(Mutex::new(Waiting { pairs, begun }))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether sides go to buckets for which the device has no room.
pub fn can_scatter(node: &Node) -> bool {
    let sides = [node.planned.left().schema(), node.planned.right().schema()];
    // Keys of a dictionary can be too few for the values of many batches.
    let are_copied = sides.iter().all(|side| !has_dictionaries(side));
    node.config.enabled == Enabled::Always && are_copied && obstacle(node).is_none()
}

fn has_dictionaries(side: &SchemaRef) -> bool {
    let fields = side.fields().iter();
    fields
        .into_iter()
        .any(|field| has_dictionary(field.data_type()))
}

/// Buckets of a pair in memory for which the device had no room after all.
const AGAIN: usize = 4;

/// Device bytes a key while a table is built: key, table, and what its groups take meanwhile.
const KEY_BYTES: u64 = 48;

/// Buckets of a side, so that a table of `rows` build rows in as many parts takes half of the device's
/// limit while it is built. The other half is for the table before it and for chunks.
fn buckets_on(device_limit: u64, node: &Node, rows: usize) -> usize {
    let lanes = lanes_of(&node.planned);
    let limit = device_limit / 2 / lanes as u64;
    let by_bytes = (KEY_BYTES * rows as u64).div_ceil(limit.max(1));
    // Buckets are not all of one size.
    let by_rows = (rows / 4 * 5).div_ceil(node.config.knobs.max_table_rows.max(1));
    let buckets = usize::try_from(by_bytes).unwrap_or(usize::MAX).max(by_rows);
    buckets.clamp(LEAST_BUCKETS, most_in_memory(lanes))
}

/// Lanes of a join of `planned`, or of all its partitions.
fn lanes_of(planned: &HashJoinExec) -> usize {
    match keeps_partitions(planned) || *planned.partition_mode() == PartitionMode::Partitioned {
        true => planned.properties().output_partitioning().partition_count(),
        false => 1,
    }
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
        home: Home::Disk,
        level: 0,
        manager: managers[side as usize].clone(),
        batch_size: node.context.session_config().batch_size(),
        width: node.context.session_config().target_partitions(),
        memory: super::memory::of_buckets(node.context.memory_pool(), node.partition, side),
        pool: Arc::clone(node.context.memory_pool()),
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
            lanes.push(Lane::of(self.pairs(&left, &right)));
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
