//! Joins to be run beside the stock join: cases, their data, and running them.

use std::cell::Cell;
use std::future::Future;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use arrow::array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    UInt32Array,
};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::{LexOrdering, PhysicalExprRef, PhysicalSortExpr};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder, PartitionMode};
use datafusion::physical_plan::metrics::{MetricValue, MetricsSet};
use datafusion::physical_plan::test::TestMemoryExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionConfig;
use futures::TryStreamExt;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, HortonConfig};
use horton_join::table::multimap::IndexKind;
use rand_mt::Mt;
use tokio::runtime::Runtime;

pub use crate::env::{asked, device};
use crate::handed_out::handed_out;
use crate::patience::Patience;
pub use crate::text::text;
pub use crate::turns::{alone, side_by_side};

/// All join types.
pub const JOIN_TYPES: [JoinType; 10] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::RightSemi,
    JoinType::LeftAnti,
    JoinType::RightAnti,
    JoinType::LeftMark,
    JoinType::RightMark,
];

/// Both null equalities.
pub const NULL_EQUALITIES: [NullEquality; 2] = [
    NullEquality::NullEqualsNothing,
    NullEquality::NullEqualsNull,
];

/// Runs a future on the tests' runtime, in the test's turn; fails instead of hanging.
pub fn block_on<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    side_by_side();
    let (done, wait) = channel();
    RUNTIME.spawn(async move { done.send(future.await) });
    let mut patience = Patience::default();
    while !patience.is_over() {
        match wait.recv_timeout(Duration::from_secs(1)) {
            Ok(value) => return value,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("panicked while running"),
        }
    }
    panic!("still running after {} s", patience.seconds())
}

/// Waits for work that was given up on to end on the device's thread.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// ---------------------------------------------------------------- engines

/// Returns whether the device under test can have such a table.
pub fn can_have(engine: IndexKind) -> bool {
    engine != IndexKind::CacheLine || device().info().has_int64_atomics()
}

/// Makes joins keep their keys in `engine`. No other place names the option.
pub fn set_engine(config: &mut HortonConfig, engine: IndexKind) {
    config.knobs.index = engine;
}

thread_local! {
    /// The engine that cases of this thread's test ask for instead of the default, and how many
    /// tables it got.
    static ENGINE: Cell<(Option<IndexKind>, usize)> = const { Cell::new((None, 0)) };
}

/// Runs `cases` with `engine`, which every [`Case::new`] in them asks for. Checks that joins had
/// such tables. Does nothing where the device can have none.
pub fn with_engine(engine: IndexKind, cases: impl Fn()) {
    if !can_have(engine) {
        return;
    }
    ENGINE.set((Some(engine), 0));
    cases();
    let (_, tables) = ENGINE.replace((None, 0));
    assert!(tables > 0, "no table of the kind {engine}");
}

/// Returns whether the cases of this thread's test name an engine.
pub fn is_engine_named() -> bool {
    ENGINE.get().0.is_some()
}

/// Checks that a case's tables are of the kind that its thread's test asks for, if it does.
fn note_engine(case: &Case, run: &Run) {
    let (Some(engine), tables) = ENGINE.get() else {
        return;
    };
    if case.config.knobs.index != engine {
        return;
    }
    let others = run.tables().into_iter();
    for (kind, count) in others {
        // Sparse keys have no direct table.
        let suits = kind == engine || (engine, kind) == (IndexKind::Direct, IndexKind::Horton);
        assert!(count == 0 || suits, "{engine}, but {count} {kind}: {case}");
    }
    let asked = run.metric_or_none(&format!("{engine}_tables"));
    ENGINE.set((Some(engine), tables + asked));
}

// ---------------------------------------------------------------- data

/// One side of a join, partitioned, in batches.
#[derive(Clone)]
pub struct Side {
    pub schema: SchemaRef,
    pub partitions: Vec<Vec<RecordBatch>>,
    /// The column that every partition is sorted by.
    pub sorted_by: Option<usize>,
}

