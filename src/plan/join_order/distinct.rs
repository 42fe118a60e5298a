//! How many values a key column has.
//!
//! ```text
//!  table in memory   random rows ─▶ hashes ─▶ pairs of equal ones ─▶ values
//!  else              statistics: distinct values, or the range of integers
//! ```
//!
//! Two rows of a table share their value with the probability p. A column of N equally frequent
//! values has p = 1 / N. So 1 / p stands for the number of values where some are more frequent than
//! others, too: that is what a join makes pairs of. A sample of n rows has n (n - 1) / 2 pairs, and
//! p is the share of the equal ones among them. Chance is kept out: two standard deviations fewer
//! are taken, so that a few equal pairs count for nothing. Of a table with R rows 2 √R are in the
//! sample. If four rows share each value, that makes eight equal pairs, whatever R is.
//!
//! Source: sizes of joins by what tables make joined with themselves, Alon et al., "Tracking Join
//! and Self-Join Sizes in Limited Storage" (PODS 1999).

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::DataType;
use datafusion::common::ColumnStatistics;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::stats::Precision;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::plan_nodes::is_row_filter;
use crate::scan::cached_statistics::memory_source;

/// Rows of a sample, at least.
const LEAST_SAMPLE: usize = 256;

/// Bytes of a sample's strings, at most.
const MOST_BYTES: usize = 1 << 20;

/// Returns the number of values that a column of `plan` has in the table that it comes from; `None`
/// if it is not known. Values that no two rows of a sample share are not counted.
pub fn distinct_values(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    let (scan, column) = column_of_scan(plan, column)?;
    if let Some(source) = memory_source(scan.as_ref()) {
        let column = match source.projection() {
            Some(projection) => *projection.get(column)?,
            None => column,
        };
        return of_sample(source, column);
    }
    let statistics = StatisticsContext::new().compute(scan.as_ref(), &StatisticsArgs::new());
    of_statistics(statistics.ok()?.column_statistics.get(column)?)
}

/// Returns the one scan below `plan`, and the column of it that `column` is, perhaps of another
/// type. Each row of the scan must come through once or not at all.
fn column_of_scan(
    mut plan: &Arc<dyn ExecutionPlan>,
    mut column: usize,
) -> Option<(&Arc<dyn ExecutionPlan>, usize)> {
    while !plan.children().is_empty() {
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let picked = projection.expr().get(column)?;
            let cast = picked.expr.downcast_ref::<CastExpr>();
            let of = cast.map_or(&picked.expr, |cast| cast.expr());
            column = of.downcast_ref::<Column>()?.index();
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            if let Some(projection) = filter.projection() {
                column = *projection.get(column)?;
            }
        }
        if !is_row_filter(plan.as_ref()) {
            return None;
        }
        plan = plan.children().into_iter().next()?;
    }
    Some((plan, column))
}

fn of_statistics(column: &ColumnStatistics) -> Option<f64> {
    if let Some(distinct) = column.distinct_count.get_value() {
        return Some(*distinct as f64);
    }
    let bound = |value: &Precision<_>| value.get_value().cloned();
    let (from, to) = (bound(&column.min_value)?, bound(&column.max_value)?);
    if !from.data_type().is_integer() {
        return None;
    }
    Some(from.distance(&to)? as f64 + 1.0)
}

/// Returns the number of values in column `column` of the table, by a sample of its rows.
fn of_sample(source: &MemorySourceConfig, column: usize) -> Option<f64> {
    let batches: Vec<&RecordBatch> = source.partitions().iter().flatten().collect();
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    let columns = batches.iter().map(|batch| batch.column(column).as_ref());
    let columns: Vec<&dyn Array> = columns.collect();
    let mut hashes = hashes_at(&columns, &sampled_places(&batches, rows))?;
    hashes.sort_unstable();
    let equal = |run: &[u64]| (run.len() * (run.len() - 1) / 2) as f64;
    let equal: f64 = hashes.chunk_by(|a, b| a == b).map(equal).sum();
    let sample = sample_size(rows);
    if sample == rows {
        let (rows, not_null) = (rows as f64, hashes.len() as f64);
        // Here a row counts as one that shares its value with itself.
        return Some(rows * rows / (2.0 * equal + not_null).max(1.0));
    }
    let pairs = (sample * (sample - 1) / 2) as f64;
    let equal = equal - 2.0 * equal.sqrt();
    (equal > 0.0).then(|| pairs / equal)
}

