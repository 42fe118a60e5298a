//! The two optimizer rules that put joins on the device, and why one stays on the host.
//!
//! ```text
//!  JoinSelection ─▶ sides ─▶ CollectBuildSide ─▶ … ─▶ JoinOnDevice ─▶ FilterPushdown(Post) ─▶ …
//!                            Partitioned              HashJoinExec
//!                            ─▶ CollectLeft           ─▶ HortonJoinExec
//! ```
//!
//! The device needs no hash repartition of either side, and that copy is a large part of the
//! stock join's cost, so the first rule takes it out of joins that the second will take. `route`
//! says where one join runs, `together` where those do that use each other's partitions, and
//! [`sides`] which side of a join over an aggregate is built. The second comes just before
//! dynamic filters are handed out, as joins make filters of their own. A join that is not taken
//! stays a `HashJoinExec`; EXPLAIN prints the [`Declined`] reason beside it.

mod route;
pub mod sides;
mod together;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use crate::config::{Enabled, HortonConfig};
use crate::join::HortonJoinExec;

use route::route;

pub use route::{Declined, Route};

fn options(config: &ConfigOptions) -> Option<&HortonConfig> {
    config
        .extensions
        .get::<HortonConfig>()
        .filter(|horton| horton.enabled != Enabled::Never)
}

thread_local! {
    /// What rule 1 decided of the joins of the plan at hand, by name and in order. The rules of a plan run one after the other on one thread. Deciding anew would decide otherwise
    /// now and then, as statistics change with the plan, and leave a stock join with a build side for one core.
    static DECIDED: RefCell<HashMap<String, VecDeque<Route>>> = RefCell::default();
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
    let keys = join.on().iter();
    let mut keys: Vec<String> = keys
        .map(|(l, r)| format!("{}={}", names(l), names(r)))
        .collect();
    // Another rule puts them into the order of the node above.
    keys.sort();
    format!("{} {}", join.join_type(), keys.join(" "))
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
        let mut decided = HashMap::<String, VecDeque<Route>>::new();
        DECIDED.take();
        let Some(horton) = options(config).filter(|horton| !horton.keep_partitions) else {
            return Ok(plan);
        };
        let mut routes = together::routes(&plan, horton, config)?.into_iter();
        let plan = plan.transform_up(|node| {
            let Some(join) = node.downcast_ref::<HashJoinExec>() else {
                return Ok(Transformed::no(node));
            };
            let Some(route) = routes.next() else {
                return Ok(Transformed::no(node));
            };
            let is_taken = matches!(route, Route::Device(..));
            decided.entry(name_of(join)).or_default().push_back(route);
            if !is_taken || *join.partition_mode() != PartitionMode::Partitioned {
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
            let is_collected = *join.partition_mode() == PartitionMode::CollectLeft;
            let route = match earlier {
                Some(route) if is_collected || matches!(route, Route::Stock(_)) => route,
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
