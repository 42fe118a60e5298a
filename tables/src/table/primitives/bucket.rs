//! The words of a Horton table; the counterpart of `cl/primitives/bucket.cl`.
//!
//! ```text
//!  bucket b = words[b·S .. b·S + S]         S = 4, 8 or 16 slots of 64 bits
//!  slot                 = value << 32 | key
//!  empty slot           = EMPTY_WORD
//!  last slot of Type A  : its value's top bit is 0, so values have 31 bits
//!  last slot of Type B  = 1 << 63 | 21 remap entries of 3 bits
//! ```
//!
//! Horton paper, figure 2. With 8 slots, a bucket is one 64-byte cache line. The paper does not say
//! how an empty slot looks: here its value is 2^31 - 1 and its key 2^32 - 1. A join's values are
//! smaller ([`MAX_VALUE`]), so that all 2^32 keys are allowed and a lookup of key 2^32 - 1 compares
//! the whole word. Values of 32 bits are held too. Those with the top bit are never in the last
//! slot of a Type A bucket. The one item whose word is that of an empty slot is kept beside the
//! table: [`HortonTable`](crate::table::horton::HortonTable) and the model have a flag for it.

use std::fmt;

use crate::error::{Error, Result};
use crate::table::api::MISS;

use super::hash::{self, Reduction};

/// Key half of an empty slot. Also a legal key: the value tells them apart.
pub const EMPTY_KEY: u32 = u32::MAX;

/// An empty slot.
pub const EMPTY_WORD: u64 = 0x7fff_ffff << 32 | EMPTY_KEY as u64;

/// The largest value of an item in a join's table, whose lookups answer [`MISS`] for absent keys.
pub const MAX_VALUE: u32 = 0x7fff_fffe;

/// The type bit: set in the last word of a Type B bucket.
pub const TYPE_B: u64 = 1 << 63;

/// Slots per bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BucketSize {
    /// 4 slots, 32 bytes.
    Four,
    /// 8 slots, 64 bytes: one cache line. The default, as in the paper.
    Eight,
    /// 16 slots, 128 bytes.
    Sixteen,
}

impl BucketSize {
    /// All sizes of buckets.
    pub const ALL: [BucketSize; 3] = [BucketSize::Four, BucketSize::Eight, BucketSize::Sixteen];

    /// Returns the number of slots of a bucket.
    pub fn slots(self) -> usize {
        match self {
            BucketSize::Four => 4,
            BucketSize::Eight => 8,
            BucketSize::Sixteen => 16,
        }
    }
}

impl TryFrom<usize> for BucketSize {
    type Error = Error;

    fn try_from(slots: usize) -> Result<Self> {
        BucketSize::ALL
            .into_iter()
            .find(|size| size.slots() == slots)
            .ok_or_else(|| {
                Error::Invalid(format!(
                    "invalid bucket_size {slots}: expected 4, 8 or 16 slots"
                ))
            })
    }
}

impl fmt::Display for BucketSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.slots())
    }
}

/// Shape and seed of one table: what a lookup must know besides the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Slots per bucket.
    pub bucket_size: BucketSize,
    /// Buckets, at least 1.
    pub buckets: u32,
    /// Seed of the hash functions.
    pub seed: u32,
    /// Reduction of hashes to buckets.
    pub reduction: Reduction,
}

impl Layout {
    /// Returns the number of slots of a bucket.
    pub fn slots(&self) -> usize {
        self.bucket_size.slots()
    }

    /// Returns the number of 64-bit words of the table.
    pub fn words(&self) -> usize {
        self.buckets as usize * self.slots()
    }

    /// Returns the facts that programs over this table depend on.
    pub(crate) fn variant(&self, wide: bool) -> Variant {
        Variant {
            bucket_size: self.bucket_size,
            reduction: self.reduction,
            wide,
            cuckoo: false,
        }
    }

