//! Joins over a Horton table, a direct table and a cache-line table return the same rows.
//!
//! Every case is also compared with the stock join ([`Case::check`]), which sees that kernels were
//! launched.

use datafusion::common::JoinType;
use datafusion::physical_plan::joins::PartitionMode;
use horton_join::device::DeviceKind;
use horton_join::table::multimap::IndexKind;

use horton_test_support::joins::*;

const KINDS: [IndexKind; 3] = [IndexKind::Horton, IndexKind::Direct, IndexKind::CacheLine];

/// Returns whether the device can have such a table.
fn can_have(table: IndexKind) -> bool {
    table != IndexKind::CacheLine || device().info().has_int64_atomics()
}

/// Runs a case over each kind of table that the device can have: Horton's run, and the others'.
fn check_all(mut case: Case) -> (Run, Vec<Run>) {
    let run = |table| {
        set_engine(&mut case.config, table);
        let run = case.check();
        let built = kind_of(&run);
        match table {
            // Sparse keys have none.
            IndexKind::Direct => {
                assert!([table, IndexKind::Horton].contains(&built), "{case}");
            }
            table => assert_eq!(built, table, "{case}"),
        }
        run
    };
    let kinds = KINDS.into_iter().filter(|table| can_have(*table));
    let mut runs = kinds.map(run).collect::<Vec<_>>().into_iter();
    (runs.next().unwrap(), runs.collect())
}

/// The one kind of a run's tables.
fn kind_of(run: &Run) -> IndexKind {
    let built = run.tables().into_iter().filter(|(_, tables)| *tables > 0);
    match built.collect::<Vec<_>>()[..] {
        [(kind, _)] => kind,
        ref tables => panic!("{tables:?}"),
    }
}

fn same_rows(case: Case) {
    let sorted = |run: &Run| {
        let mut rows = run.rows();
        rows.iter_mut().for_each(|rows| rows.sort_unstable());
        rows
    };
    let (horton, others) = check_all(case.clone());
    let horton = sorted(&horton);
    for other in &others {
        assert_eq!(horton, sorted(other), "{case}");
    }
}

/// Rows `(key, payload)` of both sides, build keys repeating or not.
fn sides(repeating: bool, exact: bool) -> (Side, Side) {
    let column = if exact { ints } else { strings };
    let left: Vec<Option<i64>> = match repeating {
        true => repeating_keys(1, 120, 25),
        false => (0..120).map(|k| (k % 9 != 8).then_some(3 * k)).collect(),
    };
    let right = repeating_keys(2, 200, 30);
    (
        Side::new(vec![("k", column(&left)), ("v", payload(left.len()))]),
        Side::new(vec![("k", column(&right)), ("w", payload(right.len()))]),
    )
}

#[test]
fn every_join_type_gives_the_same_rows_over_every_table() {
    for join_type in JOIN_TYPES {
        for (repeating, exact, filtered) in [
            (true, true, false),
            (true, true, true),
            (true, false, false),
            (false, true, false),
            (false, true, true),
            (false, false, true),
        ] {
            let (build, probe) = sides(repeating, exact);
            let mut case = Case::new(build.in_batches_of(50), probe.in_batches_of(31));
            case.join_type = join_type;
            case.config.chunk_rows = 64;
            if filtered {
                case = case.with_filter(1, 1);
            }
            for null_equality in NULL_EQUALITIES {
                same_rows(Case {
                    null_equality,
                    ..case.clone()
                });
            }
        }
    }
}

#[test]
fn partitioned_joins_build_every_table_too() {
    for join_type in JOIN_TYPES {
        let left: Vec<Option<i64>> = (0..300).map(|k| Some(k % 100)).collect();
        let right: Vec<Option<i64>> = (0..400).map(|k| Some(k % 130)).collect();
        let build = Side::new(vec![("k", ints(&left)), ("v", payload(300))]);
        let probe = Side::new(vec![("k", ints(&right)), ("w", payload(400))]);
        same_rows(Case {
            mode: PartitionMode::Partitioned,
            join_type,
            ..Case::new(
                build.in_partitions(3, |row| row % 100),
                probe.in_partitions(3, |row| row % 130),
            )
        });
    }
}

