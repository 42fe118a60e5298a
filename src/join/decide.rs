//! Where a join runs, decided when its build side is there.
//!
//! ```text
//!  inputs ─▶ race: a build side ─▶ place ─▶ rows ≥ horton.min_build_rows, device ready, keys of its kind,
//!                                    │       and of a small build side: many rows to probe
//!                                    │ yes                              │ no, for a reason
//!                                    ▼                                  │
//!                     table on the device ── failed, does not fit ──────┤
//!                                    │                                  ▼
//!                     Decided::Device: probe streams        Decided::Host: DataFusion's own join
//!
//!  neither side fits into memory, or the build side not on the device
//!                                 ─▶ Decided::Spilled: buckets, each of which is decided like that
//! ```
//!
//! DuckDB and DataFusion decide on perfect hashing at the same point (`try_create_array_map`): rows
//! that are there are facts. Nothing is estimated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{
    ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricValue, MetricsSet,
};
use futures::future::{BoxFuture, Shared};

use crate::config::{Enabled, HortonConfig};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ready::{self, Readiness};

use super::build::{BuildSide, Built};
use super::coalesce::coalesce;
use super::filter::{Facts, Reporter};
use super::host_join::{HostJoin, host_join};
use super::memory::{BuildMemory, ProbeMemory};
use super::metrics::JoinMetrics;
use super::oriented::Oriented;
use super::probe::{Probe, ProbeSpec};
use super::reading::{Collected, Reading, Turn, nothing};
use super::sides::Side;
use super::spill::Spilled;

/// A join that is decided, or the one error of its build for all its streams.
pub type SharedDecision = Shared<BoxedDecision>;

/// A decision that one stream alone may wait for.
pub type BoxedDecision = BoxFuture<'static, Result<Arc<Decided>, Arc<Error>>>;

/// Why a join runs on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declined {
    /// No device can compare the keys.
    KeyType(String),
    /// `auto`: the build side has fewer rows.
    FewRows {
        /// `horton.min_build_rows`, or the device's default.
        min_build_rows: usize,
    },
    /// `auto`: neither side has many rows.
    FewToProbe {
        /// Rows of the probe side from which so few build rows go to the device.
        wanted: usize,
    },
    /// `auto`: the device is being opened, or its kernels are being compiled.
    Preparing,
    /// There is no device, or it failed its self-test.
    NotReady(String),
    /// The device failed earlier in this session.
    FailedBefore(String),
    /// The device failed while it built the table.
    Failed(String),
    /// `auto`: the table does not fit into the device's memory.
    DoesNotFit,
    /// The memory pool refused what the device's table takes beside the rows.
    NoMemory,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::KeyType(reason) => write!(f, "key type: {reason}"),
            Declined::FewRows { min_build_rows } => {
                write!(f, "fewer than horton.min_build_rows = {min_build_rows}")
            }
            Declined::FewToProbe { wanted } => write!(f, "fewer than {wanted} rows to probe"),
            Declined::Preparing => write!(f, "kernels are being compiled"),
            Declined::NotReady(reason) => write!(f, "{reason}"),
            Declined::FailedBefore(reason) => write!(f, "device failed: {reason}"),
            Declined::Failed(reason) => write!(f, "device failed while building: {reason}"),
            Declined::DoesNotFit => write!(f, "no room on the device"),
            Declined::NoMemory => write!(f, "no room in the memory pool"),
        }
    }
}

/// Where a join runs.
#[derive(Debug, Clone)]
pub enum Place {
    /// On this device.
    Device(Device),
    /// As DataFusion's own join, for this reason.
    Host(Declined),
}

/// Where the rows of a bucket are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// In a file.
    Disk,
    /// In memory, while the pool grants it.
    Memory,
}

/// What was decided of a join, or of one of its partitions.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The side that was built.
    pub build: Side,
    /// Its rows.
    pub rows: usize,
    /// Where the join runs.
    pub place: Place,
    /// Where these rows were if they are those of one bucket.
    pub bucket: Option<Home>,
}

/// Which of a node's joins: that of a partition, or of a bucket of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The partition, 0 if all share a build.
    pub partition: usize,
    /// The bucket's number, if the rows are in buckets.
    pub bucket: Option<usize>,
}

/// What a node shows of the joins that run in its place.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// The node's own metrics.
    pub metrics: ExecutionPlanMetricsSet,
    /// Those of buckets that a device joined.
    pub buckets: ExecutionPlanMetricsSet,
    /// What was decided.
    pub decisions: Arc<Decisions>,
    /// DataFusion's own joins.
    pub on_host: Arc<OnHost>,
}

