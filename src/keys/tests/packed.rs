//! Packed keys: codes, NULL codes, extreme values, the limit of 2^32, empty sides.

use super::*;

#[test]
fn integers_agree_with_plain_comparison() {
    let mut rng = Mt64::new(3);
    for null_equality in BOTH {
        for shift in [0, 20, 31, 33, 60] {
            let (low, high) = (-(3i64 << shift), 3i64 << shift);
            let step = 1i64 << shift;
            let mut side = || -> Vec<Option<i64>> {
                let values = (0..60).map(|_| {
                    let value = low + (rng.next_u64() % 7) as i64 * step;
                    (!one_in(&mut rng, 6)).then_some(value.min(high))
                });
                values.collect()
            };
            let (build, probe) = (side(), side());
            let encoder = check(
                &[vec![int64(build.clone())]],
                &[int64(probe.clone())],
                null_equality,
            );
            let build_codes = encode(&encoder, &[int64(build.clone())]);
            let probe_codes = encode(&encoder, &[int64(probe.clone())]);
            for (b, build_code) in build.iter().zip(&build_codes) {
                for (p, probe_code) in probe.iter().zip(&probe_codes) {
                    let null_pair = b.is_none() && null_equality == NullEqualsNothing;
                    let same = build_code.is_some() && build_code == probe_code;
                    assert_eq!(same, b == p && !null_pair, "{encoder}: {b:?} {p:?}");
                }
            }
        }
    }
}

#[test]
fn codes_count_from_the_minimum() {
    let encoder = fit_one(&int64([5, -3, 9]), NullEqualsNothing);
    assert_eq!(encoder.to_string(), "exact(1 column, 13 codes)");
    assert_eq!(encoder.bits(), 4);
    let probe = int64([
        Some(-3),
        Some(9),
        Some(-4),
        Some(10),
        None,
        Some(i64::MIN),
        Some(i64::MAX),
    ]);
    let expected = [Some(0), Some(12), None, None, None, None, None];
    assert_eq!(encode(&encoder, &[Arc::clone(&probe)]), expected);
    // NULL has no code where the build side has no NULL, and the last one where it has.
    let encoder = fit_one(&int64([5, -3, 9]), NullEqualsNull);
    assert_eq!(encode(&encoder, &[Arc::clone(&probe)]), expected);
    let encoder = fit_one(&int64([Some(5), Some(-3), None, Some(9)]), NullEqualsNull);
    assert_eq!(encoder.to_string(), "exact(1 column, 14 codes)");
    let expected = [Some(0), Some(12), None, None, Some(13), None, None];
    assert_eq!(encode(&encoder, &[probe]), expected);
}

#[test]
fn all_rows_matching_needs_no_mask() {
    let encoder = fit_one(&int64([Some(1), None, Some(9)]), NullEqualsNull);
    let mut out = [1; 3];
    let probe = int64([Some(1), None, Some(9)]);
    assert!(encoder.encode(&[probe], &mut out).unwrap().is_none());
    assert_eq!(out, [0, 9, 8]);
    // A validity buffer without NULLs, over values that are.
    let nulls = NullBuffer::new_valid(2);
    let probe = array(Int64Array::new(vec![1, 9].into(), Some(nulls)));
    assert!(
        encoder
            .encode(&[Arc::clone(&probe)], &mut out[..2])
            .unwrap()
            .is_none()
    );
    let encoder = fit_one(&probe, NullEqualsNull);
    assert_eq!(encoder.to_string(), "exact(1 column, 9 codes)");
}

/// Rows of `probe` that `encode_probe` gives a normalized key, and the keys, one word each.
fn encode_probe(build: &ArrayRef, probe: &ArrayRef) -> (Option<Vec<u32>>, Vec<u32>) {
    let encoder = fit_one(build, NullEqualsNothing);
    let mut keys = vec![0xdead_beef; probe.len() * encoder.words()];
    let rows = encoder
        .encode_probe(&[Arc::clone(probe)], &mut keys)
        .unwrap();
    (rows, keys)
}

