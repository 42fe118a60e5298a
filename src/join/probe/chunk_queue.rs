//! The chunks of the streams of a join: sent, answered, and put out.
//!
//! ```text
//!  stream 0 ─ send ─┐                                  ┌─ piece ─▶ stream 0
//!  stream 1 ─ send ─┼▶ [in flight] [in flight] ─ split ┼─ piece ─▶ stream 2
//!  stream 2 ─ send ─┘     any stream polls the first   └─ piece ─▶ stream 1
//! ```
//!
//! A device wants many keys at once, and a chunk's rows can take long to come out: an aggregate
//! above the join may need a microsecond for each. If all rows of a chunk came out of the stream
//! that sent it, a few streams would still work when all others have ended. So where streams share
//! the rows of the probe side, they share the chunks as well. An answered one is split into pieces
//! of about a batch, and each stream takes the next piece.
//!
//! No stream waits for another, as any may be left in the middle of a poll. Who polls a chunk in
//! flight puts it back before the poll ends. The answer wakes all who wait.
//!
//! A stream with a probe partition of its own has a queue of its own, from which chunks come in
//! order and whole.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::device::Answer;
use crate::error::Result;
use crate::join::lookup::result::LookupResult;
use crate::join::waiting::Waiting;

use super::chunk::Chunk;
use super::send::LookupInFlight;

/// The chunks of one stream, or of all streams that share a probe side.
pub struct ChunkQueue {
    streams: usize,
    chunks: Mutex<Chunks>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Chunks {
    /// Chunks that are not answered, first to last.
    in_flight: VecDeque<LookupInFlight>,
    /// True while a stream polls the first of them, which is not among them then.
    is_polled: bool,
    /// Pieces of answered chunks.
    pieces: VecDeque<Chunk>,
}

impl Chunks {
    fn in_flight(&self) -> usize {
        self.in_flight.len() + usize::from(self.is_polled)
    }
}

/// What comes next of a queue.
pub enum Queued {
    /// A piece of a chunk that was answered before.
    Piece(Chunk),
    /// A chunk in flight, and its answer.
    Answered(LookupInFlight, Result<Answer<LookupResult>>),
    /// Nothing is on its way.
    Nothing,
}

impl ChunkQueue {
    /// Returns the queue of so many streams.
    pub fn new(streams: usize) -> Self {
        Self {
            streams,
            chunks: Mutex::default(),
            waiting: Arc::default(),
        }
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Returns whether several streams take from it.
    pub fn is_shared(&self) -> bool {
        self.streams > 1
    }

    /// Returns whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        let chunks = self.chunks();
        chunks.in_flight() == 0 && chunks.pieces.is_empty()
    }

    /// Returns how many chunks are not answered.
    pub fn in_flight(&self) -> usize {
        self.chunks().in_flight()
    }

    /// Returns whether all streams have something to put out.
    pub fn has_enough(&self) -> bool {
        self.is_shared() && self.chunks().pieces.len() >= self.streams
    }

    /// Adds a chunk that was sent.
    pub fn send(&self, lookup: LookupInFlight) {
        self.chunks().in_flight.push_back(lookup);
        self.waiting.wake_all();
    }

    /// Adds pieces of an answered chunk.
    pub fn put(&self, pieces: impl Iterator<Item = Chunk>) {
        self.chunks().pieces.extend(pieces);
        self.waiting.wake_all();
    }

    /// Returns the chunks in flight, which the caller sends again. Those that streams share stay:
    /// the order does not matter for them.
    pub fn take_in_flight(&self) -> VecDeque<LookupInFlight> {
        if self.is_shared() {
            return VecDeque::new();
        }
        std::mem::take(&mut self.chunks().in_flight)
    }

    /// Lets go of all chunks of a stream with a queue of its own.
    pub fn clear(&self) {
        if !self.is_shared() {
            let chunks = std::mem::take(&mut *self.chunks());
            drop(chunks);
        }
    }

    /// Returns what comes next, for stream `stream`.
    pub fn poll_next(&self, stream: usize, cx: &mut Context<'_>) -> Poll<Queued> {
        // Before the look: whatever changes then wakes those that are noted.
        self.waiting.note(stream, cx.waker());
        let mut chunks = self.chunks();
        if let Some(mut piece) = chunks.pieces.pop_front() {
            drop(chunks);
            self.waiting.forget(stream);
            piece.began = Instant::now();
            return Poll::Ready(Queued::Piece(piece));
        }
        if chunks.is_polled {
            return Poll::Pending;
        }
        let Some(lookup) = chunks.in_flight.pop_front() else {
            drop(chunks);
            self.waiting.forget(stream);
            return Poll::Ready(Queued::Nothing);
        };
        chunks.is_polled = true;
        drop(chunks);
        self.poll_first(stream, lookup)
    }

    /// Polls the chunk that was the first one in flight, without the lock: a host that looks keys
    /// up in the device's place may take its time.
    fn poll_first(&self, stream: usize, mut lookup: LookupInFlight) -> Poll<Queued> {
        let wakes = self.waiting.wakes();
        let waker = Waker::from(Arc::clone(&self.waiting));
        let poll = || {
            lookup
                .answer
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
        };
        let answer = catch_unwind(AssertUnwindSafe(poll));
        let mut chunks = self.chunks();
        chunks.is_polled = false;
        if let Ok(Poll::Pending) = answer {
            chunks.in_flight.push_front(lookup);
            drop(chunks);
            // A wake in the meantime did not reach those that were noted after it.
            if self.waiting.wakes() != wakes {
                self.waiting.wake_all();
            }
            return Poll::Pending;
        }
        drop(chunks);
        self.waiting.forget(stream);
        self.waiting.wake_all();
        match answer {
            Ok(answer) => answer.map(|answer| Queued::Answered(lookup, answer)),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
