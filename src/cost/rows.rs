//! How many rows a side of a join is expected to have, and how wide they are.
//!
//! ```text
//!  Repartition ─▶ Projection ─▶ Filter ─▶ scan          DataFusion: 6 M of 6 M rows
//!                               l_shipdate in September        here: 1.2 M
//! ```
//!
//! DataFusion's statistics, but for one thing: where a filter's columns have no known bounds, its
//! analysis of intervals says that every row passes (`FilterExec::statistics_helper`: a
//! selectivity of 1), though for predicates that it cannot analyse at all it takes
//! `datafusion.optimizer.default_filter_selectivity`. Such a filter counts as one that cannot be analysed here. (TPC-H
//! query 14 at scale 1: 6,001,215 rows are expected, 75,983 pass.)

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

/// The rows that `plan` is expected to give, if that can be told.
///
/// # Errors
/// Those of the plan's statistics.
pub fn expected_rows(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let context = StatisticsContext::new();
    let share = kept(&context, plan)?;
    Ok(known_rows(&context, plan)?.map(|rows| (rows as f64 * share) as usize))
}

/// Values of eight bytes of a row, beside two; strings and nested values count as views of them.
pub fn more_values(schema: &Schema) -> f64 {
    let bytes = |field: &Arc<Field>| match field.data_type() {
        DataType::Null | DataType::Boolean => 0,
        other => other.primitive_width().unwrap_or(16),
    };
    let bytes: usize = schema.fields().iter().map(bytes).sum();
    (bytes as f64 / 8.0 - 2.0).max(0.0)
}

fn known_rows(context: &StatisticsContext, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<usize>> {
    let statistics = context.compute(plan.as_ref(), &StatisticsArgs::new())?;
    Ok(statistics.num_rows.get_value().copied())
}

/// The share of the rows of `plan`'s statistics that filters without known bounds let through, down to where there
/// are not as many rows as in the one input: an aggregate of which nothing is known has as many, too.
fn kept(context: &StatisticsContext, plan: &Arc<dyn ExecutionPlan>) -> Result<f64> {
    let mut share = 1.0;
    let mut node = plan;
    while let [input] = node.children()[..] {
        let keeps_all = known_rows(context, node)? == known_rows(context, input)?;
        match node.downcast_ref::<FilterExec>() {
            Some(filter) if keeps_all => share *= f64::from(filter.default_selectivity()) / 100.0,
            None if !keeps_all => break,
            _ => {}
        }
        node = input;
    }
    Ok(share)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, RecordBatch};
    use datafusion::prelude::SessionContext;

    use super::*;

    /// A table `t` of 1,000 rows, in memory, whose columns have no statistics.
    fn session() -> SessionContext {
        let column = Arc::new(Int32Array::from_iter_values(0..1000)) as _;
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let context = SessionContext::new();
        context.register_batch("t", batch).unwrap();
        context
    }

    async fn rows_of(sql: &str) -> Option<usize> {
        let frame = session().sql(sql).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        expected_rows(&plan).unwrap()
    }

    #[tokio::test]
    async fn a_filter_of_which_nothing_is_known_keeps_a_fifth() {
        assert_eq!(rows_of("SELECT a FROM t").await, Some(1000));
        assert_eq!(rows_of("SELECT a FROM t WHERE a > 10").await, Some(200));
        let twice = "SELECT a + 1 FROM (SELECT a FROM t WHERE a > 10) WHERE random() < a";
        assert!(rows_of(twice).await.is_some_and(|rows| rows <= 200));
    }

    #[test]
    fn rows_are_as_wide_as_their_columns() {
        let field = |data_type| Field::new("c", data_type, true);
        let two = Schema::new(vec![field(DataType::Int64); 2]);
        assert_eq!(more_values(&two), 0.0);
        assert_eq!(more_values(&Schema::empty()), 0.0);
        let types = [
            DataType::Int64,
            DataType::Utf8View,
            DataType::Int32,
            DataType::Boolean,
        ];
        let wide = Schema::new(types.map(field).to_vec());
        assert_eq!(more_values(&wide), 1.5);
    }

    #[tokio::test]
    async fn what_statistics_know_stays() {
        let in_order = "SELECT a FROM (SELECT a FROM t WHERE a > 10) ORDER BY a";
        assert_eq!(rows_of(in_order).await, Some(200));
        assert_eq!(rows_of("SELECT a FROM t WHERE false").await, Some(0));
        let one = "SELECT count(*) FROM t WHERE a > 10";
        assert_eq!(rows_of(one).await, Some(1));
        // An aggregate that is estimated to have as many rows as its input has as many as that.
        let groups = "SELECT a, count(*) FROM t WHERE a > 10 GROUP BY a";
        assert_eq!(rows_of(groups).await, Some(200));
    }
}
