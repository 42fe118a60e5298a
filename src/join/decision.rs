//! Decisions on a join, and the record of them that its node shows.
//!
//! ```text
//!  HortonJoinExec ─ JoinReport ─┬─ Decisions     build side, rows, device or reason, per build
//!                               ├─ metrics       its own, and those of spill partitions
//!                               └─ HostMetrics   metrics of DataFusion's own joins in its place
//! ```
//!
//! EXPLAIN and EXPLAIN ANALYZE read it, and programs through
//! [`HortonJoinExec::decisions`](super::exec::HortonJoinExec::decisions).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{
    ExecutionPlanMetricsSet, Metric, MetricValue, MetricsSet,
};

use crate::device::{Device, DeviceInfo};

use super::side::Side;

/// The reason why a join runs on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostReason {
    /// The keys are of types that no device can compare.
    KeyType(String),
    /// `auto`: the build side has fewer rows.
    FewRows {
        /// `horton.min_build_rows`, or the device's default.
        min_build_rows: usize,
    },
    /// `auto`: neither side is known to have many rows.
    FewProbeRows {
        /// Rows of the probe side from which so few build rows go to the device.
        wanted: usize,
    },
    /// `auto`: both sides are hashed by the keys already, as aggregates are. The host joins each
    /// partition of one side with that of the other, as they are.
    HashedByKeys,
    /// `auto`: a semi or anti join with a residual filter, many build rows of which share each key.
    /// The host evaluates the filter for all pairs in either case, and would fetch them from the
    /// device first.
    ManyPairs,
    /// `auto`: devices are being opened. There may be none.
    Opening,
    /// `auto`: the device's kernels are being compiled and tested.
    Compiling,
    /// OpenCL has no device, or it failed its self-test.
    NotReady(String),
    /// The device failed earlier in this session.
    FailedBefore(String),
    /// The device failed while it built the table.
    Failed(String),
    /// The table does not fit into the device's memory.
    DoesNotFit,
    /// The memory pool refused what the device's table takes beside the rows.
    NoMemory,
}

impl fmt::Display for HostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostReason::KeyType(reason) => write!(f, "key type: {reason}"),
            HostReason::FewRows { min_build_rows } => {
                write!(f, "fewer than horton.min_build_rows = {min_build_rows}")
            }
            HostReason::FewProbeRows { wanted } => {
                write!(f, "fewer than {wanted} known rows to probe")
            }
            HostReason::HashedByKeys => write!(f, "both sides are hashed by the keys"),
            HostReason::ManyPairs => write!(f, "many pairs for the residual filter"),
            HostReason::Opening => write!(f, "devices are being opened"),
            HostReason::Compiling => write!(f, "kernels are being compiled"),
            HostReason::NotReady(reason) => write!(f, "{reason}"),
            HostReason::FailedBefore(reason) => write!(f, "device failed: {reason}"),
            HostReason::Failed(reason) => write!(f, "device failed while building: {reason}"),
            HostReason::DoesNotFit => write!(f, "no room on the device"),
            HostReason::NoMemory => write!(f, "no room in the memory pool"),
        }
    }
}

/// The place where a join runs.
#[derive(Debug, Clone)]
pub enum Place {
    /// A device runs the join.
    Device(Device),
    /// DataFusion's own join runs on the host, for this reason.
    Host(HostReason),
}

/// A decision: how a join is run, or one of its partitions.
///
/// The *build side* of a join is the input that goes into the hash table. The *probe side* is the
/// input whose rows are looked up in it.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The side that was built.
    pub build: Side,
    /// Rows of that side.
    pub rows: usize,
    /// Place where the join runs.
    pub place: Place,
    /// True if these rows are those of one spill partition.
    pub is_spilled: bool,
}

/// Identifies one join of a node: the join of a partition, of a spill partition, or of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BuildId {
    /// The partition, 0 if all share a build.
    pub partition: usize,
    /// The number of the spill partition or of the shard, if the rows are those of one.
    pub part: Option<usize>,
}

/// The record that a node shows of the joins that run in its place.
#[derive(Debug, Clone, Default)]
pub struct JoinReport {
    /// The node's own metrics.
    pub metrics: ExecutionPlanMetricsSet,
    /// Metrics of spill partitions that a device joined.
    pub spill_partitions: ExecutionPlanMetricsSet,
    /// The decisions on its builds.
    pub decisions: Arc<Decisions>,
    /// DataFusion's own joins.
    pub on_host: Arc<HostMetrics>,
}

impl JoinReport {
    /// Forgets what an earlier execution of `partition` showed: it can have had more spill
    /// partitions, or none.
    pub fn begin(&self, partition: usize) {
        let is_other = |at: &BuildId| at.partition != partition;
        self.decisions.lock().retain(|at, _| is_other(at));
        self.on_host.lock().retain(|at, _| is_other(at));
    }

    /// Returns the record for spill partitions.
    pub fn for_spill_partitions(&self) -> Self {
        Self {
            metrics: self.spill_partitions.clone(),
            ..self.clone()
        }
    }

