//! What joins are made of on the device: tables of keys that repeat, direct tables, and columns
//! gathered by row.
//!
//! ```text
//!  keys, rows ─▶ MultiMap: groups of equal keys ─▶ pairs, counts, bits ─▶ a HashMap's
//! ```

use std::collections::HashMap;

use horton_tables::device::{Buffer, Cost, Device, KernelBody, Queue};
use horton_tables::error::Result;
use horton_tables::table::horton::{BucketSize, Built, Items, MISS, TableConfig, build};
use horton_tables::table::multimap::direct::DirectTable;
use horton_tables::table::multimap::pairs::{Matches, Pairs};
use horton_tables::table::multimap::{KeyFormat, MultiMap, MultiMapInput};
use horton_tables::table::primitives::hash;
use horton_tables::table::primitives::rows::{
    gather_bits_to, gather_rows, gather_rows_to, set_bits,
};
use horton_tables_test_support::env::device;
use horton_tables_test_support::tables::{bodies, distinct_keys, run};
use rand_mt::Mt;

use super::table::{config, scaled};

/// Keys that repeat, built and joined with `body` by the device, against a `HashMap`.
fn check_join(device: &Device, body: KernelBody, input: &Input) -> Cost {
    let mut expected: HashMap<u32, Vec<u32>> = HashMap::new();
    for (i, key) in input.keys.iter().enumerate() {
        let row = input.rows.as_ref().map_or(i as u32, |rows| rows[i]);
        expected.entry(*key).or_default().push(row);
    }
    // Hot keys are asked for once, others up to twice, far apart; some keys are absent.
    let mut probes: Vec<u32> = expected.keys().copied().collect();
    probes.extend(distinct_keys(77, 100).iter().map(|k| k | 1 << 31));
    let again: Vec<u32> = expected
        .iter()
        .filter(|(_, rows)| rows.len() < 1000)
        .map(|(key, _)| *key)
        .collect();
    probes.extend(again);
    let wanted: Vec<(u32, u32)> = probes
        .iter()
        .zip(0..)
        .flat_map(|(key, i)| {
            let rows = expected.get(key).map_or(&[][..], Vec::as_slice);
            rows.iter().map(move |row| (i, *row))
        })
        .collect();
    let (input, total) = (input.clone(), wanted.len());
    let answer = run(device, move |queue| {
        queue.use_body(body)?;
        let keys = queue.buffer_from("keys", &input.keys)?;
        let rows = match &input.rows {
            Some(rows) => Some(queue.buffer_from("rows", rows)?),
            None => None,
        };
        let keys = MultiMapInput {
            keys: &keys,
            rows: rows.as_ref(),
            format: KeyFormat::OneWord {
                codes: 1 << input.bits,
            },
        };
        let table = MultiMap::build(queue, &TableConfig::default(), keys)?;
        let probe_keys = queue.buffer_from("probe keys", &probes)?;
        let pairs = table.join(queue, &probe_keys, probes.len())?;
        let (probe, build) = (
            queue.read(&pairs.probe, pairs.probe.len())?,
            queue.read(&pairs.build, pairs.build.len())?,
        );
        check_windows(queue, &table, (&probe_keys, probes.len()), (&probe, &build))?;
        Ok((probe, build, table.groups.is_some()))
    });
    let (probe, build, grouped) = answer.value;
    assert_eq!(probe.len(), total, "{body}");
    let found = probe.into_iter().zip(build);
    assert!(found.eq(wanted), "{body}");
    assert_eq!(grouped, expected.values().any(|rows| rows.len() > 1));
    answer.cost
}

/// One bit per row, the number of rows with a pair, and whether every row has just one.
fn check_bits(queue: &mut Queue, matches: &Matches, (n, probe): (usize, &[u32])) -> Result<()> {
    let mut wanted = vec![0u32; n.div_ceil(32)];
    for row in probe {
        wanted[*row as usize / 32] |= 1 << (row % 32);
    }
    let bits = matches.bits(queue)?;
    assert_eq!(queue.read(&bits, bits.len())?, wanted);
    let matched: u32 = wanted.iter().map(|word| word.count_ones()).sum();
    assert_eq!(matches.matched(), u64::from(matched));
    assert_eq!(
        matches.one_each(),
        matched as usize == n && probe.len() == n
    );
    Ok(())
}

