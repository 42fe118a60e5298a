//! DataFusion's own join over what was read already: the one way out for joins that no device runs.
//!
//! ```text
//!  build batches ─▶ OneShotExec ───────────────▶ HashJoinExec, CollectLeft     few build rows
//!  probe streams ─▶ OneShotExec ───────────────▶
//!
//!  build batches ─▶ OneShotExec ─▶ Repartition ▶ HashJoinExec, Partitioned     many
//!  probe streams ─▶ OneShotExec ─▶ Repartition ▶
//!
//!  build batches ─▶ OneShotExec ───────────────▶ HashJoinExec, Partitioned     many, both sides
//!  probe streams ─▶ OneShotExec ───────────────▶                               hashed by the keys
//! ```
//!
//! The mode follows DataFusion's own thresholds (`hash_join_single_partition_threshold`), applied
//! to the rows that were read instead of an estimate: a `CollectLeft` join fills its table on one
//! core. But filling an array of keys ([`key_range`](crate::join::key_range)) takes less time than
//! partitioning many probe rows. Inputs that are hashed by the keys, such as aggregates, stay in
//! their partitions, as DataFusion's planner leaves them. Those hashed by some of the keys stay,
//! too. DataFusion would hash them once more by all keys.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{NullEquality, Result, internal_err};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};

use super::oriented::{OrientedJoin, emits_build_rows};
use super::reserved_pool::ReservedPool;
use crate::join::concat::size::Size;
use crate::join::concat::types::has_dictionary;
use crate::join::input::build_batches::{BuildBatches, empty_stream};
use crate::join::key_range::{are_dense, min_max};
use crate::join::memory::table_bytes;

/// DataFusion's join, and the context to execute it in.
pub struct HostJoin {
    join: HashJoinExec,
    context: Arc<TaskContext>,
    partitioning: HostPartitioning,
    can_be_read_again: bool,
}

impl HostJoin {
    /// Returns the join.
    pub fn join(&self) -> &HashJoinExec {
        &self.join
    }

    /// Returns how the rows of both sides go to partitions.
    pub fn partitioning(&self) -> HostPartitioning {
        self.partitioning
    }

    /// Returns whether each partition can be read more than once. DataFusion's join keeps one table
    /// for that. But a join that emits build rows counts the streams that have ended.
    pub fn can_be_read_again(&self) -> bool {
        self.can_be_read_again
    }

    /// Returns the rows of output partition `at`; there are none if the join has fewer.
    ///
    /// # Errors
    /// The errors of executing it.
    pub fn stream(&self, at: usize) -> Result<SendableRecordBatchStream> {
        let partitions = self.join.properties().output_partitioning();
        if at >= partitions.partition_count() {
            return Ok(empty_stream(&self.join.schema()));
        }
        self.join.execute(at, Arc::clone(&self.context))
    }
}

/// Returns the join of `oriented` over a `build` side that was read and the streams of its `probe`
/// side, which `reopen` opens again. Their rows go to partitions as `partitioning` says.
///
/// # Errors
/// If DataFusion cannot make the join.
pub fn host_join(
    oriented: &OrientedJoin,
    build: BuildBatches,
    probe: Vec<SendableRecordBatchStream>,
    (partitioning, reopen): (HostPartitioning, Option<Reopen>),
) -> Result<HostJoin> {
    let join = oriented.join();
    let reopen = reopen.filter(|_| partitioning == HostPartitioning::Collect);
    let can_be_read_again = reopen.is_some() && !emits_build_rows(*join.join_type());
    let context = ReservedPool::context(oriented.context(), build.memory)?;
    let parts = match partitioning {
        HostPartitioning::Collect => vec![build.batches.len()],
        HostPartitioning::Keep => build.parts,
        HostPartitioning::Repartition(n) => vec![build.batches.len().div_ceil(n).max(1); n],
    };
    let left = streams_of(build.batches, &join.left().schema(), &parts);
    let left = OneShotExec::over(join.left(), left, None);
    let right = OneShotExec::over(join.right(), probe, reopen);
    let (left, right, mode) = match partitioning {
        HostPartitioning::Collect => (left, right, PartitionMode::CollectLeft),
        HostPartitioning::Keep => (left, right, PartitionMode::Partitioned),
        HostPartitioning::Repartition(partitions) => {
            let (l, r) = join.on().iter().cloned().unzip();
            let left = repartition(left, l, partitions)?;
            let right = repartition(right, r, partitions)?;
            (left, right, PartitionMode::Partitioned)
        }
    };
    let mut builder = join.builder().reset_state();
    if mode != *join.partition_mode() {
        builder = builder.with_partition_mode(mode);
    }
    let join = builder.with_new_children(vec![left, right])?.build()?;
    Ok(HostJoin {
        join,
        context,
        partitioning,
        can_be_read_again,
    })
}

