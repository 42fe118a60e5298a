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

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinType, Result};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

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
fn route(join: &HashJoinExec, config: &HortonConfig) -> Result<Route> {
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
    Ok(match expect(join, config, &device, &types)? {
        Ok(estimate) if MARGIN * estimate.device + LEAST_GAIN < estimate.stock => {
            Route::Device(device, Some(estimate))
        }
        Ok(estimate) => Route::Stock(Declined::NoFaster(estimate)),
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

/// How many times as long as an inner join of its size one of this type takes on the device; a stock join hardly differs.
/// (15 M x 150 M sparse keys on an H200, 10 % hits: inner 106 ms, left 356, full 424, right 240, build semi 292 and anti 255, probe
/// semi 150 and anti 257; stock 407 to 507.)
fn times_inner(join_type: JoinType) -> f64 {
    match join_type {
        JoinType::Inner | JoinType::RightSemi | JoinType::RightMark => 1.0,
        JoinType::Right | JoinType::RightAnti => 2.0,
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => 2.0,
        JoinType::Left | JoinType::Full => 3.0,
    }
}

/// What `auto` expects of a join, or why nothing can be expected.
fn expect(
    join: &HashJoinExec,
    config: &HortonConfig,
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
    let moves = *join.partition_mode() == PartitionMode::Partitioned;
    let values = |side: &Arc<dyn ExecutionPlan>| more_values(&side.schema());
    let moved = build as f64 * values(join.left()) + probe as f64 * values(join.right());
    let size = Size {
        build,
        probe,
        moved: if moves { moved } else { 0.0 },
    };
    let mut estimate = costs.estimate(keys, size);
    estimate.device *= times_inner(*join.join_type());
    Ok(Ok(estimate))
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

thread_local! {
    /// What rule 1 decided of the joins of the plan at hand, by name and in order: where those run whose build sides it
    /// collected. The rules of a plan run one after the other on one thread. Deciding anew would decide otherwise
    /// now and then, as statistics change with the plan, and leave a stock join with a build side for one core.
    static DECIDED: RefCell<HashMap<String, VecDeque<Option<Route>>>> = RefCell::default();
}

/// What of a join stays as it is, as a rule, while others move columns and swap distributions: its type and the names in
/// its keys. (One that lost its name is decided anew.)
fn name_of(join: &HashJoinExec) -> String {
    let names = |key: &PhysicalExprRef| {
        let columns = collect_columns(key).into_iter();
        let mut names: Vec<String> = columns.map(|column| column.name().to_owned()).collect();
        names.sort();
        names.join("+")
    };
    let keys = join
        .on()
        .iter()
        .map(|(l, r)| format!(" {}={}", names(l), names(r)));
    let keys: String = keys.collect();
    format!("{}{keys}", join.join_type())
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
        let mut decided = HashMap::<String, VecDeque<Option<Route>>>::new();
        DECIDED.take();
        let Some(horton) = options(config).filter(|horton| !horton.keep_partitions) else {
            return Ok(plan);
        };
        let plan = plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            let route = match join.partition_mode() {
                PartitionMode::Partitioned => Some(route(join, horton)?),
                PartitionMode::CollectLeft | PartitionMode::Auto => None,
            };
            let taken = route.filter(|route| matches!(route, Route::Device(..)));
            let is_taken = taken.is_some();
            decided.entry(name_of(join)).or_default().push_back(taken);
            if !is_taken {
                return Ok(Transformed::no(node));
            }
            let collected = join
                .builder()
                .with_partition_mode(PartitionMode::CollectLeft);
            Ok(Transformed::yes(collected.build_exec()?))
        });
        DECIDED.set(decided);
        plan.data()
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
        let mut decided = DECIDED.take();
        let Some(horton) = options(config) else {
            return Ok(plan);
        };
        plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            let earlier = decided
                .get_mut(&name_of(join))
                .and_then(VecDeque::pop_front);
            let route = match earlier.flatten() {
                Some(route) if *join.partition_mode() == PartitionMode::CollectLeft => route,
                _ => route(join, horton)?,
            };
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
