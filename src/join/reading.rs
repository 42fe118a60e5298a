//! One input of a join, read as far as was asked for and kept.
//!
//! ```text
//!  part 0 ▓▓▓▓▓▓▓▓▓░░░░░░        a turn reads all parts side by side, until
//!  part 1 ▓▓▓▓▓┃                   Ended    every part has ended
//!  part 2 ▓▓▓▓▓▓▓▓▓▓▓░░░░          Full     so many rows are there
//!                                  Refused  the memory pool has no room for more
//!
//!  into_build   ─▶ all batches, and what they reserve
//!  into_streams ─▶ a stream a part: the kept batches, then the rest
//! ```
//!
//! A join learns which side is smaller by reading both. Nothing is read twice: the side that is not
//! built is probed from its first batch on, and gives back the memory of each batch that it hands
//! out.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use futures::future::{Either, select};
use tokio::sync::watch;

use crate::error::{Error, Result};

use super::parts::task_failed;

/// How a turn ended.
#[derive(Debug)]
pub enum Turn {
    /// All rows are there.
    Ended,
    /// As many rows are there as were asked for.
    Full,
    /// The memory pool refused a batch, which is kept, and asked for again by the next turn.
    Refused(Error),
    /// The input failed: whoever reads its rows to their end meets the error.
    Failed,
}

/// An input of a join.
pub struct Reading {
    schema: SchemaRef,
    parts: Vec<Part>,
    kept: Arc<Kept>,
}

/// What all parts have of an input.
struct Kept {
    rows: AtomicUsize,
    batches: AtomicUsize,
    /// Batches can be slices of one larger batch, whose buffers count once.
    counter: Mutex<RecordBatchMemoryCounter>,
    memory: MemoryReservation,
}

#[derive(Default)]
struct Part {
    /// `None` once it has ended.
    stream: Option<SendableRecordBatchStream>,
    /// Batches with rows, and the bytes that they reserve.
    batches: VecDeque<(RecordBatch, usize)>,
    /// A batch that the pool refused, and its bytes.
    refused: Option<(RecordBatch, usize)>,
    /// What ended the stream.
    error: Option<DataFusionError>,
}

/// All rows of an input.
pub struct Collected {
    /// Batches with rows.
    pub batches: Vec<RecordBatch>,
    /// Their rows.
    pub rows: usize,
    /// How many batches there were, those without rows included.
    pub input_batches: usize,
    /// Bytes of the batches.
    pub bytes: usize,
    /// What counted them.
    pub counter: RecordBatchMemoryCounter,
    /// What they reserve.
    pub memory: MemoryReservation,
}

impl Reading {
    /// Nothing read yet of `streams`; what is kept is reserved under `memory`.
    pub fn new(
        schema: SchemaRef,
        streams: Vec<SendableRecordBatchStream>,
        memory: MemoryReservation,
    ) -> Self {
        let part = |stream| Part {
            stream: Some(stream),
            ..Part::default()
        };
        Self {
            schema,
            parts: streams.into_iter().map(part).collect(),
            kept: Arc::new(Kept {
                rows: AtomicUsize::new(0),
                batches: AtomicUsize::new(0),
                counter: Mutex::new(RecordBatchMemoryCounter::new()),
                memory,
            }),
        }
    }

    /// Reads on until `rows` rows are there in all, or the input has ended.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a task panics.
    pub async fn turn(&mut self, rows: usize) -> Result<Turn> {
        let (stop, stopped) = watch::channel(false);
        let stop = Arc::new(stop);
        let read = |part: Part| {
            let turn = Reader {
                kept: Arc::clone(&self.kept),
                rows,
                stop: Arc::clone(&stop),
                stopped: stopped.clone(),
            };
            turn.read(part)
        };
        let parts = std::mem::take(&mut self.parts);
        let mut refused = None;
        if let [_] = parts.as_slice() {
            for part in parts {
                let (part, error) = read(part).await;
                self.parts.push(part);
                refused = refused.or(error);
            }
        } else {
            let tasks: Vec<_> = parts
                .into_iter()
                .map(|part| SpawnedTask::spawn(read(part)))
                .collect();
            for task in tasks {
                let (part, error) = task.join().await.map_err(|e| task_failed(&e))?;
                self.parts.push(part);
                refused = refused.or(error);
            }
        }
        Ok(match refused {
            _ if self.parts.iter().any(|part| part.error.is_some()) => Turn::Failed,
            Some(error) => Turn::Refused(error.into()),
            None if self.parts.iter().all(Part::has_ended) => Turn::Ended,
            None => Turn::Full,
        })
    }