#[test]
fn rows_that_cannot_match_have_the_free_code_if_they_are_fewer() {
    let build = int64([10, 13]);
    let (rows, keys) = encode_probe(
        &build,
        &int64([Some(9), Some(10), None, Some(12), Some(13)]),
    );
    assert_eq!((rows, keys), (None, vec![4, 0, 4, 2, 3]));
    let (rows, keys) = encode_probe(
        &build,
        &int64([Some(9), Some(10), None, Some(14), Some(13)]),
    );
    assert_eq!((rows, &keys[..2]), (Some(vec![1, 4]), &[0, 3][..]));
}

#[test]
fn without_a_free_code_rows_that_cannot_match_have_no_key() {
    let all = array(Int32Array::from(vec![i32::MIN, i32::MAX]));
    let probe = array(Int32Array::from(vec![Some(1), None, Some(2)]));
    let (rows, keys) = encode_probe(&all, &probe);
    assert_eq!(rows, Some(vec![0, 2]));
    assert_eq!(keys[..2], [(1 << 31) + 1, (1 << 31) + 2]);
    let (rows, _) = encode_probe(&int64([None::<i64>]), &int64([1, 2]));
    assert_eq!(rows, Some(vec![]));
}

#[test]
fn long_batches_agree_with_plain_arithmetic() {
    let mut rng = Mt64::new(7);
    let (low, high) = (-1_000, 100_000);
    for rows in [1, 63, 64, 65, 127, 128, 1000] {
        for at in [0, 1, 70] {
            // The ends of the range in the first and the last row, junk in NULL slots.
            let mut values: Vec<i64> = (0..at + rows)
                .map(|_| low + (rng.next_u64() % 101_001) as i64)
                .collect();
            values[at] = low;
            values[at + rows - 1] = high;
            let valid: Vec<bool> = (0..at + rows)
                .map(|row| row == at || row == at + rows - 1 || one_in(&mut rng, 2))
                .collect();
            for (row, value) in values.iter_mut().enumerate() {
                if row < at || !valid[row] {
                    *value = rng.next_u64() as i64;
                }
            }
            let build = Int64Array::new(values.into(), Some(valid.into())).slice(at, rows);
            let min = build.value(0).min(build.value(rows - 1));
            let codes = i64::max(1, (high - min) + 1);
            for null_equality in BOTH {
                let build = array(build.clone());
                let encoder = fit_one(&build, null_equality);
                let nulls = build.null_count() > 0 && null_equality == NullEqualsNull;
                assert_eq!(encoder.to_string(), {
                    format!("exact(1 column, {} codes)", codes + i64::from(nulls))
                });
                let probe = (0..rows as i64).map(|i| (i % 3 > 0).then_some(min - 2 + i * 200));
                let probe: Vec<Option<i64>> = probe.collect();
                let expected = probe.iter().map(|value| match value {
                    Some(value) if (min..=high).contains(value) => Some((value - min) as u64),
                    None if nulls => Some(codes as u64),
                    _ => None,
                });
                let expected: Vec<_> = expected.collect();
                assert_eq!(encode(&encoder, &[int64(probe)]), expected);
            }
        }
    }
}

#[test]
fn null_slots_may_hold_any_value() {
    let nulls = NullBuffer::from(vec![true, false, true, false]);
    let column = array(Int64Array::new(
        vec![3, i64::MIN, 4, i64::MAX].into(),
        Some(nulls),
    ));
    for (null_equality, null) in [(NullEqualsNothing, None), (NullEqualsNull, Some(2))] {
        let encoder = fit_one(&column, null_equality);
        assert!(encoder.is_exact());
        let expected = [Some(0), null, Some(1), null];
        assert_eq!(encode(&encoder, &[Arc::clone(&column)]), expected);
        check(
            &[vec![Arc::clone(&column); 3]],
            &vec![Arc::clone(&column); 3],
            null_equality,
        );
    }
}

