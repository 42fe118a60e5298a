//! Sizes, orders, projections, limits, payloads, hot keys and colliding normalized keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{
    Array, ArrayRef, Int32Array, Int64Array, ListViewArray, NullArray, StringArray, StructArray,
    UnionArray,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, UnionFields};
use datafusion::common::JoinType;
use datafusion::physical_plan::joins::PartitionMode;

use horton_test_support::env::small;
use horton_test_support::joins::*;

fn side(name: &str, keys: &[Option<i64>]) -> Side {
    Side::new(vec![("k", ints(keys)), (name, payload(keys.len()))])
}

// ---------------------------------------------------------------- sizes

#[test]
pub fn empty_sides_join_as_the_stock_join_does() {
    let some: Vec<Option<i64>> = vec![Some(1), None, Some(2), Some(2)];
    for join_type in JOIN_TYPES {
        for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
            let case = |left: &[Option<i64>], right: &[Option<i64>]| Case {
                join_type,
                mode,
                ..Case::new(side("v", left), side("w", right))
            };
            case(&[], &some).check_without_launch();
            case(&[], &[]).check_without_launch();
            case(&[None, None], &some).check_without_launch();
            case(&some, &[]).check();
            case(&some, &[None]).check();
        }
    }
}

#[test]
pub fn sides_without_any_batch_join_as_the_stock_join_does() {
    for join_type in JOIN_TYPES {
        let mut case = Case::new(side("v", &[Some(1)]), side("w", &[Some(1)]));
        case.join_type = join_type;
        case.probe.partitions = vec![vec![]];
        case.check();
        case.build.partitions = vec![vec![]];
        case.check_without_launch();
    }
}

#[test]
pub fn one_row_joins_one_row() {
    for join_type in JOIN_TYPES {
        for right in [Some(5), Some(6), None] {
            let case = Case {
                join_type,
                ..Case::new(side("v", &[Some(5)]), side("w", &[right]))
            };
            case.check();
        }
    }
}

#[test]
pub fn build_sides_of_many_small_batches_keep_their_rows_apart() {
    let left = repeating_keys(21, 3000, 500);
    let right = repeating_keys(22, 500, 600);
    for rows in [1, 2, 1000, 1024, 1025] {
        for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftSemi] {
            let build = side("v", &left).in_batches_of(rows);
            let case = Case {
                join_type,
                batch_size: 100,
                ..Case::new(build, side("w", &right).in_batches_of(64))
            };
            case.check();
        }
    }
}

#[test]
pub fn output_batches_have_the_rows_they_should() {
    let (left, right) = (repeating_keys(23, 200, 50), repeating_keys(24, 700, 50));
    for batch_size in [1, 3, 64, 8192] {
        let case = Case {
            batch_size,
            ..Case::new(side("v", &left), side("w", &right).in_batches_of(50))
        };
        let run = case.check();
        let sizes: Vec<usize> = run.batches[0]
            .iter()
            .map(|batch| batch.num_rows())
            .collect();
        assert!(sizes.iter().all(|rows| *rows <= batch_size), "{sizes:?}");
        // A step's rest is as small as the probe batch wants it; the others are full.
        let full = sizes.iter().filter(|rows| **rows == batch_size).count();
        assert!(sizes.len() - full <= 700 / 50 + 1, "{sizes:?}");
    }
}

#[test]
pub fn probe_sides_around_chunk_boundaries_lose_no_row() {
    let left = repeating_keys(25, 40, 30);
    for chunk_rows in [1, 7, 64] {
        for rows in [
            chunk_rows - 1,
            chunk_rows,
            chunk_rows + 1,
            3 * chunk_rows + 2,
        ] {
            for batch_rows in [1, 7, 200] {
                let right = repeating_keys(26, rows, 40);
                let probe = side("w", &right).in_batches_of(batch_rows);
                let mut case = Case::new(side("v", &left), probe);
                case.config.chunk_rows = chunk_rows;
                case.join_type = JoinType::Right;
                case.check();
            }
        }
    }
}

