//! Key types: every type that `HashJoinExec` takes, alone and together, columns and expressions.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal256Array, DictionaryArray,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array,
    IntervalDayTimeArray, IntervalMonthDayNanoArray, IntervalYearMonthArray, LargeListArray,
    ListArray, MapArray, NullArray, StringArray, StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Int32Type, IntervalDayTime, IntervalMonthDayNano, TimeUnit, i256,
};
use datafusion::common::{JoinType, NullEquality};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, cast as cast_expr, lit};
use datafusion::physical_plan::joins::PartitionMode;

use horton_test_support::joins::*;

/// Join types that between them show matches, unmatched rows of both sides and marks.
const SHOWN: [JoinType; 4] = [
    JoinType::Inner,
    JoinType::Full,
    JoinType::LeftAnti,
    JoinType::RightMark,
];

type Keys<'a> = &'a [Option<i64>];

/// Joins two sides whose key columns are `column(keys)`, in several batches.
fn check_columns(column: impl Fn(Keys) -> ArrayRef) {
    let (left, right) = (repeating_keys(3, 40, 10), repeating_keys(4, 70, 14));
    check_arrays(&[(column(&left), column(&right))]);
}

/// Joins on pairs of key columns, under both null equalities.
fn check_arrays(keys: &[(ArrayRef, ArrayRef)]) {
    let names: Vec<String> = (0..keys.len()).map(|k| format!("k{k}")).collect();
    let side = |pick: fn(&(ArrayRef, ArrayRef)) -> &ArrayRef| {
        let rows = pick(&keys[0]).len();
        let mut columns = vec![("row", payload(rows))];
        let pairs = names.iter().zip(keys);
        columns.extend(pairs.map(|(name, pair)| (name.as_str(), Arc::clone(pick(pair)))));
        Side::new(columns)
    };
    let (build, probe) = (side(|pair| &pair.0), side(|pair| &pair.1));
    let mut case = Case::new(build.in_batches_of(16), probe.in_batches_of(25));
    let on = |c| (case.build.column(c), case.probe.column(c));
    case.on = (1..=keys.len()).map(on).collect();
    // What a join type makes of matches is no engine's concern: two show all that it finds.
    let shown = if is_engine_named() { 2 } else { 4 };
    for join_type in SHOWN.into_iter().take(shown) {
        for null_equality in NULL_EQUALITIES {
            case.join_type = join_type;
            case.null_equality = null_equality;
            case.check();
        }
    }
}

fn check_cast_to(types: impl IntoIterator<Item = DataType>) {
    for data_type in types {
        check_columns(|keys| cast(&ints(keys), &data_type).unwrap());
    }
}

/// Keys far apart, so that they have no exact normalized keys.
fn sparse(keys: Keys) -> ArrayRef {
    let apart = |key: i64| key * 0x0123_4567_89ab_cdef / 3;
    let keys: Vec<Option<i64>> = keys.iter().map(|key| key.map(apart)).collect();
    ints(&keys)
}

#[test]
pub fn integers_of_every_width_join() {
    use DataType::*;
    check_cast_to([Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64]);
}

#[test]
pub fn integers_too_far_apart_for_exact_normalized_keys_join() {
    check_columns(sparse);
    let extremes = |shift: i64| {
        let keys = [
            i64::MIN,
            i64::MIN + shift,
            -1,
            0,
            shift,
            i64::MAX - shift,
            i64::MAX,
        ];
        Arc::new(Int64Array::from(keys.to_vec())) as ArrayRef
    };
    check_arrays(&[(extremes(1), extremes(3))]);
    let unsigned = |keys: Keys| {
        let far = keys
            .iter()
            .map(|k| k.map(|k| u64::MAX - 0x0e37_79b9_7f4a_7c15 * k as u64));
        Arc::new(arrow::array::UInt64Array::from_iter(far)) as ArrayRef
    };
    check_columns(unsigned);
}

