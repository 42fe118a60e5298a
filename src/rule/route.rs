//! Where one join runs, and why.
//!
//! ```text
//!  device? ─▶ failed before? ─▶ key types? ─▶ always ─────────────▶ device
//!     │no          │yes            │no        auto: expected times ─▶ device, or the host
//!     └────────────┴───────────────┴────────────────────────────────▶ the host, for a reason
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::datatypes::{DataType, Fields, Schema};
use datafusion::common::{JoinType, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use crate::config::{Enabled, HortonConfig};
use crate::cost::rows::{Rows, more_values, texts};
use crate::cost::{Costs, Estimate, Keys, Size};
use crate::device::Device;
use crate::device::verdict::{self, Verdict};
use crate::error::Error;
use crate::join::keys;

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
    /// The device gave wrong answers in its self-test, or does not compile the kernels.
    SelfTest(String),
    /// `horton.table` asks for a table that needs what the device lacks.
    Table(String),
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
            Declined::SelfTest(reason) => write!(f, "device failed its self-test: {reason}"),
            Declined::Table(reason) => write!(f, "horton.table: {reason}"),
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

impl Route {
    /// Where it goes that was expected to take so long.
    pub(super) fn by_times(device: Device, estimate: Estimate, is_taken: bool) -> Self {
        match is_taken {
            true => Route::Device(device, Some(estimate)),
            false => Route::Stock(Declined::NoFaster(estimate)),
        }
    }
}

/// What is expected of a join.
pub(super) enum Expected {
    /// Where it runs, whatever it costs.
    Settled(Route),
    /// How long it takes.
    Times(Device, Times),
}

/// How long a join takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// On the device and as the stock join.
    pub estimate: Estimate,
    /// Milliseconds of the latter to repartition each side.
    pub sides: [f64; 2],
    /// Milliseconds to repartition the join's rows.
    pub output: f64,
}

impl Expected {
    /// How long it takes, if that decides.
    pub(super) fn times(&mut self) -> Option<&mut Times> {
        match self {
            Expected::Settled(_) => None,
            Expected::Times(_, times) => Some(times),
        }
    }
}

/// Decides where a join runs, as if there were no others.
///
/// # Errors
/// As [`expected`].
pub(super) fn route(join: &HashJoinExec, config: &HortonConfig) -> Result<Route> {
    Ok(match expected(join, config, &Rows::default())? {
        Expected::Settled(route) => route,
        Expected::Times(device, Times { estimate, .. }) => {
            Route::by_times(device, estimate, estimate.is_worth_it())
        }
    })
}

