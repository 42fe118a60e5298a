//! Runs a case by both joins; [`checks`](super::checks) says what must be equal.
//!
//! ```text
//!  case ─▶ inputs, joins ─▶ stock, device: run ─▶ checks
//!            device again, dropped midway before, over scans with filters, with calls that fail
//!            nested loop join, of few pairs of rows
//! ```

use std::sync::Arc;
use std::task::Poll;

use arrow::array::RecordBatch;
use arrow::row::RowConverter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, UnboundedMemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect_partitioned};
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_join::HostReason;
use horton_join::config::{HortonConfig, OnDeviceError};
use horton_join::device::Device;
use horton_test_support::handed_out::handed_out;
use horton_test_support::internals::{Readiness, finished, supported};
use horton_test_support::promises::Promises;
use tokio::runtime::Handle;

use super::super::consumer::{self, Allows};
use super::super::difference::{Checked, differ};
use super::super::limited::{Limited, check_released};
use super::case::{Case, Mode, Scan};
use super::checks::{
    Found, Joins, Places, check_places, check_plan, check_rows, check_spilled, matchable, metric,
};
use super::fault::Sites;
use super::kept;
use super::neighbour::Neighbour;
use super::output::{Declared, Order, Output, Shown, converter};
use super::plan::{Inputs, config};

/// Pairs of rows up to which the nested loop join is asked too.
const NESTED_LOOP_PAIRS: usize = 400;

/// A device, and what else one worker runs cases with.
pub struct Worker {
    handle: Handle,
    pub device: Device,
    runtime: Arc<RuntimeEnv>,
    pool: Arc<dyn MemoryPool>,
    config: SessionConfig,
}

/// The record of a clean case.
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
    /// Scans got the build side's keys.
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
    /// A consumer misbehaved in another run.
    pub misread: bool,
    /// Promises of the node that were held against its rows, those that DataFusion's own join
    /// breaks as well.
    pub promises: usize,
    pub inherited: usize,
}

/// The end of a run over scans that keep filters.
#[derive(Debug, PartialEq, Eq)]
enum Filtered {
    /// It was not run.
    No,
    /// It ended with the same rows.
    Same,
    /// It ended with the error of too little memory, which was limited.
    Exhausted(String),
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
    pub fn run(&self, plan: &Arc<dyn ExecutionPlan>, case: &Case) -> Result<Vec<Vec<RecordBatch>>> {
        self.run_in(&self.runtime, plan, case)
    }

