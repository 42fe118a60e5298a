//! Words, addresses and shape of a slab hash; the counterpart of `cl/baselines/slab/table.cl` and
//! `cl/baselines/slab/alloc.cl`.
//!
//! ```text
//!  slab      32 words of 32 bits:  30 keys, or 15 (key, value) │ auxiliary │ next address
//!  address   [ super block : 8 ][ memory block : 14 ][ unit : 10 ]
//!  pool      super block = a bitmap of 32 words for each memory block, then the slabs
//! ```
//!
//! Slab hash paper, sections IV-B and V, figure 3. A slab is one memory access of a tile of lanes.
//! At most 30 of 32 words are data: 94 % memory utilisation.

use crate::error::{Error, Result};
use crate::table::primitives::hash::primary_bucket;

/// Words of 32 bits in a slab.
pub const SLAB_WORDS: usize = 32;

/// Index of the word with the next slab's address.
pub const LINK: usize = SLAB_WORDS - 1;

/// The link for no slab: that of the last slab of a list. All ones, like everything in an empty
/// slab.
pub const NO_SLAB: u32 = u32::MAX;

/// Slabs of a memory block.
pub const UNITS: usize = 1024;

/// Words of a memory block's bitmap, in which a set bit is a slab that is free.
pub const BITMAP_WORDS: usize = UNITS / 32;

/// The most memory blocks of a super block.
pub const MAX_BLOCKS: usize = 1 << 14;

/// The most super blocks that SlabAlloc may grow to here: each is an argument of every kernel.
pub const MAX_SUPER_BLOCKS: usize = 32;

/// The largest key of a table of keys alone; the two beyond it mean "empty" and "deleted".
pub const MAX_KEY: u32 = u32::MAX - 2;

/// The entries that slabs hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entries {
    /// 15 pairs of a key and a value.
    Pairs,
    /// 30 keys, up to [`MAX_KEY`]; a key's value is the key itself.
    Keys,
}

impl Entries {
    /// Both kinds of entries.
    pub const ALL: [Entries; 2] = [Entries::Pairs, Entries::Keys];

    /// Returns the number of entries of a slab: M of the paper.
    pub fn per_slab(self) -> usize {
        match self {
            Entries::Pairs => 15,
            Entries::Keys => 30,
        }
    }

    /// Returns the number of 32-bit words of an entry.
    pub fn words(self) -> usize {
        match self {
            Entries::Pairs => 2,
            Entries::Keys => 1,
        }
    }
}

/// Shape of the memory that slabs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLayout {
    /// SlabAlloc-light: all super blocks in one buffer, which cannot grow. Otherwise SlabAlloc: a
    /// buffer each.
    pub light: bool,
    /// Number of super blocks.
    pub super_blocks: usize,
    /// Memory blocks of each, a power of two up to [`MAX_BLOCKS`]; each has [`UNITS`] slabs, 128
    /// KiB.
    pub blocks: usize,
}

impl PoolLayout {
    pub(super) fn check(&self) -> Result<()> {
        let limit = if self.light { 255 } else { MAX_SUPER_BLOCKS };
        let blocks = self.blocks.is_power_of_two() && self.blocks <= MAX_BLOCKS;
        if blocks && (1..=limit).contains(&self.super_blocks) {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "a pool has 1 to {limit} super blocks and a power of two of at most {MAX_BLOCKS} \
             memory blocks in each, not {} and {}",
            self.super_blocks, self.blocks
        )))
    }

    /// Returns the number of slabs in all.
    pub fn slabs(&self) -> usize {
        self.super_blocks * self.blocks * UNITS
    }

    /// Returns the number of 32-bit words of a super block.
    pub fn super_block_words(&self) -> usize {
        self.blocks * (BITMAP_WORDS + UNITS * SLAB_WORDS)
    }

    /// Returns the super block and place in it of a slab's first word.
    pub fn place(&self, address: u32) -> (usize, usize) {
        let in_super = (address & 0xff_ffff) as usize;
        let place = self.blocks * BITMAP_WORDS + in_super * SLAB_WORDS;
        ((address >> 24) as usize, place)
    }

    /// Returns the super block, word and bit of a slab in the bitmaps.
    pub fn bit(&self, address: u32) -> (usize, usize, u32) {
        let in_super = address & 0xff_ffff;
        let word = (in_super / 32) as usize;
        ((address >> 24) as usize, word, in_super % 32)
    }

    /// Returns the address of slab `number`, in `0..slabs()`.
    pub fn address(&self, number: usize) -> u32 {
        let per_super = self.blocks * UNITS;
        ((number / per_super) << 24 | (number % per_super)) as u32
    }
}

/// Shape and seed of one slab hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlabLayout {
    /// Entries that slabs hold.
    pub entries: Entries,
    /// Slab lists, each with a base slab.
    pub buckets: u32,
    /// Seed of the hash function.
    pub seed: u32,
}

impl SlabLayout {
    /// Returns the list of a key. (The paper draws ((a·k + b) mod p) mod B; this is the hash of the
    /// other tables here.)
    pub fn bucket(&self, key: u32) -> u32 {
        primary_bucket(key, self.seed, self.buckets)
    }
}

/// The parts that a table is made of, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlabCensus {
    /// Number of items.
    pub items: u64,
    /// Number of deleted entries.
    pub deleted: u64,
    /// Slabs in use, base slabs not counted.
    pub slabs: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_every_slab_once() {
        let layout = PoolLayout {
            light: false,
            super_blocks: 3,
            blocks: 2,
        };
        layout.check().unwrap();
        let mut bits = std::collections::HashSet::new();
        for number in 0..layout.slabs() {
            let address = layout.address(number);
            let (of, place) = layout.place(address);
            assert!(of < 3 && place + SLAB_WORDS <= layout.super_block_words());
            assert!(place >= layout.blocks * BITMAP_WORDS);
            let (same, word, bit) = layout.bit(address);
            assert!(same == of && word < layout.blocks * BITMAP_WORDS);
            assert!(bits.insert((of, word, bit)));
        }
    }

    #[test]
    fn the_largest_pool_leaves_the_special_addresses_free() {
        let layout = PoolLayout {
            light: true,
            super_blocks: 255,
            blocks: MAX_BLOCKS,
        };
        layout.check().unwrap();
        // 0xffff_fffd to 0xffff_ffff are in super block 255.
        assert!(layout.address(layout.slabs() - 1) < 0xff00_0000);
    }
}
