//! Rows of an input that are to be built, and what they reserve.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

/// Rows of an input that are to be built.
pub struct BuildBatches {
    /// Batches with rows.
    pub batches: Vec<RecordBatch>,
    /// Number of batches of each partition of the input, in order; empty if they are mixed.
    pub parts: Vec<usize>,
    /// Number of rows in the batches.
    pub rows: usize,
    /// Number of batches that there were, those without rows included.
    pub input_batches: usize,
    /// Bytes of the batches.
    pub bytes: usize,
    /// The counter of these bytes.
    pub counter: RecordBatchMemoryCounter,
    /// Memory that they reserve, with `table` bytes for a hash table on the host.
    pub memory: MemoryReservation,
    /// Bytes for that table.
    pub table: usize,
}

impl BuildBatches {
    /// Returns the rows in `parts` shards of about as many rows, in order, each with what they
    /// reserve.
    pub fn shards(self, parts: usize) -> Vec<Self> {
        let each = self.rows.div_ceil(parts.max(1)).max(1);
        let mut batches = self.batches.into_iter().peekable();
        let mut from = 0;
        let mut shards = Vec::with_capacity(parts);
        while batches.peek().is_some() {
            let (mut shard, mut rows) = (Vec::new(), 0);
            while rows < each
                && let Some(batch) = batches.peek()
            {
                let taken = (batch.num_rows() - from).min(each - rows);
                shard.push(batch.slice(from, taken));
                (rows, from) = (rows + taken, from + taken);
                if from == batch.num_rows() {
                    batches.next();
                    from = 0;
                }
            }
            shards.push((shard, rows));
        }
        let part_of = |bytes: usize, rows: usize| {
            (bytes as u128 * rows as u128 / self.rows.max(1) as u128) as usize
        };
        let reserved = self.memory.size();
        let last = shards.len().saturating_sub(1);
        let shards = shards.into_iter().enumerate();
        let shards = shards.map(|(at, (batches, rows))| Self {
            input_batches: if at == 0 { self.input_batches } else { 0 },
            bytes: part_of(self.bytes, rows),
            counter: counted(&batches),
            memory: if at == last {
                self.memory.split(self.memory.size())
            } else {
                self.memory.split(part_of(reserved, rows))
            },
            table: part_of(self.table, rows),
            batches,
            parts: Vec::new(),
            rows,
        });
        shards.collect()
    }

    /// Returns its rows, then those of `other`.
    pub fn append(mut self, other: Self) -> Self {
        self.memory.grow(other.memory.free());
        self.batches.extend(other.batches);
        self.parts.clear();
        self.rows += other.rows;
        self.input_batches += other.input_batches;
        self.bytes += other.bytes;
        self.table += other.table;
        self.counter = counted(&self.batches);
        self
    }

    /// Returns the rows twice: for a build that may fail, without their memory, and with it for
    /// what comes then.
    pub fn split_memory(self) -> (Self, Self) {
        let rows = Self {
            batches: self.batches.clone(),
            parts: self.parts.clone(),
            counter: self.counter,
            memory: self.memory.new_empty(),
            ..self
        };
        let kept = Self {
            counter: counted(&self.batches),
            ..self
        };
        (rows, kept)
    }
}

/// Returns a counter that knows the memory of `batches`.
pub fn counted(batches: &[RecordBatch]) -> RecordBatchMemoryCounter {
    let mut counter = RecordBatchMemoryCounter::new();
    for batch in batches {
        counter.count_batch(batch);
    }
    counter
}

/// Returns a stream without rows.
pub fn empty_stream(schema: &SchemaRef) -> SendableRecordBatchStream {
    let none = futures::stream::empty();
    Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), none))
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};

    use super::*;

    fn collected(rows: &[(i32, i32)]) -> BuildBatches {
        let batch = |rows: &(i32, i32)| {
            let keys: Int32Array = (rows.0..rows.1).collect();
            RecordBatch::try_from_iter([("k", Arc::new(keys) as _)]).unwrap()
        };
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let memory = MemoryConsumer::new("rows").register(&pool);
        memory.grow(1001);
        let batches: Vec<_> = rows.iter().map(batch).collect();
        BuildBatches {
            parts: Vec::new(),
            rows: batches.iter().map(RecordBatch::num_rows).sum(),
            input_batches: batches.len(),
            bytes: batches.iter().map(RecordBatch::get_array_memory_size).sum(),
            counter: counted(&batches),
            memory,
            table: 501,
            batches,
        }
    }

    fn keys(collected: &BuildBatches) -> Vec<i32> {
        let keys = collected.batches.iter().map(|batch| {
            let keys = batch.column(0).as_any().downcast_ref::<Int32Array>();
            keys.unwrap().values().to_vec()
        });
        keys.collect::<Vec<_>>().concat()
    }

    #[test]
    fn shards_have_all_rows_in_order_and_all_of_the_memory() {
        for (rows, parts) in [
            (vec![(0, 3), (3, 4), (4, 10)], 2),
            (vec![(0, 10)], 3),
            (vec![(0, 1), (1, 2), (2, 3)], 2),
            (vec![(0, 5), (5, 10)], 2),
            (vec![(0, 2)], 5),
        ] {
            let whole = collected(&rows);
            let (all, reserved, table) = (keys(&whole), whole.memory.size(), whole.table);
            let (bytes, batches) = (whole.bytes, whole.input_batches);
            let shards = whole.shards(parts);
            assert_eq!(shards.len(), parts.min(all.len()));
            assert_eq!(shards.iter().flat_map(keys).collect::<Vec<_>>(), all);
            let most = all.len().div_ceil(parts);
            assert!(
                shards
                    .iter()
                    .all(|s| s.rows <= most && s.rows == keys(s).len())
            );
            let sum = |of: fn(&BuildBatches) -> usize| shards.iter().map(of).sum::<usize>();
            assert_eq!(sum(|shard| shard.memory.size()), reserved);
            assert!(sum(|shard| shard.table) <= table && sum(|shard| shard.bytes) <= bytes);
            let again = shards.into_iter().reduce(BuildBatches::append).unwrap();
            assert_eq!(keys(&again), all);
            assert_eq!((again.rows, again.memory.size()), (all.len(), reserved));
            assert_eq!(again.input_batches, batches);
        }
    }
}
