//! The functions of DataFusion that are pure and never fail, with the arguments that are checked
//! here.
//!
//! Each was read in DataFusion's source. A function is known by the type of its implementation, as
//! a user may register another one under its name.

use arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions::core::getfield::GetFieldFunc;
use datafusion::functions::datetime::date_part::DatePartFunc;
use datafusion::functions::string::btrim::BTrimFunc;
use datafusion::functions::string::lower::LowerFunc;
use datafusion::functions::string::ltrim::LtrimFunc;
use datafusion::functions::string::rtrim::RtrimFunc;
use datafusion::functions::string::starts_with::StartsWithFunc;
use datafusion::functions::string::upper::UpperFunc;
use datafusion::functions::unicode::character_length::CharacterLengthFunc;
use datafusion::functions::unicode::substr::SubstrFunc;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::{PhysicalExprRef, ScalarFunctionExpr};

/// Returns whether a function is known to be pure and never to fail if its arguments, over rows of
/// `schema`, do not.
pub fn is_infallible_function(function: &ScalarFunctionExpr, schema: &Schema) -> bool {
    let implementation = function.fun().inner();
    let arguments = function.args();
    if implementation.is::<GetFieldFunc>() {
        return is_field_of_struct(arguments, schema);
    }
    if implementation.is::<SubstrFunc>() {
        return has_bounds(arguments, schema);
    }
    if implementation.is::<DatePartFunc>() {
        return is_part_of_date(arguments, schema);
    }
    let is_of_strings = implementation.is::<LowerFunc>()
        || implementation.is::<UpperFunc>()
        || implementation.is::<BTrimFunc>()
        || implementation.is::<LtrimFunc>()
        || implementation.is::<RtrimFunc>()
        || implementation.is::<StartsWithFunc>()
        || implementation.is::<CharacterLengthFunc>();
    is_of_strings && arguments.iter().all(|argument| is_string(argument, schema))
}

fn is_string(argument: &PhysicalExprRef, schema: &Schema) -> bool {
    argument.data_type(schema).is_ok_and(|t| t.is_string())
}

fn literal(argument: &PhysicalExprRef) -> Option<&ScalarValue> {
    Some(argument.downcast_ref::<Literal>()?.value())
}

/// Returns whether it is a field of a struct, or a field of that.
fn is_field_of_struct(arguments: &[PhysicalExprRef], schema: &Schema) -> bool {
    let Some((base, names)) = arguments.split_first() else {
        return false;
    };
    let field_of = |of: DataType, name: &PhysicalExprRef| {
        let name = literal(name)?.try_as_str()??;
        match of {
            DataType::Struct(fields) => Some(fields.find(name)?.1.data_type().clone()),
            _ => None,
        }
    };
    let base = base.data_type(schema).ok();
    let found = base.and_then(|base| names.iter().try_fold(base, field_of));
    !names.is_empty() && found.is_some()
}

/// Returns whether `substr` has a start and a length that are known, and no negative length.
fn has_bounds(arguments: &[PhysicalExprRef], schema: &Schema) -> bool {
    let Some((string, bounds)) = arguments.split_first() else {
        return false;
    };
    let number = |bound: &PhysicalExprRef| match literal(bound)? {
        ScalarValue::Int64(Some(number)) => Some(*number),
        _ => None,
    };
    let bounds: Option<Vec<i64>> = bounds.iter().map(number).collect();
    let is_valid = bounds.is_some_and(|bounds| match bounds.as_slice() {
        [start] => *start > i64::MIN,
        [start, length] => *start > i64::MIN && *length >= 0,
        _ => false,
    });
    is_valid && is_string(string, schema)
}

