//! The engine that runs a record: DataFusion with our rules on.
//!
//! The parts of DataFusion's own engine in the order that it uses them; in between, the executed
//! plan is searched for joins that launched kernels or went to disk. Its session is rebuilt with
//! [`horton_join::install`], around the same catalogs and functions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryLimit};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{FunctionRegistry, SessionStateBuilder, TaskContext};
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion_sqllogictest::{
    DFColumnType, DFOutput, DFSqlLogicTestError, convert_batches, convert_schema_to_types,
    is_spark_path,
};
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, Filters, HortonConfig};
use horton_test_support::plans::keep_sides;
use horton_test_support::promises::{self, Promises};
use sqllogictest::{AsyncDB, DBOutput};

use super::Pass;
use super::plans::{Names, is_explain, is_tree_with_our_node};

/// Bytes of the limited pass's memory pool.
const POOL_BYTES: usize = 4 << 20;

/// Tries in which the stock session may show that it is refused what ours was.
const TRIES: usize = 3;

/// The session `stock` with every join on the device `asked`.
///
/// # Errors
/// If DataFusion cannot make a runtime with the pass's memory pool.
pub fn session(stock: &SessionContext, pass: Pass, asked: &str) -> Result<SessionContext> {
    let state = stock.state();
    let default_catalog = state
        .config_options()
        .catalog
        .create_default_catalog_and_schema;
    let mut builder = SessionStateBuilder::new_from_existing(state);
    if let Some(config) = builder.config() {
        config.options_mut().extensions.insert(HortonConfig {
            enabled: Enabled::Always,
            device: asked.to_owned(),
            // Nodes above scans would show in plans.
            filters: match pass {
                Pass::Partitioned => Filters::Off,
                Pass::Open | Pass::Limited => Filters::Auto,
            },
            ..HortonConfig::default()
        });
        if pass == Pass::Limited {
            // By default a sort asks for 10 MB before its first row.
            config.options_mut().execution.sort_spill_reservation_bytes = POOL_BYTES / 64;
        }
    }
    if pass == Pass::Limited {
        let runtime = with_pool(&stock.runtime_env(), POOL_BYTES)?;
        builder = builder.with_runtime_env(runtime);
    }
    let mut builder = horton_join::install(builder);
    if pass == Pass::Partitioned {
        builder = keep_sides(builder);
    }
    let session = SessionContext::new_with_state(builder.build());
    restore(&session, stock, default_catalog);
    Ok(session)
}

/// The session `session` with stock joins, and as much memory.
fn stock(session: &SessionContext) -> Result<SessionContext> {
    let mut state = session.state();
    let extensions = &mut state.config_mut().options_mut().extensions;
    if let Some(config) = extensions.get_mut::<HortonConfig>() {
        config.enabled = Enabled::Never;
    }
    let runtime = match state.runtime_env().memory_pool.memory_limit() {
        // What the session's own pool still counts is none of the stock join's.
        MemoryLimit::Finite(bytes) => with_pool(state.runtime_env(), bytes)?,
        _ => Arc::clone(state.runtime_env()),
    };
    let builder = SessionStateBuilder::new_from_existing(state).with_runtime_env(runtime);
    Ok(SessionContext::new_with_state(builder.build()))
}

/// `runtime` with a pool of so many bytes.
fn with_pool(runtime: &RuntimeEnv, bytes: usize) -> Result<Arc<RuntimeEnv>> {
    let builder = RuntimeEnvBuilder::from_runtime_env(runtime);
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    builder.with_memory_pool(pool).build_arc()
}

/// Restores what rebuilding the session `stock` lost.
fn restore(session: &SessionContext, stock: &SessionContext, default_catalog: bool) {
    let state = session.state_ref();
    let mut state = state.write();
    // A builder made from a state turns this off, and files ask for the option.
    state
        .config_mut()
        .options_mut()
        .catalog
        .create_default_catalog_and_schema = default_catalog;
    // It also registers functions in any order, so that one whose name is another's alias can
    // lose it (Spark's take some from DataFusion's).
    for (name, function) in stock.state().scalar_functions() {
        if state.scalar_functions().get(name) != Some(function) {
            drop(state.register_udf(Arc::clone(function)));
        }
    }
}

/// The record of a file's connections.
#[derive(Debug, Default)]
pub struct Tally {
    joins: AtomicUsize,
    spilled: AtomicUsize,
    tree: AtomicBool,
    refused: AtomicBool,
    promises: Mutex<Promises>,
}

impl Tally {
    /// Joins that launched kernels.
    pub fn joins(&self) -> usize {
        self.joins.load(Ordering::Relaxed)
    }