impl Shown {
    /// Forgets what an earlier execution of `partition` showed: it can have had more buckets, or none.
    pub fn begin(&self, partition: usize) {
        let is_other = |at: &At| at.partition != partition;
        self.decisions.lock().retain(|at, _| is_other(at));
        self.on_host.lock().retain(|at, _| is_other(at));
    }

    /// The same for buckets.
    pub fn of_buckets(&self) -> Self {
        Self {
            metrics: self.buckets.clone(),
            ..self.clone()
        }
    }

    /// All metrics. Rows that come of buckets are not the node's yet: it may owe fewer.
    pub fn all_metrics(&self) -> MetricsSet {
        let mut all = self.metrics.clone_inner();
        let on_host = self.on_host.lock();
        let mut add = |metrics: &MetricsSet, in_bucket: bool| {
            let metrics = metrics.iter().filter(|m| !in_bucket || !is_output(m));
            metrics.for_each(|metric| all.push(Arc::clone(metric)));
        };
        add(&self.buckets.clone_inner(), true);
        for (at, metrics) in on_host.iter() {
            add(metrics, at.bucket.is_some());
        }
        all
    }
}

/// Whether it counts what a node gives out.
fn is_output(metric: &Metric) -> bool {
    use MetricValue::{OutputBatches, OutputBytes, OutputRows};
    matches!(
        metric.value(),
        OutputRows(_) | OutputBytes(_) | OutputBatches(_)
    )
}

/// What an execution of a build must know of its node.
#[derive(Clone)]
pub struct Node {
    /// The join as planned.
    pub planned: Arc<HashJoinExec>,
    /// The session's options.
    pub config: HortonConfig,
    /// The query's context.
    pub context: Arc<TaskContext>,
    /// What the node shows.
    pub shown: Shown,
    /// Which build this is.
    pub partition: usize,
}

impl Node {
    /// The join with `build` as its build side.
    ///
    /// # Errors
    /// Those of [`Oriented::of`].
    pub fn oriented(&self, build: Side) -> datafusion::error::Result<Oriented> {
        let swapped = build == Side::Right;
        Oriented::of(&self.planned, swapped, &self.config, &self.context)
    }

    /// What decisions are noted under.
    pub fn at(&self, bucket: Option<usize>) -> At {
        let partition = self.partition;
        At { partition, bucket }
    }
}

/// What was decided of each of a join's builds when it ran last.
#[derive(Debug, Default)]
pub struct Decisions(Mutex<BTreeMap<At, Decision>>);

impl Decisions {
    /// All of them.
    pub fn all(&self) -> Vec<Decision> {
        self.lock().values().cloned().collect()
    }

    fn note(&self, at: At, decision: Decision) {
        self.lock().insert(at, decision);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<At, Decision>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Decisions {
    /// `build=left, 4990 rows, on NVIDIA H200`; with several builds, how many went where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let Some(last) = all.last() else {
            return Ok(());
        };
        let rows: usize = all.iter().map(|decision| decision.rows).sum();
        write!(f, "build={}, {rows} rows", last.build)?;
        let are_in = |home| all.iter().filter(|d| d.bucket == Some(home)).count();
        match (are_in(Home::Disk), are_in(Home::Memory)) {
            (0, 0) => {}
            (0, kept) => write!(f, ", in {kept} buckets")?,
            (spilled, _) => write!(f, ", spilled to {spilled} buckets")?,
        }
        let on_device = all.iter().filter(|d| matches!(d.place, Place::Device(_)));
        let on_device = on_device.count();
        if on_device > 0 && on_device < all.len() {
            write!(f, ", {on_device} of {} on the device", all.len())?;
        }
        match &last.place {
            Place::Device(device) => write!(f, ", on {}", device.info().name),
            Place::Host(reason) => write!(f, ", on the host: {reason}"),
        }
    }
}

/// Metrics of DataFusion's own joins that ran last in the place of each build. The joins are not
/// kept: one holds its build side, and that side's memory, for as long as it is there.
#[derive(Debug, Default)]
pub struct OnHost(Mutex<BTreeMap<At, MetricsSet>>);

