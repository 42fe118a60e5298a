//! The sizes of the chunks of one probe stream.
//!
//! ```text
//!  16 batches ─▶ rows of 10 ms ─▶ rows of 10 ms ─▶ …      from 16 batches up to rows_max, by twos
//!                    ▲ as long as the rows before took to come out; at most 4 times as many
//!  the device has no room for a chunk of n rows ─▶ n / 2 ─▶ … ─▶ CHUNK_ROWS_MIN, then the host
//!  the host answers now ─▶ rows_max again
//! ```
//!
//! All rows of a chunk come out of the stream that gathered it, or of those that share it. Where an
//! aggregate above takes a microsecond for each row, a million rows keep one stream busy for a
//! second after the others have ended. So a chunk beyond the first has no more rows than its
//! streams, and what is above them, take in a short time.
//!
//! Sizes are powers of two times the first, so that blocks of device memory can be used again: they
//! serve their own size alone.
//!
//! Under a LIMIT the first rows may be all that is wanted, so that the first chunk is smaller.
//!
//! A chunk takes a device's driver a third of a millisecond, however few its rows, and many streams
//! make many chunks. So chunks that can be split among the streams grow beyond their size as long
//! as the input is quick. A slow input has the device busy with smaller ones.

use std::time::Duration;

/// Output batches that have as many rows as the first chunk.
const FIRST_BATCHES: usize = 16;

/// The same, and the most batches that it has, under a LIMIT.
const FIRST_BATCHES_OF_LIMIT: usize = 4;

/// Output batches for each of its streams that have as many rows as a chunk of a quick input.
const QUICK_BATCHES: usize = 4;

/// The time in which a quick input gives the rows of such a chunk.
pub const QUICK: Duration = Duration::from_millis(1);

/// The time in which the rows of a chunk are to come out of a stream.
const OUTPUT_TIME: Duration = Duration::from_millis(10);

/// Batches of any chunk, at most: filters leave few rows of each.
const CHUNK_BATCHES_MAX: usize = 1024;

/// The factor by which a chunk is larger than the one before, at most.
const GROWTH: usize = 4;

/// Rows of a chunk that is not split again if the device has no room for it: the host answers.
const CHUNK_ROWS_MIN: usize = 64;

/// Rows and batches of a chunk, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSize {
    /// Rows.
    pub rows: usize,
    /// Rows if the input gives them in [`QUICK`]; at least as many.
    pub quick_rows: usize,
    /// Batches.
    pub batches: usize,
}

/// The use of a stream's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkUse {
    /// The first rows may be all that is wanted.
    Limited,
    /// All rows of a chunk may come out of one stream.
    Whole,
    /// Streams share a chunk's rows.
    Split,
}

/// How large the next chunk of a stream may be.
#[derive(Debug)]
pub struct ChunkSizing {
    /// Rows of any chunk, at most.
    rows_max: usize,
    /// Rows of the first chunk. No chunk has fewer because of the time that rows take.
    first_rows: usize,
    /// Rows of any chunk of a quick input.
    quick_rows: usize,
    /// The time in which the rows of a chunk are to come out of one stream.
    output_time: Duration,
    /// Bytes of a chunk's batches, at most, unless it has one only.
    pub bytes_max: usize,
    /// Bytes of the last batch.
    pub last_batch_bytes: usize,
    /// Rows of the last chunk.
    last_rows: usize,
    next_rows: usize,
    next_batches: usize,
    /// True if the device had no room for a chunk: they are smaller since, and batches are cut.
    is_memory_short: bool,
    /// True if the next chunk has waited for memory.
    has_waited: bool,
}

impl ChunkSizing {
    /// Returns the sizes of chunks of up to `rows_max` rows, whose batches have up to `bytes_max`
    /// bytes. Their rows come out of so many `streams`, in batches of `batch_rows` rows.
    pub fn new(
        (rows_max, bytes_max): (usize, usize),
        batch_rows: usize,
        chunk_use: ChunkUse,
        streams: usize,
    ) -> Self {
        let (first, batches) = match chunk_use {
            ChunkUse::Limited => (FIRST_BATCHES_OF_LIMIT, FIRST_BATCHES_OF_LIMIT),
            ChunkUse::Whole | ChunkUse::Split => (FIRST_BATCHES, CHUNK_BATCHES_MAX),
        };
        let quick = match chunk_use {
            ChunkUse::Limited | ChunkUse::Whole => 0,
            ChunkUse::Split => QUICK_BATCHES.saturating_mul(streams),
        };
        let first_rows = batch_rows.saturating_mul(first).min(rows_max).max(1);
        Self {
            rows_max,
            first_rows,
            quick_rows: batch_rows.saturating_mul(quick),
            output_time: OUTPUT_TIME * u32::try_from(streams).unwrap_or(u32::MAX),
            bytes_max,
            last_batch_bytes: 0,
            last_rows: first_rows,
            next_rows: first_rows,
            next_batches: batches,
            is_memory_short: false,
            has_waited: false,
        }
    }

