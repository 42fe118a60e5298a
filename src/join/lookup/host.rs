//! The host's own answer to lookups, for when the device fails.
//!
//! ```text
//!  entries by bucket of their key   │ (k3,r0) │ (k1,r2) (k1,r7) (k9,r4) │ …   sorted
//!  offsets of the buckets           0         1                         4
//!  lookup(k1) ─▶ rows r2 r7 ─▶ the same counts, bits, windows and visits as the device's
//! ```
//!
//! Everything behind a lookup stays as it is. Pairs have the same numbers as on the device: they
//! come in probe order, matches in build order. Keys of one or two words are numbers here. Longer
//! keys are numbered through a map of the build side's distinct ones. Buckets are sorted, so a
//! lookup is one random access and a binary search, of log n steps even if all keys share a bucket.
//!
//! The table is built by encoding the keys once more and a counting sort. Nothing of it is there
//! while the device works. DataFusion's own table would not do: it numbers rows of one concatenated
//! batch, and cannot go on from a pair in the middle of a chunk.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::result::{
    ChunkPosition, HostWords, LookupKind, LookupResult, PairCursor, PairKeys, Window,
    no_pairs_wanted,
};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::device::{Answer, Cost};
use crate::error::Result;
use crate::join::rows::BuildRow;
use crate::keys::source::NormalizedKeys;

/// Normalized keys to build rows.
#[derive(Debug)]
pub struct HostTable {
    /// Key and row.
    entries: Vec<(u64, BuildRow)>,
    /// Positions at which each bucket's entries begin, and the last one's end.
    offsets: Vec<u32>,
    shift: u32,
    /// 32-bit words of a key.
    words: usize,
    /// Numbers of keys of more than two words.
    names: KeyIds,
}

/// Keys of several words, and their numbers.
type KeyIds = HashMap<Box<[u32]>, u64>;

impl HostTable {
    /// Returns the bytes of a table of `rows` rows with keys of so many words.
    pub fn bytes(rows: usize, words: usize) -> usize {
        let names = match words {
            0..=2 => 0,
            // A box, a number and room to spare in the map.
            _ => 2 * size_of::<(Box<[u32]>, u64)>() + 4 * words + 16,
        };
        (size_of::<(u64, BuildRow)>() + names) * rows + 4 * (buckets(rows) + 1)
    }

    /// Returns the table of `parts` with keys of `words` words, fewer than 2^32 rows in all.
    pub fn build(parts: &[NormalizedKeys], words: usize) -> Self {
        let n = parts.iter().map(|part| part.keys.len()).sum::<usize>() / words;
        let buckets = buckets(n);
        let shift = u64::BITS - buckets.trailing_zeros();
        let names = named(parts, words);
        let mut next = vec![0u32; buckets + 1];
        for key in parts
            .iter()
            .flat_map(|part| numbers(&names, &part.keys, words))
        {
            next[bucket(key, shift)] += 1;
        }
        let mut before = 0;
        for count in &mut next {
            before += std::mem::replace(count, before);
        }
        let mut entries = vec![(0, BuildRow(0)); n];
        let mut rows = Vec::new();
        for part in parts {
            rows.resize(part.keys.len() / words, 0);
            part.number(&mut rows);
            for (key, row) in numbers(&names, &part.keys, words).zip(&rows) {
                let at = &mut next[bucket(key, shift)];
                entries[*at as usize] = (key, BuildRow(*row));
                *at += 1;
            }
        }
        // Every bucket's place is now its end, which is where the next one begins.
        next.rotate_right(1);
        next[0] = 0;
        for bucket in next.windows(2) {
            entries[bucket[0] as usize..bucket[1] as usize].sort_unstable();
        }
        debug_assert!(next.is_sorted(), "offsets ascend");
        debug_assert_eq!(
            next.last().map_or(0, |end| *end as usize),
            n,
            "to the number of entries"
        );
        Self {
            entries,
            offsets: next,
            shift,
            words,
            names,
        }
    }

    /// Returns the places of the entries of `key`.
    fn lookup(&self, key: u64) -> Range<u32> {
        let at = bucket(key, self.shift);
        let (from, to) = (self.offsets[at], self.offsets[at + 1]);
        let bucket = &self.entries[from as usize..to as usize];
        let first = bucket.partition_point(|entry| entry.0 < key);
        let len = bucket[first..].partition_point(|entry| entry.0 == key);
        let first = from + first as u32;
        first..first + len as u32
    }

    /// Returns the rows at places of entries, ascending.
    fn rows(&self, places: &Range<u32>) -> impl Iterator<Item = BuildRow> + use<'_> {
        let entries = &self.entries[places.start as usize..places.end as usize];
        entries.iter().map(|entry| entry.1)
    }
}

/// Returns the number of buckets: about one per row, a power of two from 2 on.
fn buckets(rows: usize) -> usize {
    rows.next_power_of_two().clamp(2, 1 << 31)
}

fn bucket(key: u64, shift: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize
}

/// The number of a key without one.
const NO_ID: u64 = u64::MAX;