#[test]
fn extreme_values_do_not_overflow() {
    fn ends<T: ArrowPrimitiveType>(min: T::Native, max: T::Native) -> ArrayRef {
        array(PrimitiveArray::<T>::from_iter_values([
            min,
            min.add_wrapping(T::Native::ONE),
            T::Native::ZERO,
            T::Native::ONE,
            max.sub_wrapping(T::Native::ONE),
            max,
        ]))
    }
    let full = [
        (ends::<Int8Type>(i8::MIN, i8::MAX), true),
        (ends::<UInt8Type>(0, u8::MAX), true),
        (ends::<Int16Type>(i16::MIN, i16::MAX), true),
        (ends::<UInt16Type>(0, u16::MAX), true),
        (ends::<Int32Type>(i32::MIN, i32::MAX), true),
        (ends::<UInt32Type>(0, u32::MAX), true),
        (ends::<Int64Type>(i64::MIN, i64::MAX), true),
        (ends::<UInt64Type>(0, u64::MAX), true),
        (ends::<Decimal128Type>(i128::MIN, i128::MAX), false),
    ];
    for (column, exact) in full {
        for null_equality in BOTH {
            let both = check(
                &[vec![Arc::clone(&column)]],
                &[Arc::clone(&column)],
                null_equality,
            );
            assert_eq!(both.is_exact(), exact, "{both}");
            // Two neighbours at either end, everything else out of range.
            for from in [0, 4] {
                let build = vec![column.slice(from, 2)];
                let end = check(&[build], &[Arc::clone(&column)], null_equality);
                assert_eq!(end.to_string(), "exact(1 column, 2 codes)");
            }
        }
    }
}

#[test]
fn up_to_2_to_the_32_codes_take_one_word() {
    let codes = |columns: &[ArrayRef], null_equality| {
        let encoder = check(&[columns.to_vec()], columns, null_equality);
        assert!(encoder.is_exact());
        (encoder.words() == 1).then(|| encoder.to_string())
    };
    let last = i64::from(u32::MAX);
    for min in [0, -7, i64::MIN, i64::MAX - last] {
        let all = Some("exact(1 column, 4294967296 codes)".to_string());
        let column = int64([min, min + 1, min + last - 1, min + last]);
        assert_eq!(codes(&[column], NullEqualsNull), all);
        let column = int64([Some(min), None, Some(min + last - 1)]);
        assert_eq!(codes(&[Arc::clone(&column)], NullEqualsNull), all);
        let column = int64([Some(min), None, Some(min + last)]);
        assert_eq!(codes(&[Arc::clone(&column)], NullEqualsNothing), all);
        assert_eq!(codes(&[column], NullEqualsNull), None);
    }
    assert_eq!(codes(&[int64([5, 6 + last])], NullEqualsNothing), None);

    let all = Some("exact(3 columns, 4294967296 codes)".to_string());
    let (small, large) = (int64([3, 18, 9]), int64([-5, 5, (1 << 28) - 6]));
    let one = int64([8, 8, 8]);
    for columns in [
        [&small, &one, &large],
        [&large, &small, &one],
        [&one, &large, &small],
    ] {
        assert_eq!(codes(&columns.map(Arc::clone), NullEqualsNothing), all);
        let mut over = columns.map(Arc::clone);
        over[1] = int64([3, 18, 1 << 30]);
        assert_eq!(codes(&over, NullEqualsNothing), None);
    }
    // A full column leaves room for columns of one value only, of whatever kind.
    let full = int64([0, last, 9]);
    let nulls = int64([None::<i64>, None, None]);
    let columns = [Arc::clone(&full), Arc::clone(&one), nulls];
    assert_eq!(codes(&columns, NullEqualsNull), all);
    assert_eq!(codes(&[full, one, small], NullEqualsNull), None);
}

