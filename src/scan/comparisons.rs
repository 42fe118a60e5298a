//! The part of a filter node's predicate that a scan may test first: comparisons of a column with a
//! literal.
//!
//! ```text
//!  FilterExec: x < 1351 AND name LIKE '%green%'                    tests all of it
//!    DynamicFilterExec: filters=[k1, k2, …], predicate=x < 1351    tests x and the keys
//!      DataSourceExec
//! ```
//!
//! Dynamic filters go below the filter node, where they leave out rows before it copies any. But a
//! comparison costs a nanosecond per row, and the lookup of a key several. If the comparison leaves
//! few rows, the keys of the others are looked up for nothing. So the scan tests both, in an order
//! that it finds while it reads, and copies rows once. The filter node stays, and tests the
//! survivors again: plans are read by other code, which looks for it.
//!
//! A comparison never fails and draws no random number. But another conjunct may fail, and AND
//! evaluates its right side for fewer rows if the left one leaves few of a batch. Rows that are
//! left out before change that share. So nothing is tested first if some conjunct may fail.

use arrow::datatypes::Schema;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::conjunction_opt;
use datafusion::physical_expr::{PhysicalExprRef, split_conjunction};

use super::infallible::is_infallible;

/// Returns those of the conjuncts of `predicate`, over rows of `schema`, that compare a column with
/// a literal; `None` if none does, or if the predicate may fail.
pub fn comparisons(predicate: &PhysicalExprRef, schema: &Schema) -> Option<PhysicalExprRef> {
    if !is_infallible(predicate, schema) {
        return None;
    }
    let parts = split_conjunction(predicate).into_iter();
    let cheap = parts.filter(|part| is_comparison(part)).cloned();
    conjunction_opt(cheap)
}

fn compares(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
    )
}

fn is_comparison(part: &PhysicalExprRef) -> bool {
    let Some(binary) = part.downcast_ref::<BinaryExpr>() else {
        return false;
    };
    let (left, right) = (binary.left(), binary.right());
    let are_sides = (left.is::<Column>() && right.is::<Literal>())
        || (left.is::<Literal>() && right.is::<Column>());
    compares(*binary.op()) && are_sides
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::common::ScalarValue;
    use datafusion::physical_expr::expressions::{binary, col, is_null, like, lit};

    use super::*;

    #[test]
    fn comparisons_of_a_column_with_a_literal_are_taken() {
        let list = DataType::new_list(DataType::Int64, true);
        let fields = [
            ("x", DataType::Int64),
            ("s", DataType::Utf8View),
            ("u", DataType::Utf8),
            ("l", list),
        ];
        let fields = fields.map(|(name, of)| Field::new(name, of, true));
        let schema = Schema::new(fields.to_vec());
        let column = |name| col(name, &schema).unwrap();
        let compare = |l, op, r| binary(l, op, r, &schema).unwrap();
        let and = |l, r| compare(l, Operator::And, r);

        let less = compare(column("x"), Operator::Lt, lit(5_i64));
        let a = lit(ScalarValue::Utf8View(Some("a".into())));
        let text = compare(a, Operator::NotEq, column("s"));
        let others = [
            compare(column("x"), Operator::Eq, column("x")),
            compare(less.clone(), Operator::Or, text.clone()),
            like(false, false, column("u"), lit("%a%"), &schema).unwrap(),
            is_null(column("x")).unwrap(),
        ];
        for other in others {
            assert!(comparisons(&other, &schema).is_none(), "{other}");
            let all = and(and(less.clone(), other), text.clone());
            let taken = comparisons(&all, &schema).unwrap();
            assert_eq!(*taken, *and(less.clone(), text.clone()), "{taken}");
        }
        // None is taken beside one that may fail, wherever it stands.
        let quotient = compare(lit(5_i64), Operator::Divide, column("x"));
        let fails = compare(quotient, Operator::Gt, lit(1_i64));
        let nested = compare(column("l"), Operator::Eq, column("l"));
        for other in [fails, nested] {
            for all in [
                other.clone(),
                and(less.clone(), other.clone()),
                and(other.clone(), less.clone()),
                and(text.clone(), compare(other, Operator::Or, less.clone())),
            ] {
                assert!(comparisons(&all, &schema).is_none(), "{all}");
            }
        }
    }
}
