//! Shape of a linear-probing table; with `table/primitives/word.rs` the counterpart of
//! `cl/baselines/linear/table.cl`.
//!
//! ```text
//!  slot i = words[i], i in 0..capacity, capacity a power of two
//!  home(key) = top bits of jenkins(key ^ seed);  probe: home, home + 1, … modulo capacity
//! ```
//!
//! A Simple GPU Hash Table, section "Lock Free Hash Table": a power of two makes wrapping an
//! AND. The home slot is taken from the hash's *top* bits (the source takes the lowest), so that
//! slots are in hash order: a rehash then reads and writes in order, and splitting items by
//! ranges of slots is splitting them by hash.

use crate::error::{Error, Result};
use crate::table::primitives::hash::primary_bucket;

/// The largest table: 2^31 slots, 16 GiB.
pub const MAX_CAPACITY: usize = 1 << 31;

/// One slot of 32 stays without an item: every probe must end at an empty slot before long. It is
/// the highest load that the source measures (31 · 2^22 keys in 2^27 slots).
const SPARE_SHARE: usize = 32;

/// The slot that a deletion leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deletion {
    /// The key, without a value: it keeps its slot for ever, and operations of all kinds may run
    /// side by side (A Simple GPU Hash Table).
    KeepsKey,
    /// A tombstone that any later insertion may take: insertions and deletions must not run side
    /// by side (Reusing Deleted Slots), so a batch runs its insertions before its deletions.
    LeavesTombstone,
}

impl Deletion {
    /// Both kinds of deletion.
    pub const ALL: [Deletion; 2] = [Deletion::KeepsKey, Deletion::LeavesTombstone];
}

/// Shape and seed of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearLayout {
    /// Slots, a power of two up to [`MAX_CAPACITY`].
    pub capacity: usize,
    /// Slots that deletions leave.
    pub deletion: Deletion,
    /// Seed of the hash function.
    pub seed: u32,
}

impl LinearLayout {
    /// Returns the layout of a table of at least `slots` slots.
    ///
    /// # Errors
    /// [`Error::Invalid`] over [`MAX_CAPACITY`].
    pub fn new(slots: usize, deletion: Deletion, seed: u32) -> Result<Self> {
        match slots.max(1).checked_next_power_of_two() {
            Some(capacity) if capacity <= MAX_CAPACITY => Ok(Self {
                capacity,
                deletion,
                seed,
            }),
            _ => Err(Error::Invalid(format!(
                "a linear-probing table of {slots} slots is over the limit of {MAX_CAPACITY}"
            ))),
        }
    }

    /// Returns the number of slots for `items` items at a load factor, of which there are
    /// [`room`](Self::room) enough.
    pub fn slots_for(items: usize, load_factor: f64) -> usize {
        let slots = (items as f64 / load_factor).ceil() as usize;
        slots.max(items + items / (SPARE_SHARE - 1) + 1)
    }

    /// Returns the number of items that there is room for while probes are to end: at 31 of 32
    /// slots, a miss reads 500, in a full table all of them.
    pub fn room(&self) -> usize {
        self.capacity - self.capacity.div_ceil(SPARE_SHARE)
    }

    /// Returns the mask that a slot number is and-ed with.
    pub fn mask(&self) -> usize {
        self.capacity - 1
    }

    /// Returns the slot where a key is looked for first.
    pub fn home(&self, key: u32) -> usize {
        primary_bucket(key, self.seed, self.capacity as u32) as usize
    }

    /// Returns the number of slots that a probe for `key` passes before it comes to `slot`: the
    /// probe length.
    pub fn distance(&self, key: u32, slot: usize) -> usize {
        slot.wrapping_sub(self.home(key)) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_powers_of_two() {
        for (asked, given) in [(0, 1), (1, 1), (3, 4), (1 << 20, 1 << 20)] {
            let layout = LinearLayout::new(asked, Deletion::KeepsKey, 0).unwrap();
            assert_eq!(layout.capacity, given);
            assert!((0..100).all(|key| layout.home(key) < given));
        }
        assert!(LinearLayout::new(MAX_CAPACITY + 1, Deletion::KeepsKey, 0).is_err());
    }

    #[test]
    fn slots_have_room_for_their_items() {
        for items in (0..200).chain([992, 993, 1 << 20]) {
            for load_factor in [0.1, 0.5, 31.0 / 32.0, 1.0] {
                let slots = LinearLayout::slots_for(items, load_factor);
                let layout = LinearLayout::new(slots, Deletion::KeepsKey, 0).unwrap();
                assert!(layout.room() >= items && layout.room() < layout.capacity);
                assert!(items as f64 <= layout.capacity as f64 * load_factor);
            }
        }
    }

    #[test]
    fn distances_wrap() {
        let layout = LinearLayout::new(4, Deletion::KeepsKey, 0).unwrap();
        let key = (0..).find(|k| layout.home(*k) == 3).unwrap();
        assert_eq!(layout.distance(key, 1), 2);
    }
}
