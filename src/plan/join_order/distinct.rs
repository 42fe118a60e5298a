//! How many values a key column has.
//!
//! ```text
//!  table in memory   a sample of its rows (`sample`)
//!  else              statistics: distinct values, or the range of integers
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::ColumnStatistics;
use datafusion::common::stats::Precision;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use crate::sample::values_of_sample;
use crate::scan::table_columns::{column_of_scan, columns_of_table};

/// Rows of a sample per square root of a table's rows. If four rows share each value, that makes
/// eight equal pairs.
const ROWS_PER_ROOT: usize = 2;

/// Integers per row of a range that still tells how many values there are. Keys have gaps: those of
/// orders in TPC-H have four integers per row.
const SPARSE: f64 = 16.0;

/// Returns how many combinations of values `columns` of `plan` have in the table in memory that
/// they come from: infinitely many, if no two rows of a sample share one. Returns `None` if they
/// come from elsewhere, or if their types are not sampled.
pub fn sampled_values(plan: &Arc<dyn ExecutionPlan>, columns: &[usize]) -> Option<f64> {
    let (table, columns) = columns_of_table(plan, columns)?;
    let batches: Vec<&RecordBatch> = table.partitions().iter().flatten().collect();
    values_of_sample(&batches, &columns, ROWS_PER_ROOT)
}

/// Returns how many values a column of `plan` has by statistics of the table that it comes from;
/// `None` if they do not tell.
pub fn values_by_statistics(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Option<f64> {
    let (scan, column) = column_of_scan(plan, column)?;
    let statistics = StatisticsContext::new().compute(scan.as_ref(), &StatisticsArgs::new());
    let statistics = statistics.ok()?;
    let rows = *statistics.num_rows.get_value()?;
    of_statistics(statistics.column_statistics.get(column)?, rows as f64)
}

/// Returns the number of values of a column of that many `rows`. A range of integers that is much
/// larger than the table says nothing: it may hold two values, or as many as there are rows.
fn of_statistics(column: &ColumnStatistics, rows: f64) -> Option<f64> {
    if let Some(distinct) = column.distinct_count.get_value() {
        return Some(*distinct as f64).filter(|distinct| *distinct > 0.0);
    }
    let bound = |value: &Precision<_>| value.get_value().cloned();
    let (from, to) = (bound(&column.min_value)?, bound(&column.max_value)?);
    if !from.data_type().is_integer() {
        return None;
    }
    let range = from.distance(&to)? as f64 + 1.0;
    (range <= SPARSE * rows).then_some(range)
}
