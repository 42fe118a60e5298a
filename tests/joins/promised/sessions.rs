//! Sessions whose joins run on the host or on the device, and tables in them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::datasource::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext, col};
use futures::TryStreamExt;
use futures::future::try_join_all;
use horton_join::config::{Enabled, HortonConfig, Knobs};
use horton_test_support::env::asked;
use horton_test_support::plans::{keep_sides, launches};
use horton_test_support::turns::side_by_side;

/// The place where joins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    Host,
    Device,
}

impl At {
    pub const BOTH: [At; 2] = [At::Host, At::Device];

    /// Options that have joins run there, and reads of 1000 rows.
    pub fn options(self) -> HortonConfig {
        let (enabled, min_build_rows) = match self {
            At::Host => (Enabled::Auto, usize::MAX),
            At::Device => (Enabled::Always, 0),
        };
        HortonConfig {
            enabled,
            min_build_rows,
            device: asked(),
            knobs: Knobs {
                sample_rows: 1000,
                ..Knobs::default()
            },
            ..HortonConfig::default()
        }
    }

    /// Checks that the joins of an executed plan launched kernels if they should.
    pub fn assert_launched(self, plan: &Arc<dyn ExecutionPlan>) {
        assert_eq!(
            launches(plan) > 0,
            self == At::Device,
            "launches at {self:?}"
        );
    }
}

/// Four partitions, batches of 500 rows, and scans' partitions as they are.
pub fn config() -> SessionConfig {
    SessionConfig::new()
        .with_target_partitions(4)
        .with_round_robin_repartition(false)
        .with_batch_size(500)
}

/// A session of this crate with these options.
pub fn session(options: HortonConfig) -> SessionContext {
    side_by_side();
    horton_join::context(config().with_option_extension(options))
}

/// The same as [`config`], where DataFusion repartitions both sides of all joins.
pub fn repartitioning() -> SessionConfig {
    let threshold = "datafusion.optimizer.hash_join_single_partition_threshold";
    config()
        .set_usize(threshold, 0)
        .set_usize(&format!("{threshold}_rows"), 0)
}

/// A session of this crate where both sides of each join stay in partitions, as they are planned.
pub fn partitioned(options: HortonConfig) -> SessionContext {
    side_by_side();
    let builder = SessionStateBuilder::new()
        .with_config(repartitioning().with_option_extension(options))
        .with_default_features();
    let builder = keep_sides(horton_join::install(builder));
    SessionContext::new_with_state(builder.build())
}

/// The same with so much memory.
pub fn with_memory(options: HortonConfig, bytes: usize) -> SessionContext {
    side_by_side();
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
    let builder = SessionStateBuilder::new()
        .with_config(config().with_option_extension(options))
        .with_runtime_env(runtime.build_arc().unwrap())
        .with_default_features();
    SessionContext::new_with_state(horton_join::install(builder).build())
}

/// A session of DataFusion.
pub fn stock() -> SessionContext {
    SessionContext::new_with_config(config())
}

/// Registers `name` in four partitions: columns of 64-bit integers, in batches of 500 rows.
pub fn table(session: &SessionContext, name: &str, columns: &[(&str, Vec<i64>)]) {
    let table = Arc::new(in_partitions(columns));
    session.register_table(name, table).unwrap();
}

/// Registers the same, which says that each partition is in the order of its first column.
pub fn ordered_table(session: &SessionContext, name: &str, columns: &[(&str, Vec<i64>)]) {
    let order = vec![vec![col(columns[0].0).sort(true, false)]];
    let table = Arc::new(in_partitions(columns).with_sort_order(order));
    session.register_table(name, table).unwrap();
}

/// Registers the same with all rows in the last of four partitions.
pub fn skewed_table(session: &SessionContext, name: &str, columns: &[(&str, Vec<i64>)]) {
    let (schema, partitions) = batches(columns);
    let skewed = vec![vec![], vec![], vec![], partitions.concat()];
    let table = MemTable::try_new(schema, skewed).unwrap();
    session.register_table(name, Arc::new(table)).unwrap();
}

fn in_partitions(columns: &[(&str, Vec<i64>)]) -> MemTable {
    let (schema, partitions) = batches(columns);
    MemTable::try_new(schema, partitions).unwrap()
}

/// Returns columns of 64-bit integers as batches of 500 rows, by turns in four partitions.
fn batches(columns: &[(&str, Vec<i64>)]) -> (SchemaRef, Vec<Vec<RecordBatch>>) {
    let fields = columns
        .iter()
        .map(|(name, _)| Field::new(*name, DataType::Int64, true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let mut partitions = vec![Vec::new(); 4];
    for (at, from) in (0..columns[0].1.len()).step_by(500).enumerate() {
        let part = |values: &[i64]| -> ArrayRef {
            let to = values.len().min(from + 500);
            Arc::new(Int64Array::from(values[from..to].to_vec()))
        };
        let arrays = columns.iter().map(|(_, values)| part(values));
        let batch = RecordBatch::try_new(Arc::clone(&schema), arrays.collect());
        partitions[at % 4].push(batch.unwrap());
    }
    (schema, partitions)
}

/// Runs statements whose rows nobody wants.
pub async fn run_all(session: &SessionContext, statements: &[&str]) {
    for statement in statements {
        session
            .sql(statement)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
    }
}

pub async fn plan(session: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    let frame = session.sql(sql).await.unwrap();
    frame.create_physical_plan().await.unwrap()
}

/// The plan of a query, and its rows.
pub async fn query(
    session: &SessionContext,
    sql: &str,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<RecordBatch>)> {
    let plan = session.sql(sql).await?.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await?;
    Ok((plan, batches))
}

/// The values of the first column, which is of 64-bit integers.
pub fn first_column(batches: &[RecordBatch]) -> Vec<i64> {
    let column = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    batches.iter().flat_map(column).collect()
}

/// Reads all streams side by side.
pub async fn read(streams: Vec<SendableRecordBatchStream>) -> Result<Vec<RecordBatch>> {
    let tasks = streams
        .into_iter()
        .map(|stream| async { tokio::spawn(stream.try_collect::<Vec<_>>()).await.unwrap() });
    Ok(try_join_all(tasks).await?.concat())
}