/// Opens a partition of the probe side again, for a stream that is not the first of it.
pub type Reopen = Arc<dyn Fn(usize) -> Result<SendableRecordBatchStream> + Send + Sync>;

/// The way in which the rows of both sides go to partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPartitioning {
    /// All build rows are one table, which all probe partitions look up.
    Collect,
    /// Partitions are joined in pairs as they are.
    Keep,
    /// Rows go to so many partitions by their keys, which are joined in pairs.
    Repartition(usize),
}

impl HostPartitioning {
    /// Returns how DataFusion would join `build` with `probes` partitions, had it known the rows
    /// and bytes. Reserves the tables of partitions that are joined as they are. `partitions` are
    /// those that rows may go to. They go to none under a limit on memory.
    ///
    /// UPSTREAM(apache/datafusion#24883): a `RepartitionExec` that spills can wait for ever.
    pub fn choose(
        oriented: &OrientedJoin,
        build: &BuildBatches,
        probes: usize,
        partitions: Option<usize>,
    ) -> Self {
        if may_keep(oriented, build, probes, partitions) && has_room_by_part(build) {
            return HostPartitioning::Keep;
        }
        let options = &oriented.context().session_config().options().optimizer;
        let Some(partitions) = partitions.filter(|n| may_partition(oriented, build) && *n > 1)
        else {
            return HostPartitioning::Collect;
        };
        let pool = oriented.context().memory_pool();
        let is_limited = !matches!(pool.memory_limit(), MemoryLimit::Infinite);
        if is_limited || !options.repartition_joins {
            return HostPartitioning::Collect;
        }
        HostPartitioning::Repartition(partitions)
    }
}

/// Returns whether the host would join `build` in several partitions.
pub fn may_partition(oriented: &OrientedJoin, build: &BuildBatches) -> bool {
    let join = oriented.join();
    let options = &oriented.context().session_config().options().optimizer;
    let is_large = build.bytes > options.hash_join_single_partition_threshold
        || build.rows > options.hash_join_single_partition_threshold_rows;
    is_large && !join.null_aware && join.fetch().is_none()
}

/// Returns the bytes of the rows of `build` if one table of them all is an array, which streams use
/// side by side. They mark build rows in turn, so the join must not need that. Rows must fit one
/// batch.
pub fn array_bytes(oriented: &OrientedJoin, build: &BuildBatches) -> Option<usize> {
    let marks = emits_build_rows(*oriented.join().join_type());
    let may_be = !marks && are_keys_dense(oriented, build);
    may_be.then(|| bytes_of_one_batch(&build.batches)).flatten()
}

/// Returns whether one array would have the keys of all rows of `build`.
fn are_keys_dense(oriented: &OrientedJoin, build: &BuildBatches) -> bool {
    let join = oriented.join();
    let [(key, _)] = join.on() else {
        return false;
    };
    // Another expression may fail, or take long.
    let (Some(key), NullEquality::NullEqualsNothing) =
        (key.downcast_ref::<Column>(), join.null_equality())
    else {
        return false;
    };
    let data_type = join.left().schema().field(key.index()).data_type().clone();
    let keys = build.batches.iter().map(|batch| batch.column(key.index()));
    if !data_type.is_integer() {
        return false;
    }
    let Ok((min, max)) = min_max(keys, &data_type) else {
        return false;
    };
    let values = min.distance(&max).and_then(|last| last.checked_add(1));
    let options = &oriented.context().session_config().options().execution;
    values.is_some_and(|values| are_dense(options, build.rows, values))
}

