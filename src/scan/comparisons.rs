//! The part of a filter node's predicate that a scan may test first: comparisons of a column with a
//! literal.
//!
//! ```text
//!  FilterExec: x < 1351 AND name LIKE '%green%'                    tests all of it
//!    DynamicFilterExec: filters=[k1, k2, …], predicate=x < 1351    tests x first, then the keys
//!      DataSourceExec
//! ```
//!
//! Dynamic filters go below the filter node, where they leave out rows before it copies any. But a
//! comparison costs a nanosecond per row, and the lookup of a key several. If the comparison leaves
//! few rows, the keys of the others are looked up in vain. So the scan tests both, in the order of
//! what they leave, and copies rows once. The filter node stays, and tests the survivors again:
//! plans are read by other code, which looks for it.
//!
//! A comparison never fails, and draws no random number. It was evaluated for all rows before there
//! were dynamic filters. So no row is tested by what the plan keeps from it.

use arrow::datatypes::Schema;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
use datafusion::physical_expr::utils::conjunction_opt;
use datafusion::physical_expr::{PhysicalExprRef, split_conjunction};

/// Returns those of the conjuncts of `predicate`, over rows of `schema`, that compare a column with
/// a literal; `None` if none does.
pub fn comparisons(predicate: &PhysicalExprRef, schema: &Schema) -> Option<PhysicalExprRef> {
    let parts = split_conjunction(predicate).into_iter();
    let cheap = parts.filter(|part| is_comparison(part, schema)).cloned();
    conjunction_opt(cheap)
}

fn is_comparison(part: &PhysicalExprRef, schema: &Schema) -> bool {
    let Some(binary) = part.downcast_ref::<BinaryExpr>() else {
        return false;
    };
    let (left, right) = (binary.left(), binary.right());
    let are_sides = (left.is::<Column>() && right.is::<Literal>())
        || (left.is::<Literal>() && right.is::<Column>());
    let is_nested = |side: &PhysicalExprRef| side.data_type(schema).is_ok_and(|t| t.is_nested());
    let compares = matches!(
        binary.op(),
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
    );
    compares && are_sides && !is_nested(left) && !is_nested(right)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
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
        let text = compare(lit("a"), Operator::NotEq, column("s"));
        let others = [
            compare(column("x"), Operator::Eq, column("x")),
            compare(less.clone(), Operator::Or, text.clone()),
            compare(column("l"), Operator::Eq, column("l")),
            compare(
                compare(lit(5_i64), Operator::Divide, column("x")),
                Operator::Gt,
                lit(1_i64),
            ),
            like(false, false, column("u"), lit("%a%"), &schema).unwrap(),
            is_null(column("x")).unwrap(),
        ];
        for other in others {
            assert!(comparisons(&other, &schema).is_none(), "{other}");
            let all = and(and(less.clone(), other), text.clone());
            let taken = comparisons(&all, &schema).unwrap();
            assert_eq!(*taken, *and(less.clone(), text.clone()), "{taken}");
        }
    }
}
