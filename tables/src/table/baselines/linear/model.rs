//! Linear probing in plain Rust over the same words as the device buffer: a test oracle.
//!
//! ```text
//!  [ a ][ x ][ k ][ · ]     `check`: no empty slot between a key's home and its slot,
//!    ▲ home of k            and no key twice
//! ```
//!
//! A Simple GPU Hash Table, sections "Insertion", "Lookups", "Deletion"; Reusing Deleted Slots.
//! The two deletions differ as they do in `cl/baselines/linear/table.cl`.

use std::collections::HashSet;

use crate::table::primitives::word::{
    DELETED, EMPTY_WORD, MAX_VALUE, TOMBSTONE, is_live, key_of, live_value, value_of, word_of,
};

use super::layout::{Deletion, LinearLayout};

/// The content of a table's slots, and the distances of items from their homes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProbeLengths {
    /// Number of items.
    pub items: u64,
    /// Slots of deleted keys.
    pub deleted: u64,
    /// Probe lengths of all items, added up. An item in its home slot has probe length 0.
    pub sum: u64,
    /// The longest probe.
    pub max: u64,
}

impl ProbeLengths {
    /// Returns the mean probe length of an item; 0 without items.
    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.items.max(1) as f64
    }
}

/// A linear-probing table in host memory.
#[derive(Debug, Clone)]
pub struct LinearModel {
    /// Shape and seed.
    pub layout: LinearLayout,
    /// The slots: `layout.capacity` words.
    pub words: Vec<u64>,
}

impl LinearModel {
    /// Returns a table without items.
    pub fn empty(layout: LinearLayout) -> Self {
        let words = vec![EMPTY_WORD; layout.capacity];
        Self { layout, words }
    }

    /// Returns the slots that a probe for `key` visits, in order.
    fn probe(&self, key: u32) -> impl Iterator<Item = usize> + use<> {
        let layout = self.layout;
        (0..layout.capacity).map(move |i| (layout.home(key) + i) & layout.mask())
    }

    /// Returns the slot of a key, live or deleted; `Err` with the first slot that an insertion may
    /// take.
    fn slot_of(&self, key: u32) -> Result<usize, Option<usize>> {
        let mut free = None;
        for slot in self.probe(key) {
            let word = self.words[slot];
            if word == EMPTY_WORD {
                return Err(free.or(Some(slot)));
            }
            match self.layout.deletion {
                Deletion::KeepsKey if key_of(word) == key => return Ok(slot),
                Deletion::LeavesTombstone if !is_live(word) => free = free.or(Some(slot)),
                Deletion::LeavesTombstone if key_of(word) == key => return Ok(slot),
                _ => {}
            }
        }
        Err(free)
    }

    /// Stores a pair; the value it replaces.
    ///
    /// # Errors
    /// If there is no slot for a new key.
    pub fn insert(&mut self, key: u32, value: u32) -> Result<Option<u32>, String> {
        assert!(value <= MAX_VALUE, "value {value} is reserved");
        let slot = match self.slot_of(key) {
            Ok(slot) | Err(Some(slot)) => slot,
            Err(None) => return Err(format!("no slot for key {key}")),
        };
        let before = std::mem::replace(&mut self.words[slot], word_of(key, value));
        Ok(is_live(before).then(|| value_of(before)))
    }

    /// Returns the value of `key`.
    pub fn lookup(&self, key: u32) -> Option<u32> {
        let word = self.words[self.slot_of(key).ok()?];
        is_live(word).then(|| live_value(word))
    }

    /// Removes a key; its value.
    pub fn remove(&mut self, key: u32) -> Option<u32> {
        let slot = self.slot_of(key).ok()?;
        let left = match self.layout.deletion {
            Deletion::KeepsKey => word_of(key, DELETED),
            Deletion::LeavesTombstone => TOMBSTONE,
        };
        let before = std::mem::replace(&mut self.words[slot], left);
        is_live(before).then(|| value_of(before))
    }

    /// Empties the deleted slots that no item's probe passes.
    pub fn sweep(&mut self) {
        let mut passed = HashSet::new();
        for (slot, word) in self.words.iter().enumerate() {
            if is_live(*word) {
                passed.extend(self.probe(key_of(*word)).take_while(|s| *s != slot));
            }
        }
        for slot in 0..self.layout.capacity {
            if self.words[slot] == TOMBSTONE && !passed.contains(&slot) {
                self.words[slot] = EMPTY_WORD;
            }
        }
    }

    /// Returns all items, in the order of their slots.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let live = self.words.iter().filter(|word| is_live(**word));
        live.map(|word| (key_of(*word), value_of(*word))).collect()
    }

    /// Returns the items, deleted slots and probe lengths.
    pub fn probe_lengths(&self) -> ProbeLengths {
        let mut found = ProbeLengths::default();
        for (slot, word) in self.words.iter().enumerate() {
            if is_live(*word) {
                let length = self.layout.distance(key_of(*word), slot) as u64;
                found.items += 1;
                found.sum += length;
                found.max = found.max.max(length);
            } else if *word != EMPTY_WORD {
                found.deleted += 1;
            }
        }
        found
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first violation: a key twice, a key that no probe reaches, or a word that is nothing.
    pub fn check(&self) -> Result<(), String> {
        let mut keys = HashSet::new();
        for (slot, word) in self.words.iter().enumerate() {
            let keeps_key = self.layout.deletion == Deletion::KeepsKey;
            let is_keyed = is_live(*word) || (keeps_key && *word != EMPTY_WORD);
            if !is_keyed {
                if *word != EMPTY_WORD && *word != TOMBSTONE {
                    return Err(format!("slot {slot} holds {word:#x}, which is nothing"));
                }
                continue;
            }
            let key = key_of(*word);
            if !is_live(*word) && value_of(*word) != DELETED {
                return Err(format!("slot {slot} has a reserved value: {word:#x}"));
            }
            if !keys.insert(key) {
                return Err(format!("key {key} is in the table twice"));
            }
            let mut passed = self.probe(key).take_while(|passed| *passed != slot);
            if let Some(empty) = passed.find(|passed| self.words[*passed] == EMPTY_WORD) {
                return Err(format!(
                    "key {key} stands in slot {slot}, but its probe ends at the empty slot {empty}"
                ));
            }
        }
        Ok(())
    }
}
