//! The driver of a build: rows of both sides in, a join whose rows can be read out.
//!
//! ```text
//!  build side, all read ─▶ coalesce ─▶ its keys to scans of the probe side ─▶ placement
//!             ┌─── device ────────────────────────────────────────────────────────┤ HostReason
//!             ▼                                                                   │
//!      table on the device ── failed, does not fit ───────────────────────────────┤
//!             │                                                                   ▼
//!  PreparedJoin::Device: probe streams                        PreparedJoin::Host: DataFusion's own
//!
//!  the table has room on no device, but on several together ─▶ PreparedJoin::Sharded
//!  neither side fits into memory ─▶ spill: pairs of partitions, each prepared like that
//! ```

pub mod host_join;
pub mod oriented;
mod placement;
mod prepared;
pub mod reserved_pool;
pub mod shards;
mod shared_inputs;

use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::MetricBuilder;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use tracing::{Instrument, trace_span};

use crate::config::{HortonConfig, MANY_ROWS};
use crate::device::{Device, DeviceKind, Placed};
use crate::error::{DeviceError, Error, Result};
use crate::join::build_side::builder;
use crate::join::build_side::keyed::evaluate_keys;
use crate::join::build_side::side::BuildSide;
use crate::join::decision::{BuildId, Decision, HostReason, JoinReport, Place};
use crate::join::dynamic_filter::accumulator::{BuildKeys, BuildReport, FilterAccumulator};
use crate::join::dynamic_filter::targets::rows_scanned;
use crate::join::input::buffered::BufferedInput;
use crate::join::input::build_batches::BuildBatches;
use crate::join::memory::{BuildMemory, filter_reservation};
use crate::join::metrics::{BuildInput, JoinMetrics};
use crate::join::probe::ChunkQueue;
use crate::join::side::Side;

pub use prepared::{PreparedJoin, Reread};

use host_join::{HostPartitioning, Reopen, array_bytes, host_join, may_keep, may_partition};
use oriented::OrientedJoin;
use placement::{is_for_gpu, place};
use shards::{Shards, can_shard};

/// Build rows per key from which the pairs of a semi or anti join with a residual filter cost more
/// on the device. With four rows per key the device gains, with twelve it loses.
const MANY_PAIRS: f64 = 8.0;

/// The facts of a join's node that an execution of a build needs.
#[derive(Clone)]
pub struct JoinContext {
    /// The join as planned.
    pub planned: Arc<HashJoinExec>,
    /// The session's options.
    pub config: HortonConfig,
    /// The query's context.
    pub context: Arc<TaskContext>,
    /// The record that the node shows.
    pub shown: JoinReport,
    /// Number of the partition.
    pub partition: usize,
}

impl JoinContext {
    /// Returns the join with `build` as its build side.
    ///
    /// # Errors
    /// The errors of [`OrientedJoin::new`].
    pub fn oriented(&self, build: Side) -> datafusion::error::Result<OrientedJoin> {
        let swapped = build == Side::Right;
        OrientedJoin::new(&self.planned, swapped, &self.config, &self.context)
    }

    /// Returns the name that decisions are noted under.
    pub fn at(&self, part: Option<usize>) -> BuildId {
        let partition = self.partition;
        BuildId { partition, part }
    }
}

/// What a build decided that another of the same join must keep to, so that each partition has the
/// same rows again.
#[derive(Debug, Clone)]
pub enum EarlierBuild {
    /// Its build side was in memory.
    Whole {
        /// The side that was built.
        build: Side,
        /// The way in which the host partitioned the rows by their keys, if it did, and why it was
        /// the host.
        partitioning: Option<(HostPartitioning, HostReason)>,
    },
    /// Both sides went to spill partitions.
    Spilled,
    /// The streams took rows from all probe partitions. No other build can give them the same ones.
    Shared,
}

impl JoinContext {
    /// Reports the keys of the build side's `batches` to scans of the probe side of the join
    /// `oriented`. `is_final` says that no other side will be built. Returns what has the filters;
    /// `None` if no scan wants them, or if there was no memory for the keys.
    ///
    /// # Errors
    /// The errors of evaluating keys, those of [`place`] and of [`BuildReport::report`].
    pub async fn publish_filters(
        &self,
        report: Option<BuildReport>,
        oriented: &OrientedJoin,
        (batches, is_final): (&[RecordBatch], bool),
    ) -> Result<Option<Arc<FilterAccumulator>>> {
        let Some(report) = report else {
            return Ok(None);
        };
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let may_spare = is_final && report.may_spare_sets();
        let for_device = may_spare && is_for_gpu(oriented, rows).await?;
        let work = trace_span!("make filters");
        let published = self.publish(report, oriented, batches, for_device);
        published.instrument(work).await
    }

