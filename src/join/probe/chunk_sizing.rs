//! The sizes of the chunks of one probe stream.
//!
//! ```text
//!  no LIMIT   rows_max / 4 ─▶ rows_max ─▶ rows_max …
//!  LIMIT      four batches ─▶ 4 times as many ─▶ … ─▶ rows_max
//!  the device has no room for a chunk of n rows ─▶ n / 2 ─▶ … ─▶ CHUNK_ROWS_MIN, then the host
//!  the host answers now ─▶ rows_max again
//! ```
//!
//! The first chunk is small, so that the device has work while the second one is gathered. Under a
//! LIMIT the first rows may be all that is wanted.

/// Batches of the first chunk under a LIMIT, at most. It has no more rows than so many output
/// batches.
const FIRST_BATCHES_MAX: usize = 4;

/// Batches of any chunk, at most: filters leave few rows of each.
const CHUNK_BATCHES_MAX: usize = 1024;

/// The factor by which a chunk is larger than the one before.
const CHUNK_GROWTH_FACTOR: usize = 4;

/// Rows of a chunk that is not split again if the device has no room for it: the host answers.
const CHUNK_ROWS_MIN: usize = 64;

/// Rows and batches of a chunk, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    /// Rows.
    pub rows: usize,
    /// Batches.
    pub batches: usize,
}

/// How large the next chunk of a stream may be.
#[derive(Debug)]
pub struct ChunkSizing {
    /// Rows of any chunk, at most.
    rows_max: usize,
    /// Bytes of a chunk's batches, at most, unless it has one only.
    pub bytes_max: usize,
    /// Bytes of the last batch.
    pub last_batch_bytes: usize,
    next: ChunkSize,
    /// True if the device had no room for a chunk: they are smaller since, and batches are cut.
    is_memory_short: bool,
    /// True if the next chunk has waited for memory.
    has_waited: bool,
}

impl ChunkSizing {
    /// Returns the sizes of chunks of up to `rows_max` rows, whose batches have up to `bytes_max`
    /// bytes. A join with a LIMIT has output batches of `limited_batch` rows.
    pub fn new(rows_max: usize, bytes_max: usize, limited_batch: Option<usize>) -> Self {
        let next = match limited_batch {
            Some(rows) => ChunkSize {
                rows: rows_max.min(rows.saturating_mul(FIRST_BATCHES_MAX)),
                batches: FIRST_BATCHES_MAX,
            },
            None => ChunkSize {
                rows: (rows_max / CHUNK_GROWTH_FACTOR).max(1),
                batches: CHUNK_BATCHES_MAX,
            },
        };
        Self {
            rows_max,
            bytes_max,
            last_batch_bytes: 0,
            next,
            is_memory_short: false,
            has_waited: false,
        }
    }

    /// Returns the size of the next chunk; the one after it may be larger.
    pub fn grow(&mut self) -> ChunkSize {
        let size = self.next;
        debug_assert!(size.rows <= self.rows_max.max(1), "{size:?}");
        let grown = |most: usize, limit: usize| CHUNK_GROWTH_FACTOR.saturating_mul(most).min(limit);
        self.next = ChunkSize {
            rows: grown(size.rows, self.rows_max).max(1),
            batches: grown(size.batches, CHUNK_BATCHES_MAX),
        };
        size
    }

    /// Returns whether the device has had no room for a chunk.
    pub fn is_memory_short(&self) -> bool {
        self.is_memory_short
    }

    /// Makes chunks smaller than one of `rows` rows from now on. Returns whether they can be.
    pub fn halve(&mut self, rows: usize) -> bool {
        if rows <= CHUNK_ROWS_MIN {
            return false;
        }
        self.shrink_to(rows / 2);
        true
    }

    /// Makes chunks of up to `rows` rows from now on, but not of fewer than [`CHUNK_ROWS_MIN`].
    pub fn shrink_to(&mut self, rows: usize) {
        self.is_memory_short = true;
        self.rows_max = rows.max(CHUNK_ROWS_MIN).min(self.rows_max);
        self.next.rows = self.rows_max;
    }

    /// Makes chunks of up to `rows_max` rows again.
    pub fn reset(&mut self, rows_max: usize) {
        self.is_memory_short = false;
        self.rows_max = rows_max;
        self.next.rows = rows_max;
    }

    /// Returns whether the next chunk may wait for memory, which it does once.
    pub fn may_wait(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    /// Notes that a chunk was answered: the next one may wait again.
    pub fn note_answered(&mut self) {
        self.has_waited = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_grow_up_to_the_most_rows() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, None);
        let rows: Vec<usize> = (0..3).map(|_| sizing.grow().rows).collect();
        assert_eq!(rows, [250, 1000, 1000]);
        assert_eq!(sizing.grow().batches, CHUNK_BATCHES_MAX);
    }

    #[test]
    fn under_a_limit_the_first_chunk_has_a_few_batches() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, Some(10));
        let sizes: Vec<ChunkSize> = (0..3).map(|_| sizing.grow()).collect();
        assert_eq!(
            sizes.iter().map(|s| s.rows).collect::<Vec<_>>(),
            [40, 160, 640]
        );
        assert_eq!(
            sizes.iter().map(|s| s.batches).collect::<Vec<_>>(),
            [4, 16, 64]
        );
    }

    #[test]
    fn chunks_that_have_no_room_are_halved_until_the_host_answers() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, None);
        assert!(sizing.halve(300) && sizing.is_memory_short());
        assert_eq!((sizing.grow().rows, sizing.grow().rows), (150, 150));
        assert!(sizing.halve(100));
        assert_eq!(sizing.grow().rows, CHUNK_ROWS_MIN);
        assert!(!sizing.halve(CHUNK_ROWS_MIN));
        sizing.reset(1000);
        assert!(!sizing.is_memory_short());
        assert_eq!(sizing.grow().rows, 1000);
    }

    #[test]
    fn a_chunk_waits_for_memory_once() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, None);
        assert!(sizing.may_wait() && !sizing.may_wait());
        sizing.note_answered();
        assert!(sizing.may_wait());
    }
}
