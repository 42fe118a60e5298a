//! The cases of a self-test: each kernel family that a join may use, on a few thousand keys,
//! against a hash map.
//!
//! ```text
//!  build keys ─▶ MultiMap ─▶ lookup ─▶ counts · bits · pairs by windows · visited rows · columns
//!      └──────▶ HashMap: key ─▶ rows ────────────────── compared with ──────────────────────┘
//! ```
//!
//! | case | kernels |
//! |---|---|
//! | distinct keys | split, fill_range, place, census, lookup, pairs, scan, rows |
//! | each way to look up | lookup kernels of the tunings, with one and with several keys per work-item |
//! | a full table | displacement, where there are 64-bit atomics |
//! | repeating keys; a hot key | the sort, groups |
//! | keys of two and four words | mix, split_codes, runs; the sort where they repeat |
//! | dense keys, codes | direct tables; cache-line tables on CPUs |

use std::collections::HashMap;

use crate::device::{Buffer, KernelBody, Queue};
use crate::error::{Error, Result};
use crate::table::horton::tuning::{Kind, Residence, Tuning, Workload};
use crate::table::horton::{BucketSize, MISS, NarrowAnswers, TableConfig};
use crate::table::multimap::cacheline::CacheLineTable;
use crate::table::multimap::pairs::{Matches, Pairs};
use crate::table::multimap::{HashIndex, IndexConfig, IndexKind};
use crate::table::multimap::{KeyFormat, MultiMap, MultiMapInput};
use crate::table::primitives::hash::jenkins;
use crate::table::primitives::rows::{gather_bits_to, gather_rows_to, set_bits};

/// Distinct keys of most cases.
const KEYS: u32 = 4096;

/// The word of a buffer from which gathered values are written.
const GATHERED_AT: usize = 8;

/// A load of buckets of eight slots that leaves a few of some thousand items without a slot at
/// first. Displacement reaches it in any order of work-items.
const FULL: f64 = 0.95;

/// The most by which the load may be lower: less than by a table that grows.
const SPARE: f64 = 0.015;

/// Work-items per compute unit from which on lookups take several keys each.
const WORK_ITEMS: usize = 2048;

/// Keys looked up at most.
const MOST_PROBES: usize = 1 << 20;

/// A build side and the keys that probe it, each so many words, low word first.
struct Case {
    name: &'static str,
    config: IndexConfig,
    format: KeyFormat,
    build: Vec<u32>,
    probe: Vec<u32>,
}

/// Runs all cases, with lanes talking by `body`.
///
/// # Errors
/// [`Error::SelfTest`] with the first that is wrong; the device's own.
pub(super) fn all(queue: &mut Queue, body: KernelBody) -> Result<()> {
    queue.use_body(body)?;
    let distinct = one_word("distinct keys", IndexKind::Horton, keys(KEYS));
    distinct.check(queue)?;
    distinct.check_lookups(queue)?;
    if queue.info().has_int64_atomics() {
        full_table(queue)?;
    }
    let repeating = (0..4 * KEYS).map(|row| jenkins(row % KEYS)).collect();
    one_word("repeating keys", IndexKind::Horton, repeating).check(queue)?;
    one_word("a hot key", IndexKind::Horton, hot_key()).check(queue)?;
    wide("keys of two words", 2, 1).check(queue)?;
    wide("repeating keys of two words", 2, 3).check(queue)?;
    wide("keys of four words", 4, 2).check(queue)?;
    dense().check(queue)?;
    if CacheLineTable::suits(queue) {
        codes(queue)?;
    }
    Ok(())
}

/// Tests displacement: more items than buckets take at first.
fn full_table(queue: &mut Queue) -> Result<()> {
    let config = TableConfig {
        load_factor: FULL,
        ..TableConfig::default()
    };
    let full = one_word("a full table", &config, keys(4 * KEYS));
    full.check(queue)?;
    full.check_load(queue, FULL)
}

/// Returns a case whose keys are every other number.
fn dense() -> Case {
    let keys = (0..KEYS).rev().map(|key| 2 * key).collect();
    Case {
        format: KeyFormat::OneWord {
            codes: 2 * u64::from(KEYS),
        },
        ..one_word("dense keys", IndexKind::Direct, keys)
    }
}

/// Tests cache-line tables.
fn codes(queue: &mut Queue) -> Result<()> {
    one_word("codes", IndexKind::CacheLine, keys(KEYS)).check(queue)?;
    Case {
        config: IndexKind::CacheLine.into(),
        ..wide("codes of two words", 2, 1)
    }
    .check(queue)
}

/// Returns distinct keys, the smallest and the largest among them.
fn keys(n: u32) -> Vec<u32> {
    let random = (0..n)
        .map(jenkins)
        .filter(|key| !matches!(key, 0 | &u32::MAX));
    [0, u32::MAX].into_iter().chain(random).collect()
}

