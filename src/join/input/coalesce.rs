//! Small batches of a build side, made larger.
//!
//! ```text
//!  [1] [1] [1] … [1] [1] [8192] [8192] [3] [8192]
//!  └──── [8192] ───┘      as it came
//! ```
//!
//! All that a build does batch by batch (keys, encoding, numbering rows, gathering) is measured by
//! batches of thousands of rows. With tiny batches, this overhead dominates. Large batches are not
//! copied, nor are few: DataFusion's coalescing keeps them as they are, too, but copies all
//! that are shorter than half a batch.

use std::iter::{repeat, repeat_n};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use tracing::trace_span;

use crate::error::Result;

use crate::join::concat::concatenate::concatenate;
use crate::join::concat::size::{ARRAYS_MAX, Size};
use crate::join::input::build_batches::BuildBatches;
use crate::join::rows::BLOCK_ROWS;
use crate::parallel::map_parallel;

/// Rows of a batch that is made of small ones, at least, but where large ones stand between.
const COALESCED_ROWS_MIN: usize = 8 * BLOCK_ROWS;

/// Returns the rows `collected`, in larger batches if there are many of which some are small. They
/// stay as they are where there is no memory for that; `width` batches are made at a time.
///
/// # Errors
/// [`Error::DataFusion`](crate::error::Error::DataFusion) if a task panics.
pub async fn coalesce(mut collected: BuildBatches, width: usize) -> Result<BuildBatches> {
    if collected.batches.len() <= ARRAYS_MAX {
        return Ok(collected);
    }
    let groups = groups(std::mem::take(&mut collected.batches), &collected.parts);
    let bytes: usize = groups.iter().map(|group| group.bytes()).sum();
    if bytes == 0 || collected.memory.try_grow(bytes).is_err() {
        let batches = groups.into_iter().flat_map(|group| group.batches);
        collected.batches = batches.collect();
        return Ok(collected);
    }
    let parts: Vec<usize> = groups.iter().map(|group| group.part).collect();
    let merge = |group: Group| async move {
        let _work = trace_span!("coalesce").entered();
        Ok(group.merge())
    };
    let merged = map_parallel(groups, width, merge).await?;
    collected.parts.fill(0);
    for (part, batches) in parts.into_iter().zip(&merged) {
        if let Some(count) = collected.parts.get_mut(part) {
            *count += batches.len();
        }
    }
    collected.batches = merged.into_iter().flatten().collect();
    // Slices share buffers: what the small batches held shows by counting what is left.
    collected.counter = RecordBatchMemoryCounter::new();
    let batches = collected.batches.iter();
    collected.bytes = batches.map(|b| collected.counter.count_batch(b)).sum();
    collected.memory.resize(collected.bytes + collected.table);
    Ok(collected)
}

/// Small batches of one partition of the input that follow each other, or a batch.
struct Group {
    batches: Vec<RecordBatch>,
    part: usize,
}

/// Cuts `batches` into groups of about [`COALESCED_ROWS_MIN`]. The first `parts[0]` batches are of
/// partition 0, and so on.
fn groups(batches: Vec<RecordBatch>, parts: &[usize]) -> Vec<Group> {
    let part_of = parts.iter().enumerate();
    let part_of = part_of.flat_map(|(part, batches)| repeat_n(part, *batches));
    let part_of = part_of.chain(repeat(0));
    let mut groups: Vec<Group> = Vec::new();
    let mut rows = COALESCED_ROWS_MIN;
    for (batch, part) in batches.into_iter().zip(part_of) {
        let is_small = batch.num_rows() < BLOCK_ROWS;
        let is_of_next = groups.last().is_none_or(|group| group.part != part);
        if !is_small || rows >= COALESCED_ROWS_MIN || is_of_next {
            let batches = Vec::new();
            groups.push(Group { batches, part });
            rows = 0;
        }
        rows += if is_small {
            batch.num_rows()
        } else {
            COALESCED_ROWS_MIN
        };
        if let Some(group) = groups.last_mut() {
            group.batches.push(batch);
        }
    }
    groups
}

impl Group {
    fn columns(&self) -> impl Iterator<Item = Vec<ArrayRef>> {
        let columns = self.batches.first().map_or(0, RecordBatch::num_columns);
        let column = |c: usize| self.batches.iter().map(|b| b.column(c).clone()).collect();
        (0..columns).map(column)
    }

