//! The plan node: a drop-in for `HashJoinExec`.
//!
//! ```text
//!  HortonJoinExec { stock: Arc<HashJoinExec>, route }
//!     plan duties (properties, statistics, distribution, pushdown) ─▶ the stock node's answers
//!     execute:  Route::Device ─▶ BuildSide + Probe      Route::Stock ─▶ the stock node
//!     filters:  one a key column, told by either        inputs: opened when filters are there
//! ```
//!
//! A device that failed since the join was planned is not asked: the first execution of any
//! partition decides that for all, as they share a build.
//!
//! The node keeps the `HashJoinExec` it came from and lets it answer whatever is asked of the
//! plan, so that nothing about the plan can differ; only execution and dynamic filters are ours.
//! A declined join is the same node with the reason beside it in EXPLAIN, and is a `HashJoinExec`
//! to whoever downcasts it. Every method whose default would be wrong for a join is here.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{Distribution, PhysicalExpr};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::utils::{ColumnIndex, build_join_schema};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::{
    ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PlanProperties, ReplaceChildrenOptions,
};
use futures::{FutureExt, StreamExt, TryFutureExt};

use crate::config::{Filters, HortonConfig, TableKind};
use crate::device::Device;
use crate::error::Error;
use crate::rule::{Declined, Route};

use super::build::{BuildSide, BuildSpec};
use super::early::{Build, open, open_builds};
use super::emit::Shape;
use super::filter::{Board, Facts, FilterSpec, KeyFilter};
use super::lookup::Access;
use super::memory::{self, BuildMemory, of_probe_rows};
use super::metrics::JoinMetrics;
use super::pairs::Outcome;
use super::probe::{Probe, ProbeSpec, SharedBuild, streams};
use super::pushdown;
use super::reach::Reach;
use super::run::{Run, Runs};
use super::tap::{KeyTap, Tap};

