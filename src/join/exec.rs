//! The plan node: a drop-in for `HashJoinExec`.
//!
//! ```text
//!  HortonJoinExec { stock: Arc<HashJoinExec>, route }
//!     plan duties (properties, statistics, distribution, pushdown) ─▶ the stock node's answers
//!     execute:  Route::Device ─▶ BuildSide + Probe      Route::Stock ─▶ the stock node
//! ```
//!
//! A device that failed since the join was planned is not asked: the first execution of any
//! partition decides that for all, as they share a build.
//!
//! The node keeps the `HashJoinExec` it came from and lets it answer whatever is asked of the
//! plan, so that nothing about the plan can differ; only execution is ours. A declined join
//! is the same node with the reason beside it in EXPLAIN, and is a `HashJoinExec` to
//! whoever downcasts it. Every method whose default would be wrong for a join is here.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_expr::{Distribution, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::utils::{ColumnIndex, build_join_schema};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet, RecordOutput};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{FutureExt, StreamExt, TryFutureExt};

use crate::config::{HortonConfig, TableKind};
use crate::device::Device;
use crate::error::Error;
use crate::rule::{Declined, Route};

use super::build::{BuildSide, BuildSpec};
use super::emit::Shape;
use super::filter::{FilterBoard, FilterSpec};
use super::lookup::Access;
use super::memory::{BuildMemory, of_probe_rows};
use super::metrics::JoinMetrics;
use super::pairs::Outcome;
use super::probe::{Probe, ProbeSpec, SharedBuild, streams};

/// An equi-join on an OpenCL device, in the place of a `HashJoinExec`.
pub struct HortonJoinExec {
    stock: Arc<HashJoinExec>,
    /// As planned.
    route: Route,
    /// As the first execution decided.
    taken: OnceLock<Route>,
    config: HortonConfig,
    metrics: ExecutionPlanMetricsSet,
    /// The build that all probe partitions share in CollectLeft mode, and how many of them
    /// have yet to take it. Kept no longer, so that its memory is theirs to give back and
    /// a second execution starts afresh.
    collected: Mutex<Option<(SharedBuild, usize)>>,
    /// Where builds report for the dynamic filter, if a probe scan waits for one.
    board: OnceLock<Option<Arc<FilterBoard>>>,
}

impl fmt::Debug for HortonJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HortonJoinExec")
            .field("route", &self.route)
            .field("stock", &self.stock)
            .finish_non_exhaustive()
    }
}

impl HortonJoinExec {
    /// The join of `stock`, on `route`.
    pub fn new(stock: Arc<HashJoinExec>, route: Route, config: HortonConfig) -> Self {
        Self {
            stock,
            route,
            taken: OnceLock::new(),
            config,
            metrics: ExecutionPlanMetricsSet::new(),
            collected: Mutex::new(None),
            board: OnceLock::new(),
        }
    }

    /// The device that this join runs on; `None` if it runs as the stock join.
    pub fn device_name(&self) -> Option<&str> {
        match &self.route {
            Route::Device(device, _) => Some(&device.info().name),
            Route::Stock(_) => None,
        }
    }

    /// Where this join runs: as planned, unless its device has failed before it was executed.
    pub fn route(&self) -> &Route {
        self.taken.get().unwrap_or(&self.route)
    }

    /// Decides where this join runs, for all its partitions.
    fn decide(&self) -> &Route {
        self.taken.get_or_init(|| {
            let failure = match &self.route {
                Route::Device(device, _) => self.config.health.failure(device.info()),
                Route::Stock(_) => None,
            };
            match failure {
                Some(reason) => Route::Stock(Declined::DeviceFailed(reason)),
                None => self.route.clone(),
            }
        })
    }

    /// The `HashJoinExec` that this join stands for.
    pub fn stock(&self) -> &Arc<HashJoinExec> {
        &self.stock
    }

    /// The same join around another stock node.
    fn rewrap(&self, stock: &dyn ExecutionPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(join) = stock.downcast_ref::<HashJoinExec>() else {
            return internal_err!("expected a HashJoinExec, got {}", stock.name());
        };
        let stock = Arc::new(join.builder().build()?);
        let exec = Self::new(stock, self.route.clone(), self.config.clone());
        Ok(Arc::new(exec))
    }

