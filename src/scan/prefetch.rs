//! Rows of a scan that are read before its filters are there.
//!
//! ```text
//!  a join begins ─▶ begin: a task per partition reads ───┐
//!                                                        ▼
//!  filters come ──▶ execute(p) ─▶ take: what was read, then the rest ─▶ filters ─▶ rows
//! ```
//!
//! A join opens an input when the filters of other joins that reach it are there. Until then
//! nothing is known of its rows, but they can be decoded. That needs no filter, as none leaves out
//! single rows below this node. A plan of many joins would otherwise decode one small table after
//! the other, each on one core. DataFusion's `CoalescePartitionsExec` reads ahead, too, below the
//! build sides of its joins.
//!
//! What is read ahead is a bet. A filter may leave out a whole file, and a query may end before it
//! needs the rows. So only tables of a bounded number of rows are read, and only where memory has
//! no limit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::exec_datafusion_err;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::stream::Fuse;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::runtime::Handle;
use tracing::{Instrument, trace_span};

/// What is read ahead of a scan. It is for whoever executes the scan next, under whatever context:
/// partitions of a scan of files share its files, so no second stream would have the same rows.
#[derive(Default)]
pub struct Prefetch(Mutex<Option<Partitions>>);

impl std::fmt::Debug for Prefetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_begun = self.lock().is_some();
        f.debug_struct("Prefetch")
            .field("has_begun", &has_begun)
            .finish()
    }
}

/// The partitions that nobody took yet.
type Partitions = Vec<Option<Read>>;

/// The read of a partition.
struct Read {
    schema: SchemaRef,
    task: SpawnedTask<ReadAhead>,
    /// True once somebody waits for it: nothing more is read ahead.
    is_wanted: Arc<AtomicBool>,
}

/// The first rows of a partition, and what comes after them.
struct ReadAhead {
    batches: Vec<(RecordBatch, usize)>,
    /// The memory of these batches.
    memory: MemoryReservation,
    /// Their rows.
    counter: Count,
    error: Option<DataFusionError>,
    /// The stream that they came from.
    rest: Fuse<SendableRecordBatchStream>,
}

/// Ends a prefetch when it is dropped, as far as nobody took its rows.
#[derive(Debug)]
pub struct PrefetchGuard(Arc<Prefetch>);

impl Drop for PrefetchGuard {
    fn drop(&mut self) {
        let untaken = self.0.lock().take();
        // Rows go without the lock.
        drop(untaken);
    }
}

impl Prefetch {
    fn lock(&self) -> MutexGuard<'_, Option<Partitions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read `scan` under `context`: of each partition `rows` rows, and the rest of their
    /// batch. They are counted in `metrics`. Returns what ends that; `None` if it is being read
    /// already, or cannot be read ahead.
    pub fn begin(
        self: &Arc<Self>,
        scan: &Arc<dyn ExecutionPlan>,
        rows: usize,
        context: &Arc<TaskContext>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Option<PrefetchGuard> {
        let pool = context.memory_pool();
        let is_limited = !matches!(pool.memory_limit(), MemoryLimit::Infinite);
        if is_limited || Handle::try_current().is_err() {
            return None;
        }
        let mut partitions = self.lock();
        if partitions.is_some() {
            return None;
        }
        let all = 0..scan.output_partitioning().partition_count();
        // An error is met again when the scan is executed.
        let streams = all.map(|partition| scan.execute(partition, Arc::clone(context)));
        let streams: Vec<_> = streams.collect::<Result<_, _>>().ok()?;
        let begin = |(partition, stream)| {
            let name = format!("DynamicFilterExec[{partition}]: prefetch");
            let counter = MetricBuilder::new(metrics)
                .with_category(MetricCategory::Rows)
                .counter("prefetched_rows", partition);
            let memory = MemoryConsumer::new(name).register(pool);
            Some(Read::begin(stream, rows, memory, counter))
        };
        *partitions = Some(streams.into_iter().enumerate().map(begin).collect());
        Some(PrefetchGuard(Arc::clone(self)))
    }

    /// Returns the rows of `partition`, if they are read ahead and nobody took them.
    pub fn take(&self, partition: usize) -> Option<SendableRecordBatchStream> {
        let read = self.lock().as_mut()?.get_mut(partition)?.take()?;
        Some(read.into_stream())
    }
}

impl Read {
    fn begin(
        stream: SendableRecordBatchStream,
        rows: usize,
        memory: MemoryReservation,
        counter: Count,
    ) -> Self {
        let schema = stream.schema();
        let is_wanted = Arc::new(AtomicBool::new(false));
        let ahead = ReadAhead {
            batches: Vec::new(),
            memory,
            counter,
            error: None,
            rest: stream.fuse(),
        };
        let read = ahead.read(rows, Arc::clone(&is_wanted));
        Self {
            schema,
            task: SpawnedTask::spawn(read.instrument(trace_span!("prefetch"))),
            is_wanted,
        }
    }

    /// Returns the rows as a stream. Reading ahead ends with the batch that is under way.
    fn into_stream(self) -> SendableRecordBatchStream {
        self.is_wanted.store(true, Ordering::Release);
        let task = self.task;
        let rows = async {
            let read = task.join().await;
            let failed = |e| exec_datafusion_err!("reading a scan ahead failed: {e}");
            Ok::<_, DataFusionError>(read.map_err(failed)?.into_rows())
        };
        let rows = futures::stream::once(rows).try_flatten();
        Box::pin(RecordBatchStreamAdapter::new(self.schema, rows))
    }
}

impl ReadAhead {
    /// Reads `rows` rows, until they are wanted.
    async fn read(mut self, rows: usize, is_wanted: Arc<AtomicBool>) -> Self {
        while self.counter.value() < rows && !is_wanted.load(Ordering::Acquire) {
            match self.rest.next().await {
                Some(Ok(batch)) => {
                    self.counter.add(batch.num_rows());
                    let bytes = batch.get_array_memory_size();
                    self.memory.grow(bytes);
                    self.batches.push((batch, bytes));
                }
                Some(Err(error)) => {
                    self.error = Some(error);
                    break;
                }
                None => break,
            }
        }
        self
    }

    /// Returns all rows. Each batch gives its memory back when it goes on.
    fn into_rows(self) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> {
        let memory = self.memory;
        let batches = self.batches.into_iter().map(move |(batch, bytes)| {
            memory.shrink(bytes);
            Ok(batch)
        });
        let error = self.error.map(Err);
        futures::stream::iter(batches.chain(error)).chain(self.rest)
    }
}
