//! A plan whose scans know how many rows they have, for estimates.
//!
//! ```text
//!  Join ─┬─ Filter ── DataSourceExec          Join ─┬─ Filter ── Scan: 60 M rows
//!        └─ DataSourceExec              ─▶          └─ Scan: 15 M rows
//! ```
//!
//! A table in memory computes its statistics whenever it is asked: NULLs and bytes of each column of each batch. With
//! seven thousand batches (TPC-H's lineitem at scale 10) that takes milliseconds, and each estimate of each join
//! asks for it: deciding where four joins run took as long as a whole query. Here scans of such tables
//! count rows and nothing more, and all others are asked once.
//!
//! The plan is not one to execute: it stands for the other one in estimates.

use std::fmt;
use std::sync::Arc;

use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

use crate::scan::known::Known;

/// A scan and its statistics.
#[derive(Debug)]
struct Scan {
    scan: Arc<dyn ExecutionPlan>,
    statistics: Arc<Statistics>,
}

/// The same plan with scans that know their rows.
///
/// # Errors
/// Those of nodes that are given other children.
pub fn with_known_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = Arc::clone(plan).transform_up(|node| {
        if !node.children().is_empty() {
            return Ok(Transformed::no(node));
        }
        let statistics = match rows_in_memory(node.as_ref()) {
            Some(rows) => {
                let mut statistics = Statistics::new_unknown(&node.schema());
                statistics.num_rows = Precision::Exact(rows);
                Arc::new(statistics)
            }
            // Whoever cannot tell says so when the query runs, if it matters.
            None => StatisticsContext::new()
                .compute(node.as_ref(), &StatisticsArgs::new())
                .unwrap_or_else(|_| Arc::new(Statistics::new_unknown(&node.schema()))),
        };
        let scan = node;
        Ok(Transformed::yes(Arc::new(Scan { scan, statistics }) as _))
    });
    plan.data()
}

/// The rows of a table in memory.
pub(crate) fn rows_in_memory(plan: &dyn ExecutionPlan) -> Option<usize> {
    let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
    let known = source.downcast_ref::<Known>().map(Known::source);
    let source = known
        .unwrap_or(source)
        .downcast_ref::<MemorySourceConfig>()?;
    let batches = source.partitions().iter().flatten();
    let rows = batches.map(|batch| batch.num_rows()).sum();
    Some(plan.fetch().map_or(rows, |most| most.min(rows)))
}

impl DisplayAs for Scan {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt_as(t, f)
    }
}

impl ExecutionPlan for Scan {
    fn name(&self) -> &str {
        self.scan.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.scan.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.scan.apply_expressions(f)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&self.statistics))
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a plan for estimates was executed")
    }
}
