//! The engine that runs a record: DataFusion with our rules on.
//!
//! The parts of DataFusion's own engine in the order that it uses them; in between, the
//! executed plan is searched for joins that launched kernels. Its session is rebuilt with
//! [`horton_join::install`], around the same catalogs and functions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use datafusion_sqllogictest::{
    DFColumnType, DFOutput, DFSqlLogicTestError, convert_batches, convert_schema_to_types,
    is_spark_path,
};
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, Filters, HortonConfig};
use sqllogictest::{AsyncDB, DBOutput};

use super::Pass;
use super::plans::{Names, is_explain, is_tree_with_our_node};

/// The session `stock` with every join on the device `asked`.
pub fn session(stock: &SessionContext, pass: Pass, asked: &str) -> SessionContext {
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
            keep_partitions: pass == Pass::Partitioned,
            // Nodes above scans would show in plans.
            filters: match pass {
                Pass::Partitioned => Filters::Off,
                Pass::Open => Filters::Auto,
            },
            ..HortonConfig::default()
        });
    }
    let session = SessionContext::new_with_state(horton_join::install(builder).build());
    restore(&session, stock, default_catalog);
    session
}

/// What rebuilding the session `stock` lost.
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

/// What the connections of a file saw.
#[derive(Debug, Default)]
pub struct Tally {
    joins: AtomicUsize,
    tree: AtomicBool,
}

impl Tally {
    /// Joins that launched kernels.
    pub fn joins(&self) -> usize {
        self.joins.load(Ordering::Relaxed)
    }

    /// Whether the last statement's result was a plan drawn as a tree with our node in it.
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
        let frame = self.session.sql(sql).await?;
        let context = Arc::new(frame.task_ctx());
        let plan = frame.create_physical_plan().await?;
        let stream = execute_stream(Arc::clone(&plan), context)?;
        let types = convert_schema_to_types(stream.schema().fields());
        let batches = collect(stream).await?;
        let joins = joins_on_device(&plan);
        self.tally.joins.fetch_add(joins, Ordering::Relaxed);
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

/// The joins of an executed plan that launched kernels.
fn joins_on_device(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let launched = plan
        .downcast_ref::<HortonJoinExec>()
        .and_then(|join| join.metrics()?.sum_by_name("kernel_launches"))
        .is_some_and(|launches| launches.as_usize() > 0);
    let below: usize = plan.children().into_iter().map(joins_on_device).sum();
    usize::from(launched) + below
}
