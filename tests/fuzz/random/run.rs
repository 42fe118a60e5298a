//! Runs a case by both joins, and compares what must be equal.
//!
//! * rows: as a sequence per partition, where the order of `HashJoinExec` does not depend on how it
//!   steps through its hash table ([`Order`]); else as a multiset; with a limit, a part of the
//!   unlimited rows that is as large; where rows went to disk, as the plan promises
//! * the plan's properties and schema; the declared ordering, where the stock join's rows have it
//! * metrics: output rows; input rows and batches as the stock join that builds the same side; a
//!   kernel ran if and only if some build row can match
//! * where either side may be built, or the host is to join: the same rows, as a multiset; why the
//!   host joins; that metrics count no row twice
//! * no batch of the device's is empty or larger than asked for; a second run gives the same rows;
//!   the memory pool is empty at the end
//! * under a limit on the memory pool: the same rows, some by way of files, or rarely
//!   `ResourcesExhausted`; no file is left; metrics count what was written
//! * under a limit on the device: the same rows; after a run that was dropped midway, all of the
//!   above
//! * with filters handed to scans, in memory or of Parquet files: the same rows
//! * with an OpenCL call that fails: the same rows, or the call's error where it is asked for
//! * small inputs: `NestedLoopJoinExec`, which shares no code with either

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{JoinType, NullEquality};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, collect_partitioned,
};
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_join::Side;
use horton_join::config::OnDeviceError;
use horton_join::device::Device;
use horton_join::{Decision, Declined, Home, Place};
use horton_test_support::internals::supported;
use horton_test_support::internals::{Readiness, settled};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::case::{Case, Mode, Scan};
use super::fault::Sites;
use super::plan::{Input, Inputs, config};
use horton_test_support::handed_out::handed_out;

/// Pairs of rows up to which the nested loop join is asked too.
const NESTED_LOOP_PAIRS: usize = 400;

/// What one worker runs cases with.
pub struct Worker {
    handle: Handle,
    pub device: Device,
    runtime: Arc<RuntimeEnv>,
    pool: Arc<dyn MemoryPool>,
    config: SessionConfig,
}

/// What a clean case did.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// Device joins run.
    pub joins: usize,
    pub launches: usize,
    pub rows: usize,
    /// Rows were compared in order.
    pub in_order: bool,
    /// The right side was built.
    pub swapped: bool,
    /// The host joined rows of some build.
    pub on_host: bool,
    /// Scans were told the build side's keys.
    pub filtered: bool,
    /// The nested loop join was asked too.
    pub nested_loop: bool,
    /// Both sides refused the case.
    pub refused: bool,
    /// The memory pool was limited.
    pub limited: bool,
    /// Rows went to disk.
    pub spilled: bool,
    /// The error of a device join that had too little memory, which was limited.
    pub exhausted: Option<String>,
    /// A run was dropped midway before.
    pub cancelled: bool,
    /// An OpenCL call was made to fail in another run.
    pub struck: bool,
}

/// A difference: what differs, and how.
#[derive(Debug)]
pub struct Difference {
    pub what: &'static str,
    pub how: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.how)
    }
}

impl Difference {
    /// With the run that it is of.
    #[cfg(debug_assertions)]
    pub fn with(self, run: &str) -> Self {
        let how = format!("{}\n{run}", self.how);
        Self { how, ..self }
    }
}

/// What must not fail here failed.
impl From<DataFusionError> for Difference {
    fn from(error: DataFusionError) -> Self {
        let how = error.to_string();
        Self { what: "test", how }
    }
}

pub type Checked<T> = std::result::Result<T, Difference>;

pub fn differ<T>(what: &'static str, how: impl fmt::Display) -> Checked<T> {
    let how = how.to_string();
    Err(Difference { what, how })
}

/// Where a join ran, build by build.
pub struct Places {
    decisions: Vec<Decision>,
    /// How often a build wrote files, or may have: those in buckets have a decision for each
    /// bucket.
    spilled: usize,
}

impl Places {
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let join = HortonJoinExec::of(plan.as_ref());
        let metrics = plan.metrics().unwrap_or_default();
        let spilled = metrics.iter().filter(|m| m.value().name() == "spill_count");
        Self {
            decisions: join.map_or(Vec::new(), HortonJoinExec::decisions),
            spilled: spilled.count(),
        }
    }

    fn has_spilled(&self) -> bool {
        self.spilled > 0
    }

    /// Builds that the host joined, and why.
    fn on_host(&self) -> impl Iterator<Item = &Declined> {
        let decisions = self.decisions.iter();
        decisions.filter_map(|decision| match &decision.place {
            Place::Host(reason) => Some(reason),
            Place::Device(_) => None,
        })
    }

    fn all_on_device(&self) -> bool {
        self.on_host().next().is_none()
    }

    fn all_on_host(&self) -> bool {
        self.on_host().count() == self.decisions.len()
    }

    fn swapped(&self) -> bool {
        let mut decisions = self.decisions.iter();
        decisions.any(|decision| decision.build == Side::Right)
    }
}

