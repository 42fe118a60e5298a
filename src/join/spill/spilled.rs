//! The streams of a join whose sides are in spill partitions.
//!
//! ```text
//!  stream: queue ─ a pair ─▶ joined, in one pass or many, or partitioned again
//!          rows ─▶ in the order that the plan promises ─▶ output
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use datafusion::common::Result as DataFusionResult;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput, SpillMetrics};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};

use crate::error::{Error, Result};
use crate::join::input::buffered::BufferedInput;
use crate::join::prepare::{JoinContext, clone_for_stream};
use crate::join::side::Side;
use crate::join::sides::has_run_ends;

use super::multi_pass;
use super::order::restore_order;
use super::pairs::PairJoin;
use super::plan::{PartitionPlan, files_of, obstacle};
use super::queue::{PairQueue, PairQueues};

/// A join whose sides are in spill partitions.
pub struct Spilled {
    pairs: Arc<PairJoin>,
    queues: Shared<BoxFuture<'static, PairQueues>>,
}

impl Spilled {
    /// Returns the join of two sides that were read as far as the memory pool allowed.
    ///
    /// # Errors
    /// The pool's `error`, if the session does not want joins to spill, or they cannot.
    pub fn after_refusal(
        node: JoinContext,
        inputs: [BufferedInput; 2],
        error: Error,
    ) -> Result<Arc<Self>> {
        if let Some(advice) = obstacle(&node) {
            return Err(error.with_advice(advice));
        }
        log::debug!("a join goes to disk: {error}");
        Self::new(node, inputs)
    }

    /// Returns the join of two sides, whose rows all go to spill partitions.
    ///
    /// # Errors
    /// [`Error::DataFusion`], if the session does not want joins to spill, or they cannot; the
    /// errors of making the join of a pair.
    pub fn new(node: JoinContext, inputs: [BufferedInput; 2]) -> Result<Arc<Self>> {
        if let Some(advice) = obstacle(&node) {
            let text = "another execution of the join went to disk".to_owned();
            let error = Error::DataFusion(DataFusionError::ResourcesExhausted(text));
            return Err(error.with_advice(advice));
        }
        let planned = Arc::clone(&node.planned);
        let join = planned.builder().with_null_aware(false).with_fetch(None);
        let join = join.with_partition_mode(PartitionMode::CollectLeft);
        let node = JoinContext {
            planned: Arc::new(join.build()?),
            ..node
        };
        let metrics = SpillMetrics::new(&node.shown.metrics, node.partition);
        let files = [&inputs[0], &inputs[1]].map(|side| files_of(&node, side, &metrics));
        let plan = PartitionPlan::new(&node, &planned, &files);
        let queues = plan.queues(inputs).map_ok(Arc::new);
        Ok(Arc::new(Self {
            queues: queues.map_err(Arc::new).boxed().shared(),
            pairs: Arc::new(PairJoin {
                node,
                planned,
                files,
                next_partition: AtomicUsize::new(0),
            }),
        }))
    }

    /// Returns the rows of stream `at`, which is the node's output partition `partition`.
    ///
    /// # Errors
    /// If the promised order cannot be restored.
    pub fn stream(
        self: &Arc<Self>,
        at: usize,
        partition: usize,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let spilled = Arc::clone(self);
        let opened = async move {
            let queues = spilled.queues.clone().await.map_err(clone_for_stream)?;
            let pairs = futures::stream::try_unfold((), move |()| {
                let (spilled, queues) = (Arc::clone(&spilled), Arc::clone(&queues));
                async move {
                    let joined = match queues.get(at) {
                        Some(queue) => spilled.next_joined(queue).await?,
                        None => None,
                    };
                    Ok::<_, DataFusionError>(joined.map(|rows| (rows, ())))
                }
            });
            Ok::<_, DataFusionError>(pairs.try_flatten())
        };
        let rows = futures::stream::once(opened).try_flatten();
        let schema = self.pairs.planned.schema();
        let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), rows.boxed());
        let node = &self.pairs.node;
        let planned = &self.pairs.planned;
        let rows = restore_order(planned, Box::pin(stream), &node.context, node.partition)?;
        let metrics = BaselineMetrics::new(&node.shown.metrics, partition);
        let rows = rows.map(move |batch| Ok(batch?.record_output(&metrics)));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    /// Returns the rows of the next pair that has some; `None` if none is left. A pair that is too
    /// large is partitioned again.
    async fn next_joined(&self, queue: &PairQueue) -> Result<Option<SendableRecordBatchStream>> {
        let pairs = &self.pairs;
        while let Some(pair) = queue.take() {
            if pair.is_trivially_empty(*pairs.planned.join_type()) {
                continue;
            }
            let build = if has_run_ends(&pairs.planned) {
                Side::Left
            } else {
                pair.smaller()
            };
            if let Some(rows) = pairs.build(&pair, build).await? {
                let joined = multi_pass::single_pass(pairs, &pair, build, rows).await?;
                return Ok(Some(joined));
            }
            if !pair.can_split(build) {
                return Ok(Some(multi_pass::multi_pass(pairs, pair, build)));
            }
            queue.extend(pairs.split(&pair).await?);
        }
        Ok(None)
    }
}