    fn key_types(&self) -> Result<Vec<DataType>> {
        let schema = self.stock.left().schema();
        self.stock
            .on()
            .iter()
            .map(|(build, _)| build.data_type(&schema))
            .collect()
    }

    /// Output schema and where its columns come from, after the embedded projection.
    fn output(&self) -> Shape {
        let (_, columns) = build_join_schema(
            &self.stock.left().schema(),
            &self.stock.right().schema(),
            self.stock.join_type(),
        );
        let columns: Vec<ColumnIndex> = match &self.stock.projection {
            None => columns,
            Some(projection) => projection.iter().map(|i| columns[*i].clone()).collect(),
        };
        Shape {
            schema: self.schema(),
            columns,
        }
    }

    /// Columns of the build side that pairs bring to the output or the residual filter, each once.
    /// Join types that emit build rows only once the probe has ended take them in order then.
    fn build_columns(&self) -> Vec<usize> {
        let filter = self.stock.filter();
        let of_filter = filter.iter().flat_map(|filter| filter.column_indices());
        let output = self.output();
        let of_pairs = match Outcome::of(*self.stock.join_type(), false) {
            Outcome::Later => &[][..],
            _ => &output.columns,
        };
        let mut columns: Vec<usize> = of_pairs
            .iter()
            .chain(of_filter)
            .filter(|column| column.side == JoinSide::Left)
            .map(|column| column.index)
            .collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// Probe streams of one build.
    fn probes(&self) -> usize {
        match self.stock.partition_mode() {
            PartitionMode::Partitioned => 1,
            _ => self.stock.right().output_partitioning().partition_count(),
        }
    }

    /// Starts collecting the build side `partition` of the left child.
    fn start_build(
        &self,
        device: &Device,
        partition: usize,
        context: &Arc<TaskContext>,
        metrics: &JoinMetrics,
    ) -> Result<SharedBuild> {
        let spec = BuildSpec {
            on: self.stock.on().iter().map(|(l, _)| Arc::clone(l)).collect(),
            types: self.key_types()?,
            null_equality: self.stock.null_equality(),
            visited: emits_build_rows(*self.stock.join_type()),
            filtered: self.stock.filter().is_some(),
            columns: self.build_columns(),
            width: context.session_config().target_partitions(),
            probes: self.probes(),
            device: device.clone(),
            config: self.config.clone(),
        };
        let memory = BuildMemory::new(context.memory_pool(), partition);
        let stream = self.stock.left().execute(partition, Arc::clone(context))?;
        let build = BuildSide::collect(spec, stream, memory, metrics.clone());
        // Made here, not in the future: a build that is never polled reports when dropped.
        let reporter = self.board(context)?.map(|board| board.reporter(partition));
        let build = async move {
            let build = build.await?;
            if let Some(reporter) = reporter {
                reporter.report(&build).await?;
            }
            Ok(Arc::new(build))
        };
        Ok(build.map_err(Arc::new).boxed().shared())
    }

    /// The board of the dynamic filter, if the probe side holds that filter.
    fn board(&self, context: &TaskContext) -> Result<Option<Arc<FilterBoard>>> {
        if let Some(board) = self.board.get() {
            return Ok(board.clone());
        }
        let options = Arc::clone(context.session_config().options());
        let filter = self.stock.dynamic_expressions_produced().pop();
        let filter = filter.and_then(|filter| {
            (filter as Arc<dyn Any + Send + Sync>)
                .downcast::<DynamicFilterPhysicalExpr>()
                .ok()
        });
        let board = match filter {
            Some(filter)
                if options.optimizer.enable_join_dynamic_filter_pushdown
                    && holds(self.stock.right(), filter.as_ref())? =>
            {
                let spec = self.filter_spec(filter, options);
                let partitioned = spec.probe_partitioning.is_some();
                let builds = match partitioned {
                    true => self.stock.left().output_partitioning().partition_count(),
                    false => 1,
                };
                Some(FilterBoard::new(spec, builds))
            }
            _ => None,
        };
        Ok(self.board.get_or_init(|| board).clone())
    }

    fn filter_spec(
        &self,
        filter: Arc<DynamicFilterPhysicalExpr>,
        options: Arc<ConfigOptions>,
    ) -> FilterSpec {
        let stock = &self.stock;
        let partitioned = *stock.partition_mode() == PartitionMode::Partitioned;
        FilterSpec {
            filter,
            build_on: stock.on().iter().map(|(l, _)| Arc::clone(l)).collect(),
            probe_on: stock.on().iter().map(|(_, r)| Arc::clone(r)).collect(),
            probe_schema: stock.right().schema(),
            probe_partitioning: partitioned.then(|| stock.right().output_partitioning().clone()),
            null_equality: stock.null_equality(),
            null_aware: stock.null_aware,
            options,
        }
    }

    /// The build that probe partition `partition` waits for.
    fn build(
        &self,
        device: &Device,
        partition: usize,
        context: &Arc<TaskContext>,
        metrics: &JoinMetrics,
    ) -> Result<SharedBuild> {
        if *self.stock.partition_mode() == PartitionMode::Partitioned {
            return self.start_build(device, partition, context, metrics);
        }
        let mut collected = self
            .collected
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (build, takers) = match collected.take() {
            Some(waiting) => waiting,
            None => (
                self.start_build(device, 0, context, metrics)?,
                self.probes(),
            ),
        };
        if takers > 1 {
            *collected = Some((build.clone(), takers - 1));
        }
        Ok(build)
    }

    fn probe_spec(&self, device: &Device, context: &TaskContext) -> Result<ProbeSpec> {
        let stock = &self.stock;
        let right = stock.right();
        let ordered = right.output_ordering().is_some();
        let whole_chunks = !right.boundedness().is_unbounded();
        let waits = stock.fetch().is_some() || self.board(context)?.is_some();
        Ok(ProbeSpec {
            on: stock.on().iter().map(|(_, r)| Arc::clone(r)).collect(),
            null_equality: stock.null_equality(),
            join_type: *stock.join_type(),
            outcome: Outcome::of(*stock.join_type(), ordered),
            null_aware: stock.null_aware,
            filter: stock.filter().map(|filter| {
                let input = Shape {
                    schema: Arc::clone(filter.schema()),
                    columns: filter.column_indices().to_vec(),
                };
                (Arc::clone(filter.expression()), input)
            }),
            output: self.output(),
            batch_size: context.session_config().batch_size().max(1),
            fetch: stock.fetch(),
            chunk_rows: self.config.chunk_rows(device.info().kind),
            whole_chunks,
            reads_ahead: whole_chunks && !waits && streams(right.as_ref()),
            access: Access {
                device: device.clone(),
                memory_limit: self.config.memory_limit(),
            },
        })
    }

    fn check_partitions(&self) -> Result<()> {
        let left = self.stock.left().output_partitioning().partition_count();
        let right = self.stock.right().output_partitioning().partition_count();
        match self.stock.partition_mode() {
            PartitionMode::Partitioned if left != right => internal_err!(
                "a partitioned join has {left} build and {right} probe partitions; \
                 repartition one side"
            ),
            PartitionMode::CollectLeft if left != 1 => {
                internal_err!("a CollectLeft join has {left} build partitions; coalesce them")
            }
            _ => Ok(()),
        }
    }
}

/// Whether some node of `plan` evaluates or prunes by `filter`.
fn holds(plan: &Arc<dyn ExecutionPlan>, filter: &DynamicFilterPhysicalExpr) -> Result<bool> {
    let id = filter.expression_id();
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(&mut |root| {
            root.apply(|expression| {
                found |= expression.expression_id() == id;
                Ok(stop_if(found))
            })
        })?;
        Ok(stop_if(found))
    })?;
    Ok(found)
}

