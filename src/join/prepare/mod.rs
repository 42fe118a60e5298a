//! The place where a join runs, decided when its build side is there.
//!
//! ```text
//!  inputs ─▶ race: a build side ─▶ place ─▶ rows ≥ horton.min_build_rows, device ready, its keys,
//!                                    │       and of a small build side: many rows to probe
//!                                    │ yes                              │ no, for a reason
//!                                    ▼                                  │
//!                     table on the device ── failed, does not fit ──────┤
//!                                    │                                  ▼
//!                     Decided::Device: probe streams        Decided::Host: DataFusion's own join
//!
//!  the table has room on no device, but on several together ─▶ shares, each decided like that
//!  neither side fits into memory, or the build side not on the device
//!                                 ─▶ spill: buckets, each of which is decided like that
//! ```
//!
//! DuckDB and DataFusion decide on perfect hashing at the same point (`try_create_array_map`): rows
//! that are there are facts. Nothing is estimated.

pub mod host_join;
pub mod oriented;
pub mod reserved_pool;
pub mod shards;

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::config::{Enabled, HortonConfig};
use crate::device::{Device, Devices, Placed, names_device};
use crate::device_startup::{self, Readiness};
use crate::error::{DeviceError, Error, Result};
use crate::join::build_side::builder::{self, Built};
use crate::join::build_side::keyed::evaluate_keys;
use crate::join::build_side::side::BuildSide;
use crate::join::build_side::table::KEY_BYTES;
use crate::join::decision::{
    BuildId, Decision, HostMetrics, HostReason, JoinReport, PartitionStorage, Place,
};
use crate::join::dynamic_filter::accumulator::{BuildKeys, BuildReport};
use crate::join::input::buffered::{BufferedInput, ReadOutcome};
use crate::join::input::build_batches::{BuildBatches, empty_stream};
use crate::join::input::coalesce::coalesce;
use crate::join::memory::{BuildMemory, ProbeMemory, of_filters};
use crate::join::metrics::{BuildInput, JoinMetrics};
use crate::join::probe::{Probe, ProbeSpec};
use crate::join::side::Side;

use host_join::{HostJoin, HostPartitioning, Reopen, host_join};
use oriented::OrientedJoin;
use shards::{Broadcast, Shards, can_share};

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
    /// The errors of [`OrientedJoin::of`].
    pub fn oriented(&self, build: Side) -> datafusion::error::Result<OrientedJoin> {
        let swapped = build == Side::Right;
        OrientedJoin::of(&self.planned, swapped, &self.config, &self.context)
    }

    /// Returns the name that decisions are noted under.
    pub fn at(&self, bucket: Option<usize>) -> BuildId {
        let partition = self.partition;
        BuildId { partition, bucket }
    }
}

/// The place where a join is to run.
pub enum Placement {
    /// This device, which counts the join.
    Device(Placed),
    /// The host, for this reason: DataFusion's own join runs.
    Host(HostReason),
}

/// Returns where a build side of `rows` rows is joined: on the device with room and the least work.
/// Devices in `tried` are left out.
///
/// # Errors
/// [`DeviceError::UnknownDevice`] and [`DeviceError::UnsuitableDevice`]: `horton.device` names a
/// device that is not there or cannot run the kernels.
async fn place(oriented: &OrientedJoin, rows: usize, tried: &[Device]) -> Result<Placement> {
    let config = oriented.config();
    if let Some(reason) = oriented.unsupported_keys()? {
        return Ok(Placement::Host(HostReason::KeyType(reason)));
    }
    let readiness = match config.enabled {
        Enabled::Always => device_startup::settled(config).await,
        // The name may be wrong.
        _ if names_device(&config.device) => device_startup::opened(config).await,
        _ => device_startup::now(config),
    };
    let declined = match readiness {
        Readiness::Unavailable(reason)
        | Readiness::Opening {
            declined: Some(reason),
        } => HostReason::NotReady(reason),
        Readiness::Opening { declined: None } => HostReason::Opening,
        Readiness::Compiling => HostReason::Compiling,
        Readiness::Invalid(error) => return Err(error.into()),
        Readiness::Ready(devices) => match place_on(&devices, config, rows, tried) {
            Ok(placed) => return Ok(Placement::Device(placed)),
            Err(declined) => declined,
        },
    };
    Ok(Placement::Host(declined))
}

