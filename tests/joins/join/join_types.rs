//! Join types, partition modes, null equalities and residual filters.

use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_plan::joins::PartitionMode;

use horton_test_support::env::small;
use horton_test_support::joins::*;

/// Keys with duplicates and NULLs on both sides, some on one side only.
fn keys() -> (Vec<Option<i64>>, Vec<Option<i64>>) {
    let shift = |key: Option<i64>| key.map(|k| k + 4);
    let probe = repeating_keys(2, 90, 12).into_iter().map(shift).collect();
    (repeating_keys(1, 60, 12), probe)
}

/// The partition of a key: equal keys share one.
fn partition(keys: &[Option<i64>]) -> impl Fn(usize) -> usize {
    |row| keys[row].map_or(0, |key| key as usize)
}

/// The case of `mode`: 3 partitions of each side, or one of the build side.
fn case(mode: PartitionMode, column: ToColumn) -> Case {
    let (left, right) = keys();
    let build = Side::new(vec![("k", column(&left)), ("v", payload(left.len()))]);
    let probe = Side::new(vec![("k", column(&right)), ("w", payload(right.len()))]);
    let (build, probe) = match mode {
        PartitionMode::Partitioned => (
            build.in_partitions(3, partition(&left)),
            probe.in_partitions(3, partition(&right)),
        ),
        _ => (build, probe.in_partitions(3, |row| row / 7)),
    };
    Case {
        mode,
        ..Case::new(build.in_batches_of(7), probe.in_batches_of(11))
    }
}

fn check_join_types(mode: PartitionMode, column: ToColumn) {
    // Batches of three rows and chunks of seven have the most seams.
    let sizes = [(3, 7), (1, 65536), (8192, 65536)];
    let sizes = &sizes[..if small() { 1 } else { 3 }];
    for join_type in JOIN_TYPES {
        for null_equality in NULL_EQUALITIES {
            for filtered in [false, true] {
                for &(batch_size, chunk_rows) in sizes {
                    let mut case = case(mode, column);
                    case.join_type = join_type;
                    case.null_equality = null_equality;
                    case.batch_size = batch_size;
                    case.config.chunk_rows = chunk_rows;
                    if filtered {
                        case = case.with_filter(1, 1);
                    }
                    case.check();
                }
            }
        }
    }
}

#[test]
fn every_join_type_collects_its_build_side_with_exact_keys() {
    check_join_types(PartitionMode::CollectLeft, ints);
}

#[test]
fn every_join_type_collects_its_build_side_with_hashed_keys() {
    check_join_types(PartitionMode::CollectLeft, strings);
}

#[test]
fn every_join_type_collects_its_build_side_with_keys_of_two_words() {
    check_join_types(PartitionMode::CollectLeft, sparse_ints);
}

#[test]
fn every_join_type_collects_its_build_side_with_short_strings() {
    check_join_types(PartitionMode::CollectLeft, short_strings);
}

#[test]
fn every_join_type_runs_partitioned_with_keys_of_two_words() {
    check_join_types(PartitionMode::Partitioned, sparse_ints);
}

#[test]
fn every_join_type_runs_partitioned_with_exact_keys() {
    check_join_types(PartitionMode::Partitioned, ints);
}

#[test]
fn every_join_type_runs_partitioned_with_hashed_keys() {
    check_join_types(PartitionMode::Partitioned, strings);
}

#[test]
fn every_join_type_runs_with_unique_build_keys() {
    for join_type in JOIN_TYPES {
        let columns: [ToColumn; 3] = [ints, ints, sparse_ints];
        for (filtered, column) in [false, true, false].into_iter().zip(columns) {
            let left: Vec<Option<i64>> = (0..50).map(|k| (k % 9 != 8).then_some(3 * k)).collect();
            let right: Vec<Option<i64>> = (0..200).map(|k| Some(k % 160)).collect();
            let build = Side::new(vec![("k", column(&left)), ("v", payload(50))]);
            let probe = Side::new(vec![("k", column(&right)), ("w", payload(200))]);
            let mut case = Case::new(build.in_batches_of(20), probe.in_batches_of(64));
            case.join_type = join_type;
            if filtered {
                case = case.with_filter(1, 1);
            }
            case.check();
        }
    }
}

#[test]
fn a_residual_filter_that_nothing_passes_leaves_every_row_unmatched() {
    for join_type in JOIN_TYPES {
        let (left, right) = keys();
        let build = Side::new(vec![("k", ints(&left)), ("v", ints(&vec![Some(1); 60]))]);
        let probe = Side::new(vec![("k", ints(&right)), ("w", ints(&vec![Some(0); 90]))]);
        let case = Case::new(build, probe.in_batches_of(16));
        let mut case = case.with_filter(1, 1);
        case.join_type = join_type;
        case.batch_size = 5;
        case.check();
    }
}

/// NOT IN: `build.k NOT IN (probe.k)`, with the partitions run side by side too.
fn check_not_in(left: &[Option<i64>], right: &[Option<i64>], parts: usize) -> Run {
    let build = Side::new(vec![("k", ints(left)), ("v", payload(left.len()))]);
    let probe = Side::new(vec![("k", ints(right))]).in_partitions(parts, |row| row);
    let case = Case {
        join_type: JoinType::LeftAnti,
        null_aware: true,
        null_equality: NullEquality::NullEqualsNothing,
        ..Case::new(build.in_batches_of(4), probe.in_batches_of(3))
    };
    let looks_up = left.iter().any(Option::is_some);
    match looks_up {
        true => case.check(),
        false => case.check_without_launch(),
    }
}