/// The same pairs come a window at a time.
fn check_windows(
    queue: &mut Queue,
    table: &MultiMap,
    (keys, n): (&Buffer<u32>, usize),
    (probe, build): (&[u32], &[u32]),
) -> Result<()> {
    let matches = table.lookup(queue, keys, n)?;
    assert_eq!(matches.total(), probe.len() as u64);
    check_bits(queue, &matches, (n, probe))?;
    let window = Pairs::with_room(queue, probe.len() / 3 + 1)?;
    let mut first = 0;
    loop {
        let written = matches.write(queue, first as u64, &window)?;
        if written == 0 {
            break;
        }
        let part = first..first + written;
        assert_eq!(queue.read(&window.probe, written)?, probe[part.clone()]);
        assert_eq!(queue.read(&window.build, written)?, build[part]);
        first += written;
    }
    assert_eq!(first, probe.len());
    Ok(())
}

#[derive(Clone)]
struct Input {
    keys: Vec<u32>,
    rows: Option<Vec<u32>>,
    bits: u32,
}

fn check_groups(device: &Device, keys: Vec<u32>, rows: Option<Vec<u32>>, bits: u32) {
    let input = Input { keys, rows, bits };
    for body in bodies(device) {
        check_join(device, body, &input);
    }
}

#[test]
fn repeating_keys_group_their_rows_in_order() {
    let device = device();
    let n = scaled(30_000);
    let mut random = Mt::new(6);
    for distinct in [1, 2, 10, 1000, n] {
        let keys: Vec<u32> = (0..n)
            .map(|_| random.next_u32() % distinct as u32)
            .collect();
        let bits = 32 - (distinct as u32).leading_zeros();
        check_groups(&device, keys, None, bits);
    }
    let keys: Vec<u32> = (0..n)
        .map(|_| hash::jenkins(random.next_u32() % 50))
        .collect();
    let rows = (0..n as u32).map(|i| 3 * i).collect();
    check_groups(&device, keys, Some(rows), 32);
}

#[test]
fn unique_keys_skip_the_groups() {
    let device = device();
    check_groups(&device, distinct_keys(8, scaled(5000)), None, 32);
    check_groups(&device, Vec::new(), None, 32);
}

#[test]
fn one_pair_of_equal_keys_is_found_wherever_it_stands() {
    let device = device();
    let n = scaled(4000);
    for (first, second) in [(0, 1), (0, n - 1), (n / 2, n - 1)] {
        let mut keys = distinct_keys(9, n);
        keys[second] = keys[first];
        let config = config(BucketSize::Eight, 0.95);
        let build_keys = keys.clone();
        let repeats = run(&device, move |queue| {
            let keys = queue.buffer_from("keys", &build_keys)?;
            let items = Items {
                keys: &keys,
                values: None,
            };
            Ok(matches!(
                build::build(queue, &config, items)?,
                Built::Repeats
            ))
        });
        assert!(repeats.value, "rows {first} and {second}");
        check_groups(&device, keys, None, 32);
    }
}

#[test]
fn a_key_repeated_ten_million_times_builds_in_linear_time() {
    let device = device();
    let time = |n: usize| {
        let mut keys = vec![42u32; n];
        keys[n / 2] = 7;
        keys[0] = u32::MAX;
        let input = Input {
            keys,
            rows: None,
            bits: 32,
        };
        let started = std::time::Instant::now();
        check_join(&device, device.info().body(), &input);
        started.elapsed()
    };
    let (few, many) = (scaled(1_000_000), scaled(10_000_000));
    time(few); // compiles the kernels
    let (short, long) = (time(few), time(many));
    // Ten times the rows: a quadratic step would cost a hundred times as much.
    assert!(long < short * 40, "{few}: {short:?}, {many}: {long:?}");
}

/// `n` distinct keys in random order, then each of `hot` in the place of so many of them.
fn keys_with_hot(seed: u32, n: usize, hot: &[(u32, usize)]) -> Vec<u32> {
    let mut keys = distinct_keys(seed, n);
    let mut random = Mt::new(seed);
    let mut places: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        places.swap(i, random.next_u32() as usize % (i + 1));
    }
    let hot = hot
        .iter()
        .flat_map(|(key, rows)| std::iter::repeat_n(*key, *rows));
    for (key, place) in hot.zip(places) {
        keys[place] = key;
    }
    keys
}