/// Places a build side of `rows` rows on one of `devices`.
///
/// # Errors
/// Why none of them takes it.
fn place_on(
    devices: &Devices,
    config: &HortonConfig,
    rows: usize,
    tried: &[Device],
) -> Result<Placed, HostReason> {
    let is_tried = |device: &Device| tried.iter().any(|t| t.info().index == device.info().index);
    let has_rows = |device: &Device| rows >= config.min_build_rows(device.info().kind);
    let is_asked = |device: &Device| {
        has_rows(device) && !is_tried(device) && config.health.failure_of(device).is_none()
    };
    let bytes = KEY_BYTES * rows as u64;
    if let Some(placed) = devices.place(bytes, config.memory_limit(), is_asked) {
        return Ok(placed);
    }
    let all = devices.all();
    let mut large = all.iter().filter(|device| has_rows(device));
    if let Some(reason) = large.find_map(|device| config.health.failure_of(device)) {
        return Err(HostReason::FailedBefore(reason));
    }
    if all.iter().any(has_rows) {
        return Err(HostReason::DoesNotFit);
    }
    let least = all
        .iter()
        .map(|device| config.min_build_rows(device.info().kind));
    let min_build_rows = least.min().unwrap_or_default();
    Err(HostReason::FewRows { min_build_rows })
}

/// What a build decided that another of the same join must keep to, so that each partition has the
/// same rows again.
#[derive(Debug, Clone)]
pub struct EarlierBuild {
    /// The side that was built.
    pub build: Side,
    /// The way in which the host spread the rows over partitions by their keys, if it did, and why
    /// it was the host.
    pub spread: Option<(HostPartitioning, HostReason)>,
}

/// A join that is to be decided.
pub struct JoinPreparation {
    /// The join, its build side on the left.
    pub oriented: OrientedJoin,
    /// The side that is built.
    pub build: Side,
    /// Number of this build.
    pub at: BuildId,
    /// Output partitions, if the host may repartition both sides into so many.
    pub partitions: Option<usize>,
    /// Opens partitions of the probe side anew; `None` if each is read once.
    pub reopen: Option<Reopen>,
    /// The way in which an earlier build spread the rows over partitions on the host.
    pub spread: Option<(HostPartitioning, HostReason)>,
    /// Reports the build side's keys to scans of the probe side.
    pub reporter: Option<BuildReport>,
    /// The record that the node shows.
    pub shown: JoinReport,
    /// Place where the rows were, if they are those of one bucket.
    pub bucket: Option<PartitionStorage>,
    /// True if sides go to buckets if the device has no room for the build side.
    pub scatters: bool,
}

/// The result of a decision.
pub enum Joined {
    /// A join whose build side and place are known.
    Decided(Decided),
    /// None, as the device has no room for the build side, and the join
    /// [`scatters`](JoinPreparation::scatters).
    TooLarge {
        /// The build side.
        build: BuildBatches,
        /// The probe side.
        probe: Vec<SendableRecordBatchStream>,
        /// The device, and those beside it.
        placed: Placed,
    },
}

impl JoinPreparation {
    /// Decides where the rows of `build` and `probe` are joined, and tells scans of the probe side
    /// what the build side knows.
    ///
    /// # Errors
    /// The errors of [`place`] and of the build.
    pub async fn decide(mut self, build: BuildBatches, mut probe: BufferedInput) -> Result<Joined> {
        let build = coalesce(build, self.oriented.width()).await?;
        self.tell(&build).await?;
        if let Some((_, reason)) = &self.spread {
            let (reason, probe) = (reason.clone(), probe.into_streams());
            return self.on_host(build, probe, reason).map(Joined::Decided);
        }
        let placement = match place(&self.oriented, build.rows, &[]).await? {
            Placement::Device(placed) => self.with_probe(placed, build.rows, &mut probe).await?,
            host => host,
        };
        let probe = probe.into_streams();
        match placement {
            Placement::Device(placed) => self.on_device(placed, build, probe).await,
            Placement::Host(reason) => self.on_host(build, probe, reason).map(Joined::Decided),
        }
    }

