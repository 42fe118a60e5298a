//! The input of one probe partition, read ahead while the table is built.
//!
//! ```text
//!  build   ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓ one core, or the device
//!  input   ▒▒▒▒▒▒ until a first chunk's rows are there     ▒▒▒ ▒▒▒ a chunk at a time
//!
//!  put back ─┐
//!  ahead ────┼─▶ the next batch
//!  stream ───┘
//! ```
//!
//! A build has long moments in which one core is busy or the device is: scans and filters of the probe side use them, if
//! nothing is lost by it. Not so where they would miss the join's dynamic filter; where a LIMIT may need no more than a
//! few rows; or where some node below keeps rows of its own (another join, a sort, an aggregate, a repartition by hash, which
//! keeps what slower partitions do not take yet), as its memory would be added to what the build needs. What is read counts as input when it is taken, and an error is
//! met then: a build side without rows hides it, as in the stock join, which reads nothing ahead.

use std::collections::VecDeque;

use arrow::array::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use futures::{FutureExt, TryStreamExt};

use crate::join::metrics::JoinMetrics;

/// Batches of the probe side, in order.
pub struct Input {
    /// `None` once it has ended.
    stream: Option<SendableRecordBatchStream>,
    /// What comes before the stream's batches, perhaps with the error that ended it.
    ahead: VecDeque<Result<RecordBatch>>,
    /// What comes before those: it was taken before.
    back: VecDeque<RecordBatch>,
    metrics: JoinMetrics,
}

/// Whether all nodes of `plan` hand on what they read, as scans, filters and projections do.
pub fn streams(plan: &dyn ExecutionPlan) -> bool {
    let children = plan.children();
    let keeps = plan.is::<RepartitionExec>()
        && !matches!(plan.output_partitioning(), Partitioning::RoundRobinBatch(_));
    plan.pipeline_behavior() == EmissionType::Incremental
        && !keeps
        && children.len() <= 1
        && children.into_iter().all(|child| streams(child.as_ref()))
}

impl Input {
    /// The batches of `stream`.
    pub fn new(stream: SendableRecordBatchStream, metrics: JoinMetrics) -> Self {
        Self {
            stream: Some(stream),
            ahead: VecDeque::new(),
            back: VecDeque::new(),
            metrics,
        }
    }

    /// Reads until `rows` rows are there, or the stream has ended. Nothing is lost if the future is dropped.
    pub async fn read_ahead(&mut self, rows: usize) {
        let mut left = rows;
        while left > 0
            && let Some(stream) = &mut self.stream
        {
            let next = stream.try_next().await;
            match &next {
                Ok(Some(batch)) => left = left.saturating_sub(batch.num_rows()),
                Ok(None) | Err(_) => self.stream = None,
            }
            self.ahead.extend(next.transpose());
        }
    }

    /// The next batch with rows; only what is at hand unless it `waits`. `None` at the end, or if there is none at
    /// hand.
    pub async fn next(&mut self, waits: bool) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.back.pop_front() {
            return Ok(Some(batch));
        }
        while let Some(batch) = self.next_of_any_size(waits).await? {
            self.metrics.input_batches.add(1);
            self.metrics.input_rows.add(batch.num_rows());
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    async fn next_of_any_size(&mut self, waits: bool) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.ahead.pop_front() {
            return batch.map(Some);
        }
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let next = match waits {
            true => stream.try_next().await,
            false => match stream.try_next().now_or_never() {
                Some(next) => next,
                None => return Ok(None),
            },
        };
        if !matches!(next, Ok(Some(_))) {
            self.stream = None;
        }
        next
    }

    /// Makes `batch` the next one.
    pub fn put_back(&mut self, batch: RecordBatch) {
        self.back.push_front(batch);
    }

    /// Whether there may be more batches.
    pub fn has_more(&self) -> bool {
        self.stream.is_some() || !self.ahead.is_empty() || !self.back.is_empty()
    }

    /// Ends it: nothing more is wanted.
    pub fn close(&mut self) {
        self.stream = None;
        self.ahead.clear();
        self.back.clear();
    }
}
