//! A build side for which no single device has room, in shares: one a device.
//!
//! ```text
//!  build rows ─ cut by position ─▶ share 0 ─▶ table on 0:0 ─▶ rows ┐
//!                                  share 1 ─▶ table on 0:1 ─▶ rows ┴▶ stream p
//!                                    ▲
//!  probe stream p ─ every batch ─────┘ to each share
//! ```
//!
//! The rows of a join are those of its shares together wherever a build row's part in them depends
//! on that row and the probe side alone. So it is with inner joins and those that emit build rows.
//! A join that emits probe rows without a match asks all shares at once, and goes to buckets
//! ([`spill`](crate::join::spill)).
//!
//! Buckets would do for all join types, but the host scatters both sides for them. That takes
//! longer than to encode the probe keys once a device.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use datafusion::common::JoinType;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use futures::StreamExt;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::error::Result;
use crate::join::collect::collected::empty_stream;

use super::order::promised;
use super::oriented::OrientedJoin;

/// Batches of the probe side that a share may be behind another.
const BEHIND: usize = 4;

type Batch = Result<RecordBatch, DataFusionError>;

/// Returns whether the rows of `join`, which builds its left side, are those of its shares together.
pub fn can_share(join: &HashJoinExec) -> bool {
    use JoinType::{Inner, Left, LeftAnti, LeftMark, LeftSemi};
    let by_build_row = matches!(
        join.join_type(),
        Inner | Left | LeftSemi | LeftAnti | LeftMark
    );
    by_build_row && join.fetch().is_none()
}

/// What makes the rows of all shares one stream.
pub struct Shares {
    oriented: OrientedJoin,
    /// Whether the join's plan may promise an order.
    is_ordered: bool,
    /// The probe side's streams, each to be taken once.
    feeds: Vec<Mutex<Option<Feed>>>,
}

/// Copies of the probe side's streams.
pub struct Copies {
    /// For each share: its copies.
    pub streams: Vec<Vec<SendableRecordBatchStream>>,
    /// What fills them.
    feeds: Vec<Feed>,
}

impl Copies {
    /// Returns the streams of `probe` once for each of `shares` shares.
    pub fn of(probe: Vec<SendableRecordBatchStream>, shares: usize) -> Self {
        let mut streams: Vec<Vec<_>> = (0..shares).map(|_| Vec::new()).collect();
        let mut feeds = Vec::with_capacity(probe.len());
        for input in probe {
            let mut outputs = Vec::with_capacity(shares);
            for copies in &mut streams {
                let (output, batches) = channel(BEHIND);
                outputs.push(output);
                let batches =
                    futures::stream::unfold(batches, |mut batches: Receiver<Batch>| async move {
                        Some((batches.recv().await?, batches))
                    });
                let schema = input.schema();
                copies.push(Box::pin(RecordBatchStreamAdapter::new(schema, batches)) as _);
            }
            feeds.push(Feed { input, outputs });
        }
        Self { streams, feeds }
    }

    /// Returns what joins the shares of `oriented`, which read these copies.
    pub fn into_shares(self, oriented: OrientedJoin, is_ordered: bool) -> Shares {
        let feeds = self.feeds.into_iter().map(|feed| Mutex::new(Some(feed)));
        Shares {
            oriented,
            is_ordered,
            feeds: feeds.collect(),
        }
    }
}

impl Shares {
    /// Returns the rows of stream `at`, for output partition `partition`, which `joined` has share
    /// by share. There are none if the probe side has fewer streams.
    ///
    /// # Errors
    /// If the promised order cannot be restored.
    pub fn stream(
        &self,
        joined: Vec<SendableRecordBatchStream>,
        at: usize,
        partition: usize,
    ) -> Result<SendableRecordBatchStream> {
        let feed = self.feeds.get(at).and_then(|feed| {
            let mut feed = feed.lock().unwrap_or_else(PoisonError::into_inner);
            feed.take()
        });
        let schema = self.oriented.output().schema;
        let Some(feed) = feed else {
            return Ok(empty_stream(&schema));
        };
        // A task a share: the host encodes keys for all devices at once.
        let mut rows = RecordBatchReceiverStream::builder(schema, joined.len());
        for stream in joined {
            let output = rows.tx();
            rows.spawn(forward(stream, vec![output]));
        }
        rows.spawn(forward(feed.input, feed.outputs));
        let rows = rows.build();
        if !self.is_ordered {
            return Ok(rows);
        }
        let context = self.oriented.context();
        Ok(promised(self.oriented.join(), rows, context, partition)?)
    }
}

/// A stream of the probe side, and where each batch of it goes.
struct Feed {
    input: SendableRecordBatchStream,
    outputs: Vec<Sender<Batch>>,
}

/// Sends each batch of `input` to all `outputs` that are still read.
async fn forward(
    mut input: SendableRecordBatchStream,
    mut outputs: Vec<Sender<Batch>>,
) -> Result<(), DataFusionError> {
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
