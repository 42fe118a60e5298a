//! The ways in which the key columns of one equi-join become the keys of a Horton table.
//!
//! The table keeps the paper's format, 32-bit keys, while a join's key is any number of
//! columns of any type. So every row gets a *normalized key* of 32-bit words, in one of three
//! ways. [`KeyEncoder::for_ranges`](encoder::KeyEncoder::for_ranges) chooses one, once the build
//! side is known:
//!
//! ```text
//!            build keys ──▶ minimum, maximum ──▶ Π (max - min + 1) ≤ 2^32? ≤ 2^64?   else
//!                                                  │one word   │two words         │
//!   packed: Σ (key - min) · Π earlier ranges  ◀────┴───────────┘   strings: short?│
//!   padded: that of the other columns, length and bytes of strings  ◀───yes───────┤
//!   hashed: fold32(create_hashes(all key columns)), one word  ◀───────────────────┘
//! ```
//!
//! * *packed*: equal normalized keys mean equal keys. Integers, dates, times, timestamps,
//!   durations, year-month intervals, decimals up to 128 bits and Booleans. A probe value outside
//!   the build side's range cannot match: it has no key, or one that no build row has. Cost: one
//!   pass over the build keys for the ranges; then a subtraction and a multiplication per value.
//!   Two words are told apart on the device ([`crate::table::multimap::multiword`]), at any spread
//!   of the keys.
//! * *padded*: as exact as packed keys, for strings and binary values that take up to 8 words with
//!   all other columns.
//! * *hashed*: longer strings, floats, nested values, wider ranges. Unequal keys may share a
//!   normalized key, at the rate of random 32-bit numbers. So the candidates of a lookup are
//!   compared on their real columns ([`equal_pairs`](verify::equal_pairs)).
//!
//! What counts as equal is what `HashJoinExec` counts as equal: `-0.0` equals `0.0` unless nested,
//! and a NaN equals a NaN of the same bits. NULL is what `logical_nulls` says: the values of a
//! dictionary can be NULL too. NULLs match each other only under [`NullEquality::NullEqualsNull`].
//! Numbering the distinct build keys would make every encoding exact, but takes a hash table on the
//! host: the work that the device is to do.

pub mod encoder;
mod hashed;
mod masks;
pub mod membership;
mod packed;
mod padded;
pub mod selectivity;
pub mod source;
#[cfg(test)]
mod tests;
mod text;
pub mod verify;