/// Returns hashes of the values at `places`: columns, and rows in them. NULL has none, as it equals
/// nothing. Returns `None` for types with fields or dictionaries, and for long strings.
fn hashes_at(columns: &[&dyn Array], places: &[(usize, usize)]) -> Option<Vec<u64>> {
    if places.is_empty() {
        return Some(Vec::new());
    }
    let bytes = places
        .iter()
        .map(|(at, row)| bytes_copied(columns[*at], *row));
    if bytes.sum::<Option<usize>>()? > MOST_BYTES {
        return None;
    }
    let values = interleave(columns, places).ok()?;
    let mut hashes = vec![0; values.len()];
    create_hashes([&values], &RandomState::with_seed(0), &mut hashes).ok()?;
    Some(match values.nulls() {
        Some(nulls) => nulls.valid_indices().map(|row| hashes[row]).collect(),
        None => hashes,
    })
}

/// Returns the bytes that a copy of a value takes beside its slot; `None` if that is not known.
fn bytes_copied(column: &dyn Array, row: usize) -> Option<usize> {
    match column.data_type() {
        DataType::Utf8 => Some(column.as_string::<i32>().value_length(row) as usize),
        DataType::Binary => Some(column.as_binary::<i32>().value_length(row) as usize),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value_length(row) as usize),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value_length(row) as usize),
        DataType::Utf8View | DataType::BinaryView | DataType::Boolean => Some(0),
        other => other.primitive_width().map(|_| 0),
    }
}

/// Returns the batches and rows in them of a sample.
fn sampled_places(batches: &[&RecordBatch], rows: usize) -> Vec<(usize, usize)> {
    let sample = sampled_rows(rows);
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
fn sample_size(rows: usize) -> usize {
    (2 * rows.isqrt()).max(LEAST_SAMPLE).min(rows)
}

/// Returns the numbers of sampled rows, ascending: each is as likely as any other. Rows at regular
/// distances would miss repeats of neighbours, or see one value alone where values take turns.
fn sampled_rows(rows: usize) -> Vec<usize> {
    let size = sample_size(rows);
    if size == rows {
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
    use arrow::array::Int64Array;

    use super::*;

    /// A table of one column in batches of 1000 rows.
    fn of_values(values: Vec<Option<i64>>) -> Option<f64> {
        let batch = |values: &[Option<i64>]| {
            let column = Arc::new(Int64Array::from(values.to_vec())) as _;
            RecordBatch::try_from_iter_with_nullable([("v", column, true)]).unwrap()
        };
        let batches: Vec<_> = values.chunks(1000).map(batch).collect();
        let schema = batch(&[]).schema();
        let source = MemorySourceConfig::try_new(&[batches], schema, None).unwrap();
        of_sample(&source, 0)
    }

    fn of_rows(rows: i64, value: impl Fn(i64) -> Option<i64>) -> Option<f64> {
        of_values((0..rows).map(value).collect())
    }

    #[test]
    fn values_of_small_tables_are_exact() {
        assert_eq!(of_rows(0, Some), Some(0.0));
        assert_eq!(of_rows(25, Some), Some(25.0));
        assert_eq!(of_rows(200, |row| Some(row % 10)), Some(10.0));
        // A NULL makes no pair. So these join as if each value were in fewer rows.
        assert_eq!(
            of_rows(200, |row| (row % 2 == 0).then_some(row)),
            Some(400.0)
        );
        assert_eq!(of_rows(200, |_| None), Some(40_000.0));
    }

    #[test]
    fn samples_show_values_that_repeat() {
        for (rows, values) in [
            (10_000, 50),
            (100_000, 50),
            (100_000, 2000),
            (1_000_000, 50_000),
        ] {
            // In turns, and one after the other.
            for value in [&|row| Some(row % values), &|row| Some(row * values / rows)]
                as [&dyn Fn(i64) -> Option<i64>; 2]
            {
                let found = of_rows(rows, value).unwrap() / values as f64;
                assert!((0.7..3.0).contains(&found), "{rows}, {values}: {found}");
            }
        }
    }

    #[test]
    fn a_frequent_value_counts_as_few_values() {
        let half = |row: i64| Some(if row % 2 == 0 { 0 } else { row });
        let found = of_rows(100_000, half).unwrap();
        assert!((3.0..6.0).contains(&found), "{found}");
    }

    #[test]
    fn unique_values_are_not_counted() {
        assert_eq!(of_rows(1_000_000, Some), None);
        assert_eq!(of_rows(10_000, Some), None);
    }
}
