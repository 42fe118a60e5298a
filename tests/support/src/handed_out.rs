//! Plans after the rules that hand dynamic filters to scans.

use std::sync::Arc;

use crate::internals::{InsertFilterNodes, RemoveUnusedFilterNodes};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::ExecutionPlan;
use horton_join::config::HortonConfig;

/// Returns `plan` with the dynamic filters of its joins handed to its scans.
pub fn handed_out(
    plan: Arc<dyn ExecutionPlan>,
    config: &HortonConfig,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut options = ConfigOptions::default();
    options.extensions.insert(config.clone());
    let rules: [&dyn PhysicalOptimizerRule; 3] = [
        &InsertFilterNodes,
        &FilterPushdown::new_post_optimization(),
        &RemoveUnusedFilterNodes,
    ];
    rules
        .into_iter()
        .try_fold(plan, |plan, rule| rule.optimize(plan, &options))
}