    async fn publish(
        &self,
        report: BuildReport,
        oriented: &OrientedJoin,
        batches: &[RecordBatch],
        for_device: bool,
    ) -> Result<Option<Arc<FilterAccumulator>>> {
        let on = oriented.join().on().iter();
        let on: Vec<_> = on.map(|(key, _)| Arc::clone(key)).collect();
        // Held until the sets are made.
        let memory = filter_reservation(self.context.memory_pool());
        let keys = match evaluate_keys(&on, batches, &memory).await {
            Ok(keys) => keys,
            Err(error) if error.is_pool_memory() => {
                log::debug!("no room for the keys of a filter: {error}");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let build_keys = BuildKeys {
            rows,
            distinct: rows,
            keys,
            for_device,
        };
        let time = MetricBuilder::new(&self.shown.metrics);
        let time = time.subset_time("filter_time", self.partition);
        report.report(build_keys, &time).await.map(Some)
    }
}

/// Bytes of a build row that takes one core about as long as a lookup: a key and two values.
const NARROW_ROW: usize = 32;

/// A join that is to be prepared.
pub struct JoinPreparation {
    /// The join, its build side on the left.
    pub oriented: OrientedJoin,
    /// The side that is built.
    pub build: Side,
    /// Number of this build.
    pub at: BuildId,
    /// Output partitions, if the host may repartition both sides into so many.
    pub partitions: Option<usize>,
    /// True if probe rows may come out of any output partition.
    pub may_move_rows: bool,
    /// True if rows come into groups of an aggregate.
    pub is_grouped: bool,
    /// Opens partitions of the probe side again; `None` if each is read once.
    pub reopen: Option<Reopen>,
    /// The way in which an earlier build partitioned the rows on the host.
    pub partitioning: Option<(HostPartitioning, HostReason)>,
    /// The filters that the keys of the side that ended first made, if some scan has them.
    pub filters: Option<Arc<FilterAccumulator>>,
    /// The record that the node shows.
    pub shown: JoinReport,
}

/// The rows of a probe side.
struct ProbeRows {
    streams: Vec<SendableRecordBatchStream>,
    /// Rows that each core has to look up, if there are `width`, as far as that is known.
    per_core: usize,
}

impl ProbeRows {
    /// Returns the rows of `probe`, which is the probe side of `join`.
    fn new(probe: BufferedInput, join: &HashJoinExec, width: usize) -> Self {
        let per_core = rows_per_core(&probe, join, width);
        let streams = probe.into_streams();
        Self { streams, per_core }
    }
}

/// Returns the rows of `probe` that each of `width` cores has to look up, as far as that is known:
/// of the rows that were read, or of those of its scan if no condition leaves rows out. Filters of
/// joins may leave out more. Returns 0 if some of the cores would have none.
fn rows_per_core(probe: &BufferedInput, join: &HashJoinExec, width: usize) -> usize {
    if probe.partitions() < width {
        return 0;
    }
    let mut rows = probe.rows();
    if !probe.has_ended()
        && let Some(scanned) = rows_scanned(join.right())
        && !has_condition(join.right())
    {
        rows = rows.max(scanned);
    }
    rows / width.max(1)
}

/// Returns whether a condition is between `plan` and its one scan.
fn has_condition(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FilterExec>() || plan.children().into_iter().any(has_condition)
}

impl JoinPreparation {
    /// Prepares the join of `build` and `probe`: places it, and builds its table. Small batches of
    /// `build` were coalesced before.
    ///
    /// # Errors
    /// The errors of [`place`] and of the build.
    pub async fn prepare(
        self,
        build: BuildBatches,
        mut probe: BufferedInput,
    ) -> Result<PreparedJoin> {
        if let Some((_, reason)) = self.partitioning.clone() {
            let probe = self.probe_rows(probe);
            return self.on_host(build, probe, reason);
        }
        let placed = match place(&self.oriented, build.rows, &[]).await? {
            Ok(_) if self.is_hashed(&build, &probe) => Err(HostReason::HashedByKeys),
            Ok(_) if self.has_many_pairs(&build) => Err(HostReason::ManyPairs),
            Ok(placed) => self.with_probe(placed, &build, &mut probe).await?,
            host => host,
        };
        let probe = self.probe_rows(probe);
        match placed {
            Ok(placed) => self.on_device(placed, build, probe).await,
            Err(reason) => self.on_host(build, probe, reason),
        }
    }

    /// Returns whether `auto` leaves the join to the host: both sides are hashed by its keys. The
    /// host's join repartitions nothing then, and its tables are small.
    fn is_hashed(&self, build: &BuildBatches, probe: &BufferedInput) -> bool {
        self.oriented.config().is_left_to_joins()
            && may_keep(&self.oriented, build, probe.partitions(), self.partitions)
    }

    /// Returns whether `auto` leaves the join to the host: a semi or anti join has many pairs for
    /// its residual filter.
    fn has_many_pairs(&self, build: &BuildBatches) -> bool {
        self.oriented.config().is_left_to_joins()
            && self.oriented.rows_per_filtered_key(build) >= MANY_PAIRS
    }

    /// Returns `placed`, unless the build side has few rows and the probe side does, too. More rows
    /// than a read has must be known of its scan, and then the read shows what filters leave.
    async fn with_probe(
        &self,
        placed: Placed,
        build: &BuildBatches,
        probe: &mut BufferedInput,
    ) -> Result<Result<Placed, HostReason>> {
        let (config, join) = (self.oriented.config(), self.oriented.join());
        let per_core = rows_per_core(probe, join, self.oriented.width());
        let host_is_fast = || self.host_spreads_rows() || self.stays_whole(build, per_core);
        let wanted = config.min_probe_rows(placed.info().kind, build.rows, host_is_fast);
        if wanted == 0 || join.fetch().is_some() || join.right().boundedness().is_unbounded() {
            return Ok(Ok(placed));
        }
        let read = wanted.min(MANY_ROWS);
        let is_known = || rows_scanned(join.right()).is_some_and(|rows| rows >= wanted);
        let may_be = read == wanted || is_known();
        if !may_be || (probe.read(read).await?.has_ended() && probe.rows() < read) {
            return Ok(Err(HostReason::FewProbeRows { wanted }));
        }
        Ok(Ok(placed))
    }

    fn probe_rows(&self, probe: BufferedInput) -> ProbeRows {
        ProbeRows::new(probe, self.oriented.join(), self.oriented.width())
    }

    /// Returns whether the host joins `build` as one table, however large it is. One core copies
    /// its rows and fills the table while all others wait. Then each looks up `per_core` rows, and
    /// they are not partitioned before. An aggregate above has fewer groups per partition if they
    /// are.
    fn stays_whole(&self, build: &BuildBatches, per_core: usize) -> bool {
        let is_small = !may_partition(&self.oriented, build);
        let may_be = is_small || !self.is_grouped && per_core >= build.rows;
        let bytes = may_be.then(|| array_bytes(&self.oriented, build)).flatten();
        // A wide row takes as long as several.
        bytes.is_some_and(|bytes| is_small || per_core >= bytes / NARROW_ROW)
    }

    /// Joins on the device where the join is placed, or on another one if that fails or has no
    /// room. Where none is likely to have any, several devices may have it together.
    async fn on_device(
        self,
        mut placed: Placed,
        mut build: BuildBatches,
        probe: ProbeRows,
    ) -> Result<PreparedJoin> {
        let partitions = probe.streams.len();
        if !placed.has_room() {
            build = match self.build_shards(build, partitions).await? {
                Ok(shards) => return Ok(self.in_shards(shards, probe.streams)),
                Err(build) => build,
            };
        }
        let shared = self.partitions.filter(|n| self.may_share_probe(*n));
        let streams = shared.unwrap_or(partitions);
        let mut tried = Vec::new();
        loop {
            let (rows, kept) = build.split_memory();
            let reason = match self.build_on(&placed, rows, streams).await? {
                Ok(built) => {
                    self.transfer_memory(&built, &kept);
                    if placed.info().kind != DeviceKind::Cpu
                        && let Some(filters) = &self.filters
                    {
                        filters.drop_sets()?;
                    }
                    let probe = match shared {
                        Some(n) => {
                            let chunks = Arc::new(ChunkQueue::new(n));
                            (
                                shared_inputs::share(probe.streams, n),
                                Reread::Shared(chunks),
                            )
                        }
                        None => (probe.streams, Reread::of(self.reopen.clone())),
                    };
                    return Ok(self.prepared(&placed, *built, probe, self.at));
                }
                Err(reason) => reason,
            };
            build = kept;
            tried.push(placed.device().clone());
            let is_of_device = matches!(reason, HostReason::DoesNotFit | HostReason::Failed(_));
            if is_of_device && let Ok(next) = place(&self.oriented, build.rows, &tried).await? {
                log::debug!(
                    "{}: {reason}; trying the next device",
                    placed.info().label()
                );
                placed = next;
                continue;
            }
            return self.on_host(build, probe, reason);
        }
    }

    /// Returns whether the host may repartition probe rows that streams of a device keep as they
    /// are. Few partitions may have rows: statistics prune the files of others.
    fn host_spreads_rows(&self) -> bool {
        !self.may_move_rows && self.partitions.is_some_and(|n| n > 1) && self.oriented.width() > 1
    }

    /// Returns whether `streams` streams may share the batches of all probe partitions.
    fn may_share_probe(&self, streams: usize) -> bool {
        let join = self.oriented.join();
        let is_wanted = self.may_move_rows && streams > 1 && self.oriented.width() > 1;
        is_wanted
            && join.fetch().is_none()
            && !join.null_aware
            && !join.right().boundedness().is_unbounded()
    }

    /// Builds the rows of `build`, whose memory the caller keeps, on the device of `placed`.
    ///
    /// Returns the reason if there is no table.
    async fn build_on(
        &self,
        placed: &Placed,
        build: BuildBatches,
        probes: usize,
    ) -> Result<Result<Box<BuildSide>, HostReason>> {
        let spec = self.oriented.build_spec(placed, probes)?;
        let metrics = JoinMetrics::new(&self.shown.metrics, self.at.partition);
        let pool = self.oriented.context().memory_pool();
        let memory = BuildMemory::new(pool, self.at.partition);
        let built = builder::build(spec, build, memory, metrics);
        match built.instrument(trace_span!("build")).await {
            // A table on the host has its memory already.
            Err(error) if error.is_pool_memory() => Ok(Err(HostReason::NoMemory)),
            built => built,
        }
    }

    /// Hands what the rows of `built` reserve over to it.
    fn transfer_memory(&self, built: &BuildSide, kept: &BuildBatches) {
        kept.memory.shrink(kept.table);
        built.hold(&kept.memory);
        // The host's join counts what was handed back to it.
        let metrics = JoinMetrics::new(&self.shown.metrics, self.at.partition);
        metrics.add_build_input(BuildInput {
            batches: kept.input_batches,
            rows: kept.rows,
            bytes: kept.bytes,
        });
    }

    /// Builds a shard of the rows of `build` on each device that takes one, if several do. Returns
    /// all rows if not.
    async fn build_shards(
        &self,
        mut build: BuildBatches,
        probes: usize,
    ) -> Result<Result<Vec<(Placed, Box<BuildSide>)>, BuildBatches>> {
        let is_swapped = self.build == Side::Right;
        if self.is_spilled() || !can_shard(self.oriented.join(), is_swapped) {
            return Ok(Err(build));
        }
        let mut refused = Vec::new();
        loop {
            let places = self.places_of_shards(build.rows, &refused).await?;
            if places.len() < 2 || build.rows < places.len() {
                return Ok(Err(build));
            }
            let shards = build.shards(places.len()).into_iter();
            let (shards, kept): (Vec<_>, Vec<_>) = shards.map(BuildBatches::split_memory).unzip();
            let builds = places.iter().zip(shards);
            let builds = builds.map(|(placed, shard)| self.build_on(placed, shard, probes));
            let attempts = futures::future::try_join_all(builds).await?;
            let mut built = Vec::with_capacity(places.len());
            for (placed, attempt) in places.into_iter().zip(attempts) {
                match attempt {
                    Ok(side) => built.push((placed, side)),
                    Err(reason) => {
                        log::debug!("no shard on {}: {reason}", placed.info().label());
                        refused.push(placed.device().clone());
                    }
                }
            }
            if built.len() == kept.len() {
                let pairs = built.iter().zip(&kept);
                pairs.for_each(|((_, side), kept)| self.transfer_memory(side, kept));
                return Ok(Ok(built));
            }
            let all = kept.into_iter().reduce(BuildBatches::append);
            let none = || Error::Internal("a build side in no shards".to_owned());
            build = all.ok_or_else(none)?;
        }
    }

    /// Returns the devices that may take a shard of `rows` rows each, without the `refused` ones.
    async fn places_of_shards(&self, rows: usize, refused: &[Device]) -> Result<Vec<Placed>> {
        let (mut places, mut taken) = (Vec::new(), refused.to_vec());
        while let Ok(placed) = place(&self.oriented, rows, &taken).await? {
            taken.push(placed.device().clone());
            places.push(placed);
        }
        Ok(places)
    }

    /// Returns the join of the `shards` of the build side, each with the place of its table.
    fn in_shards(
        self,
        shards: Vec<(Placed, Box<BuildSide>)>,
        probe: Vec<SendableRecordBatchStream>,
    ) -> PreparedJoin {
        let schema = self.oriented.output().schema;
        let (merger, streams) = Shards::new(probe, shards.len(), schema);
        let joins = shards.into_iter().zip(streams).enumerate();
        let joins = joins.map(|(shard, ((placed, built), probe))| {
            let at = BuildId {
                part: Some(shard),
                ..self.at
            };
            self.prepared(&placed, *built, (probe, Reread::Never), at)
        });
        PreparedJoin::Sharded {
            joins: joins.collect(),
            shards: merger,
        }
    }

    fn prepared(
        &self,
        placed: &Placed,
        built: BuildSide,
        (probe, again): (Vec<SendableRecordBatchStream>, Reread),
        at: BuildId,
    ) -> PreparedJoin {
        let spec = Arc::new(self.oriented.probe_spec(placed));
        let place = Place::Device(placed.device().clone());
        self.note(at, built.rows().len(), place);
        let streams = probe.into_iter().map(|stream| Mutex::new(Some(stream)));
        PreparedJoin::Device {
            spec,
            build: Arc::new(built),
            streams: streams.collect(),
            again,
            oriented: self.oriented.clone(),
            metrics: self.shown.metrics.clone(),
        }
    }

    fn on_host(
        self,
        build: BuildBatches,
        probe: ProbeRows,
        reason: HostReason,
    ) -> Result<PreparedJoin> {
        log::debug!("a join of {} build rows on the host: {reason}", build.rows);
        self.note(self.at, build.rows, Place::Host(reason.clone()));
        let parts = probe.streams.len();
        let partitioning = match self.partitioning {
            Some((partitioning, _)) => partitioning,
            None => {
                match HostPartitioning::choose(&self.oriented, &build, parts, self.partitions) {
                    HostPartitioning::Repartition(_)
                        if self.stays_whole(&build, probe.per_core) =>
                    {
                        HostPartitioning::Collect
                    }
                    chosen => chosen,
                }
            }
        };
        Ok(PreparedJoin::Host {
            join: Box::new(host_join(
                &self.oriented,
                build,
                probe.streams,
                (partitioning, self.reopen),
            )?),
            reason,
            at: self.at,
            on_host: self.shown.on_host,
        })
    }

    fn note(&self, at: BuildId, rows: usize, place: Place) {
        let decision = Decision {
            build: self.build,
            rows,
            place,
            is_spilled: self.is_spilled(),
        };
        self.shown.decisions.note(at, decision);
    }

    /// Returns whether the rows are those of one spill partition. Shards are numbered later.
    fn is_spilled(&self) -> bool {
        self.at.part.is_some()
    }
}

/// Returns the one error of a build, for another of its streams.
pub fn clone_for_stream(error: Arc<Error>) -> DataFusionError {
    match error.as_ref() {
        Error::Device(DeviceError::DeviceMemory { .. }) => {
            DataFusionError::ResourcesExhausted(error.to_string())
        }
        Error::DataFusion(DataFusionError::ResourcesExhausted(text)) => {
            DataFusionError::ResourcesExhausted(text.clone())
        }
        Error::Internal(text) => Error::Internal(text.clone()).into(),
        _ => DataFusionError::External(Box::new(error)),
    }
}
