//! What the tables of a segmented build side have of a chunk's keys, put together on the host.
//!
//! ```text
//!  segment 0   (k0, v3) (k2, v1)            ends 2 │ 5 6        pairs up to each hit
//!  segment 1   (k2, v0)            ─merge─▶ hits   (k0, 0, v3) (k2, 0, v1) (k2, 1, v0)
//!                                                       └ 2 rows    └ 3 rows    └ 1 row
//!  window      pairs first .. first + room, in probe order, build rows ascending
//! ```
//!
//! Hits are few where pairs are many: a hot key is one hit a segment, whatever its rows, and
//! pairs are written a window at a time. Cost: a stable sort that merges the segments' runs, 12 bytes
//! a hit and 8 for its end.

use crate::table::horton::MISS;

use super::lookup::{Found, Rest, Wanted, Window, Words};
use super::segments::SegmentedTable;

/// Hits of one segment, keys ascending.
#[derive(Debug, Default)]
pub struct SegmentHits {
    /// Numbers of the keys.
    pub keys: Vec<u32>,
    /// Their values.
    pub values: Vec<u32>,
    /// Buckets read.
    pub reads: u64,
}

impl SegmentHits {
    /// Appends those of later keys.
    pub fn append(&mut self, later: Self) {
        if self.keys.is_empty() {
            let reads = self.reads + later.reads;
            *self = Self { reads, ..later };
            return;
        }
        self.keys.extend(later.keys);
        self.values.extend(later.values);
        self.reads += later.reads;
    }
}

/// A key that a segment has.
#[derive(Debug, Clone, Copy)]
struct Hit {
    key: u32,
    segment: u32,
    value: u32,
}

/// The hits of all segments, by key and segment.
#[derive(Debug)]
pub struct Hits {
    keys: usize,
    segments: usize,
    reads: u64,
    hits: Vec<Hit>,
    /// Pairs up to and with each hit.
    ends: Vec<u64>,
}

impl Hits {
    /// Merges what `table`'s segments have of `keys` keys, and notes the visits.
    pub fn merge(table: &SegmentedTable, (keys, found): (usize, Vec<SegmentHits>)) -> Self {
        let segments = found.len();
        let reads = found.iter().map(|found| found.reads).sum();
        let mut hits = Vec::with_capacity(found.iter().map(|found| found.keys.len()).sum());
        for (segment, found) in (0..).zip(found) {
            let pairs = found.keys.into_iter().zip(found.values);
            hits.extend(
                pairs
                    .filter(|(_, value)| *value != MISS)
                    .map(|(key, value)| Hit {
                        key,
                        segment,
                        value,
                    }),
            );
        }
        hits.sort_by_key(|hit| hit.key);
        let mut end = 0;
        let ends = hits.iter().map(|hit| {
            let segment = &table.segments()[hit.segment as usize];
            segment.visit(hit.value);
            end += segment.matches(hit.value) as u64;
            end
        });
        Self {
            ends: ends.collect(),
            keys,
            segments,
            reads,
            hits,
        }
    }

    /// Pairs in all.
    fn total(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// One bit a key: whether it has a match.
    fn bits(&self) -> Vec<u32> {
        let mut words = vec![0; self.keys.div_ceil(32)];
        for hit in &self.hits {
            words[hit.key as usize / 32] |= 1 << (hit.key % 32);
        }
        words
    }

    /// What the lookup of the keys found.
    pub fn into_found(self, table: &SegmentedTable, wanted: Wanted) -> Found {
        let bits = self.bits();
        let lookups = self.keys * self.segments;
        let mut found = Found {
            keys: lookups,
            buckets_read: Some(self.reads as usize),
            matched: bits.iter().map(|word| u64::from(word.count_ones())).sum(),
            total: self.total(),
            ..Found::default()
        };
        match wanted {
            Wanted::Count | Wanted::Visits => {}
            Wanted::Bits => found.bits = Some(Words::Host(bits)),
            Wanted::Pairs { window, .. } => {
                found.window = self.window(table, 0, window);
                if found.window.end() < found.total {
                    found.rest = Rest::Segments(self.into());
                }
            }
        }
        found
    }

    /// Up to `room` pairs from pair `first` on.
    pub fn window(&self, table: &SegmentedTable, first: u64, room: usize) -> Window {
        let until = self.total().min(first.saturating_add(room as u64));
        let mut hit = self.ends.partition_point(|end| *end <= first);
        let mut pair = first;
        let (mut probe, mut build) = (Vec::new(), Vec::new());
        while pair < until {
            let Hit {
                key,
                segment,
                value,
            } = self.hits[hit];
            let start = match hit {
                0 => 0,
                _ => self.ends[hit - 1],
            };
            let end = self.ends[hit].min(until);
            let rows = (pair - start) as usize..(end - start) as usize;
            probe.resize(probe.len() + rows.len(), key);
            build.extend(table.segments()[segment as usize].rows(value, rows));
            pair = end;
            hit += 1;
        }
        Window {
            first,
            len: build.len(),
            probe: Some(Words::Host(probe)),
            build: Some(Words::Host(build)),
            columns: Vec::new(),
        }
    }
}