#[test]
pub fn probe_sides_around_the_boundaries_of_large_chunks_lose_no_row() {
    // Chunks grow: 32,768 rows, then 65,536 each.
    let left: Vec<Option<i64>> = (0..2000).map(|k| Some(k * 64)).collect();
    for rows in [32_767, 32_768, 32_769, 98_304, 98_305] {
        let right: Vec<Option<i64>> = (0..rows).map(Some).collect();
        let build = Side::new(vec![("k", ints(&left))]);
        let probe = Side::new(vec![("k", ints(&right))]).in_batches_of(8192);
        let mut case = Case::new(build, probe);
        case.config.chunk_rows = 65_536;
        let run = case.check();
        assert_eq!(run.count() as i64, (rows + 63) / 64);
        assert_eq!(run.metric("input_rows") as i64, rows);
    }
}

#[test]
pub fn batches_without_a_row_to_look_up_stand_between_others() {
    // All match, none can (NULL or out of range), some can; on both sides.
    let all: Vec<Option<i64>> = (10..30).map(Some).collect();
    let none = vec![None; 20];
    let outside: Vec<Option<i64>> = (1000..1020).map(Some).collect();
    let some: Vec<Option<i64>> = (5..25).map(|k| (k % 3 != 0).then_some(k)).collect();
    let left = [&all, &none, &some, &all, &none]
        .map(Vec::as_slice)
        .concat();
    let orders = [
        [&all, &none, &some, &outside, &all],
        [&none, &outside, &none, &some, &all],
        [&some, &all, &all, &none, &none],
        [&outside, &none, &outside, &none, &outside],
    ];
    // The first two have each kind of batch, in front and behind.
    let most = if small() || is_engine_named() { 2 } else { 4 };
    for order in orders.into_iter().take(most) {
        let right = order.map(Vec::as_slice).concat();
        for column in [ints, sparse_ints, short_strings, strings] {
            let build = Side::new(vec![("k", column(&left)), ("v", payload(100))]);
            let probe = Side::new(vec![("k", column(&right)), ("w", payload(100))]);
            let mut case = Case::new(build.in_batches_of(20), probe.in_batches_of(20));
            for join_type in JOIN_TYPES {
                for null_equality in NULL_EQUALITIES {
                    case.join_type = join_type;
                    case.null_equality = null_equality;
                    case.check();
                }
            }
        }
    }
}

// ---------------------------------------------------------------- order

#[test]
pub fn a_sorted_probe_side_stays_sorted_and_matches_come_in_build_order() {
    let mut right = repeating_keys(27, 300, 60);
    right.sort_unstable();
    let left = repeating_keys(28, 200, 70);
    for join_type in [
        JoinType::Inner,
        JoinType::Right,
        JoinType::RightSemi,
        JoinType::RightAnti,
        JoinType::RightMark,
    ] {
        for batch_size in [1, 3, 50, 8192] {
            for filtered in [false, true] {
                let build = side("v", &left).in_batches_of(17);
                let probe = side("w", &right).in_batches_of(40).sorted_by(0);
                let mut case = Case::new(build, probe);
                case.join_type = join_type;
                case.batch_size = batch_size;
                if filtered {
                    case = case.with_filter(1, 1);
                }
                case.check();
            }
        }
    }
}

#[test]
pub fn matches_of_one_probe_row_come_in_build_order_with_hashed_keys_too() {
    let (left, right) = (repeating_keys(29, 400, 5), repeating_keys(30, 20, 6));
    let build = Side::new(vec![("k", strings(&left)), ("v", payload(400))]).in_batches_of(33);
    let probe = Side::new(vec![("k", strings(&right)), ("w", payload(20))]);
    for batch_size in [1, 7, 8192] {
        let case = Case {
            batch_size,
            ..Case::new(build.clone(), probe.clone())
        };
        case.check();
    }
}

// ---------------------------------------------------------------- projections and limits

#[test]
pub fn embedded_projections_pick_reorder_and_repeat_columns() {
    let (left, right) = (repeating_keys(31, 50, 10), repeating_keys(32, 80, 12));
    for join_type in JOIN_TYPES {
        let mut case = Case::new(side("v", &left), side("w", &right).in_batches_of(30));
        case.join_type = join_type;
        let columns = case.stock().join_schema().fields().len();
        let reversed: Vec<usize> = (0..columns).rev().collect();
        for projection in [reversed, vec![columns - 1], vec![0]] {
            case.projection = Some(projection);
            case.check();
        }
    }
}

