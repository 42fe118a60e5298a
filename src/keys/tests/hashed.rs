//! Hashed keys: floats, dictionaries, strings, nested types, collisions.

use super::*;
use crate::keys::hashed::HashedKeys;

#[test]
fn float_zeros_are_equal_and_nans_are_by_bits() {
    let nan = f64::from_bits(f64::NAN.to_bits() + 1);
    let values = [0.0, -0.0, f64::NAN, -f64::NAN, nan, f64::INFINITY, 1.5];
    let column = array(Float64Array::from_iter_values(values));
    for null_equality in BOTH {
        let encoder = check(
            &[vec![Arc::clone(&column)]],
            &[Arc::clone(&column)],
            null_equality,
        );
        let codes = encode(&encoder, &[Arc::clone(&column)]);
        assert_eq!(codes[0], codes[1]);
        let single = cast(&column, &DataType::Float32).unwrap();
        check(&[vec![Arc::clone(&single)]], &[single], null_equality);
        let half = cast(&column, &DataType::Float16).unwrap();
        check(&[vec![Arc::clone(&half)]], &[half], null_equality);
        let swapped = take(&column, &UInt32Array::from(vec![1, 0, 2, 4, 3, 5, 6]), None).unwrap();
        let equal = equal_pairs(&[Arc::clone(&column)], &[swapped], null_equality).unwrap();
        let expected = [true, true, true, false, false, true, true];
        assert_eq!(equal, BooleanBuffer::from(expected.as_slice()));
        // Nested, the zeros differ.
        let nested = wrap_in_struct(&[("f", &column)], None);
        let equal = equal_pairs(&[nested.slice(0, 1)], &[nested.slice(1, 1)], null_equality);
        assert!(!equal.unwrap().value(0));
        check(&[vec![Arc::clone(&nested)]], &[nested], null_equality);
    }
}

#[test]
fn nulls_among_dictionary_values_are_nulls() {
    let dictionary = |keys: Vec<Option<i8>>, values: Vec<Option<&str>>| {
        let values = array(StringArray::from(values));
        array(DictionaryArray::new(Int8Array::from(keys), values))
    };
    let build = dictionary(
        vec![Some(0), Some(1), None, Some(2)],
        vec![Some("a"), None, Some("b")],
    );
    let keys = vec![Some(2), Some(3), None, Some(0), Some(1)];
    let probe = dictionary(keys, vec![Some("b"), Some("z"), None, Some("a")]);
    for null_equality in BOTH {
        let one = check(
            &[vec![Arc::clone(&build)]],
            &[Arc::clone(&probe)],
            null_equality,
        );
        let can_match = encode(&one, &[Arc::clone(&build)])
            .iter()
            .map(Option::is_some)
            .collect::<Vec<_>>();
        let null = null_equality == NullEqualsNull;
        assert_eq!(can_match, [true, null, null, true]);
        let (b, p) = (int64([1, 2, 3, 4]), int64([4, 4, 3, 1, 2]));
        check(
            &[vec![b, Arc::clone(&build)]],
            &[p, Arc::clone(&probe)],
            null_equality,
        );
    }
    // No values at all, so every row is NULL.
    let empty = dictionary(vec![None, None], vec![]);
    for null_equality in BOTH {
        check(
            &[vec![Arc::clone(&empty)]],
            &[Arc::clone(&probe)],
            null_equality,
        );
        check(
            &[vec![Arc::clone(&probe)]],
            &[Arc::clone(&empty)],
            null_equality,
        );
    }
}

#[test]
fn strings_of_all_lengths() {
    let text = |i: u64| {
        [
            "",
            "a",
            "a\0",
            "twelve bytes",
            "thirteen byte",
            "a longer string, twice",
        ][i as usize % 6]
    };
    let mut rng = Mt64::new(5);
    let mut column = || {
        let rows = (0..40).map(|_| (!one_in(&mut rng, 5)).then(|| text(rng.next_u64())));
        array(rows.collect::<StringArray>())
    };
    let (build, probe) = (column(), column());
    use DataType::*;
    for data_type in [Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView] {
        let convert = |side: &ArrayRef| cast(side, &data_type).unwrap();
        for null_equality in BOTH {
            check_columns(&[convert(&build)], &[convert(&probe)], null_equality);
            let columns = |side: &ArrayRef| [convert(side), convert(side).slice(0, 40)];
            check_columns(&columns(&build), &columns(&probe), null_equality);
        }
    }
    // Inline views are hashed as views whether or not the array has long strings as well.
    let short = array(StringViewArray::from(vec![
        Some("a"),
        Some("twelve bytes"),
        None,
    ]));
    let long = array(StringViewArray::from(vec![
        Some("a longer string, twice"),
        Some("a"),
    ]));
    check(
        &[vec![Arc::clone(&short)]],
        &[Arc::clone(&long)],
        NullEqualsNull,
    );
    let fixed = |rows: [&[u8]; 3]| array(FixedSizeBinaryArray::try_from_iter(rows.iter()).unwrap());
    let (build, probe) = (
        fixed([b"abc", b"abd", b"abc"]),
        fixed([b"abc", b"xyz", b"abd"]),
    );
    check(&[vec![build]], &[probe], NullEqualsNothing);
}

