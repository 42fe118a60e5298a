//! The way in which the sides of a join become pairs of spill partitions, read off its plan.
//!
//! ```text
//!  join ─▶ a PartitionSpec per side ─▶ partitioned, the left side first ─▶ pairs ─▶ queues
//!
//!  pairs 0 1 2 3 4 5 6 7     stream 0: 0 3 6     stream 1: 1 4 7     stream 2: 2 5
//! ```
//!
//! A stream has the same pairs whenever the join is executed. Two executions at the same time may
//! have one context, and then nobody can tell whose partitions are whose
//! ([`execution`](crate::join::execution)). If streams took pairs from one queue, one execution
//! could miss rows that the other one has twice. Pairs are about equal unless keys are skewed. So
//! streams have about as much to do as each other.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::metrics::SpillMetrics;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::error::Result;
use crate::join::input::buffered::BufferedInput;
use crate::join::input::files::SpillFiles;
use crate::join::memory::spill_reservation;
use crate::join::prepare::JoinContext;
use crate::join::properties::{keeps_partitions, properties};
use crate::join::side::Side;
use crate::parallel::all_at_once;

use super::partition::{PartitionPair, SpillPartition};
use super::partitioner::{PartitionedSide, Partitioner};
use super::queue::PairQueue;
use super::spec::{NullKeyRows, PartitionSpec, partitions};

/// Returns the files for rows of `side`; `None` if the join cannot go to disk.
pub fn files(node: &JoinContext, side: &BufferedInput) -> Option<SpillFiles> {
    let metrics = || SpillMetrics::new(&node.shown.metrics, node.partition);
    (obstacle(node).is_none()).then(|| files_of(node, side, &metrics()))
}

/// Returns the files for rows of `side`, counted in `metrics`.
pub fn files_of(node: &JoinContext, side: &BufferedInput, metrics: &SpillMetrics) -> SpillFiles {
    let runtime = node.context.runtime_env();
    let compression = node.context.session_config().spill_compression();
    let schema = Arc::clone(side.schema());
    SpillFiles::new(runtime, metrics.clone(), schema, compression)
}

/// Returns why a join cannot go to disk, and what to do.
pub fn obstacle(node: &JoinContext) -> Option<&'static str> {
    let inputs = [node.planned.left(), node.planned.right()];
    if !node.config.spill {
        return Some("SET horton.spill = true lets the join go to disk");
    }
    if inputs.into_iter().any(|i| i.boundedness().is_unbounded()) {
        return Some("the join cannot go to disk, as an input has no end");
    }
    if !node.context.runtime_env().disk_manager.tmp_files_enabled() {
        return Some(
            "the join could go to disk if the session's DiskManager allowed temporary files",
        );
    }
    None
}

/// Returns how a side of `node`, which was `planned`, is partitioned at the first level.
pub fn spec(
    node: &JoinContext,
    planned: &HashJoinExec,
    files: &[SpillFiles; 2],
    side: Side,
) -> PartitionSpec {
    use JoinType::{Full, Left, LeftAnti, LeftMark, Right, RightAnti, RightMark};
    let emits = match side {
        Side::Left => matches!(planned.join_type(), Left | Full | LeftAnti | LeftMark),
        Side::Right => matches!(planned.join_type(), Right | Full | RightAnti | RightMark),
    };
    let null_keys = match (planned.null_equality(), emits) {
        (NullEquality::NullEqualsNull, _) => NullKeyRows::Match,
        (_, _) if planned.null_aware => NullKeyRows::Separate,
        (_, true) => NullKeyRows::ByRow,
        (_, false) => NullKeyRows::Drop,
    };
    let streams = planned.properties().output_partitioning();
    PartitionSpec {
        keys: keys(planned, side),
        null_keys,
        partitions: partitions(streams.partition_count()),
        level: 0,
        files: files[side as usize].clone(),
        batch_size: node.context.session_config().batch_size(),
        width: node.context.session_config().target_partitions(),
        at_once: 1,
        memory: spill_reservation(node.context.memory_pool(), node.partition, side),
    }
}

/// Returns the key expressions of a side.
pub fn keys(planned: &HashJoinExec, side: Side) -> Vec<PhysicalExprRef> {
    let key = |(left, right): &(PhysicalExprRef, PhysicalExprRef)| match side {
        Side::Left => Arc::clone(left),
        Side::Right => Arc::clone(right),
    };
    planned.on().iter().map(key).collect()
}

/// Returns the number of streams that share the pairs of a join, which was `planned`.
fn streams(planned: &HashJoinExec) -> usize {
    match planned.partition_mode() {
        PartitionMode::Partitioned => 1,
        _ => properties(planned).output_partitioning().partition_count(),
    }
}