    /// Returns the size of the next chunk; the one after it may have more batches.
    pub fn next(&mut self) -> ChunkSize {
        let rows = self.next_rows;
        debug_assert!(rows <= self.rows_max.max(1), "{self:?}");
        let batches = self.next_batches;
        self.next_batches = batches.saturating_mul(GROWTH).min(CHUNK_BATCHES_MAX);
        self.last_rows = rows;
        ChunkSize {
            rows,
            quick_rows: self.quick_rows.min(self.rows_max).max(rows),
            batches,
        }
    }

    /// Notes that `rows` rows came out of one stream in `time`: the next chunk has about as many as
    /// its streams put out in [`OUTPUT_TIME`].
    pub fn note_output(&mut self, rows: usize, time: Duration) {
        let in_time = rows as u128 * self.output_time.as_nanos() / time.as_nanos().max(1);
        let in_time = usize::try_from(in_time).unwrap_or(usize::MAX);
        let grown = in_time.min(self.last_rows.saturating_mul(GROWTH));
        let doublings = (grown / self.first_rows).max(1).ilog2();
        self.next_rows = (self.first_rows << doublings).min(self.rows_max).max(1);
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
        self.next_rows = self.rows_max;
    }

    /// Makes chunks of up to `rows_max` rows again.
    pub fn reset(&mut self, rows_max: usize) {
        self.is_memory_short = false;
        self.rows_max = rows_max;
        self.next_rows = rows_max;
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

    /// Chunks of 160 rows and more, of batches of 10.
    fn sizing(rows_max: usize, is_limited: bool, streams: usize) -> ChunkSizing {
        let chunk_use = if is_limited {
            ChunkUse::Limited
        } else {
            ChunkUse::Whole
        };
        ChunkSizing::new((rows_max, 1 << 20), 10, chunk_use, streams)
    }

    #[test]
    fn chunks_have_as_many_rows_as_come_out_in_time() {
        let mut sizing = sizing(4000, false, 1);
        let first = ChunkSize {
            rows: 160,
            quick_rows: 160,
            batches: CHUNK_BATCHES_MAX,
        };
        assert_eq!([sizing.next(), sizing.next()], [first; 2]);
        let after = [
            (160, OUTPUT_TIME / 4, 640),
            (640, OUTPUT_TIME / 3, 1280),
            (1280, OUTPUT_TIME * 2, 640),
            (640, OUTPUT_TIME * 50, 160),
            (160, Duration::ZERO, 640),
            (640, Duration::ZERO, 2560),
            (2560, Duration::ZERO, 4000),
        ];
        for (rows, time, next) in after {
            sizing.note_output(rows, time);
            assert_eq!(sizing.next().rows, next);
        }
    }

    #[test]
    fn chunks_that_streams_share_have_as_many_rows_as_come_out_of_all() {
        let mut sizing = sizing(4000, false, 4);
        sizing.next();
        // Pieces of it: each says how fast rows come out.
        for _ in 0..3 {
            sizing.note_output(20, OUTPUT_TIME / 4);
        }
        assert_eq!(sizing.next().rows, 320);
        sizing.note_output(20, OUTPUT_TIME / 100);
        assert_eq!(sizing.next().rows, 1280);
    }

    #[test]
    fn chunks_of_a_quick_input_have_rows_for_all_streams_that_share_them() {
        let of = |chunk_use, streams| {
            let mut sizing = ChunkSizing::new((1000, 1 << 20), 10, chunk_use, streams);
            let first = sizing.next();
            sizing.halve(100);
            let small = sizing.next();
            [first, small].map(|size| (size.rows, size.quick_rows))
        };
        assert_eq!(of(ChunkUse::Split, 2), [(160, 160), (64, 64)]);
        assert_eq!(of(ChunkUse::Split, 16), [(160, 640), (64, 64)]);
        assert_eq!(of(ChunkUse::Split, 64), [(160, 1000), (64, 64)]);
        assert_eq!(of(ChunkUse::Whole, 16), [(160, 160), (64, 64)]);
        assert_eq!(of(ChunkUse::Limited, 16), [(40, 40), (64, 64)]);
    }

    #[test]
    fn under_a_limit_the_first_chunk_is_smaller() {
        let mut sizing = sizing(1000, true, 1);
        let mut sizes = Vec::new();
        for _ in 0..4 {
            let size = sizing.next();
            sizes.push((size.rows, size.batches));
            sizing.note_output(size.rows, Duration::ZERO);
        }
        assert_eq!(sizes, [(40, 4), (160, 16), (640, 64), (1000, 256)]);
    }

    #[test]
    fn chunks_that_have_no_room_are_halved_until_the_host_answers() {
        let mut sizing = sizing(1000, false, 1);
        assert!(sizing.halve(300) && sizing.is_memory_short());
        sizing.note_output(150, Duration::ZERO);
        assert_eq!((sizing.next().rows, sizing.next().rows), (150, 150));
        assert!(sizing.halve(100));
        assert_eq!(sizing.next().rows, CHUNK_ROWS_MIN);
        assert!(!sizing.halve(CHUNK_ROWS_MIN));
        sizing.reset(1000);
        assert!(!sizing.is_memory_short());
        assert_eq!(sizing.next().rows, 1000);
    }

    #[test]
    fn a_chunk_waits_for_memory_once() {
        let mut sizing = sizing(1000, false, 1);
        assert!(sizing.may_wait() && !sizing.may_wait());
        sizing.note_answered();
        assert!(sizing.may_wait());
    }
}