    /// Rows that are kept.
    pub fn rows(&self) -> usize {
        self.kept.rows.load(Ordering::Acquire)
    }

    /// The error that ended a part, if one did.
    pub fn take_error(&mut self) -> Option<Error> {
        let error = self.parts.iter_mut().find_map(|part| part.error.take());
        error.map(Error::DataFusion)
    }

    /// All rows of an input that has ended.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is still read.
    pub fn into_build(self) -> Result<Collected> {
        let kept = Arc::into_inner(self.kept)
            .ok_or_else(|| Error::Invalid("a build side that is still read".to_owned()))?;
        let parts = self.parts.into_iter();
        let batches = parts.flat_map(|part| part.batches);
        let (batches, bytes): (Vec<_>, Vec<usize>) = batches.unzip();
        let counter = kept.counter.into_inner();
        Ok(Collected {
            batches,
            rows: kept.rows.into_inner(),
            input_batches: kept.batches.into_inner(),
            bytes: bytes.iter().sum(),
            counter: counter.unwrap_or_else(PoisonError::into_inner),
            memory: kept.memory,
        })
    }

    /// The input's rows as streams, one a part.
    pub fn into_streams(self) -> Vec<SendableRecordBatchStream> {
        let (schema, kept) = (self.schema, self.kept);
        let streams = self.parts.into_iter().map(|mut part| {
            let refused = part.refused.take().map(|(batch, _)| (batch, 0));
            part.batches.extend(refused);
            match part.batches.is_empty() && part.error.is_none() {
                true => part.stream.unwrap_or_else(|| nothing(&schema)),
                false => part.into_stream(&schema, Arc::clone(&kept)),
            }
        });
        streams.collect()
    }
}

/// A stream without rows.
pub fn nothing(schema: &SchemaRef) -> SendableRecordBatchStream {
    let none = futures::stream::empty();
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), none))
}

impl Part {
    fn has_ended(&self) -> bool {
        self.stream.is_none() && self.refused.is_none()
    }

    fn into_stream(self, schema: &SchemaRef, kept: Arc<Kept>) -> SendableRecordBatchStream {
        let error = futures::stream::iter(self.error.map(Err));
        let rest = self.stream.unwrap_or_else(|| nothing(schema));
        let batches = futures::stream::iter(self.batches).map(move |(batch, bytes)| {
            kept.memory.shrink(bytes);
            Ok(batch)
        });
        let stream = batches.chain(error).chain(rest);
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), stream))
    }
}

/// One turn, as a part sees it.
struct Reader {
    kept: Arc<Kept>,
    /// Rows of the input at which the turn ends.
    rows: usize,
    stop: Arc<watch::Sender<bool>>,
    stopped: watch::Receiver<bool>,
}

impl Reader {
    /// Reads `part`; with the pool's error, if it refused a batch.
    async fn read(mut self, mut part: Part) -> (Part, Option<DataFusionError>) {
        loop {
            if let Some((batch, bytes)) = part.refused.take() {
                if let Err(error) = self.kept.memory.try_grow(bytes) {
                    part.refused = Some((batch, bytes));
                    self.stop.send_replace(true);
                    return (part, Some(error));
                }
                self.kept.rows.fetch_add(batch.num_rows(), Ordering::AcqRel);
                part.batches.push_back((batch, bytes));
            }
            if self.kept.rows.load(Ordering::Acquire) >= self.rows {
                self.stop.send_replace(true);
            }
            let Some(stream) = part.stream.as_mut().filter(|_| !*self.stopped.borrow()) else {
                return (part, None);
            };
            let stopped = std::pin::pin!(self.stopped.wait_for(|stopped| *stopped));
            let next = match select(stream.next(), stopped).await {
                Either::Left((next, _)) => next,
                // The others have what was asked for; nothing of the stream is lost.
                Either::Right(_) => continue,
            };
            match next {
                Some(Ok(batch)) => {
                    self.kept.batches.fetch_add(1, Ordering::AcqRel);
                    if batch.num_rows() > 0 {
                        let bytes = self.kept.bytes_of(&batch);
                        part.refused = Some((batch, bytes));
                    }
                }
                Some(Err(error)) => {
                    (part.stream, part.error) = (None, Some(error));
                    self.stop.send_replace(true);
                }
                None => part.stream = None,
            }
        }
    }
}

impl Kept {
    fn bytes_of(&self, batch: &RecordBatch) -> usize {
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        counter.count_batch(batch)
    }
}
