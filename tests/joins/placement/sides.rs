//! Without filters the side that ends first is built, on the device from so many rows on.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RunArray};
use arrow::datatypes::{Field, Int32Type, Schema};
use datafusion::common::JoinType;
use horton_join::HostReason;
use horton_join::config::Enabled;

use super::plans::*;
use horton_test_support::joins::*;

/// Rows of the left side, of the right one, and the side that ends first.
const SIZES: [(usize, usize, Which); 3] = [(40, 200, Left), (200, 40, Right), (40, 40, Left)];

/// No projection, all columns backwards and one of them again, none.
fn projections(case: &Case) -> [Option<Vec<usize>>; 3] {
    let columns = case.stock().join_schema().fields().len();
    let some = (0..columns).rev().chain([columns - 1]).collect();
    [None, Some(some), Some(Vec::new())]
}

fn every_join_is_right(at: At) {
    for join_type in JOIN_TYPES {
        for (left, right, build) in SIZES {
            for null_equality in NULL_EQUALITIES {
                for filtered in [false, true] {
                    let mut case = open(side(1, left), side(2, right), at);
                    case.join_type = join_type;
                    case.null_equality = null_equality;
                    if filtered {
                        case = case.with_filter(1, 1);
                    }
                    for projection in projections(&case) {
                        case.projection = projection;
                        check(&case, (build, 40), at);
                    }
                }
            }
        }
    }
}

#[test]
fn either_side_of_every_join_type_is_built_on_the_device() {
    every_join_is_right(At::Device);
}

#[test]
fn either_side_of_every_join_type_is_built_on_the_host() {
    every_join_is_right(At::Host);
}

#[test]
fn the_first_to_end_within_a_read_is_built_whatever_its_batches() {
    // Reads end at 16, 32, 64, … rows; one of exactly so many rows has not seen the end.
    let cases = [
        ((0, 0), Left),
        ((0, 1000), Left),
        ((15, 0), Left),
        ((15, 14), Left),
        ((16, 0), Right),
        ((16, 15), Right),
        ((16, 16), Left),
        ((17, 15), Right),
        ((31, 16), Left),
        ((32, 16), Right),
        ((32, 31), Right),
        ((32, 32), Left),
        ((63, 33), Left),
        ((64, 63), Right),
        ((1000, 0), Right),
        ((1000, 511), Right),
        ((1000, 512), Left),
    ];
    for ((left, right), build) in cases {
        for batch in [1, 5, 16, 2000] {
            for parts in [1, 3] {
                let cut = |seed, rows| {
                    let side = side(seed, rows).in_partitions(parts, |row| row / 2);
                    side.in_batches_of(batch)
                };
                let case = open(cut(3, left), cut(4, right), At::Host);
                let rows = if build == Left { left } else { right };
                check(&case, (build, rows), At::Host);
            }
        }
    }
}

#[test]
fn the_device_is_asked_from_min_build_rows_on() {
    let few = |min_build_rows| Some(HostReason::FewRows { min_build_rows });
    for (left, right, build) in SIZES {
        for (min_build_rows, reason) in [(39, None), (40, None), (41, few(41)), (200, few(200))] {
            let mut case = open(side(5, left), side(6, right), At::Device);
            case.config.min_build_rows = min_build_rows;
            side_by_side();
            let found = outcome(&case.on_device(), case.context()).unwrap();
            assert_eq!(found.rows, expected(&case));
            let decision = only(&found.decisions);
            assert_eq!((decision.build, decision.rows), (build, 40));
            assert_eq!(host_reason(decision), reason.as_ref(), "{min_build_rows}");
            assert_eq!(found.launches > 0, reason.is_none(), "{min_build_rows}");
        }
    }
}

#[test]
fn always_asks_the_device_whatever_the_rows() {
    for (left, right, build) in SIZES {
        let mut case = open(side(7, left), side(8, right), At::Device);
        case.config.enabled = Enabled::Always;
        case.config.min_build_rows = usize::MAX;
        check(&case, (build, 40), At::Device);
    }
}