/// Returns the numbers of all keys, if they are of more than two words.
fn named(parts: &[NormalizedKeys], words: usize) -> KeyIds {
    let mut names = KeyIds::new();
    if words > 2 {
        for key in parts.iter().flat_map(|part| part.keys.chunks(words)) {
            let next = names.len() as u64;
            if !names.contains_key(key) {
                names.insert(key.into(), next);
            }
        }
    }
    names
}

/// Returns the keys of so many words as numbers; the low word comes first.
fn numbers<'a>(
    names: &'a KeyIds,
    keys: &'a [u32],
    words: usize,
) -> impl Iterator<Item = u64> + use<'a> {
    keys.chunks(words).map(move |key| match words {
        0..=2 => {
            let words = key.iter().rev();
            words.fold(0, |number, word| number << 32 | u64::from(*word))
        }
        _ => names.get(key).copied().unwrap_or(NO_ID),
    })
}

/// The matches of consecutive keys of a chunk.
#[derive(Debug)]
pub struct HostMatches {
    table: Arc<HostTable>,
    /// Position of the first key in the chunk.
    first_key: u32,
    entries: Vec<Range<u32>>,
    /// The number of each key's first pair, and that of the first pair behind the last key's.
    starts: Vec<u64>,
}

impl HostMatches {
    /// Looks `keys` up, which stand from `start` on in their chunk.
    pub fn new(table: Arc<HostTable>, keys: &[u32], start: ChunkPosition) -> Self {
        let entries: Vec<Range<u32>> = numbers(&table.names, keys, table.words)
            .map(|key| table.lookup(key))
            .collect();
        let mut pairs = start.pair;
        let mut starts = vec![pairs];
        starts.extend(entries.iter().map(|places| {
            pairs += places.len() as u64;
            pairs
        }));
        Self {
            table,
            first_key: start.key,
            entries,
            starts,
        }
    }

    /// Returns the number after that of the last pair.
    pub fn end(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Returns up to `len` pairs from number `first` on.
    pub fn pairs(&self, first: u64, len: usize) -> Window {
        let (mut probe, mut build) = (Vec::new(), Vec::new());
        let at = self.starts.partition_point(|start| *start <= first);
        let from = at.saturating_sub(1).min(self.entries.len());
        for (place, (places, start)) in (self.first_key + from as u32..)
            .zip(self.entries[from..].iter().zip(&self.starts[from..]))
        {
            let taken = first.saturating_sub(*start) as usize;
            let left = len - build.len();
            let rows = self.table.rows(places).skip(taken).take(left);
            build.extend(rows.map(|row| row.0));
            probe.resize(build.len(), place);
            if build.len() == len {
                break;
            }
        }
        Window {
            first,
            len: build.len(),
            keys: PairKeys::Positions(HostWords::Host(probe)),
            build: Some(HostWords::Host(build)),
            columns: None,
        }
    }

    /// Returns every matched build row. Those of equal keys come once for each probe key.
    pub fn build_rows(&self) -> impl Iterator<Item = BuildRow> + use<'_> {
        self.entries
            .iter()
            .flat_map(|places| self.table.rows(places))
    }

    /// Returns one bit per key, set if it has a match.
    fn bits(&self) -> Vec<u32> {
        let bits = |keys: &[Range<u32>]| {
            let bits = keys.iter().zip(0..);
            bits.fold(0, |word, (places, bit)| {
                word | u32::from(!places.is_empty()) << bit
            })
        };
        self.entries.chunks(32).map(bits).collect()
    }

    /// Returns the result that the device would have found.
    pub fn found(self, wanted: LookupKind) -> LookupResult {
        let matched = self.entries.iter().filter(|places| !places.is_empty());
        let mut found = LookupResult {
            matched: matched.count() as u64,
            total: self.end(),
            ..LookupResult::default()
        };
        match wanted {
            LookupKind::Count | LookupKind::Visits => {}
            LookupKind::Bits => found.bits = Some(Arc::new(HostWords::Host(self.bits()))),
            LookupKind::Pairs { window, .. } => {
                found.window = Arc::new(self.pairs(0, window));
                found.rest = Some(Arc::new(self));
            }
        }
        found
    }
}

impl PairCursor for HostMatches {
    fn window(
        self: Arc<Self>,
        first: u64,
        wanted: LookupKind,
    ) -> BoxFuture<'static, Result<Answer<Window>>> {
        let answer = match wanted {
            LookupKind::Pairs { window, .. } => Ok(Answer {
                value: self.pairs(first, window),
                cost: Cost::default(),
            }),
            LookupKind::Count | LookupKind::Visits | LookupKind::Bits => {
                Err(no_pairs_wanted().into())
            }
        };
        futures::future::ready(answer).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Arc<HostTable> {
        let first = NormalizedKeys {
            first_row: 0,
            keys: vec![7, 5, 7, 9],
            words: 1,
            rows: None,
        };
        let second = NormalizedKeys {
            first_row: 4,
            keys: vec![7, 0],
            words: 1,
            rows: Some(vec![1, 3]),
        };
        Arc::new(HostTable::build(&[first, second], 1))
    }