    /// Returns the bytes that the batch will take; 0 if it stays as it is.
    fn bytes(&self) -> usize {
        if self.batches.len() < 2 {
            return 0;
        }
        let sizes: Option<Vec<Size>> = self.columns().map(|c| Size::try_new(&c)).collect();
        sizes.map_or(0, |sizes| sizes.iter().map(|size| size.bytes).sum())
    }

    /// Returns one batch, or those that there are if their columns have no room in one.
    fn merge(self) -> Vec<RecordBatch> {
        match self.one() {
            Some(batch) => vec![batch],
            None => self.batches,
        }
    }

    fn one(&self) -> Option<RecordBatch> {
        let [first, _, ..] = self.batches.as_slice() else {
            return None;
        };
        let columns = self.columns().map(|arrays| {
            let size = Size::try_new(&arrays)?;
            concatenate(&arrays, size.copies()).ok()
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        let rows = self.batches.iter().map(RecordBatch::num_rows).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(first.schema(), columns, &options).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::compute::concat_batches;
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};

    fn batch(first: i64, rows: usize) -> RecordBatch {
        let values = Int64Array::from_iter_values(first..first + rows as i64);
        RecordBatch::try_from_iter([("v", Arc::new(values) as ArrayRef)]).unwrap()
    }

    /// Returns batches of so many rows, as they are collected, and their pool with `room` for
    /// more.
    fn collected(sizes: &[usize], room: usize) -> (BuildBatches, Arc<dyn MemoryPool>) {
        let mut counter = RecordBatchMemoryCounter::new();
        let mut rows = 0;
        let each = sizes.iter().map(|size| {
            rows += size;
            batch((rows - size) as i64, *size)
        });
        let batches: Vec<RecordBatch> = each.collect();
        let bytes = batches.iter().map(|b| counter.count_batch(b)).sum();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes + room));
        let memory = MemoryConsumer::new("test").register(&pool);
        memory.try_grow(bytes).unwrap();
        let input_batches = batches.len();
        let collected = BuildBatches {
            batches,
            parts: Vec::new(),
            rows,
            input_batches,
            bytes,
            counter,
            memory,
            table: 0,
        };
        (collected, pool)
    }

    async fn sizes_after(sizes: &[usize], room: usize) -> Vec<usize> {
        let (collected, pool) = collected(sizes, room);
        let schema = collected.batches[0].schema();
        let expected = concat_batches(&schema, &collected.batches).unwrap();
        let large: Vec<RecordBatch> = collected.batches.clone();
        let after = coalesce(collected, 2).await.unwrap();
        assert_eq!(concat_batches(&schema, &after.batches).unwrap(), expected);
        assert_eq!(
            (after.rows, after.input_batches),
            (expected.num_rows(), sizes.len())
        );
        assert_eq!(after.memory.size(), after.bytes);
        assert_eq!(pool.reserved(), after.bytes);
        for batch in after
            .batches
            .iter()
            .filter(|batch| batch.num_rows() == 5000)
        {
            let is_uncopied = |of: &RecordBatch| Arc::ptr_eq(of.column(0), batch.column(0));
            assert!(large.iter().any(is_uncopied));
        }
        after.batches.iter().map(RecordBatch::num_rows).collect()
    }

    #[tokio::test]
    async fn many_small_batches_become_few_and_large_ones_stay() {
        let mut sizes = vec![10; 2000];
        sizes.extend([5000, 5000, 3, 5000]);
        sizes.extend([1; 600]);
        let expected = [8200, 8200, 3600, 5000, 5000, 3, 5000, 600];
        assert_eq!(sizes_after(&sizes, 1 << 30).await, expected);
    }

    #[tokio::test]
    async fn batches_of_two_parts_are_not_made_one() {
        for room in [0, 1 << 30] {
            let (mut collected, _) = collected(&[10; 1000], room);
            collected.parts = vec![1, 0, 600, 399];
            let after = coalesce(collected, 2).await.unwrap();
            assert_eq!(after.parts.iter().sum::<usize>(), after.batches.len());
            let mut batches = after.batches.iter().map(RecordBatch::num_rows);
            let rows = after.parts.iter().map(|n| batches.by_ref().take(*n).sum());
            assert_eq!(rows.collect::<Vec<usize>>(), [10, 0, 6000, 3990]);
            assert_eq!(after.batches.len() < 1000, room > 0);
        }
    }

    #[tokio::test]
    async fn few_batches_and_batches_without_memory_stay() {
        let few = vec![1; ARRAYS_MAX];
        assert_eq!(sizes_after(&few, 1 << 30).await, few);
        let many = vec![1; 1000];
        assert_eq!(sizes_after(&many, 100).await, many);
    }
}