fn wrap_in_struct(fields: &[(&str, &ArrayRef)], nulls: Option<NullBuffer>) -> ArrayRef {
    let columns = fields
        .iter()
        .map(|(_, column)| Arc::clone(column))
        .collect();
    let fields = fields
        .iter()
        .map(|(name, column)| Field::new(*name, column.data_type().clone(), true));
    array(StructArray::new(fields.collect(), columns, nulls))
}

#[test]
fn nested_types_agree_with_hash_join_exec() {
    let mut rng = Mt64::new(6);
    let mut side = |name: &str| -> Vec<ArrayRef> {
        let numbers = random(&mut rng, 0..3, 60);
        let strings = convert(&random(&mut rng, 0..2, 60), &DataType::Utf8);
        let mut nulls =
            || NullBuffer::from((0..60).map(|_| !one_in(&mut rng, 4)).collect::<Vec<_>>());
        let structs = wrap_in_struct(&[("n", &numbers), ("s", &strings)], Some(nulls()));
        let offsets = OffsetBuffer::<i32>::from_lengths((0..30).map(|i| i % 5));
        let (rows, field) = (offsets.len() - 1, |of: &ArrayRef| {
            Arc::new(Field::new(name, of.data_type().clone(), true))
        });
        let list = |of: &ArrayRef, nulls: NullBuffer| {
            array(ListArray::new(
                field(of),
                offsets.clone(),
                Arc::clone(of),
                Some(nulls.slice(0, rows)),
            ))
        };
        let lists = list(&numbers, nulls());
        let struct_lists = list(&structs, nulls());
        let pairs = array(FixedSizeListArray::new(
            field(&numbers),
            2,
            Arc::clone(&numbers),
            Some(nulls().slice(0, 30)),
        ));
        vec![lists, struct_lists, pairs, structs.slice(7, 30)]
    };
    let (build, probe) = (side("item"), side("element"));
    for null_equality in BOTH {
        for (build, probe) in build.iter().zip(&probe) {
            supported(&[(build.data_type().clone(), probe.data_type().clone())]).unwrap();
            let sliced = [vec![build.slice(3, 20)], vec![build.slice(23, 7)]];
            check(&sliced, &[probe.slice(2, 25)], null_equality);
            let types = [build.data_type().clone()];
            let encoder = KeyEncoder::fit(&sliced, &types, null_equality).unwrap();
            assert_eq!(
                encode(&encoder, &[probe.slice(2, 25)]),
                encode(&encoder, &[Arc::clone(probe)])[2..27]
            );
        }
        check(std::slice::from_ref(&build), &probe, null_equality);
    }
}

#[test]
fn dictionaries_of_nested_values_agree_with_hash_join_exec() {
    let keys = |rows: [Option<i32>; 5]| Int32Array::from(rows.to_vec());
    let structs = wrap_in_struct(&[("n", &int64([Some(1), None, Some(3)]))], None);
    let texts = array(StringArray::from(vec![Some("x"), None, Some("y")]));
    let inner = array(DictionaryArray::new(Int32Array::from(vec![2, 1, 0]), texts));
    for values in [structs, inner] {
        let column = |rows| array(DictionaryArray::new(keys(rows), Arc::clone(&values)));
        let build = column([Some(0), Some(1), None, Some(2), Some(1)]);
        let probe = column([Some(2), Some(1), Some(0), Some(0), None]);
        for null_equality in BOTH {
            check(
                &[vec![Arc::clone(&build)]],
                &[Arc::clone(&probe)],
                null_equality,
            );
        }
    }
}

#[test]
fn map_keys_are_hashed() {
    let entries = wrap_in_struct(
        &[
            ("keys", &int64([1, 2, 1, 2, 1])),
            ("values", &int64([5, 6, 5, 6, 6])),
        ],
        None,
    );
    let (DataType::Struct(fields), Some(entries_array)) =
        (entries.data_type(), entries.as_struct_opt())
    else {
        unreachable!()
    };
    let fields: Fields = vec![
        fields[0].as_ref().clone().with_nullable(false),
        fields[1].as_ref().clone(),
    ]
    .into();
    let entries_array = StructArray::new(fields.clone(), entries_array.columns().to_vec(), None);
    let field = Arc::new(Field::new("entries", DataType::Struct(fields), false));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, 2, 4, 5, 5]));
    let maps = array(MapArray::new(field, offsets, entries_array, None, false));
    supported(&[(maps.data_type().clone(), maps.data_type().clone())]).unwrap();
    for null_equality in BOTH {
        let encoder = check(
            &[vec![maps.slice(1, 3)]],
            &[Arc::clone(&maps)],
            null_equality,
        );
        assert!(!encoder.is_exact());
    }
}