/// Returns keys, a quarter of which are equal; no other is there twice.
fn hot_key() -> Vec<u32> {
    let key = |row: u32| match row % 4 {
        0 => 7,
        _ => jenkins(row),
    };
    (0..KEYS).map(key).collect()
}

/// Returns a case of keys of one word, probed by each of them once and by as many others, mixed.
fn one_word(name: &'static str, config: impl Into<IndexConfig>, build: Vec<u32>) -> Case {
    let mut probe = build.clone();
    probe.sort_unstable();
    probe.dedup();
    let probe = probe.into_iter().rev().enumerate();
    Case {
        name,
        config: config.into(),
        format: KeyFormat::ANY_WORD,
        probe: probe
            .flat_map(|(i, key)| [jenkins(!(i as u32)), key])
            .collect(),
        build,
    }
}

/// Returns a case of keys of several words, each there so many times. Some differ in one word only.
fn wide(name: &'static str, words: usize, times: u32) -> Case {
    let key = |number: u32| {
        (0..words as u32).map(move |word| match word {
            0 => jenkins(number / 2),
            1 => number % 2,
            other => other,
        })
    };
    let distinct = KEYS / 2;
    let rows = (0..distinct * times).map(|row| row % distinct);
    Case {
        name,
        config: IndexKind::Horton.into(),
        format: KeyFormat::Words(words),
        build: rows.flat_map(key).collect(),
        probe: (0..2 * distinct).rev().flat_map(key).collect(),
    }
}

impl Case {
    /// Checks that none of so many answers is `wrong`.
    fn right(&self, queue: &Queue, what: &str, wrong: usize, of: usize) -> Result<()> {
        match wrong {
            0 => Ok(()),
            _ => Err(Error::SelfTest {
                device: queue.info().label(),
                reason: format!("{}: {wrong} of {of} {what} are wrong", self.name),
            }),
        }
    }

    fn build(&self, queue: &mut Queue) -> Result<MultiMap> {
        let keys = queue.buffer_from("self-test build keys", &self.build)?;
        let keys = MultiMapInput {
            keys: &keys,
            rows: None,
            format: self.format,
        };
        MultiMap::build(queue, self.config, keys)
    }

    /// Checks what a join gets.
    fn check(&self, queue: &mut Queue) -> Result<()> {
        let words = self.format.words();
        let model = self.model();
        let none = Vec::new();
        let probe = self.probe.chunks_exact(words);
        let rows: Vec<&Vec<u32>> = probe.map(|key| model.get(key).unwrap_or(&none)).collect();

        let table = self.build(queue)?;
        let probe = queue.buffer_from("self-test probe keys", &self.probe)?;
        let matches = table.lookup(queue, &probe, rows.len())?;
        let pairs: usize = rows.iter().map(|rows| rows.len()).sum();
        let matched = rows.iter().filter(|rows| !rows.is_empty()).count();
        let counts = [matches.total(), matches.matched()];
        let wrong = differences(&counts, &[pairs as u64, matched as u64]);
        self.right(queue, "counts", wrong, counts.len())?;

        let bits = matches.bits(queue)?;
        let bits = queue.read(&bits, rows.len().div_ceil(32))?;
        let is_wrong = |(i, rows): &(usize, &&Vec<u32>)| is_set(&bits, *i) == rows.is_empty();
        let wrong = rows.iter().enumerate().filter(is_wrong).count();
        self.right(queue, "match bits", wrong, rows.len())?;

        let expected = rows.iter().enumerate();
        let expected = expected.flat_map(|(i, rows)| rows.iter().map(move |row| (i as u32, *row)));
        let (probe_rows, build_rows): (Vec<u32>, Vec<u32>) = expected.unzip();
        let found = pairs_of(queue, &matches, pairs)?;
        let wrong = differences(&queue.read(&found.probe, pairs)?, &probe_rows)
            + differences(&queue.read(&found.build, pairs)?, &build_rows);
        self.right(queue, "pairs", wrong, pairs)?;
        self.check_rows(queue, &found.build, &build_rows)
    }

    /// Returns the rows of each key.
    fn model(&self) -> HashMap<&[u32], Vec<u32>> {
        let mut model: HashMap<&[u32], Vec<u32>> = HashMap::new();
        let keys = self.build.chunks_exact(self.format.words());
        for (row, key) in keys.enumerate() {
            model.entry(key).or_default().push(row as u32);
        }
        model
    }