#[test]
pub fn booleans_join() {
    let odd = |keys: Keys| {
        let odd = keys.iter().map(|k| k.map(|k| k % 2 == 1));
        Arc::new(BooleanArray::from_iter(odd)) as ArrayRef
    };
    check_columns(odd);
    let (all_true, mixed) = ([Some(1); 5], [Some(0), Some(1), None]);
    check_arrays(&[(odd(&all_true), odd(&mixed))]);
}

#[test]
pub fn dates_times_timestamps_and_durations_join() {
    use DataType::*;
    check_columns(|keys| cast(&cast(&ints(keys), &Int32).unwrap(), &Date32).unwrap());
    check_columns(|keys| {
        cast(
            &cast(&ints(keys), &Int32).unwrap(),
            &Time32(TimeUnit::Second),
        )
        .unwrap()
    });
    let zone = Some("+02:00".into());
    check_cast_to([
        Date64,
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Nanosecond, zone),
        Duration(TimeUnit::Millisecond),
    ]);
    let sparse_nanos =
        |keys: Keys| cast(&sparse(keys), &Timestamp(TimeUnit::Nanosecond, None)).unwrap();
    check_columns(sparse_nanos);
}

#[test]
pub fn timestamps_of_different_zones_join_as_instants() {
    let keys = repeating_keys(5, 40, 10);
    let zoned = |zone: &str| {
        let zone = DataType::Timestamp(TimeUnit::Second, Some(zone.into()));
        cast(&ints(&keys), &zone).unwrap()
    };
    check_arrays(&[(zoned("+02:00"), zoned("-05:00"))]);
}

#[test]
pub fn intervals_join() {
    check_columns(|keys| {
        let months = keys.iter().map(|k| k.map(|k| k as i32));
        Arc::new(IntervalYearMonthArray::from_iter(months))
    });
    check_columns(|keys| {
        let days = |k: i64| IntervalDayTime::new(k as i32, 7 - k as i32);
        Arc::new(IntervalDayTimeArray::from_iter(
            keys.iter().map(|k| k.map(days)),
        ))
    });
    check_columns(|keys| {
        let value = |k: i64| IntervalMonthDayNano::new(k as i32, 1, -k);
        Arc::new(IntervalMonthDayNanoArray::from_iter(
            keys.iter().map(|k| k.map(value)),
        ))
    });
}

#[test]
pub fn decimals_of_every_width_join() {
    use DataType::*;
    check_cast_to([
        Decimal32(9, 2),
        Decimal64(18, 4),
        Decimal128(38, 10),
        Decimal256(76, 20),
    ]);
    check_columns(|keys| cast(&sparse(keys), &Decimal128(38, 18)).unwrap());
    check_columns(|keys| {
        let huge = |k: i64| i256::MAX.wrapping_sub(i256::from_i128(k as i128));
        let values = keys.iter().map(|k| k.map(huge));
        let array = Decimal256Array::from_iter(values);
        Arc::new(array.with_precision_and_scale(76, 0).unwrap())
    });
}

#[test]
pub fn decimals_of_different_precision_join() {
    let keys = repeating_keys(6, 40, 10);
    let decimal = |precision| cast(&ints(&keys), &DataType::Decimal128(precision, 3)).unwrap();
    check_arrays(&[(decimal(20), decimal(30))]);
}

#[test]
pub fn floats_join_minus_zero_with_zero_and_nan_with_the_same_nan() {
    let other_nan = f64::from_bits(f64::NAN.to_bits() ^ 1);
    let left = vec![
        Some(0.0),
        Some(-0.0),
        Some(f64::NAN),
        None,
        Some(1.5),
        Some(f64::INFINITY),
    ];
    let right = vec![
        Some(-0.0),
        Some(0.0),
        Some(f64::NAN),
        Some(other_nan),
        Some(-f64::NAN),
        None,
        Some(f64::NEG_INFINITY),
        Some(f64::INFINITY),
    ];
    let wide = |v: &[Option<f64>]| Arc::new(Float64Array::from(v.to_vec())) as ArrayRef;
    check_arrays(&[(wide(&left), wide(&right))]);
    let narrow = |values: &[Option<f64>]| {
        let narrow = values.iter().map(|v| v.map(|v| v as f32));
        Arc::new(Float32Array::from_iter(narrow)) as ArrayRef
    };
    check_arrays(&[(narrow(&left), narrow(&right))]);
    check_cast_to([DataType::Float16, DataType::Float32, DataType::Float64]);
}

