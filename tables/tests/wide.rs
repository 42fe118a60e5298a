//! Tables over keys of two and of five words, against a `HashMap`: keys that repeat, codes that
//! share the word that the table knows, by twos and by thousands; keys of one and two words in a
//! cache-line table, too. `HORTON_TEST_SMALL=1` keeps the sizes fit for oclgrind (`make oclgrind`).

use std::collections::{HashMap, HashSet};

use horton_tables::device::{KernelBody, Queue};
use horton_tables::error::Result;
use horton_tables::table::horton::TableConfig;
use horton_tables::table::multimap::multiword::{HashAndTag, Mixing, split};
use horton_tables::table::multimap::{HashIndex, IndexConfig, IndexKind};
use horton_tables::table::multimap::{KeyFormat, MultiMap, MultiMapInput};
use horton_tables_test_support::env::device;
use rand_mt::Mt64;

/// `large` rows, or few under oclgrind.
fn scaled(large: usize) -> usize {
    horton_tables_test_support::env::scaled(large, 1500)
}

fn seed() -> u32 {
    TableConfig::default().seed
}

/// The code that is split into `key` and `check`: the way back through the mix.
fn code_of(key: u32, check: u32) -> u64 {
    let unmultiply = |factor: u64| {
        // Each round doubles the number of right bits of the inverse.
        (0..6).fold(factor, |inverse, _| {
            inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)))
        })
    };
    let mut code = u64::from(check) << 32 | u64::from(key);
    for factor in [0xc4ce_b9fe_1a85_ec53, 0xff51_afd7_ed55_8ccd] {
        code ^= code >> 33;
        code = code.wrapping_mul(unmultiply(factor));
    }
    code ^= code >> 33;
    let code = code ^ seed_mask(seed());
    assert_eq!(split_two(code), (key, check));
    code
}

/// Returns what codes are XORed with.
fn seed_mask(seed: u32) -> u64 {
    u64::from(seed.rotate_left(16) ^ 0x9e37_79b9) << 32 | u64::from(seed)
}

/// The two words of a code.
fn pair(code: u64) -> [u32; 2] {
    [code as u32, (code >> 32) as u32]
}

/// The key and the check of a code of two words.
fn split_two(code: u64) -> (u32, u32) {
    split(&pair(code), seed())
}

/// The words of all codes, `each` of a code: the code's own, then others that follow from them.
fn words(codes: &[u64], each: usize) -> Vec<u32> {
    let long = |code: &u64| {
        let [low, high] = pair(*code);
        [low, high, 7, !low, low ^ high].into_iter().take(each)
    };
    codes.iter().flat_map(long).collect()
}

/// Rows to build from: codes, and row numbers if they are not the positions.
#[derive(Clone, Default)]
struct Rows {
    codes: Vec<u64>,
    numbers: Option<Vec<u32>>,
}

impl From<Vec<u64>> for Rows {
    fn from(codes: Vec<u64>) -> Self {
        Self {
            codes,
            numbers: None,
        }
    }
}

/// Builds with every body of the device, and joins with all codes twice, codes that share a key
/// with one of them, and others.
fn check(rows: impl Into<Rows>) {
    check_over(
        rows,
        &[
            (split_config(), 2),
            (codes_config(), 2),
            (split_config(), 5),
        ],
    );
}

/// The same where codes share a key by the thousand: a cache-line table, whose seed nobody knows,
/// would search all of them.
fn check_split(rows: impl Into<Rows>) {
    check_over(rows, &[(split_config(), 2), (split_config(), 5)]);
}

fn check_over(rows: impl Into<Rows>, configs: &[(IndexConfig, usize)]) {
    let (rows, device) = (rows.into(), device());
    let mut expected: HashMap<u64, Vec<u32>> = HashMap::new();
    for (i, code) in rows.codes.iter().enumerate() {
        let number = rows.numbers.as_ref().map_or(i as u32, |rows| rows[i]);
        expected.entry(*code).or_default().push(number);
    }
    let distinct: Vec<u64> = {
        let mut seen = HashSet::new();
        let codes = rows.codes.iter().copied();
        codes.filter(|code| seen.insert(*code)).collect()
    };
    let mut probes = distinct.clone();
    for code in distinct.iter().take(500) {
        let (key, check) = split_two(*code);
        probes.extend([-1, 1].map(|by| code_of(key, check.wrapping_add_signed(by))));
    }
    probes.extend([0, 1, u64::MAX, 1 << 32, unstorable()]);
    probes.extend(distinct.iter().filter(|code| expected[code].len() < 1000));
    let wanted: Vec<(u32, u32)> = probes
        .iter()
        .zip(0..)
        .flat_map(|(code, i)| {
            let rows = expected.get(code).map_or(&[][..], Vec::as_slice);
            rows.iter().map(move |row| (i, *row))
        })
        .collect();
    let unique = expected.values().all(|rows| rows.len() == 1);
    let bodies = KernelBody::ALL
        .into_iter()
        .filter(|body| device.info().supports(*body));
    for body in bodies {
        for &(config, each) in configs {
            let keys = (words(&rows.codes, each), words(&probes, each));
            let numbers = rows.numbers.clone();
            let answer = device.run_blocking(move |queue| {
                queue.use_body(body)?;
                join(queue, config, (keys, numbers, each))
            });
            let answer = answer.unwrap();
            assert!(answer.cost.launches > 0, "no kernel was launched");
            let joined = answer.value;
            let what = format!("{body}, {each} words, {config:?}");
            assert_eq!(joined.pairs.len(), wanted.len(), "{what}");
            assert!(joined.pairs == wanted, "{what}");
            assert_eq!(joined.grouped, !unique, "{what}");
            let of_codes = config == codes_config() && unique;
            assert_eq!(joined.of_codes, of_codes, "{what}");
        }
    }
}