#[test]
fn a_hot_key_of_any_share_keeps_its_rows_in_order() {
    let device = device();
    let (large, small) = (scaled(480_000), scaled(50_000));
    for (n, share) in [
        (large, 0.0001),
        (large, 0.01),
        (large, 1.0),
        (small, 0.001),
        (small, 0.004),
        (small, 0.3),
        (small, 0.7),
    ] {
        let rows = ((n as f64 * share) as usize).max(2);
        let keys = keys_with_hot(20, n, &[(u32::MAX, rows)]);
        check_groups(&device, keys, None, 32);
    }
}

#[test]
fn hot_keys_are_grouped_beside_others_that_repeat() {
    let device = device();
    let n = scaled(100_000);
    // Half of the rows, a fifth, … and nothing is unique.
    let neighbours = distinct_keys(25, 6);
    let hot: Vec<(u32, usize)> = neighbours
        .iter()
        .copied()
        .zip([n / 2, n / 5, n / 100, 150, 3, 1])
        .collect();
    let mut keys = keys_with_hot(21, n, &hot);
    let others: Vec<u32> = (0..n).map(|i| keys[i % (n / 4)]).collect();
    for (key, other) in keys.iter_mut().zip(others) {
        if !neighbours.contains(key) {
            *key = other;
        }
    }
    check_groups(&device, keys.clone(), None, 32);
    let rows = (0..n as u32).map(|i| 3 * i + 1).collect();
    check_groups(&device, keys, Some(rows), 32);
}

#[test]
fn a_hot_key_keeps_rows_that_are_no_positions() {
    let device = device();
    let n = scaled(50_000);
    for share in [0.0001, 0.004, 0.6, 1.0] {
        let keys = keys_with_hot(22, n, &[(0, ((n as f64 * share) as usize).max(2))]);
        let rows = (0..n as u32).map(|i| 5 * i + 3).collect();
        check_groups(&device, keys, Some(rows), 32);
    }
}

#[test]
fn more_hot_keys_than_digits_are_sorted() {
    let device = device();
    let n = scaled(300_000);
    let keys = distinct_keys(24, 300);
    let mut random = Mt::new(24);
    let keys = (0..n)
        .map(|_| keys[random.next_u32() as usize % keys.len()])
        .collect();
    check_groups(&device, keys, None, 32);
}

#[test]
fn a_key_that_all_rows_have_is_grouped_at_any_size() {
    let device = device();
    for n in [2, 3, 16, 31, 63, 511, 512, 513, 1023, 1024, 1025] {
        check_groups(&device, vec![0x8000_0000; n], None, 32);
        let rows = (7..7 + n as u32).collect();
        check_groups(&device, vec![1; n], Some(rows), 1);
    }
}