/// A case's joins, over their own copies of the inputs.
struct Joins {
    stock: Arc<dyn ExecutionPlan>,
    device: Arc<dyn ExecutionPlan>,
    probe_ordered: bool,
    /// Whether a device can compare the keys.
    supported: bool,
}

/// Makes rows of a plan comparable.
fn converter(plan: &Arc<dyn ExecutionPlan>) -> Result<RowConverter> {
    let schema = plan.schema();
    let fields = schema.fields().iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

/// Batches of each partition, and their rows in a comparable form.
pub struct Output {
    batches: Vec<Vec<RecordBatch>>,
    rows: Vec<Rows>,
}

impl Output {
    fn new(converter: &RowConverter, batches: Vec<Vec<RecordBatch>>) -> Result<Self> {
        let mut rows = Vec::with_capacity(batches.len());
        for partition in &batches {
            let count = partition.iter().map(RecordBatch::num_rows).sum();
            let mut all = converter.empty_rows(count, 0);
            for batch in partition.iter().filter(|batch| batch.num_columns() > 0) {
                converter.append(&mut all, batch.columns())?;
            }
            rows.push(all);
        }
        Ok(Self { batches, rows })
    }

    fn counts(&self) -> Vec<usize> {
        let count = |batches: &Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
        self.batches.iter().map(count).collect()
    }

    fn count(&self) -> usize {
        self.counts().iter().sum()
    }

    /// How often each row occurs.
    fn multiset(&self) -> HashMap<&[u8], isize> {
        let mut rows = HashMap::new();
        for row in self.rows.iter().flat_map(Rows::iter) {
            *rows.entry(row.data()).or_default() += 1;
        }
        rows
    }

    fn text(&self, limit: usize) -> String {
        let options = FormatOptions::default()
            .with_null("NULL")
            .with_display_error(true);
        let mut out = String::new();
        for (partition, batches) in self.batches.iter().enumerate() {
            out += &format!("  partition {partition}\n");
            let rows = batches.iter().flat_map(|batch| {
                let columns: Vec<ArrayFormatter> = batch
                    .columns()
                    .iter()
                    .filter_map(|column| ArrayFormatter::try_new(column, &options).ok())
                    .collect();
                let row = move |row: usize| -> String {
                    let values = columns.iter().map(|c| c.value(row).to_string());
                    values.collect::<Vec<_>>().join(" | ")
                };
                (0..batch.num_rows()).map(row).collect::<Vec<_>>()
            });
            for row in rows.take(limit) {
                out += &format!("    {row}\n");
            }
        }
        out
    }
}

/// How a run over scans that keep filters ended.
#[derive(Debug, PartialEq, Eq)]
enum Filtered {
    /// There was none.
    No,
    /// With the same rows.
    Same,
    /// With the error of too little memory, which was limited.
    Exhausted(String),
}

/// How rows are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// As one sequence per partition.
    Sequences,
    /// As one multiset per partition.
    Partitions,
    /// As one multiset.
    Multiset,
}

impl Order {
    /// Matches come in probe order, and those of a probe row in build order. Unmatched build
    /// rows come last, but the stock join keeps its build batches last to first. Unmatched
    /// probe rows come last of a *step* through the hash table, unless `Right` has an ordered
    /// probe side: that is the stock join's order only if one step does it all.
    fn of(case: &Case, inputs: &Inputs, probe_ordered: bool, stock_rows: usize) -> Self {
        let one_step = stock_rows <= case.batch_size
            && case.filter.is_none()
            && case.fetch.is_none()
            && case.table.device_limit == 0
            && case.table.surrogate_bits == 32;
        if let Mode::Open { .. } = case.mode {
            return Order::Multiset;
        }
        let one_batch = inputs.build.most_batches() <= 1 && case.mode != Mode::Repartitioned;
        let known = match case.join_type {
            JoinType::Inner | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                true
            }
            JoinType::Right => probe_ordered || one_step,
            JoinType::Full => one_step && one_batch,
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => {
                one_batch
            }
        };
        match known && !case.side_by_side {
            true => Order::Sequences,
            false => Order::promised(case, inputs),
        }
    }

    /// That of rows in no particular order: each in its partition, where the plan says so or each
    /// partition is a join of its own.
    fn promised(case: &Case, inputs: &Inputs) -> Self {
        let by_keys = |plan: HashJoinExec| {
            let partitioning = plan.properties().output_partitioning();
            matches!(partitioning, Partitioning::Hash(..))
        };
        let keeps = match case.mode {
            Mode::Split | Mode::Repartitioned => true,
            Mode::Kept => inputs.stock(case, true).is_ok_and(by_keys),
            Mode::Collected | Mode::Open { .. } => false,
        };
        match keeps {
            true => Order::Partitions,
            false => Order::Multiset,
        }
    }
}

