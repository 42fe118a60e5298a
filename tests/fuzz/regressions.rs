//! Cases that once failed, under the name of what was wrong.

use datafusion::common::JoinType::*;
use datafusion::common::NullEquality::*;

use horton_join::config::TableKind;

use super::case::Mode::*;
use super::case::{Case, Column, Filter, Key, Scan, Side, Table};
use super::check;
use super::data::Kind::*;

/// A step's rows went out as one batch: all candidates and the rows without any.
#[test]
fn a_batch_is_no_larger_than_asked_for_when_a_step_adds_unmatched_rows() {
    check(&Case {
        build: Side {
            columns: vec![Column {
                kind: DictionaryUtf8,
                values: vec![Some(0)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        probe: Side {
            columns: vec![Column {
                kind: DictionaryUtf8,
                values: vec![
                    Some(0),
                    Some(0),
                    Some(0),
                    Some(0),
                    Some(0),
                    Some(1),
                    Some(0),
                    Some(0),
                ],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        on: vec![Key {
            build: 0,
            probe: 0,
            as_text: false,
        }],
        join_type: RightMark,
        mode: Collected,
        null_equality: NullEqualsNothing,
        null_aware: false,
        filter: None,
        projection: Some(vec![]),
        fetch: None,
        batch_size: 7,
        partitions: 1,
        turn_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            bucket_size: 8,
            load_factor: 0.8,
            surrogate_bits: 32,
            table_kind: TableKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: None,
    });
}

/// A probe batch without any candidate went out as it came, whatever its size.
#[test]
fn a_batch_is_no_larger_than_asked_for_when_nothing_matches() {
    check(&Case {
        build: Side {
            columns: vec![Column {
                kind: Int64,
                values: vec![],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        probe: Side {
            columns: vec![Column {
                kind: Int64,
                values: vec![Some(0), Some(0), Some(0), Some(0)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        on: vec![Key {
            build: 0,
            probe: 0,
            as_text: false,
        }],
        join_type: Full,
        mode: Collected,
        null_equality: NullEqualsNothing,
        null_aware: false,
        filter: Some(Filter::Constant(Some(false))),
        projection: Some(vec![]),
        fetch: None,
        batch_size: 3,
        partitions: 1,
        turn_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            bucket_size: 8,
            load_factor: 0.8,
            surrogate_bits: 32,
            table_kind: TableKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: None,
    });
}

/// A filter cast times to the zone of the other side, which not all of them survive.
#[test]
fn times_pass_filters_whatever_their_zone() {
    check(&Case {
        build: Side {
            columns: vec![Column {
                kind: TimestampNanoZone,
                values: vec![Some(i64::MIN)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        probe: Side {
            columns: vec![Column {
                kind: TimestampNano,
                values: vec![Some(i64::MIN)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        on: vec![Key {
            build: 0,
            probe: 0,
            as_text: false,
        }],
        join_type: Inner,
        mode: Collected,
        null_equality: NullEqualsNothing,
        null_aware: false,
        filter: None,
        projection: Some(vec![]),
        fetch: None,
        batch_size: 8192,
        partitions: 1,
        turn_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            bucket_size: 8,
            load_factor: 0.8,
            surrogate_bits: 32,
            table_kind: TableKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: Some(Scan::Memory),
    });
}

/// Rows that the device had no room for were counted by it and by the host.
#[test]
fn rows_that_are_handed_back_to_the_host_are_counted_once() {
    check(&Case {
        build: Side {
            columns: vec![Column {
                kind: Int64,
                values: vec![Some(0)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        probe: Side {
            columns: vec![Column {
                kind: Int64,
                values: vec![],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
        },
        on: vec![Key {
            build: 0,
            probe: 0,
            as_text: false,
        }],
        join_type: Inner,
        mode: Collected,
        null_equality: NullEqualsNothing,
        null_aware: false,
        filter: None,
        projection: Some(vec![]),
        fetch: None,
        batch_size: 8192,
        partitions: 1,
        turn_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            bucket_size: 8,
            load_factor: 0.8,
            surrogate_bits: 32,
            table_kind: TableKind::Horton,
            device_limit: 10_000,
            max_rows: 2147483646,
        },
        scan: None,
    });
}
