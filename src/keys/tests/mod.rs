//! Every encoding is checked pair by pair against `HashJoinExec`'s own comparator, over the
//! cross product of a small build and a small probe side; the edges have tests of their own.

mod hashed;
mod packed;
mod padded;

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::*;
use datafusion::common::NullEquality::{self, NullEqualsNothing, NullEqualsNull};
use datafusion::physical_plan::joins::utils::JoinKeyComparator;
use rand_mt::Mt64;

use super::encoder::*;
use super::verify::*;

const BOTH: [NullEquality; 2] = [NullEqualsNothing, NullEqualsNull];

/// Normalized keys of the rows that can match, word by word.
fn encode_words(encoder: &KeyEncoder, columns: &[ArrayRef]) -> Vec<Option<Vec<u32>>> {
    let (rows, words) = (columns[0].len(), encoder.words());
    // Whatever is in the words before must not matter.
    let mut out = vec![0xdead_beef; rows * words];
    let mask = encoder.encode(columns, &mut out).unwrap();
    assert!(mask.as_ref().is_none_or(BooleanBuffer::has_false));
    let codes: Vec<Option<Vec<u32>>> = out
        .chunks(words)
        .enumerate()
        .map(|(row, words)| {
            let matchable = mask.as_ref().is_none_or(|m| m.value(row));
            matchable.then(|| words.to_vec())
        })
        .collect();
    let mut front = vec![0xdead_beef; rows * words];
    let some = encoder.encode_matchable(columns, &mut front).unwrap();
    let of_front = some.unwrap_or_else(|| (0..rows as u32).collect());
    let of_front = of_front.into_iter().zip(front.chunks(words));
    let matchable = codes.iter().zip(0..);
    let matchable = matchable.filter_map(|(code, row)| Some((row, code.as_deref()?)));
    assert!(of_front.eq(matchable));
    check_probe(encoder, columns, &codes);
    codes
}

/// Checks `encode_probe`: rows that can match have their normalized `keys`, others none, or all of
/// them the one that no build row has.
fn check_probe(encoder: &KeyEncoder, columns: &[ArrayRef], keys: &[Option<Vec<u32>>]) {
    let words = encoder.words();
    let mut out = vec![0xdead_beef; keys.len() * words];
    let with_key = encoder.encode_probe(columns, &mut out).unwrap();
    let is_whole = with_key.is_none();
    let with_key = with_key.unwrap_or_else(|| (0..keys.len() as u32).collect());
    let mut absent = None;
    for (row, words) in with_key.iter().zip(out.chunks(words)) {
        match &keys[*row as usize] {
            Some(key) => assert_eq!(key, words),
            None => {
                assert!(is_whole && encoder.is_exact());
                assert_eq!(words, *absent.get_or_insert(words));
                let code = words.iter().rev();
                let code = code.fold(0, |code, word| code << 32 | u64::from(*word));
                assert!(encoder.domain_size().is_none_or(|size| code == size));
            }
        }
    }
    let matchable = keys.iter().flatten().count();
    assert_eq!(
        with_key.len(),
        if is_whole { keys.len() } else { matchable }
    );
    assert!(
        keys.iter()
            .flatten()
            .all(|key| Some(key.as_slice()) != absent)
    );
}

/// The same of normalized keys of up to two words, as numbers.
fn encode(encoder: &KeyEncoder, columns: &[ArrayRef]) -> Vec<Option<u64>> {
    assert!(encoder.words() <= 2);
    let code = |words: Vec<u32>| words.iter().rev().fold(0, |c, w| c << 32 | u64::from(*w));
    let codes = encode_words(encoder, columns).into_iter();
    codes.map(|words| words.map(code)).collect()
}

fn fit_one(build: &ArrayRef, null_equality: NullEquality) -> KeyEncoder {
    let types = [build.data_type().clone()];
    KeyEncoder::fit(&[vec![Arc::clone(build)]], &types, null_equality).unwrap()
}

fn array<A: Array + 'static>(array: A) -> ArrayRef {
    Arc::new(array)
}

fn int64(values: impl IntoIterator<Item = impl Into<Option<i64>>>) -> ArrayRef {
    let values: Vec<Option<i64>> = values.into_iter().map(Into::into).collect();
    array(Int64Array::from(values))
}