/// Keys of several words by way of a table of 32-bit keys.
fn split_config() -> IndexConfig {
    (&TableConfig::default()).into()
}

/// Keys of one or two words as they are.
fn codes_config() -> IndexConfig {
    IndexKind::CacheLine.into()
}

/// The code that mixes to what stands for an empty slot in a cache-line table.
fn unstorable() -> u64 {
    code_of(u32::MAX, u32::MAX)
}

/// A join's result, and what kind of table it had.
struct Joined {
    pairs: Vec<(u32, u32)>,
    grouped: bool,
    of_codes: bool,
}

/// Build and probe keys.
type Sides = (Vec<u32>, Vec<u32>);

/// Joins build and probe keys of so many words each; the build rows may have numbers.
fn join(
    queue: &mut Queue,
    config: IndexConfig,
    ((build, probe), numbers, words): (Sides, Option<Vec<u32>>, usize),
) -> Result<Joined> {
    let keys = queue.buffer_from("keys", &build)?;
    let numbers = match &numbers {
        Some(numbers) => Some(queue.buffer_from("rows", numbers)?),
        None => None,
    };
    let input = MultiMapInput {
        keys: &keys,
        rows: numbers.as_ref(),
        format: match words {
            1 => KeyFormat::ANY_WORD,
            words => KeyFormat::Words(words),
        },
    };
    let table = MultiMap::build(queue, config, input)?;
    let keys = queue.buffer_from("probe keys", &probe)?;
    let pairs = table.join(queue, &keys, probe.len() / words)?;
    let probe = queue.read(&pairs.probe, pairs.probe.len())?;
    let build = queue.read(&pairs.build, pairs.build.len())?;
    Ok(Joined {
        pairs: probe.into_iter().zip(build).collect(),
        grouped: table.groups.is_some(),
        of_codes: matches!(table.index, HashIndex::CacheLine(_)) && table.runs.is_none(),
    })
}

fn random_codes(seed: u64, n: usize) -> Vec<u64> {
    let mut random = Mt64::new(seed);
    (0..n).map(|_| random.next_u64()).collect()
}

#[test]
fn the_device_splits_codes_as_the_host_does() {
    for each in [2, 3, 4, 5] {
        let codes = words(&random_codes(1, 1000), each);
        let mixing = Mixing {
            words: each,
            seed: 77,
        };
        let asked = codes.clone();
        let answer = device().run_blocking(move |queue| {
            let codes = queue.buffer_from("codes", &asked)?;
            assert!(HashAndTag::new(queue, &codes, 1001, mixing).is_err());
            let split = HashAndTag::new(queue, &codes, 1000, mixing)?;
            Ok((
                queue.read(&split.keys, 1000)?,
                queue.read(&split.checks, 1000)?,
            ))
        });
        let (keys, checks) = answer.unwrap().value;
        let found = keys.into_iter().zip(checks);
        assert!(found.eq(codes.chunks(each).map(|code| split(code, 77))));
    }
}

#[test]
fn codes_that_share_key_and_check_get_another_seed() {
    // Of four words, two may be anything: the other two then follow from the mix.
    let codes = random_codes(8, scaled(10_000));
    let mixed = |code: u64| {
        let (key, check) = split_two(code);
        u64::from(check) << 32 | u64::from(key)
    };
    // What the mix of both pairs of words comes from is `target`.
    let sharing = |code: u64, target: u64| [pair(code), pair(mixed(code) ^ target)].concat();
    let (first, second) = (sharing(codes[0], 99), sharing(codes[1], 99));
    assert_eq!(split(&first, seed()), split(&second, seed()));
    let others = codes.iter().flat_map(|code| sharing(*code, *code));
    let build: Vec<u32> = first.iter().copied().chain(others).collect();
    let both: Vec<u32> = second.iter().chain(&build).copied().collect();
    let probe = [first, second].concat();
    // One of the two in the table, then both.
    for (build, wanted) in [(build, vec![(0, 0)]), (both, vec![(0, 1), (1, 0)])] {
        let probe = probe.clone();
        let keys = (build, probe);
        let joined =
            device().run_blocking(move |queue| join(queue, split_config(), (keys, None, 4)));
        assert_eq!(joined.unwrap().value.pairs, wanted);
    }
}

