//! Looked-up probe batches, and the candidate pairs of each.
//!
//! ```text
//!  batches   │ b0: keys 0..5      │ b1: keys 5..9 │       rows that cannot match may have no key
//!  pairs     │ (0,a) (0,b) (3,c)  │ (6,a) │               in probe order, a window at a time
//!  step        at most `limit` pairs of one batch
//! ```
//!
//! As in `HashJoinExec`, a step covers the probe rows up to its last match. So a row whose
//! candidates are spread over several steps is resolved once. Stepping by candidates keeps a hot
//! key's fan-out in bounded memory.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::ToByteSlice;
use arrow::util::bit_chunk_iterator::BitChunks;

use crate::error::Result;

use crate::join::lookup::columns::DeviceColumn;
use crate::join::lookup::result::{ChunkPosition, LookupKind, LookupResult, PairKeys, bits_at};
use crate::join::lookup::table::JoinTable;
use crate::join::memory::ProbeMemory;
use crate::join::output::row_pairs::Pairs;
use crate::join::rows::BuildRow;

/// Batches that were looked up together, first to last.
#[derive(Debug)]
pub struct Chunk {
    /// The batches that are left.
    pub batches: VecDeque<ProbeBatch>,
    /// The result of the lookup.
    pub found: LookupResult,
    /// The form of results, with windows that there is memory for.
    pub wanted: LookupKind,
    /// The table that answers for it; `None` for the host's.
    pub table: Option<Arc<JoinTable>>,
    /// Memory that is reserved for the chunk, until all pieces of it have been emitted.
    pub memory: Arc<ProbeMemory>,
    /// Rows of all batches that were looked up.
    pub rows: usize,
    /// The time at which the rows began to come out.
    pub began: Instant,
    /// The first pair that no step has taken.
    next: u64,
    /// The first pair of the first batch.
    first: u64,
    /// No key before this one has a pair that no step has taken, where bits say which keys have
    /// pairs.
    next_key: u32,
}

/// One batch of a chunk.
#[derive(Debug)]
pub struct ProbeBatch {
    /// Rows of the chunk.
    pub batch: RecordBatch,
    /// Key columns, if candidates must be verified.
    pub keys: Vec<ArrayRef>,
    /// Positions of the keys in the chunk.
    pub positions: Range<u32>,
    /// Rows of these keys; `None` if all in order.
    pub rows: Option<Vec<u32>>,
    /// Probe rows resolved so far: up to the last match.
    resolved: usize,
}

impl ProbeBatch {
    /// Returns a batch whose keys stand at `positions`, those of `rows` or of all rows.
    pub fn new(
        batch: RecordBatch,
        keys: Vec<ArrayRef>,
        positions: Range<u32>,
        rows: Option<Vec<u32>>,
    ) -> Self {
        Self {
            batch,
            keys,
            positions,
            rows,
            resolved: 0,
        }
    }

    /// Returns the rows whose keys stand at `positions`.
    fn rows_at(&self, places: impl Iterator<Item = u32>) -> Vec<u32> {
        let start = self.positions.start;
        debug_assert!(start <= self.positions.end);
        match &self.rows {
            Some(rows) => places.map(|place| rows[(place - start) as usize]).collect(),
            None => places.map(|place| place - start).collect(),
        }
    }

    /// Returns the probe rows that a step's matches resolve: from the last step's end to its last
    /// match, or to the end of the batch.
    pub fn resolve(&mut self, matches: &Pairs, is_last: bool) -> Range<usize> {
        let from = self.resolved;
        let to = match (is_last, matches.probe.last()) {
            (true, _) => self.batch.num_rows(),
            (false, Some(last)) => *last as usize + 1,
            (false, None) => from,
        };
        debug_assert!(
            to <= self.batch.num_rows(),
            "{to} of {}",
            self.batch.num_rows()
        );
        self.resolved = to.max(from);
        from..self.resolved
    }

    /// Returns which rows have a match, from one bit per key of the chunk.
    pub fn matched(&self, words: Option<&[u32]>) -> BooleanBuffer {
        let rows = self.batch.num_rows();
        let Some(words) = words else {
            return BooleanBuffer::new_unset(rows);
        };
        let of_keys = bits_at(words, &self.positions);
        let Some(places) = &self.rows else {
            return of_keys;
        };
        let mut bits = vec![false; rows];
        of_keys
            .set_indices()
            .for_each(|key| bits[places[key] as usize] = true);
        BooleanBuffer::from(bits)
    }
}

