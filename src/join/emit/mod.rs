//! Output columns from pairs of rows.
//!
//! ```text
//!  build batches  b0 [0 1 2]  b1 [3 4]  b2 [5 6 7]        rows numbered through
//!  pairs (4, p0) (0, p0) (-, p1)
//!  build column  = interleave([b0, b1, b2, null], [(1,1) (0,0) (3,0)])
//!  probe column  = take(probe batch, [0 0 1]), or the batch's own column if all rows in order
//! ```
//!
//! The build side is not concatenated: that would double its memory, and more than 2^31
//! bytes of strings do not fit one array. A column that the build made one array (`set_joined`), or
//! rows of one batch, are taken; the rest is interleaved, dictionaries by
//! [`joined`](super::joined). A row number finds its batch through a table with one entry per
//! `BLOCK` rows, so that is a step or two and not a binary search.

pub mod outcome;

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::compute::{concat, filter, interleave, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::JoinSide;
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::scalar::ScalarValue;

use crate::error::Result;

use super::joined::{can_be_joined, has_dictionary, interleave_joined};
use crate::join::lookup::columns::Source;

/// Build row of a pair without one: the NULL side of an outer join.
pub const NO_ROW: u32 = u32::MAX;

/// Rows per entry of the table that finds a row's batch.
pub(super) const BLOCK: usize = 1024;

/// The batches of a build side, their rows numbered through.
#[derive(Debug)]
pub struct BuildRows {
    batches: Vec<RecordBatch>,
    /// `columns[c][b]`: column `c` of batch `b`; or its only array, of all rows.
    columns: Vec<Vec<ArrayRef>>,
    /// First row of each batch, and the number of rows.
    starts: Vec<u32>,
    /// Batch that holds the first row of each block.
    blocks: Vec<u32>,
}

impl BuildRows {
    /// Numbers the rows of non-empty `batches`, at most 2^32 - 1 in all.
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        let mut starts = vec![0u32];
        let mut blocks = Vec::new();
        let mut rows = 0usize;
        for (b, batch) in batches.iter().enumerate() {
            rows += batch.num_rows();
            starts.push(rows as u32);
            while blocks.len() * BLOCK < rows {
                blocks.push(b as u32);
            }
        }
        let width = batches.first().map_or(0, RecordBatch::num_columns);
        let column = |c: usize| batches.iter().map(|b| Arc::clone(b.column(c))).collect();
        Self {
            columns: (0..width).map(column).collect(),
            batches,
            starts,
            blocks,
        }
    }

    /// Column `index`, an array a batch, or one of all rows.
    pub fn column(&self, index: usize) -> &[ArrayRef] {
        self.columns.get(index).map_or(&[], Vec::as_slice)
    }

    /// The batches.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The batches, no more numbered.
    pub fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    /// Rows in all.
    pub fn len(&self) -> usize {
        self.starts.last().map_or(0, |rows| *rows as usize)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Batch and row within it; [`NO_ROW`] is row 0 of the null array behind the last batch.
    pub(super) fn locate(&self, row: u32) -> (usize, usize) {
        if row == NO_ROW {
            return (self.batches.len(), 0);
        }
        let mut batch = self.blocks[row as usize / BLOCK] as usize;
        while self.starts[batch + 1] <= row {
            batch += 1;
        }
        (batch, (row - self.starts[batch]) as usize)
    }

    /// The values at `rows` of a column of an array a batch.
    ///
    /// # Errors
    /// Arrow's, e.g. strings of one output batch beyond the offsets of their type.
    pub fn gather(
        &self,
        column: &[ArrayRef],
        rows: &Located<'_>,
        data_type: &DataType,
    ) -> Result<ArrayRef> {
        let has_dictionary = has_dictionary(data_type);
        match column {
            // Its values are those of other output batches, which are put together uncopied.
            [array] if has_dictionary || !rows.all_null => {
                return Ok(take(array, rows.indices(), None)?);
            }
            _ if rows.all_null => return Ok(new_null_array(data_type, rows.rows.len())),
            _ => {}
        }
        let places = rows.places();
        let batch = places.first().map_or(0, |(batch, _)| *batch);
        if batch < column.len() && places.iter().all(|(b, _)| *b == batch) {
            let within = UInt32Array::from_iter_values(places.iter().map(|(_, row)| *row as u32));
            return Ok(take(&column[batch], &within, None)?);
        }
        let null = new_null_array(data_type, 1);
        let arrays = column.iter().chain(rows.any_null.then_some(&null));
        if has_dictionary && can_be_joined(data_type) {
            let arrays: Vec<ArrayRef> = arrays.map(Arc::clone).collect();
            return Ok(interleave_joined(&arrays, places)?);
        }
        let arrays: Vec<&dyn Array> = arrays.map(AsRef::as_ref).collect();
        Ok(interleave(&arrays, places)?)
    }

    /// Makes column `index` one array.
    pub fn set_joined(&mut self, index: usize, array: ArrayRef) {
        if let Some(column) = self.columns.get_mut(index) {
            *column = vec![array];
        }
    }

    /// The numbers of the rows of batch `batch`.
    pub fn rows_of(&self, batch: usize) -> Range<u32> {
        self.starts[batch]..self.starts[batch + 1]
    }
}

/// Build rows of an output batch, located once for all its columns.
pub struct Located<'a> {
    build: &'a BuildRows,
    rows: &'a [u32],
    any_null: bool,
    all_null: bool,
    places: std::cell::OnceCell<Vec<(usize, usize)>>,
    indices: std::cell::OnceCell<UInt32Array>,
}