/// The orders that a plan declares for the rows of each partition.
struct Declared {
    schema: SchemaRef,
    /// All orders, one after the other: rows that follow each of them follow this one.
    all: LexOrdering,
}

impl Declared {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        Some(Self {
            schema: plan.schema(),
            all: plan.properties().output_ordering()?.clone(),
        })
    }

    /// The sort keys of a partition's rows.
    fn keys(&self, batches: &[RecordBatch]) -> Result<Rows> {
        let field = |sort: &PhysicalSortExpr| {
            let data_type = sort.expr.data_type(&self.schema)?;
            Ok(SortField::new_with_options(data_type, sort.options))
        };
        let fields = self.all.iter().map(field).collect::<Result<Vec<_>>>()?;
        let converter = RowConverter::new(fields)?;
        let mut rows = converter.empty_rows(0, 0);
        for batch in batches {
            let keys = self.all.iter().map(|sort| {
                let value = sort.expr.evaluate(batch)?;
                value.into_array(batch.num_rows())
            });
            converter.append(&mut rows, &keys.collect::<Result<Vec<_>>>()?)?;
        }
        Ok(rows)
    }

    /// Whether each partition's rows are in this order.
    fn holds(&self, output: &Output) -> Checked<bool> {
        for batches in &output.batches {
            if !self.keys(batches)?.iter().is_sorted() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first `fetch` sort keys of all partitions together.
    fn first(&self, fetch: usize, output: &Output) -> Checked<Vec<Vec<u8>>> {
        let mut first = Vec::new();
        for batches in &output.batches {
            first.extend(self.keys(batches)?.iter().map(|key| key.data().to_vec()));
        }
        first.sort_unstable();
        first.truncate(fetch);
        Ok(first)
    }
}

/// What a run of the device join must have found.
pub struct Found<'a> {
    pub case: &'a Case,
    pub inputs: &'a Inputs,
    converter: &'a RowConverter,
    order: Order,
    declared: Option<Declared>,
    expected: &'a Output,
}

impl Found<'_> {
    /// Whether `batches` are those rows, in batches as large as asked for where the device joined.
    pub fn check(
        &self,
        worker: &Worker,
        places: &Places,
        batches: Vec<Vec<RecordBatch>>,
    ) -> Checked<Output> {
        let found = Output::new(self.converter, batches)?;
        if places.all_on_device() {
            check_batches(self.case, &found)?;
        }
        let order = match places.has_spilled() {
            true => Order::promised(self.case, self.inputs),
            false => self.order,
        };
        match self.case.fetch.filter(|_| order != Order::Sequences) {
            Some(fetch) => {
                let all: Arc<dyn ExecutionPlan> = Arc::new(self.inputs.stock(self.case, false)?);
                let all = Output::new(self.converter, worker.run(&all, self.case)?)?;
                check_limited(fetch, &all, self.expected, &found)?;
                self.check_first(fetch, &all, &found)?;
            }
            None => check_rows(order, self.expected, &found)?,
        }
        self.check_order(&found)?;
        Ok(found)
    }

    /// The stock join declares some orderings that its own rows do not have: an ordered probe
    /// column that repeats, then an ordered build column.
    fn check_order(&self, found: &Output) -> Checked<()> {
        match &self.declared {
            Some(declared) if declared.holds(self.expected)? && !declared.holds(found)? => {
                differ("declared ordering", Shown(self.expected, found))
            }
            _ => Ok(()),
        }
    }

    /// Whether the rows of a limit in a declared order are the first of all.
    fn check_first(&self, fetch: usize, all: &Output, found: &Output) -> Checked<()> {
        match &self.declared {
            Some(declared)
                if declared.holds(all)?
                    && declared.first(fetch, all)? != declared.first(fetch, found)? =>
            {
                differ("first rows", Shown(all, found))
            }
            _ => Ok(()),
        }
    }
}

/// What a case's runs take memory and files from.
pub struct Limited {
    pub runtime: Arc<RuntimeEnv>,
    /// Where files go, if memory is limited.
    folder: Option<TempDir>,
}