fn stop_if(found: bool) -> TreeNodeRecursion {
    match found {
        true => TreeNodeRecursion::Stop,
        false => TreeNodeRecursion::Continue,
    }
}

/// Whether a join type emits build rows once the probe has ended.
fn emits_build_rows(join_type: JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Left
            | JoinType::LeftAnti
            | JoinType::LeftSemi
            | JoinType::LeftMark
            | JoinType::Full
    )
}

impl DisplayAs for HortonJoinExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Stock<'a>(&'a HashJoinExec, DisplayFormatType);
        impl fmt::Display for Stock<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt_as(self.1, f)
            }
        }
        let stock = Stock(&self.stock, t).to_string();
        match (t, self.route()) {
            (DisplayFormatType::TreeRender, Route::Device(device, _)) => {
                write!(f, "{stock}")?;
                writeln!(f, "device={}", device.info().name)?;
                match self.config.table {
                    TableKind::Auto => Ok(()),
                    other => writeln!(f, "table={other}"),
                }
            }
            (DisplayFormatType::TreeRender, Route::Stock(reason)) => {
                write!(f, "{stock}")?;
                writeln!(f, "horton=stock ({reason})")
            }
            (_, Route::Device(device, estimate)) => {
                let line = stock.replacen("HashJoinExec", "HortonJoinExec", 1);
                write!(f, "{line}, device={}", device.info().name)?;
                if let Some(estimate) = estimate {
                    write!(f, " ({estimate})")?;
                }
                match self.config.table {
                    TableKind::Auto => Ok(()),
                    other => write!(f, ", table={other}"),
                }
            }
            (_, Route::Stock(reason)) => write!(f, "{stock}, horton=stock ({reason})"),
        }
    }
}