impl<'a> Located<'a> {
    /// Prepares `rows` of `build` for gathering.
    pub fn new(build: &'a BuildRows, rows: &'a [u32]) -> Self {
        Self {
            build,
            rows,
            any_null: rows.contains(&NO_ROW),
            all_null: rows.iter().all(|row| *row == NO_ROW),
            places: std::cell::OnceCell::new(),
            indices: std::cell::OnceCell::new(),
        }
    }

    /// Batch of each row, and its row there.
    pub fn places(&self) -> &[(usize, usize)] {
        self.places.get_or_init(|| {
            self.rows
                .iter()
                .map(|row| self.build.locate(*row))
                .collect()
        })
    }

    /// The rows' numbers, NULL where there is none.
    fn indices(&self) -> &UInt32Array {
        let rows = || self.rows.iter().map(|row| (*row != NO_ROW).then_some(*row));
        self.indices.get_or_init(|| match self.any_null {
            true => rows().collect(),
            false => UInt32Array::from(self.rows.to_vec()),
        })
    }
}

/// Pairs of rows that make an output batch.
#[derive(Debug, Default, Clone)]
pub struct Pairs {
    /// Build rows, or [`NO_ROW`]; empty if no output column needs them.
    pub build: Vec<u32>,
    /// Columns of the build side at those rows, as far as the device gathered them.
    pub gathered: Vec<(Source, ArrayRef)>,
    /// Rows of the probe batch, ascending but for unmatched rows at the end.
    pub probe: Vec<u32>,
    /// Mark column of mark joins.
    pub mark: Option<BooleanArray>,
}

impl Pairs {
    /// A gathered column.
    pub fn gathered(&self, source: Source) -> Option<&ArrayRef> {
        let mut columns = self.gathered.iter();
        columns
            .find(|(of, _)| *of == source)
            .map(|(_, column)| column)
    }

    /// How many probe rows there are among the pairs, which come in their order.
    pub fn probe_rows(&self) -> usize {
        let changes = self.probe.windows(2).filter(|pair| pair[0] != pair[1]);
        changes.count() + usize::from(!self.probe.is_empty())
    }

    /// Whether the probe rows are `0..rows`, each once: then its columns can be passed on.
    pub fn are_whole(&self, rows: usize) -> bool {
        self.probe.len() == rows && self.probe.iter().zip(0..).all(|(row, i)| *row == i)
    }