#[test]
pub fn minus_zero_inside_a_struct_is_what_the_stock_join_says() {
    let nested = |values: Vec<f64>| {
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let array: ArrayRef = Arc::new(Float64Array::from(values));
        Arc::new(StructArray::from(vec![(field, array)])) as ArrayRef
    };
    check_arrays(&[(
        nested(vec![0.0, -0.0, f64::NAN, 2.0]),
        nested(vec![-0.0, f64::NAN, 2.0, 0.0]),
    )]);
}

#[test]
pub fn strings_of_every_layout_join() {
    use DataType::*;
    for data_type in [Utf8, LargeUtf8, Utf8View] {
        check_columns(|keys| cast(&strings(keys), &data_type).unwrap());
    }
    // Empty ones, ones that differ behind a view's inline prefix, and long ones.
    let texts = |keys: Keys| {
        let text = |k: i64| match k % 4 {
            0 => String::new(),
            1 => format!("the same long prefix {k}"),
            _ => "x".repeat(k as usize),
        };
        Arc::new(StringArray::from_iter(keys.iter().map(|k| k.map(text)))) as ArrayRef
    };
    for data_type in [Utf8, LargeUtf8, Utf8View] {
        check_columns(|keys| cast(&texts(keys), &data_type).unwrap());
    }
}

#[test]
pub fn binaries_of_every_layout_join() {
    use DataType::*;
    let bytes = |keys: Keys| {
        let bytes = |k: i64| vec![0u8, 0xff, k as u8, 0];
        Arc::new(BinaryArray::from_iter(keys.iter().map(|k| k.map(bytes)))) as ArrayRef
    };
    for data_type in [Binary, LargeBinary, BinaryView] {
        check_columns(|keys| cast(&bytes(keys), &data_type).unwrap());
    }
    check_columns(|keys| {
        let bytes = keys.iter().map(|k| k.map(|k| [k as u8; 5]));
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 5).unwrap())
    });
}

/// A dictionary whose values repeat and hold a NULL, read through NULL and valid indices.
fn dictionary(keys: Keys, names: [Option<&str>; 5]) -> ArrayRef {
    let indices = keys.iter().map(|k| k.map(|k| (k % 5) as i32));
    let values = Arc::new(StringArray::from(names.to_vec()));
    let indices = Int32Array::from_iter(indices);
    Arc::new(DictionaryArray::<Int32Type>::try_new(indices, values).unwrap())
}

#[test]
pub fn dictionaries_join_by_value_and_a_null_value_is_null() {
    let left = dictionary(
        &repeating_keys(7, 30, 10),
        [Some("a"), None, Some("b"), Some("a"), Some("c")],
    );
    let right = dictionary(
        &repeating_keys(8, 50, 10),
        [Some("c"), Some("b"), None, Some("d"), Some("a")],
    );
    check_arrays(&[(left, right)]);
}

#[test]
pub fn dictionaries_of_integers_and_of_every_index_width_join() {
    use DataType::*;
    for index in [Int8, Int16, Int64, UInt8, UInt32] {
        let to = Dictionary(Box::new(index), Box::new(Int64));
        check_columns(|keys| cast(&ints(keys), &to).unwrap());
    }
}

fn items(name: &str) -> Arc<Field> {
    Arc::new(Field::new(name, DataType::Int32, true))
}

/// Lists of `k % 3` items, from `k` on; the second one NULL.
fn lists(keys: Keys) -> (OffsetBuffer<i32>, ArrayRef, Option<NullBuffer>) {
    let lengths = keys.iter().map(|k| k.map_or(0, |k| k as usize % 3));
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = keys.iter().flatten().flat_map(|k| {
        let item = move |i| (i != 1).then_some(*k as i32 / 3 + i as i32);
        (0..*k as usize % 3).map(item)
    });
    let nulls = NullBuffer::from_iter(keys.iter().map(Option::is_some));
    (
        offsets,
        Arc::new(Int32Array::from_iter(values)),
        Some(nulls),
    )
}