#[test]
fn distinct_codes_answer_with_their_rows() {
    for n in [1, 2, 31, 32, 33, 255, 257, 4096, 4097] {
        check(random_codes(n as u64, scaled(n)));
    }
    // Enough for some to share a key by chance: 465 pairs of 2 million.
    check(random_codes(5, scaled(2_000_000)));
    // Neighbours, and numbers that differ in the high word only.
    check((0..scaled(5000) as u64).collect::<Vec<_>>());
    check(
        (0..scaled(5000) as u64)
            .map(|i| i << 32)
            .collect::<Vec<_>>(),
    );
}

#[test]
fn a_code_that_no_slot_can_hold_is_found() {
    let mut codes = random_codes(11, scaled(5000));
    codes.push(unstorable());
    check(codes);
}

#[test]
fn codes_of_one_word_are_found() {
    let n = scaled(60_000);
    let numbers = |n: usize| (0..n as u32).map(|i| i.wrapping_mul(0x9e37_79b1).rotate_left(9));
    for (distinct, n) in [(n, n), (1, 1), (64, 64), (65, 65), (n / 3, n)] {
        let build: Vec<u32> = numbers(distinct).cycle().take(n).collect();
        let probe = doubled(&build);
        let mut rows: HashMap<u32, Vec<u32>> = HashMap::new();
        for (key, row) in build.iter().zip(0..) {
            rows.entry(*key).or_default().push(row);
        }
        let wanted: Vec<(u32, u32)> = probe
            .iter()
            .zip(0..)
            .flat_map(|(key, i)| {
                let rows = rows.get(key).map_or(&[][..], Vec::as_slice);
                rows.iter().map(move |row| (i, *row))
            })
            .collect();
        let keys = ((build, probe), None, 1);
        let answer = device().run_blocking(move |queue| join(queue, codes_config(), keys));
        let answer = answer.unwrap();
        assert!(answer.cost.launches > 0, "no kernel was launched");
        assert!(answer.value.pairs == wanted, "{distinct} of {n}");
        assert!(answer.value.of_codes);
    }
}

/// The keys, and as many others of which most are none of them.
fn doubled(keys: &[u32]) -> Vec<u32> {
    let others = keys.iter().map(|key| key ^ 0x5555);
    keys.iter().copied().chain(others).collect()
}

#[test]
fn codes_that_share_a_line_go_on_in_the_next() {
    // The line is the high part of key × lines: these 600 start in one, and the last one wraps
    // around.
    for key in [0u32, 0x8000_0000, u32::MAX] {
        let codes = (0..scaled(3000) as u32 / 5).map(|i| code_of(key, i));
        check(codes.collect::<Vec<_>>());
    }
}

#[test]
fn rows_need_not_be_positions() {
    for n in [100, scaled(50_000)] {
        let codes = random_codes(9, n);
        let numbers = Some((0..n as u32).map(|row| 3 * row + 1).collect());
        check(Rows {
            codes: codes.clone(),
            numbers: numbers.clone(),
        });
        let codes = codes.iter().map(|code| code % 50).collect();
        check(Rows { codes, numbers });
    }
}

#[test]
fn codes_that_repeat_keep_their_rows_in_order() {
    for (n, distinct) in [(500, 7), (50_000, 20_000), (300_000, 100)] {
        let codes = random_codes(n as u64, scaled(n)).into_iter();
        check(codes.map(|code| code % distinct).collect::<Vec<_>>());
    }
    check(vec![42; scaled(100_000)]);
}

#[test]
fn codes_that_share_a_key_are_distinguished() {
    for sharers in [2, 3, 8, 31, 32, 33, 200] {
        let codes = |i: u64| code_of((i / sharers) as u32, (i % sharers * 7) as u32);
        let n = scaled(20_000) as u64;
        check_split((0..n).map(codes).collect::<Vec<_>>());
        // Each twice, far apart, in another order.
        let twice = (0..n).map(codes).chain((0..n).rev().map(codes));
        check_split(twice.collect::<Vec<_>>());
    }
}

#[test]
fn a_hot_code_and_a_rare_one_share_a_key() {
    let n = scaled(30_000);
    for (hot, rare) in [(5, 9), (9, 5)] {
        let mut codes = vec![code_of(1, hot); n];
        codes[n / 2] = code_of(1, rare);
        codes.extend(random_codes(3, n));
        check(codes);
    }
}

#[test]
fn a_thousand_codes_of_one_key_are_found() {
    let n = scaled(5000) as u32;
    let mut codes: Vec<u64> = (0..n)
        .map(|i| code_of(7, i.wrapping_mul(0x9e37_79b9)))
        .collect();
    check_split(codes.clone());
    codes.extend(random_codes(4, 1000));
    codes.extend_from_within(..n as usize);
    check_split(codes);
}
