//! Cases that once failed, under the name of what was wrong.

use datafusion::common::JoinType::*;
use datafusion::common::NullEquality::*;

use horton_join::table::multimap::IndexKind;

use super::case::Mode::*;
use super::case::{Case, Column, Filter, Key, Scan, Side, Table};
use super::data::Kind::*;
use super::{check, try_check, worker};

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
            tagged: false,
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
            tagged: false,
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
        sample_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        gathers: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            normalized_key_bits: 32,
            index: IndexKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: None,
        consumer: None,
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
            tagged: false,
        },
        probe: Side {
            columns: vec![Column {
                kind: Int64,
                values: vec![Some(0), Some(0), Some(0), Some(0)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
            tagged: false,
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
        sample_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        gathers: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            normalized_key_bits: 32,
            index: IndexKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: None,
        consumer: None,
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
            tagged: false,
        },
        probe: Side {
            columns: vec![Column {
                kind: TimestampNano,
                values: vec![Some(i64::MIN)],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
            tagged: false,
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
        sample_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        gathers: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            normalized_key_bits: 32,
            index: IndexKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: Some(Scan::Memory),
        consumer: None,
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
            tagged: false,
        },
        probe: Side {
            columns: vec![Column {
                kind: Int64,
                values: vec![],
            }],
            batches: vec![8192],
            sliced: false,
            sorted_by: None,
            tagged: false,
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
        sample_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        gathers: false,
        again: false,
        pool_limit: 0,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            normalized_key_bits: 32,
            index: IndexKind::Horton,
            device_limit: 10_000,
            max_rows: 2147483646,
        },
        scan: None,
        consumer: None,
    });
}

/// A join of 40 rows per side in a pool that has no room for either.
fn spilling() -> Case {
    let side = || Side {
        columns: vec![Column {
            kind: Int64,
            values: (0..40).map(Some).collect(),
        }],
        batches: vec![5],
        sliced: false,
        sorted_by: None,
        tagged: false,
    };
    Case {
        build: side(),
        probe: side(),
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
        projection: None,
        fetch: None,
        batch_size: 8192,
        partitions: 1,
        sample_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        gathers: false,
        again: false,
        pool_limit: 256,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            normalized_key_bits: 32,
            index: IndexKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: None,
        consumer: None,
    }
}

/// Checks a case that goes to disk.
fn check_spilling(case: &Case) {
    match try_check(&worker(), case) {
        Ok(report) => assert!(report.spilled && report.exhausted.is_none(), "{report:?}"),
        Err(difference) => panic!("{difference}"),
    }
}

/// Not wrong yet: streams that share spill partitions would give each other's rows.
#[test]
fn a_stream_that_keeps_its_partition_has_spill_partitions_of_its_own() {
    check_spilling(&Case {
        mode: Kept,
        partitions: 3,
        ..spilling()
    });
}

/// Rows that a limit cuts off after a spill partition was joined were counted.
#[test]
fn output_rows_of_a_join_on_disk_are_those_of_its_limit() {
    check_spilling(&Case {
        fetch: Some(3),
        ..spilling()
    });
}

/// The sort asked for more than the pool has, and panicked if it was to keep no row.
#[test]
fn a_join_on_disk_is_sorted_in_little_memory_and_may_have_no_unmatched_row() {
    for fetch in [None, Some(0), Some(3)] {
        let mut case = Case {
            fetch,
            ..spilling()
        };
        case.probe.sorted_by = Some(0);
        check_spilling(&case);
    }
}

/// Partitions of the probe side were cut into spill partitions one after the other, although they
/// wait for each other.
#[test]
fn partitions_that_wait_for_each_other_are_partitioned_at_once() {
    let column = || Column {
        kind: Int32,
        values: (0..40).map(|value| Some(value % 9)).collect(),
    };
    let side = || Side {
        columns: vec![column()],
        batches: vec![5],
        sliced: false,
        sorted_by: None,
        tagged: false,
    };
    for mode in [Collected, Kept] {
        check(&Case {
            build: side(),
            probe: side(),
            on: vec![Key {
                build: 0,
                probe: 0,
                as_text: false,
            }],
            join_type: Right,
            mode,
            null_equality: NullEqualsNothing,
            null_aware: false,
            filter: None,
            projection: None,
            fetch: None,
            batch_size: 8192,
            partitions: 4,
            sample_rows: 1 << 20,
            min_build_rows: None,
            host_splits: false,
            side_by_side: true,
            gathers: true,
            again: false,
            pool_limit: 256,
            cancel_after: None,
            strike: None,
            table: Table {
                chunk_rows: 65536,
                normalized_key_bits: 32,
                index: IndexKind::Horton,
                device_limit: 0,
                max_rows: 2147483646,
            },
            scan: None,
            consumer: None,
        });
    }
}

/// The pool refused a filter's set, and its bounds are of another precision than the scan's column.
#[test]
fn decimals_of_other_precision_pass_filters_without_a_set() {
    let side = |kind, values| Side {
        columns: vec![Column { kind, values }],
        batches: vec![8192],
        sliced: false,
        sorted_by: None,
        tagged: false,
    };
    check(&Case {
        build: side(Decimal128Wide, vec![Some(0), Some(1099511627783)]),
        probe: side(Decimal128, vec![Some(0)]),
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
        projection: None,
        fetch: None,
        batch_size: 8192,
        partitions: 1,
        sample_rows: 1 << 20,
        min_build_rows: None,
        host_splits: false,
        side_by_side: false,
        gathers: false,
        again: false,
        pool_limit: 256,
        cancel_after: None,
        strike: None,
        table: Table {
            chunk_rows: 65536,
            normalized_key_bits: 32,
            index: IndexKind::Horton,
            device_limit: 0,
            max_rows: 2147483646,
        },
        scan: Some(Scan::Memory),
        consumer: None,
    });
}