impl Side {
    /// Returns one partition of one batch.
    pub fn new(columns: Vec<(&str, ArrayRef)>) -> Self {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let rows = columns.first().map_or(0, |(_, array)| array.len());
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options).unwrap();
        Self {
            schema,
            partitions: vec![vec![batch]],
            sorted_by: None,
        }
    }

    /// Returns the same rows in batches (slices) of `rows`, with an empty one after the first.
    pub fn in_batches_of(mut self, rows: usize) -> Self {
        let empty = RecordBatch::new_empty(Arc::clone(&self.schema));
        for batches in &mut self.partitions {
            let mut cut: Vec<RecordBatch> = batches
                .iter()
                .flat_map(|batch| {
                    (0..batch.num_rows())
                        .step_by(rows)
                        .map(|at| batch.slice(at, rows.min(batch.num_rows() - at)))
                })
                .collect();
            cut.insert(cut.len().min(1), empty.clone());
            *batches = cut;
        }
        self
    }

    /// Returns the same rows, row `i` in partition `partition(i) % parts`.
    pub fn in_partitions(mut self, parts: usize, partition: impl Fn(usize) -> usize) -> Self {
        let batch = self.batch();
        self.partitions = (0..parts)
            .map(|part| {
                let rows = (0..batch.num_rows()).filter(|row| partition(*row) % parts == part);
                let rows: UInt32Array = rows.map(|row| row as u32).collect();
                vec![take_record_batch(&batch, &rows).unwrap()]
            })
            .collect();
        self
    }

    /// Says that every partition is sorted by column `column`, ascending, NULLs first.
    pub fn sorted_by(mut self, column: usize) -> Self {
        self.sorted_by = Some(column);
        self
    }

    /// Returns all rows in one batch.
    pub fn batch(&self) -> RecordBatch {
        let batches = self.partitions.iter().flatten();
        arrow::compute::concat_batches(&self.schema, batches).unwrap()
    }

    pub fn column(&self, index: usize) -> PhysicalExprRef {
        Arc::new(Column::new(self.schema.field(index).name(), index))
    }

    pub fn exec(&self) -> Arc<dyn ExecutionPlan> {
        let exec =
            TestMemoryExec::try_new_exec(&self.partitions, Arc::clone(&self.schema), None).unwrap();
        let Some(column) = self.sorted_by else {
            return exec;
        };
        let sort = PhysicalSortExpr::new_default(self.column(column));
        let ordering = LexOrdering::new([sort]).unwrap();
        let exec = Arc::unwrap_or_clone(exec).try_with_sort_information(vec![ordering]);
        Arc::new(exec.unwrap())
    }
}

/// Keys below `distinct`, each with its duplicates, one in eight NULL.
pub fn repeating_keys(seed: u32, rows: usize, distinct: u32) -> Vec<Option<i64>> {
    let mut random = Mt::new(seed);
    let mut key = || match random.next_u32() % 8 {
        0 => None,
        _ => Some(i64::from(random.next_u32() % distinct)),
    };
    (0..rows).map(|_| key()).collect()
}

/// Makes a column of keys: equal values where the keys are.
pub type ToColumn = fn(&[Option<i64>]) -> ArrayRef;

pub fn ints(keys: &[Option<i64>]) -> ArrayRef {
    Arc::new(Int64Array::from(keys.to_vec()))
}

/// Strings that are equal where the keys are, short enough to be compared on the device.
pub fn short_strings(keys: &[Option<i64>]) -> ArrayRef {
    let text = |key: i64| format!("key {key}");
    Arc::new(StringArray::from_iter(keys.iter().map(|k| k.map(text))))
}

/// Strings that are equal where the keys are, and so long that they are hashed.
pub fn strings(keys: &[Option<i64>]) -> ArrayRef {
    let text = |key: i64| format!("a string of more than 28 bytes: {key}");
    Arc::new(StringArray::from_iter(keys.iter().map(|k| k.map(text))))
}

/// Integers that are equal where the keys are, all over the type.
pub fn sparse_ints(keys: &[Option<i64>]) -> ArrayRef {
    let apart = |key: i64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    let keys: Vec<Option<i64>> = keys.iter().map(|key| key.map(apart)).collect();
    ints(&keys)
}

/// 0, 1, 2, … but NULL in every seventh row.
pub fn payload(rows: usize) -> ArrayRef {
    let value = |row| (row % 7 != 6).then_some(row as i32);
    Arc::new(Int32Array::from_iter((0..rows).map(value)))
}

// ---------------------------------------------------------------- cases

/// A join, to be run as the stock join and on the device.
#[derive(Clone)]
pub struct Case {
    pub build: Side,
    pub probe: Side,
    pub on: Vec<(PhysicalExprRef, PhysicalExprRef)>,
    pub join_type: JoinType,
    pub mode: PartitionMode,
    pub filter: Option<JoinFilter>,
    pub projection: Option<Vec<usize>>,
    pub null_equality: NullEquality,
    pub null_aware: bool,
    pub fetch: Option<usize>,
    pub batch_size: usize,
    pub config: HortonConfig,
}

/// The rows of a plan.
pub struct Run {
    /// Batches of each partition.
    pub batches: Vec<Vec<RecordBatch>>,
    pub metrics: MetricsSet,
}

