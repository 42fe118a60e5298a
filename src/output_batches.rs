//! Output batches of about the session's size: small ones are gathered, large ones stay.
//!
//! ```text
//!  came    8192  8192  100  8192  8192  30  50  8192
//!  goes    8192  8192  100  8192  8192  80      8192       no large one is copied
//!  arrow   8192  8192  8192    8192   …                    all cut and copied, once one was short
//! ```
//!
//! Arrow's coalescer passes a large batch on while it has nothing buffered. After one short batch,
//! it cuts each of those that follow, in order to fill its own, and has always something buffered
//! then. That copies all columns of a whole stream. Here what is buffered goes before a large batch
//! does, at the price of a short batch in between.

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::BatchCoalescer;
use arrow::datatypes::SchemaRef;
use arrow::error::Result;

/// Gathers rows into batches.
#[derive(Debug)]
pub struct OutputBatches {
    batches: BatchCoalescer,
    /// Rows of a batch that is not copied.
    large: usize,
}

impl OutputBatches {
    /// Returns one without rows. Its batches have about `rows` rows, one at least.
    pub fn new(schema: SchemaRef, rows: usize) -> Self {
        let (rows, large) = (rows.max(1), rows.div_ceil(2));
        let batches = BatchCoalescer::new(schema, rows);
        Self {
            batches: batches.with_biggest_coalesce_batch_size(Some(large)),
            large,
        }
    }

    /// Adds the rows of `batch`.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.make_way_for(batch.num_rows())?;
        self.batches.push_batch(batch)
    }

    /// Adds the rows of `batch` whose bit in `mask` is set.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn push_filtered(&mut self, batch: RecordBatch, mask: &BooleanArray) -> Result<()> {
        self.make_way_for(mask.true_count())?;
        self.batches.push_batch_with_filter(batch, mask)
    }

    /// Completes a batch of what is buffered, if the next `rows` rows are to stay together.
    fn make_way_for(&mut self, rows: usize) -> Result<()> {
        if rows > self.large && self.has_buffered() {
            self.batches.finish_buffered_batch()?;
        }
        Ok(())
    }

    /// Completes a batch of the rows that are buffered.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn finish_buffered(&mut self) -> Result<()> {
        self.batches.finish_buffered_batch()
    }

    /// Returns whether rows wait for others to fill their batch.
    pub fn has_buffered(&self) -> bool {
        self.batches.get_buffered_rows() > 0
    }

    /// Returns whether there is a batch that is complete.
    pub fn has_completed(&self) -> bool {
        self.batches.has_completed_batch()
    }

    /// Takes the next batch that is complete.
    pub fn next_completed(&mut self) -> Option<RecordBatch> {
        self.batches.next_completed_batch()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn large_batches_are_passed_on_as_they_are() {
        let sizes = [80, 80, 10, 80, 0, 3, 5, 80, 60, 40, 40, 40, 20];
        let mut first = 0;
        let all: Vec<RecordBatch> = sizes
            .iter()
            .map(|rows| {
                let values = Int64Array::from_iter_values(first..first + rows);
                first += rows;
                RecordBatch::try_from_iter([("v", Arc::new(values) as ArrayRef)]).unwrap()
            })
            .collect();
        for is_filtered in [false, true] {
            let mut output = OutputBatches::new(all[0].schema(), 100);
            for batch in &all {
                let rows = batch.num_rows();
                if is_filtered {
                    let mask = BooleanArray::from(vec![true; rows]);
                    output.push_filtered(batch.clone(), &mask).unwrap();
                } else {
                    output.push(batch.clone()).unwrap();
                }
            }
            output.finish_buffered().unwrap();
            assert!(!output.has_buffered() && output.has_completed());
            let found: Vec<_> = std::iter::from_fn(|| output.next_completed()).collect();
            let rows: Vec<_> = found.iter().map(RecordBatch::num_rows).collect();
            assert_eq!(rows, [80, 80, 10, 80, 8, 80, 60, 100, 40]);
            let values = found.iter().flat_map(|batch| {
                let column = batch.column(0).as_primitive::<Int64Type>();
                column.values().to_vec()
            });
            assert!(values.eq(0..first));
            for (at, of) in [(0, 0), (3, 3), (5, 7)] {
                assert!(Arc::ptr_eq(found[at].column(0), all[of].column(0)));
            }
        }
    }
}
