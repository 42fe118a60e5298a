//! The joins that are swept: together they use every OpenCL call that a join can make.

use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinType, NullEquality, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning, PhysicalExprRef};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};

use horton_join::table::multimap::IndexKind;
use horton_test_support::joins::*;

/// Called when a probe side is first asked for rows: the build is over.
pub type OnProbe = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// A probe side. Whoever asks it for rows has the build behind it, as the build side is fixed.
#[derive(Debug)]
struct Feed {
    partitions: Vec<Vec<RecordBatch>>,
    on_probe: ProbeHook,
    properties: Arc<PlanProperties>,
}

struct ProbeHook(OnProbe);

impl fmt::Debug for ProbeHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a probe hook")
    }
}

impl DisplayAs for Feed {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Feed")
    }
}

impl ExecutionPlan for Feed {
    fn name(&self) -> &str {
        "Feed"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&PhysicalExprRef) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let on_probe = Arc::clone(&self.on_probe.0);
        let first = stream::once(async move {
            if let Some(call) = on_probe.lock().unwrap().take() {
                call();
            }
        })
        .filter_map(|()| async { None });
        let batches = stream::iter(self.partitions[partition].clone()).map(Ok);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            first.chain(batches),
        )))
    }
}

/// The probe side of `side`, which calls the hook when it is first asked.
pub fn feed(side: &Side, on_probe: &OnProbe) -> Arc<dyn ExecutionPlan> {
    let properties = PlanProperties::new(
        EquivalenceProperties::new(Arc::clone(&side.schema)),
        Partitioning::UnknownPartitioning(side.partitions.len()),
        EmissionType::Both,
        Boundedness::Bounded,
    );
    Arc::new(Feed {
        partitions: side.partitions.clone(),
        on_probe: ProbeHook(Arc::clone(on_probe)),
        properties: Arc::new(properties),
    })
}

/// Values without NULLs, which the device gathers.
fn values(rows: i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values((0..rows).map(|row| row * 3)))
}

/// Strings that fit into four words: exact codes.
fn short_strings(keys: &[Option<i64>]) -> ArrayRef {
    let text = |key: i64| format!("a key: {key}");
    Arc::new(StringArray::from_iter(keys.iter().map(|k| k.map(text))))
}

type Keys = fn(&[Option<i64>]) -> ArrayRef;

/// The rows of a case.
#[derive(Clone, Copy)]
pub enum Size {
    /// 700 × 1,800, in chunks of 512.
    Full,
    /// A fifth of that. It makes as many calls, and is compared in a fifth of the time.
    Fifth,
}

impl Size {
    fn of(self, rows: usize) -> usize {
        match self {
            Size::Full => rows,
            Size::Fifth => rows / 5,
        }
    }
}

/// What makes cases of a size.
#[derive(Clone, Copy)]
struct Cases(Size);

impl Cases {
    /// A join whose keys are below `distinct`; those of the build side differ if that is 0.
    fn case(self, join_type: JoinType, keys: Keys, distinct: usize) -> Case {
        let size = |rows| self.0.of(rows);
        let (rows, probe_rows) = (size(700), size(1800));
        let left: Vec<Option<i64>> = match distinct {
            0 => (0..rows).map(|row| Some((row * 3 % rows) as i64)).collect(),
            _ => repeating_keys(5, rows, size(distinct) as u32),
        };
        let right = repeating_keys(6, probe_rows, size(distinct.max(900)) as u32);
        let build = Side::new(vec![
            ("k", keys(&left)),
            ("v", payload(rows)),
            ("x", values(rows as i64)),
        ]);
        let probe = Side::new(vec![("k", keys(&right)), ("w", payload(probe_rows))]);
        let (build, probe) = (
            build.in_batches_of(size(200)),
            probe.in_batches_of(size(250)),
        );
        let mut case = Case {
            join_type,
            batch_size: size(300),
            ..Case::new(build, probe)
        };
        case.config.chunk_rows = size(512);
        // The same on every device, and the index with most kernels.
        set_engine(&mut case.config, IndexKind::Horton);
        case
    }

    fn in_parts(self, mut case: Case, mode: PartitionMode) -> Case {
        // Equal keys must meet: every row of one side with every row of the other.
        let probe = case.probe.in_partitions(2, |row| row);
        case.probe = probe.in_batches_of(self.0.of(250));
        if mode == PartitionMode::Partitioned {
            case.build = case.build.in_partitions(2, |row| row);
        }
        case.mode = mode;
        case
    }
}

/// The same over the index that suits the device.
fn over_its_own(mut case: Case) -> Case {
    set_engine(&mut case.config, IndexKind::Auto);
    case
}

/// Every case under a name.
pub fn all(size: Size) -> Vec<(&'static str, Case)> {
    use JoinType::*;
    let cases = Cases(size);
    let case = |join_type, keys: Keys, distinct| cases.case(join_type, keys, distinct);
    let mut rest = vec![
        ("unique keys, columns gathered", case(Inner, ints, 0)),
        ("unique keys, any index", over_its_own(case(Inner, ints, 0))),
        ("many pairs, any index", over_its_own(case(Inner, ints, 40))),
        (
            "sparse keys, any index",
            over_its_own(case(Left, sparse_ints, 0)),
        ),
        ("strings, many pairs", case(Inner, strings, 40)),
        ("strings, unique", case(Inner, strings, 0)),
        ("short strings, unique", case(Inner, short_strings, 0)),
        ("many pairs", case(Inner, ints, 40)),
        ("right, strings", case(Right, strings, 300)),
        ("left, visits noted", case(Left, ints, 300)),
        ("left, unique", case(Left, ints, 0)),
        ("full, filtered", case(Full, ints, 300).with_filter(1, 1)),
        ("full, visits noted", case(Full, ints, 300)),
        ("sparse keys", case(Inner, sparse_ints, 300)),
        ("left, sparse keys", case(Left, sparse_ints, 300)),
        ("left semi", case(LeftSemi, ints, 300)),
        ("left mark", case(LeftMark, ints, 0)),
        ("left anti, strings", case(LeftAnti, strings, 300)),
        ("right semi, bits", case(RightSemi, ints, 300)),
        ("right anti, bits", case(RightAnti, ints, 0)),
        ("right mark, strings", case(RightMark, strings, 300)),
    ];
    let mut limited = case(Full, strings, 300);
    limited.config.device_memory_limit = match size {
        Size::Full => 200_000,
        // Blocks are no smaller than a page.
        Size::Fifth => 140_000,
    };
    rest.push(("little memory, full, strings", limited));
    let parts = cases.in_parts(case(LeftAnti, ints, 300), PartitionMode::CollectLeft);
    rest.push(("left anti, two probe partitions", parts));
    let parts = cases.in_parts(case(Full, ints, 300), PartitionMode::Partitioned);
    rest.push(("full, partitioned", parts));
    let mut count = case(Inner, ints, 40);
    count.projection = Some(vec![]);
    rest.push(("count", count));
    let mut nulls = case(Left, ints, 300);
    nulls.null_equality = NullEquality::NullEqualsNull;
    rest.push(("NULLs are equal", nulls));
    let mut limited = case(Inner, ints, 40);
    limited.fetch = Some(size.of(5000));
    rest.push(("limited", limited));
    rest
}
