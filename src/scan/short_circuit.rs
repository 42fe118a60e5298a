//! Conditions that fail or not depending on which rows share a batch.
//!
//! ```text
//!  m % 10 = 3 AND 10 / z > 1
//!
//!  one row of ten has m % 10 = 3      the division sees these alone
//!  keys leave out the other rows      half of the batch has m % 10 = 3: the division sees all
//! ```
//!
//! The left side of AND lets some rows of a batch pass. If these are few, AND evaluates its right
//! side for them alone, and if there are none, for no row. Otherwise it evaluates both sides for
//! all rows (`BinaryExpr::evaluate`). OR does likewise. So a right side that may fail can do so
//! once other rows are gone, or once batches are put together. But a query must not fail because
//! rows were left out that it has no use for. So no filter is tested below a node with such a
//! condition ([`pushdown_guard`](super::pushdown_guard)).
//!
//! CASE evaluates each branch for its own rows only, whatever else is in the batch. So the residual
//! filter of a join, whose batches are this crate's own, becomes a CASE when the join runs
//! ([`by_row`]). A filter node is not changed in that way: planners read its predicate.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{BinaryExpr, case, lit};

use super::infallible::is_infallible;

/// Returns whether evaluating `expression` over rows of `schema` may fail or not depending on the
/// other rows of the batch.
pub fn depends_on_batch(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    let is_left_out = sides(expression).is_some_and(|(_, right)| !is_infallible(right, schema));
    let mut children = expression.children().into_iter();
    is_left_out || children.any(|child| depends_on_batch(child, schema))
}

/// Returns a condition that is true of the same rows as `condition`. It may be false where
/// `condition` is NULL. The right side of an AND or OR is evaluated only for rows that need it, if
/// it may fail.
///
/// # Errors
/// If a side is no condition.
pub fn by_row(condition: &PhysicalExprRef, schema: &Schema) -> Result<PhysicalExprRef> {
    let Some((binary, right)) = sides(condition) else {
        return Ok(Arc::clone(condition));
    };
    let is_left_out = !is_infallible(right, schema);
    let left = by_row(binary.left(), schema)?;
    let right = by_row(right, schema)?;
    match (is_left_out, binary.op()) {
        (false, op) => Ok(Arc::new(BinaryExpr::new(left, *op, right))),
        (true, Operator::And) => case(None, vec![(left, right)], Some(lit(false))),
        (true, _) => case(None, vec![(left, lit(true))], Some(right)),
    }
}

/// Returns AND or OR, and its right side.
fn sides(expression: &PhysicalExprRef) -> Option<(&BinaryExpr, &PhysicalExprRef)> {
    let binary = expression.downcast_ref::<BinaryExpr>()?;
    let is_logical = matches!(binary.op(), Operator::And | Operator::Or);
    is_logical.then(|| (binary, binary.right()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, cast::AsArray};
    use datafusion::logical_expr::Operator::{And, Divide, Gt, Or};
    use datafusion::physical_expr::expressions::{binary, col, not};

    use super::*;

    /// Rows of `a`, a condition or NULL, and `z`, by which only rows that pass `a` can be divided.
    fn batch(passes: &[Option<bool>], divisor_of_others: i64) -> RecordBatch {
        let z = passes.iter().map(|p| match p {
            Some(true) => 2,
            _ => divisor_of_others,
        });
        RecordBatch::try_from_iter([
            (
                "a",
                Arc::new(BooleanArray::from(passes.to_vec())) as ArrayRef,
            ),
            ("z", Arc::new(Int64Array::from_iter_values(z)) as ArrayRef),
        ])
        .unwrap()
    }

    fn operands(schema: &Schema) -> [PhysicalExprRef; 2] {
        let of = |l, op, r| binary(l, op, r, schema).unwrap();
        let quotient = of(lit(10_i64), Divide, col("z", schema).unwrap());
        [col("a", schema).unwrap(), of(quotient, Gt, lit(4_i64))]
    }

    fn passed(condition: &PhysicalExprRef, batch: &RecordBatch) -> Result<Vec<bool>> {
        let rows = batch.num_rows();
        let values = condition.evaluate(batch)?.into_array(rows)?;
        let values = values.as_boolean();
        Ok(values.iter().map(|value| value == Some(true)).collect())
    }

    #[test]
    fn what_a_condition_leaves_out_of_few_rows_is_left_out_by_row() {
        let few = batch(
            &[
                Some(true),
                Some(false),
                Some(false),
                Some(false),
                Some(false),
            ],
            0,
        );
        let half = batch(&[Some(true), Some(false)], 0);
        let schema = few.schema();
        let [a, divides] = operands(&schema);
        let both = binary(a, And, divides, &schema).unwrap();
        assert!(depends_on_batch(&both, &schema));
        assert!(passed(&both, &few).is_ok());
        assert!(passed(&both, &half).is_err());
        let both = by_row(&both, &schema).unwrap();
        assert_eq!(
            passed(&both, &few).unwrap(),
            [true, false, false, false, false]
        );
        assert_eq!(passed(&both, &half).unwrap(), [true, false]);
    }

    #[test]
    fn by_row_the_same_rows_pass_with_null_too() {
        let rows = batch(&[Some(true), Some(false), None], 3);
        let schema = rows.schema();
        let [a, divides] = operands(&schema);
        let of = |l: &PhysicalExprRef, op, r: &PhysicalExprRef| {
            binary(Arc::clone(l), op, Arc::clone(r), &schema).unwrap()
        };
        let (and, or) = (of(&a, And, &divides), of(&a, Or, &divides));
        let fails_not = of(&divides, Or, &a);
        for condition in [
            and.clone(),
            or.clone(),
            of(&or, And, &and),
            of(&and, Or, &divides),
            fails_not,
            not(and.clone()).unwrap(),
        ] {
            let changed = by_row(&condition, &schema).unwrap();
            assert_eq!(
                passed(&changed, &rows).unwrap(),
                passed(&condition, &rows).unwrap(),
                "{changed}"
            );
        }
    }

    #[test]
    fn only_a_right_side_that_may_fail_depends_on_the_batch() {
        let rows = batch(&[Some(true)], 3);
        let schema = rows.schema();
        let [a, divides] = operands(&schema);
        let left = binary(divides, And, a.clone(), &schema).unwrap();
        assert!(!depends_on_batch(&left, &schema));
        assert_eq!(*by_row(&left, &schema).unwrap(), *left);
        let within = not(binary(a, Or, left, &schema).unwrap()).unwrap();
        assert!(depends_on_batch(&within, &schema));
    }
}