/// What is expected of a join, both sides of which are repartitioned if it is.
///
/// # Errors
/// [`Error::UnknownDevice`] and [`Error::UnsuitableDevice`]: `horton.device` names a device that
/// is not there or cannot run the kernels. That no device is there at all is no error.
pub(super) fn expected(
    join: &HashJoinExec,
    config: &HortonConfig,
    rows: &Rows,
) -> Result<Expected> {
    let declined = |reason| Ok(Expected::Settled(Route::Stock(reason)));
    let device = match Device::open(&config.device) {
        Ok(device) => device,
        Err(error @ (Error::NoPlatform(_) | Error::NoUsableDevice(_))) => {
            warn_once(&error);
            return declined(Declined::NoDevice(error.brief()));
        }
        Err(error) => return Err(error.into()),
    };
    let info = device.info();
    if let Some(reason) = config.health.failure(info) {
        return declined(Declined::DeviceFailed(reason));
    }
    for suite in config.suites() {
        if let Some(Verdict::Failed(reason)) = verdict::of(info, suite) {
            return declined(Declined::SelfTest(reason));
        }
    }
    if let Some(reason) = config.table.obstacle(info) {
        return declined(Declined::Table(reason));
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
        return Ok(Expected::Settled(Route::Device(device, None)));
    }
    Ok(match times((join, rows), config, &device, &types)? {
        Ok(times) => Expected::Times(device, times),
        Err(reason) => Expected::Settled(Route::Stock(reason)),
    })
}

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
fn times(
    (join, rows): (&HashJoinExec, &Rows),
    config: &HortonConfig,
    device: &Device,
    types: &[(DataType, DataType)],
) -> Result<Result<Times, Declined>> {
    let sides = [join.left(), join.right()];
    let [build, probe] = sides.map(|side| rows.of(side.as_ref()));
    let (Some(build), Some(probe), Some(output)) = (build?, probe?, rows.of(join)?) else {
        return Ok(Err(Declined::UnknownRows));
    };
    let (input, min_rows) = (build.saturating_add(probe), config.min_rows);
    if input < min_rows {
        let rows = input;
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
    let of_build = |is_so: bool| if is_so { build as f64 } else { 0.0 };
    let (left, right) = (sides[0].schema(), sides[1].schema());
    let moved = build as f64 * more_values(&left) + probe as f64 * more_values(&right);
    let joined = build as f64 * (more_values(&left) - of_joined(join, more_values));
    let joined_texts = build as f64 * of_joined(join, |schema| texts(schema) as f64);
    let size = Size {
        build,
        probe,
        moved: joined + if moves { moved } else { 0.0 },
        texts: [joined_texts, if moves { joined_texts } else { 0.0 }],
        repeated: of_build(rows.repeats(sides[0].as_ref(), sides[1].as_ref())?),
        collected: of_build(!moves),
    };
    let mut estimate = costs.estimate(keys, size);
    estimate.device *= times_inner(*join.join_type());
    let repartition = |rows: usize, schema: &Schema| {
        costs.repartition(rows as f64 * (KEY_AND_ONE + more_values(schema)))
    };
    Ok(Ok(Times {
        estimate,
        sides: [
            repartition(build, &left) + costs.repartition_texts(size.texts[1]),
            repartition(probe, &right),
        ],
        output: repartition(output, &join.schema()),
    }))
}

/// What the build side `has` in columns that are put together on the device's way: those that are in rows of the join.
fn of_joined(join: &HashJoinExec, has: impl Fn(&Schema) -> f64) -> f64 {
    match join.join_type() {
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
            let left = join.left().schema();
            // The build side's columns come first; no projection is all of them.
            let is_joined = |at: &usize| match &join.projection {
                Some(projection) => projection.contains(at),
                None => true,
            };
            let joined = (0..left.fields().len()).filter(is_joined);
            let fields: Fields = joined.map(|at| Arc::clone(&left.fields()[at])).collect();
            has(&Schema::new(fields))
        }
        // None, or those of build rows, which come as they are.
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => 0.0,
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => 0.0,
    }
}

/// Values of eight bytes of a row that [`more_values`] does not count.
const KEY_AND_ONE: f64 = 2.0;

/// Says each error once in this process.
fn warn_once(error: &Error) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(error.to_string()) {
        log::warn!("{error}; joins stay on the host");
    }
}

#[cfg(test)]
mod tests {
    use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn columns_of_the_build_side_that_a_join_drops_are_not_put_together() {
        let context = SessionContext::new();
        for (table, columns) in [("a", 4), ("b", 5)] {
            let row = vec!["1"; columns].join(", ");
            let create = format!("CREATE TABLE {table} AS VALUES ({row})");
            let frame = context.sql(&create).await.unwrap();
            frame.collect().await.unwrap();
        }
        let mut joined = Vec::new();
        for columns in ["*", "a.column2, b.column2", "b.column2, b.column3"] {
            let query = format!(
                "SELECT {columns} FROM a JOIN b ON a.column1 = b.column1 AND a.column3 <> b.column4"
            );
            let frame = context.sql(&query).await.unwrap();
            let plan = frame.create_physical_plan().await.unwrap();
            plan.apply(|node| {
                if let Some(join) = node.downcast_ref::<HashJoinExec>() {
                    joined.push(of_joined(join, |schema| schema.fields().len() as f64));
                }
                Ok(TreeNodeRecursion::Continue)
            })
            .unwrap();
        }
        assert_eq!(joined, [4.0, 1.0, 0.0]);
    }
}
