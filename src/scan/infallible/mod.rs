//! The rule for what a filter may test: plain columns, and expressions that are known to be pure
//! and never to fail.
//!
//! ```text
//!  k                            tested
//!  CAST(k AS BIGINT), k + 1     tested: widening casts, wrapping arithmetic of integers
//!  s['k'], substr(s, 1, 5)      tested: the field of a struct, some functions of DataFusion
//!  k < 5 AND s LIKE 'a%'        tested: conditions over what is tested
//!  (SELECT max(k) FROM t)       tested: its one value is there before rows are read
//!  CAST(s AS INT), 20 / d       not: they can fail. A WHERE or a join above the scan may be there
//!                               to keep them from the rows on which they do
//!  random(), other functions    not: a second draw differs, and nobody says which functions fail
//! ```
//!
//! A filter is evaluated where the scan is, and once more than the plan says. It also meets rows
//! that a WHERE or another join would have kept from it. So it must not matter on which rows, or
//! how often. No node of DataFusion tells whether an expression can fail, and a user-defined
//! function is never known not to. So this is a list of what is known, and all else is left where
//! it is.
//!
//! All filters of joins pass here. Joins make them of keys that hold to the rule
//! ([`pushdown`](crate::join::dynamic_filter::pushdown)). A filter goes below a projection only
//! over columns whose expressions do ([`pushdown_guard`](super::pushdown_guard)). What a key may be
//! made of is thus made of them, too. The same rule says which part of a condition AND and OR may
//! leave out without a difference ([`short_circuit`](super::short_circuit)).

use arrow::datatypes::{DataType, Schema};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr,
};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef, ScalarFunctionExpr};

use functions::is_infallible_function;
use widening::is_widening;

mod functions;
mod widening;

/// Bytes of a pattern of LIKE at most.
const PATTERN_BYTES: usize = 1000;

/// Returns whether `expression`, over rows of `schema`, is known to be pure and never to fail.
pub fn is_infallible(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    let mut children = expression.children().into_iter();
    children.all(|child| is_infallible(child, schema)) && is_infallible_node(expression, schema)
}

/// Returns whether `expression` never fails if its children do not.
fn is_infallible_node(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    if expression.is::<Column>()
        || expression.is::<Literal>()
        || expression.is::<ScalarSubqueryExpr>()
        || expression.is::<NotExpr>()
        || expression.is::<IsNullExpr>()
        || expression.is::<IsNotNullExpr>()
    {
        return true;
    }
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| is_widening(&from, cast.cast_type()));
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        return is_infallible_operator(binary, schema);
    }
    if let Some(like) = expression.downcast_ref::<LikeExpr>() {
        return has_short_pattern(like);
    }
    if let Some(list) = expression.downcast_ref::<InListExpr>() {
        return are_comparable(std::iter::once(list.expr()).chain(list.list()), schema);
    }
    if let Some(case) = expression.downcast_ref::<CaseExpr>() {
        return is_infallible_case(case, schema);
    }
    let function = expression.downcast_ref::<ScalarFunctionExpr>();
    function.is_some_and(|function| is_infallible_function(function, schema))
}

/// Returns whether `values`, of dictionaries or not, are of one type without fields, so that they
/// can be compared.
fn are_comparable<'a>(
    mut values: impl Iterator<Item = &'a PhysicalExprRef>,
    schema: &Schema,
) -> bool {
    let type_of = |value: &PhysicalExprRef| match value.data_type(schema).ok()? {
        DataType::Dictionary(_, values) => Some(*values),
        plain => Some(plain),
    };
    let first = values.next().and_then(type_of);
    first.is_some_and(|first| {
        !first.is_nested() && values.all(|value| type_of(value).as_ref() == Some(&first))
    })
}

/// Returns whether the pattern is known and short. It can become a regular expression, the size of
/// which is limited.
fn has_short_pattern(like: &LikeExpr) -> bool {
    let pattern = like.pattern().downcast_ref::<Literal>();
    let pattern = pattern.and_then(|pattern| pattern.value().try_as_str().flatten());
    pattern.is_some_and(|pattern| pattern.len() <= PATTERN_BYTES)
}