impl Chunk {
    /// Returns the batches whose lookup found `found`.
    pub fn new(
        batches: VecDeque<ProbeBatch>,
        memory: ProbeMemory,
        found: LookupResult,
        wanted: LookupKind,
        table: Option<Arc<JoinTable>>,
    ) -> Self {
        Self {
            rows: batches.iter().map(|batch| batch.batch.num_rows()).sum(),
            began: Instant::now(),
            batches,
            found,
            wanted,
            table,
            memory: Arc::new(memory),
            next: 0,
            first: 0,
            next_key: 0,
        }
    }

    /// Returns pieces of whole batches with about `rows` rows each, which can be emitted in any
    /// order. Returns only one if not all pairs are here, or if the result is a number.
    pub fn split(mut self, rows: usize) -> VecDeque<Chunk> {
        let window = &self.found.window;
        let is_divisible = match self.wanted {
            LookupKind::Pairs { .. } => window.first == 0 && window.end() == self.found.total,
            LookupKind::Bits => true,
            LookupKind::Count | LookupKind::Visits => false,
        };
        let mut pieces = VecDeque::new();
        while is_divisible && self.rows > rows && self.batches.len() > 1 {
            pieces.push_back(self.split_front(rows));
        }
        pieces.push_back(self);
        pieces
    }

    /// Takes the first batches out, with at least `rows` rows, or all but the last batch.
    fn split_front(&mut self, rows: usize) -> Chunk {
        let known = self.front().unwrap_or_default();
        let mut found = self.found.clone();
        // The last piece counts the matches of all.
        if self.wanted == LookupKind::Bits {
            (found.matched, found.total) = (0, 0);
        }
        let mut front = Chunk {
            batches: VecDeque::new(),
            found,
            memory: Arc::clone(&self.memory),
            table: self.table.clone(),
            rows: 0,
            ..*self
        };
        while front.rows < rows
            && self.batches.len() > 1
            && let Some(batch) = self.batches.pop_front()
        {
            front.rows += batch.batch.num_rows();
            front.batches.push_back(batch);
        }
        self.rows -= front.rows;
        if let Some(batch) = self.batches.front() {
            self.first = self.found.window.first_pair(batch.positions.start, known);
            self.next = self.first;
        }
        front
    }

    /// Lets go of the first batch, whose pairs were all taken.
    pub fn next_batch(&mut self) {
        self.batches.pop_front();
        self.first = self.next;
    }

    /// Returns where the first batch begins.
    pub fn front(&self) -> Option<ChunkPosition> {
        let batch = self.batches.front()?;
        Some(ChunkPosition {
            key: batch.positions.start,
            pair: self.first,
        })
    }

    /// Returns the first pair of the window that must come before the next step of up to `limit`
    /// pairs; `None` if the pairs at hand are enough.
    pub fn missing(&self, limit: usize) -> Option<u64> {
        let window = &self.found.window;
        debug_assert!(
            window.end() <= self.found.total,
            "a window ends with the pairs"
        );
        debug_assert!(self.next <= self.found.total, "no pair is taken twice");
        // One more than the limit tells whether the batch goes on.
        let enough = window.end() - self.next.min(window.end()) > limit as u64;
        (!enough && window.end() < self.found.total).then_some(self.next)
    }