    fn pairs(window: &Window) -> Vec<(u32, u32)> {
        let (PairKeys::Positions(probe), Some(build)) = (&window.keys, &window.build) else {
            return Vec::new();
        };
        assert_eq!(window.len, build.len());
        probe.iter().copied().zip(build.iter().copied()).collect()
    }

    #[test]
    fn equal_keys_have_all_their_rows_in_order() {
        let table = table();
        let rows = |key| {
            table
                .rows(&table.lookup(key))
                .map(|row| row.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(7), [0, 2, 5]);
        assert_eq!((rows(5), rows(9), rows(0)), (vec![1], vec![3], vec![7]));
        assert!(rows(1).is_empty());
        let nothing = HostTable::build(&[], 1);
        assert!(nothing.lookup(3).is_empty());
    }

    #[test]
    fn windows_are_consecutive_pairs_in_probe_order() {
        let keys = [1, 7, 0, 7, 2];
        let matches = HostMatches::new(table(), &keys, ChunkPosition { key: 10, pair: 100 });
        let all = [
            (11, 0),
            (11, 2),
            (11, 5),
            (12, 7),
            (13, 0),
            (13, 2),
            (13, 5),
        ];
        assert_eq!(matches.end(), 107);
        for first in 0..=all.len() {
            for len in 1..=all.len() + 1 {
                let window = matches.pairs(100 + first as u64, len);
                let to = all.len().min(first + len);
                assert_eq!(pairs(&window), &all[first..to]);
            }
        }
    }

    #[test]
    fn a_lookup_finds_what_is_wanted() {
        let keys = [1, 7, 0, 7, 2];
        let start = ChunkPosition::default();
        let found = |wanted| HostMatches::new(table(), &keys, start).found(wanted);
        let count = found(LookupKind::Count);
        assert_eq!((count.matched, count.total), (3, 7));
        let bits = found(LookupKind::Bits).bits.unwrap();
        assert_eq!(&bits[..], [0b1110]);
        let some = found(LookupKind::Pairs {
            build_rows: false,
            window: 2,
        });
        assert_eq!(pairs(&some.window), [(1, 0), (1, 2)]);
    }

    /// A table of keys of one word, one for each row.
    fn table_of(keys: &[u32]) -> HostTable {
        let part = NormalizedKeys {
            first_row: 0,
            keys: keys.to_vec(),
            words: 1,
            rows: None,
        };
        HostTable::build(&[part], 1)
    }

    #[test]
    fn keys_of_one_bucket_are_distinct() {
        let shift = u64::BITS - 10;
        let keys: Vec<u32> = (0..u32::MAX)
            .filter(|key| bucket(u64::from(*key), shift) == 3)
            .take(1000)
            .collect();
        let table = table_of(&keys);
        for (row, key) in keys.iter().enumerate() {
            let rows: Vec<BuildRow> = table.rows(&table.lookup(u64::from(*key))).collect();
            assert_eq!(rows, [BuildRow(row as u32)]);
        }
    }

    #[test]
    fn rows_of_keys_that_share_a_bucket_are_in_order() {
        let shift = u64::BITS - 10;
        let in_bucket = (0..u32::MAX).filter(|key| bucket(u64::from(*key), shift) == 3);
        let some: Vec<u32> = in_bucket.take(3).collect();
        // In no order that a sort would find.
        let drawn = |row: u32| some[(row.wrapping_mul(0x9e37_79b9) >> 16) as usize % 3];
        let keys: Vec<u32> = (0..1000).map(drawn).collect();
        let table = table_of(&keys);
        for key in some {
            let rows = table.rows(&table.lookup(u64::from(key))).map(|row| row.0);
            let expected = (0..1000).filter(|row| keys[*row as usize] == key);
            assert!(rows.eq(expected));
        }
    }

    #[test]
    fn both_words_of_a_key_count() {
        let part = NormalizedKeys {
            first_row: 5,
            keys: vec![1, 2, 2, 1, 1, 2],
            words: 2,
            rows: None,
        };
        let table = Arc::new(HostTable::build(&[part], 2));
        let matches = HostMatches::new(table, &[2, 1, 1, 1, 1, 2], ChunkPosition::default());
        assert_eq!(pairs(&matches.pairs(0, 9)), [(0, 6), (2, 5), (2, 7)]);
    }

    #[test]
    fn all_words_of_a_long_key_count() {
        let part = NormalizedKeys {
            first_row: 5,
            keys: vec![1, 2, 3, 1, 2, 4, 1, 2, 3],
            words: 3,
            rows: None,
        };
        let table = Arc::new(HostTable::build(&[part], 3));
        let probe = [1, 2, 4, 1, 2, 5, 0, 2, 3, 1, 2, 3];
        let matches = HostMatches::new(table, &probe, ChunkPosition::default());
        assert_eq!(pairs(&matches.pairs(0, 9)), [(0, 6), (3, 5), (3, 7)]);
    }
}