impl Run {
    /// Returns the rows of each partition as text.
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.batches.iter().map(|batches| text(batches)).collect()
    }

    /// Returns the rows of all partitions, sorted.
    pub fn sorted_rows(&self) -> Vec<String> {
        let mut rows = self.rows().concat();
        rows.sort_unstable();
        rows
    }

    pub fn count(&self) -> usize {
        let batches = self.batches.iter().flatten();
        batches.map(RecordBatch::num_rows).sum()
    }

    /// Returns the sum of a metric over all partitions.
    pub fn metric(&self, name: &str) -> usize {
        metric(&self.metrics, name)
    }

    /// Returns the same; 0 if there is no such metric.
    pub fn metric_or_none(&self, name: &str) -> usize {
        sum(&self.metrics, name).map_or(0, |value| value.as_usize())
    }

    /// Returns the tables on the device, by kind.
    pub fn tables(&self) -> [(IndexKind, usize); 3] {
        use IndexKind::{CacheLine, Direct, Horton};
        [Horton, Direct, CacheLine].map(|kind| {
            let tables = self.metric_or_none(&format!("{kind}_tables"));
            (kind, tables)
        })
    }

    /// Returns the part and total of a ratio over all partitions.
    pub fn ratio(&self, name: &str) -> (usize, usize) {
        match sum(&self.metrics, name) {
            Some(MetricValue::Ratio { ratio_metrics, .. }) => {
                (ratio_metrics.part(), ratio_metrics.total())
            }
            other => panic!("{name} is {other:?}"),
        }
    }
}

pub fn metric(metrics: &MetricsSet, name: &str) -> usize {
    let value = sum(metrics, name);
    value.unwrap_or_else(|| panic!("no {name}")).as_usize()
}

fn sum(metrics: &MetricsSet, name: &str) -> Option<MetricValue> {
    metrics.sum(|metric| metric.value().name() == name)
}

impl Case {
    /// Returns an inner CollectLeft join on the first column of each side.
    pub fn new(build: Side, probe: Side) -> Self {
        let mut config = HortonConfig {
            enabled: Enabled::Always,
            device: asked(),
            ..HortonConfig::default()
        };
        if let (Some(engine), _) = ENGINE.get() {
            set_engine(&mut config, engine);
        }
        Self {
            on: vec![(build.column(0), probe.column(0))],
            build,
            probe,
            join_type: JoinType::Inner,
            mode: PartitionMode::CollectLeft,
            filter: None,
            projection: None,
            null_equality: NullEquality::NullEqualsNothing,
            null_aware: false,
            fetch: None,
            batch_size: 8192,
            config,
        }
    }

    /// Returns the same with the residual filter `build[b] < probe[p]`.
    pub fn with_filter(mut self, b: usize, p: usize) -> Self {
        let (left, right) = (self.build.schema.field(b), self.probe.schema.field(p));
        let schema = Schema::new(vec![
            left.clone().with_name("b"),
            right.clone().with_name("p"),
        ]);
        let column = |name, index| Arc::new(Column::new(name, index)) as PhysicalExprRef;
        let less = BinaryExpr::new(column("b", 0), Operator::Lt, column("p", 1));
        let side = |index, side| ColumnIndex { index, side };
        let columns = vec![side(b, JoinSide::Left), side(p, JoinSide::Right)];
        self.filter = Some(JoinFilter::new(Arc::new(less), columns, Arc::new(schema)));
        self
    }

    pub fn stock_of(
        &self,
        left: Arc<dyn ExecutionPlan>,
        right: Arc<dyn ExecutionPlan>,
    ) -> HashJoinExec {
        HashJoinExecBuilder::new(left, right, self.on.clone(), self.join_type)
            .with_filter(self.filter.clone())
            .with_projection(self.projection.clone())
            .with_partition_mode(self.mode)
            .with_null_equality(self.null_equality)
            .with_null_aware(self.null_aware)
            .with_fetch(self.fetch)
            .build()
            .unwrap()
    }

    pub fn stock(&self) -> HashJoinExec {
        self.stock_of(self.build.exec(), self.probe.exec())
    }

    pub fn on_device(&self) -> Arc<HortonJoinExec> {
        self.put_on_device(self.stock())
    }

    pub fn put_on_device(&self, stock: HashJoinExec) -> Arc<HortonJoinExec> {
        Arc::new(HortonJoinExec::new(Arc::new(stock), self.config.clone()))
    }

    /// Returns the same with the filters of the build side handed down to scans.
    pub fn with_filters(&self) -> Arc<dyn ExecutionPlan> {
        handed_out(self.on_device(), &self.config).unwrap()
    }

    pub fn context(&self) -> Arc<TaskContext> {
        context(SessionConfig::new().with_batch_size(self.batch_size))
    }