    /// Returns all metrics. Rows that come of spill partitions are not the node's yet: it may emit
    /// fewer.
    pub fn all_metrics(&self) -> MetricsSet {
        let mut all = self.metrics.clone_inner();
        let on_host = self.on_host.lock();
        let mut add = |metrics: &MetricsSet, in_partition: bool| {
            let metrics = metrics.iter().filter(|m| !in_partition || !is_output(m));
            metrics.for_each(|metric| all.push(Arc::clone(metric)));
        };
        add(&self.spill_partitions.clone_inner(), true);
        for (at, metrics) in on_host.iter() {
            add(metrics, at.part.is_some());
        }
        all
    }
}

/// Returns whether it counts what a node gives out.
fn is_output(metric: &Metric) -> bool {
    use MetricValue::{OutputBatches, OutputBytes, OutputRows};
    matches!(
        metric.value(),
        OutputRows(_) | OutputBytes(_) | OutputBatches(_)
    )
}

/// The decisions on each of a join's builds when it ran last.
#[derive(Debug, Default)]
pub struct Decisions(Mutex<BTreeMap<BuildId, Decision>>);

impl Decisions {
    /// Returns all decisions.
    pub fn all(&self) -> Vec<Decision> {
        self.lock().values().cloned().collect()
    }

    /// Notes the decision on the build `at`.
    pub fn note(&self, at: BuildId, decision: Decision) {
        self.lock().insert(at, decision);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BuildId, Decision>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Decisions {
    /// Writes `build=left, 4990 rows, on NVIDIA H200`; with several builds, how many went where.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let Some(last) = all.last() else {
            return Ok(());
        };
        let rows: usize = all.iter().map(|decision| decision.rows).sum();
        write!(f, "build={}, {rows} rows", last.build)?;
        let spilled = all.iter().filter(|decision| decision.is_spilled).count();
        if spilled > 0 {
            write!(f, ", spilled to {spilled} partitions")?;
        }
        let on_device = all.iter().filter(|d| matches!(d.place, Place::Device(_)));
        let on_device = on_device.count();
        if on_device > 0 && on_device < all.len() {
            write!(f, ", {on_device} of {} on the device", all.len())?;
        }
        let devices = all.iter().filter_map(|decision| match &decision.place {
            Place::Device(device) => Some(device.info()),
            Place::Host(_) => None,
        });
        let labels: BTreeSet<String> = devices.map(DeviceInfo::label).collect();
        match &last.place {
            _ if labels.len() > 1 => {
                let labels: Vec<String> = labels.into_iter().collect();
                write!(f, ", on {}", labels.join(" and "))
            }
            Place::Device(device) => write!(f, ", on {}", device.info().name),
            Place::Host(reason) => write!(f, ", on the host: {reason}"),
        }
    }
}

/// Metrics of DataFusion's own joins that ran last in the place of each build. The joins are not
/// kept: one holds its build side, and that side's memory, for as long as it is alive.
#[derive(Debug, Default)]
pub struct HostMetrics(Mutex<BTreeMap<BuildId, MetricsSet>>);

impl HostMetrics {
    /// Notes the metrics of `join` after one of its partitions was executed, which adds some.
    pub fn note(&self, at: BuildId, join: &HashJoinExec) {
        // Read under the lock: partitions are executed side by side, and the last one has them all.
        let mut noted = self.lock();
        noted.extend(join.metrics().map(|metrics| (at, metrics)));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<BuildId, MetricsSet>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the reasons, one of each. A new one does not compile here before it is added.
    fn all() -> Vec<HostReason> {
        use HostReason::*;
        let text = String::new;
        let all = vec![
            KeyType(text()),
            FewRows { min_build_rows: 7 },
            FewProbeRows { wanted: 7 },
            HashedByKeys,
            ManyPairs,
            Opening,
            Compiling,
            NotReady("no device: ".to_owned()),
            NotReady(crate::device_startup::not_listed(7)),
            NotReady("OpenCL device '7' failed its self-test: 7".to_owned()),
            FailedBefore(text()),
            Failed(text()),
            DoesNotFit,
            NoMemory,
        ];
        for reason in &all {
            match reason {
                KeyType(_)
                | FewRows { .. }
                | FewProbeRows { .. }
                | HashedByKeys
                | ManyPairs
                | Opening
                | Compiling
                | NotReady(_)
                | FailedBefore(_)
                | Failed(_)
                | DoesNotFit
                | NoMemory => {}
            }
        }
        all
    }

    #[test]
    fn each_reason_has_a_heading_on_the_page_that_says_what_to_do() {
        let page = include_str!("../../docs/why-host.md");
        let headings: Vec<&str> = (page.lines())
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        for reason in all() {
            let text = reason.to_string().replace('7', "…");
            let found = |heading: &&str| *heading == text || *heading == format!("{text}…");
            assert!(headings.iter().any(found), "{text}: {headings:?}");
        }
        assert_eq!(headings.len(), all().len(), "{headings:?}");
    }
}
