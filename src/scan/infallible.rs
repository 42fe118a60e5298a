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

/// Returns whether every value of type `from` has one of type `to`, and every array of them.
fn is_widening(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    match (from, to) {
        _ if from == to => true,
        // Values of one dictionary can be too many bytes for 32-bit offsets.
        (Dictionary(_, _), Utf8 | Binary) => false,
        (Dictionary(_, values), _) => is_widening(values, to),
        (Utf8, LargeUtf8 | Utf8View) | (LargeUtf8, Utf8View) | (Utf8View, LargeUtf8) => true,
        (Binary, LargeBinary | BinaryView) | (LargeBinary, BinaryView) => true,
        (BinaryView, LargeBinary) | (Date32, Date64) => true,
        (Float16, Float32 | Float64) | (Float32, Float64) => true,
        _ if from.is_integer() && matches!(to, Float32 | Float64) => true,
        _ => match (integer(from), integer(to), decimal(from), decimal(to)) {
            (Some(from), Some(to), _, _) => {
                to.bits >= from.bits && (to.is_signed || !from.is_signed)
            }
            (Some(from), _, _, Some(to)) => to.whole >= from.digits() && to.scale >= 0,
            (_, _, Some(from), Some(to)) => to.whole >= from.whole && to.scale >= from.scale,
            _ => false,
        },
    }
}

struct Integer {
    /// Bits without the sign.
    bits: i16,
    is_signed: bool,
}

impl Integer {
    /// Returns the decimal digits of the largest one.
    fn digits(&self) -> i16 {
        (f32::from(self.bits) * std::f32::consts::LOG10_2) as i16 + 1
    }
}

fn integer(data_type: &DataType) -> Option<Integer> {
    let (bits, is_signed) = match data_type {
        DataType::Int8 => (7, true),
        DataType::Int16 => (15, true),
        DataType::Int32 => (31, true),
        DataType::Int64 => (63, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    };
    Some(Integer { bits, is_signed })
}

struct Decimal {
    /// Digits before the point.
    whole: i16,
    /// Digits behind it.
    scale: i8,
}

fn decimal(data_type: &DataType) -> Option<Decimal> {
    let (precision, scale) = match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (*precision, *scale),
        _ => return None,
    };
    Some(Decimal {
        whole: i16::from(precision) - i16::from(scale),
        scale,
    })
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

    #[test]
    fn casts_that_hold_every_value_are_infallible_and_no_others_of_numbers() {
        let integers = [
            (DataType::Int8, i128::from(i8::MIN), i128::from(i8::MAX)),
            (DataType::Int16, i128::from(i16::MIN), i128::from(i16::MAX)),
            (DataType::Int32, i128::from(i32::MIN), i128::from(i32::MAX)),
            (DataType::Int64, i128::from(i64::MIN), i128::from(i64::MAX)),
            (DataType::UInt8, 0, i128::from(u8::MAX)),
            (DataType::UInt16, 0, i128::from(u16::MAX)),
            (DataType::UInt32, 0, i128::from(u32::MAX)),
            (DataType::UInt64, 0, i128::from(u64::MAX)),
        ];
        for (from, from_min, from_max) in &integers {
            for (to, to_min, to_max) in &integers {
                let holds = to_min <= from_min && from_max <= to_max;
                assert_eq!(is_widening(from, to), holds, "{from} to {to}");
            }
            for whole in 1..25 {
                let decimal = DataType::Decimal128(whole + 3, 3);
                let holds = from_max.to_string().len() <= usize::from(whole);
                assert_eq!(is_widening(from, &decimal), holds, "{from} to {decimal}");
            }
        }
        let decimal = DataType::Decimal128;
        assert!(is_widening(&decimal(10, 2), &decimal(12, 4)));
        assert!(!is_widening(&decimal(10, 2), &decimal(11, 4)));
        assert!(!is_widening(&decimal(10, 2), &decimal(12, 1)));
        assert!(!is_widening(&decimal(10, 2), &DataType::Int64));
    }

    #[test]
    fn strings_and_times_that_may_not_survive_are_not_cast() {
        let timestamp = |zone: Option<&str>| {
            DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, zone.map(Into::into))
        };
        let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        for (from, to) in [
            (DataType::Utf8, DataType::Int32),
            (DataType::LargeUtf8, DataType::Utf8),
            (DataType::Utf8View, DataType::Utf8),
            (dictionary.clone(), DataType::Utf8),
            (DataType::Binary, DataType::Utf8),
            (DataType::Date64, DataType::Date32),
            (DataType::Float64, DataType::Float32),
            (DataType::Float64, DataType::Int64),
            (timestamp(None), timestamp(Some("+02:00"))),
        ] {
            assert!(!is_widening(&from, &to), "{from} to {to}");
        }
        assert!(is_widening(&DataType::Utf8, &DataType::Utf8View));
        assert!(is_widening(&dictionary, &DataType::Utf8View));
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
