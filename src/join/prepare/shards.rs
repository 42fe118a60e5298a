//! A build side for which no single device has room, in shards: one per device.
//!
//! ```text
//!  build rows ─ cut by position ─▶ shard 0 ─▶ table on 0:0 ─▶ rows ┐
//!                                  shard 1 ─▶ table on 0:1 ─▶ rows ┴▶ stream p
//!                                    ▲
//!  probe stream p ─ every batch ─────┘ to each shard
//! ```
//!
//! In an inner join, what a build row emits depends on that row and the probe side alone. The same
//! holds for joins that emit build rows. Their rows are those of all shards together.
//! A probe row without a match is known only once all shards were asked. Joins that emit such rows
//! have no shards. Neither have joins whose plan promises an order, which rows of several shards do
//! not follow. Those the host joins.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::JoinType;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use futures::StreamExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::join::input::build_batches::empty_stream;
use crate::join::properties::promised_ordering;

/// Batches of the probe side that a shard may be behind another.
const SHARD_LAG_BATCHES: usize = 4;

/// Returns whether `join`, which builds its left side, may run in shards. A join whose sides are
/// swapped (`is_swapped`) promises no order.
pub fn can_shard(join: &HashJoinExec, is_swapped: bool) -> bool {
    use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi};
    let by_build_row = matches!(
        join.join_type(),
        Inner | Left | LeftSemi | LeftAnti | LeftMark
    );
    let promises_order = !is_swapped && promised_ordering(join).is_some();
    by_build_row && !promises_order && join.fetch().is_none()
}

/// Merges the rows of all shards, stream by stream.
pub struct Shards {
    /// The join's output.
    schema: SchemaRef,
    /// The probe side's streams, each to be taken once.
    feeds: Vec<Mutex<Option<Broadcaster>>>,
}

impl Shards {
    /// Returns the streams of `probe` once for each of `shards` shards, and the merger of the joins
    /// that read them. The rows of these joins have `schema`.
    pub fn new(
        probe: Vec<SendableRecordBatchStream>,
        shards: usize,
        schema: SchemaRef,
    ) -> (Self, Vec<Vec<SendableRecordBatchStream>>) {
        let mut streams: Vec<Vec<_>> = (0..shards).map(|_| Vec::new()).collect();
        let mut feeds = Vec::with_capacity(probe.len());
        for input in probe {
            let mut outputs = Vec::with_capacity(shards);
            for copies in &mut streams {
                let (output, batches) = channel(SHARD_LAG_BATCHES);
                outputs.push(output);
                let batches =
                    futures::stream::unfold(batches, |mut batches: Receiver<_>| async move {
                        Some((batches.recv().await?, batches))
                    });
                let schema = input.schema();
                copies.push(Box::pin(RecordBatchStreamAdapter::new(schema, batches)) as _);
            }
            feeds.push(Mutex::new(Some(Broadcaster { input, outputs })));
        }
        (Self { schema, feeds }, streams)
    }

    /// Returns the rows of stream `at`, which `joined` has shard by shard: none if the
    /// probe side has fewer streams, and none after an error.
    pub fn stream(
        &self,
        joined: Vec<SendableRecordBatchStream>,
        at: usize,
    ) -> SendableRecordBatchStream {
        let feed = self.feeds.get(at).and_then(|feed| {
            let mut feed = feed.lock().unwrap_or_else(PoisonError::into_inner);
            feed.take()
        });
        let Some(feed) = feed else {
            return empty_stream(&self.schema);
        };
        let schema = Arc::clone(&self.schema);
        // A task per shard: the host encodes keys for all devices at once.
        let mut rows = RecordBatchReceiverStream::builder(Arc::clone(&schema), joined.len());
        for stream in joined {
            let output = rows.tx();
            rows.spawn(forward(stream, vec![output]));
        }
        rows.spawn(forward(feed.input, feed.outputs));
        let rows = futures::stream::unfold(Some(rows.build()), |rows| async {
            let mut rows = rows?;
            let batch = rows.next().await?;
            let rest = batch.is_ok().then_some(rows);
            Some((batch, rest))
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

/// A stream of the probe side, with the channels that get each of its batches.
struct Broadcaster {
    input: SendableRecordBatchStream,
    outputs: Vec<Sender<Result<RecordBatch>>>,
}

/// Sends each batch of `input` to all `outputs` that are still read.
async fn forward(
    mut input: SendableRecordBatchStream,
    mut outputs: Vec<Sender<Result<RecordBatch>>>,
) -> Result<()> {
    while let Some(batch) = input.next().await {
        let batch = batch.map_err(Arc::new);
        let mut read = Vec::with_capacity(outputs.len());
        for output in outputs {
            let batch = batch.clone().map_err(DataFusionError::Shared);
            if output.send(batch).await.is_ok() {
                read.push(output);
            }
        }
        outputs = read;
        if outputs.is_empty() || batch.is_err() {
            break;
        }
    }
    Ok(())
}