#[test]
pub fn lists_of_every_layout_join() {
    check_columns(|keys| {
        let (offsets, values, nulls) = lists(keys);
        Arc::new(ListArray::new(items("item"), offsets, values, nulls))
    });
    check_columns(|keys| {
        let (offsets, values, nulls) = lists(keys);
        let offsets = OffsetBuffer::from_lengths(offsets.lengths());
        Arc::new(LargeListArray::new(items("item"), offsets, values, nulls))
    });
    check_columns(|keys| {
        let values = keys.iter().flat_map(|k| [*k, k.map(|k| k + 1)]);
        let values = Arc::new(Int32Array::from_iter(values.map(|v| v.map(|v| v as i32))));
        let nulls = NullBuffer::from_iter(keys.iter().map(Option::is_some));
        Arc::new(FixedSizeListArray::new(
            items("item"),
            2,
            values,
            Some(nulls),
        ))
    });
}

#[test]
pub fn structs_join_field_by_field() {
    check_columns(|keys| {
        let a = cast(&ints(keys), &DataType::Int32).unwrap();
        let half: Vec<Option<i64>> = keys.iter().map(|k| k.map(|k| k / 2)).collect();
        let fields = vec![
            Field::new("a", DataType::Int32, true),
            Field::new("b", DataType::Utf8, true),
        ];
        // Rows that are NULL, and rows whose fields are.
        let valid = keys
            .iter()
            .enumerate()
            .map(|(i, k)| k.is_some() || i % 2 == 0);
        let nulls = NullBuffer::from_iter(valid);
        Arc::new(StructArray::new(
            fields.into(),
            vec![a, strings(&half)],
            Some(nulls),
        ))
    });
}

#[test]
pub fn maps_join_entry_by_entry() {
    check_columns(|keys| {
        let (offsets, values, nulls) = lists(keys);
        let names = Int32Array::from_iter_values(0..values.len() as i32);
        let fields = vec![
            Field::new("keys", DataType::Int32, false),
            Field::new("values", DataType::Int32, true),
        ];
        // The same names for the same entry of every row.
        let starts = offsets.lengths().flat_map(|n| 0..n as i32);
        let names = Int32Array::from_iter_values(starts.take(names.len()));
        let entries = StructArray::new(fields.into(), vec![Arc::new(names), values], None);
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        Arc::new(MapArray::new(field, offsets, entries, nulls, false))
    });
}

#[test]
pub fn keys_of_the_null_type_match_only_where_nulls_do() {
    let nulls = |rows| Arc::new(NullArray::new(rows)) as ArrayRef;
    for null_equality in NULL_EQUALITIES {
        for join_type in JOIN_TYPES {
            let build = Side::new(vec![("k", nulls(4)), ("v", payload(4))]);
            let probe = Side::new(vec![("k", nulls(5)), ("w", payload(5))]);
            let case = Case {
                join_type,
                null_equality,
                ..Case::new(build, probe)
            };
            match null_equality {
                NullEquality::NullEqualsNull => case.check(),
                _ => case.check_without_launch(),
            };
        }
    }
}

#[test]
pub fn a_side_of_nulls_alone_meets_the_nulls_of_the_other() {
    let nulls = vec![None; 6];
    let some: Vec<Option<i64>> = vec![Some(0), None, Some(3), None];
    let none: Vec<Option<i64>> = (0..5).map(Some).collect();
    for column in [ints, strings] {
        for (left, right) in [
            (&nulls, &some),
            (&some, &nulls),
            (&none, &some),
            (&nulls, &nulls),
        ] {
            let build = Side::new(vec![("k", column(left)), ("v", payload(left.len()))]);
            let probe = Side::new(vec![("k", column(right)), ("w", payload(right.len()))]);
            for join_type in JOIN_TYPES {
                let mut case = Case::new(build.clone(), probe.clone());
                case.join_type = join_type;
                case.null_equality = NullEquality::NullEqualsNull;
                case.check();
                case.null_equality = NullEquality::NullEqualsNothing;
                match left.iter().any(Option::is_some) {
                    true => case.check(),
                    false => case.check_without_launch(),
                };
            }
        }
    }
}

