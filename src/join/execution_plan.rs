//! What planners and streams ask of the node: a drop-in for `HashJoinExec`.
//!
//! ```text
//!  plan duties (properties, statistics, distribution, pushdown) ─▶ the stock node's answers
//!  execute ─▶ which side is built, and where, decided with the rows at hand (execute.rs)
//!  fmt_as  ─▶ the rules of the decision, or what was decided (decision.rs)
//!  filters ─▶ of the keys of either input, published once the other one is built
//! ```
//!
//! The node keeps the `HashJoinExec` it came from and lets it answer all questions about the plan.
//! Every method whose default would be wrong for a join is here.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::lit;
use datafusion::physical_expr::{Distribution, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};

use super::dynamic_filter::pushdown;
use super::exec::HortonJoinExec;
use super::execute::Execution;
use super::output::columns::OutputColumns;
use super::properties;
use super::side::Side;
use super::stream::with_stack;

impl DisplayAs for HortonJoinExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Stock<'a>(&'a HashJoinExec, DisplayFormatType);
        impl fmt::Display for Stock<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_as(self.1, f)
            }
        }
        let stock = Stock(&self.stock, t).to_string();
        let decided = self.shown.decisions.to_string();
        let how = if decided.is_empty() {
            self.rules()
        } else {
            decided
        };
        match t {
            DisplayFormatType::TreeRender => {
                write!(f, "{stock}")?;
                writeln!(f, "horton={how}")
            }
            _ => {
                let line = stock.replacen("HashJoinExec", "HortonJoinExec", 1);
                write!(f, "{line}, horton=[{how}]")
            }
        }
    }
}

impl ExecutionPlan for HortonJoinExec {
    fn name(&self) -> &str {
        "HortonJoinExec"
    }

    /// Shows planners and serialisers the join that it stands for. Not where either side may be
    /// built: that join cannot be executed, nor may others cut the plan around it.
    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        (!self.is_open()).then_some(self.stock.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.stock.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.stock.apply_expressions(f)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        let own = self.made_filters().into_iter();
        own.map(|filter| filter as _).collect()
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        self.stock
            .input_distribution_requirements()
            .into_per_child()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.stock.input_distribution_requirements()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        properties::maintains_input_order(&self.stock)
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.stock.benefits_from_input_partitioning()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let stock = Arc::clone(&self.stock).replace_children(children, options)?;
        self.rewrap(stock)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute),
        )
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        for filter in self.made_filters() {
            filter.update(lit(true))?;
        }
        self.rewrap(Arc::clone(&self.stock).reset_state()?)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        with_stack(|| Execution::new(self, &context).start(partition))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.shown.all_metrics())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.stock.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let of_join = self.stock.statistics_from_inputs(input_stats, args)?;
        Ok(properties::statistics(&of_join))
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.stock.supports_limit_pushdown()
    }

    fn fetch(&self) -> Option<usize> {
        self.stock.fetch()
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let stock = self.stock.with_fetch(limit)?;
        self.rewrap(stock).ok()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.stock.cardinality_effect()
    }

    fn try_swapping_with_projection(
        &self,
        projection: &ProjectionExec,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        match self.stock.try_swapping_with_projection(projection)? {
            // A projection above the join stays what it is.
            Some(plan) if plan.downcast_ref::<HashJoinExec>().is_some() => {
                self.rewrap(plan).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn gather_filters_for_pushdown(
        &self,
        phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let makes = phase == FilterPushdownPhase::Post && self.made_filters().is_empty();
        let [own_left, own_right] = if makes {
            pushdown::key_filters(&self.stock, config)?
        } else {
            Default::default()
        };
        let columns = OutputColumns::of_output(&self.stock).columns;
        let [left, right] = pushdown::parents(&self.stock, &columns, &parent_filters)?;
        Ok(FilterDescription::new()
            .with_child(left.with_self_filters(own_left))
            .with_child(right.with_self_filters(own_right)))
    }

    fn handle_child_pushdown_result(
        &self,
        _phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let own = Side::BOTH.map(|side| {
            let answers = child_pushdown_result.self_filters.get(side as usize);
            let answers = answers.map_or(&[][..], Vec::as_slice);
            pushdown::accepted(&self.stock, side, answers)
        });
        let mut result = FilterPushdownPropagation::if_any(child_pushdown_result);
        if own.iter().any(|own| !own.is_empty()) {
            let mut exec = self.rewrapped(Arc::clone(&self.stock));
            exec.filters = own;
            result.updated_node = Some(Arc::new(exec) as _);
        }
        Ok(result)
    }
}
