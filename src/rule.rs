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

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::config::{Enabled, HortonConfig};
use crate::cost::rows::{expected_rows, more_values};
use crate::cost::{Costs, Estimate, Keys, Size};
use crate::device::Device;
use crate::error::Error;
use crate::join::{HortonJoinExec, keys};

/// Why a join stays on the host.
#[derive(Debug, Clone, PartialEq)]
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
    /// `auto`: the stock join is expected to be as fast or faster.
    NoFaster(Estimate),
    /// `auto`: what joins cost on the device could not be measured.
    Unmeasured(String),
    /// The device failed earlier in this session.
    DeviceFailed(String),
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
            Declined::NoFaster(estimate) => write!(f, "{estimate}"),
            Declined::Unmeasured(reason) => write!(f, "costs not measured: {reason}"),
            Declined::DeviceFailed(reason) => write!(f, "device failed: {reason}"),
            Declined::UndecidedMode => write!(f, "partition mode undecided"),
        }
    }
}

/// Where a join runs.
#[derive(Debug, Clone)]
pub enum Route {
    /// On this device; under `auto`, with what was expected of it.
    Device(Device, Option<Estimate>),
    /// As DataFusion's own join, for this reason.
    Stock(Declined),
}

/// Decides where a join runs.
///
/// # Errors
/// [`Error::UnknownDevice`] and [`Error::UnsuitableDevice`]: `horton.device` names a device that
/// is not there or cannot run the kernels. That no device is there at all is no error.
fn route(join: &HashJoinExec, config: &HortonConfig, options: &ConfigOptions) -> Result<Route> {
    let declined = |reason| Ok(Route::Stock(reason));
    let device = match Device::open(&config.device) {
        Ok(device) => device,
        Err(error @ (Error::NoPlatform(_) | Error::NoUsableDevice(_))) => {
            warn_once(&error);
            return declined(Declined::NoDevice(error.brief()));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(reason) = config.health.failure(device.info()) {
        return declined(Declined::DeviceFailed(reason));
    }
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
    if config.enabled == Enabled::Always {
        return Ok(Route::Device(device, None));
    }
    Ok(match weigh(join, (config, options), &device, &types)? {
        Ok(estimate) => Route::Device(device, Some(estimate)),
        Err(reason) => Route::Stock(reason),
    })
}

/// How much faster than the stock join the device must be expected to be, and by how many milliseconds more: estimates
/// err by a share and by what little joins cost besides, and a join that was fine as it was should not get slower.
/// (TPC-H at scale 1, PoCL on two cores, four calibrations: the join of query 5, 1.5 to 2.0 times as fast and
/// 46 to 82 ms faster by estimate, makes the query 1.6 times as fast; those of 10 and 14, 1.4 to 1.8 times
/// and 7 to 16 ms, -6 to 3 %. At scale 10 on an H200 joins of 8 million rows and less that were expected to be 1.6 times
/// as fast changed their queries by -6 to 10 %.)
const MARGIN: f64 = 1.25;
const LEAST_GAIN: f64 = 15.0;

/// Whether the stock join hashes both sides into partitions, or did before rule 1 took it: whether
/// `JoinSelection` has no other reason to collect the build side (its `supports_collect_by_thresholds`).
fn is_repartitioned(join: &HashJoinExec, options: &ConfigOptions) -> Result<bool> {
    let is_free = options.optimizer.repartition_joins
        && options.execution.target_partitions > 1
        && !join.null_aware;
    let statistics =
        StatisticsContext::new().compute(join.left().as_ref(), &StatisticsArgs::new())?;
    let known = (
        statistics.total_byte_size.get_value(),
        statistics.num_rows.get_value(),
    );
    let limits = &options.optimizer;
    let is_small = match known {
        (Some(bytes), _) => *bytes < limits.hash_join_single_partition_threshold,
        (None, Some(rows)) => *rows < limits.hash_join_single_partition_threshold_rows,
        (None, None) => false,
    };
    Ok(match join.partition_mode() {
        PartitionMode::Partitioned => true,
        PartitionMode::CollectLeft => is_free && !is_small,
        PartitionMode::Auto => false,
    })
}

/// Whether `auto` takes a join: what it expects, or why not.
fn weigh(
    join: &HashJoinExec,
    (config, options): (&HortonConfig, &ConfigOptions),
    device: &Device,
    types: &[(DataType, DataType)],
) -> Result<Result<Estimate, Declined>> {
    let sides = (expected_rows(join.left())?, expected_rows(join.right())?);
    let (Some(build), Some(probe)) = sides else {
        return Ok(Err(Declined::UnknownRows));
    };
    let (rows, min_rows) = (build.saturating_add(probe), config.min_rows);
    if rows < min_rows {
        return Ok(Err(Declined::FewRows { rows, min_rows }));
    }
    let costs = match Costs::of(device) {
        Ok(costs) => costs,
        Err(error) => {
            warn_once(&error);
            return Ok(Err(Declined::Unmeasured(error.brief())));
        }
    };
    let keys = match types {
        [(build, _)] if build.is_integer() || build.is_temporal() => Keys::Number,
        _ => Keys::Hashed,
    };
    let moves = is_repartitioned(join, options)?;
    let values = |side: &Arc<dyn ExecutionPlan>| more_values(&side.schema());
    let moved = build as f64 * values(join.left()) + probe as f64 * values(join.right());
    let size = Size {
        build,
        probe,
        moved: if moves { moved } else { 0.0 },
    };
    let estimate = costs.estimate(keys, size);
    let wanted = match moves && *join.partition_mode() == PartitionMode::CollectLeft {
        // Rule 1 took its partitions: as the stock join it would build on one core.
        true => estimate.device,
        false => MARGIN * estimate.device + LEAST_GAIN,
    };
    Ok(match wanted < estimate.stock {
        true => Ok(estimate),
        false => Err(Declined::NoFaster(estimate)),
    })
}

fn warn_once(error: &Error) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn!("{error}; joins stay on the host");
    }
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
                        && matches!(route(join, horton, config)?, Route::Device(..)) =>
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
            let route = route(join, horton, config)?;
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

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    use datafusion::common::tree_node::TreeNodeRecursion;
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// The one join of `build` rows with a million in a stock plan, `collected` if its partitions are to be taken.
    async fn join_of(build: i64, collected: bool) -> (HashJoinExec, SessionContext) {
        let context =
            SessionContext::new_with_config(SessionConfig::new().with_target_partitions(4));
        for (name, rows) in [("b", build), ("p", 1_000_000)] {
            let column = || Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
            let batch = RecordBatch::try_from_iter([("k", column()), ("v", column())]).unwrap();
            context.register_batch(name, batch).unwrap();
        }
        let query = "SELECT b.v, p.v FROM b JOIN p ON b.k = p.k";
        let frame = context.sql(query).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let mut found = None;
        plan.apply(|node| {
            if let Some(join) = node.downcast_ref::<HashJoinExec>() {
                let mode = match collected {
                    true => PartitionMode::CollectLeft,
                    false => *join.partition_mode(),
                };
                found = Some(join.builder().with_partition_mode(mode).build()?);
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        (found.unwrap(), context)
    }

    #[tokio::test]
    async fn a_join_that_lost_its_partitions_is_known_by_its_size() {
        // 100,000 rows of 16 bytes: fewer rows than JoinSelection's limit of rows, but it goes by bytes.
        for (build, collected, expected) in [
            (100_000, false, true),
            (100_000, true, true),
            (1000, false, false),
            (1000, true, false),
        ] {
            let (join, context) = join_of(build, collected).await;
            let was_partitioned = *join.partition_mode() == PartitionMode::Partitioned;
            assert_eq!(
                was_partitioned,
                expected && !collected,
                "{build} {collected}"
            );
            let state = context.state();
            let options = state.config_options();
            assert_eq!(
                is_repartitioned(&join, options).unwrap(),
                expected,
                "{build} {collected}"
            );
        }
        let (join, context) = join_of(100_000, true).await;
        let mut options = context.state().config_options().as_ref().clone();
        options.optimizer.repartition_joins = false;
        assert!(!is_repartitioned(&join, &options).unwrap());
    }
}