#[test]
pub fn an_empty_projection_yields_row_counts_without_columns() {
    let (left, right) = (repeating_keys(33, 50, 10), repeating_keys(34, 80, 12));
    for join_type in JOIN_TYPES {
        let columns: [ToColumn; 3] = [ints, ints, sparse_ints];
        for (filtered, column) in [false, true, false].into_iter().zip(columns) {
            let build = Side::new(vec![("k", column(&left)), ("v", payload(50))]);
            let probe = Side::new(vec![("k", column(&right)), ("w", payload(80))]);
            let mut case = Case::new(build, probe.in_batches_of(30));
            case.join_type = join_type;
            case.projection = Some(vec![]);
            if filtered {
                case = case.with_filter(1, 1);
            }
            let run = case.check();
            assert!(run.batches[0].iter().all(|batch| batch.num_columns() == 0));
            assert!(run.count() > 0, "{case}");
        }
    }
}

#[test]
pub fn fetch_returns_so_many_rows_and_they_are_the_first() {
    let (left, right) = (repeating_keys(35, 60, 10), repeating_keys(36, 90, 12));
    for join_type in JOIN_TYPES {
        for fetch in [1, 2, 17, 100_000] {
            for batch_size in [1, 3, 8192] {
                let mut case = Case::new(side("v", &left), side("w", &right).in_batches_of(30));
                case.join_type = join_type;
                case.batch_size = batch_size;
                let all = case.run_on_device().rows().remove(0);
                case.fetch = Some(fetch);
                let limited = case.run_on_device();
                let expected = &all[..fetch.min(all.len())];
                assert_eq!(limited.rows()[0], expected, "{case}");
                assert!(limited.metric("kernel_launches") > 0);
            }
        }
    }
}

#[test]
pub fn fetch_of_nothing_returns_nothing() {
    for join_type in JOIN_TYPES {
        let case = Case {
            join_type,
            fetch: Some(0),
            ..Case::new(side("v", &[Some(1)]), side("w", &[Some(1), Some(2)]))
        };
        assert_eq!(case.run_on_device().count(), 0, "{case}");
    }
}

// ---------------------------------------------------------------- payloads

/// Payload columns of one value per row, of types that need not be keys.
fn payloads(rows: usize) -> Vec<(&'static str, ArrayRef)> {
    use DataType::*;
    let keys: Vec<Option<i64>> = (0..rows as i64)
        .map(|k| (k % 5 != 3).then_some(k))
        .collect();
    let number = ints(&keys);
    let to = |data_type: DataType| cast(&number, &data_type).unwrap();
    let pairs = |values: ArrayRef| {
        let field = Field::new("a", values.data_type().clone(), true);
        StructArray::new(vec![field].into(), vec![values], None)
    };
    let item = Arc::new(Field::new("item", Int64, true));
    let runs = |name: &str, to: DataType| Arc::new(Field::new(name, to, name == "values"));
    let offsets: Vec<i32> = (0..rows as i32).collect();
    let views = ListViewArray::new(
        Arc::clone(&item),
        ScalarBuffer::from(offsets),
        ScalarBuffer::from(vec![1; rows]),
        Arc::clone(&number),
        None,
    );
    let union_fields = UnionFields::try_new(
        [0, 1],
        [Field::new("n", Int64, true), Field::new("s", Utf8, true)],
    );
    let type_ids: Vec<i8> = (0..rows).map(|row| (row % 2) as i8).collect();
    let union = UnionArray::try_new(
        union_fields.unwrap(),
        type_ids.into(),
        None,
        vec![Arc::clone(&number), strings(&keys)],
    );
    let lists = arrow::array::ListArray::new(
        item,
        OffsetBuffer::from_lengths(vec![1; rows]),
        Arc::clone(&number),
        None,
    );
    vec![
        ("null", Arc::new(NullArray::new(rows))),
        ("boolean", to(Boolean)),
        ("decimal", to(Decimal256(60, 5))),
        ("text", strings(&keys)),
        ("view", cast(&strings(&keys), &Utf8View).unwrap()),
        ("bytes", cast(&strings(&keys), &LargeBinary).unwrap()),
        (
            "dictionary",
            to(Dictionary(Box::new(UInt8), Box::new(Int64))),
        ),
        ("struct", Arc::new(pairs(strings(&keys)))),
        ("list", Arc::new(lists)),
        ("list_view", Arc::new(views)),
        ("union", Arc::new(union.unwrap())),
        (
            "runs",
            to(RunEndEncoded(
                runs("run_ends", Int32),
                runs("values", Int64),
            )),
        ),
    ]
}