    /// Returns the bucket of a key's primary function.
    pub fn primary_bucket(&self, key: u32) -> u32 {
        let hash = hash::primary_hash(key, self.seed);
        self.reduction.reduce(hash, self.buckets)
    }

    /// Returns the index of a key's remap entry.
    pub fn tag_of(&self, key: u32) -> u32 {
        hash::tag_of(key, self.seed)
    }

    /// Returns the bucket that remap entry `entry` of (`bucket`, `tag`) names.
    pub fn secondary_bucket(&self, bucket: u32, tag: u32, entry: u32) -> u32 {
        let hash = hash::secondary_hash(bucket, tag, entry, self.seed);
        self.reduction.reduce(hash, self.buckets)
    }
}

/// Returns the key of a slot.
pub fn key_of(word: u64) -> u32 {
    word as u32
}

/// Returns the value of a slot.
pub fn value_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns the slot that holds `key` and `value`.
pub fn word_of(key: u32, value: u32) -> u64 {
    u64::from(value) << 32 | u64::from(key)
}

/// Returns whether a word may not stand in a Type A bucket's last slot, where it would look like
/// entries.
pub fn is_wide(word: u64) -> bool {
    word & TYPE_B != 0
}

/// Returns whether `last`, a bucket's last word, makes it Type B.
pub fn is_type_b(last: u64) -> bool {
    last & TYPE_B != 0
}

/// Returns the remap entry of `tag` in the last word of a Type B bucket; 0 is unused.
pub fn entry_at(last: u64, tag: u32) -> u32 {
    (last >> (3 * tag)) as u32 & 7
}

/// Returns `last` with the remap entry of `tag` set to `entry`.
pub fn with_entry(last: u64, tag: u32, entry: u32) -> u64 {
    last & !(7 << (3 * tag)) | u64::from(entry) << (3 * tag)
}

/// The facts that a program over buckets depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Variant {
    pub bucket_size: BucketSize,
    pub reduction: Reduction,
    /// True if values have 32 bits; else they have 31, and none is that of an empty slot.
    pub wide: bool,
    /// True if keys have two buckets and buckets no remap entries.
    pub cuckoo: bool,
}

impl From<BucketSize> for Variant {
    fn from(bucket_size: BucketSize) -> Self {
        Self {
            bucket_size,
            reduction: Reduction::MultiplyHigh,
            wide: false,
            cuckoo: false,
        }
    }
}

/// Returns the constants as defines for `cl/primitives/hash.cl` and `cl/primitives/bucket.cl`.
pub(crate) fn defines(variant: Variant, prefetch: bool) -> Vec<(&'static str, String)> {
    let mut defines = hash::defines(variant.reduction);
    defines.extend([
        ("SLOTS", variant.bucket_size.to_string()),
        ("WIDE_VALUES", u8::from(variant.wide).to_string()),
        ("CUCKOO", u8::from(variant.cuckoo).to_string()),
        ("EMPTY_WORD", format!("{EMPTY_WORD:#x}ul")),
        ("EMPTY_KEY", format!("{EMPTY_KEY:#x}u")),
        ("MISS", format!("{MISS:#x}u")),
        ("PREFETCH", u8::from(prefetch).to_string()),
    ]);
    defines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fill_the_63_bits_beside_the_type_bit() {
        let full = (0..hash::TAGS).fold(TYPE_B, |last, tag| with_entry(last, tag, 7));
        assert_eq!(full, u64::MAX);
        assert_eq!(with_entry(full, 20, 0) & TYPE_B, TYPE_B);
        assert_eq!(entry_at(with_entry(TYPE_B, 12, 3), 12), 3);
    }

    #[test]
    fn an_empty_slot_is_no_item_and_not_type_b() {
        assert!(!is_type_b(EMPTY_WORD));
        assert_ne!(word_of(EMPTY_KEY, MAX_VALUE), EMPTY_WORD);
        const { assert!(MAX_VALUE < 1 << 31) };
    }
}