impl Limited {
    /// Nothing is reserved, and no file is there. Tasks of the runtime may give back a moment
    /// later.
    pub fn check_left(&self) -> Checked<()> {
        check_released(&self.runtime.memory_pool)?;
        let start = Instant::now();
        while self.files()? > 0 || self.runtime.disk_manager.used_disk_space() > 0 {
            if start.elapsed() > LEFT_LATE {
                return differ("files left", self.files()?);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Files in the folders that the session made.
    fn files(&self) -> Result<usize> {
        let mut files = 0;
        if let Some(folder) = &self.folder {
            for folder in std::fs::read_dir(folder.path())? {
                files += std::fs::read_dir(folder?.path())?.count();
            }
        }
        Ok(files)
    }
}

impl Worker {
    pub fn new(handle: Handle, device: Device) -> Self {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::clone(&pool))
            .build_arc()
            .unwrap();
        Self {
            handle,
            device,
            runtime,
            pool,
            config: SessionConfig::new(),
        }
    }

    fn context(&self, case: &Case, runtime: &Arc<RuntimeEnv>) -> Arc<TaskContext> {
        let mut config = self.config.clone().with_batch_size(case.batch_size);
        if case.host_splits {
            let optimizer = &mut config.options_mut().optimizer;
            optimizer.hash_join_single_partition_threshold = 0;
            optimizer.hash_join_single_partition_threshold_rows = 0;
        }
        let runtime = Arc::clone(runtime);
        let (scalar, higher_order, aggregate, window) = Default::default();
        Arc::new(TaskContext::new(
            None,
            String::new(),
            config,
            scalar,
            higher_order,
            aggregate,
            window,
            runtime,
        ))
    }

    /// The batches of each partition of a plan.
    fn run(&self, plan: &Arc<dyn ExecutionPlan>, case: &Case) -> Result<Vec<Vec<RecordBatch>>> {
        self.run_in(&self.runtime, plan, case)
    }

    /// The runtime of the case's memory pool.
    pub fn limited(&self, case: &Case) -> Result<Limited> {
        if case.pool_limit == 0 {
            let runtime = Arc::clone(&self.runtime);
            let folder = None;
            return Ok(Limited { runtime, folder });
        }
        let pool = Arc::new(GreedyMemoryPool::new(case.pool_limit));
        let folder = tempfile::tempdir()?;
        let mode = DiskManagerMode::Directories(vec![folder.path().to_owned()]);
        let disk = DiskManagerBuilder::default().with_mode(mode);
        let builder = RuntimeEnvBuilder::new().with_memory_pool(pool);
        Ok(Limited {
            runtime: builder.with_disk_manager_builder(disk).build_arc()?,
            folder: Some(folder),
        })
    }

    /// Polls the streams of a plan in turn, and drops them.
    pub fn cancel(
        &self,
        (limited, plan): (&Limited, &Arc<dyn ExecutionPlan>),
        case: &Case,
        polls: usize,
    ) -> Result<()> {
        let plan = reset_plan_states(Arc::clone(plan))?;
        let context = self.context(case, &limited.runtime);
        self.handle.block_on(async move {
            let mut streams = Vec::new();
            for partition in 0..plan.output_partitioning().partition_count() {
                streams.push(plan.execute(partition, Arc::clone(&context))?);
            }
            for poll in 0..polls {
                if streams.is_empty() {
                    break;
                }
                let at = poll % streams.len();
                if let Poll::Ready(None | Some(Err(_))) = futures::poll!(streams[at].next()) {
                    drop(streams.swap_remove(at));
                }
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }

    /// [`run`](Self::run) within what is `limited`.
    pub fn run_limited(
        &self,
        limited: &Limited,
        plan: &Arc<dyn ExecutionPlan>,
        case: &Case,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        self.run_in(&limited.runtime, plan, case)
    }

    fn run_in(
        &self,
        runtime: &Arc<RuntimeEnv>,
        plan: &Arc<dyn ExecutionPlan>,
        case: &Case,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        let (plan, context) = (Arc::clone(plan), self.context(case, runtime));
        let side_by_side = case.side_by_side;
        self.handle.block_on(async move {
            if side_by_side {
                return collect_partitioned(plan, context).await;
            }
            let mut all = Vec::new();
            for partition in 0..plan.output_partitioning().partition_count() {
                let stream = plan.execute(partition, Arc::clone(&context))?;
                all.push(stream.try_collect().await?);
            }
            Ok(all)
        })
    }

    /// Runs a case on both sides.
    ///
    /// # Errors
    /// The first difference.
    pub fn check(&self, case: &Case) -> Checked<Report> {
        let begun = Report {
            limited: case.pool_limit > 0,
            ..Report::default()
        };
        let refused = Report {
            refused: true,
            ..begun.clone()
        };
        let Some((inputs, joins)) = self.joins(case) else {
            return Ok(refused);
        };
        self.get_ready(case)?;
        let limited = self.limited(case)?;
        if let Some(polls) = case.cancel_after {
            self.cancel((&limited, &joins.device), case, polls)?;
            limited.check_left()?;
        }
        let run = || self.run_limited(&limited, &joins.device, case);
        let (device, sites) = Sites::count(case, run);
        let runs = (self.run(&joins.stock, case), device);
        let (expected, found) = match runs {
            (Err(_), Err(_)) => {
                drop(joins);
                limited.check_left()?;
                return Ok(refused);
            }
            (Ok(_), Err(error)) if is_exhausted(case, &error) => {
                drop(joins);
                limited.check_left()?;
                return Ok(Report {
                    exhausted: Some(error.to_string()),
                    cancelled: case.cancel_after.is_some(),
                    joins: 1,
                    ..begun
                });
            }
            (Ok(_), Err(error)) => return differ("error", error),
            (Err(error), Ok(_)) => return differ("no error", error),
            (Ok(expected), Ok(found)) => (expected, found),
        };
        let converter = converter(&joins.stock)?;
        let expected = Output::new(&converter, expected)?;
        let order = Order::of(case, &inputs, joins.probe_ordered, expected.count());
        let right = Found {
            case,
            inputs: &inputs,
            converter: &converter,
            order,
            declared: Declared::of(&joins.device),
            expected: &expected,
        };
        let places = Places::of(&joins.device);
        let found = right.check(self, &places, found)?;
        check_plan(case, &joins, &found)?;
        check_places(case, &joins, &places)?;
        let mut report = Report {
            joins: 1,
            launches: self.check_metrics(case, (&inputs, &joins), &places, &found)?,
            swapped: places.swapped(),
            on_host: !places.all_on_device(),
            rows: found.count(),
            in_order: order == Order::Sequences && !places.has_spilled(),
            spilled: places.has_spilled() && case.pool_limit > 0,
            cancelled: case.cancel_after.is_some(),
            ..begun
        };
        if case.again {
            let fresh = reset_plan_states(Arc::clone(&joins.device))?;
            report.joins += 1;
            match self.run_limited(&limited, &fresh, case) {
                // Another worker's case has the device's memory now.
                Err(error) if is_exhausted(case, &error) => {
                    report.exhausted = Some(error.to_string());
                }
                again => {
                    let again = again?;
                    right.check(self, &Places::of(&fresh), again)?;
                }
            }
        }
        match self.check_filtered((case, &inputs), &limited, (&expected, &converter))? {
            Filtered::Exhausted(error) => report.exhausted = Some(error),
            filtered => report.filtered = filtered == Filtered::Same,
        }
        report.nested_loop = self.check_nested_loop(case, &inputs, &expected, &converter)?;
        drop(joins);
        limited.check_left()?;
        report.struck = sites.strike(self, &right)?;
        check_released(&self.pool)?;
        Ok(report)
    }

    /// Waits until the device is ready for the case's tables: under `auto` joins do not.
    fn get_ready(&self, case: &Case) -> Checked<()> {
        let config = config(case, OnDeviceError::Error);
        let settled = self.handle.block_on(async move { settled(&config).await });
        match settled {
            Readiness::Ready(_) => Ok(()),
            other => differ("device", format!("{other:?}")),
        }
    }

    /// The inputs and both joins over them; `None` for what is no join.
    fn joins(&self, case: &Case) -> Option<(Inputs, Joins)> {
        let inputs = Inputs::new(case).ok()?;
        let stock = inputs.stock(case, true).ok()?;
        let types = stock.on().iter().map(|(l, r)| {
            let l = l.data_type(&inputs.build.schema)?;
            Ok((l, r.data_type(&inputs.probe.schema)?))
        });
        let types = types.collect::<Result<Vec<_>>>().ok()?;
        let joins = Joins {
            supported: supported(&types).is_ok(),
            probe_ordered: stock.right().output_ordering().is_some(),
            stock: Arc::new(stock),
            // The host would hide that the device failed.
            device: self.on_device(&inputs, case, OnDeviceError::Error).ok()?,
        };
        Some((inputs, joins))
    }

    /// The device join over its own copy of the inputs.
    pub fn on_device(
        &self,
        inputs: &Inputs,
        case: &Case,
        on_error: OnDeviceError,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = Arc::new(inputs.planned(case)?);
        let config = config(case, on_error);
        Ok(Arc::new(HortonJoinExec::new(planned, config)))
    }

    /// Runs the join over scans that are told the build side's keys.
    fn check_filtered(
        &self,
        (case, inputs): (&Case, &Inputs),
        limited: &Limited,
        (expected, converter): (&Output, &RowConverter),
    ) -> Checked<Filtered> {
        // A limit's rows may be others.
        let Some(scan) = case.scan.filter(|_| case.fetch.is_none()) else {
            return Ok(Filtered::No);
        };
        let folder = tempfile::tempdir().map_err(DataFusionError::from)?;
        let stock = match scan {
            Scan::Memory => Some(inputs.planned(case)?),
            Scan::Parquet => inputs.over_files(case, folder.path()),
        };
        let Some(stock) = stock else {
            return Ok(Filtered::No);
        };
        let config = config(case, OnDeviceError::Error);
        let join = HortonJoinExec::new(Arc::new(stock), config.clone());
        let plan = handed_out(Arc::new(join), &config)?;
        let found = match self.run_limited(limited, &plan, case) {
            Err(error) if is_exhausted(case, &error) => {
                return Ok(Filtered::Exhausted(error.to_string()));
            }
            found => Output::new(converter, found?)?,
        };
        check_rows(Order::Multiset, expected, &found)?;
        Ok(Filtered::Same)
    }

    /// Whether the join counted what it did. Returns the kernels launched.
    fn check_metrics(
        &self,
        case: &Case,
        (inputs, joins): (&Inputs, &Joins),
        places: &Places,
        found: &Output,
    ) -> Checked<usize> {
        let metrics = joins.device.metrics().unwrap_or_default();
        let rows = metric(&metrics, "output_rows");
        if rows != found.count() {
            return differ("output_rows", format!("{rows} for {} rows", found.count()));
        }
        if places.has_spilled() {
            return check_spilled(case, inputs, places, &metrics);
        }
        // The stock join that builds the same side.
        let stock = match places.swapped() {
            false => Arc::clone(&joins.stock),
            true => {
                let swapped = inputs.swapped(case)?;
                self.run(&swapped, case)?;
                swapped
            }
        };
        let expected = stock.metrics().unwrap_or_default();
        let is_open = matches!(case.mode, Mode::Open { .. });
        let mut same = vec!["build_input_rows"];
        // A join of repartitioned inputs reads no probe rows where it has no build rows.
        if !is_open || !case.host_splits || places.all_on_device() {
            same.push("input_rows");
        }
        // Batches without rows are let go before the host, or the side that is probed, has them.
        if places.all_on_device() {
            same.push("build_input_batches");
            same.extend((!is_open).then_some("input_batches"));
        }
        for name in same.into_iter().filter(|_| case.fetch.is_none()) {
            let (expected, found) = (metric(&expected, name), metric(&metrics, name));
            if expected != found {
                return differ("metrics", format!("{name} is {found}, not {expected}"));
            }
        }
        let launches = metric(&metrics, "kernel_launches");
        let matchable = match places.swapped() {
            true => matchable(case, &inputs.probe) > 0,
            false => matchable(case, &inputs.build) > 0,
        };
        let tried = |why: &Declined| matches!(why, Declined::DoesNotFit | Declined::NoMemory);
        let tried = places.on_host().any(tried);
        if places.all_on_device() && (launches > 0) != matchable
            || places.all_on_host() && launches > 0 && !tried
        {
            let how = format!("{launches}, although build rows that can match: {matchable}");
            return differ("kernel launches", how);
        }
        Ok(launches)
    }

    fn check_nested_loop(
        &self,
        case: &Case,
        inputs: &Inputs,
        stock: &Output,
        converter: &RowConverter,
    ) -> Checked<bool> {
        let pairs = inputs.build.rows.num_rows() * inputs.probe.rows.num_rows();
        if pairs > NESTED_LOOP_PAIRS || case.null_aware || case.fetch.is_some() {
            return Ok(false);
        }
        // It compares floats by their bits, and types must be the same.
        let comparable = case.on.iter().all(|key| {
            let (build, probe) = (
                case.build.columns[key.build].kind,
                case.probe.columns[key.probe].kind,
            );
            build == probe && !build.is_float()
        });
        let Some(plan) = inputs.nested_loop(case).ok().filter(|_| comparable) else {
            return Ok(false);
        };
        let plan: Arc<dyn ExecutionPlan> = Arc::new(plan);
        // Types that it cannot compare.
        let Ok(mut batches) = self.run(&plan, case) else {
            return Ok(false);
        };
        if let Some(columns) = inputs.projection(case) {
            for batch in batches.iter_mut().flatten() {
                *batch = batch.project(&columns).map_err(DataFusionError::from)?;
            }
        }
        let nested = Output::new(converter, batches)?;
        if stock.multiset() != nested.multiset() || stock.count() != nested.count() {
            return differ("nested loop join", Shown(&nested, stock));
        }
        Ok(true)
    }
}

/// Whether a join whose memory is limited has too little of it.
pub fn is_exhausted(case: &Case, error: &DataFusionError) -> bool {
    let limited = case.pool_limit > 0 || case.table.device_limit > 0;
    limited && matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Time after which what a run has not given back stays.
const LEFT_LATE: Duration = Duration::from_secs(20);

/// Tasks of the runtime may give memory back a moment later.
fn check_released(pool: &Arc<dyn MemoryPool>) -> Checked<()> {
    let start = Instant::now();
    while pool.reserved() > 0 {
        if start.elapsed() > LEFT_LATE {
            return differ("memory left", pool.reserved());
        }
        std::thread::yield_now();
    }
    Ok(())
}

struct Shown<'a>(&'a Output, &'a Output);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(expected, found) = self;
        writeln!(
            f,
            "rows {:?}, found {:?}",
            expected.counts(),
            found.counts()
        )?;
        writeln!(
            f,
            "expected\n{}found\n{}",
            expected.text(20),
            found.text(20)
        )
    }
}

fn check_rows(order: Order, expected: &Output, found: &Output) -> Checked<()> {
    match order {
        Order::Sequences => {
            let pairs = expected.rows.iter().zip(&found.rows);
            let same = |(a, b): (&Rows, &Rows)| a.iter().eq(b.iter());
            if expected.counts() == found.counts() && pairs.into_iter().all(same) {
                return Ok(());
            }
            let what = match expected.multiset() == found.multiset() {
                true => "order of rows",
                false => "rows",
            };
            differ(what, Shown(expected, found))
        }
        Order::Partitions => {
            let of_each = |output: &Output| -> Vec<_> {
                let rows = output.rows.iter();
                let sorted = rows.map(|rows| {
                    let mut rows: Vec<_> = rows.iter().map(|row| row.data().to_vec()).collect();
                    rows.sort_unstable();
                    rows
                });
                sorted.collect()
            };
            let same = expected.counts() == found.counts() && of_each(expected) == of_each(found);
            let what = match expected.multiset() == found.multiset() {
                true => "rows of partitions",
                false => "rows",
            };
            match same {
                true => Ok(()),
                false => differ(what, Shown(expected, found)),
            }
        }
        Order::Multiset => {
            let same = expected.count() == found.count() && expected.multiset() == found.multiset();
            match same {
                true => Ok(()),
                false => differ("rows", Shown(expected, found)),
            }
        }
    }
}

/// As many rows as `expected`, each of them one of `all`.
fn check_limited(fetch: usize, all: &Output, expected: &Output, found: &Output) -> Checked<()> {
    // A partition at its limit may keep the last one from emitting build rows; then the limit
    // is reached for all of them together.
    let enough = |output: &Output| output.count().min(fetch);
    let over = found.counts().iter().any(|rows| *rows > fetch);
    if over || enough(expected) != enough(found) {
        return differ("limited rows", Shown(expected, found));
    }
    let mut left = all.multiset();
    for (row, times) in found.multiset() {
        let left = left.entry(row).or_default();
        *left -= times;
        if *left < 0 {
            return differ("a limited row", Shown(all, found));
        }
    }
    Ok(())
}

fn check_plan(case: &Case, joins: &Joins, found: &Output) -> Checked<()> {
    let Joins { stock, device, .. } = joins;
    let declared = |plan: &Arc<dyn ExecutionPlan>, promised: String| {
        let emission = plan.properties().emission_type;
        format!("{:?} {promised} {emission:?}", plan.schema())
    };
    let promised = |plan: &Arc<dyn ExecutionPlan>| {
        let properties = plan.properties();
        format!(
            "{:?} {:?} {:?}",
            properties.output_partitioning(),
            properties.output_ordering(),
            plan.maintains_input_order(),
        )
    };
    let theirs = match case.mode {
        // Either side may be probed: as many partitions as that one has, in no order.
        Mode::Open { build } => {
            let partitions = Partitioning::UnknownPartitioning(build.max(case.partitions));
            format!("{partitions:?} {:?} {:?}", None::<()>, [false, false])
        }
        _ => promised(stock),
    };
    let (theirs, ours) = (declared(stock, theirs), declared(device, promised(device)));
    if theirs != ours {
        return differ("properties", format!("{theirs}\n{ours}"));
    }
    let batches = found.batches.iter().flatten();
    if batches
        .into_iter()
        .any(|batch| batch.schema() != device.schema())
    {
        return differ("schema", device.schema());
    }
    Ok(())
}

fn check_batches(case: &Case, found: &Output) -> Checked<()> {
    let batches = found.batches.iter().flatten();
    let sizes: Vec<usize> = batches.map(RecordBatch::num_rows).collect();
    let limit = case.batch_size;
    match sizes.iter().all(|rows| (1..=limit).contains(rows)) {
        true => Ok(()),
        false => differ("batch size", format!("{sizes:?} over {limit}")),
    }
}

/// Whether each build was decided on as the case says.
fn check_places(case: &Case, joins: &Joins, places: &Places) -> Checked<()> {
    for decision in &places.decisions {
        let few = case.min_build_rows.is_some_and(|rows| decision.rows < rows);
        let as_said = match &decision.place {
            Place::Host(Declined::KeyType(_)) => !joins.supported,
            Place::Host(Declined::FewRows { min_build_rows }) => {
                few && case.min_build_rows == Some(*min_build_rows)
            }
            Place::Host(Declined::DoesNotFit) => {
                let is_limited = case.table.device_limit > 0 || case.min_build_rows.is_some();
                !few && (is_limited || decision.rows > case.table.max_rows)
            }
            Place::Host(Declined::NoMemory) => !few && case.pool_limit > 0,
            Place::Host(_) => false,
            Place::Device(_) => joins.supported && !few,
        };
        // Of a bucket both sides are known, so that the plan's choice does not matter.
        let open = matches!(case.mode, Mode::Open { .. }) && case.fetch.is_none();
        let open = open || decision.bucket.is_some();
        if !as_said || decision.build == Side::Right && !open {
            return differ("decision", format!("{decision:?}"));
        }
    }
    let builds = match case.mode {
        Mode::Split | Mode::Repartitioned => case.partitions,
        Mode::Collected | Mode::Kept | Mode::Open { .. } => 1,
    };
    let decisions = &places.decisions;
    let whole = decisions
        .iter()
        .filter(|decision| decision.bucket.is_none());
    let whole = whole.count();
    let in_buckets = decisions.len() > whole;
    // A build in buckets without rows has no decision.
    match whole == builds && !in_buckets || whole < builds && places.has_spilled() {
        true => Ok(()),
        false => differ(
            "decisions",
            format!(
                "{decisions:?} of {builds} builds, {} spilled",
                places.spilled
            ),
        ),
    }
}

/// Whether a join counted what went to disk. Returns the kernels launched.
fn check_spilled(
    case: &Case,
    inputs: &Inputs,
    places: &Places,
    metrics: &MetricsSet,
) -> Checked<usize> {
    let [files, rows, bytes] =
        ["spill_count", "spilled_rows", "spilled_bytes"].map(|name| metric(metrics, name));
    // Rows of no file are rows that nothing comes of.
    let wanted = |input: &Input| match case.null_equality {
        NullEquality::NullEqualsNull => input.rows.num_rows(),
        NullEquality::NullEqualsNothing => matchable(case, input),
    };
    let wanted = wanted(&inputs.build) + wanted(&inputs.probe);
    // A limit of no rows reads none.
    let on_disk = |decision: &Decision| decision.bucket == Some(Home::Disk);
    let all = places.decisions.iter().all(on_disk) && !case.is_small_device();
    let all = all && case.fetch != Some(0);
    let counted = (files > 0) == (rows > 0) && (files > 0) == (bytes > 0) && files <= rows;
    // Where only the device is small, buckets stay in memory.
    let is_expected = case.pool_limit > 0 || case.is_small_device() && files == 0;
    if !is_expected || !counted || all && rows < wanted {
        let how = format!("{rows} rows and {bytes} bytes in {files} files, of {wanted} rows");
        return differ("spilled", how);
    }
    let launches = metric(metrics, "kernel_launches");
    if places.decisions.is_empty() && launches > 0 {
        return differ("kernel launches", format!("{launches} for no bucket"));
    }
    Ok(launches)
}

fn metric(metrics: &MetricsSet, name: &str) -> usize {
    let sum = metrics.sum(|metric| metric.value().name() == name);
    sum.map_or(0, |value| value.as_usize())
}

/// Rows of a side that can match.
fn matchable(case: &Case, build: &Input) -> usize {
    let Ok(keys) = build.keys() else {
        return 0;
    };
    let rows = build.rows.num_rows();
    if case.null_equality == NullEquality::NullEqualsNull {
        return rows;
    }
    let nulls: Vec<_> = keys.iter().map(Array::logical_nulls).collect();
    let nulls = NullBuffer::union_many(nulls.iter().map(Option::as_ref));
    rows - nulls.map_or(0, |nulls| nulls.null_count())
}
