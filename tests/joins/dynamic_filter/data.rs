//! Tables and sessions that the tests share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{Field, Schema};
use datafusion::common::Result;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext, col};
use horton_join::config::HortonConfig;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::keep_sides;
pub use horton_test_support::plans::{launches, metric, sorted};
use horton_test_support::turns::side_by_side;
use rand_mt::Mt;

/// Rows of a batch in memory.
const BATCH: usize = 500;

/// A test waits no longer than this for a query: a deadlock is a failure, not a hang.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Rows of a table: `rows` of them, keys below `keys`, one in ten NULL.
///
/// `k`: 64-bit integers; `s`: the same as strings; `w`: far apart; `f`: floats with both zeros and
/// NaNs; `t`: times in the order of rows; `v`: the row's number.
pub fn rows(seed: u32, rows: usize, keys: u32) -> RecordBatch {
    let mut random = Mt::new(seed);
    let picked: Vec<Option<i64>> = (0..rows)
        .map(|_| match random.next_u32() % 10 {
            0 => None,
            _ => Some(i64::from(random.next_u32() % keys)),
        })
        .collect();
    let float = |key: i64| match key % 5 {
        0 => -0.0,
        1 => 0.0,
        2 => f64::NAN,
        _ => key as f64 / 4.0,
    };
    let each = |to: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(picked.iter().map(|k| k.map(to))))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("k", each(&|k| k)),
        (
            "s",
            Arc::new(StringArray::from_iter(
                picked
                    .iter()
                    .map(|k| k.map(|k| format!("a longer key {k}"))),
            )),
        ),
        ("w", each(&|k| k.wrapping_mul(0x1234_5678_9abc_def1))),
        (
            "f",
            Arc::new(Float64Array::from_iter(picked.iter().map(|k| k.map(float)))),
        ),
        (
            "t",
            Arc::new(TimestampMicrosecondArray::from_iter_values(
                (0..rows as i64).map(|row| row / 3),
            )),
        ),
        ("v", Arc::new(Int32Array::from_iter_values(0..rows as i32))),
    ];
    let fields: Vec<Field> = columns
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
        .collect();
    let columns = columns.into_iter().map(|(_, column)| column).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// Registers `batch` as table `name`, in two partitions of small batches.
pub fn in_memory(session: &SessionContext, name: &str, batch: &RecordBatch) {
    let rows = batch.num_rows();
    let batches: Vec<RecordBatch> = (0..rows)
        .step_by(BATCH)
        .map(|at| batch.slice(at, BATCH.min(rows - at)))
        .collect();
    let (first, second) = batches.split_at(batches.len() / 2);
    let parts = vec![first.to_vec(), second.to_vec()];
    let table = MemTable::try_new(batch.schema(), parts).unwrap();
    session.register_table(name, Arc::new(table)).unwrap();
}

/// Writes `batch` as `folder/name.parquet` in small row groups.
pub async fn write(folder: &Path, name: &str, batch: &RecordBatch) {
    let config = SessionConfig::new()
        .set_usize("datafusion.execution.parquet.max_row_group_size", 1000)
        .set_usize(
            "datafusion.execution.parquet.data_page_row_count_limit",
            300,
        );
    let session = SessionContext::new_with_config(config);
    let file = folder.join(format!("{name}.parquet"));
    let frame = session.read_batch(batch.clone()).unwrap();
    let options = DataFrameWriteOptions::new();
    frame
        .write_parquet(file.to_str().unwrap(), options, None)
        .await
        .unwrap();
}

/// The place where tables are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    Memory,
    Parquet,
}

pub const PLACES: [Place; 2] = [Place::Memory, Place::Parquet];

/// `tables`, in `place`, known to a session of each kind.
pub struct Tables {
    pub tables: Vec<(&'static str, RecordBatch)>,
    folder: tempfile::TempDir,
}

impl Tables {
    /// `big` has 20 times the rows of `small` and `other`, and ten times the keys.
    pub async fn new() -> Self {
        side_by_side();
        let tables = vec![
            ("small", rows(1, 300, 200)),
            ("other", rows(2, 400, 300)),
            ("big", rows(3, 6000, 2000)),
            ("wide", rows(4, 5000, 3000)),
        ];
        let folder = tempfile::tempdir().unwrap();
        for (name, batch) in &tables {
            write(folder.path(), name, batch).await;
        }
        Self { tables, folder }
    }

