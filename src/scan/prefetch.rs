//! Rows of a scan of files that are read before its filters are complete.
//!
//! ```text
//!  a join begins ─▶ begin: a task per partition reads ───┐
//!                                                        ▼
//!  filters come ──▶ execute(p) ─▶ take: what was read, then the rest ─▶ filters ─▶ rows
//! ```
//!
//! A join opens an input when the filters of other joins that reach it are complete. Until then
//! nothing is known of its rows, but they can be decoded. That needs no filter, as none leaves out
//! single rows below this node. A plan of many joins would otherwise decode one small table after
//! the other, each on one core. DataFusion's `CoalescePartitionsExec` reads ahead, too, below the
//! build sides of its joins.
//!
//! Reading ahead is a bet. A filter may leave out a whole file, and a query may end before it needs
//! the rows. So only tables of a bounded size are read, and only where memory has no limit.
//!
//! The partitions of a scan take its files from one queue. Rows that were read ahead and dropped
//! would be missing in a later execution. So a copy of the scan is read, with a queue of its own.
//! Partitions of the copy and of the scan must not be mixed: either execution that may take some of
//! them holds the others, too.
//!
//! A scan prunes by its filters as soon as it is opened. So each join that sets one of them begins
//! its execution before, as that sets the filter back from the execution before.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricCategory,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::stream::Fuse;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::runtime::Handle;
use tracing::{Instrument, trace_span};

use crate::parallel::task_failed;
use crate::plan_nodes::file_source;

/// What is read ahead of a scan, while some execution holds it.
#[derive(Default)]
pub struct Prefetch(Mutex<Weak<Reads>>);

impl std::fmt::Debug for Prefetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_begun = self.held().is_some();
        f.debug_struct("Prefetch")
            .field("has_begun", &has_begun)
            .finish()
    }
}

/// A hold on rows that are read ahead. The reads end with the last hold.
#[derive(Clone)]
pub struct PrefetchGuard {
    _reads: Arc<Reads>,
}

impl std::fmt::Debug for PrefetchGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefetchGuard").finish_non_exhaustive()
    }
}

/// The reads that nobody took yet, by partition.
struct Reads(Mutex<Vec<Option<Read>>>);

/// The read of a partition.
struct Read {
    schema: SchemaRef,
    task: SpawnedTask<ReadAhead>,
    /// True once somebody waits for it: nothing more is read ahead.
    is_wanted: Arc<AtomicBool>,
}

/// How much all partitions together may still read ahead.
struct Allowance {
    rows: AtomicUsize,
    bytes: AtomicUsize,
}

/// The first rows of a partition, and the stream of the others.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prefetch {
    fn held(&self) -> Option<Arc<Reads>> {
        lock(&self.0).upgrade()
    }

    /// Returns a hold on the rows that are read ahead, for an execution that will take them.
    pub fn hold(&self) -> Option<PrefetchGuard> {
        let reads = self.held()?;
        Some(PrefetchGuard { _reads: reads })
    }

    /// Begins to read `scan` under `context`, up to about so many rows and bytes. They are counted
    /// in `metrics`. Returns a hold on that; `None` if it is being read already, or cannot be read
    /// ahead.
    pub fn begin(
        &self,
        scan: &Arc<dyn ExecutionPlan>,
        (rows, bytes): (usize, usize),
        context: &Arc<TaskContext>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Option<PrefetchGuard> {
        let is_of_files = scan.downcast_ref::<DataSourceExec>().and_then(file_source);
        let pool = context.memory_pool();
        let is_limited = !matches!(pool.memory_limit(), MemoryLimit::Infinite);
        if is_of_files.is_none() || is_limited || Handle::try_current().is_err() {
            return None;
        }
        if self.held().is_some() {
            return None;
        }
        // An error is met again when the scan is executed.
        let copy = Arc::clone(scan).reset_state().ok()?;
        let all = 0..scan.output_partitioning().partition_count();
        let streams = all.map(|partition| copy.execute(partition, Arc::clone(context)));
        let streams: Vec<_> = streams.collect::<Result<_, _>>().ok()?;
        let allowance = Arc::new(Allowance {
            rows: AtomicUsize::new(rows),
            bytes: AtomicUsize::new(bytes),
        });
        let begin = |(partition, stream): (usize, SendableRecordBatchStream)| {
            let name = format!("DynamicFilterExec[{partition}]: prefetch");
            let ahead = ReadAhead {
                batches: Vec::new(),
                memory: MemoryConsumer::new(name).register(pool),
                counter: MetricBuilder::new(metrics)
                    .with_category(MetricCategory::Rows)
                    .counter("prefetched_rows", partition),
                error: None,
                rest: stream.fuse(),
            };
            Some(Read::begin(ahead, copy.schema(), Arc::clone(&allowance)))
        };
        let reads = streams.into_iter().enumerate().map(begin).collect();
        let reads = Arc::new(Reads(Mutex::new(reads)));
        *lock(&self.0) = Arc::downgrade(&reads);
        Some(PrefetchGuard { _reads: reads })
    }

    /// Returns the rows of `partition`, if they are read ahead and nobody took them.
    pub fn take(&self, partition: usize) -> Option<SendableRecordBatchStream> {
        let reads = self.held()?;
        let read = lock(&reads.0).get_mut(partition)?.take()?;
        Some(read.into_stream())
    }
}

impl Read {
    fn begin(ahead: ReadAhead, schema: SchemaRef, allowance: Arc<Allowance>) -> Self {
        let is_wanted = Arc::new(AtomicBool::new(false));
        let read = ahead.read(allowance, Arc::clone(&is_wanted));
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
            let read = task.join().await.map_err(|e| task_failed(&e))?;
            Ok::<_, DataFusionError>(read.into_rows())
        };
        let rows = futures::stream::once(rows).try_flatten();
        let stream = RecordBatchStreamAdapter::new(self.schema, rows);
        // Batches that are there come without a pause.
        make_cooperative(Box::pin(stream))
    }
}

impl Allowance {
    fn is_used(&self) -> bool {
        let is_zero = |left: &AtomicUsize| left.load(Ordering::Relaxed) == 0;
        is_zero(&self.rows) || is_zero(&self.bytes)
    }

    fn note(&self, rows: usize, bytes: usize) {
        for (left, used) in [(&self.rows, rows), (&self.bytes, bytes)] {
            let less = |left: usize| Some(left.saturating_sub(used));
            let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

impl ReadAhead {
    /// Reads until the rows are wanted, or the allowance is used.
    async fn read(mut self, allowance: Arc<Allowance>, is_wanted: Arc<AtomicBool>) -> Self {
        // Batches can be slices of one larger batch, whose buffers count once.
        let mut bytes = RecordBatchMemoryCounter::new();
        while !allowance.is_used() && !is_wanted.load(Ordering::Acquire) {
            match self.rest.next().await {
                Some(Ok(batch)) => {
                    let bytes = bytes.count_batch(&batch);
                    allowance.note(batch.num_rows(), bytes);
                    self.counter.add(batch.num_rows());
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