/// The way in which both sides become pairs of spill partitions.
pub struct PartitionPlan {
    specs: [PartitionSpec; 2],
    /// Number of streams that share the pairs, if a stream need not keep its partition's rows.
    streams: Option<usize>,
    join_type: JoinType,
    null_aware: bool,
}

impl PartitionPlan {
    /// Returns the plan that partitions both sides of `node`, which was `planned`, to files.
    pub fn new(node: &JoinContext, planned: &HashJoinExec, files: &[SpillFiles; 2]) -> Self {
        Self {
            specs: Side::BOTH.map(|side| spec(node, planned, files, side)),
            streams: (!keeps_partitions(planned)).then(|| streams(planned)),
            join_type: *planned.join_type(),
            null_aware: planned.null_aware,
        }
    }

    /// Partitions both sides. Returns the queue of pairs of each stream. Like DataFusion's join, it
    /// asks the right side for no row if the left one has none that could match.
    ///
    /// # Errors
    /// The errors of the inputs, of the memory pool and of writing files.
    pub async fn queues(self, [left, right]: [BufferedInput; 2]) -> Result<Vec<PairQueue>> {
        let [left_spec, right_spec] = &self.specs;
        let left = partition_all(left_spec.for_other_rows(), left.into_streams()).await?;
        let right = right.into_streams();
        // NULL keys that match nothing are counted only where their rows are emitted.
        if left.rows() == 0 && self.join_type.empty_build_side_produces_empty_result() {
            let streams = self.streams.unwrap_or(right.len());
            return Ok((0..streams).map(|_| PairQueue::new(Vec::new())).collect());
        }
        let Some(streams) = self.streams else {
            return self.own_queues(&left, right).await;
        };
        let right = partition_all(right_spec.for_other_rows(), right).await?;
        let mut pairs: Vec<_> = (0..streams).map(|_| Vec::new()).collect();
        for (at, pair) in self.pairs(&left, &right).into_iter().enumerate() {
            pairs[at % streams].push(pair);
        }
        Ok(pairs.into_iter().map(PairQueue::new).collect())
    }

    /// Partitions each stream of the right side by itself.
    async fn own_queues(
        &self,
        left: &PartitionedSide,
        right: Vec<SendableRecordBatchStream>,
    ) -> Result<Vec<PairQueue>> {
        let [_, spec] = &self.specs;
        let at_once = right.len();
        let partition =
            |stream| partition_all(spec.for_other_rows().with_at_once(at_once), vec![stream]);
        let sides = all_at_once(right, partition).await?;
        let queue = |right| PairQueue::new(self.pairs(left, right));
        Ok(sides.iter().map(queue).collect())
    }

    /// Returns the pairs that the join's rows come of.
    pub fn pairs(&self, left: &PartitionedSide, right: &PartitionedSide) -> Vec<PartitionPair> {
        if !self.null_aware {
            return pairs_of(left, right, 0);
        }
        // NOT IN: a NULL on the right decides for no row, and a NULL on the left is in no list but
        // the empty one.
        match (right.nulls.rows, right.rows()) {
            (1.., _) => Vec::new(),
            (0, 0) => {
                let nulls =
                    PartitionPair::new(Arc::clone(&left.nulls), Arc::clone(&right.nulls), 0);
                let mut pairs = pairs_of(left, right, 0);
                pairs.push(nulls);
                pairs
            }
            _ => pairs_of(left, right, 0),
        }
    }
}

/// Partitions the rows of all `streams` of a side, all at once. The streams of an input can wait
/// for each other: those of a `HashJoinExec` do that makes a dynamic filter.
pub async fn partition_all(
    spec: PartitionSpec,
    streams: Vec<SendableRecordBatchStream>,
) -> Result<PartitionedSide> {
    let partitioner = Arc::new(Partitioner::new(spec));
    all_at_once(streams, |stream| {
        let partitioner = Arc::clone(&partitioner);
        async move { partitioner.add(stream).await }
    })
    .await?;
    partitioner.finish().await
}

/// Returns the pairs of two sides, in the order of the spill partitions: empty ones, too.
pub fn pairs_of(left: &PartitionedSide, right: &PartitionedSide, level: u64) -> Vec<PartitionPair> {
    let sizes = [left.bytes(), right.bytes()];
    let pairs = left.partitions.iter().zip(&right.partitions);
    let pair = |(left, right): (&Arc<SpillPartition>, &Arc<SpillPartition>)| {
        PartitionPair::new(Arc::clone(left), Arc::clone(right), level).with_all_bytes(sizes)
    };
    pairs.map(pair).collect()
}
