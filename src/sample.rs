//! Random rows of a table, and how many values its columns have by such a sample.
//!
//! ```text
//!  random rows ─▶ hashes ─▶ pairs of equal ones ─▶ values
//! ```
//!
//! Two rows of a table share their value with the probability p. A column of N equally frequent
//! values has p = 1 / N. So 1 / p stands for the number of values where some are more frequent than
//! others, too: that is what a join makes pairs of. A sample of n rows has n (n - 1) / 2 pairs, and
//! p is the share of the equal ones among them. Chance is kept out: two standard deviations fewer
//! are taken, so that a few equal pairs count for nothing. Of R rows a few times √R are in the
//! sample, so that the number of its equal pairs does not depend on R.
//!
//! Source: sizes of joins by what tables make joined with themselves, Alon et al., "Tracking Join
//! and Self-Join Sizes in Limited Storage" (PODS 1999).

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use datafusion::common::hash_utils::{RandomState, create_hashes};

/// Rows of a sample, at least.
const LEAST_SAMPLE: usize = 256;

/// Bytes of a sample's strings, at most.
const MOST_BYTES: usize = 1 << 20;

/// Returns the number of combinations of values in `columns` of the rows of `batches`, by a sample
/// of `per_root` rows per square root of all: infinitely many, if no two rows of it share one.
/// Returns `None` if the types are not sampled.
pub fn values_of_sample(
    batches: &[&RecordBatch],
    columns: &[usize],
    per_root: usize,
) -> Option<f64> {
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    let places = sampled_places(batches, rows, sample_size(rows, per_root));
    let mut hashes = sampled_hashes(batches, columns, &places)?;
    hashes.sort_unstable();
    let equal = |run: &[u64]| (run.len() * (run.len() - 1) / 2) as f64;
    let equal: f64 = hashes.chunk_by(|a, b| a == b).map(equal).sum();
    let sample = places.len();
    if sample == rows {
        let (rows, not_null) = (rows as f64, hashes.len() as f64);
        // Here a row counts as one that shares its value with itself.
        return Some(rows * rows / (2.0 * equal + not_null).max(1.0));
    }
    let pairs = (sample * (sample - 1) / 2) as f64;
    let equal = equal - 2.0 * equal.sqrt();
    Some(if equal > 0.0 {
        pairs / equal
    } else {
        f64::INFINITY
    })
}

/// Returns `columns` of a sample of about `size` rows of `batches`; `None` if there are none, for
/// types with fields or dictionaries, and for long strings.
pub fn sampled_columns(
    batches: &[&RecordBatch],
    columns: &[usize],
    size: usize,
) -> Option<Vec<ArrayRef>> {
    let rows = batches.iter().map(|batch| batch.num_rows()).sum();
    let mut places = sampled_places(batches, rows, size);
    if places.is_empty() {
        return None;
    }
    // A table may have many more batches than there are places.
    let mut used: Vec<&RecordBatch> = Vec::new();
    let mut last = None;
    for (at, _) in &mut places {
        if last.replace(*at) != Some(*at) {
            used.push(batches[*at]);
        }
        *at = used.len() - 1;
    }
    values_at(&used, columns, &places)
}

/// Returns hashes of the rows of `columns` at `places`: batches, and rows in them. A row with a
/// NULL has none, as it equals nothing. Returns `None` for types with fields or dictionaries, and
/// for long strings.
fn sampled_hashes(
    batches: &[&RecordBatch],
    columns: &[usize],
    places: &[(usize, usize)],
) -> Option<Vec<u64>> {
    if places.is_empty() {
        return Some(Vec::new());
    }
    let values = values_at(batches, columns, places)?;
    let mut hashes = vec![0; places.len()];
    create_hashes(&values, &RandomState::with_seed(0), &mut hashes).ok()?;
    let is_null = |row: usize| values.iter().any(|values| values.is_null(row));
    let hashes = hashes.into_iter().enumerate();
    Some(
        hashes
            .filter(|(row, _)| !is_null(*row))
            .map(|(_, hash)| hash)
            .collect(),
    )
}

/// Returns the values at `places` of `columns`; `None` for types that are not sampled.
fn values_at(
    batches: &[&RecordBatch],
    columns: &[usize],
    places: &[(usize, usize)],
) -> Option<Vec<ArrayRef>> {
    let values = columns.iter().map(|column| {
        let arrays = batches.iter().map(|batch| batch.columns().get(*column));
        let arrays = arrays.map(|array| array.map(AsRef::as_ref));
        picked(&arrays.collect::<Option<Vec<_>>>()?, places)
    });
    values.collect()
}

/// Returns the values at `places` of one column.
fn picked(arrays: &[&dyn Array], places: &[(usize, usize)]) -> Option<ArrayRef> {
    let bytes = places
        .iter()
        .map(|(at, row)| bytes_of_value(arrays[*at], *row));
    if bytes.sum::<Option<usize>>()? > MOST_BYTES {
        return None;
    }
    interleave(arrays, places).ok()
}

