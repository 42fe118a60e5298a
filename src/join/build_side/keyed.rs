//! Rows of the build side with their keys, and the encoder that normalizes the keys.
//!
//! ```text
//!  rows    b0 [a b c]  b1 [d e]           numbered through
//!  keys    b0 [7 8 9]  b1 [7 NULL]        the values of key expressions, by batch
//!  encoder 7 ─▶ 0   8 ─▶ 1   9 ─▶ 2       chosen by these keys
//! ```

use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::buffer::NullBuffer;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

use crate::error::Result;
use crate::join::concat::types::has_dictionary;
use crate::join::input::build_batches::counted;
use crate::join::rows::{BuildRow, BuildRows, Source};
use crate::keys::encoder::KeyEncoder;

/// Build rows with their keys.
#[derive(Debug)]
pub struct KeyedRows {
    rows: BuildRows,
    /// Key columns of each batch: for NULL tests and for encoding them again.
    keys: Vec<Vec<ArrayRef>>,
    /// Key columns by column: `key_columns[c][b]`, or one array of all rows.
    key_columns: Vec<Vec<ArrayRef>>,
    /// NULLs of each batch's first key, found when they are asked for. Those of a dictionary take
    /// a look at each row.
    first_key_nulls: Vec<OnceLock<Option<NullBuffer>>>,
    encoder: KeyEncoder,
}

impl KeyedRows {
    /// Numbers the rows of `batches`, whose keys are `keys[batch][column]`.
    pub fn new(batches: Vec<RecordBatch>, keys: Vec<Vec<ArrayRef>>, encoder: KeyEncoder) -> Self {
        let columns = keys.first().map_or(0, Vec::len);
        let column = |c: usize| keys.iter().map(|batch| Arc::clone(&batch[c])).collect();
        Self {
            rows: BuildRows::new(batches),
            key_columns: (0..columns).map(column).collect(),
            first_key_nulls: keys.iter().map(|_| OnceLock::new()).collect(),
            keys,
            encoder,
        }
    }

    /// Returns the rows.
    pub fn rows(&self) -> &BuildRows {
        &self.rows
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the key columns of each batch.
    pub fn keys(&self) -> &[Vec<ArrayRef>] {
        &self.keys
    }

    /// Returns the encoder of the keys.
    pub fn encoder(&self) -> &KeyEncoder {
        &self.encoder
    }

    /// Returns the column `source`: an array per batch, or one of all rows.
    pub fn column(&self, source: Source) -> &[ArrayRef] {
        match source {
            Source::Batch(c) => self.rows.column(c),
            Source::Key(c) => self.key_columns.get(c).map_or(&[], Vec::as_slice),
        }
    }

    /// Makes the column `source` one array of all rows.
    pub fn set_single_array(&mut self, source: Source, array: ArrayRef) {
        match source {
            Source::Batch(c) => self.rows.set_single_array(c, array),
            Source::Key(c) => self.key_columns[c] = vec![array],
        }
    }

    /// Returns the columns that probes gather: `columns` of the batches, and keys to be verified.
    pub fn probed(&self, columns: &[usize]) -> Vec<Source> {
        let columns = columns.iter().map(|column| Source::Batch(*column));
        let keys = if self.encoder.is_exact() {
            0
        } else {
            self.key_columns.len()
        };
        columns.chain((0..keys).map(Source::Key)).collect()
    }

    /// Returns whether the column `source` has a dictionary.
    pub fn has_dictionary(&self, source: Source) -> bool {
        let first = self.column(source).first();
        first.is_some_and(|array| has_dictionary(array.data_type()))
    }

    /// Returns whether the first key of build row `row` is NULL.
    pub fn first_key_is_null(&self, row: BuildRow) -> bool {
        let (batch, row) = self.rows.locate(row);
        let find = || self.keys[batch].first().and_then(|key| key.logical_nulls());
        let nulls = self.first_key_nulls[batch].get_or_init(find);
        nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }
}

/// Evaluates the key expressions `on` over every batch. The bytes of new arrays are taken from
/// `memory`, batch by batch. Columns of the batches are there already. Expressions can take long,
/// so this yields between batches.
///
/// # Errors
/// The errors of the expressions, and `ResourcesExhausted` from the memory pool.
pub async fn evaluate_keys(
    on: &[PhysicalExprRef],
    batches: &[RecordBatch],
    memory: &MemoryReservation,
) -> Result<Vec<Vec<ArrayRef>>> {
    // Made for the first new array: most keys are columns.
    let mut counter = None;
    let mut keys = Vec::with_capacity(batches.len());
    for batch in batches {
        let columns = evaluate_expressions_to_arrays(on, batch)?;
        let is_column = |key: &ArrayRef| batch.columns().iter().any(|of| Arc::ptr_eq(of, key));
        if !columns.iter().all(is_column) {
            let counter = counter.get_or_insert_with(|| counted(batches));
            memory.try_grow(counter.count_batch(&unnamed(&columns)?))?;
            tokio::task::yield_now().await;
        }
        keys.push(columns);
    }
    Ok(keys)
}

/// Returns the columns as a batch, for counting their memory.
fn unnamed(columns: &[ArrayRef]) -> Result<RecordBatch> {
    let named = columns.iter().map(|column| ("", Arc::clone(column)));
    Ok(RecordBatch::try_from_iter(named)?)
}
