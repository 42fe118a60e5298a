//! Mixed batches: operations of several kinds in one launch, truly concurrent.
//!
//! ```text
//!  kinds    I   S   D   S   R …
//!  keys     7   7   9   3   7 …     ─▶ one launch ─▶  answers, one per operation
//!  values   1   ·   ·   ·   2 …
//! ```
//!
//! Operations of a batch have no order among themselves: the answers are those of *some* order. An
//! operation that must follow another one on its key belongs in a later batch. A queue runs batches
//! in order. Each table lists the operations that it supports.

use crate::device::Buffer;
use crate::error::{Error, Result};

/// The kind of an operation: what it does, and what it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Kind {
    /// Answers the key's value, or [`MISS`](super::linear::MISS).
    Search = 0,
    /// Stores the pair. In a table of unique keys it replaces, as [`Replace`](Kind::Replace) does;
    /// in a slab hash it adds another instance and answers `MISS`.
    Insert = 1,
    /// Removes the key's first instance; answers its value, or `MISS`.
    Delete = 2,
    /// Stores the pair in the place of the key's first instance, if there is one; answers that
    /// one's value, or `MISS`.
    Replace = 3,
    /// Removes all instances of the key; answers how many.
    DeleteAll = 4,
    /// Answers how many instances of the key there are.
    SearchAll = 5,
}

impl Kind {
    /// All kinds, by code.
    pub const ALL: [Kind; 6] = [
        Kind::Search,
        Kind::Insert,
        Kind::Delete,
        Kind::Replace,
        Kind::DeleteAll,
        Kind::SearchAll,
    ];

    /// Returns the bit of this kind in a set of kinds.
    pub(crate) fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Operations on the device, one per element; all buffers have one length.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Codes of [`Kind`]s.
    pub kinds: &'a Buffer<u32>,
    /// Keys of the operations, one each.
    pub keys: &'a Buffer<u32>,
    /// Values, for the kinds that store one.
    pub values: &'a Buffer<u32>,
}

impl Batch<'_> {
    /// Returns the number of operations, if the buffers agree.
    pub(crate) fn len(&self) -> Result<usize> {
        let n = self.keys.len();
        if self.kinds.len() == n && self.values.len() == n {
            return checked_len(n);
        }
        Err(Error::Invalid(format!(
            "a batch with {} kinds, {n} keys and {} values: expected as many of each",
            self.kinds.len(),
            self.values.len()
        )))
    }
}

/// Returns `n` if it is a number of operations that 32 bits can count.
pub(crate) fn checked_len(n: usize) -> Result<usize> {
    match u32::try_from(n) {
        Ok(_) => Ok(n),
        Err(_) => Err(Error::Invalid(format!(
            "a batch of {n} operations is over the limit of 2^32 - 1: split it"
        ))),
    }
}

/// Returns the kinds as defines.
pub(crate) fn defines() -> Vec<(&'static str, String)> {
    let names = [
        "SEARCH",
        "INSERT",
        "DELETE",
        "REPLACE",
        "DELETE_ALL",
        "SEARCH_ALL",
    ];
    let codes = Kind::ALL.iter().map(|kind| format!("{}u", *kind as u32));
    names.into_iter().zip(codes).collect()
}
