//! Columns of the build side that come in many arrays: dictionaries, nested, of fixed width, tiny.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray,
    Int32Array, ListArray, RecordBatch, StringArray, StringViewArray, StructArray, UInt8Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, TimeUnit};
use datafusion::common::JoinType;

use horton_test_support::env::small;
use horton_test_support::joins::*;

const ROWS: usize = 4000;
const VALUES: usize = 50;

/// Join types that emit build rows with their columns, at once or at the end.
const WITH_BUILD_ROWS: [JoinType; 7] = [
    JoinType::Inner,
    JoinType::Left,
    JoinType::Right,
    JoinType::Full,
    JoinType::LeftSemi,
    JoinType::LeftAnti,
    JoinType::LeftMark,
];

/// `ROWS` rows of a dictionary of `VALUES` texts, from text `first` on.
fn dictionary(first: usize) -> ArrayRef {
    let texts = (first..first + VALUES).map(|i| format!("value {i} of a dictionary"));
    let key = |row: usize| (row % 11 != 5).then_some((row * 7 % VALUES) as i32);
    let keys = Int32Array::from_iter((0..ROWS).map(key));
    let values = Arc::new(StringArray::from_iter_values(texts));
    Arc::new(DictionaryArray::new(keys, values))
}

fn in_struct(array: ArrayRef) -> ArrayRef {
    let field = |name, array: &ArrayRef| Field::new(name, array.data_type().clone(), true);
    let fields = vec![field("d", &array), field("n", &payload(ROWS))];
    let nulls = (0..ROWS).map(|row| row % 13 != 1).collect();
    Arc::new(StructArray::new(
        fields.into(),
        vec![array, payload(ROWS)],
        Some(nulls),
    ))
}

fn in_lists(array: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new("item", array.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(vec![1; ROWS]);
    Arc::new(ListArray::new(item, offsets, array, None))
}

fn in_fixed_lists(array: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new("item", array.data_type().clone(), true));
    Arc::new(FixedSizeListArray::new(item, 1, array, None))
}

fn fixed_binaries(_: ArrayRef) -> ArrayRef {
    let value = |row: usize| (row % 9 != 2).then_some((row as u64).to_le_bytes());
    let values = (0..ROWS).map(value);
    Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(values, 8).unwrap())
}

fn keys(seed: u32) -> Vec<Option<i64>> {
    repeating_keys(seed, ROWS, 3000)
}

/// A join whose build side has `column`, in batches of ten rows.
fn case(column: ArrayRef) -> Case {
    let build = Side::new(vec![("k", ints(&keys(81))), ("c", column)]);
    let probe = Side::new(vec![("k", ints(&keys(82))), ("w", payload(ROWS))]);
    Case::new(build.in_batches_of(10), probe.in_batches_of(700))
}

/// A column by itself, and in columns of other types; of these fewer in small.
fn nestings() -> impl Iterator<Item = fn(ArrayRef) -> ArrayRef> {
    let all: [fn(ArrayRef) -> ArrayRef; 4] = [|array| array, in_lists, in_struct, in_fixed_lists];
    all.into_iter().take(if small() { 2 } else { 4 })
}

/// Values of the dictionaries in `array`.
fn values(array: &ArrayRef) -> usize {
    match array.data_type() {
        DataType::Dictionary(_, _) => array.as_any_dictionary().values().len(),
        DataType::Struct(_) => values(array.as_struct().column(0)),
        DataType::List(_) => values(array.as_list::<i32>().values()),
        DataType::FixedSizeList(_, _) => values(array.as_fixed_size_list().values()),
        _ => 0,
    }
}

/// Checks a join with that column 1, of all types; an output batch has `most` values at most.
fn check(mut case: Case, most: usize) {
    for join_type in WITH_BUILD_ROWS {
        case.join_type = join_type;
        let run = case.check();
        assert!(run.count() > 0, "{case}");
        for batch in run.batches.iter().flatten() {
            let found = values(batch.column(1));
            assert!(found <= most, "{found} values: {case}");
        }
    }
}

#[test]
fn slices_of_one_batch_bring_its_dictionary_once() {
    for nested in nestings() {
        check(case(nested(dictionary(0))), VALUES);
    }
}

#[test]
fn different_dictionaries_bring_each_value_once() {
    for nested in nestings() {
        let mut case = case(nested(dictionary(0)));
        // The values of two batches that follow each other overlap.
        let batches = [0, VALUES / 2, VALUES, 0].map(|first| {
            let columns = vec![
                ("k", ints(&keys(first as u32))),
                ("c", nested(dictionary(first))),
            ];
            Side::new(columns).in_batches_of(10).partitions.remove(0)
        });
        case.build.partitions = vec![batches.concat()];
        check(case, 2 * VALUES);
    }
}

#[test]
fn fixed_binaries_of_many_batches_are_carried() {
    for nested in nestings() {
        check(case(nested(fixed_binaries(dictionary(0)))), 0);
    }
}