#[test]
fn normalized_key_bits_limit_hashed_keys_only() {
    let strings = long_texts(&int64(0..1000), &DataType::Utf8);
    for (bits, distinct) in [(0, 1), (1, 2), (4, 16), (32, 1000), (99, 1000)] {
        let encoder =
            fit_one(&strings, NullEqualsNothing).with_normalized_key_bits(bits, NullEqualsNothing);
        assert_eq!(encoder.bits(), bits.min(32));
        let mut codes = encode(&encoder, &[Arc::clone(&strings)]);
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), distinct);
    }
    let numbers = int64(0..1000);
    let encoder =
        fit_one(&numbers, NullEqualsNothing).with_normalized_key_bits(4, NullEqualsNothing);
    assert_eq!(encoder.bits(), 10);
    assert_eq!(encode(&encoder, &[numbers])[999], Some(999));
}

#[test]
fn hashed_keys_collide_no_more_than_random_numbers() {
    let rows = 1 << 18;
    let grid = |step: i64| int64((0..rows).map(move |i| (i % 512) * step));
    let steps = |step: i64| int64((0..rows).map(move |i| (i / 512) * step));
    let text = |column: ArrayRef| convert(&column, &DataType::Utf8);
    let wide = |shift: u32| int64((0..rows).map(move |i| i << shift | i >> 9));
    let keys = [
        vec![wide(40)],
        vec![wide(32)],
        vec![int64((0..rows).map(|i| i * 1_000_000_007))],
        vec![
            int64((0..rows).map(|i| i << 40)),
            int64((0..rows).map(|i| -i)),
        ],
        vec![grid(1 << 33), steps(1 << 33)],
        vec![text(int64(0..rows))],
        vec![text(grid(1)), text(steps(1))],
        vec![grid(1 << 40), text(steps(1_000_000))],
        vec![
            convert(&grid(1), &DataType::Float64),
            convert(&steps(1), &DataType::Float64),
        ],
    ];
    // n² / 2^33 = 8 collisions are expected.
    for columns in keys {
        let types: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
        let encoder = KeyEncoder::hashed(HashedKeys::new(NullEqualsNothing), types);
        let mut codes = encode(&encoder, &columns);
        codes.sort();
        codes.dedup();
        let collisions = rows as usize - codes.len();
        assert!(collisions < 30, "{encoder}: {collisions} collisions");
    }
}

/// Every join hashes with a seed of its own, so keys chosen to share a normalized key share none in
/// the next.
#[test]
fn keys_that_share_a_normalized_key_under_one_seed_are_separated_by_another() {
    const BITS: u32 = 8;
    let rows = 1 << 17;
    let text = |column: &ArrayRef| convert(column, &DataType::Utf8);
    let long = |i: i64| format!("a text of more than twelve bytes, number {i}");
    let wide = int64((0..rows).map(|i| i << 40 | i >> 9));
    let keys = [
        vec![Arc::clone(&wide)],
        vec![convert(&int64(0..rows), &DataType::Float64)],
        vec![text(&int64(0..rows))],
        vec![array(StringArray::from_iter_values((0..rows).map(long)))],
        vec![text(&int64(0..rows)), wide],
    ];
    for columns in keys {
        let types: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
        let encoder = || {
            let mut hashed = HashedKeys::new(NullEqualsNothing);
            hashed.keep_bits(BITS);
            KeyEncoder::hashed(hashed, types.clone())
        };
        let codes = encode(&encoder(), &columns);
        let shared = (0..rows as u32).filter(|row| codes[*row as usize] == codes[0]);
        let shared = UInt32Array::from_iter_values(shared);
        assert!(shared.len() > 300, "{} rows", shared.len());
        let chosen = columns.iter().map(|column| take(column, &shared, None));
        let mut codes = encode(&encoder(), &chosen.collect::<Result<Vec<_>, _>>().unwrap());
        codes.sort();
        let most = codes.chunk_by(|a, b| a == b).map(<[_]>::len).max();
        // Of 512 random ones 2 share a normalized key on average, and 12 with a probability below
        // 10⁻⁴. Floats of small numbers are less random: 21 in one of 630 runs.
        assert!(
            most.unwrap() <= 64,
            "{types:?}: {most:?} of {}",
            shared.len()
        );
    }
}
