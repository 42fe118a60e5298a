//! The plan node above a scan: keeps dynamic filters and applies them.
//!
//! Everything about its plan is the scan's; only rows are fewer. It never waits for a filter: joins
//! open their inputs once their filters are there
//! ([`targets`](crate::join::dynamic_filter::targets)), and one that comes late is applied from
//! then on.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, ChildPushdownResult, FilterDescription, FilterPushdownPhase,
    FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::output_batches::OutputBatches;
use crate::scan::one_child::with_properties_of;

use super::filter_stream::{FilterStream, ScanMetrics};
use super::prefetch::{Prefetch, PrefetchGuard};

/// A scan without the rows that its dynamic filters exclude.
#[derive(Debug)]
pub struct DynamicFilterExec {
    input: Arc<dyn ExecutionPlan>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The comparisons of a filter node above, which tests by them once more.
    predicate: Option<Arc<dyn PhysicalExpr>>,
    metrics: ExecutionPlanMetricsSet,
    prefetch: Prefetch,
}

impl DynamicFilterExec {
    /// Returns a node over `input`, with no filters yet.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            filters: Vec::new(),
            predicate: None,
            metrics: ExecutionPlanMetricsSet::new(),
            prefetch: Prefetch::default(),
        }
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            predicate: self.predicate.clone(),
            ..Self::with(input, self.filters.clone())
        }
    }

    /// Returns the scan.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// Returns the filters.
    pub fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    /// Returns the node over `input` with these `filters`.
    #[must_use]
    pub fn with(input: Arc<dyn ExecutionPlan>, filters: Vec<Arc<dyn PhysicalExpr>>) -> Self {
        Self {
            filters,
            ..Self::new(input)
        }
    }

    /// Returns the node with the comparisons `predicate` of a filter node above. They are tested
    /// with the filters, in an order that is found while rows are read.
    #[must_use]
    pub fn with_predicate(&self, predicate: Arc<dyn PhysicalExpr>) -> Self {
        Self {
            predicate: Some(predicate),
            ..self.over(Arc::clone(&self.input))
        }
    }

    /// Begins to read up to about so many rows and bytes before the filters are complete, under
    /// `context`. Returns a hold on that; `None` if it does not begin.
    pub fn prefetch(
        &self,
        most: (usize, usize),
        context: &Arc<TaskContext>,
    ) -> Option<PrefetchGuard> {
        let metrics = &self.metrics;
        self.prefetch.begin(&self.input, most, context, metrics)
    }

    /// Returns a hold on what is read ahead, for an execution that will take it.
    pub fn hold_prefetch(&self) -> Option<PrefetchGuard> {
        self.prefetch.hold()
    }

    /// Returns the node with only those filters whose identities are among `ids`.
    #[must_use]
    pub fn retain(&self, ids: &HashSet<u64>) -> Self {
        let is_kept = |filter: &&Arc<dyn PhysicalExpr>| {
            filter.expression_id().is_some_and(|id| ids.contains(&id))
        };
        let filters = self.filters.iter().filter(is_kept).cloned().collect();
        Self::with(Arc::clone(&self.input), filters)
    }
}

impl DisplayAs for DynamicFilterExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let filters: Vec<String> = self.filters.iter().map(ToString::to_string).collect();
        match t {
            DisplayFormatType::TreeRender => writeln!(f, "filters={}", filters.join(", ")),
            _ => {
                write!(f, "DynamicFilterExec: filters=[{}]", filters.join(", "))?;
                match &self.predicate {
                    Some(predicate) => write!(f, ", predicate={predicate}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl ExecutionPlan for DynamicFilterExec {
    fn name(&self) -> &str {
        "DynamicFilterExec"
    }

    with_properties_of!(input);

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let mut go = TreeNodeRecursion::Continue;
        for filter in self.filters.iter().chain(&self.predicate) {
            go = f(filter)?;
            if go == TreeNodeRecursion::Stop {
                break;
            }
        }
        Ok(go)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = context.session_config().batch_size();
        let schema = self.schema();
        let metrics = ScanMetrics::new(&self.metrics, partition);
        let input = match self.prefetch.take(partition) {
            Some(read) => read,
            None => self.input.execute(partition, context)?,
        };
        let output = OutputBatches::new(Arc::clone(&schema), rows);
        let filtering = FilterStream::new(input, &self.filters, output, metrics)
            .with_predicate(self.predicate.as_ref());
        let stream = futures::stream::try_unfold(filtering, |mut filtering| async move {
            let batch = filtering.next().await?;
            Ok(batch.map(|batch| (batch, filtering)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] if self.filters.is_empty() => Ok(Arc::clone(input)),
            [input] => Ok(Arc::new(input.as_ref().clone().to_inexact())),
            _ => internal_err!("a DynamicFilterExec has one child"),
        }
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::LowerEqual
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        // Those that the scan itself may not test end at the guard around it.
        let child = ChildFilterDescription::from_child(&parent_filters, &self.input)?;
        Ok(FilterDescription::new().with_child(child))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut filters = self.filters.clone();
        let mut keep = |filter: &Arc<dyn PhysicalExpr>| {
            let is_dynamic = filter.downcast_ref::<DynamicFilterPhysicalExpr>().is_some();
            if is_dynamic {
                filters.push(Arc::clone(filter));
            }
            is_dynamic
        };
        let answers = child_pushdown_result.parent_filters.iter();
        let answers = answers.map(|parent| match parent.any() {
            // The scan tests every row by it.
            PushedDown::Yes => PushedDown::Yes,
            PushedDown::No if keep(&parent.filter) => PushedDown::Yes,
            PushedDown::No => PushedDown::No,
        });
        let answers = answers.collect();
        let node = Self::with(Arc::clone(&self.input), filters);
        let result = FilterPushdownPropagation::with_parent_pushdown_result(answers);
        Ok(result.with_updated_node(Arc::new(node) as _))
    }
}