/// Returns whether no branch is cast, and values are compared with those of the same type. Branches
/// of dictionaries may have more values together than their keys can tell apart.
fn is_infallible_case(case: &CaseExpr, schema: &Schema) -> bool {
    let branches = case.when_then_expr();
    let compared = case.expr().map(|value| {
        let whens = branches.iter().map(|(when, _)| when);
        are_comparable(std::iter::once(value).chain(whens), schema)
    });
    let of = case.data_type(schema).ok();
    let results = branches.iter().map(|(_, then)| then);
    let mut results = results.chain(case.else_expr());
    let is_plain = of
        .as_ref()
        .is_some_and(|of| !of.is_nested() && !is_dictionary(of));
    let is_of_type = |result: &PhysicalExprRef| result.data_type(schema).ok() == of;
    is_plain && compared.unwrap_or(true) && results.all(is_of_type)
}

fn is_dictionary(of: &DataType) -> bool {
    matches!(of, DataType::Dictionary(..))
}

/// Returns whether the operator never fails if its sides do not.
fn is_infallible_operator(binary: &BinaryExpr, schema: &Schema) -> bool {
    use Operator::*;
    match binary.op() {
        And | Or => true,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom => {
            are_comparable([binary.left(), binary.right()].into_iter(), schema)
        }
        Plus | Minus | Multiply | Divide => is_infallible_arithmetic(binary, schema),
        _ => false,
    }
}

