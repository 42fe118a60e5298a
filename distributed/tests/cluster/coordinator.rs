//! Sessions of coordinators, and what they answer.
//!
//! ```text
//!  builder(urls) ─▶ their planner + options horton.…       stock() ─▶ DataFusion
//!        └─▶ rows, plan, EXPLAIN ANALYZE                       └─▶ rows
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{
    DistributedExt, SessionStateBuilderExt, WorkerResolver, display_plan_ascii,
};
use horton_join::config::HortonConfig;
use horton_test_support::plans::sorted;
use url::Url;

/// Time that no query of these tests needs, even on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Partitions of a task, and of the stock session.
const PARTITIONS: usize = 3;

/// The addresses of workers, which tests change.
#[derive(Clone)]
pub struct Addresses(pub Arc<Mutex<Vec<Url>>>);

impl Addresses {
    /// These.
    pub fn new(urls: &[Url]) -> Self {
        Self(Arc::new(Mutex::new(urls.to_vec())))
    }
}

impl WorkerResolver for Addresses {
    fn get_urls(&self) -> Result<Vec<Url>, DataFusionError> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Returns a builder with all features.
pub fn plain() -> SessionStateBuilder {
    let config = SessionConfig::new().with_target_partitions(PARTITIONS);
    SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
}

/// Makes a coordinator of a builder: two tasks per stage, however small the tables.
pub fn distribute(builder: SessionStateBuilder, addresses: &Addresses) -> SessionStateBuilder {
    builder
        .with_distributed_planner()
        .with_distributed_worker_resolver(addresses.clone())
        .with_distributed_file_scan_config_bytes_per_partition(1)
        .unwrap()
        .with_distributed_max_tasks_per_stage(2)
        .unwrap()
}

/// Returns a coordinator, as users are told to make it.
pub fn coordinator(addresses: &Addresses) -> SessionContext {
    let builder = distribute(plain(), addresses);
    let builder = builder.with_distributed_option_extension(HortonConfig::default());
    SessionContext::new_with_state(builder.build())
}

/// DataFusion's session.
pub fn stock() -> SessionContext {
    SessionContext::new_with_state(plain().build())
}

/// Runs `sql`, or says why it failed.
pub async fn try_run(session: &SessionContext, sql: &str) -> Result<Vec<RecordBatch>, String> {
    let run = async { session.sql(sql).await?.collect().await };
    let done = tokio::time::timeout(LIMIT, run).await;
    let done = done.unwrap_or_else(|_| panic!("no end after {LIMIT:?}: {sql}"));
    done.map_err(|error| error.to_string())
}

/// Runs `sql`, which must succeed.
pub async fn run(session: &SessionContext, sql: &str) -> Vec<RecordBatch> {
    let done = try_run(session, sql).await;
    done.unwrap_or_else(|error| panic!("{sql}\n{error}"))
}

/// Returns the rows of `sql`, one string each, sorted.
pub async fn rows(session: &SessionContext, sql: &str) -> Vec<String> {
    sorted(&run(session, sql).await)
}

/// Returns why `sql` fails.
pub async fn failure(session: &SessionContext, sql: &str) -> String {
    let done = try_run(session, sql).await.map(|batches| sorted(&batches));
    done.expect_err(sql)
}

/// Returns the plan of `sql` with its stages.
pub async fn plan(session: &SessionContext, sql: &str) -> String {
    let frame = session.sql(sql).await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    match plan.name() {
        "DistributedExec" => display_plan_ascii(plan.as_ref(), false),
        _ => displayable(plan.as_ref()).indent(false).to_string(),
    }
}

/// Returns the plan of `sql` after it ran, with metrics.
pub async fn analyzed(session: &SessionContext, sql: &str) -> String {
    let batches = run(session, &format!("EXPLAIN ANALYZE {sql}")).await;
    sorted(&batches).join("\n")
}

/// Returns the values of metric `name` in an analyzed plan, from its top. `1.20 K` counts as 1.
pub fn metric(analyzed: &str, name: &str) -> Vec<u64> {
    let marked = format!("{name}=");
    let found = analyzed.match_indices(&marked);
    let values = found.map(|(at, _)| {
        let rest = &analyzed[at + marked.len()..];
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next();
        digits.unwrap_or_default().parse().unwrap_or(0)
    });
    values.collect()
}

/// Kernels that the joins of an analyzed plan launched.
pub fn launches(analyzed: &str) -> u64 {
    metric(analyzed, "kernel_launches").iter().sum()
}

/// Returns whether a plan has a stage of several tasks.
pub fn is_distributed(plan: &str) -> bool {
    plan.contains("DistributedExec") && plan.contains("input_tasks=2")
}