    /// Tells scans of the probe side the keys of the build side.
    async fn tell(&mut self, build: &BuildBatches) -> Result<()> {
        let Some(reporter) = self.reporter.take() else {
            return Ok(());
        };
        let on = self.oriented.join().on().iter();
        let on: Vec<_> = on.map(|(key, _)| Arc::clone(key)).collect();
        // Held until the sets are made.
        let memory = of_filters(self.oriented.context().memory_pool());
        let keys = match evaluate_keys(&on, &build.batches, &memory).await {
            Ok(keys) => keys,
            Err(error) if error.is_pool_memory() => {
                log::debug!("no room for the keys of a filter: {error}");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let facts = BuildKeys {
            rows: build.rows,
            distinct: build.rows,
            keys,
        };
        let time = MetricBuilder::new(&self.shown.metrics);
        let time = time.subset_time("filter_time", self.at.partition);
        reporter.report(facts, &time).await
    }

    /// Returns `placed`, unless the build side has few rows and the probe side ends with few, too.
    async fn with_probe(
        &self,
        placed: Placed,
        build_rows: usize,
        probe: &mut BufferedInput,
    ) -> Result<Placement> {
        let (config, join) = (self.oriented.config(), self.oriented.join());
        let wanted = config.min_probe_rows(placed.info().kind, build_rows);
        if wanted == 0 || join.fetch().is_some() || join.right().boundedness().is_unbounded() {
            return Ok(Placement::Device(placed));
        }
        let turn = probe.turn(wanted).await?;
        Ok(
            if probe.rows() < wanted && matches!(turn, ReadOutcome::Ended) {
                Placement::Host(HostReason::FewProbeRows { wanted })
            } else {
                Placement::Device(placed)
            },
        )
    }

    /// Joins on the device where the join is placed, or on another one if that fails or has no
    /// room. Where none is likely to have any, several devices may have it together.
    async fn on_device(
        self,
        mut placed: Placed,
        mut build: BuildBatches,
        probe: Vec<SendableRecordBatchStream>,
    ) -> Result<Joined> {
        if !placed.has_room() {
            build = match self.build_shares(build, probe.len()).await? {
                SharesBuilt::Shards(shares) => return Ok(self.in_shards(shares, probe)),
                SharesBuilt::HandedBack(build) => build,
            };
        }
        let mut tried = Vec::new();
        let mut full = None;
        loop {
            let (rows, kept) = build.apart();
            let reason = match self.build_on(&placed, rows, probe.len()).await? {
                Ok(built) => {
                    self.transfer_memory(&built, &kept);
                    let decided = self.decided(&placed, *built, probe, self.at);
                    return Ok(Joined::Decided(decided));
                }
                Err(reason) => reason,
            };
            build = kept;
            tried.push(placed.device().clone());
            if matches!(reason, HostReason::DoesNotFit) {
                full = Some(placed.clone());
            }
            let is_of_device = matches!(reason, HostReason::DoesNotFit | HostReason::Failed(_));
            if is_of_device
                && let Placement::Device(next) = place(&self.oriented, build.rows, &tried).await?
            {
                log::debug!(
                    "{}: {reason}; trying the next device",
                    placed.info().label()
                );
                placed = next;
                continue;
            }
            return match (full, reason) {
                (Some(placed), HostReason::DoesNotFit | HostReason::Failed(_)) if self.scatters => {
                    Ok(Joined::TooLarge {
                        build,
                        probe,
                        placed,
                    })
                }
                (_, reason) => self.on_host(build, probe, reason).map(Joined::Decided),
            };
        }
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
        match builder::build(spec, build, memory, metrics).await {
            Ok(Built::Side(side)) => Ok(Ok(side)),
            Ok(Built::HandedBack(reason)) => Ok(Err(reason)),
            // A table on the host has its memory already.
            Err(error) if error.is_pool_memory() => Ok(Err(HostReason::NoMemory)),
            Err(error) => Err(error),
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

    /// Builds a share of the rows of `build` on each device that takes one, if several do.
    async fn build_shares(&self, mut build: BuildBatches, probes: usize) -> Result<SharesBuilt> {
        let is_swapped = self.build == Side::Right;
        if self.bucket.is_some() || !can_share(self.oriented.join(), is_swapped) {
            return Ok(SharesBuilt::HandedBack(build));
        }
        let mut refused = Vec::new();
        loop {
            let places = self.places_of_shares(build.rows, &refused).await?;
            if places.len() < 2 || build.rows < places.len() {
                return Ok(SharesBuilt::HandedBack(build));
            }
            let shares = build.shares(places.len()).into_iter();
            let (shares, kept): (Vec<_>, Vec<_>) = shares.map(BuildBatches::apart).unzip();
            let builds = places.iter().zip(shares);
            let builds = builds.map(|(placed, share)| self.build_on(placed, share, probes));
            let attempts = futures::future::try_join_all(builds).await?;
            let mut built = Vec::with_capacity(places.len());
            for (placed, attempt) in places.into_iter().zip(attempts) {
                match attempt {
                    Ok(side) => built.push((placed, side)),
                    Err(reason) => {
                        log::debug!("no share on {}: {reason}", placed.info().label());
                        refused.push(placed.device().clone());
                    }
                }
            }
            if built.len() == kept.len() {
                let pairs = built.iter().zip(&kept);
                pairs.for_each(|((_, side), kept)| self.transfer_memory(side, kept));
                return Ok(SharesBuilt::Shards(built));
            }
            let all = kept.into_iter().reduce(BuildBatches::followed_by);
            let none = || Error::Internal("a build side in no shares".to_owned());
            build = all.ok_or_else(none)?;
        }
    }

    /// Returns the devices that may take a share of `rows` rows each, without the `refused` ones.
    async fn places_of_shares(&self, rows: usize, refused: &[Device]) -> Result<Vec<Placed>> {
        let (mut places, mut taken) = (Vec::new(), refused.to_vec());
        while let Placement::Device(placed) = place(&self.oriented, rows, &taken).await? {
            taken.push(placed.device().clone());
            places.push(placed);
        }
        Ok(places)
    }

    fn in_shards(self, shares: Vec<Shard>, probe: Vec<SendableRecordBatchStream>) -> Joined {
        let mut copies = Broadcast::of(probe, shares.len());
        let streams = std::mem::take(&mut copies.streams);
        let joins = shares.into_iter().zip(streams).enumerate();
        let joins = joins.map(|(share, ((placed, built), probe))| {
            let at = BuildId {
                bucket: Some(share),
                ..self.at
            };
            self.decided(&placed, *built, probe, at)
        });
        let joins = joins.collect();
        let shares = copies.into_shares(self.oriented.output().schema);
        Joined::Decided(Decided::Shards { joins, shares })
    }

    fn decided(
        &self,
        placed: &Placed,
        built: BuildSide,
        probe: Vec<SendableRecordBatchStream>,
        at: BuildId,
    ) -> Decided {
        let spec = Arc::new(self.oriented.probe_spec(placed, at != self.at));
        let place = Place::Device(placed.device().clone());
        self.note(at, built.rows().len(), place);
        let streams = probe.into_iter().map(|stream| Mutex::new(Some(stream)));
        Decided::Device {
            spec,
            build: Arc::new(built),
            streams: streams.collect(),
            reopen: self.reopen.clone().filter(|_| at == self.at),
            oriented: self.oriented.clone(),
            metrics: self.shown.metrics.clone(),
        }
    }

    fn on_host(
        self,
        build: BuildBatches,
        probe: Vec<SendableRecordBatchStream>,
        reason: HostReason,
    ) -> Result<Decided> {
        log::debug!("a join of {} build rows on the host: {reason}", build.rows);
        self.note(self.at, build.rows, Place::Host(reason.clone()));
        let spread = match self.spread {
            Some((spread, _)) => spread,
            None => HostPartitioning::of(&self.oriented, &build, probe.len(), self.partitions),
        };
        Ok(Decided::Host {
            join: Box::new(host_join(
                &self.oriented,
                build,
                probe,
                (spread, self.reopen),
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
            bucket: self.bucket,
        };
        self.shown.decisions.note(at, decision);
    }
}

/// A share of the build side, with its table.
type Shard = (Placed, Box<BuildSide>);

/// The result of building shares.
enum SharesBuilt {
    /// One on each device.
    Shards(Vec<Shard>),
    /// All rows, as a device took none.
    HandedBack(BuildBatches),
}

/// A join whose build side is there.
pub enum Decided {
    /// A join whose table is on a device.
    Device {
        /// The facts that probe streams share.
        spec: Arc<ProbeSpec>,
        /// The build side.
        build: Arc<BuildSide>,
        /// The probe side's streams, each to be taken once.
        streams: Vec<Mutex<Option<SendableRecordBatchStream>>>,
        /// Opens partitions of the probe side anew.
        reopen: Option<Reopen>,
        /// The join, turned so that the build side is its left one.
        oriented: OrientedJoin,
        /// The node's metrics.
        metrics: ExecutionPlanMetricsSet,
    },
    /// A join whose table is on several devices, a share on each.
    Shards {
        /// The joins of the shares.
        joins: Vec<Decided>,
        /// Merges their rows.
        shares: Shards,
    },
    /// DataFusion's own join over what was read.
    Host {
        /// DataFusion's own join.
        join: Box<HostJoin>,
        /// The reason why it is that.
        reason: HostReason,
        /// Number of this build.
        at: BuildId,
        /// Record in which its metrics are noted.
        on_host: Arc<HostMetrics>,
    },
}

impl Decided {
    /// Returns whether each stream can be read more than once, by any number of consumers.
    pub fn can_be_read_again(&self) -> bool {
        match self {
            Decided::Device { reopen, .. } => reopen.is_some(),
            Decided::Host { join, .. } => join.can_be_read_again(),
            Decided::Shards { .. } => false,
        }
    }

    /// Returns how the host spread rows over partitions by their keys, if it did, and why it was
    /// the host.
    pub fn spread(&self) -> Option<(HostPartitioning, HostReason)> {
        match self {
            Decided::Host { join, reason, .. } if join.spread() != HostPartitioning::Collect => {
                Some((join.spread(), reason.clone()))
            }
            _ => None,
        }
    }

    /// Returns the rows of stream `at`; there are none if the probe side has fewer streams, or if
    /// they were read and cannot be read again.
    ///
    /// # Errors
    /// The errors of executing DataFusion's own join, and of opening a partition anew.
    pub fn stream(&self, at: usize, partition: usize) -> Result<SendableRecordBatchStream> {
        match self {
            Decided::Shards { joins, shares } => {
                let joined = joins.iter().map(|join| join.stream(at, partition));
                Ok(shares.stream(joined.collect::<Result<_>>()?, at))
            }
            Decided::Host {
                join,
                at: noted,
                on_host,
                ..
            } => {
                let stream = join.stream(at)?;
                on_host.note(*noted, join.join());
                Ok(stream)
            }
            Decided::Device {
                spec,
                build,
                streams,
                reopen,
                oriented,
                metrics,
            } => {
                let first = streams.get(at).map(|stream| {
                    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                    stream.take()
                });
                let stream = match (first, reopen) {
                    (Some(Some(stream)), _) => stream,
                    (Some(None), Some(reopen)) => reopen(at)?,
                    _ => return Ok(empty_stream(&spec.output.schema)),
                };
                let metrics = JoinMetrics::new(metrics, partition);
                let pool = oriented.context().memory_pool();
                let memory = ProbeMemory::new(pool, partition);
                let (spec, build) = (Arc::clone(spec), Arc::clone(build));
                Ok(Probe::new(spec, build, (at, stream), memory, metrics).into_stream())
            }
        }
    }
}

/// Returns the one error of a build, for another of its streams.
pub fn for_another(error: Arc<Error>) -> DataFusionError {
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
