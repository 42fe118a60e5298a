//! The sizes of the chunks of one probe stream.
//!
//! ```text
//!  two batches ─▶ 4 times as many ─▶ … ─▶ rows_max
//!     ▲                 │ its rows took 40 ms on the host
//!     └── rows of 10 ms ┘
//!  the device has no room for a chunk of n rows ─▶ n / 2 ─▶ … ─▶ CHUNK_ROWS_MIN, then the host
//!  the host answers now ─▶ rows_max again
//! ```
//!
//! The first chunk is small, so that the device has work while the second one is gathered. Under a
//! LIMIT the first rows may be all that is wanted.
//!
//! All rows of a chunk come out of the stream that gathered it. Where an aggregate above takes a
//! microsecond for each row, a stream with a million rows would go on for a second after the others
//! have ended. So a chunk has no more rows than the stream and what is above it take in a short
//! time. The device looks small chunks up faster than that.

use std::time::Duration;

/// Output batches that have as many rows as the first chunk. Under a LIMIT it has no more batches,
/// either.
const FIRST_BATCHES: usize = 2;

/// The time in which the rows of a chunk are to come out of the stream. What a device spends on a
/// chunk regardless of its rows is a hundredth of it.
const OUTPUT_TIME: Duration = Duration::from_millis(10);

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
    /// Rows of the first chunk. No chunk has fewer because of the time that rows take.
    first_rows: usize,
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
    /// bytes. Output batches have `batch_rows` rows. `is_limited` says whether the join has a LIMIT.
    pub fn new(rows_max: usize, bytes_max: usize, batch_rows: usize, is_limited: bool) -> Self {
        let first_rows = rows_max
            .min(batch_rows.saturating_mul(FIRST_BATCHES))
            .max(1);
        Self {
            rows_max,
            first_rows,
            bytes_max,
            last_batch_bytes: 0,
            next: ChunkSize {
                rows: first_rows,
                batches: if is_limited {
                    FIRST_BATCHES
                } else {
                    CHUNK_BATCHES_MAX
                },
            },
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

    /// Notes that a chunk of `rows` rows was put out in `time`: the next one has at most as many as
    /// come out in [`OUTPUT_TIME`].
    pub fn note_output(&mut self, rows: usize, time: Duration) {
        let in_time = rows as u128 * OUTPUT_TIME.as_nanos() / time.as_nanos().max(1);
        let in_time = usize::try_from(in_time).unwrap_or(usize::MAX);
        self.next.rows = self.next.rows.min(in_time.max(self.first_rows));
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

    fn sizes(sizing: &mut ChunkSizing) -> [(usize, usize); 3] {
        [(); 3].map(|()| {
            let size = sizing.grow();
            (size.rows, size.batches)
        })
    }

    #[test]
    fn chunks_grow_up_to_the_most_rows() {
        let mut sizing = ChunkSizing::new(100, 1 << 20, 10, false);
        let batches = CHUNK_BATCHES_MAX;
        let grown = [(20, batches), (80, batches), (100, batches)];
        assert_eq!(sizes(&mut sizing), grown);
    }

    #[test]
    fn under_a_limit_the_first_chunk_has_a_few_batches() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, 10, true);
        assert_eq!(sizes(&mut sizing), [(20, 2), (80, 8), (320, 32)]);
    }

    #[test]
    fn chunks_have_as_many_rows_as_come_out_in_time() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, 10, false);
        assert_eq!(sizing.grow().rows, 20);
        sizing.note_output(20, OUTPUT_TIME / 100);
        assert_eq!(sizing.grow().rows, 80);
        sizing.note_output(80, OUTPUT_TIME * 2);
        assert_eq!(sizing.grow().rows, 40);
        sizing.note_output(40, OUTPUT_TIME * 40);
        assert_eq!(sizing.grow().rows, 20);
        sizing.note_output(20, Duration::ZERO);
        assert_eq!(sizing.grow().rows, 80);
    }

    #[test]
    fn chunks_that_have_no_room_are_halved_until_the_host_answers() {
        let mut sizing = ChunkSizing::new(1000, 1 << 20, 1000, false);
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
        let mut sizing = ChunkSizing::new(1000, 1 << 20, 1000, false);
        assert!(sizing.may_wait() && !sizing.may_wait());
        sizing.note_answered();
        assert!(sizing.may_wait());
    }
}