    pub async fn register(&self, session: &SessionContext, place: Place) {
        for (name, batch) in &self.tables {
            match place {
                Place::Memory => in_memory(session, name, batch),
                Place::Parquet => {
                    let file = self.folder.path().join(format!("{name}.parquet"));
                    let options = ParquetReadOptions::default();
                    session
                        .register_parquet(*name, file.to_str().unwrap(), options)
                        .await
                        .unwrap();
                }
            }
        }
    }

    /// `big` as table `sorted`, which says that its files are sorted by `v`.
    pub async fn register_sorted(&self, session: &SessionContext) {
        let file = self.folder.path().join("big.parquet");
        let order = vec![vec![col("v").sort(true, false)]];
        let options = ParquetReadOptions::default().file_sort_order(order);
        session
            .register_parquet("sorted", file.to_str().unwrap(), options)
            .await
            .unwrap();
    }

    pub async fn stock(&self, place: Place) -> SessionContext {
        let session = SessionContext::new_with_config(config());
        self.register(&session, place).await;
        session
    }

    pub async fn horton(&self, place: Place, options: &[(&str, &str)]) -> SessionContext {
        self.horton_of(config(), place, options).await
    }

    pub async fn horton_of(
        &self,
        config: SessionConfig,
        place: Place,
        options: &[(&str, &str)],
    ) -> SessionContext {
        self.set(horton_join::context(config), place, options).await
    }

    /// A session whose joins keep their sides as DataFusion planned them, partitioned or not.
    pub async fn as_planned(&self, place: Place, options: &[(&str, &str)]) -> SessionContext {
        let builder = SessionStateBuilder::new()
            .with_config(config())
            .with_default_features();
        let session =
            SessionContext::new_with_state(keep_sides(horton_join::install(builder)).build());
        self.set(session, place, options).await
    }

    /// `session` with the tables, `options`, and all joins on the device.
    async fn set(
        &self,
        session: SessionContext,
        place: Place,
        options: &[(&str, &str)],
    ) -> SessionContext {
        self.register(&session, place).await;
        let device = horton_test_support::env::asked();
        let first = [("horton.enabled", "always"), ("horton.device", &device)];
        for (key, value) in first.iter().chain(options) {
            let statement = format!("SET {key} = '{value}'");
            session
                .sql(&statement)
                .await
                .unwrap()
                .collect()
                .await
                .unwrap();
        }
        session
    }
}

/// A pool of memory, and a session of `tables` in memory that takes its memory from there. Joins
/// keep their sides as DataFusion planned them if `planned`.
pub async fn pooled(
    tables: &Tables,
    horton: HortonConfig,
    planned: bool,
) -> (Arc<dyn MemoryPool>, SessionContext) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::clone(&pool))
        .build_arc()
        .unwrap();
    let state = SessionStateBuilder::new()
        .with_config(config().with_option_extension(horton))
        .with_runtime_env(runtime)
        .with_default_features();
    let state = match planned {
        true => keep_sides(horton_join::install(state)),
        false => horton_join::install(state),
    };
    let session = SessionContext::new_with_state(state.build());
    tables.register(&session, Place::Memory).await;
    (pool, session)
}

/// Waits until all memory was given back to `pool`; panics with `about` if it is not.
pub async fn given_back(pool: &Arc<dyn MemoryPool>, about: &str) {
    for _ in 0..200 {
        if pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} bytes are not given back: {about}", pool.reserved());
}

pub fn config() -> SessionConfig {
    SessionConfig::new().with_target_partitions(3)
}

/// The rows of a query, and its executed plan.
pub struct Ran {
    /// Its rows, sorted.
    pub rows: Vec<String>,
    pub plan: Arc<dyn ExecutionPlan>,
}

pub async fn plan(session: &SessionContext, query: &str) -> Result<Arc<dyn ExecutionPlan>> {
    session.sql(query).await?.create_physical_plan().await
}

/// Runs `query`.
pub async fn run(session: &SessionContext, query: &str) -> Ran {
    let plan = plan(session, query)
        .await
        .unwrap_or_else(|e| panic!("{query}: {e}"));
    let rows = collect(Arc::clone(&plan), session.task_ctx());
    let batches = tokio::time::timeout(PATIENCE, rows).await;
    let batches = batches.unwrap_or_else(|_| panic!("no end: {query}"));
    let batches = batches.unwrap_or_else(|e| panic!("{query}: {e}"));
    Ran {
        rows: sorted(&batches),
        plan,
    }
}

/// Rows into and out of the scans that keep filters.
pub fn scanned(plan: &Arc<dyn ExecutionPlan>) -> (usize, usize) {
    let of = |name| metric::<DynamicFilterExec>(plan, name);
    (of("input_rows"), of("output_rows"))
}
