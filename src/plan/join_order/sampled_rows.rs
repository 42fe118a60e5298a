//! How many rows a leaf has, if that is a table in memory under a filter: by a sample of its rows.
//!
//! ```text
//!  FilterExec: x < 7471          8 of 1024 sampled rows pass
//!    table of 8000 rows     ─▶   63 rows
//! ```
//!
//! DataFusion takes a fifth of the rows where it knows no range of the column, and tables in memory
//! have none. The predicate is evaluated while a query is planned. So it must be one that never
//! fails, as those of a [`JoinTree`](super::tree::JoinTree) are.

use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::sample::sampled_columns;
use crate::scan::cached_statistics::rows_in_memory;
use crate::scan::table_columns::columns_of_table;

/// Rows of a sample, at most: a share of a hundredth is found with a standard deviation of a third
/// of it.
const SAMPLE_ROWS: usize = 1 << 10;

/// How many rows of a leaf pass its filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampledRows {
    /// As many of all rows as of the sample.
    pub about: f64,
    /// As many as there are with three more in the sample: 19 times of 20, that is enough if none
    /// was found.
    pub most: f64,
}

/// Returns the rows of `leaf` if it is a filter over a table in memory, perhaps with
/// projections above; `None` if it is something else, or if columns of the predicate are of types
/// that are not sampled.
pub fn sampled_rows(leaf: &Arc<dyn ExecutionPlan>) -> Option<SampledRows> {
    if let Some(projection) = leaf.downcast_ref::<ProjectionExec>() {
        return sampled_rows(projection.input());
    }
    let filter = leaf.downcast_ref::<FilterExec>()?;
    let rows = rows_in_memory(filter.input().as_ref())?;
    let (sample, predicate) = sampled(filter)?;
    let passes = predicate.evaluate(&sample).ok()?;
    let passes = passes.into_array(sample.num_rows()).ok()?;
    let passing = passes.as_boolean_opt()?.true_count();
    let sampled = sample.num_rows();
    let limit = filter.fetch().unwrap_or(rows).min(rows) as f64;
    let of_all = |passing: usize| (rows as f64 * passing as f64 / sampled as f64).min(limit);
    Some(SampledRows {
        about: of_all(passing),
        most: of_all(if sampled < rows { passing + 3 } else { passing }),
    })
}

/// Returns a sample of the columns that `filter` tests, and its predicate over these.
fn sampled(filter: &FilterExec) -> Option<(RecordBatch, PhysicalExprRef)> {
    let schema = filter.input().schema();
    let tested = collect_columns(filter.predicate()).into_iter();
    let mut tested: Vec<usize> = tested.map(|column| column.index()).collect();
    tested.sort_unstable();
    tested.dedup();
    let (table, columns) = columns_of_table(filter.input(), &tested)?;
    let batches: Vec<&RecordBatch> = table.partitions().iter().flatten().collect();
    let columns = sampled_columns(&batches, &columns, SAMPLE_ROWS)?;
    let schema = Arc::new(schema.project(&tested).ok()?);
    let sample = RecordBatch::try_new(schema, columns).ok()?;
    let predicate = over_columns(filter.predicate(), &tested).ok()?;
    Some((sample, predicate))
}

/// Returns `predicate` over rows that have the columns `tested` alone.
fn over_columns(predicate: &PhysicalExprRef, tested: &[usize]) -> Result<PhysicalExprRef> {
    let moved = Arc::clone(predicate).transform(|expression| {
        let column = expression.downcast_ref::<Column>();
        let place = column.and_then(|column| tested.iter().position(|t| *t == column.index()));
        Ok(match (column, place) {
            (Some(column), Some(place)) => {
                let moved = Column::new(column.name(), place);
                Transformed::yes(Arc::new(moved) as PhysicalExprRef)
            }
            _ => Transformed::no(expression),
        })
    });
    moved.data()
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringViewArray};
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;

    /// Rows of `table` under `op` of its column `x` and `value`, by a sample.
    fn found(rows: i64, op: Operator, value: i64) -> SampledRows {
        let of = |rows: std::ops::Range<i64>| {
            let text = rows.clone().map(|row| row.to_string());
            let text: ArrayRef = Arc::new(StringViewArray::from_iter_values(text));
            let x: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
            RecordBatch::try_from_iter([("s", text), ("x", x)]).unwrap()
        };
        let firsts = (0..rows).step_by(1000);
        let batches: Vec<_> = firsts.map(|row| of(row..rows.min(row + 1000))).collect();
        let schema = of(0..1).schema();
        let scan = MemorySourceConfig::try_new_exec(&[batches], schema.clone(), None).unwrap();
        let predicate = binary(col("x", &schema).unwrap(), op, lit(value), &schema).unwrap();
        let filter = FilterExec::try_new(predicate, scan).unwrap();
        let filter: Arc<dyn ExecutionPlan> = Arc::new(filter);
        let picked = vec![(col("s", &schema).unwrap(), "s".to_owned())];
        sampled_rows(&(Arc::new(ProjectionExec::try_new(picked, filter).unwrap()) as _)).unwrap()
    }

    #[test]
    fn rows_that_pass_are_counted_in_a_sample() {
        for rows in [55, 0] {
            let exact = SampledRows {
                about: rows as f64,
                most: rows as f64,
            };
            assert_eq!(found(500, Operator::Lt, rows), exact);
        }
        let none = found(100_000, Operator::Lt, 0);
        assert_eq!(none.about, 0.0);
        assert!((250.0..350.0).contains(&none.most), "{none:?}");
        for share in [0.01, 0.1, 0.5, 0.99] {
            let rows = 100_000.0 * share;
            let estimate = found(100_000, Operator::Lt, rows as i64);
            let factor = estimate.about / rows;
            assert!((0.5..2.0).contains(&factor), "{share}: {factor}");
            assert!(estimate.about < estimate.most, "{estimate:?}");
        }
    }
}