#[test]
fn sides_without_rows_are_built_and_join_as_they_should() {
    for join_type in JOIN_TYPES {
        for (left, right, build) in [(0, 0, Left), (0, 40, Left), (40, 0, Right)] {
            let mut case = open(side(9, left), side(10, right), At::Host);
            case.join_type = join_type;
            check(&case, (build, 0), At::Host);
            case.config.enabled = Enabled::Always;
            let found = outcome(&case.on_device(), case.context()).unwrap();
            assert_eq!(found.rows, expected(&case), "{case}");
            assert!(host_reason(only(&found.decisions)).is_none(), "{case}");
        }
    }
}

/// The same rows under a schema whose columns are not nullable, which says `text`.
fn saying(side: Side, text: &str) -> Side {
    let fields: Vec<Field> = side
        .schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(false))
        .collect();
    let says = HashMap::from([("says".to_owned(), text.to_owned())]);
    let schema = Arc::new(Schema::new(fields).with_metadata(says));
    let again = |batch: RecordBatch| {
        RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).unwrap()
    };
    let partitions = side.partitions.into_iter();
    Side {
        partitions: partitions
            .map(|batches| batches.into_iter().map(again).collect())
            .collect(),
        schema,
        sorted_by: None,
    }
}

#[test]
fn what_schemas_say_is_as_planned_whichever_side_is_built() {
    let numbers = |rows: i64| {
        let keys: Vec<Option<i64>> = (0..rows).map(|row| Some(row % 50)).collect();
        Side::new(vec![("k", ints(&keys)), ("v", ints(&keys))]).in_batches_of(7)
    };
    for at in [At::Device, At::Host] {
        for join_type in JOIN_TYPES {
            for (left, right, build) in SIZES {
                let left = saying(numbers(left as i64), "left");
                let right = saying(numbers(right as i64), "right");
                let mut case = open(left, right, at);
                case.join_type = join_type;
                check(&case, (build, 40), at);
            }
        }
    }
}

#[test]
fn keys_that_are_expressions_are_those_of_either_side() {
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, lit};
    let plus = |side: &Side, n: i64| {
        Arc::new(BinaryExpr::new(side.column(0), Operator::Plus, lit(n))) as Arc<_>
    };
    for at in [At::Device, At::Host] {
        for (left, right, build) in SIZES {
            for join_type in [JoinType::Inner, JoinType::Left, JoinType::RightAnti] {
                let mut case = open(side(11, left), side(12, right), at);
                case.join_type = join_type;
                case.on = vec![
                    (plus(&case.build, 1), plus(&case.probe, 3)),
                    (case.build.column(0), plus(&case.probe, 2)),
                ];
                check(&case, (build, 40), at);
            }
        }
    }
}

/// Runs of equal keys: no device compares them.
fn runs(rows: usize) -> ArrayRef {
    let keys = (0..rows).map(|row| (row / 3) as i32);
    let keys: RunArray<Int32Type> = keys
        .map(|key| format!("key {key}"))
        .collect::<Vec<_>>()
        .iter()
        .map(String::as_str)
        .collect();
    Arc::new(keys)
}

#[test]
fn keys_that_no_device_compares_are_joined_on_the_host_whichever_side_is_built() {
    for (left, right, build) in SIZES {
        let side = |rows| Side::new(vec![("k", runs(rows)), ("v", payload(rows))]);
        let mut case = open(side(left), side(right), At::Device);
        for enabled in [Enabled::Auto, Enabled::Always] {
            case.config.enabled = enabled;
            let found = outcome(&case.on_device(), case.context()).unwrap();
            assert_eq!(found.rows, expected(&case));
            let decision = only(&found.decisions);
            assert_eq!((decision.build, decision.rows), (build, 40));
            let reason = host_reason(decision).unwrap();
            assert!(reason.to_string().starts_with("key type: "), "{reason}");
            assert_eq!(found.launches, 0);
        }
    }
}
