//! No quadratic path: four times the rows take about four times as long.
//!
//! ```text
//!  join type × key type × batches × engine     time of n rows, of 4 n rows: not 16 times as much
//! ```
//!
//! Times vary, so each is the least of some runs, and a case that looks slow is measured again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, StringArray};
use arrow::datatypes::Int32Type;
use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_plan::ExecutionPlan;
use horton_join::config::Enabled;

use horton_test_support::env::small;
use horton_test_support::joins::*;

/// Rows of either side.
const ROWS: usize = 10_000;

/// The factor by which the larger case is larger.
const MORE: usize = 4;

/// The factor by which it may take longer. Quadratic time would be 16.
const SLOWER: u32 = 9;

/// What a run takes in any case.
const FIXED: Duration = Duration::from_millis(20);

/// Texts in a dictionary as large as the column, of which one value is NULL.
fn dictionary(keys: &[Option<i64>]) -> ArrayRef {
    let text = |key: &Option<i64>| key.map(|key| format!("key {key}"));
    let values: StringArray = keys.iter().map(text).chain([None]).collect();
    let places = (0..keys.len() as i32).map(|row| match keys[row as usize] {
        Some(_) => row,
        None => keys.len() as i32,
    });
    let places = Int32Array::from_iter_values(places);
    Arc::new(DictionaryArray::<Int32Type>::new(places, Arc::new(values)))
}

/// Returns a join of `rows` rows with `rows` others, of which half have a partner.
fn case(join_type: JoinType, column: ToColumn, rows: usize, batch: usize) -> Case {
    let left: Vec<Option<i64>> = (0..rows as i64)
        .map(|key| (key % 64 != 63).then_some(key))
        .collect();
    let right: Vec<Option<i64>> = (0..rows as i64).map(|key| Some(2 * key)).collect();
    let build = Side::new(vec![("k", column(&left)), ("v", payload(rows))]);
    let probe = Side::new(vec![("k", column(&right)), ("w", payload(rows))]);
    Case {
        join_type,
        batch_size: batch,
        ..Case::new(build.in_batches_of(batch), probe.in_batches_of(batch))
    }
}

fn time_of(case: &Case) -> Duration {
    let once = || {
        let plan: Arc<dyn ExecutionPlan> = case.on_device();
        let began = Instant::now();
        run(plan, case.context()).unwrap();
        began.elapsed()
    };
    once().min(once())
}

/// Checks that the time of `case` is about linear in its rows.
fn check(case: impl Fn(usize) -> Case) {
    let [small, large] = [ROWS, MORE * ROWS].map(case);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let (few, many) = (time_of(&small), time_of(&large));
        if many <= SLOWER * few + FIXED {
            return;
        }
        seen.push((few, many));
    }
    panic!("{seen:?} for {ROWS} and {MORE} times as many rows: {large}");
}

#[test]
fn time_grows_as_the_rows_do() {
    let _alone = alone();
    let (slices, whole) = (500, MORE * ROWS);
    // Not slices of a column with a dictionary: DataFusion hashes all of its values for each.
    let columns: [(ToColumn, &[usize]); 4] = [
        (dictionary, &[whole]),
        (ints, &[slices, whole]),
        (sparse_ints, &[slices, whole]),
        (strings, &[slices, whole]),
    ];
    let columns = &columns[..if small() { 1 } else { 4 }];
    for at in [Enabled::Always, Enabled::Auto] {
        for (column, batches) in columns {
            for batch in batches.iter().copied() {
                for join_type in JOIN_TYPES {
                    check(|rows| {
                        let mut case = case(join_type, *column, rows, batch);
                        case.config.enabled = at;
                        case
                    });
                }
                check(|rows| {
                    let mut case = case(JoinType::LeftAnti, *column, rows, batch);
                    case.null_aware = true;
                    case.null_equality = NullEquality::NullEqualsNothing;
                    case.config.enabled = at;
                    case
                });
            }
        }
    }
}
