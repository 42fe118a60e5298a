//! The 64-bit word of a key and its value in tables that change; the counterpart of
//! `cl/primitives/word.cl`.
//!
//! ```text
//!  63          32 31          0
//!  [    value    |     key    ]     live: value <= MAX_VALUE
//!  [   DELETED   |     key    ]     deleted, the key stays (linear probing, section "Deletion")
//!  [   DELETED   |  all ones  ]     TOMBSTONE: deleted, the slot belongs to nobody
//!  [  all ones   |  all ones  ]     EMPTY_WORD: never used
//! ```
//!
//! `cl/primitives/word.cl` has two more kernels, by which the host side checks values: one finds
//! those that are no [`MISS`], the other one counts those that cannot be stored.
//!
//! One compare-and-swap publishes key and value together, so that nobody sees one without the
//! other. The sources reserve a key for "empty" (and another for "deleted"); two *values* are
//! reserved here instead, so that all 2^32 keys can be stored. The value half encodes the state of
//! the slot.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::{Answers, MISS};
use crate::table::launch::GROUP;

/// The largest value that can be stored.
pub const MAX_VALUE: u32 = u32::MAX - 2;

/// Value half of a deleted word; as an answer it means that there was no room.
pub const DELETED: u32 = u32::MAX - 1;

/// A slot that was never used.
pub const EMPTY_WORD: u64 = u64::MAX;

/// A slot whose item was deleted.
pub const TOMBSTONE: u64 = word_of(u32::MAX, DELETED);

/// Returns the word of `key` and `value`.
pub const fn word_of(key: u32, value: u32) -> u64 {
    (value as u64) << 32 | key as u64
}

/// Returns the key of a word.
pub const fn key_of(word: u64) -> u32 {
    word as u32
}

/// Returns the value of a word.
pub const fn value_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns whether the word is an item.
pub const fn is_live(word: u64) -> bool {
    value_of(word) <= MAX_VALUE
}

/// Returns the value of an item, or [`MISS`].
pub(crate) const fn live_value(word: u64) -> u32 {
    if is_live(word) { value_of(word) } else { MISS }
}

/// Returns the constants as defines for `cl/primitives/word.cl`.
pub(crate) fn defines(peek_volatile: bool) -> Vec<(&'static str, String)> {
    vec![
        ("MISS", format!("{MISS:#x}u")),
        ("MAX_VALUE", format!("{MAX_VALUE:#x}u")),
        ("DELETED", format!("{DELETED:#x}u")),
        ("EMPTY_WORD", format!("{EMPTY_WORD:#x}ul")),
        ("TOMBSTONE", format!("{TOMBSTONE:#x}ul")),
        ("PEEK_VOLATILE", u8::from(peek_volatile).to_string()),
    ]
}

/// Says of the first `n` values, which a lookup left, whether they were found. `program` has
/// `cl/primitives/word.cl` in it.
pub(crate) fn mark_found(
    queue: &mut Queue,
    program: &ProgramText,
    answers: &Answers,
    n: usize,
) -> Result<()> {
    let args = [
        Arg::Words(&answers.values),
        Arg::Words(&answers.found),
        Arg::U32(n as u32),
    ];
    queue.launch(program, "mark_found", (n, GROUP), &args)
}

/// Refuses values that cannot be stored. `program` has `cl/primitives/word.cl` in it.
pub(crate) fn check_values(
    queue: &mut Queue,
    program: &ProgramText,
    values: &Buffer<u32>,
) -> Result<()> {
    let n = values.len();
    let count = queue.buffer_from("values over the largest", &[0])?;
    let args = [Arg::Words(values), Arg::Words(&count), Arg::U32(n as u32)];
    queue.launch(program, "count_invalid", (n, GROUP), &args)?;
    match queue.read(&count, 1)?[0] as usize {
        0 => Ok(()),
        invalid => Err(too_large(invalid, n)),
    }
}

/// Returns the error for values over [`MAX_VALUE`].
pub(crate) fn too_large(invalid: usize, n: usize) -> Error {
    Error::Invalid(format!(
        "{invalid} of {n} values are over the limit of {MAX_VALUE}"
    ))
}