#[test]
fn not_in_over_every_table() {
    for (build_null, probe_null) in [(false, false), (true, false), (false, true)] {
        let mut left: Vec<Option<i64>> = (0..50).map(Some).collect();
        let mut right: Vec<Option<i64>> = (20..60).map(Some).collect();
        left.extend(build_null.then_some(None));
        right.extend(probe_null.then_some(None));
        same_rows(Case {
            join_type: JoinType::LeftAnti,
            null_aware: true,
            ..Case::new(
                Side::new(vec![("k", ints(&left))]),
                Side::new(vec![("k", ints(&right))]),
            )
        });
    }
}

/// Normalized keys 0 to 2^32 - 1, the ends included: no key is reserved.
#[test]
fn normalized_keys_take_the_whole_range_of_32_bits() {
    let ends = [
        0,
        1,
        2,
        (1 << 31) - 1,
        1 << 31,
        (1 << 32) - 2,
        (1 << 32) - 1,
    ];
    let left: Vec<Option<i64>> = ends.iter().map(|k| Some(k - 1000)).collect();
    let mut right = left.clone();
    right.extend([-1, 3, 1 << 30, 1 << 33].map(|k| Some(k - 1000)));
    let twice: Vec<Option<i64>> = left.iter().chain(&left).copied().collect();
    for (keys, matches) in [(&left, 7), (&twice, 14)] {
        let build = Side::new(vec![("k", ints(keys)), ("v", payload(keys.len()))]);
        let probe = Side::new(vec![("k", ints(&right)), ("w", payload(right.len()))]);
        for join_type in JOIN_TYPES {
            let case = Case {
                join_type,
                ..Case::new(build.clone(), probe.clone())
            };
            let (horton, others) = check_all(case);
            for other in &others {
                assert_eq!(horton.count(), other.count());
            }
            if join_type == JoinType::Inner {
                assert_eq!(horton.count(), matches);
            }
        }
    }
}

/// Few bits of a hash: most candidates of a key are other keys, which only verification tells
/// apart.
#[test]
fn colliding_normalized_keys_are_verified_over_every_table() {
    for bits in [0, 3, 8] {
        for join_type in JOIN_TYPES {
            let (build, probe) = sides(true, false);
            let mut case = Case::new(build, probe.in_batches_of(64));
            case.join_type = join_type;
            case.config.knobs.normalized_key_bits = bits;
            same_rows(case);
        }
    }
}

#[test]
fn a_hot_key_s_matches_come_in_windows_over_every_table() {
    let left: Vec<Option<i64>> = (0..3000)
        .map(|k| Some(if k % 10 == 0 { k } else { 7 }))
        .collect();
    let right: Vec<Option<i64>> = (0..40).map(|k| Some(k % 20)).collect();
    for (join_type, batch_size) in [
        (JoinType::Inner, 100),
        (JoinType::Full, 333),
        (JoinType::LeftSemi, 8192),
        (JoinType::RightMark, 8192),
    ] {
        let build = Side::new(vec![("k", ints(&left)), ("v", payload(3000))]);
        let probe = Side::new(vec![("k", ints(&right)), ("w", payload(40))]);
        let mut case = Case::new(build.in_batches_of(999), probe);
        case.join_type = join_type;
        case.batch_size = batch_size;
        same_rows(case);
    }
}