/// Numbers of `ROWS` rows as `data_type`; some have none, and all do from row 1000 up to row 2000.
fn numbers(data_type: &DataType) -> ArrayRef {
    let number = |row: usize| {
        let is_null = row % 7 == 3 || (1000..2000).contains(&row);
        (!is_null).then_some((row * 31 % 9000) as i32)
    };
    cast(&Int32Array::from_iter((0..ROWS).map(number)), data_type).unwrap()
}

#[test]
fn columns_with_nulls_are_gathered_on_the_device() {
    let types = [
        DataType::Int32,
        DataType::Date32,
        DataType::Int64,
        DataType::Float64,
        DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::Decimal128(20, 2),
        // The host's: too wide, too narrow.
        DataType::Decimal256(40, 2),
        DataType::Int16,
        DataType::Boolean,
    ];
    for (i, data_type) in types.iter().enumerate() {
        let mut case = case(numbers(data_type));
        // Slices that begin with any bit of a byte; chunks and windows that do.
        case.build = case.build.in_batches_of(13);
        case.config.chunk_rows = 1100;
        case.batch_size = 97;
        for join_type in WITH_BUILD_ROWS {
            case.join_type = join_type;
            assert!(case.check().count() > 0, "{case}");
        }
        case.join_type = JoinType::Inner;
        let with = case.check().metric("kernel_launches");
        case.projection = Some(vec![0, 2]);
        let without = case.check().metric("kernel_launches");
        assert_eq!(
            with > without,
            i < 6,
            "{with} and {without} launches: {case}"
        );
    }
}

/// A key of many pairs, whose windows begin with any row.
#[test]
fn columns_with_nulls_come_in_windows() {
    let keys: Vec<Option<i64>> = (0..ROWS).map(|row| Some(row as i64 / 1500)).collect();
    let columns = vec![("k", ints(&keys)), ("c", numbers(&DataType::Int64))];
    let probe = Side::new(vec![(
        "k",
        ints(&[Some(1), Some(0), None, Some(2), Some(1)]),
    )]);
    let mut case = Case::new(Side::new(columns).in_batches_of(77), probe);
    case.batch_size = 61;
    case.config.chunk_rows = 20;
    for join_type in [JoinType::Inner, JoinType::Right] {
        case.join_type = join_type;
        assert!(case.check().count() > 5000, "{case}");
    }
}

#[test]
fn keys_in_dictionaries_are_compared() {
    let key = |seed| {
        let texts = strings(&repeating_keys(seed, ROWS, 200));
        let data_type = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        cast(&texts, &data_type).unwrap()
    };
    let build = Side::new(vec![("k", key(83)), ("c", dictionary(0))]);
    let probe = Side::new(vec![("k", key(84)), ("w", payload(ROWS))]);
    let mut case = Case::new(build.in_batches_of(10), probe.in_batches_of(700));
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftAnti] {
        case.join_type = join_type;
        let run = case.check();
        for batch in run.batches.iter().flatten() {
            assert!(values(batch.column(0)) <= 200, "{case}");
            assert!(values(batch.column(1)) <= VALUES, "{case}");
        }
    }
}

#[test]
fn more_values_than_one_dictionary_has_keys_for_are_no_error_while_an_output_batch_has_fewer() {
    // Arrow's kernels panic at these: values of views are not merged.
    let batches: Vec<RecordBatch> = (0..10)
        .map(|batch| {
            let texts = (0..100).map(|i| format!("value {i} of batch {batch}"));
            let values = Arc::new(StringViewArray::from_iter_values(texts));
            let of = UInt8Array::from_iter_values(0..100);
            let column: ArrayRef = Arc::new(DictionaryArray::new(of, values));
            let keys: Vec<Option<i64>> = (0..100).map(|i| Some(100 * batch + i)).collect();
            Side::new(vec![("k", ints(&keys)), ("c", column)]).batch()
        })
        .collect();
    let columns = ["k", "c"].into_iter().zip(batches[0].columns().to_vec());
    let mut build = Side::new(columns.collect());
    build.partitions = vec![batches];
    // Rows of all batches, at random, in output batches that are not put together.
    let wanted: Vec<Option<i64>> = (0..2000).map(|i| Some(i * 7919 % 1000)).collect();
    let case = Case {
        batch_size: 200,
        ..Case::new(build, Side::new(vec![("k", ints(&wanted))]))
    };
    let run = case.run_on_device();
    assert!(run.metric("kernel_launches") > 0);
    assert_eq!(run.count(), 2000);
    for batch in run.batches.iter().flatten() {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        let texts = cast(batch.column(1), &DataType::Utf8).unwrap();
        for (key, text) in keys.values().iter().zip(texts.as_string::<i32>()) {
            let expected = format!("value {} of batch {}", key % 100, key / 100);
            assert_eq!(text, Some(expected.as_str()));
        }
    }
}

#[test]
fn tiny_batches_are_joined_as_others() {
    let left = repeating_keys(85, 1500, 900);
    let column = strings(&left);
    let build = Side::new(vec![("k", ints(&left)), ("c", column)]).in_batches_of(1);
    let probe = Side::new(vec![("k", ints(&keys(86))), ("w", payload(ROWS))]);
    for join_type in JOIN_TYPES {
        let case = Case {
            join_type,
            ..Case::new(build.clone(), probe.clone())
        };
        case.check();
    }
}
