//! Sessions with tables in memory, and the decisions of the joins of their plans.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::Decision;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, HortonConfig, Knobs};

use super::plans::*;
use horton_test_support::joins::*;
pub use horton_test_support::plans::nodes;

/// The rows of a query, and its executed plan.
pub struct Ran {
    /// Its rows, sorted.
    pub rows: Vec<String>,
    pub plan: Arc<dyn ExecutionPlan>,
}

/// Options that have every join with rows on the device, and reads of `SAMPLE_ROWS` rows.
pub fn horton() -> HortonConfig {
    let config = horton_cold();
    warm_up(&config).unwrap();
    config
}

/// The same options; the device need not be ready.
pub fn horton_cold() -> HortonConfig {
    HortonConfig {
        enabled: Enabled::Auto,
        device: asked(),
        min_build_rows: 1,
        knobs: Knobs {
            sample_rows: SAMPLE_ROWS,
            ..Knobs::default()
        },
        ..HortonConfig::default()
    }
}

/// Three partitions, and joins' inputs as the query has them.
pub fn config() -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(3);
    config.options_mut().optimizer.join_reordering = false;
    config
}

/// A session of this crate and one of DataFusion, with the same tables: `small` has 40 rows, `big`
/// 3000. Their `k` repeats and can be NULL, `v` is the row's number or NULL.
pub struct Sessions {
    pub horton: SessionContext,
    pub stock: SessionContext,
}

impl Sessions {
    pub fn new(config: &SessionConfig, horton: HortonConfig) -> Self {
        let stock = SessionContext::new_with_config(config.clone());
        let horton = horton_join::context(config.clone().with_option_extension(horton));
        for session in [&stock, &horton] {
            table(session, "small", 40, 400);
            table(session, "big", 3000, 400);
        }
        Self { horton, stock }
    }

    /// Runs `text` in both sessions; checks that the rows are equal, and some.
    pub fn same_rows(&self, text: &str) -> Ran {
        let (found, expected) = (query(&self.horton, text), query(&self.stock, text));
        assert_eq!(found.rows, expected.rows, "{text}");
        assert!(!found.rows.is_empty(), "{text}");
        found
    }
}

/// Registers `name`: `rows` rows, keys below `distinct`, in two partitions of small batches.
pub fn table(session: &SessionContext, name: &str, rows: usize, distinct: u32) {
    let keys = repeating_keys(rows as u32, rows, distinct);
    let side = Side::new(vec![("k", ints(&keys)), ("v", payload(rows))]);
    let side = side.in_partitions(2, |row| row).in_batches_of(50);
    let table = MemTable::try_new(side.schema, side.partitions).unwrap();
    session.register_table(name, Arc::new(table)).unwrap();
}

pub fn plan(session: &SessionContext, query: &str) -> Arc<dyn ExecutionPlan> {
    let (session, query) = (session.clone(), query.to_owned());
    block_on(async move {
        let plan = session.sql(&query).await.unwrap();
        plan.create_physical_plan().await.unwrap()
    })
}

pub fn sql(session: &SessionContext, query: &str) -> Result<Vec<RecordBatch>> {
    let (session, query) = (session.clone(), query.to_owned());
    block_on(async move { session.sql(&query).await?.collect().await })
}

/// Runs `plan`; its rows, sorted.
pub fn rows(session: &SessionContext, plan: &Arc<dyn ExecutionPlan>) -> Vec<String> {
    side_by_side();
    let (plan, context) = (Arc::clone(plan), session.task_ctx());
    let batches = block_on(async move { collect(plan, context).await });
    sorted(text(&batches.unwrap()))
}

pub fn query(session: &SessionContext, query: &str) -> Ran {
    let plan = plan(session, query);
    let rows = rows(session, &plan);
    Ran { rows, plan }
}

/// Returns the decisions of the joins of `plan`, from its top to its leaves.
pub fn decisions(plan: &Arc<dyn ExecutionPlan>) -> Vec<Decision> {
    let joins = nodes::<HortonJoinExec>(plan).into_iter();
    let decisions = joins.flat_map(|node| {
        let join = HortonJoinExec::downcast(node.as_ref());
        join.map(HortonJoinExec::decisions).unwrap_or_default()
    });
    decisions.collect()
}

/// The lines of `plan`, as EXPLAIN shows them.
pub fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    let plan = datafusion::physical_plan::displayable(plan.as_ref());
    plan.indent(false).to_string()
}
