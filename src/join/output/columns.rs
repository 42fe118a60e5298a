//! Output columns from pairs of rows.
//!
//! ```text
//!  pairs (4, p0) (0, p0) (-, p1)
//!  build column  = build rows 4, 0, none            gathered by the device, or by BuildRows
//!  probe column  = take(probe batch, [0 0 1])       or the batch's own column if all rows in order
//! ```

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::JoinSide;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, build_join_schema};
use datafusion::scalar::ScalarValue;
use tracing::trace_span;

use crate::error::Result;
use crate::join::rows::{BuildRows, RowLocations, Source};

use super::row_pairs::Pairs;

/// The columns of a join's output, or of its residual filter's input.
#[derive(Debug, Clone)]
pub struct OutputColumns {
    /// Schema of the batch.
    pub schema: SchemaRef,
    /// Side and index of each column.
    pub columns: Vec<ColumnIndex>,
}

impl OutputColumns {
    /// Returns the output schema of `join` and where its columns come from.
    pub fn of_output(join: &HashJoinExec) -> Self {
        let (left, right) = (join.left().schema(), join.right().schema());
        let (_, columns) = build_join_schema(&left, &right, join.join_type());
        let columns: Vec<ColumnIndex> = match &join.projection {
            None => columns,
            Some(projection) => projection.iter().map(|i| columns[*i].clone()).collect(),
        };
        Self {
            schema: join.schema(),
            columns,
        }
    }

    /// Makes the batch of `rows` pairs. `probe` is missing for unmatched build rows: its
    /// columns are NULL then.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn batch(
        &self,
        build: &BuildRows,
        probe: Option<&RecordBatch>,
        pairs: &Pairs,
        rows: usize,
    ) -> Result<RecordBatch> {
        let _work = trace_span!("gather columns").entered();
        let located = RowLocations::new(build, &pairs.build);
        let probe_rows = ProbeRows::new(probe, &pairs.probe);
        let columns = self
            .columns
            .iter()
            .zip(self.schema.fields())
            .map(|(column, field)| match column.side {
                JoinSide::Left => match pairs.gathered(Source::Batch(column.index)) {
                    Some(values) => Ok(Arc::clone(values)),
                    None => build.gather(build.column(column.index), &located, field.data_type()),
                },
                JoinSide::Right => probe_rows.column(column.index, rows, field.data_type()),
                JoinSide::None => Ok(match &pairs.mark {
                    Some(mark) => Arc::new(mark.clone()),
                    None => ScalarValue::Boolean(Some(false)).to_array_of_size(rows)?,
                }),
            })
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }
}

/// Probe rows of an output batch: all of a batch in order, or some.
struct ProbeRows<'a> {
    batch: Option<&'a RecordBatch>,
    picked: Option<UInt32Array>,
}

impl<'a> ProbeRows<'a> {
    fn new(batch: Option<&'a RecordBatch>, rows: &[u32]) -> Self {
        let whole = batch.is_some_and(|batch| {
            batch.num_rows() == rows.len()
                && rows.iter().enumerate().all(|(i, row)| *row as usize == i)
        });
        Self {
            batch,
            picked: (!whole).then(|| UInt32Array::from(rows.to_vec())),
        }
    }

    fn column(&self, index: usize, rows: usize, data_type: &DataType) -> Result<ArrayRef> {
        Ok(match (self.batch, &self.picked) {
            (None, _) => new_null_array(data_type, rows),
            (Some(batch), None) => Arc::clone(batch.column(index)),
            (Some(batch), Some(picked)) => take(batch.column(index), picked, None)?,
        })
    }
}
#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;

    use super::*;

    #[test]
    fn a_whole_probe_batch_passes_through_uncopied() {
        let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let whole = ProbeRows::new(Some(&batch), &[0, 1, 2]);
        assert!(whole.picked.is_none());
        let part = ProbeRows::new(Some(&batch), &[0, 2, 1]);
        assert!(part.picked.is_some());
    }
}