    /// Joins that went to disk.
    pub fn spilled(&self) -> usize {
        self.spilled.load(Ordering::Relaxed)
    }

    /// Returns what was found of the promises of all plans.
    pub fn promises(&self) -> Promises {
        std::mem::take(&mut *self.promises.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add_promises(&self, found: Promises) {
        let mut promises = self.promises.lock().unwrap_or_else(PoisonError::into_inner);
        promises.add(found);
    }

    /// Returns whether the last statement found too little memory for an operator of DataFusion, in
    /// the stock session as in ours.
    pub fn last_was_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Returns whether the last statement's result was a plan drawn as a tree with our node in it.
    pub fn last_was_tree(&self) -> bool {
        self.tree.load(Ordering::Relaxed)
    }
}

/// A connection.
pub struct Database {
    session: SessionContext,
    file: PathBuf,
    names: Names,
    tally: Arc<Tally>,
}

impl Database {
    /// A connection for the records of `file`.
    pub fn new(session: SessionContext, file: PathBuf, names: Names, tally: Arc<Tally>) -> Self {
        Self {
            session,
            file,
            names,
            tally,
        }
    }

    /// Returns whether the stock session with as much memory is refused, too, in one of a few
    /// tries. Which operator is refused depends on which one asks first.
    async fn refuses_stock(&self, sql: &str) -> Result<bool> {
        let stock = stock(&self.session)?;
        for _ in 0..TRIES {
            match execute(&stock, sql).await {
                Err(error) if is_exhausted(&error) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Rows as the file expects them.
    fn expected_text(&self, sql: &str, rows: &mut [Vec<String>]) {
        let explain = is_explain(sql);
        let tree = explain && is_tree_with_our_node(rows);
        self.tally.tree.store(tree, Ordering::Relaxed);
        for cell in rows.iter_mut().flatten() {
            self.names.expected_paths(cell);
            if explain {
                Names::stock_line(cell);
            }
        }
    }
}

#[async_trait]
impl AsyncDB for Database {
    type Error = DFSqlLogicTestError;
    type ColumnType = DFColumnType;

    async fn run(&mut self, sql: &str) -> Result<DFOutput, Self::Error> {
        self.tally.tree.store(false, Ordering::Relaxed);
        self.tally.refused.store(false, Ordering::Relaxed);
        let (plan, batches, context) = match execute(&self.session, sql).await {
            Ok(done) => done,
            Err(error) => {
                let refused = is_refused(&error) && self.refuses_stock(sql).await?;
                self.tally.refused.store(refused, Ordering::Relaxed);
                return Err(error.into());
            }
        };
        let types = convert_schema_to_types(plan.schema().fields());
        let (joins, spilled) = (
            joins_with(&plan, "kernel_launches"),
            joins_with(&plan, "spill_count"),
        );
        self.tally.joins.fetch_add(joins, Ordering::Relaxed);
        self.tally.spilled.fetch_add(spilled, Ordering::Relaxed);
        self.tally
            .add_promises(promises::check(&plan, &context).await);
        let mut rows = convert_batches(&plan.schema(), batches, is_spark_path(&self.file))?;
        self.expected_text(sql, &mut rows);
        Ok(match rows.is_empty() && types.is_empty() {
            true => DBOutput::StatementComplete(0),
            false => DBOutput::Rows { types, rows },
        })
    }

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }

    async fn shutdown(&mut self) {}
}

/// Runs a statement: its plan, its rows, and the context that it ran with.
async fn execute(
    session: &SessionContext,
    sql: &str,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<RecordBatch>, Arc<TaskContext>)> {
    let frame = session.sql(sql).await?;
    let context = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let batches = collect(execute_stream(Arc::clone(&plan), Arc::clone(&context))?).await?;
    Ok((plan, batches, context))
}

/// Returns whether the memory pool refused something.
fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

/// Returns whether the memory pool refused an operator that is no hash join.
fn is_refused(error: &DataFusionError) -> bool {
    let text = error.to_string();
    is_exhausted(error) && !text.contains("HortonJoin") && !text.contains("HashJoinInput")
}

/// The joins of an executed plan whose metric `name` is above 0.
fn joins_with(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let has = HortonJoinExec::downcast(plan.as_ref())
        .and_then(|join| join.metrics()?.sum(|metric| metric.value().name() == name))
        .is_some_and(|value| value.as_usize() > 0);
    let below = plan.children().into_iter().map(|c| joins_with(c, name));
    usize::from(has) + below.sum::<usize>()
}
