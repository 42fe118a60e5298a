//! The range of a key's values, and whether DataFusion's join has an array of them.
//!
//! ```text
//!  keys 3 5 6 8        values 3..=8, of which two thirds occur
//!  array 1 · 2 3 · 4   lookup of 6: array[6 - 3]
//! ```
//!
//! Such a table needs no hashes, and no lookup meets another key. DataFusion makes it
//! (`try_create_array_map`) where one integer is the key, and enough of the values between the
//! smallest and the largest one occur. A partition by the keys' hash has the whole range, but only
//! a share of its values. So several partitions have arrays that are mostly empty, or none.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::config::ExecutionOptions;
use datafusion::functions_aggregate::min_max::{MaxAccumulator, MinAccumulator};
use datafusion::logical_expr::Accumulator;

use crate::error::Result;

/// Returns whether DataFusion looks up the keys of `rows` rows in an array. They are one integer,
/// which has `values` values from the smallest to the largest.
pub fn are_dense(options: &ExecutionOptions, rows: usize, values: usize) -> bool {
    let small = options.perfect_hash_join_small_build_threshold;
    let density = options.perfect_hash_join_min_key_density;
    values <= small || rows as f64 > density * values as f64
}

/// Returns the smallest and the largest value of a column of `data_type`, NULL if there is none.
///
/// # Errors
/// DataFusion's errors of finding them.
pub fn min_max<'a>(
    column: impl Iterator<Item = &'a ArrayRef>,
    data_type: &DataType,
) -> Result<(ScalarValue, ScalarValue)> {
    let mut min = MinAccumulator::try_new(data_type)?;
    let mut max = MaxAccumulator::try_new(data_type)?;
    for array in column {
        min.update_batch(std::slice::from_ref(array))?;
        max.update_batch(std::slice::from_ref(array))?;
    }
    Ok((min.evaluate()?, max.evaluate()?))
}