#[test]
pub fn a_null_in_one_of_two_columns_is_compared_with_that_column_alone() {
    let first = [Some(1), None, None, Some(1)];
    let second = [None, Some(1), None, Some(1)];
    for column in [ints as fn(Keys) -> ArrayRef, strings] {
        let (first, second) = (column(&first), column(&second));
        let both_sides = |column: &ArrayRef| (Arc::clone(column), Arc::clone(column));
        check_arrays(&[both_sides(&first), both_sides(&second)]);
    }
}

#[test]
pub fn several_key_columns_join_on_all_of_them() {
    let column = |seed, rows, distinct| repeating_keys(seed, rows, distinct);
    let (a, b) = (
        (column(11, 60, 4), column(12, 80, 5)),
        (column(13, 60, 3), column(14, 80, 3)),
    );
    let exact = (ints(&a.0), ints(&a.1));
    let text = (strings(&b.0), strings(&b.1));
    let narrow = |array: &ArrayRef| cast(array, &DataType::Int8).unwrap();
    let float = |array: &ArrayRef| cast(array, &DataType::Float64).unwrap();
    let b = (ints(&b.0), ints(&b.1));
    check_arrays(&[exact.clone(), (narrow(&b.0), narrow(&b.1))]);
    check_arrays(&[exact.clone(), text.clone()]);
    check_arrays(&[(float(&b.0), float(&b.1)), exact.clone(), text]);
}

#[test]
pub fn eight_key_columns_of_mixed_types_join() {
    use DataType::*;
    let (left, right) = (repeating_keys(15, 60, 6), repeating_keys(16, 80, 7));
    let types = [
        Int8,
        Utf8,
        Float32,
        Decimal128(20, 2),
        Date64,
        Utf8View,
        UInt64,
        Dictionary(Box::new(Int16), Box::new(Utf8)),
    ];
    let keys: Vec<(ArrayRef, ArrayRef)> = types
        .iter()
        .map(|to| {
            (
                cast(&ints(&left), to).unwrap(),
                cast(&ints(&right), to).unwrap(),
            )
        })
        .collect();
    check_arrays(&keys);
}

#[test]
pub fn key_expressions_join_by_their_values() {
    let (left, right) = (repeating_keys(17, 60, 12), repeating_keys(18, 80, 12));
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(60))]).in_batches_of(9);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(80))]).in_batches_of(9);
    let plus = |side: &Side, n: i64| {
        Arc::new(BinaryExpr::new(side.column(0), Operator::Plus, lit(n))) as _
    };
    let as_text = |side: &Side| cast_expr(side.column(0), &side.schema, DataType::Utf8).unwrap();
    for join_type in JOIN_TYPES {
        let mut case = Case::new(build.clone(), probe.clone());
        case.join_type = join_type;
        case.on = vec![(plus(&build, 3), plus(&probe, 1))];
        case.check();
        case.on.push((as_text(&build), as_text(&build)));
        case.check();
    }
}

#[test]
pub fn partitioned_joins_fit_their_normalized_keys_to_each_partition() {
    // Partition 0 has dense keys, 1 sparse ones, 2 none on the build side.
    let left: Vec<Option<i64>> = (0..30)
        .map(|k| Some(if k % 2 == 0 { k } else { k << 50 }))
        .collect();
    let right: Vec<Option<i64>> = (0..60)
        .map(|k| Some(if k % 2 == 0 { k } else { k << 50 }))
        .collect();
    let build = Side::new(vec![("k", ints(&left))]).in_partitions(3, |row| row % 2);
    let probe = Side::new(vec![("k", ints(&right))]).in_partitions(3, |row| row % 2);
    for join_type in JOIN_TYPES {
        let case = Case {
            mode: PartitionMode::Partitioned,
            join_type,
            ..Case::new(build.clone(), probe.clone())
        };
        case.check();
    }
}