impl ExecutionPlan for HortonJoinExec {
    fn name(&self) -> &str {
        match self.route {
            Route::Device(..) => "HortonJoinExec",
            Route::Stock(_) => self.stock.name(),
        }
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        match self.route {
            Route::Device(..) => None,
            Route::Stock(_) => Some(self.stock.as_ref()),
        }
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.stock.properties()
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
        self.stock.dynamic_expressions_produced()
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
        self.stock.maintains_input_order()
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
        self.rewrap(stock.as_ref())
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
        let stock = Arc::clone(&self.stock).reset_state()?;
        self.rewrap(stock.as_ref())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Route::Device(device, _) = self.decide() else {
            return self.stock.execute(partition, context);
        };
        self.check_partitions()?;
        let metrics = JoinMetrics::new(&self.metrics, partition);
        let build = self.build(device, partition, &context, &metrics)?;
        let spec = Arc::new(self.probe_spec(device, &context)?);
        let memory = of_probe_rows(context.memory_pool(), partition);
        let input = self.stock.right().execute(partition, context)?;
        let probe = Probe::new(spec, build, input, (memory, metrics.clone()));
        let stream = futures::stream::unfold(Some(probe), |probe| async move {
            let mut probe = probe?;
            match probe.next().await {
                Ok(batch) => batch.map(|batch| (Ok(batch), Some(probe))),
                // After an error the stream has ended: nothing partial follows.
                Err(error) => Some((Err(Error::into(error)), None)),
            }
        });
        let stream = stream.map(move |batch| batch.record_output(&metrics.baseline));
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            stream,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        match self.route() {
            Route::Device(..) => Some(self.metrics.clone_inner()),
            Route::Stock(_) => self.stock.metrics(),
        }
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.stock.child_stats_requests(partition)
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        self.stock.statistics_from_inputs(input_stats, args)
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.stock.supports_limit_pushdown()
    }

    fn fetch(&self) -> Option<usize> {
        self.stock.fetch()
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let stock = self.stock.with_fetch(limit)?;
        self.rewrap(stock.as_ref()).ok()
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
                self.rewrap(plan.as_ref()).map(Some)
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
        self.stock
            .gather_filters_for_pushdown(phase, parent_filters, config)
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let mut result =
            self.stock
                .handle_child_pushdown_result(phase, child_pushdown_result, config)?;
        if let Some(stock) = result.updated_node.take() {
            result.updated_node = Some(self.rewrap(stock.as_ref())?);
        }
        Ok(result)
    }
}