fn concat(batches: &[Vec<ArrayRef>], column: usize) -> ArrayRef {
    let arrays: Vec<&dyn Array> = batches.iter().map(|b| b[column].as_ref()).collect();
    arrow::compute::concat(&arrays).unwrap()
}

/// Checks `fit`, `encode` and `equal_pairs` on all pairs of a build and a probe row.
fn check(build: &[Vec<ArrayRef>], probe: &[ArrayRef], null_equality: NullEquality) -> KeyEncoder {
    let types: Vec<DataType> = probe.iter().map(|c| c.data_type().clone()).collect();
    let encoder = KeyEncoder::fit(build, &types, null_equality).unwrap();
    let build_codes: Vec<_> = build
        .iter()
        .flat_map(|b| encode_words(&encoder, b))
        .collect();
    let probe_codes = encode_words(&encoder, probe);
    let whole: Vec<ArrayRef> = (0..probe.len()).map(|c| concat(build, c)).collect();

    let rows = probe_codes.len();
    let pairs = || (0..build_codes.len() * rows).map(|pair| (pair / rows, pair % rows));
    let options = vec![SortOptions::default(); probe.len()];
    let comparator = JoinKeyComparator::new(&whole, probe, &options, null_equality).unwrap();
    let expected: BooleanBuffer = pairs().map(|(b, p)| comparator.is_equal(b, p)).collect();

    let gather = |columns: &[ArrayRef], rows: Vec<u64>| -> Vec<ArrayRef> {
        let rows = UInt64Array::from(rows);
        let columns = columns.iter();
        columns.map(|c| take(c, &rows, None).unwrap()).collect()
    };
    let gathered_build = gather(&whole, pairs().map(|(b, _)| b as u64).collect());
    let gathered_probe = gather(probe, pairs().map(|(_, p)| p as u64).collect());
    let equal = equal_pairs(&gathered_build, &gathered_probe, null_equality).unwrap();
    assert_eq!(equal, expected, "equal_pairs of {types:?}");

    for ((b, p), equal) in pairs().zip(&expected) {
        let same = build_codes[b].is_some() && build_codes[b] == probe_codes[p];
        if encoder.is_exact() {
            assert_eq!(same, equal, "{encoder}: build {b}, probe {p}")
        } else {
            assert!(same || !equal, "{encoder}: build {b}, probe {p}")
        }
    }
    for code in build_codes.iter().chain(&probe_codes).flatten() {
        let bits = code.iter().rposition(|word| *word != 0).map_or(0, |last| {
            32 * last as u32 + u32::BITS - code[last].leading_zeros()
        });
        assert!(bits <= encoder.bits(), "{encoder}: {code:?}");
    }
    encoder
}

/// [`check`] with some columns as build side, in three batches, and others as probe side.
fn check_columns(
    build: &[ArrayRef],
    probe: &[ArrayRef],
    null_equality: NullEquality,
) -> KeyEncoder {
    let rows = build[0].len();
    let batch = |from: usize, to: usize| build.iter().map(|c| c.slice(from, to - from)).collect();
    let batches = [
        batch(0, rows / 3),
        batch(rows / 3, rows / 3),
        batch(rows / 3, rows),
    ];
    check(&batches, probe, null_equality)
}

/// True for one call in `n`.
fn one_in(rng: &mut Mt64, n: u64) -> bool {
    rng.next_u64().is_multiple_of(n)
}

/// `rows` values of `range`, about one in five NULL, as a slice that does not start at 0.
fn random(rng: &mut Mt64, range: std::ops::Range<i64>, rows: usize) -> ArrayRef {
    let width = (range.end - range.start) as u64;
    let values = (0..rows + 8).map(|_| {
        let value = range.start + (rng.next_u64() % width) as i64;
        (!one_in(rng, 5)).then_some(value)
    });
    int64(values).slice(5, rows)
}