    /// Appends pairs of `probe` rows without a build row.
    ///
    /// # Errors
    /// Arrow's.
    pub fn append_unmatched(&mut self, probe: Vec<u32>) -> Result<()> {
        for (_, column) in &mut self.gathered {
            let nulls = new_null_array(column.data_type(), probe.len());
            *column = concat(&[column.as_ref(), nulls.as_ref()])?;
        }
        self.build.extend(std::iter::repeat_n(NO_ROW, probe.len()));
        self.probe.extend(probe);
        Ok(())
    }

    /// The pairs whose bit is set and not NULL.
    ///
    /// # Errors
    /// Arrow's.
    pub fn keep(mut self, passed: &BooleanArray) -> Result<Self> {
        if passed.true_count() == passed.len() {
            return Ok(self);
        }
        let passed = match passed.null_count() {
            0 => passed.clone(),
            _ => prep_null_mask_filter(passed),
        };
        for (_, column) in &mut self.gathered {
            *column = filter(column, &passed)?;
        }
        let kept = |rows: &[u32]| match rows.is_empty() {
            true => Vec::new(),
            false => passed.values().set_indices().map(|i| rows[i]).collect(),
        };
        Ok(Self {
            build: kept(&self.build),
            probe: kept(&self.probe),
            mark: None,
            gathered: self.gathered,
        })
    }
}

/// What a join's output, or its residual filter's input, is made of.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Schema of the batch.
    pub schema: SchemaRef,
    /// Side and index of each column.
    pub columns: Vec<ColumnIndex>,
}

impl Shape {
    /// Makes the batch of `rows` pairs. `probe` is missing for unmatched build rows: its
    /// columns are NULL then.
    ///
    /// # Errors
    /// Arrow's.
    pub fn batch(
        &self,
        build: &BuildRows,
        probe: Option<&RecordBatch>,
        pairs: &Pairs,
        rows: usize,
    ) -> Result<RecordBatch> {
        let located = Located::new(build, &pairs.build);
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
    use super::*;
    use arrow::array::{AsArray, DictionaryArray, Int32Array};
    use arrow::datatypes::UInt32Type;

    fn build() -> BuildRows {
        let sizes = [3usize, 1, 2000, 5];
        let mut next = 0i32;
        let batches = sizes
            .iter()
            .map(|&n| {
                let values: Vec<i32> = (next..next + n as i32).collect();
                next += n as i32;
                let array: ArrayRef = Arc::new(Int32Array::from(values));
                RecordBatch::try_from_iter([("v", array)]).unwrap()
            })
            .collect();
        BuildRows::new(batches)
    }

    #[test]
    fn every_row_is_found_in_its_batch() {
        let build = build();
        assert_eq!(build.len(), 2009);
        let rows: Vec<u32> = (0..2009).rev().chain([NO_ROW]).collect();
        let located = Located::new(&build, &rows);
        let gathered = build
            .gather(build.column(0), &located, &DataType::Int32)
            .unwrap();
        let expected: Int32Array = (0..2009).rev().map(Some).chain([None]).collect();
        assert_eq!(gathered.as_ref(), &expected as &dyn Array);
    }

    #[test]
    fn rows_without_a_match_have_the_dictionary_of_the_others() {
        let mut build = build();
        let values: ArrayRef = Arc::new(Int32Array::from(vec![7, 8]));
        let keys = UInt32Array::from_iter_values((0..2009).map(|row| row % 2));
        let array = DictionaryArray::<UInt32Type>::new(keys, Arc::clone(&values));
        build.set_joined(0, Arc::new(array));
        for rows in [[NO_ROW, NO_ROW], [3, NO_ROW], [3, 4]] {
            let located = Located::new(&build, &rows);
            let column = build.column(0);
            let data_type = column[0].data_type();
            let gathered = build.gather(column, &located, data_type).unwrap();
            let of = gathered.as_any_dictionary().values();
            assert!(Arc::ptr_eq(of, &values));
            let nulls = rows.iter().filter(|row| **row == NO_ROW).count();
            assert_eq!(gathered.null_count(), nulls);
        }
    }

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
