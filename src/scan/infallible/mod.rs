//! The rule for what a filter may test: plain columns, and expressions that are known to be pure
//! and never to fail.
//!
//! ```text
//!  k                            tested
//!  CAST(k AS BIGINT), k + 1     tested: widening casts, wrapping arithmetic of integers
//!  s['k']                       tested: the field of a struct
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
//! made of is thus made of them, too.

use arrow::datatypes::{DataType, Schema};
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExprRef, ScalarFunctionExpr};

use widening::is_widening;

mod widening;

/// Returns whether `expression`, over rows of `schema`, is known to be pure and never to fail.
pub fn is_infallible(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    let mut children = expression.children().into_iter();
    children.all(|child| is_infallible(child, schema)) && is_infallible_node(expression, schema)
}

/// Returns whether `expression` never fails if its children do not.
fn is_infallible_node(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    if expression.is::<Column>() || expression.is::<Literal>() {
        return true;
    }
    if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        return from.is_ok_and(|from| is_widening(&from, cast.cast_type()));
    }
    if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        return is_wrapping_arithmetic(binary, schema);
    }
    let function = expression.downcast_ref::<ScalarFunctionExpr>();
    function.is_some_and(|function| is_field_of_struct(function, schema))
}

/// Returns whether it is a field of a struct, or a field of that.
fn is_field_of_struct(function: &ScalarFunctionExpr, schema: &Schema) -> bool {
    let Some((base, names)) = function.args().split_first() else {
        return false;
    };
    let field_of = |of: DataType, name: &PhysicalExprRef| {
        let name = name.downcast_ref::<Literal>()?.value().try_as_str()??;
        match of {
            DataType::Struct(fields) => Some(fields.find(name)?.1.data_type().clone()),
            _ => None,
        }
    };
    let base = base.data_type(schema).ok();
    let found = base.and_then(|base| names.iter().try_fold(base, field_of));
    function.fun().inner().is::<GetFieldFunc>() && !names.is_empty() && found.is_some()
}

/// Returns whether it is `+`, `-` or `*` of integers, which wraps around where it overflows.
fn is_wrapping_arithmetic(binary: &BinaryExpr, schema: &Schema) -> bool {
    let (left, right) = (binary.left(), binary.right());
    let is_integer = |side: &PhysicalExprRef| side.data_type(schema).is_ok_and(|t| t.is_integer());
    // One that is to fail instead is no longer equal to a plain one.
    let plain = BinaryExpr::new(left.clone(), *binary.op(), right.clone());
    let never_fails = matches!(
        binary.op(),
        Operator::Plus | Operator::Minus | Operator::Multiply
    );
    never_fails && is_integer(left) && is_integer(right) && *binary == plain
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, new_null_array};
    use arrow::compute::cast;
    use arrow::datatypes::{Field, Schema};
    use datafusion::functions::core::{get_field, nullif};
    use datafusion::logical_expr::Operator::{Divide, Minus, Modulo, Multiply, Plus};
    use datafusion::logical_expr::ScalarUDF;
    use datafusion::physical_expr::expressions::{col, lit};

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
        let floats: PhysicalExprRef = Arc::new(BinaryExpr::new(lit(1.0), Plus, lit(1.0)));
        assert!(!is_infallible(&floats, &schema));
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

    fn call(function: Arc<ScalarUDF>, arguments: Vec<PhysicalExprRef>) -> PhysicalExprRef {
        let field = Arc::new(Field::new("r", DataType::Int32, true));
        let options = Default::default();
        let call = ScalarFunctionExpr::new("r", function, arguments, field, options);
        Arc::new(call)
    }

    #[test]
    fn functions_are_not_known_to_be_pure_or_infallible() {
        let call = call(nullif(), vec![lit(1), lit(2)]);
        assert!(!is_infallible(&call, &Schema::empty()));
    }

    #[test]
    fn fields_of_structs_are_infallible_and_no_entries_of_maps() {
        let inner = DataType::Struct(vec![Field::new("k", DataType::Int32, true)].into());
        let outer = DataType::Struct(vec![Field::new("i", inner, true)].into());
        let entries = DataType::Struct(
            vec![
                Field::new("keys", DataType::Utf8, false),
                Field::new("values", DataType::Int32, true),
            ]
            .into(),
        );
        let map = DataType::Map(Arc::new(Field::new("entries", entries, false)), false);
        let schema = Schema::new(vec![
            Field::new("s", outer, true),
            Field::new("m", map, true),
        ]);
        let of = |column, names: &[&str]| {
            let names = names.iter().map(|name| lit(*name));
            let arguments = std::iter::once(col(column, &schema).unwrap()).chain(names);
            is_infallible(&call(get_field(), arguments.collect()), &schema)
        };
        assert!(of("s", &["i"]) && of("s", &["i", "k"]));
        assert!(!of("s", &["k"]) && !of("s", &["i", "k", "k"]) && !of("s", &[]));
        assert!(!of("m", &["a"]));
    }
}
