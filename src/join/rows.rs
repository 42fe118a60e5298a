//! The rows of the build side: batches as they came, numbered through.
//!
//! ```text
//!  build batches  b0 [0 1 2]  b1 [3 4]  b2 [5 6 7]        rows numbered through
//!  rows 4, 0, none  ─▶  interleave([b0, b1, b2, null], [(1,1) (0,0) (3,0)])
//! ```
//!
//! The build side is not concatenated: that would double its memory, and more than 2^31 bytes of
//! strings do not fit one array. Rows of one batch are gathered by `take`, and so is a column that
//! the build made one array (`set_single_array`). The rest is interleaved, dictionaries by
//! [`concat`](crate::join::concat). A row number finds its batch through a table with one entry per
//! `BLOCK_ROWS` rows: a step or two, and not a binary search.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;

use crate::error::Result;

use crate::join::concat::concatenate::interleave_dictionaries;
use crate::join::concat::types::{can_concat, has_dictionary};

/// The origin of a column of the build side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A column of its batches.
    Batch(usize),
    /// A key expression's values.
    Key(usize),
}

/// Number of a row of the build side, among all of its batches. Neither the rows of the probe side
/// nor the groups of rows with equal keys can be mistaken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct BuildRow(pub u32);

impl From<BuildRow> for u32 {
    fn from(row: BuildRow) -> Self {
        row.0
    }
}

/// Build row of a pair without one: the NULL side of an outer join.
pub const NO_ROW: BuildRow = BuildRow(u32::MAX);

/// Rows per entry of the table that finds a row's batch.
pub const BLOCK_ROWS: usize = 1024;

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
            while blocks.len() * BLOCK_ROWS < rows {
                blocks.push(b as u32);
            }
        }
        debug_assert!(rows < NO_ROW.0 as usize, "{rows} rows");
        debug_assert!(starts.is_sorted(), "rows are numbered through");
        let width = batches.first().map_or(0, RecordBatch::num_columns);
        let column = |c: usize| batches.iter().map(|b| Arc::clone(b.column(c))).collect();
        Self {
            columns: (0..width).map(column).collect(),
            batches,
            starts,
            blocks,
        }
    }

    /// Returns the column `index`, an array per batch, or one of all rows.
    pub fn column(&self, index: usize) -> &[ArrayRef] {
        self.columns.get(index).map_or(&[], Vec::as_slice)
    }

    /// Returns the batches.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// Returns the rows in all.
    pub fn len(&self) -> usize {
        self.starts.last().map_or(0, |rows| *rows as usize)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the batch of a row, and the row within it; [`NO_ROW`] is row 0 of the null array
    /// behind the last batch.
    pub fn locate(&self, row: BuildRow) -> (usize, usize) {
        if row == NO_ROW {
            return (self.batches.len(), 0);
        }
        let BuildRow(row) = row;
        debug_assert!((row as usize) < self.len(), "row {row} of {}", self.len());
        let mut batch = self.blocks[row as usize / BLOCK_ROWS] as usize;
        while self.starts[batch + 1] <= row {
            batch += 1;
        }
        (batch, (row - self.starts[batch]) as usize)
    }

    /// Returns the values at `rows` of a column of an array per batch.
    ///
    /// # Errors
    /// Arrow's errors, e.g. strings of one output batch beyond the offsets of their type.
    pub fn gather(
        &self,
        column: &[ArrayRef],
        rows: &RowLocations<'_>,
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
        if has_dictionary && can_concat(data_type) {
            let arrays: Vec<ArrayRef> = arrays.map(Arc::clone).collect();
            return Ok(interleave_dictionaries(&arrays, places)?);
        }
        let arrays: Vec<&dyn Array> = arrays.map(AsRef::as_ref).collect();
        Ok(interleave(&arrays, places)?)
    }

    /// Makes column `index` one array.
    pub fn set_single_array(&mut self, index: usize, array: ArrayRef) {
        debug_assert_eq!(array.len(), self.len(), "one value per build row");
        if let Some(column) = self.columns.get_mut(index) {
            *column = vec![array];
        }
    }

    /// Returns the numbers of the rows of batch `batch`.
    pub fn rows_of(&self, batch: usize) -> Range<u32> {
        self.starts[batch]..self.starts[batch + 1]
    }
}

/// Build rows of an output batch, located once for all its columns.
pub struct RowLocations<'a> {
    build: &'a BuildRows,
    rows: &'a [BuildRow],
    any_null: bool,
    all_null: bool,
    places: std::cell::OnceCell<Vec<(usize, usize)>>,
    indices: std::cell::OnceCell<UInt32Array>,
}

impl<'a> RowLocations<'a> {
    /// Prepares `rows` of `build` for gathering.
    pub fn new(build: &'a BuildRows, rows: &'a [BuildRow]) -> Self {
        // One pass without a branch, which processors do for many rows at a time.
        let nulls = rows.iter().filter(|row| **row == NO_ROW).count();
        Self {
            build,
            rows,
            any_null: nulls > 0,
            all_null: nulls == rows.len(),
            places: std::cell::OnceCell::new(),
            indices: std::cell::OnceCell::new(),
        }
    }

    /// Returns the batch of each row, and its row there.
    pub fn places(&self) -> &[(usize, usize)] {
        self.places.get_or_init(|| {
            self.rows
                .iter()
                .map(|row| self.build.locate(*row))
                .collect()
        })
    }

    /// Returns the rows' numbers, NULL where there is none.
    fn indices(&self) -> &UInt32Array {
        let rows = || {
            self.rows
                .iter()
                .map(|row| (*row != NO_ROW).then_some(row.0))
        };
        self.indices.get_or_init(|| {
            if self.any_null {
                rows().collect()
            } else {
                UInt32Array::from_iter_values(self.rows.iter().map(|row| row.0))
            }
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
        let rows = (0..2009).rev().map(BuildRow);
        let rows: Vec<BuildRow> = rows.chain([NO_ROW]).collect();
        let located = RowLocations::new(&build, &rows);
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
        build.set_single_array(0, Arc::new(array));
        let [three, four] = [3, 4].map(BuildRow);
        for rows in [[NO_ROW, NO_ROW], [three, NO_ROW], [three, four]] {
            let located = RowLocations::new(&build, &rows);
            let column = build.column(0);
            let data_type = column[0].data_type();
            let gathered = build.gather(column, &located, data_type).unwrap();
            let of = gathered.as_any_dictionary().values();
            assert!(Arc::ptr_eq(of, &values));
            let nulls = rows.iter().filter(|row| **row == NO_ROW).count();
            assert_eq!(gathered.null_count(), nulls);
        }
    }
}