/// Returns whether the arithmetic never fails. That of floats does not. `+`, `-` and `*` of
/// integers wrap around where they overflow. Those of decimals have room for all digits if the two
/// precisions together are below 38.
fn is_infallible_arithmetic(binary: &BinaryExpr, schema: &Schema) -> bool {
    let (left, right) = (binary.left(), binary.right());
    // An operator that fails on overflow is not equal to a plain one.
    let plain = BinaryExpr::new(left.clone(), *binary.op(), right.clone());
    let types = (left.data_type(schema), right.data_type(schema));
    let (Ok(left), Ok(right), true) = (types.0, types.1, *binary == plain) else {
        return false;
    };
    match (&left, &right) {
        _ if left.is_floating() && left == right => true,
        _ if *binary.op() == Operator::Divide => false,
        (DataType::Decimal128(p, 0..), DataType::Decimal128(q, 0..)) => {
            // The result of `*` has p + q + 1 digits, and none has more than that.
            i16::from(*p) + i16::from(*q) < 38
        }
        _ => left.is_integer() && right.is_integer(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, new_null_array};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::Operator::{Divide, Minus, Modulo, Multiply, Plus};
    use datafusion::physical_expr::expressions::{
        case, col, in_list, is_not_null, is_null, like, lit, not,
    };

    use super::*;

    fn int(from: i64, to: DataType) -> ArrayRef {
        let value = arrow::array::Int64Array::from(vec![from]);
        cast(&value, &to).unwrap()
    }

    /// Returns a batch of integers `a`, `b` and strings `s`.
    fn batch() -> RecordBatch {
        let strings = new_null_array(&DataType::Utf8, 1);
        RecordBatch::try_from_iter([
            ("a", int(i64::from(i32::MAX), DataType::Int32)),
            ("b", int(i64::from(i32::MAX), DataType::Int32)),
            ("s", strings),
        ])
        .unwrap()
    }

    #[test]
    fn only_wrapping_arithmetic_is_infallible_and_it_wraps() {
        let batch = batch();
        let schema = batch.schema();
        let a = || col("a", &schema).unwrap();
        let of = |op| BinaryExpr::new(a(), op, col("b", &schema).unwrap());
        for op in [Plus, Minus, Multiply] {
            let plain: PhysicalExprRef = Arc::new(of(op));
            assert!(is_infallible(&plain, &schema), "{plain}");
            assert!(plain.evaluate(&batch).is_ok(), "{plain}");
            let checked: PhysicalExprRef = Arc::new(of(op).with_fail_on_overflow(true));
            assert!(!is_infallible(&checked, &schema), "checked {checked}");
        }
        for op in [Divide, Modulo] {
            let fails: PhysicalExprRef = Arc::new(of(op));
            assert!(!is_infallible(&fails, &schema), "{fails}");
        }
        for op in [Plus, Minus, Multiply, Divide] {
            let floats: PhysicalExprRef = Arc::new(BinaryExpr::new(lit(1.0), op, lit(0.0)));
            assert!(is_infallible(&floats, &schema), "{floats}");
            assert!(floats.evaluate(&batch).is_ok(), "{floats}");
        }
    }

    #[test]
    fn decimals_are_infallible_while_all_digits_have_room() {
        let nines = |digits: u8| {
            let value = 10_i128.pow(digits.into()) - 1;
            lit(ScalarValue::Decimal128(
                Some(value),
                digits,
                digits as i8 / 2,
            ))
        };
        let one_row = batch();
        for op in [Plus, Minus, Multiply] {
            for digits in 1..=38_u8 {
                let other = 38 - digits;
                for (left, right) in [(digits, other), (digits, digits)] {
                    if right == 0 {
                        continue;
                    }
                    let of: PhysicalExprRef =
                        Arc::new(BinaryExpr::new(nines(left), op, nines(right)));
                    let is_known = is_infallible(&of, &Schema::empty());
                    assert_eq!(is_known, left + right < 38, "{of}");
                    assert!(!is_known || of.evaluate(&one_row).is_ok(), "{of}");
                }
            }
        }
    }

    /// Conditions, each with whether it is known not to fail.
    #[test]
    fn conditions_are_as_infallible_as_what_they_compare() {
        let list = DataType::new_list(DataType::Int32, true);
        let tags = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Utf8));
        let schema = Schema::new(vec![
            Field::new("a", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
            Field::new("l", list, true),
            Field::new("t", tags, true),
        ]);
        let column = |name| col(name, &schema).unwrap();
        let of = |l, op, r| -> PhysicalExprRef { Arc::new(BinaryExpr::new(l, op, r)) };
        let quotient = || of(lit(20), Divide, column("a"));
        let less = || of(column("a"), Operator::Lt, lit(5));
        let in_list = |value, list| in_list(value, list, &false, &schema).unwrap();
        let case = |then, otherwise| case(None, vec![(less(), then)], Some(otherwise)).unwrap();
        for (condition, is_known) in [
            (less(), true),
            (of(quotient(), Operator::Lt, lit(5)), false),
            (of(column("l"), Operator::Eq, column("l")), false),
            (of(column("a"), Operator::Eq, lit(5_i64)), false),
            (of(less(), Operator::And, not(less()).unwrap()), true),
            (of(less(), Operator::Or, not(quotient()).unwrap()), false),
            (is_null(column("l")).unwrap(), true),
            (is_not_null(quotient()).unwrap(), false),
            (in_list(column("a"), vec![lit(1), lit(2)]), true),
            (in_list(column("a"), vec![lit(1), quotient()]), false),
            (
                like(false, false, column("s"), lit("%a_"), &schema).unwrap(),
                true,
            ),
            (
                like(false, false, column("s"), column("s"), &schema).unwrap(),
                false,
            ),
            (
                like(false, false, column("s"), lit("_".repeat(400_000)), &schema).unwrap(),
                false,
            ),
            (case(column("t"), column("t")), false),
            (case(column("a"), lit(0)), true),
            (case(column("a"), quotient()), false),
        ] {
            assert_eq!(is_infallible(&condition, &schema), is_known, "{condition}");
        }
    }

    #[test]
    fn an_expression_is_as_infallible_as_what_it_is_made_of() {
        let batch = batch();
        let schema: Arc<Schema> = batch.schema();
        let cast = |of, to| -> PhysicalExprRef { Arc::new(CastExpr::new(of, to, None)) };
        let s = col("s", &schema).unwrap();
        let fails = cast(s, DataType::Int32);
        assert!(!is_infallible(&fails, &schema));
        assert!(!is_infallible(
            &cast(fails.clone(), DataType::Int64),
            &schema
        ));
        let sum = |left, right| -> PhysicalExprRef { Arc::new(BinaryExpr::new(left, Plus, right)) };
        let a = col("a", &schema).unwrap();
        assert!(is_infallible(&sum(a.clone(), lit(1)), &schema));
        assert!(!is_infallible(&sum(a, fails), &schema));
    }
}
