//! How many values a key column has.
//!
//! ```text
//!  table in memory   1,024 random rows ─▶ hashes ─▶ pairs of equal ones ─▶ values
//!  else              statistics: distinct values, or the range of integers
//! ```
//!
//! Two rows of a table share their value with the probability p. A column of N equally frequent
//! values has p = 1 / N. So 1 / p stands for the number of values where some are more frequent than
//! others, too: that is what a join makes pairs of. A sample of n rows has n (n - 1) / 2 pairs, and
//! p is the share of the equal ones among them. Chance is kept out: two standard deviations fewer
//! are taken, so that a few equal pairs count for nothing.
//!
//! Source: the size of a self-join from a sample, Alon et al., "Tracking Join and Self-Join Sizes in
//! Limited Storage" (PODS 1999).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::common::stats::Precision;
use datafusion::common::{ColumnStatistics, Result};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::plan_nodes::is_row_filter;
use crate::scan::cached_statistics::memory_source;

/// Rows of a sample.
const SAMPLE: usize = 1024;

/// Returns the number of values that a column of `plan` has in the table that it comes from; `None`
/// if it is not known. Values that no two rows of a sample share are not counted.
pub fn distinct_values(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    let (scan, column) = column_of_scan(plan, column)?;
    if let Some(source) = memory_source(scan.as_ref()) {
        let column = match source.projection() {
            Some(projection) => *projection.get(column)?,
            None => column,
        };
        return of_sample(source, column).ok().flatten();
    }
    let statistics = StatisticsContext::new().compute(scan.as_ref(), &StatisticsArgs::new());
    of_statistics(statistics.ok()?.column_statistics.get(column)?)
}

/// Returns the one scan below `plan`, and the column of it that `column` is, if each row of the
/// scan comes through once or not at all.
fn column_of_scan(
    mut plan: &Arc<dyn ExecutionPlan>,
    mut column: usize,
) -> Option<(&Arc<dyn ExecutionPlan>, usize)> {
    while !plan.children().is_empty() {
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let picked = projection.expr().get(column)?;
            column = picked.expr.downcast_ref::<Column>()?.index();
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
fn of_sample(source: &MemorySourceConfig, column: usize) -> Result<Option<f64>> {
    let batches: Vec<&RecordBatch> = source.partitions().iter().flatten().collect();
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    let mut hashes = sample_hashes(&batches, column, rows)?;
    hashes.sort_unstable();
    let equal = |run: &[u64]| (run.len() * (run.len() - 1) / 2) as f64;
    let equal: f64 = hashes.chunk_by(|a, b| a == b).map(equal).sum();
    if rows <= SAMPLE {
        let (rows, not_null) = (rows as f64, hashes.len() as f64);
        // Here a row counts as one that shares its value with itself.
        return Ok(Some(rows * rows / (2.0 * equal + not_null).max(1.0)));
    }
    let pairs = (SAMPLE * (SAMPLE - 1) / 2) as f64;
    let equal = equal - 2.0 * equal.sqrt();
    Ok((equal > 0.0).then(|| pairs / equal))
}

/// Returns hashes of the values in a sample of all `rows`. NULL has none, as it equals nothing.
fn sample_hashes(batches: &[&RecordBatch], column: usize, rows: usize) -> Result<Vec<u64>> {
    let mut sample = sampled_rows(rows).peekable();
    let mut hashes = Vec::with_capacity(SAMPLE.min(rows));
    let mut first = 0;
    for batch in batches {
        let end = first + batch.num_rows();
        let mut picked = Vec::new();
        while let Some(row) = sample.next_if(|row| *row < end) {
            picked.push((row - first) as u32);
        }
        if !picked.is_empty() {
            let values = take(batch.column(column), &UInt32Array::from(picked), None)?;
            add_hashes(&values, &mut hashes)?;
        }
        first = end;
    }
    Ok(hashes)
}

fn add_hashes(values: &ArrayRef, hashes: &mut Vec<u64>) -> Result<()> {
    let mut buffer = vec![0; values.len()];
    create_hashes([values], &RandomState::with_seed(0), &mut buffer)?;
    match values.logical_nulls() {
        Some(nulls) => hashes.extend(nulls.valid_indices().map(|row| buffer[row])),
        None => hashes.extend(buffer),
    }
    Ok(())
}

/// Returns the numbers of sampled rows, ascending: one at random of each stretch of `rows`. Rows at
/// regular distances would all have one value where values take turns.
fn sampled_rows(rows: usize) -> impl Iterator<Item = usize> {
    let n = rows.min(SAMPLE);
    (0..n).map(move |i| {
        let (from, to) = (rows * i / n, rows * (i + 1) / n);
        from + (scrambled(i as u64) % (to - from).max(1) as u64) as usize
    })
}

/// Returns bits of `n` that look random: the last step of SplitMix64.
fn scrambled(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}
