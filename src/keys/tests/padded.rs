//! Padded keys: strings of every length up to the limit, and what looks like padding.

use super::*;

fn strings<'a>(values: impl IntoIterator<Item = Option<&'a str>>, to: &DataType) -> ArrayRef {
    cast(&array(StringArray::from_iter(values)), to).unwrap()
}

#[test]
fn strings_that_differ_in_padding_alone_differ() {
    let build = ["", "a", "a\0", "abcd", "abcd\0\0\0"];
    let others = ["\0", "abc", "abcd\0", "b", "abcdabcd"];
    let nullable = |values: &[&'static str]| -> Vec<Option<&'static str>> {
        values.iter().copied().map(Some).chain([None]).collect()
    };
    let (build, probe) = (nullable(&build), nullable(&[build, others].concat()));
    for to in text_types() {
        let (build, probe) = (strings(build.clone(), &to), strings(probe.clone(), &to));
        for null_equality in BOTH {
            let build = [vec![Arc::clone(&build)]];
            let encoder = check(&build, &[Arc::clone(&probe)], null_equality);
            assert_eq!(encoder.to_string(), "exact(1 column, 3 words)");
        }
    }
}

#[test]
fn columns_do_not_run_into_each_other() {
    let first = ["ab", "a", "abc", "", "abc"].map(Some);
    let second = ["c", "bc", "", "abc", "abc"].map(Some);
    let pair = |to: &DataType| vec![strings(first, to), strings(second, to)];
    for to in text_types() {
        let encoder = check(&[pair(&to)], &pair(&to), NullEqualsNothing);
        assert_eq!(encoder.to_string(), "exact(2 columns, 4 words)");
        // A column with codes between them, NULLs included.
        let mut columns = pair(&to);
        columns.insert(1, int64([Some(1), None, Some(3), Some(1), None]));
        for null_equality in BOTH {
            let encoder = check(&[columns.clone()], &columns, null_equality);
            assert_eq!(encoder.to_string(), "exact(3 columns, 5 words)");
        }
    }
}

#[test]
fn up_to_28_bytes_are_padded() {
    let text = "abcdefghijklmnopqrstuvwxyz0123456789";
    for longest in [0, 1, 3, 4, 5, 11, 12, 13, 27, 28, 29, 36] {
        let values = |lengths: std::ops::RangeInclusive<usize>| {
            let column = lengths.map(|length| Some(&text[..length]));
            strings(column, &DataType::Utf8View)
        };
        let build = values(0..=longest);
        // Longer ones than any of the build side, too.
        let encoder = check(&[vec![build]], &[values(0..=36)], NullEqualsNull);
        assert_eq!(encoder.is_exact(), longest <= 28, "{longest}: {encoder}");
        let words = match longest {
            29.. => 1,
            _ => (1 + longest.div_ceil(4)).max(2),
        };
        assert_eq!(encoder.words(), words, "{longest}");
    }
}

#[test]
fn long_strings_are_hashed() {
    let mut rng = Mt64::new(6);
    for to in text_types() {
        for null_equality in BOTH {
            let build = long_texts(&random(&mut rng, 20..60, 50), &to);
            let probe = long_texts(&random(&mut rng, 0..80, 70), &to);
            let encoder = check_columns(&[build], &[probe], null_equality);
            assert!(!encoder.is_exact());
        }
    }
}

#[test]
fn a_column_of_nulls_alone_meets_nulls_alone() {
    let nulls = strings([None, None], &DataType::Utf8);
    let probe = strings([None, Some(""), Some("x")], &DataType::Utf8);
    for null_equality in BOTH {
        let build = [vec![Arc::clone(&nulls)]];
        check(&build, &[Arc::clone(&probe)], null_equality);
    }
}