#[test]
fn not_in_without_nulls_returns_the_rows_without_a_match() {
    let left: Vec<Option<i64>> = (0..20).map(Some).collect();
    let right: Vec<Option<i64>> = (0..40).map(|k| Some(2 * k)).collect();
    for parts in [1, 4] {
        assert_eq!(check_not_in(&left, &right, parts).count(), 10);
    }
}

#[test]
fn not_in_with_a_null_on_the_build_side_drops_that_row() {
    let left = [Some(1), None, Some(2), Some(3), None];
    let right = [Some(2), Some(7), Some(9)];
    for parts in [1, 3] {
        assert_eq!(check_not_in(&left, &right, parts).count(), 2);
    }
}

#[test]
fn not_in_with_a_null_on_the_probe_side_returns_nothing() {
    let left = [Some(1), None, Some(2), Some(3)];
    let mut right: Vec<Option<i64>> = (0..30).map(|k| Some(100 + k)).collect();
    for null_at in [0, 13, 29] {
        right[null_at] = None;
        for parts in [1, 4] {
            assert_eq!(check_not_in(&left, &right, parts).count(), 0);
        }
        right[null_at] = Some(7);
    }
}

#[test]
fn not_in_an_empty_probe_side_returns_every_row_nulls_included() {
    let left = [Some(1), None, Some(2), None];
    for parts in [1, 3] {
        assert_eq!(check_not_in(&left, &[], parts).count(), 4);
    }
}

#[test]
fn not_in_with_only_nulls_on_the_build_side() {
    assert_eq!(check_not_in(&[None, None], &[Some(1)], 2).count(), 0);
    assert_eq!(check_not_in(&[None, None], &[], 2).count(), 2);
    assert_eq!(check_not_in(&[None, None], &[None], 1).count(), 0);
    assert_eq!(check_not_in(&[], &[Some(1), None], 2).count(), 0);
}

#[test]
fn not_in_with_a_residual_filter_is_what_the_stock_join_says() {
    let left = repeating_keys(5, 40, 30);
    for nulls in [false, true] {
        let mut right = repeating_keys(6, 60, 20);
        right.retain(|key| nulls || key.is_some());
        let build = Side::new(vec![("k", ints(&left)), ("v", payload(40))]);
        let probe = Side::new(vec![("k", ints(&right)), ("w", payload(right.len()))]);
        let case = Case {
            join_type: JoinType::LeftAnti,
            null_aware: true,
            ..Case::new(build, probe.in_batches_of(9)).with_filter(1, 1)
        };
        case.check();
    }
}

#[test]
fn not_in_takes_a_null_of_a_dictionary_for_a_null() {
    use arrow::array::{ArrayRef, DictionaryArray, Int8Array, StringArray};
    use std::sync::Arc;
    let column = |indices: &[i8], values: [Option<&str>; 3]| {
        let values = Arc::new(StringArray::from(values.to_vec()));
        let indices = Int8Array::from(indices.to_vec());
        Arc::new(DictionaryArray::try_new(indices, values).unwrap()) as ArrayRef
    };
    let count = |left, right| {
        let case = Case {
            join_type: JoinType::LeftAnti,
            null_aware: true,
            ..Case::new(Side::new(vec![("k", left)]), Side::new(vec![("k", right)]))
        };
        case.run_on_device().count()
    };
    let left = || column(&[0, 1, 2, 0], [Some("a"), None, Some("b")]);
    // x NOT IN ('b'): two of 'a', not the NULL.
    assert_eq!(count(left(), column(&[0], [Some("b"), None, None])), 2);
    assert_eq!(count(left(), column(&[0, 1], [Some("b"), None, None])), 0);
}

#[test]
fn not_in_sees_the_null_of_any_probe_partition_when_they_run_side_by_side() {
    let left: Vec<Option<i64>> = (0..100).map(Some).collect();
    let mut right: Vec<Option<i64>> = (0..400).map(|k| Some(1000 + k)).collect();
    right[399] = None;
    let build = Side::new(vec![("k", ints(&left))]);
    let probe = Side::new(vec![("k", ints(&right))]).in_partitions(8, |row| row / 50);
    let case = Case {
        join_type: JoinType::LeftAnti,
        null_aware: true,
        ..Case::new(build, probe.in_batches_of(10))
    };
    for _ in 0..10 {
        side_by_side();
        let plan = case.on_device();
        let batches = block_on(datafusion::physical_plan::collect(plan, case.context()));
        assert_eq!(text(&batches.unwrap()).len(), 0);
    }
}

#[test]
fn partitions_that_run_side_by_side_emit_unmatched_build_rows_once() {
    for join_type in [
        JoinType::Left,
        JoinType::Full,
        JoinType::LeftAnti,
        JoinType::LeftMark,
    ] {
        let case = Case {
            join_type,
            ..case(PartitionMode::CollectLeft, ints)
        };
        side_by_side();
        let sorted = |plan| {
            let batches = block_on(datafusion::physical_plan::collect(plan, case.context()));
            let mut rows = text(&batches.unwrap());
            rows.sort_unstable();
            rows
        };
        let expected = sorted(std::sync::Arc::new(case.stock()));
        for _ in 0..10 {
            assert_eq!(sorted(case.on_device()), expected, "{join_type}");
        }
    }
}