    /// Checks which build rows were matched, and columns gathered by them.
    fn check_rows(&self, queue: &mut Queue, rows: &Buffer<u32>, expected: &[u32]) -> Result<()> {
        let (n, all) = (expected.len(), self.build.len() / self.format.words());
        let visited = queue.buffer_from("self-test visited rows", &vec![0; all.div_ceil(32)])?;
        set_bits(queue, rows, n, &visited)?;
        let visited = queue.read(&visited, all.div_ceil(32))?;
        let mut met = vec![false; all];
        expected.iter().for_each(|row| met[*row as usize] = true);
        let is_wrong = |(row, met): &(usize, &bool)| is_set(&visited, *row) != **met;
        let wrong = met.iter().enumerate().filter(is_wrong).count();
        self.right(queue, "visited rows", wrong, all)?;

        for log_words in 0..3 {
            let words = 1 << log_words;
            let values: Vec<u32> = (0..(all * words) as u32).map(jenkins).collect();
            let on_device = queue.buffer_from("self-test column", &values)?;
            let out = queue.allocate("self-test gathered words", GATHERED_AT + n * words)?;
            let column = (&on_device, log_words);
            gather_rows_to(queue, column, (rows, n), (&out, GATHERED_AT))?;
            let gathered = queue.read(&out, out.len())?.split_off(GATHERED_AT);
            let value = |row: &u32| &values[*row as usize * words..][..words];
            let expected: Vec<u32> = expected.iter().flat_map(value).copied().collect();
            let wrong = differences(&gathered, &expected);
            self.right(queue, "gathered words", wrong, expected.len())?;
        }

        let bits: Vec<u32> = (0..all.div_ceil(32) as u32).map(jenkins).collect();
        let on_device = queue.buffer_from("self-test bits", &bits)?;
        let out = queue.allocate("self-test gathered bits", GATHERED_AT + n.div_ceil(32))?;
        gather_bits_to(queue, &on_device, (rows, n), (&out, GATHERED_AT))?;
        let gathered = queue.read(&out, out.len())?.split_off(GATHERED_AT);
        let is_wrong =
            |(i, row): &(usize, &u32)| is_set(&gathered, *i) != is_set(&bits, **row as usize);
        let wrong = expected.iter().enumerate().filter(is_wrong).count();
        self.right(queue, "gathered bits", wrong, n)
    }

    /// Checks that the table has about the load `load_factor`.
    fn check_load(&self, queue: &mut Queue, load_factor: f64) -> Result<()> {
        let table = self.build(queue)?;
        let grew = (table.index.as_horton())
            .is_some_and(|table| table.load_factor() < load_factor - SPARE);
        self.right(queue, "tables", usize::from(grew), 1)
    }

    /// Checks the table's lookups in every way that joins use on this device, the tuned ones
    /// included.
    fn check_lookups(&self, queue: &mut Queue) -> Result<()> {
        let table = self.build(queue)?;
        let HashIndex::Horton(table) = &table.index else {
            return Ok(());
        };
        let most = match queue.body() {
            KernelBody::Chunk => self.probe.len(),
            _ => 3 * WORK_ITEMS * queue.info().compute_units.max(1) as usize,
        };
        let n = most.clamp(1, MOST_PROBES);
        let keys: Vec<u32> = self.probe.iter().copied().cycle().take(n).collect();
        let model = self.model();
        let expected: Vec<u32> = keys
            .iter()
            .map(|key| model.get(&[*key][..]).map_or(MISS, |rows| rows[0]))
            .collect();
        let keys = queue.buffer_from("self-test probe keys", &keys)?;
        let values = queue.allocate("looked-up values", n)?;
        let reads = queue.buffer_from("bucket reads", &[0])?;
        for residence in Residence::ALL {
            let workload = Workload {
                kind: Kind::Horton,
                slots: BucketSize::Eight.slots(),
                residence,
            };
            let tuning = Tuning::for_device(queue.info(), queue.body(), &workload);
            for n in [n, n.min(WORK_ITEMS - 1)] {
                queue.fill(&values, !MISS)?;
                let answers = NarrowAnswers {
                    values: &values,
                    reads: &reads,
                    n,
                };
                table.lookup_tuned(queue, &keys, answers, &tuning)?;
                let wrong = differences(&queue.read(&values, n)?, &expected[..n]);
                self.right(queue, "lookups", wrong, n)?;
            }
        }
        Ok(())
    }
}

/// Returns all pairs, taken in two windows.
fn pairs_of(queue: &mut Queue, matches: &Matches, n: usize) -> Result<Pairs> {
    let first = n / 3;
    let (mut probe, mut build) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for (from, len) in [(0, first), (first, n - first)] {
        let pairs = Pairs::with_room(queue, len)?;
        let written = matches.write(queue, from as u64, &pairs)?;
        probe.extend(queue.read(&pairs.probe, written)?);
        build.extend(queue.read(&pairs.build, written)?);
    }
    Ok(Pairs {
        probe: queue.buffer_from("self-test pairs", &probe)?,
        build: queue.buffer_from("self-test pairs", &build)?,
    })
}

/// Returns how many of `expected` are not what was found there.
fn differences<T: PartialEq>(found: &[T], expected: &[T]) -> usize {
    let missing = expected.len().abs_diff(found.len());
    missing + found.iter().zip(expected).filter(|(a, b)| a != b).count()
}

fn is_set(bits: &[u32], at: usize) -> bool {
    bits[at / 32] >> (at % 32) & 1 == 1
}
