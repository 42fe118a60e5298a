//! The rule at the front: scans of tables in memory compute their statistics once per query.
//!
//! [`CachedStatistics`] says what that saves. The last rule
//! ([`RemoveUnusedFilterNodes`](super::filters::RemoveUnusedFilterNodes)) takes it out again.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::scan::cached_statistics::{CachedStatistics, with_source};

use super::enabled::filters_reach_scans;

/// The rule at the front.
#[derive(Debug)]
pub struct CacheStatistics;

impl PhysicalOptimizerRule for CacheStatistics {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !filters_reach_scans(config) {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            let Some(scan) = node.downcast_ref::<DataSourceExec>() else {
                return Ok(Transformed::no(node));
            };
            let source = scan.data_source();
            if !source.is::<MemorySourceConfig>() {
                return Ok(Transformed::no(node));
            }
            let known = CachedStatistics::around(Arc::clone(source));
            let scan = with_source(scan, known);
            Ok(Transformed::yes(Arc::new(scan) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "horton_cache_statistics"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