#[test]
fn payload_columns_of_any_type_are_carried() {
    for (name, column) in payloads(60) {
        let keys = |seed| ints(&repeating_keys(seed, 60, 25));
        let build = Side::new(vec![("k", keys(37)), (name, Arc::clone(&column))]);
        let probe = Side::new(vec![("k", keys(38)), (name, column)]);
        // The stock join makes values of a run-end encoded column's missing rows.
        let shown = match name {
            "runs" => &[JoinType::Inner, JoinType::LeftAnti][..],
            _ => &[JoinType::Inner, JoinType::LeftAnti, JoinType::Full],
        };
        for join_type in shown {
            for rows in [60, 13] {
                let build = build.clone().in_batches_of(rows);
                let probe = probe.clone().in_batches_of(rows);
                let case = Case {
                    join_type: *join_type,
                    ..Case::new(build, probe)
                };
                case.check();
            }
        }
    }
}

// ---------------------------------------------------------------- hot keys and collisions

#[test]
fn a_key_repeated_a_million_times_answers_a_limit_at_once() {
    let left: ArrayRef = Arc::new(Int32Array::from(vec![7; 1_000_000]));
    let right: ArrayRef = Arc::new(Int32Array::from(vec![1, 7, 7, 9, 7]));
    let build = Side::new(vec![("k", left)]).in_batches_of(8192);
    let case = Case {
        fetch: Some(10),
        ..Case::new(build, Side::new(vec![("k", right)]))
    };
    let start = Instant::now();
    let run = case.run_on_device();
    assert!(
        start.elapsed() < Duration::from_secs(30),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(run.count(), 10);
    assert!(run.metric("kernel_launches") > 0);
    // One step of one probe row, not three million pairs.
    assert!(run.ratio("avg_fanout").0 <= 8192);
}

#[test]
fn a_hot_key_among_others_is_neither_lost_nor_slow() {
    let key = |row: i64| Some(if row % 10 == 0 { row } else { 5 });
    let left: Vec<Option<i64>> = (0..20_000).map(key).collect();
    let right: Vec<Option<i64>> = (0..200).map(|k| Some(k * 10 + 5 * (k % 2))).collect();
    for join_type in [JoinType::LeftSemi, JoinType::RightSemi, JoinType::LeftAnti] {
        let case = Case {
            join_type,
            ..Case::new(side("v", &left), side("w", &right))
        };
        case.check();
    }
}

#[test]
pub fn strings_whose_normalized_keys_collide_match_only_their_equals() {
    const ROWS: usize = 400_000;
    let texts = |from: usize| {
        let texts = (from..from + ROWS).map(|i| format!("{i}"));
        Side::new(vec![(
            "k",
            Arc::new(StringArray::from_iter_values(texts)) as ArrayRef,
        )])
    };
    let build = texts(0).in_batches_of(8192);
    // Half of the probe rows match; the others collide with build keys as often.
    let probe = texts(ROWS / 2).in_batches_of(8192);
    let case = Case {
        projection: Some(vec![]),
        ..Case::new(build, probe)
    };
    let run = case.run_on_device();
    assert_eq!(run.count(), ROWS / 2);
    let (normalized_keys, _) = run.ratio("load_factor");
    assert!(normalized_keys < ROWS, "no two normalized keys collide");
    assert!(
        normalized_keys > ROWS - 1000,
        "{normalized_keys} normalized keys of {ROWS} strings"
    );
}

#[test]
pub fn sliced_batches_with_offsets_join_by_their_own_rows() {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter(
        (0..100).map(|k| (k % 3 != 0).then_some(k)),
    ));
    let text = cast(&keys, &DataType::Utf8).unwrap();
    for column in [keys, text] {
        let whole = Side::new(vec![("k", column), ("v", payload(100))]);
        let mut part = whole.clone();
        part.partitions = vec![vec![whole.batch().slice(37, 21), whole.batch().slice(3, 9)]];
        for join_type in JOIN_TYPES {
            let case = Case {
                join_type,
                ..Case::new(part.clone(), whole.clone().in_batches_of(13))
            };
            case.check();
        }
    }
}