/// Types that have codes, reached by casts from small non-negative `Int64`s.
fn exact_types() -> Vec<DataType> {
    use DataType::*;
    use TimeUnit::*;
    let mut types = vec![
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Boolean,
        Date32,
        Date64,
        Time32(Second),
        Time32(Millisecond),
        Time64(Microsecond),
        Time64(Nanosecond),
        Interval(IntervalUnit::YearMonth),
        Decimal32(9, 2),
        Decimal64(18, 2),
        Decimal128(38, 2),
        Timestamp(Nanosecond, Some("+01:00".into())),
    ];
    for unit in [Second, Millisecond, Microsecond, Nanosecond] {
        types.extend([Timestamp(unit, None), Duration(unit)]);
    }
    types
}

/// Types that are hashed, reached by the same casts.
fn hashed_types() -> Vec<DataType> {
    use DataType::*;
    let dictionary = |k, v| Dictionary(Box::new(k), Box::new(v));
    vec![
        Float16,
        Float32,
        Float64,
        Decimal256(60, 2),
        dictionary(Int8, Utf8),
        dictionary(UInt32, Int64),
        Interval(IntervalUnit::MonthDayNano),
        Null,
    ]
}

/// Types that are padded if they are short.
fn text_types() -> [DataType; 6] {
    use DataType::*;
    [Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView]
}

/// A cast that goes through a type both ends know.
fn convert(array: &ArrayRef, to: &DataType) -> ArrayRef {
    use DataType::*;
    let via = match to {
        Null => return new_null_array(&Null, array.len()),
        Date32 | Time32(_) | Interval(IntervalUnit::YearMonth) => Int32,
        Binary | LargeBinary | BinaryView | Dictionary(..) => Utf8,
        Interval(IntervalUnit::MonthDayNano) => Duration(TimeUnit::Nanosecond),
        Float16 => Float32,
        _ => Int64,
    };
    let middle = cast(array, &via).unwrap();
    cast(&middle, to).unwrap_or_else(|error| panic!("{to}: {error}"))
}

/// Strings too long to be padded, equal where the values are.
fn long_texts(values: &ArrayRef, to: &DataType) -> ArrayRef {
    let values = values.as_primitive::<Int64Type>().iter();
    let texts = values.map(|value| value.map(|value| format!("{value:>40}")));
    cast(&array(StringArray::from_iter(texts)), to).unwrap()
}

#[test]
fn every_type_agrees_with_hash_join_exec() {
    let mut rng = Mt64::new(1);
    let exact = exact_types().into_iter().chain(text_types());
    for (data_type, exact) in exact
        .map(|t| (t, true))
        .chain(hashed_types().into_iter().map(|t| (t, false)))
    {
        supported(&[(data_type.clone(), data_type.clone())]).unwrap();
        for null_equality in BOTH {
            let build = convert(&random(&mut rng, 20..60, 50), &data_type);
            let probe = convert(&random(&mut rng, 0..80, 70), &data_type);
            let encoder = check_columns(&[build], &[probe], null_equality);
            assert_eq!(encoder.is_exact(), exact, "{data_type}");
        }
    }
}

#[test]
fn mixed_columns_agree_with_hash_join_exec() {
    let mut rng = Mt64::new(2);
    let exact = exact_types();
    let hashed = hashed_types();
    for round in 0..60 {
        let mut pick = |n: usize| (rng.next_u64() % n as u64) as usize;
        let mut types: Vec<DataType> = (0..=pick(4))
            .map(|_| exact[pick(exact.len())].clone())
            .collect();
        if round % 2 == 0 {
            types.push(hashed[pick(hashed.len())].clone());
        }
        if round % 3 == 0 {
            types.insert(pick(2), text_types()[pick(6)].clone());
        }
        let mut side = |range: std::ops::Range<i64>| -> Vec<ArrayRef> {
            let columns = types.iter();
            columns
                .map(|t| convert(&random(&mut rng, range.clone(), 40), t))
                .collect()
        };
        let (build, probe) = (side(1..4), side(0..5));
        let encoder = check_columns(&build, &probe, BOTH[round % 3 % 2]);
        assert_eq!(encoder.is_exact(), round % 2 == 1, "{encoder}");
    }
}