    /// Returns which rows of the first batch have a match, and the build rows and `columns` of
    /// these. Returns `None` if a row may have two matches, or if not all pairs of the chunk are
    /// here. It also does for a batch of more than `most` rows.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn rows_with_one_match(
        &mut self,
        most: usize,
        columns: &[DeviceColumn],
    ) -> Result<Option<(BooleanBuffer, Pairs)>> {
        let window = &self.found.window;
        let is_whole = window.first == 0 && window.end() == self.found.total;
        let may_be = |batch: &&ProbeBatch| is_whole && batch.batch.num_rows() <= most;
        let Some(batch) = self.batches.front().filter(may_be) else {
            return Ok(None);
        };
        let matched = match &window.keys {
            PairKeys::Bits(words) => batch.matched(Some(words)),
            PairKeys::Each if window.len == 0 => batch.matched(None),
            PairKeys::Each if batch.rows.is_none() => {
                BooleanBuffer::new_set(batch.batch.num_rows())
            }
            PairKeys::Each | PairKeys::Positions(_) => return Ok(None),
        };
        let taken = matched.count_set_bits();
        let matches = self.take_pairs(taken, columns)?;
        self.next_key = self.batches.front().map_or(0, |batch| batch.positions.end);
        Ok(Some((matched, matches)))
    }

    /// Takes the next `n` pairs of the window: their build rows and `columns`, without their keys.
    fn take_pairs(&mut self, n: usize, columns: &[DeviceColumn]) -> Result<Pairs> {
        let window = &self.found.window;
        let from = (self.next - window.first) as usize;
        let mut pairs = Pairs::default();
        if let Some(build) = &window.build {
            let rows = build[from..from + n].iter();
            pairs.build = rows.map(|row| BuildRow(*row)).collect();
        }
        if let Some(gathered) = window.columns.as_ref().filter(|_| n > 0) {
            for (at, column) in columns.iter().enumerate() {
                let values = gathered.array((at, column), from, n)?;
                pairs.gathered.insert(column.source, values);
            }
        }
        self.next += n as u64;
        Ok(pairs)
    }

    /// Returns up to `limit` candidates of the first batch, in probe order, matches in build order,
    /// and whether they are its last. `columns` are those that the table gathered.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn step(
        &mut self,
        limit: usize,
        columns: &[DeviceColumn],
    ) -> Result<Option<(Pairs, bool)>> {
        let Some(batch) = self.batches.front() else {
            return Ok(None);
        };
        let window = &self.found.window;
        let from = (self.next - window.first) as usize;
        let to = (from + limit).min(window.len);
        let end = batch.positions.end;
        let (probe, goes_on): (Vec<u32>, bool) = match &window.keys {
            PairKeys::Positions(places) => {
                let taken = places[from..to].partition_point(|place| *place < end);
                let next = places[..window.len].get(from + taken);
                let taken = places[from..from + taken].iter().copied();
                (batch.rows_at(taken), next.is_some_and(|place| *place < end))
            }
            PairKeys::Bits(words) => {
                let left = self.next_key.max(batch.positions.start)..end;
                // One more tells whether the batch goes on.
                let mut places = places_of_bits(words, left, (to - from).saturating_add(1));
                let goes_on = places.len() > to - from && to < window.len;
                places.truncate(to - from);
                self.next_key = places.last().map_or(self.next_key, |last| last + 1);
                (batch.rows_at(places.into_iter()), goes_on)
            }
            PairKeys::Each => {
                let until = to.min((u64::from(end) - window.first) as usize).max(from);
                let rows =
                    (window.first + from as u64) as u32..(window.first + until as u64) as u32;
                let goes_on = rows.end < end && until < window.len;
                (batch.rows_at(rows), goes_on)
            }
        };
        let taken = probe.len();
        // As many as the limit: the batch's last rows may be left to resolve.
        let to_the_end = probe
            .last()
            .is_some_and(|row| *row as usize + 1 == batch.batch.num_rows());
        let is_last = !goes_on && (taken < limit || to_the_end);
        let pairs = Pairs {
            probe,
            ..self.take_pairs(taken, columns)?
        };
        Ok(Some((pairs, is_last)))
    }
}

