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
//! ```
//!
//! DuckDB and DataFusion decide on perfect hashing at the same point (`try_create_array_map`): rows
//! that are there are facts. Nothing is estimated.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{
    ExecutionPlanMetricsSet, Metric, MetricBuilder, MetricsSet,
};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::{BoxFuture, Shared};

use crate::config::{Enabled, HortonConfig};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ready::{self, Readiness};

use super::build::{BuildSide, Built};
use super::filter::{Facts, Reporter};
use super::host_join::host_join;
use super::memory::{BuildMemory, ProbeMemory};
use super::metrics::JoinMetrics;
use super::oriented::Oriented;
use super::probe::{Probe, ProbeSpec};
use super::reading::{Collected, Reading, Turn, nothing};
use super::sides::Side;

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

/// What was decided of a join, or of one of its partitions.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The side that was built.
    pub build: Side,
    /// Its rows.
    pub rows: usize,
    /// Where the join runs.
    pub place: Place,
}

/// What was decided of each of a join's builds when it ran last.
#[derive(Debug, Default)]
pub struct Decisions(Mutex<BTreeMap<usize, Decision>>);

impl Decisions {
    /// All of them.
    pub fn all(&self) -> Vec<Decision> {
        self.lock().values().cloned().collect()
    }

    fn note(&self, partition: usize, decision: Decision) {
        self.lock().insert(partition, decision);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Decision>> {
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
pub struct OnHost(Mutex<BTreeMap<usize, MetricsSet>>);

impl OnHost {
    /// Notes the metrics of `join` after one of its partitions was executed, which adds some.
    fn note(&self, partition: usize, join: &HashJoinExec) {
        // Read under the lock: partitions are executed side by side, and the last one has them all.
        let mut noted = self.lock();
        noted.extend(join.metrics().map(|metrics| (partition, metrics)));
    }

    /// The metrics of all of them.
    pub fn metrics(&self) -> Vec<Arc<Metric>> {
        let noted = self.lock();
        let metrics = noted.values().flat_map(MetricsSet::iter);
        metrics.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, MetricsSet>> {
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
    pub partition: usize,
    /// Output partitions, if the host may repartition both sides into so many.
    pub partitions: Option<usize>,
    /// What the build side tells scans of the probe side.
    pub reporter: Option<Reporter>,
    /// The node's metrics.
    pub metrics: ExecutionPlanMetricsSet,
    /// Where decisions are noted.
    pub decisions: Arc<Decisions>,
    /// Where DataFusion's own joins are noted.
    pub on_host: Arc<OnHost>,
}

impl Joiner {
    /// Decides where the rows of `build` and `probe` are joined, and tells scans of the probe side
    /// what the build side knows.
    ///
    /// # Errors
    /// Those of [`place`] and of the build.
    pub async fn decide(mut self, build: Reading, mut probe: Reading) -> Result<Decided> {
        let build = build.into_build()?;
        self.tell(&build).await?;
        let place = match place(&self.oriented, build.rows).await? {
            Place::Device(device) => self.with_probe(device, build.rows, &mut probe).await?,
            host => host,
        };
        let probe = probe.into_streams();
        match place {
            Place::Device(device) => self.on_device(device, build, probe).await,
            Place::Host(reason) => self.on_host(build, probe, reason),
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
        let time = MetricBuilder::new(&self.metrics).subset_time("filter_time", self.partition);
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
    ) -> Result<Decided> {
        let spec = self.oriented.build_spec(&device, probe.len())?;
        let metrics = JoinMetrics::new(&self.metrics, self.partition);
        let read = (build.input_batches, build.rows, build.bytes);
        let pool = self.oriented.context().memory_pool();
        let memory = BuildMemory::new(pool, self.partition);
        let build = match BuildSide::build(spec, build, memory, metrics.clone()).await? {
            Built::Side(build) => build,
            Built::HandedBack(build, reason) => return self.on_host(build, probe, reason),
        };
        // The host's join counts what was handed back to it.
        metrics.add_build_input(read);
        let spec = Arc::new(self.oriented.probe_spec(&device));
        self.note(build.rows.len(), Place::Device(device));
        let streams = probe.into_iter().map(|stream| Mutex::new(Some(stream)));
        Ok(Decided::Device {
            spec,
            build: Arc::new(*build),
            streams: streams.collect(),
            oriented: self.oriented,
            metrics: self.metrics,
        })
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
            oriented: self.oriented,
            partition: self.partition,
            on_host: self.on_host,
        })
    }

    fn note(&self, rows: usize, place: Place) {
        let build = self.build;
        let decision = Decision { build, rows, place };
        self.decisions.note(self.partition, decision);
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
        join: Box<HashJoinExec>,
        /// The join it stands for.
        oriented: Oriented,
        /// Which build this is.
        partition: usize,
        /// Where its metrics are noted.
        on_host: Arc<OnHost>,
    },
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
                oriented,
                partition,
                on_host,
            } => {
                if at >= join.properties().output_partitioning().partition_count() {
                    return Ok(nothing(&join.schema()));
                }
                let stream = join.execute(at, Arc::clone(oriented.context()))?;
                on_host.note(*partition, join);
                Ok(stream)
            }
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
        _ => DataFusionError::External(Box::new(error)),
    }
}
