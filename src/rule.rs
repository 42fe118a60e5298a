//! The two optimizer rules that put joins on the device, and why one stays on the host.
//!
//! ```text
//!  … JoinSelection ─▶ CollectBuildSide ─▶ … ─▶ SanityCheckPlan ─▶ JoinOnDevice
//!                     Partitioned ─▶ CollectLeft                  HashJoinExec ─▶ HortonJoinExec
//! ```
//!
//! The device needs no hash repartition of either side, and that copy is a large part of the
//! stock join's cost, so the first rule takes it out of joins that the second will take.
//! The second comes last so that every rule in between sees the node it knows. A join that is
//! not taken stays a `HashJoinExec`; EXPLAIN prints the [`Declined`] reason beside it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::config::{Enabled, HortonConfig};
use crate::device::Device;
use crate::error::Error;
use crate::join::{HortonJoinExec, keys};

/// Why a join stays on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Declined {
    /// There is no OpenCL device.
    NoDevice(String),
    /// A key type has no surrogate.
    KeyType(String),
    /// `auto`: the inputs are estimated to have fewer rows than `horton.min_rows`.
    FewRows {
        /// The estimate.
        rows: usize,
        /// `horton.min_rows`.
        min_rows: usize,
    },
    /// `auto`: the number of input rows is unknown.
    UnknownRows,
    /// The partition mode is still `Auto`, which no join can execute.
    UndecidedMode,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Declined::NoDevice(reason) => write!(f, "no device: {reason}"),
            Declined::KeyType(reason) => write!(f, "key type: {reason}"),
            Declined::FewRows { rows, min_rows } => {
                write!(f, "about {rows} input rows, horton.min_rows = {min_rows}")
            }
            Declined::UnknownRows => write!(f, "number of input rows unknown"),
            Declined::UndecidedMode => write!(f, "partition mode undecided"),
        }
    }
}

/// Where a join runs.
#[derive(Debug, Clone)]
pub enum Route {
    /// On this device.
    Device(Device),
    /// As DataFusion's own join, for this reason.
    Stock(Declined),
}

/// Decides where a join runs.
///
/// # Errors
/// [`Error::UnknownDevice`] and [`Error::UnsuitableDevice`]: `horton.device` names a device that
/// is not there or cannot run the kernels. That no device is there at all is no error.
fn route(join: &HashJoinExec, config: &HortonConfig) -> Result<Route> {
    let declined = |reason| Ok(Route::Stock(reason));
    let device = match Device::open(&config.device) {
        Ok(device) => device,
        Err(error @ (Error::NoPlatform(_) | Error::NoUsableDevice(_))) => {
            warn_once(&error);
            return declined(Declined::NoDevice(brief(&error)));
        }
        Err(error) => return Err(error.into()),
    };
    if *join.partition_mode() == PartitionMode::Auto {
        return declined(Declined::UndecidedMode);
    }
    let (left, right) = (join.left().schema(), join.right().schema());
    let types = join
        .on()
        .iter()
        .map(|(l, r)| Ok((l.data_type(&left)?, r.data_type(&right)?)))
        .collect::<Result<Vec<_>>>()?;
    if let Err(reason) = keys::supported(&types) {
        return declined(Declined::KeyType(reason));
    }
    if config.enabled == Enabled::Auto
        && let Some(reason) = too_small(join, config.min_rows)?
    {
        return declined(reason);
    }
    Ok(Route::Device(device))
}

/// Whether `auto` leaves a join on the host for its size.
fn too_small(join: &HashJoinExec, min_rows: usize) -> Result<Option<Declined>> {
    let context = StatisticsContext::new();
    let rows = |side: &Arc<dyn ExecutionPlan>| -> Result<Option<usize>> {
        let statistics = context.compute(side.as_ref(), &StatisticsArgs::new())?;
        Ok(statistics.num_rows.get_value().copied())
    };
    Ok(match (rows(join.left())?, rows(join.right())?) {
        (Some(left), Some(right)) if left.saturating_add(right) >= min_rows => None,
        (Some(left), Some(right)) => Some(Declined::FewRows {
            rows: left.saturating_add(right),
            min_rows,
        }),
        _ => Some(Declined::UnknownRows),
    })
}

fn warn_once(error: &Error) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!("{error}; joins stay on the host");
    }
}

/// The part of an error that fits beside a plan node.
fn brief(error: &Error) -> String {
    let text = error.to_string();
    text.split_once(';')
        .map_or(text.clone(), |(head, _)| head.to_owned())
}

fn options(config: &ConfigOptions) -> Option<&HortonConfig> {
    config
        .extensions
        .get::<HortonConfig>()
        .filter(|horton| horton.enabled != Enabled::Never)
}

/// Rule 1: joins that will run on the device collect their build side instead of
/// repartitioning both sides.
#[derive(Debug)]
pub struct CollectBuildSide;

impl PhysicalOptimizerRule for CollectBuildSide {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(horton) = options(config).filter(|horton| !horton.keep_partitions) else {
            return Ok(plan);
        };
        plan.transform_up(|node| {
            let collected = match node.downcast_ref::<HashJoinExec>() {
                Some(join)
                    if *join.partition_mode() == PartitionMode::Partitioned
                        && matches!(route(join, horton)?, Route::Device(_)) =>
                {
                    join.builder()
                        .with_partition_mode(PartitionMode::CollectLeft)
                        .build_exec()?
                }
                _ => return Ok(Transformed::no(node)),
            };
            Ok(Transformed::yes(collected))
        })
        .data()
    }

    fn name(&self) -> &str {
        "horton_collect_build_side"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Rule 2: every `HashJoinExec` becomes a [`HortonJoinExec`], on the device or with the reason
/// why it stays on the host.
#[derive(Debug)]
pub struct JoinOnDevice;

impl PhysicalOptimizerRule for JoinOnDevice {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(horton) = options(config) else {
            return Ok(plan);
        };
        plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            let route = route(join, horton)?;
            if let Route::Stock(reason) = &route {
                log::debug!("join stays on the host: {reason}");
            }
            let stock = Arc::new(join.builder().build()?);
            let exec = HortonJoinExec::new(stock, route, horton.clone());
            Ok(Transformed::yes(Arc::new(exec) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "horton_join_on_device"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
