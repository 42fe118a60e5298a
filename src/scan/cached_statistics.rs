//! Scans of tables in memory that compute their statistics once per query.
//!
//! ```text
//!  front rule:  DataSourceExec(MemorySourceConfig) ─▶ DataSourceExec(CachedStatistics(…))
//!  … planning asks for statistics, again and again …
//!  last rule:   the same back
//! ```
//!
//! `MemorySourceConfig` walks all columns of all batches whenever its statistics are asked for, and
//! planning asks for them at each join above, several times. A [`CachedStatistics`] keeps the
//! answer for as long as a query is planned. DataFusion's own scan is executed.
//!
//! UPSTREAM(not reported): this file and its rule go once the source keeps its statistics.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec, OpenArgs};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExpr, PhysicalSortExpr,
};
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::filter_pushdown::FilterPushdownPropagation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayFormatType, ExecutionPlan, SortOrderPushdownResult};

/// Returns the table in memory that `plan` scans, if it is such a scan.
pub(crate) fn memory_source(plan: &dyn ExecutionPlan) -> Option<&MemorySourceConfig> {
    let source = plan.downcast_ref::<DataSourceExec>()?.data_source();
    let known = source
        .downcast_ref::<CachedStatistics>()
        .map(CachedStatistics::source);
    known.unwrap_or(source).downcast_ref::<MemorySourceConfig>()
}

/// Returns the rows of a table in memory.
pub(crate) fn rows_in_memory(plan: &dyn ExecutionPlan) -> Option<usize> {
    let batches = memory_source(plan)?.partitions().iter().flatten();
    let rows = batches.map(|batch| batch.num_rows()).sum();
    Some(plan.fetch().map_or(rows, |most| most.min(rows)))
}

/// A source whose statistics are computed once.
#[derive(Debug)]
pub struct CachedStatistics {
    source: Arc<dyn DataSource>,
    /// By partition; `None` is all of them.
    statistics: Mutex<HashMap<Option<usize>, Arc<Statistics>>>,
}

impl CachedStatistics {
    /// Returns `source`, with its statistics cached.
    pub fn around(source: Arc<dyn DataSource>) -> Arc<dyn DataSource> {
        Arc::new(Self {
            source,
            statistics: Mutex::default(),
        })
    }

    /// Returns the source itself.
    pub fn source(&self) -> &Arc<dyn DataSource> {
        &self.source
    }

    /// Returns `scan` with the source itself in the place of one with cached statistics.
    pub fn without(scan: &DataSourceExec) -> Option<DataSourceExec> {
        let known = scan.data_source().downcast_ref::<Self>()?;
        Some(with_source(scan, Arc::clone(&known.source)))
    }
}

/// Returns `scan` over another source of the same rows.
pub fn with_source(scan: &DataSourceExec, source: Arc<dyn DataSource>) -> DataSourceExec {
    let partitioning = scan.properties().output_partitioning().clone();
    let scan = scan.clone().with_data_source(source);
    scan.with_partitioning(partitioning)
}

impl DataSource for CachedStatistics {
    fn open(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.source.open(partition, context)
    }

    fn open_with_args(&self, args: OpenArgs) -> Result<SendableRecordBatchStream> {
        self.source.open_with_args(args)
    }

    fn create_sibling_state(&self, config: &ConfigOptions) -> Option<Arc<dyn Any + Send + Sync>> {
        self.source.create_sibling_state(config)
    }

    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        self.source.fmt_as(t, f)
    }

    fn repartitioned(
        &self,
        target_partitions: usize,
        repartition_file_min_size: usize,
        output_ordering: Option<LexOrdering>,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        let source = self.source.repartitioned(
            target_partitions,
            repartition_file_min_size,
            output_ordering,
        )?;
        Ok(source.map(Self::around))
    }

    fn output_partitioning(&self) -> Partitioning {
        self.source.output_partitioning()
    }

    fn eq_properties(&self) -> EquivalenceProperties {
        self.source.eq_properties()
    }

    fn scheduling_type(&self) -> SchedulingType {
        self.source.scheduling_type()
    }

    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let mut known = self
            .statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(statistics) = known.get(&partition) {
            return Ok(Arc::clone(statistics));
        }
        let statistics = self.source.partition_statistics(partition)?;
        known.insert(partition, Arc::clone(&statistics));
        Ok(statistics)
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn DataSource>> {
        self.source.with_fetch(limit).map(Self::around)
    }

    fn fetch(&self) -> Option<usize> {
        self.source.fetch()
    }

    fn metrics(&self) -> ExecutionPlanMetricsSet {
        self.source.metrics()
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExprs,
    ) -> Result<Option<Arc<dyn DataSource>>> {
        let source = self.source.try_swapping_with_projection(projection)?;
        Ok(source.map(Self::around))
    }

    fn try_pushdown_filters(
        &self,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn DataSource>>> {
        let mut result = self.source.try_pushdown_filters(filters, config)?;
        result.updated_node = result.updated_node.map(Self::around);
        Ok(result)
    }

    fn try_pushdown_sort(
        &self,
        order: &[PhysicalSortExpr],
    ) -> Result<SortOrderPushdownResult<Arc<dyn DataSource>>> {
        let sorted = self.source.try_pushdown_sort(order)?;
        sorted.try_map(|source| Ok(Self::around(source)))
    }

    fn with_preserve_order(&self, preserve_order: bool) -> Option<Arc<dyn DataSource>> {
        let source = self.source.with_preserve_order(preserve_order);
        source.map(Self::around)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.source.apply_expressions(f)
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn DataSource>> {
        self.source.with_new_state(state).map(Self::around)
    }
}