/// Returns whether it is a part of a date that every date has.
fn is_part_of_date(arguments: &[PhysicalExprRef], schema: &Schema) -> bool {
    let [part, date] = arguments else {
        return false;
    };
    let part = literal(part).and_then(|part| part.try_as_str().flatten());
    let is_known = part.is_some_and(|part| {
        let part = part.to_ascii_lowercase();
        matches!(
            part.as_str(),
            "year" | "quarter" | "month" | "week" | "day" | "doy" | "dow"
        )
    });
    let is_date = |of: DataType| {
        matches!(
            of,
            DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None)
        )
    };
    is_known && date.data_type(schema).is_ok_and(is_date)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::TimestampSecondArray;
    use arrow::array::{ArrayRef, Date32Array, Date64Array, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Field;
    use datafusion::functions::core::{get_field, nullif};
    use datafusion::functions::datetime::date_part;
    use datafusion::functions::string::{btrim, lower, starts_with, upper};
    use datafusion::functions::unicode::{character_length, substr};
    use datafusion::logical_expr::ScalarUDF;
    use datafusion::physical_expr::PhysicalExpr;
    use datafusion::physical_expr::expressions::{col, lit};

    use super::*;

    fn is_known(function: &ScalarFunctionExpr, schema: &Schema) -> bool {
        is_infallible_function(function, schema)
    }

    fn call(
        function: Arc<ScalarUDF>,
        arguments: Vec<PhysicalExprRef>,
        schema: &Schema,
    ) -> ScalarFunctionExpr {
        ScalarFunctionExpr::try_new(function, arguments, schema, Default::default()).unwrap()
    }

    #[test]
    fn functions_are_not_known_to_be_pure_or_infallible() {
        let call = call(nullif(), vec![lit(1), lit(2)], &Schema::empty());
        assert!(!is_known(&call, &Schema::empty()));
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
            let (function, arguments) = (get_field(), arguments.collect());
            // Planning refuses those without the field.
            let field = Arc::new(Field::new("r", DataType::Int32, true));
            let options = Default::default();
            let call = ScalarFunctionExpr::new("r", function, arguments, field, options);
            is_known(&call, &schema)
        };
        assert!(of("s", &["i"]) && of("s", &["i", "k"]));
        assert!(!of("s", &["k"]) && !of("s", &["i", "k", "k"]) && !of("s", &[]));
        assert!(!of("m", &["a"]));
    }

    #[test]
    fn strings_have_substrings_within_known_bounds() {
        let strings: ArrayRef = Arc::new(StringArray::from(vec![Some("Hi🌏"), Some(""), None]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let batch = RecordBatch::try_from_iter([("s", strings), ("n", numbers)]).unwrap();
        let schema = batch.schema();
        let s = || col("s", &schema).unwrap();
        for (start, length, known) in [
            (1, Some(2), true),
            (i64::MAX, Some(i64::MAX), true),
            (i64::MIN + 1, Some(0), true),
            (-3, None, true),
            (1, Some(-1), false),
            (i64::MIN, None, false),
        ] {
            let bounds = [Some(start), length].into_iter().flatten().map(lit);
            let call = call(
                substr(),
                std::iter::once(s()).chain(bounds).collect(),
                &schema,
            );
            assert_eq!(is_known(&call, &schema), known, "{start} {length:?}");
            assert_eq!(call.evaluate(&batch).is_ok(), known, "{start} {length:?}");
        }
        let unknown = call(substr(), vec![s(), col("n", &schema).unwrap()], &schema);
        assert!(!is_known(&unknown, &schema));
        for (function, arguments) in [
            (lower(), vec![s()]),
            (upper(), vec![s()]),
            (btrim(), vec![s()]),
            (character_length(), vec![s()]),
            (starts_with(), vec![s(), lit("H")]),
        ] {
            let call = call(function, arguments, &schema);
            assert!(is_known(&call, &schema), "{call}");
            assert!(call.evaluate(&batch).is_ok(), "{call}");
        }
    }

    #[test]
    fn every_date_has_the_parts_of_a_date() {
        let days: ArrayRef = Arc::new(Date32Array::from(vec![i32::MIN, -1, 0, i32::MAX]));
        let ends = [i64::MIN, -1, 0, i64::MAX];
        let batch = RecordBatch::try_from_iter([
            ("days", days),
            (
                "milliseconds",
                Arc::new(Date64Array::from(ends.to_vec())) as _,
            ),
            (
                "seconds",
                Arc::new(TimestampSecondArray::from(ends.to_vec())) as _,
            ),
        ])
        .unwrap();
        let schema = batch.schema();
        for column in ["days", "milliseconds", "seconds"] {
            for part in ["year", "QUARTER", "month", "week", "day", "doy", "dow"] {
                let date = col(column, &schema).unwrap();
                let call = call(date_part(), vec![lit(part), date], &schema);
                assert!(is_known(&call, &schema), "{call}");
                assert!(call.evaluate(&batch).is_ok(), "{call}");
            }
        }
        let days = col("days", &schema).unwrap();
        let hour = call(date_part(), vec![lit("hour"), days], &schema);
        assert!(!is_known(&hour, &schema));
    }
}