#[test]
fn rows_set_their_bits_and_gather_columns_of_any_width() {
    let device = device();
    let n = scaled(5_000);
    let mut random = Mt::new(11);
    let rows: Vec<u32> = (0..n).map(|_| random.next_u32() % 777).collect();
    let numbers: Vec<u32> = (0..n)
        .map(|i| if i % 3 == 0 { MISS } else { rows[i] })
        .collect();
    let mut wanted = vec![0u32; 777usize.div_ceil(32)];
    for number in numbers.iter().filter(|number| **number != MISS) {
        wanted[*number as usize / 32] |= 1 << (number % 32);
    }
    let column: Vec<u32> = (0..777 * 8).map(|_| random.next_u32()).collect();
    let answer = run(&device, move |queue| {
        let bits = queue.allocate("bits", wanted.len())?;
        queue.fill(&bits, 0)?;
        let numbers = queue.buffer_from("numbers", &numbers)?;
        set_bits(queue, &numbers, n, &bits)?;
        assert_eq!(queue.read(&bits, wanted.len())?, wanted);
        let device_rows = queue.buffer_from("rows", &rows)?;
        let device_column = queue.buffer_from("column", &column)?;
        for log_words in [0, 1, 2, 3] {
            let out = gather_rows(queue, (&device_column, log_words), &device_rows, n)?;
            let words = 1 << log_words;
            let wanted: Vec<u32> = rows
                .iter()
                .flat_map(|row| &column[*row as usize * words..][..words])
                .copied()
                .collect();
            assert_eq!(queue.read(&out, out.len())?, wanted);
            let all = queue.buffer_from("all", &vec![7; 3 * words + wanted.len()])?;
            let from = (&device_column, log_words);
            gather_rows_to(queue, from, (&device_rows, n), (&all, 2 * words))?;
            let all = queue.read(&all, all.len())?;
            assert_eq!(all[2 * words..][..wanted.len()], wanted);
            let around = [&all[..2 * words], &all[2 * words + wanted.len()..]].concat();
            assert_eq!(around, vec![7; 3 * words]);
        }
        let words = column[..777usize.div_ceil(32)].to_vec();
        let device_bits = queue.buffer_from("bits", &words)?;
        for n in [0, 1, 31, 32, 33, n] {
            let mut wanted = vec![0u32; n.div_ceil(32)];
            for (i, row) in rows[..n].iter().enumerate() {
                wanted[i / 32] |= (words[*row as usize / 32] >> (row % 32) & 1) << (i % 32);
            }
            let out = queue.buffer_from("all", &vec![7; 4 + wanted.len()])?;
            gather_bits_to(queue, &device_bits, (&device_rows, n), (&out, 3))?;
            let wanted = [&[7; 3], wanted.as_slice(), &[7]].concat();
            assert_eq!(queue.read(&out, out.len())?, wanted);
        }
        let out = queue.allocate("all", 4 * n)?;
        let bits_at = |queue: &mut Queue, n: usize, at: usize| {
            gather_bits_to(queue, &device_bits, (&device_rows, n), (&out, at))
        };
        assert!(bits_at(queue, n + 1, 0).is_err());
        assert!(bits_at(queue, n, 4 * n - n / 32).is_err());
        let rows_at = |queue: &mut Queue, log_words: u32, at: usize| {
            let column = (&device_column, log_words);
            gather_rows_to(queue, column, (&device_rows, n), (&out, at))
        };
        rows_at(queue, 1, 2 * n)?;
        assert!(rows_at(queue, 1, 2 * n + 2).is_err(), "no room");
        assert!(rows_at(queue, 1, 1).is_err(), "in the middle of an element");
        assert!(gather_rows(queue, (&device_column, 0), &device_rows, n + 1).is_err());
        assert!(gather_rows(queue, (&device_column, 4), &device_rows, n).is_err());
        Ok(())
    });
    assert!(answer.cost.launches >= 4);
}

#[test]
fn direct_tables_hold_distinct_keys_below_their_entries() {
    let device = device();
    let n = scaled(100_000) as u32;
    for body in bodies(&device) {
        let answer = run(&device, move |queue| {
            queue.use_body(body)?;
            let keys: Vec<u32> = (0..n).map(|i| 3 * ((i * 7) % n)).collect();
            let rows: Vec<u32> = (0..n).map(|i| i + 9).collect();
            let build = |queue: &mut Queue, keys: &[u32], entries: usize| {
                let items = Items {
                    keys: &queue.buffer_from("keys", keys)?,
                    values: Some(&queue.buffer_from("rows", &rows[..keys.len()])?),
                };
                DirectTable::build(queue, entries, items)
            };
            let entries = 3 * n as usize;
            let table = build(queue, &keys, entries)?.expect("distinct keys");
            assert_eq!((table.len(), table.entries()), (n as usize, entries));
            // Every key, the numbers between, and some beyond.
            let probes: Vec<u32> = (0..entries as u32 + 1000).chain([u32::MAX]).collect();
            let asked = queue.buffer_from("probes", &probes)?;
            let values = queue.allocate("values", probes.len())?;
            table.lookup(queue, &asked, &values, probes.len())?;
            let found = queue.read(&values, probes.len())?;
            let row_of: HashMap<u32, u32> = keys.iter().copied().zip(9..).collect();
            for (probe, found) in probes.iter().zip(found) {
                assert_eq!(found, row_of.get(probe).copied().unwrap_or(MISS), "{probe}");
            }
            assert!(build(queue, &[5, 8, 5], 10)?.is_none());
            let error = build(queue, &[5, 10], 10).unwrap_err().to_string();
            assert!(error.contains("10 slots"), "{error}");
            assert!(
                table
                    .lookup(queue, &asked, &values, probes.len() + 1)
                    .is_err()
            );
            Ok(())
        });
        assert!(answer.cost.launches > 0);
    }
}