/// An equi-join on an OpenCL device, in the place of a `HashJoinExec`.
pub struct HortonJoinExec {
    stock: Arc<HashJoinExec>,
    /// As planned.
    route: Route,
    /// As the first execution decided.
    taken: OnceLock<Route>,
    config: HortonConfig,
    metrics: ExecutionPlanMetricsSet,
    /// What the build side tells the probe side's scans, once filters were pushed down.
    filters: Vec<KeyFilter>,
    /// Its executions, with those of nodes made of this one: they share the filters.
    runs: Arc<Runs>,
    /// The stock join that ran last, if one did in this one's place.
    ran: Mutex<Option<Arc<HashJoinExec>>>,
    reach: OnceLock<Reach>,
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
            filters: Vec::new(),
            runs: Arc::default(),
            ran: Mutex::default(),
            reach: OnceLock::new(),
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
        self.rewrap_with(stock, self.filters.clone())
    }

    /// As [`rewrap`](Self::rewrap), with other filters.
    fn rewrap_with(
        &self,
        stock: &dyn ExecutionPlan,
        filters: Vec<KeyFilter>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(join) = stock.downcast_ref::<HashJoinExec>() else {
            return internal_err!("expected a HashJoinExec, got {}", stock.name());
        };
        let stock = Arc::new(join.builder().build()?);
        let mut exec = Self::new(stock, self.route.clone(), self.config.clone());
        exec.filters = filters;
        exec.runs = Arc::clone(&self.runs);
        Ok(Arc::new(exec))
    }

    /// Whether the stock join makes its own filter, as it runs and scans are DataFusion's own.
    fn leaves_filters(&self) -> bool {
        matches!(self.route, Route::Stock(_)) && self.config.filters == Filters::Off
    }

    /// The filters of the join's keys.
    fn made_filters(&self) -> Vec<Arc<DynamicFilterPhysicalExpr>> {
        let filters = self.filters.iter();
        filters.map(|own| Arc::clone(&own.filter)).collect()
    }

    /// Where filters go, found out once.
    fn reach(&self, context: &TaskContext) -> Result<&Reach> {
        if let Some(reach) = self.reach.get() {
            return Ok(reach);
        }
        let options = &context.session_config().options().optimizer;
        let filters = match options.enable_join_dynamic_filter_pushdown {
            true => self.filters.as_slice(),
            false => &[],
        };
        let inputs = [self.stock.left(), self.stock.right()];
        let makes_sets = self.config.filters == Filters::Auto;
        let reach = Reach::of(inputs, filters, makes_sets)?;
        Ok(self.reach.get_or_init(|| reach))
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
        run: &Arc<Run>,
        (context, metrics): (&Arc<TaskContext>, &JoinMetrics),
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
        let opened_late = self.reach(context)?.reaches_build;
        let stream = match run.opened().take() {
            Some(stream) => stream,
            None => open(self.stock.left(), partition, context, opened_late)?,
        };
        let build = BuildSide::collect(spec, stream, memory, metrics.clone());
        // Made here, not in the future: a build that is never polled reports when dropped.
        let board = self.board(run, context)?;
        let reporter = board.as_ref().map(|board| board.reporter(partition));
        let build_time = metrics.build_time.clone();
        let build = async move {
            let build = build.await?;
            if let Some(reporter) = reporter {
                let facts = Facts {
                    rows: build.rows.len(),
                    distinct: build.distinct(),
                    keys: build.keys.clone(),
                };
                reporter.report(facts, &build_time).await?;
            }
            Ok(Arc::new(build))
        };
        let build = build.map_err(Arc::new).boxed().shared();
        let others = board.filter(|_| self.is_partitioned());
        Ok(match others {
            // The filters are complete once all builds are.
            Some(board) => {
                board.add(&build);
                let build = async move {
                    let build = build.await?;
                    board.complete().await;
                    Ok(build)
                };
                build.boxed().shared()
            }
            None => build,
        })
    }

    fn is_partitioned(&self) -> bool {
        *self.stock.partition_mode() == PartitionMode::Partitioned
    }

    /// The board of the join's filters in `run`, if some scan holds one.
    fn board(&self, run: &Arc<Run>, context: &TaskContext) -> Result<Option<Arc<Board>>> {
        let reach = self.reach(context)?;
        if reach.held.is_empty() {
            return Ok(None);
        }
        let builds = match self.is_partitioned() {
            true => self.stock.left().output_partitioning().partition_count(),
            false => 1,
        };
        let stock = &self.stock;
        let spec = FilterSpec {
            filters: reach.held.clone(),
            probe_on: stock.on().iter().map(|(_, r)| Arc::clone(r)).collect(),
            types: self.key_types()?,
            probe_schema: stock.right().schema(),
            null_equality: stock.null_equality(),
            null_aware: stock.null_aware,
            options: Arc::clone(context.session_config().options()),
            most_rows: reach.most_rows,
            width: context.session_config().target_partitions(),
        };
        let memory = memory::of_filters(context.memory_pool());
        Ok(Some(run.board(|| Board::new(spec, builds, run, memory))))
    }

    /// The rows of the stock join, which tells scans what its build side knows.
    fn execute_stock(
        &self,
        partition: usize,
        run: Arc<Run>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let reach = self.reach(&context)?;
        let is_touched = reach.reaches_build || reach.reaches_probe || run.opened().is_used();
        if !is_touched {
            return self.stock.execute(partition, context);
        }
        let stock = run.stock(|| self.tapped(&run, &context))?;
        *self.ran.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&stock));
        let stream = stock.execute(partition, context)?;
        Ok(run.holding(stream))
    }

    /// The stock join over inputs that are opened as late as filters need, and whose keys are
    /// told.
    fn tapped(&self, run: &Arc<Run>, context: &TaskContext) -> Result<Arc<HashJoinExec>> {
        let reach = self.reach(context)?;
        let board = self.board(run, context)?;
        let keys = board.and_then(|board| {
            let time = MetricBuilder::new(&self.metrics).subset_time("filter_time", 0);
            KeyTap::of(self.stock.on(), board, time)
        });
        let left = Tap {
            input: Arc::clone(self.stock.left()),
            opened_late: reach.reaches_build,
            opened: Some(Arc::clone(run.opened())),
            keys,
        };
        let right = Tap {
            input: Arc::clone(self.stock.right()),
            opened_late: reach.reaches_probe,
            opened: None,
            keys: None,
        };
        let stock = self.stock.builder();
        let stock = stock.with_new_children(vec![Arc::new(left), Arc::new(right)])?;
        Ok(Arc::new(stock.build()?))
    }

    /// Opens build sides of joins below inputs that are opened late.
    fn open_below(&self, run: &Run, context: &Arc<TaskContext>) -> Result<()> {
        let reach = self.reach(context)?;
        run.open_below(|| {
            let mut held = Vec::new();
            if reach.reaches_build {
                held.extend(open_builds(self.stock.left(), context)?);
            }
            if reach.reaches_probe {
                held.extend(open_builds(self.stock.right(), context)?);
            }
            Ok(held)
        })
    }

    /// Opens the build side before the join is executed, if all partitions share it and no filter
    /// reaches it.
    ///
    /// # Errors
    /// Those of opening it.
    pub(super) fn open_build(&self, context: &Arc<TaskContext>) -> Result<Build> {
        let is_early = *self.stock.partition_mode() == PartitionMode::CollectLeft
            && !self.reach(context)?.prunes_build;
        if !is_early {
            return Ok(Build::Waits);
        }
        let Some(run) = self.runs.begin(context, &self.made_filters())? else {
            return Ok(Build::WasOpened);
        };
        // Ends the execution if the build side cannot be opened.
        let held = run.held();
        let build = self.stock.left().execute(0, Arc::clone(context))?;
        held.run().opened().put(build);
        Ok(Build::Opened(held))
    }

    /// The build that probe partition `partition` waits for.
    fn build(
        &self,
        device: &Device,
        partition: usize,
        run: &Arc<Run>,
        of: (&Arc<TaskContext>, &JoinMetrics),
    ) -> Result<SharedBuild> {
        match self.is_partitioned() {
            true => self.start_build(device, partition, run, of),
            false => run.collected(self.probes(), || self.start_build(device, 0, run, of)),
        }
    }

    fn probe_spec(&self, device: &Device, context: &TaskContext) -> Result<ProbeSpec> {
        let stock = &self.stock;
        let right = stock.right();
        let ordered = right.output_ordering().is_some();
        let whole_chunks = !right.boundedness().is_unbounded();
        let waits = stock.fetch().is_some() || self.reach(context)?.reaches_probe;
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
        let own = self.filters.iter().map(|own| Arc::clone(&own.filter) as _);
        let stock = self.stock.dynamic_expressions_produced();
        own.chain(stock).collect()
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
        for filter in self.made_filters() {
            filter.update(lit(true))?;
        }
        let stock = Arc::clone(&self.stock).reset_state()?;
        self.rewrap(stock.as_ref())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let partitions = self.properties().output_partitioning().partition_count();
        let of = (partition, partitions);
        let run = self.runs.join(of, &context, &self.made_filters())?;
        self.open_below(&run, &context)?;
        let Route::Device(device, _) = self.decide() else {
            return self.execute_stock(partition, run, context);
        };
        self.check_partitions()?;
        let metrics = JoinMetrics::new(&self.metrics, partition);
        let build = self.build(device, partition, &run, (&context, &metrics))?;
        let spec = Arc::new(self.probe_spec(device, &context)?);
        let memory = of_probe_rows(context.memory_pool(), partition);
        let opened_late = self.reach(&context)?.reaches_probe;
        let input = open(self.stock.right(), partition, &context, opened_late)?;
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
        let stream = RecordBatchStreamAdapter::new(self.schema(), stream);
        Ok(run.holding(Box::pin(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        match self.route() {
            Route::Device(..) => Some(self.metrics.clone_inner()),
            Route::Stock(_) => {
                let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
                let mut metrics = ran.as_ref().unwrap_or(&self.stock).metrics()?;
                for metric in self.metrics.clone_inner().iter() {
                    metrics.push(Arc::clone(metric));
                }
                Some(metrics)
            }
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
        // Asked for the filters of its own alone, the stock join says whether they are allowed.
        let stock = self
            .stock
            .gather_filters_for_pushdown(phase, Vec::new(), config)?;
        let own = stock.self_filters().into_iter().nth(1).unwrap_or_default();
        let own = match own.is_empty() || !self.filters.is_empty() {
            true => Vec::new(),
            false if self.leaves_filters() => own,
            false => pushdown::key_filters(self.stock.on()),
        };
        let [left, right] =
            pushdown::parents(&self.stock, &self.output().columns, &parent_filters)?;
        let right = right.with_self_filters(own);
        Ok(FilterDescription::new().with_child(left).with_child(right))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        child_pushdown_result: ChildPushdownResult,
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        if self.leaves_filters() {
            let stock = &self.stock;
            let mut result =
                stock.handle_child_pushdown_result(phase, child_pushdown_result, config)?;
            if let Some(stock) = result.updated_node.take() {
                result.updated_node = Some(self.rewrap(stock.as_ref())?);
            }
            return Ok(result);
        }
        let own = child_pushdown_result.self_filters.get(1);
        let own: Vec<KeyFilter> = own.map_or(Vec::new(), |own| pushdown::accepted(own));
        let mut result = FilterPushdownPropagation::if_any(child_pushdown_result);
        if !own.is_empty() {
            result.updated_node = Some(self.rewrap_with(self.stock.as_ref(), own)?);
        }
        Ok(result)
    }
}