/// Returns the bytes of a value of variable length, or 0; `None` for types that are not sampled.
fn bytes_of_value(column: &dyn Array, row: usize) -> Option<usize> {
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value_length(row) as usize),
        DataType::Binary => Some(column.as_binary::<i32>().value_length(row) as usize),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value_length(row) as usize),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value_length(row) as usize),
        DataType::Utf8View => Some(column.as_string_view().value(row).len()),
        DataType::BinaryView => Some(column.as_binary_view().value(row).len()),
        DataType::Boolean => Some(0),
        other => other.primitive_width().map(|_| 0),
    }
}

/// Returns the batches, and rows in them, of a sample of about `size` of the `rows` rows.
fn sampled_places(batches: &[&RecordBatch], rows: usize, size: usize) -> Vec<(usize, usize)> {
    let sample = sampled_rows(rows, size);
    let mut places = Vec::with_capacity(sample.len());
    let mut sample = sample.into_iter().peekable();
    let mut first = 0;
    for (at, batch) in batches.iter().enumerate() {
        let end = first + batch.num_rows();
        while let Some(row) = sample.next_if(|row| *row < end) {
            places.push((at, row - first));
        }
        first = end;
    }
    places
}

/// Returns the rows of a sample of `rows`.
fn sample_size(rows: usize, per_root: usize) -> usize {
    (per_root * rows.isqrt()).max(LEAST_SAMPLE).min(rows)
}

/// Returns the numbers of sampled rows, ascending: each is as likely as any other. Rows at regular
/// distances would miss repeats of neighbours, or see one value alone where values take turns.
fn sampled_rows(rows: usize, size: usize) -> Vec<usize> {
    if size >= rows {
        return (0..rows).collect();
    }
    let picked = (0..size as u64).map(|i| (scrambled(i) % rows as u64) as usize);
    let mut picked: Vec<usize> = picked.collect();
    picked.sort_unstable();
    picked.dedup();
    picked
}

/// Returns bits of `n` that look random: the last step of SplitMix64.
fn scrambled(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringViewArray};

    use super::*;

    /// A table of one column in batches of 1000 rows.
    fn of_values(values: Vec<Option<i64>>) -> f64 {
        let batch = |values: &[Option<i64>]| {
            let column = Arc::new(Int64Array::from(values.to_vec())) as _;
            RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap()
        };
        let batches: Vec<_> = values.chunks(1000).map(batch).collect();
        values_of_sample(&batches.iter().collect::<Vec<_>>(), &[0], 2).unwrap()
    }

    fn of_rows(rows: i64, value: impl Fn(i64) -> Option<i64>) -> f64 {
        of_values((0..rows).map(value).collect())
    }

    #[test]
    fn values_of_small_tables_are_exact() {
        assert_eq!(of_rows(0, Some), 0.0);
        assert_eq!(of_rows(25, Some), 25.0);
        assert_eq!(of_rows(200, |row| Some(row % 10)), 10.0);
        // A NULL makes no pair. So these join as if each value were in fewer rows.
        assert_eq!(of_rows(200, |row| (row % 2 == 0).then_some(row)), 400.0);
        assert_eq!(of_rows(200, |_| None), 40_000.0);
    }

    #[test]
    fn samples_show_values_that_repeat() {
        // Rarer values are fewer equal pairs, of which two standard deviations are more.
        for (rows, values, most) in [
            (257, 10, 1.5),
            (300, 50, 1.5),
            (1000, 50, 1.5),
            (10_000, 50, 1.5),
            (100_000, 50, 1.5),
            (100_000, 2000, 3.0),
            (1_000_000, 50_000, 3.0),
        ] {
            // In turns, and one after the other.
            for value in [&|row| Some(row % values), &|row| Some(row * values / rows)]
                as [&dyn Fn(i64) -> Option<i64>; 2]
            {
                let found = of_rows(rows, value) / values as f64;
                assert!((0.7..most).contains(&found), "{rows}, {values}: {found}");
            }
        }
    }

    /// Hashing reads a string whole, even one that is not copied.
    #[test]
    fn long_strings_are_not_sampled() {
        let strings = |bytes: usize| {
            let long = "x".repeat(bytes);
            Arc::new(StringViewArray::from(vec![long.as_str(); 20])) as ArrayRef
        };
        let places: Vec<_> = (0..20).map(|row| (0, row)).collect();
        assert!(picked(&[&strings(1000)], &places).is_some());
        assert!(picked(&[&strings(MOST_BYTES / 10)], &places).is_none());
    }

    #[test]
    fn a_frequent_value_counts_as_few_values() {
        let half = |row: i64| Some(if row % 2 == 0 { 0 } else { row });
        let found = of_rows(100_000, half);
        assert!((3.0..6.0).contains(&found), "{found}");
    }

    #[test]
    fn unique_values_are_not_counted() {
        assert_eq!(of_rows(1_000_000, Some), f64::INFINITY);
        assert_eq!(of_rows(10_000, Some), f64::INFINITY);
    }
}