/// Enough keys for many work-groups, and for insertions to be split by ranges on CPUs.
#[test]
fn large_builds_give_the_same_rows() {
    const ROWS: i64 = 300_000;
    let key = |k: i64| Some(k.wrapping_mul(7919) % 1_000_003);
    let left: Vec<Option<i64>> = (0..ROWS).map(key).collect();
    let right: Vec<Option<i64>> = (ROWS / 2..ROWS + 1000).map(key).collect();
    for repeats in [false, true] {
        let mut left = left.clone();
        if repeats {
            left.extend(&right[..1000]);
        }
        let build = Side::new(vec![("k", ints(&left)), ("v", payload(left.len()))]);
        let probe = Side::new(vec![("k", ints(&right))]);
        let case = Case::new(build.in_batches_of(8192), probe.in_batches_of(8192));
        let (horton, others) = check_all(case);
        let expected = ROWS as usize / 2 + if repeats { 1000 } else { 0 };
        for run in others.iter().chain([&horton]) {
            assert_eq!(run.count(), expected);
        }
    }
}

#[test]
fn lookups_without_buckets_report_none() {
    let (build, probe) = sides(false, true);
    let (horton, others) = check_all(Case::new(build, probe));
    assert!(horton.ratio("buckets_per_lookup").1 > 0);
    for other in others {
        assert_eq!(other.ratio("buckets_per_lookup"), (0, 0));
        assert_eq!(other.ratio("type_b_buckets"), (0, 0));
        for name in ["probe_hit_rate", "avg_fanout"] {
            assert_eq!(other.ratio(name), horton.ratio(name));
        }
    }
}

#[test]
fn keys_of_two_words_join_over_every_table() {
    let far = |key: Option<i64>| key.map(|k| (k << 40) + k % 3);
    for (repeating, join_type) in [true, false]
        .into_iter()
        .flat_map(|repeating| JOIN_TYPES.map(|join_type| (repeating, join_type)))
    {
        let left: Vec<Option<i64>> = match repeating {
            true => repeating_keys(1, 120, 25).into_iter().map(far).collect(),
            false => (0..6000).map(|k| far(Some(k))).collect(),
        };
        let right = repeating_keys(2, 300, 30).into_iter().map(far);
        let build = Side::new(vec![("k", ints(&left)), ("v", payload(left.len()))]);
        let probe = Side::new(vec![
            ("k", ints(&right.collect::<Vec<_>>())),
            ("w", payload(300)),
        ]);
        same_rows(Case {
            join_type,
            ..Case::new(build.in_batches_of(1000), probe.in_batches_of(77))
        });
    }
}

/// The kinds that options come to: direct for dense keys alone, `auto` for many on a CPU, and there
/// for sparser ones, too, as long as all possible keys are few; cache-line tables for keys that do
/// not repeat.
#[test]
fn the_table_suits_the_keys() {
    let kind = |table, rows: i64, step: i64| {
        let left: Vec<Option<i64>> = (0..rows).map(|k| Some(k * step)).collect();
        let right: Vec<Option<i64>> = (0..1000).map(|k| Some(k * step)).collect();
        let build = Side::new(vec![("k", ints(&left))]);
        let mut case = Case::new(build, Side::new(vec![("k", ints(&right))]));
        set_engine(&mut case.config, table);
        kind_of(&case.check())
    };
    use IndexKind::{Auto, CacheLine, Direct, Horton};
    assert_eq!(kind(Direct, 1000, 1), Direct);
    assert_eq!(kind(Direct, 1000, 4), Direct);
    assert_eq!(kind(Direct, 1000, 5), Horton);
    assert_eq!(kind(Direct, 1000, 1 << 40), Horton);
    let codes = if can_have(CacheLine) {
        CacheLine
    } else {
        Horton
    };
    if can_have(CacheLine) {
        assert_eq!(kind(CacheLine, 1000, 1), CacheLine);
        assert_eq!(kind(CacheLine, 1000, 1 << 40), CacheLine);
    }
    assert_eq!(kind(Auto, 200, 1), Horton);
    let on_cpu = device().info().kind == DeviceKind::Cpu;
    for (step, many) in [(1, Direct), (100, Direct), (200, codes), (1 << 40, codes)] {
        let expected = if on_cpu { many } else { Horton };
        assert_eq!(kind(Auto, 20_000, step), expected, "{step}");
    }
}