#[test]
fn unsupported_types_are_named() {
    use DataType::*;
    let union = Union(UnionFields::empty(), UnionMode::Dense);
    let list = ListView(Arc::new(Field::new("item", Int64, true)));
    for (build, probe, text) in [
        (Int32, Int64, "key types Int32 and Int64 differ"),
        (
            Decimal128(10, 2),
            Decimal128(10, 3),
            "key types Decimal128(10, 2) and Decimal128(10, 3) differ",
        ),
        (union.clone(), union, "cannot be hashed"),
        (list.clone(), list, "cannot be hashed"),
    ] {
        let error = supported(&[(Utf8, Utf8), (build, probe)]).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
    let pair = |n| FixedSizeList(Arc::new(Field::new("item", Int64, true)), n);
    assert!(supported(&[(pair(2), pair(3))]).is_err());
    let dictionary = |k| Dictionary(Box::new(k), Box::new(Utf8));
    assert!(supported(&[(dictionary(Int8), dictionary(Int16))]).is_err());
    let second = TimeUnit::Second;
    let zones = (
        Timestamp(second, None),
        Timestamp(second, Some("+02:00".into())),
    );
    supported(&[(Decimal128(10, 2), Decimal128(12, 2)), zones]).unwrap();
    supported(&[]).unwrap();
}

#[test]
fn decimals_of_other_precision_and_other_zones_compare() {
    let narrow = array(
        Decimal128Array::from(vec![100, 250, -5])
            .with_precision_and_scale(10, 2)
            .unwrap(),
    );
    let wide = array(
        Decimal128Array::from(vec![250, 7, -5])
            .with_precision_and_scale(20, 2)
            .unwrap(),
    );
    let utc = array(TimestampSecondArray::from(vec![1, 2, 3]).with_timezone("+02:00"));
    let local = array(TimestampSecondArray::from(vec![3, 2, 1]));
    check(&[vec![narrow]], &[wide], NullEqualsNothing);
    check(&[vec![utc]], &[local], NullEqualsNothing);
}

#[test]
fn wrong_columns_are_errors() {
    let error = KeyEncoder::fit(&[], &[], NullEqualsNothing).unwrap_err();
    assert!(error.to_string().contains("at least one key column"));
    let encoder = fit_one(&int64([1, 2]), NullEqualsNothing);
    let mut out = vec![1; 1];
    let int32 = cast(&int64([1]), &DataType::Int32).unwrap();
    let two = int64([1, 2]);
    for columns in [
        vec![],
        vec![Arc::clone(&two), Arc::clone(&two)],
        vec![Arc::clone(&int32)],
    ] {
        let error = encoder.encode(&columns, &mut out).unwrap_err().to_string();
        assert!(
            error.contains("[Int64] of one length were expected"),
            "{error}"
        );
        assert_eq!(out, [1]);
    }
    let types = [DataType::Int64, DataType::Int64];
    let uneven = vec![Arc::clone(&two), int64([1])];
    assert!(KeyEncoder::fit(std::slice::from_ref(&uneven), &types, NullEqualsNull).is_err());
    let pairs = [
        (&uneven[..1], &uneven[1..]),
        (&uneven, &uneven),
        (&uneven[..1], &[int32]),
    ];
    for (build, probe) in pairs {
        assert!(equal_pairs(build, probe, NullEqualsNull).is_err());
    }
    assert!(equal_pairs(&uneven, &uneven[..1], NullEqualsNull).is_err());
    assert!(equal_pairs(&[], &[], NullEqualsNull).unwrap().is_empty());
}

#[test]
fn encoders_name_their_kind() {
    let build = [
        int64([1, 3]),
        int64([1 << 40, 5]),
        convert(&int64([1, 2]), &DataType::Utf8),
        long_texts(&int64([1, 2]), &DataType::Utf8),
    ];
    let types: Vec<DataType> = build.iter().map(|c| c.data_type().clone()).collect();
    let name = |n: std::ops::Range<usize>| {
        let batches = [build[n.clone()].to_vec()];
        KeyEncoder::fit(&batches, &types[n], NullEqualsNothing)
            .unwrap()
            .to_string()
    };
    assert_eq!(name(0..1), "exact(1 column, 3 codes)");
    assert_eq!(name(0..2), "exact(2 columns, 3298534883316 codes)");
    assert_eq!(name(0..3), "exact(3 columns, 4 words)");
    assert_eq!(name(1..4), "hashed(Int64, Utf8, Utf8)");
}