/// Returns the bytes of `batches` as one batch; `None` if they do not fit one. Dictionaries may
/// outgrow the type of their keys.
fn bytes_of_one_batch(batches: &[RecordBatch]) -> Option<usize> {
    let columns = batches.first().map_or(0, RecordBatch::num_columns);
    let bytes = |at| {
        let arrays = batches.iter().map(|batch| Arc::clone(batch.column(at)));
        let arrays: Vec<ArrayRef> = arrays.collect();
        let mut types = arrays.first().into_iter().map(|array| array.data_type());
        if types.any(has_dictionary) {
            return None;
        }
        Size::try_new(&arrays).map(|size| size.bytes)
    };
    (0..columns).map(bytes).sum()
}

/// Returns whether the host would join the partitions of `build` and of `probes` streams in pairs.
/// Their tables need memory, too.
pub fn may_keep(
    oriented: &OrientedJoin,
    build: &BuildBatches,
    probes: usize,
    partitions: Option<usize>,
) -> bool {
    let has_pairs = |n| n > 1 && [build.parts.len(), probes] == [n; 2];
    may_partition(oriented, build)
        && partitions.is_some_and(has_pairs)
        && is_hashed_by_keys(oriented.join())
}

/// Returns whether both sides are hashed by the same keys, or some of them, in the same order. Rows
/// with equal keys are in partitions of equal number then, if both sides have as many. Scans can
/// claim to be hashed, too (`preserve_file_partitions`), but not by the same function.
fn is_hashed_by_keys(join: &HashJoinExec) -> bool {
    let sides = [join.left(), join.right()];
    let [Partitioning::Hash(l, _), Partitioning::Hash(r, _)] =
        sides.map(|side| side.output_partitioning())
    else {
        return false;
    };
    let mut pairs = l.iter().zip(r);
    let is_key = |(a, b)| join.on().iter().any(|(x, y)| x.eq(a) && y.eq(b));
    let are_keys = !l.is_empty() && l.len() == r.len() && pairs.all(is_key);
    are_keys && sides.into_iter().all(is_repartitioned)
}

/// Returns whether `RepartitionExec`s below have hashed all rows of `plan`.
fn is_repartitioned(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(node) = plan.downcast_ref::<RepartitionExec>() {
        return matches!(node.partitioning(), Partitioning::Hash(..));
    }
    let children = plan.children();
    !children.is_empty() && children.into_iter().all(is_repartitioned)
}

/// Reserves what a hash table of each part takes beyond one of all rows. Returns whether the memory
/// pool has as much.
fn has_room_by_part(build: &BuildBatches) -> bool {
    let mut rows = build.batches.iter().map(RecordBatch::num_rows);
    let parts = build.parts.iter();
    let tables = parts.map(|batches| table_bytes(rows.by_ref().take(*batches).sum()));
    let more = tables.sum::<usize>().saturating_sub(build.table);
    build.memory.try_grow(more).is_ok()
}

fn repartition(
    input: Arc<dyn ExecutionPlan>,
    keys: Vec<PhysicalExprRef>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let partitioning = Partitioning::Hash(keys, partitions);
    Ok(Arc::new(RepartitionExec::try_new(input, partitioning)?))
}

/// Returns `batches` as streams, of so many batches as `parts` says.
fn streams_of(
    batches: Vec<RecordBatch>,
    schema: &SchemaRef,
    parts: &[usize],
) -> Vec<SendableRecordBatchStream> {
    let mut batches = batches.into_iter();
    let part = |count: &usize| {
        let part: Vec<_> = batches.by_ref().take(*count).map(Ok).collect();
        let stream = futures::stream::iter(part);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream)) as _
    };
    parts.iter().map(part).collect()
}

