//! The batches of the probe side in one queue, from which all probe streams take.
//!
//! ```text
//!  partition 0 ─ task ─┐                       ┌─▶ stream 0
//!  partition 1 ─ task ─┼─▶ [batch] [batch] … ──┼─▶ stream 1      a batch goes to
//!  partition 2 ─ task ─┘   a few per stream    └─▶ stream 2      whoever asks first
//! ```
//!
//! The partitions of a scan can differ much: statistics and filters may leave the row groups of a few
//! partitions only. If each stream probed one partition, a few streams would also aggregate and sort
//! whatever the join returns, while the other cores wait. `HashJoinExec` avoids that as it
//! repartitions both sides by the keys. A table that all streams look up needs no such partitions,
//! so that batches can stay whole.
//!
//! A `RepartitionExec` with round robin was not chosen: it hands out batches regardless of which
//! stream has time for them, and keeps as many as it is sent.

use std::sync::{Arc, OnceLock};

use arrow::array::RecordBatch;
use async_channel::{Receiver, Sender, bounded};
use datafusion::common::runtime::{JoinSet, SpawnedTask};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;
use tracing::Instrument;

use crate::parallel::task_failed;

/// Batches that the queue holds for each stream. There is more than one, so that every stream finds
/// a batch although another one was woken for it and is not polled.
const BATCHES_PER_STREAM: usize = 2;

/// One stream's end of the queue.
struct QueueEnd {
    batches: Receiver<RecordBatch>,
    /// The error of a partition, which all streams return.
    failure: Failure,
    /// Reads the partitions. It is stopped with the last stream.
    _reader: Arc<SpawnedTask<()>>,
}

type Failure = Arc<OnceLock<Arc<DataFusionError>>>;

/// Returns `streams` streams that share the batches of `partitions`. Each batch is in one of them.
/// An error of a partition ends all of them.
pub fn share(
    partitions: Vec<SendableRecordBatchStream>,
    streams: usize,
) -> Vec<SendableRecordBatchStream> {
    let Some(schema) = partitions.first().map(|partition| partition.schema()) else {
        return Vec::new();
    };
    let (queue, batches) = bounded((BATCHES_PER_STREAM * streams).max(1));
    let failure = Failure::default();
    let reading = read_all(partitions, queue, Arc::clone(&failure));
    let reader = Arc::new(SpawnedTask::spawn(reading.in_current_span()));
    let end = |_| {
        let end = QueueEnd {
            batches: batches.clone(),
            failure: Arc::clone(&failure),
            _reader: Arc::clone(&reader),
        };
        let batches = futures::stream::try_unfold(end, |end| async {
            Ok(end.next().await?.map(|batch| (batch, end)))
        });
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches)) as _
    };
    (0..streams).map(end).collect()
}

impl QueueEnd {
    async fn next(&self) -> Result<Option<RecordBatch>> {
        match (self.batches.recv().await, self.failure.get()) {
            (Ok(batch), _) => Ok(Some(batch)),
            (Err(_), Some(failure)) => Err(DataFusionError::Shared(Arc::clone(failure))),
            (Err(_), None) => Ok(None),
        }
    }
}

/// Sends the batches of all `partitions` to `queue`, a task for each. The queue is closed at the
/// end, or after the first error.
async fn read_all(
    partitions: Vec<SendableRecordBatchStream>,
    queue: Sender<RecordBatch>,
    failure: Failure,
) {
    let mut tasks = JoinSet::new();
    for partition in partitions {
        tasks.spawn(read(partition, queue.clone()).in_current_span());
    }
    while let Some(ended) = tasks.join_next().await {
        let outcome = ended.map_err(|error| task_failed(&error).into());
        if let Err(error) = outcome.flatten() {
            // The first one counts.
            let _ = failure.set(Arc::new(error));
            break;
        }
    }
    queue.close();
}

async fn read(mut partition: SendableRecordBatchStream, queue: Sender<RecordBatch>) -> Result<()> {
    while let Some(batch) = partition.try_next().await? {
        if queue.send(batch).await.is_err() {
            break;
        }
    }
    Ok(())
}
