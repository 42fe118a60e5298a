//! The results of a lookup that the device answers, or the host in its place.
//!
//! ```text
//!               ┌ Count    how many pairs
//!  LookupKind ──┤ Visits   nothing: bits of build rows stay with the engine
//!               │ Bits     one bit per key
//!               └ Pairs    a window of pairs, with gathered columns ── PairCursor ─▶ the next
//! ```
//!
//! A semi join needs bits alone, and `count(*)` a total. If every key has one match, the probe rows
//! are 0, 1, 2, … and are not sent. If no key has two, a bit for each says them. Pairs beyond a
//! window wait with the engine until they are asked for, so that a hot key's fan-out takes bounded
//! memory.

use std::fmt::Debug;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use arrow::buffer::{BooleanBuffer, Buffer};
use futures::future::BoxFuture;

use crate::device::{Answer, Staging};
use crate::error::{DeviceError, Result};

use super::columns::GatheredColumns;

/// 32-bit words on their way to or from a lookup.
#[derive(Debug)]
pub enum HostWords {
    /// Staging memory that the device copies them from, or to.
    Staged(Staging<u32>),
    /// The host's own.
    Host(Vec<u32>),
}

impl Deref for HostWords {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            HostWords::Staged(words) => words,
            HostWords::Host(words) => words,
        }
    }
}

impl DerefMut for HostWords {
    fn deref_mut(&mut self) -> &mut [u32] {
        match self {
            HostWords::Staged(words) => words,
            HostWords::Host(words) => words,
        }
    }
}

/// A position in a chunk of probe rows, from which lookups count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkPosition {
    /// Position of a key in the chunk.
    pub key: u32,
    /// Number of that key's first pair.
    pub pair: u64,
}

/// The form in which a lookup brings its matches back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupKind {
    /// The number of pairs.
    Count,
    /// No answer: visited rows are noted, and nothing else.
    Visits,
    /// A bit for each key: whether it has a match.
    Bits,
    /// The pairs, at most `window` at a time.
    Pairs {
        /// Their build rows too, not only gathered columns.
        build_rows: bool,
        /// Pairs of a window; at least two.
        window: usize,
    },
}

impl LookupKind {
    /// Halves a window of more than `least` pairs, to no fewer. Returns whether there was one.
    pub fn halve(&mut self, least: usize) -> bool {
        match self {
            LookupKind::Pairs { window, .. } if *window > least => {
                *window = (*window / 2).max(least);
                true
            }
            _ => false,
        }
    }
}

/// The matches of a lookup. Copies share what was brought back.
#[derive(Debug, Default, Clone)]
pub struct LookupResult {
    /// Keys looked up.
    pub keys: usize,
    /// Buckets read, if the table has buckets.
    pub buckets_read: Option<usize>,
    /// Keys with a match.
    pub matched: u64,
    /// Number of pairs in all.
    pub total: u64,
    /// One bit per key, if wanted.
    pub bits: Option<Arc<HostWords>>,
    /// The first pairs, if wanted.
    pub window: Arc<Window>,
    /// The source of pairs behind that window, if there are any.
    pub rest: Option<Arc<dyn PairCursor>>,
}

/// An engine's pairs of one lookup.
pub trait PairCursor: Debug + Send + Sync {
    /// Returns the window from pair `first` on, of the length that is `wanted`.
    fn window(
        self: Arc<Self>,
        first: u64,
        wanted: LookupKind,
    ) -> BoxFuture<'static, Result<Answer<Window>>>;
}

/// The keys that the pairs of a window are of.
#[derive(Debug, Default)]
pub enum PairKeys {
    /// Pair `i` is of key `i`.
    #[default]
    Each,
    /// Pair `i` is of the key of the bit that is set as the `i`th, of one bit for each key of the
    /// chunk.
    Bits(HostWords),
    /// The position of the key of each pair of the window, ascending.
    Positions(HostWords),
}

/// Returns the bits of the keys at `positions`, of one bit for each key of a chunk.
pub fn bits_at(words: &[u32], positions: &Range<u32>) -> BooleanBuffer {
    let (start, end) = (positions.start as usize, positions.end as usize);
    let (first, last) = (start / 32, end.div_ceil(32));
    let words = Buffer::from_slice_ref(&words[first..last.max(first)]);
    BooleanBuffer::new(words, start % 32, end - start)
}

/// A window of consecutive pairs.
#[derive(Debug, Default)]
pub struct Window {
    /// The first pair's number.
    pub first: u64,
    /// Number of pairs in the window.
    pub len: usize,
    /// The keys that they are of.
    pub keys: PairKeys,
    /// Their build rows, if wanted.
    pub build: Option<HostWords>,
    /// Values of the columns that the table gathers, if there are any.
    pub columns: Option<GatheredColumns>,
}

impl Window {
    /// Returns the number of the first pair after it.
    pub fn end(&self) -> u64 {
        self.first + self.len as u64
    }

    /// Returns the number of the first of its pairs whose key stands at `position` or later; the
    /// end if there is none. The first pair of some key before it is known.
    pub fn first_pair(&self, position: u32, known: ChunkPosition) -> u64 {
        match &self.keys {
            PairKeys::Each => u64::from(position).clamp(self.first, self.end()),
            PairKeys::Bits(words) => {
                let between = bits_at(words, &(known.key..position));
                known.pair + between.count_set_bits() as u64
            }
            PairKeys::Positions(places) => {
                let places = places.get(..self.len).unwrap_or(places);
                self.first + places.partition_point(|place| *place < position) as u64
            }
        }
    }
}

/// Returns the error of asking for a window where no pairs are wanted.
pub fn no_pairs_wanted() -> DeviceError {
    DeviceError::Internal("a window of pairs was asked for where none are wanted".to_owned())
}