    /// The runtime of the case's memory pool.
    pub fn limited(&self, case: &Case) -> Result<Limited> {
        match case.pool_limit {
            0 => Ok(Limited::shared(Arc::clone(&self.runtime))),
            bytes => Limited::new(Arc::new(GreedyMemoryPool::new(bytes))),
        }
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
        let order = Order::new(case, &inputs, joins.probe_ordered);
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
        let promises = self.check_promises(case, &joins.device, &found)?;
        check_places(case, &joins, &places)?;
        let mut report = Report {
            joins: 1,
            launches: self.check_metrics(case, (&inputs, &joins), &places, &found)?,
            swapped: places.swapped(),
            on_host: !places.all_on_device(),
            rows: found.count(),
            in_order: order == Order::Sequences && !places.has_spilled(),
            spilled: places.has_spilled(),
            cancelled: case.cancel_after.is_some(),
            promises: promises.promises,
            inherited: promises.inherited.len(),
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
        report.misread = self.check_consumer_of(case, &inputs, &limited, &converter)?;
        report.nested_loop = self.check_nested_loop(case, &inputs, &expected, &converter)?;
        drop(joins);
        limited.check_left()?;
        report.struck = sites.strike(self, &right)?;
        check_released(&self.pool)?;
        Ok(report)
    }

    /// Holds what the join promises against the rows that it gave out.
    fn check_promises(
        &self,
        case: &Case,
        join: &Arc<dyn ExecutionPlan>,
        found: &Output,
    ) -> Checked<Promises> {
        let mut promises = Promises::default();
        // DataFusion's own join, which may be asked for comparison, does not spill.
        let context = self.context(case, &self.runtime);
        let looked = promises.look_at(join, &found.batches, &context);
        self.handle.block_on(looked)?;
        match promises.broken.first() {
            Some(broken) => differ("promise", broken),
            None => Ok(promises),
        }
    }

    /// Has a consumer that misbehaves read the join, at times one that falls back to the host.
    /// Where the case has scans that keep filters, it gives them its keys.
    fn check_consumer_of(
        &self,
        case: &Case,
        inputs: &Inputs,
        limited: &Limited,
        converter: &RowConverter,
    ) -> Checked<bool> {
        let falls_back = case.consumer.is_some_and(|seed| seed.is_multiple_of(2));
        let on_error = match falls_back {
            true => OnDeviceError::Fallback,
            false => OnDeviceError::Error,
        };
        let plan = self.on_device(inputs, case, on_error)?;
        let plan = match case.scan {
            // A limit's rows may be others.
            Some(_) if case.fetch.is_none() => handed_out(plan, &config(case, on_error))?,
            _ => plan,
        };
        self.check_consumer(case, (inputs, &plan), limited, converter)
    }

    /// Reads `plan`, which is the case's, as a consumer does that misbehaves. Where memory of the
    /// device is limited, there may be a neighbour. Returns whether the case has a consumer.
    pub fn check_consumer(
        &self,
        case: &Case,
        (inputs, plan): (&Inputs, &Arc<dyn ExecutionPlan>),
        limited: &Limited,
        converter: &RowConverter,
    ) -> Checked<bool> {
        let Some(seed) = case.consumer else {
            return Ok(false);
        };
        let all: Arc<dyn ExecutionPlan> = Arc::new(inputs.stock(case, false)?);
        let all = Output::new(converter, self.run(&all, case)?)?;
        let context = || self.context(case, &limited.runtime);
        let limit = case.table.device_limit;
        let has_neighbour = limit > 0 && !seed.is_multiple_of(3);
        let _neighbour = has_neighbour.then(|| Neighbour::on(&self.device, limit, seed));
        let repartitions =
            matches!(case.mode, Mode::Kept | Mode::Repartitioned) || would_repartition(case);
        // A RepartitionExec gives each partition out once, and so does a join in its place.
        let allows = Allows {
            again: !repartitions,
            copies: true,
            unread: !repartitions,
        };
        let kept = consumer::read(plan, allows, context, seed);
        kept::check(&self.handle.block_on(kept)?, case, converter, &all)?;
        Ok(true)
    }

    /// Waits until the device is ready for the case's tables: under `auto` joins do not.
    fn get_ready(&self, case: &Case) -> Checked<()> {
        let config = config(case, OnDeviceError::Error);
        let readiness = self.handle.block_on(async move { finished(&config).await });
        match readiness {
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
        let config = config(case, on_error);
        Ok(Arc::new(node(inputs.planned(case)?, case, config)?))
    }

    /// Runs the join over scans that get the build side's keys.
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
        let join = node(stock, case, config.clone())?;
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

    /// Checks that the join counted what it did. Returns the kernels launched.
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
        let tried = |why: &HostReason| matches!(why, HostReason::DoesNotFit | HostReason::NoMemory);
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

/// Returns whether a join whose memory is limited has too little of it.
pub fn is_exhausted(case: &Case, error: &DataFusionError) -> bool {
    let limited = case.pool_limit > 0 || case.table.device_limit > 0;
    limited && matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Returns whether DataFusion would repartition both sides of a join whose sides are open here.
fn would_repartition(case: &Case) -> bool {
    matches!(case.mode, Mode::Open { .. }) && case.host_splits
}

/// Returns the node of the join `planned`. Probe streams share their rows on a device if DataFusion
/// would repartition them.
fn node(planned: HashJoinExec, case: &Case, config: HortonConfig) -> Result<HortonJoinExec> {
    if !would_repartition(case) {
        return Ok(HortonJoinExec::new(Arc::new(planned), config));
    }
    let mode = PartitionMode::Partitioned;
    let planned = planned.builder().with_partition_mode(mode).build()?;
    HortonJoinExec::open(&planned, config)
}