    /// Runs the join on the device alone.
    pub fn run_on_device(&self) -> Run {
        side_by_side();
        run(self.on_device(), self.context()).unwrap()
    }

    /// Checks that both joins return the same rows, and that kernels were launched.
    pub fn check(&self) -> Run {
        let run = self.check_rows();
        assert!(run.metric("kernel_launches") > 0, "no kernel ran: {self}");
        run
    }

    /// Checks as [`check`](Self::check) does, for joins with nothing to look up.
    pub fn check_without_launch(&self) -> Run {
        let run = self.check_rows();
        assert_eq!(run.metric("kernel_launches"), 0, "{self}");
        run
    }

    /// Checks as [`check`](Self::check) does, whether there is something to look up or not.
    pub fn check_rows(&self) -> Run {
        side_by_side();
        let stock = run(Arc::new(self.stock()), self.context()).unwrap();
        let device = run(self.on_device(), self.context()).unwrap();
        let filtered = run(self.with_filters(), self.context()).unwrap();
        let expected = self.comparable(stock.rows());
        let (device_rows, filtered_rows) = (device.rows(), filtered.rows());
        for (found, how) in [(device_rows, ""), (filtered_rows, "with filters: ")] {
            for (expected, found) in expected.iter().zip(&self.comparable(found)) {
                assert_same(expected, found, &format!("{how}{self}"));
            }
        }
        note_engine(self, &device);
        let rows = device.metric("output_rows");
        assert_eq!(rows, device.count(), "output_rows: {self}");
        let (_, lookups) = device.ratio("buckets_per_lookup");
        // A key is looked up in one table.
        let probe = self.probe.batch().num_rows();
        assert!(lookups <= probe, "{lookups} lookups: {self}");
        device
    }

    /// Returns rows by partition such that equal ones are those of equal results: in their order
    /// where that is promised, else sorted.
    pub fn comparable<Row: Ord>(&self, mut rows: Vec<Vec<Row>>) -> Vec<Vec<Row>> {
        if !self.is_ordered() {
            rows.iter_mut().for_each(|rows| rows.sort_unstable());
        }
        rows
    }

    /// Returns whether `HashJoinExec` promises the order of its rows.
    fn is_ordered(&self) -> bool {
        match self.join_type {
            JoinType::Inner | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => {
                true
            }
            JoinType::Right => self.probe.sorted_by.is_some(),
            _ => false,
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = |side: &Side, key: &PhysicalExprRef| key.data_type(&side.schema).unwrap();
        let keys: Vec<DataType> = self.on.iter().map(|(l, _)| key(&self.build, l)).collect();
        write!(
            f,
            "{:?} {} {:?} filter={} null_aware={} projection={:?} fetch={:?} batch_size={} \
             chunk_rows={} keys={keys:?} rows={}×{}",
            self.mode,
            self.join_type,
            self.null_equality,
            self.filter.is_some(),
            self.null_aware,
            self.projection,
            self.fetch,
            self.batch_size,
            self.config.chunk_rows,
            self.build.batch().num_rows(),
            self.probe.batch().num_rows(),
        )
    }
}

fn assert_same(expected: &[String], found: &[String], case: &str) {
    if expected == found {
        return;
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    let at = at.unwrap_or(expected.len().min(found.len()));
    let near = |rows: &[String]| rows[at.saturating_sub(2)..rows.len().min(at + 5)].join("\n  ");
    panic!(
        "{case}\n{} rows expected, {} found, the first difference at {at}\nexpected\n  {}\nfound\n  {}",
        expected.len(),
        found.len(),
        near(expected),
        near(found)
    );
}

/// Returns the context that a plan is run with. A session would know all of DataFusion's functions
/// beside it. That takes longer in debug builds than a small join does, and no plan here looks one
/// up.
pub fn context(config: SessionConfig) -> Arc<TaskContext> {
    context_in(config, Arc::default())
}

/// Returns the same with memory and files of `runtime`.
pub fn context_in(config: SessionConfig, runtime: Arc<RuntimeEnv>) -> Arc<TaskContext> {
    let context = TaskContext::default().with_session_config(config);
    Arc::new(context.with_runtime(runtime))
}

/// Collects the partitions of a plan, one after the other.
pub fn run(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Result<Run> {
    block_on(async move {
        let mut batches = Vec::new();
        for partition in 0..plan.output_partitioning().partition_count() {
            let stream = plan.execute(partition, Arc::clone(&context))?;
            let collected: Vec<RecordBatch> = stream.try_collect().await?;
            for batch in &collected {
                assert_eq!(batch.schema(), plan.schema());
            }
            batches.push(collected);
        }
        let metrics = plan.metrics().unwrap();
        Ok(Run { batches, metrics })
    })
}