impl OnHost {
    /// Notes the metrics of `join` after one of its partitions was executed, which adds some.
    fn note(&self, at: At, join: &HashJoinExec) {
        // Read under the lock: partitions are executed side by side, and the last one has them all.
        let mut noted = self.lock();
        noted.extend(join.metrics().map(|metrics| (at, metrics)));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<At, MetricsSet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where a build side of `rows` rows is joined.
///
/// # Errors
/// [`Error::UnknownDevice`] and [`Error::UnsuitableDevice`]: `horton.device` names a device that is
/// not there or cannot run the kernels.
pub async fn place(oriented: &Oriented, rows: usize) -> Result<Place> {
    let config = oriented.config();
    if let Some(reason) = oriented.unsupported_keys()? {
        return Ok(Place::Host(Declined::KeyType(reason)));
    }
    let readiness = match config.enabled {
        Enabled::Always => ready::settled(config).await,
        // The name may be wrong.
        _ if config.device != HortonConfig::AUTO => ready::opened(config).await,
        _ => ready::now(config),
    };
    let declined = match readiness {
        Readiness::Opening | Readiness::Compiling => Declined::Preparing,
        Readiness::Declined(reason) => Declined::NotReady(reason),
        Readiness::Invalid(error) => return Err(Error::DataFusion(for_another(error))),
        Readiness::Ready(device) => {
            let min_build_rows = config.min_build_rows(device.info().kind);
            match config.health.failure(device.info()) {
                Some(reason) => Declined::FailedBefore(reason),
                None if rows < min_build_rows => Declined::FewRows { min_build_rows },
                None => return Ok(Place::Device(device)),
            }
        }
    };
    Ok(Place::Host(declined))
}

/// What a decided join needs of its node.
pub struct Joiner {
    /// The join, its build side on the left.
    pub oriented: Oriented,
    /// The side that is built.
    pub build: Side,
    /// Which build this is.
    pub at: At,
    /// Output partitions, if the host may repartition both sides into so many.
    pub partitions: Option<usize>,
    /// What the build side tells scans of the probe side.
    pub reporter: Option<Reporter>,
    /// What the node shows of it.
    pub shown: Shown,
    /// Where the rows were if they are those of one bucket.
    pub bucket: Option<Home>,
    /// Whether sides go to buckets if the device has no room for the build side.
    pub scatters: bool,
}

/// What came of a decision.
pub enum Joined {
    /// A join.
    Decided(Decided),
    /// None, as the device has no room for the build side, and the join [`scatters`](Joiner::scatters).
    TooLarge {
        /// The build side.
        build: Collected,
        /// The probe side.
        probe: Vec<SendableRecordBatchStream>,
        /// The device.
        device: Device,
    },
}

impl Joiner {
    /// Decides where the rows of `build` and `probe` are joined, and tells scans of the probe side
    /// what the build side knows.
    ///
    /// # Errors
    /// Those of [`place`] and of the build.
    pub async fn decide(mut self, build: Collected, mut probe: Reading) -> Result<Joined> {
        let build = coalesce(build, self.oriented.width()).await?;
        self.tell(&build).await?;
        let place = match place(&self.oriented, build.rows).await? {
            Place::Device(device) => self.with_probe(device, build.rows, &mut probe).await?,
            host => host,
        };
        let probe = probe.into_streams();
        match place {
            Place::Device(device) => self.on_device(device, build, probe).await,
            Place::Host(reason) => self.on_host(build, probe, reason).map(Joined::Decided),
        }
    }

    /// Tells scans of the probe side the keys of the build side.
    async fn tell(&mut self, build: &Collected) -> Result<()> {
        let Some(reporter) = self.reporter.take() else {
            return Ok(());
        };
        let on = self.oriented.join().on().iter();
        let on: Vec<_> = on.map(|(key, _)| Arc::clone(key)).collect();
        let keys = build.batches.iter();
        let keys = keys.map(|batch| evaluate_expressions_to_arrays(&on, batch));
        let facts = Facts {
            rows: build.rows,
            distinct: build.rows,
            keys: keys.collect::<Result<_, DataFusionError>>()?,
        };
        let time = MetricBuilder::new(&self.shown.metrics);
        let time = time.subset_time("filter_time", self.at.partition);
        reporter.report(facts, &time).await
    }

    /// `device`, unless the build side has few rows and the probe side ends with few, too.
    async fn with_probe(
        &self,
        device: Device,
        build_rows: usize,
        probe: &mut Reading,
    ) -> Result<Place> {
        let (config, join) = (self.oriented.config(), self.oriented.join());
        let wanted = config.min_probe_rows(device.info().kind, build_rows);
        if wanted == 0 || join.fetch().is_some() || join.right().boundedness().is_unbounded() {
            return Ok(Place::Device(device));
        }
        let turn = probe.turn(wanted).await?;
        Ok(match probe.rows() < wanted && matches!(turn, Turn::Ended) {
            true => Place::Host(Declined::FewToProbe { wanted }),
            false => Place::Device(device),
        })
    }

    async fn on_device(
        self,
        device: Device,
        build: Collected,
        probe: Vec<SendableRecordBatchStream>,
    ) -> Result<Joined> {
        let spec = self.oriented.build_spec(&device, probe.len())?;
        let metrics = JoinMetrics::new(&self.shown.metrics, self.at.partition);
        let read = (build.input_batches, build.rows, build.bytes);
        let pool = self.oriented.context().memory_pool();
        let memory = BuildMemory::new(pool, self.at.partition);
        let (rows, kept) = build.apart();
        let built = match BuildSide::build(spec, rows, memory, metrics.clone()).await {
            Ok(Built::Side(side)) => side,
            Ok(Built::HandedBack(Declined::DoesNotFit)) if self.scatters => {
                return Ok(Joined::TooLarge {
                    build: kept,
                    probe,
                    device,
                });
            }
            Ok(Built::HandedBack(reason)) => {
                return self.on_host(kept, probe, reason).map(Joined::Decided);
            }
            // A table on the host has its memory already.
            Err(error) if error.is_pool_memory() => {
                let reason = Declined::NoMemory;
                return self.on_host(kept, probe, reason).map(Joined::Decided);
            }
            Err(error) => return Err(error),
        };
        kept.memory.shrink(kept.table);
        built.hold(&kept.memory);
        // The host's join counts what was handed back to it.
        metrics.add_build_input(read);
        let spec = Arc::new(self.oriented.probe_spec(&device));
        self.note(built.rows.len(), Place::Device(device));
        let streams = probe.into_iter().map(|stream| Mutex::new(Some(stream)));
        Ok(Joined::Decided(Decided::Device {
            spec,
            build: Arc::new(*built),
            streams: streams.collect(),
            oriented: self.oriented,
            metrics: self.shown.metrics,
        }))
    }

    fn on_host(
        self,
        build: Collected,
        probe: Vec<SendableRecordBatchStream>,
        reason: Declined,
    ) -> Result<Decided> {
        log::debug!("a join of {} build rows on the host: {reason}", build.rows);
        self.note(build.rows, Place::Host(reason));
        Ok(Decided::Host {
            join: Box::new(host_join(&self.oriented, build, probe, self.partitions)?),
            at: self.at,
            on_host: self.shown.on_host,
        })
    }

    fn note(&self, rows: usize, place: Place) {
        let decision = Decision {
            build: self.build,
            rows,
            place,
            bucket: self.bucket,
        };
        self.shown.decisions.note(self.at, decision);
    }
}

/// A join whose build side is there.
pub enum Decided {
    /// Its table is on a device.
    Device {
        /// What probe streams know.
        spec: Arc<ProbeSpec>,
        /// The build side.
        build: Arc<BuildSide>,
        /// The probe side's streams, each to be taken once.
        streams: Vec<Mutex<Option<SendableRecordBatchStream>>>,
        /// The join.
        oriented: Oriented,
        /// The node's metrics.
        metrics: ExecutionPlanMetricsSet,
    },
    /// DataFusion's own join over what was read.
    Host {
        /// That join.
        join: Box<HostJoin>,
        /// Which build this is.
        at: At,
        /// Where its metrics are noted.
        on_host: Arc<OnHost>,
    },
    /// Neither side fits into memory, or the build side not on the device.
    Spilled(Arc<Spilled>),
}

impl Decided {
    /// The rows of stream `at`; there are none if the probe side has fewer streams.
    ///
    /// # Errors
    /// Those of executing DataFusion's own join.
    pub fn stream(&self, at: usize, partition: usize) -> Result<SendableRecordBatchStream> {
        match self {
            Decided::Host {
                join,
                at: noted,
                on_host,
            } => {
                let stream = join.stream(at)?;
                on_host.note(*noted, join.join());
                Ok(stream)
            }
            Decided::Spilled(spilled) => Ok(spilled.stream(at, partition)?),
            Decided::Device {
                spec,
                build,
                streams,
                oriented,
                metrics,
            } => {
                let stream = streams.get(at).and_then(|stream| {
                    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                    stream.take()
                });
                let Some(stream) = stream else {
                    return Ok(nothing(&spec.output.schema));
                };
                let metrics = JoinMetrics::new(metrics, partition);
                let pool = oriented.context().memory_pool();
                let memory = ProbeMemory::new(pool, partition);
                let (spec, build) = (Arc::clone(spec), Arc::clone(build));
                Ok(Probe::new(spec, build, stream, (memory, metrics)).into_stream())
            }
        }
    }
}

/// The one error of a build, for another of its streams.
pub fn for_another(error: Arc<Error>) -> DataFusionError {
    match error.as_ref() {
        Error::DeviceMemory { .. } => DataFusionError::ResourcesExhausted(error.to_string()),
        Error::DataFusion(DataFusionError::ResourcesExhausted(text)) => {
            DataFusionError::ResourcesExhausted(text.clone())
        }
        Error::Internal(text) => Error::Internal(text.clone()).into(),
        _ => DataFusionError::External(Box::new(error)),
    }
}