/// Returns the first positions in `range` whose bits are set in `words`, up to `most` of them.
fn places_of_bits(words: &[u32], range: Range<u32>, most: usize) -> Vec<u32> {
    let (start, len) = (range.start as usize, range.len());
    let chunks = BitChunks::new(words.to_byte_slice(), start, len);
    let mut places = Vec::with_capacity(most.min(len));
    for (word, first) in chunks.iter_padded().zip((range.start..).step_by(64)) {
        let mut left = word;
        while left != 0 {
            places.push(first + left.trailing_zeros());
            left &= left - 1;
        }
        if places.len() >= most {
            break;
        }
    }
    places.truncate(most);
    places
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};

    use crate::join::lookup::result::{HostWords, Window};

    use super::*;

    /// A chunk of batches with these rows, numbered through, each with a key.
    fn chunk(rows: &[usize], found: LookupResult, wanted: LookupKind) -> Chunk {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let mut first = 0;
        let batch = |rows: &usize| {
            let end = first + *rows as u32;
            let numbers: Int64Array = (first..end).map(i64::from).collect();
            let columns = [("n", Arc::new(numbers) as ArrayRef)];
            let batch = RecordBatch::try_from_iter(columns).unwrap();
            let batch = ProbeBatch::new(batch, Vec::new(), first..end, None);
            first = end;
            batch
        };
        let batches = rows.iter().map(batch).collect();
        Chunk::new(batches, ProbeMemory::new(&pool, 0), found, wanted, None)
    }

    /// A result of which all pairs, or the first `len`, are there: key and build row of each.
    fn found(pairs: &[(u32, u32)], len: usize) -> LookupResult {
        let words = |words: Vec<u32>| HostWords::Host(words);
        let window = Window {
            first: 0,
            len,
            keys: PairKeys::Positions(words(pairs[..len].iter().map(|(key, _)| *key).collect())),
            build: Some(words(pairs[..len].iter().map(|(_, row)| *row).collect())),
            columns: None,
        };
        LookupResult {
            matched: 4,
            total: pairs.len() as u64,
            window: Arc::new(window),
            ..LookupResult::default()
        }
    }

    const PAIRS: LookupKind = LookupKind::Pairs {
        build_rows: true,
        window: 100,
    };

    /// The number of the probe row and the build row of each pair, a step of up to two at a time.
    fn emitted(mut chunk: Chunk) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        while let Some((pairs, is_last)) = chunk.step(2, &[]).unwrap() {
            let batch = &chunk.batches[0].batch;
            let numbers = batch.column(0).as_primitive::<Int64Type>();
            let both = pairs.probe.iter().zip(&pairs.build);
            all.extend(both.map(|(row, build)| (numbers.value(*row as usize) as u32, build.0)));
            if is_last {
                chunk.next_batch();
            }
        }
        all
    }

    /// The same, with batches of up to `most` rows as a whole.
    fn emitted_whole(mut chunk: Chunk, most: usize) -> Vec<(u32, u32)> {
        let mut all = Vec::new();
        while let Some(batch) = chunk.batches.front() {
            let numbers = batch.batch.column(0).as_primitive::<Int64Type>().clone();
            let (rows, build, is_last) = match chunk.rows_with_one_match(most, &[]).unwrap() {
                Some((matched, matches)) => {
                    assert!(matched.len() == numbers.len() && numbers.len() <= most);
                    (matched.set_indices().collect(), matches.build, true)
                }
                None => {
                    let (pairs, is_last) = chunk.step(2, &[]).unwrap().unwrap();
                    let rows: Vec<usize> = pairs.probe.iter().map(|row| *row as usize).collect();
                    (rows, pairs.build, is_last)
                }
            };
            let both = rows.into_iter().zip(build);
            all.extend(both.map(|(row, build)| (numbers.value(row) as u32, build.0)));
            if is_last {
                chunk.next_batch();
            }
        }
        all
    }

    #[test]
    fn pieces_have_the_pairs_of_the_chunk() {
        let pairs = [
            (0, 7),
            (1, 3),
            (1, 4),
            (1, 5),
            (4, 9),
            (6, 2),
            (8, 1),
            (8, 6),
        ];
        for rows in [vec![9], vec![2, 3, 4], vec![1; 9], vec![2, 0, 0, 5, 2, 0]] {
            let whole = chunk(&rows, found(&pairs, pairs.len()), PAIRS);
            assert_eq!(emitted(whole), pairs);
            for least in [1, 2, 3, 4, 100] {
                let whole = chunk(&rows, found(&pairs, pairs.len()), PAIRS);
                let pieces = whole.split(least);
                let sizes: Vec<usize> = pieces.iter().map(|piece| piece.rows).collect();
                assert_eq!(sizes.iter().sum::<usize>(), 9);
                assert!(
                    sizes.iter().rev().skip(1).all(|rows| *rows >= least),
                    "{sizes:?}"
                );
                assert!(pieces.iter().all(|piece| !piece.batches.is_empty()));
                assert!(pieces.iter().all(|piece| piece.missing(2).is_none()));
                let mut parts: Vec<_> = pieces.into_iter().map(emitted).collect();
                assert_eq!(parts.concat(), pairs, "{rows:?} {least}");
                // In any order.
                parts.reverse();
                let mut sorted = parts.concat();
                sorted.sort_unstable();
                assert_eq!(sorted, pairs);
            }
        }
    }

    #[test]
    fn pieces_of_keys_with_one_match_each_have_the_pairs_of_the_chunk() {
        let pairs: Vec<(u32, u32)> = (0..9).map(|key| (key, 100 + key)).collect();
        let mut one_each = found(&pairs, pairs.len());
        let window = Window {
            first: 0,
            len: 9,
            keys: PairKeys::Each,
            build: Some(HostWords::Host((100..109).collect())),
            columns: None,
        };
        one_each.window = Arc::new(window);
        for most in [0, 3, 9] {
            let whole = chunk(&[4, 3, 2], one_each.clone(), PAIRS);
            assert_eq!(emitted_whole(whole, most), pairs);
        }
        let pieces = chunk(&[4, 3, 2], one_each, PAIRS).split(1);
        assert_eq!(pieces.len(), 3);
        let parts: Vec<_> = pieces.into_iter().map(emitted).collect();
        assert_eq!(parts.concat(), pairs);
    }

    #[test]
    fn pieces_of_keys_with_one_match_at_most_have_the_pairs_of_the_chunk() {
        let rows = [
            vec![40, 1, 29],
            vec![70],
            vec![3, 0, 33, 0, 34],
            vec![1; 70],
        ];
        for keys in [
            vec![0, 1, 2, 3, 4, 5, 31, 32, 33, 63, 64, 69],
            vec![],
            vec![40, 41],
        ] {
            let pairs: Vec<(u32, u32)> = keys.iter().map(|key| (*key, 100 + key)).collect();
            let mut words = vec![0; 3];
            keys.iter()
                .for_each(|key| words[*key as usize / 32] |= 1 << (key % 32));
            let mut one_at_most = found(&pairs, pairs.len());
            one_at_most.window = Arc::new(Window {
                first: 0,
                len: pairs.len(),
                keys: PairKeys::Bits(HostWords::Host(words)),
                build: Some(HostWords::Host(keys.iter().map(|key| 100 + key).collect())),
                columns: None,
            });
            for rows in &rows {
                assert_eq!(emitted(chunk(rows, one_at_most.clone(), PAIRS)), pairs);
                for least in [1, 2, 30, 100] {
                    let mut pieces = chunk(rows, one_at_most.clone(), PAIRS).split(least);
                    // In any order.
                    pieces.make_contiguous().reverse();
                    let mut parts: Vec<_> = pieces.into_iter().flat_map(emitted).collect();
                    parts.sort_unstable();
                    assert_eq!(parts, pairs);
                    for most in [0, 30, 100] {
                        let pieces = chunk(rows, one_at_most.clone(), PAIRS).split(least);
                        let parts = pieces.into_iter().map(|piece| emitted_whole(piece, most));
                        assert_eq!(parts.collect::<Vec<_>>().concat(), pairs);
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_count_the_matches_of_the_chunk_once() {
        let bits = LookupResult {
            matched: 3,
            total: 5,
            bits: Some(Arc::new(HostWords::Host(vec![0b1_0100_0001]))),
            ..LookupResult::default()
        };
        let pieces = chunk(&[4, 3, 2], bits, LookupKind::Bits).split(4);
        let counts: Vec<_> = pieces
            .iter()
            .map(|piece| (piece.found.matched, piece.found.total))
            .collect();
        assert_eq!(counts, [(0, 0), (0, 0), (3, 5)]);
        let matched = pieces.iter().flat_map(|piece| {
            let words = piece.found.bits.as_ref().map(|bits| &***bits);
            let of = |batch: &ProbeBatch| batch.matched(words).iter().collect::<Vec<_>>();
            piece.batches.iter().flat_map(of).collect::<Vec<_>>()
        });
        let expected = [true, false, false, false, false, false, true, false, true];
        assert!(matched.eq(expected));
    }

    #[test]
    fn batches_are_no_whole_with_pairs_missing_or_two_of_a_row() {
        let pairs = [(0, 7), (1, 3), (1, 4), (8, 6)];
        for len in [2, pairs.len()] {
            let mut chunk = chunk(&[3, 3, 3], found(&pairs, len), PAIRS);
            assert!(chunk.rows_with_one_match(100, &[]).unwrap().is_none());
        }
    }

    #[test]
    fn a_chunk_whose_pairs_are_not_all_here_has_one_piece() {
        let pairs = [(0, 7), (1, 3), (4, 9), (8, 6)];
        let some = chunk(&[3, 3, 3], found(&pairs, 2), PAIRS);
        assert_eq!(some.split(1).len(), 1);
        for number in [LookupKind::Count, LookupKind::Visits] {
            let all = chunk(&[3, 3, 3], found(&pairs, 4), number);
            assert_eq!(all.split(1).len(), 1);
        }
    }
}