#[test]
fn up_to_2_to_the_64_codes_take_two_words() {
    let codes = |columns: &[ArrayRef], null_equality| {
        let encoder = check(&[columns.to_vec()], columns, null_equality);
        (encoder.words() == 2).then(|| encoder.to_string())
    };
    let exact = |columns: usize, codes: u128| {
        let plural = if columns == 1 { "" } else { "s" };
        Some(format!("exact({columns} column{plural}, {codes} codes)"))
    };
    let last = 1i64 << 32;
    assert_eq!(
        codes(&[int64([5, 5 + last])], NullEqualsNothing),
        exact(1, (1 << 32) + 1)
    );
    // Just short of half the type, and half of it, whose range is the whole type.
    for min in [i64::MIN, -1, 0] {
        let column = int64([min, min + 1, min + i64::MAX]);
        assert_eq!(codes(&[column], NullEqualsNothing), exact(1, 1 << 63));
        let column = int64([Some(min), None, Some(min + i64::MAX)]);
        assert_eq!(codes(&[column], NullEqualsNull), exact(1, (1 << 63) + 1));
    }
    let half = int64([i64::MIN, -5, 0]);
    assert_eq!(
        codes(&[Arc::clone(&half)], NullEqualsNothing),
        exact(1, 1 << 64)
    );
    assert_eq!(
        encode(&fit_one(&half, NullEqualsNothing), &[int64([i64::MAX])]),
        [Some(u64::MAX)]
    );
    let wide = array(UInt64Array::from(vec![7, u64::MAX]));
    assert_eq!(codes(&[wide], NullEqualsNothing), exact(1, 1 << 64));
    // No code is left for NULL, nor for another column's.
    let null = int64([Some(i64::MIN), None, Some(0)]);
    assert_eq!(codes(&[null], NullEqualsNull), None);
    assert_eq!(codes(&[half, int64([1, 2, 2])], NullEqualsNothing), None);

    let (large, small) = (int64([0, (1 << 40) - 1, 77]), int64([3, 2 + (1 << 24), 9]));
    for columns in [[&large, &small], [&small, &large]] {
        let columns = columns.map(Arc::clone);
        assert_eq!(codes(&columns, NullEqualsNothing), exact(2, 1 << 64));
        assert_eq!(codes(&columns, NullEqualsNull), exact(2, 1 << 64));
    }
    let over = int64([3, 3 + (1 << 24), 9]);
    assert_eq!(codes(&[large, over], NullEqualsNothing), None);
}

#[test]
fn nothing_matches_an_empty_build_side() {
    let mut rng = Mt64::new(4);
    for data_type in exact_types().into_iter().chain(hashed_types()) {
        let probe = convert(&random(&mut rng, 0..9, 20), &data_type);
        for null_equality in BOTH {
            let no_batches = check_empty(&[], &probe, null_equality);
            assert_eq!(no_batches.to_string(), "exact(1 column, 0 codes)");
            assert_eq!(no_batches.bits(), 0);
            check_empty(
                &[vec![probe.slice(4, 0)], vec![probe.slice(0, 0)]],
                &probe,
                null_equality,
            );
        }
        let nulls = [vec![new_null_array(&data_type, 3)]];
        check(&nulls, &[Arc::clone(&probe)], NullEqualsNull);
        check(&nulls, &[Arc::clone(&probe)], NullEqualsNothing);
    }
    let nulls = int64([None::<i64>, None]);
    let encoder = fit_one(&nulls, NullEqualsNothing);
    assert_eq!(encoder.to_string(), "exact(1 column, 0 codes)");
    let encoder = fit_one(&nulls, NullEqualsNull);
    assert_eq!(encoder.to_string(), "exact(1 column, 1 codes)");
    assert_eq!(encode(&encoder, &[int64([Some(1), None])]), [None, Some(0)]);
    assert_eq!(encode(&encoder, &[int64([1, 2])]), [None, None]);
    assert!(encode(&encoder, &[nulls.slice(0, 0)]).is_empty());
}

fn check_empty(
    build: &[Vec<ArrayRef>],
    probe: &ArrayRef,
    null_equality: NullEquality,
) -> KeyEncoder {
    let types = [probe.data_type().clone()];
    let encoder = KeyEncoder::fit(build, &types, null_equality).unwrap();
    let codes = encode(&encoder, &[Arc::clone(probe)]);
    assert_eq!(codes, vec![None; probe.len()]);
    encoder
}
