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
//! all rows (`BinaryExpr::evaluate`). OR does likewise, and IN ends its list once all rows of the
//! batch have matched. So a part that may fail can do so once other rows are gone, or once batches
//! are put together. A query must not fail because rows were left out that it has no use for.
//! That is why no filter is tested below a node with such a condition
//! ([`pushdown_guard`](super::pushdown_guard)).
//!
//! The batches of a join are this crate's own, so that its residual filter must not depend on them.
//! CASE evaluates each branch for its own rows only, whatever else is in the batch. So AND and OR
//! become CASE when the join runs ([`by_row`]). A filter node is not changed in that way: planners
//! read its predicate. A join with a condition that still depends on batches stays DataFusion's.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{BinaryExpr, InListExpr, case, lit};

use super::infallible::is_infallible;

/// Returns whether evaluating `expression` over rows of `schema` may fail or not depending on the
/// other rows of the batch.
pub fn depends_on_batch(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    let may_fail = |part: &PhysicalExprRef| !is_infallible(part, schema);
    let is_left_out = match expression.downcast_ref::<InListExpr>() {
        Some(list) => list.list().iter().skip(1).any(may_fail),
        None => sides(expression).is_some_and(|(_, right)| may_fail(right)),
    };
    let mut children = expression.children().into_iter();
    is_left_out || children.any(|child| depends_on_batch(child, schema))
}

/// Returns an expression with the values of `expression`. It evaluates the right side of each AND
/// and OR for no row that does not need it, if that side may fail.
///
/// # Errors
/// If a side of AND or OR is not Boolean.
pub fn by_row(expression: &PhysicalExprRef, schema: &Schema) -> Result<PhysicalExprRef> {
    let expression = Arc::clone(expression);
    let changed = expression.transform_up(|part| {
        let case = match sides(&part) {
            Some((binary, right)) if !is_infallible(right, schema) => as_case(binary)?,
            _ => return Ok(Transformed::no(part)),
        };
        Ok(Transformed::yes(case))
    });
    changed.data()
}

/// Returns AND or OR as a CASE.
///
/// ```text
///  CASE left WHEN decided THEN decided       decided: false of AND, true of OR
///            WHEN other THEN right
///            ELSE CASE right WHEN decided THEN decided END       NULL, unless right decides
///  END
/// ```
fn as_case(binary: &BinaryExpr) -> Result<PhysicalExprRef> {
    let (left, right) = (binary.left(), binary.right());
    let is_or = *binary.op() == Operator::Or;
    let decides = || (lit(is_or), lit(is_or));
    let of_null = case(Some(Arc::clone(right)), vec![decides()], None)?;
    let branches = vec![decides(), (lit(!is_or), Arc::clone(right))];
    case(Some(Arc::clone(left)), branches, Some(of_null))
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
    use datafusion::physical_expr::expressions::{binary, col, in_list, not};

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

    fn values(condition: &PhysicalExprRef, batch: &RecordBatch) -> Result<Vec<Option<bool>>> {
        let values = condition.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(values.as_boolean().iter().collect())
    }

    #[test]
    fn and_divides_for_few_rows_alone_and_by_row_for_any_share() {
        let few = [
            Some(true),
            Some(false),
            Some(false),
            Some(false),
            Some(false),
        ];
        let (few, half) = (batch(&few, 0), batch(&few[..2], 0));
        let schema = few.schema();
        let [a, divides] = operands(&schema);
        let and = binary(a, And, divides, &schema).unwrap();
        for condition in [and.clone(), not(not(and).unwrap()).unwrap()] {
            assert!(depends_on_batch(&condition, &schema));
            assert!(values(&condition, &few).is_ok());
            assert!(values(&condition, &half).is_err());
            let by_row = by_row(&condition, &schema).unwrap();
            assert!(!depends_on_batch(&by_row, &schema), "{by_row}");
            let expected = [Some(true), Some(false)];
            assert_eq!(values(&by_row, &half).unwrap(), expected, "{by_row}");
        }
    }

    /// All pairs of true, false and NULL.
    #[test]
    fn by_row_the_values_are_the_same() {
        let all = [Some(true), Some(false), None];
        let lefts = all.iter().flat_map(|left| [*left; 3]);
        let quotients = all.iter().cycle().take(9).map(|right| match right {
            Some(true) => Some(2),
            Some(false) => Some(5),
            None => None,
        });
        let rows = RecordBatch::try_from_iter([
            ("a", Arc::new(lefts.collect::<BooleanArray>()) as ArrayRef),
            ("z", Arc::new(quotients.collect::<Int64Array>()) as ArrayRef),
        ])
        .unwrap();
        let schema = rows.schema();
        let [a, divides] = operands(&schema);
        let of = |l: &PhysicalExprRef, op, r: &PhysicalExprRef| {
            binary(Arc::clone(l), op, Arc::clone(r), &schema).unwrap()
        };
        let (and, or) = (of(&a, And, &divides), of(&a, Or, &divides));
        for condition in [
            and.clone(),
            or.clone(),
            of(&or, And, &and),
            of(&and, Or, &divides),
            of(&divides, Or, &a),
            not(or).unwrap(),
            not(and).unwrap(),
        ] {
            let changed = by_row(&condition, &schema).unwrap();
            let expected = values(&condition, &rows).unwrap();
            assert_eq!(values(&changed, &rows).unwrap(), expected, "{changed}");
        }
    }

    #[test]
    fn only_a_right_side_that_may_fail_depends_on_the_batch() {
        let rows = batch(&[Some(true)], 3);
        let schema = rows.schema();
        let [a, divides] = operands(&schema);
        let left = binary(divides.clone(), And, a.clone(), &schema).unwrap();
        assert!(!depends_on_batch(&left, &schema));
        assert_eq!(*by_row(&left, &schema).unwrap(), *left);
        let within = not(binary(a.clone(), Or, left, &schema).unwrap()).unwrap();
        assert!(depends_on_batch(&within, &schema));

        let list = |items| in_list(a.clone(), items, &false, &schema).unwrap();
        assert!(!depends_on_batch(
            &list(vec![divides.clone(), a.clone()]),
            &schema
        ));
        let ends = list(vec![a.clone(), divides]);
        assert!(depends_on_batch(&by_row(&ends, &schema).unwrap(), &schema));
    }
}