/// A leaf that hands out streams which are open, each once, and then opens them again if it can.
pub struct OneShotExec {
    streams: Mutex<Vec<Option<SendableRecordBatchStream>>>,
    reopen: Option<Reopen>,
    properties: Arc<PlanProperties>,
}

impl OneShotExec {
    /// Hands out `streams` of the rows of `input`, in its order. If there are as many as `input`
    /// has partitions, they share its properties: deriving others takes longer than a small join.
    /// Nobody reads the partitioning of streams that a `RepartitionExec` will hash.
    fn over(
        input: &Arc<dyn ExecutionPlan>,
        streams: Vec<SendableRecordBatchStream>,
        reopen: Option<Reopen>,
    ) -> Arc<dyn ExecutionPlan> {
        let of_input = input.properties();
        let properties = if streams.len() == of_input.partitioning.partition_count() {
            Arc::clone(of_input)
        } else {
            Arc::new(PlanProperties::new(
                of_input.equivalence_properties().clone(),
                Partitioning::UnknownPartitioning(streams.len()),
                of_input.emission_type,
                of_input.boundedness,
            ))
        };
        Arc::new(Self {
            streams: Mutex::new(streams.into_iter().map(Some).collect()),
            reopen,
            properties,
        })
    }
}

impl OneShotExec {
    /// Hands out `stream`, in no order.
    pub fn unordered(
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
    ) -> Arc<dyn ExecutionPlan> {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Arc::new(Self {
            streams: Mutex::new(vec![Some(stream)]),
            reopen: None,
            properties: Arc::new(properties),
        })
    }
}

impl fmt::Debug for OneShotExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneShotExec")
    }
}

impl DisplayAs for OneShotExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneShotExec")
    }
}

impl ExecutionPlan for OneShotExec {
    fn name(&self) -> &str {
        "OneShotExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
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
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let first = streams.get_mut(partition).and_then(Option::take);
        drop(streams);
        match (first, &self.reopen) {
            (Some(stream), _) => Ok(stream),
            (None, Some(reopen)) => reopen(partition),
            (None, None) => internal_err!("rows that were read are handed out once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::JoinType;
    use datafusion::physical_plan::joins::HashJoinExecBuilder;

    use super::*;

    fn key() -> PhysicalExprRef {
        Arc::new(Column::new("k", 0))
    }

    /// Returns a leaf of two partitions that claims to be hashed by its column.
    fn claiming() -> Arc<dyn ExecutionPlan> {
        let schema = Schema::new(vec![Field::new("k", DataType::Int32, false)]);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::Hash(vec![key()], 2),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Arc::new(OneShotExec {
            streams: Mutex::default(),
            reopen: None,
            properties: Arc::new(properties),
        })
    }

    fn join(left: Arc<dyn ExecutionPlan>, right: Arc<dyn ExecutionPlan>) -> HashJoinExec {
        let on = vec![(key(), key())];
        let join = HashJoinExecBuilder::new(left, right, on, JoinType::LeftSemi)
            .with_partition_mode(PartitionMode::Partitioned);
        join.build().unwrap()
    }

    #[test]
    fn the_word_of_a_scan_that_it_is_hashed_does_not_count() {
        let hashed = || repartition(claiming(), vec![key()], 2).unwrap();
        assert!(is_hashed_by_keys(&join(hashed(), hashed())));
        assert!(!is_hashed_by_keys(&join(claiming(), hashed())));
        assert!(!is_hashed_by_keys(&join(hashed(), claiming())));
        let below = |left, right| -> Arc<dyn ExecutionPlan> { Arc::new(join(left, right)) };
        assert!(is_hashed_by_keys(&join(
            below(hashed(), hashed()),
            hashed()
        )));
        assert!(!is_hashed_by_keys(&join(
            below(hashed(), claiming()),
            hashed()
        )));
    }
}
