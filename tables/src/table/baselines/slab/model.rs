//! The slab hash in plain Rust over the same words as the device buffers: a test oracle.
//!
//! ```text
//!  base   [slab of bucket 0][slab of bucket 1] …      pool   super blocks: bitmaps, slabs
//!  check  every list ends, every slab is in one list or free, no slab is both or neither
//! ```
//!
//! Slab hash paper, sections III-B and IV-C, operation by operation.

use std::collections::HashSet;

use crate::table::primitives::word::{DELETED, MAX_VALUE};

use super::layout::{
    Entries, LINK, MAX_KEY, NO_SLAB, PoolLayout, SLAB_WORDS, SlabCensus, SlabLayout,
};

/// A slab hash in host memory.
#[derive(Debug, Clone)]
pub struct SlabModel {
    /// Shape and seed.
    pub layout: SlabLayout,
    /// Shape of the pool.
    pub pool_layout: PoolLayout,
    /// [`SLAB_WORDS`] words per bucket.
    pub base: Vec<u32>,
    /// The words of every super block.
    pub pool: Vec<Vec<u32>>,
}

/// The place of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slab {
    Base(u32),
    Pool(u32),
}

/// An entry: the slab it is in, and its number there.
type Place = (Slab, usize);

impl SlabModel {
    /// Returns a table without items.
    pub fn empty(layout: SlabLayout, pool_layout: PoolLayout) -> Self {
        Self {
            layout,
            pool_layout,
            base: vec![u32::MAX; layout.buckets as usize * SLAB_WORDS],
            pool: vec![vec![u32::MAX; pool_layout.super_block_words()]; pool_layout.super_blocks],
        }
    }

    fn words(&self, slab: Slab) -> &[u32] {
        match slab {
            Slab::Base(bucket) => &self.base[bucket as usize * SLAB_WORDS..][..SLAB_WORDS],
            Slab::Pool(address) => {
                let (of, place) = self.pool_layout.place(address);
                &self.pool[of][place..][..SLAB_WORDS]
            }
        }
    }

    fn words_mut(&mut self, slab: Slab) -> &mut [u32] {
        match slab {
            Slab::Base(bucket) => &mut self.base[bucket as usize * SLAB_WORDS..][..SLAB_WORDS],
            Slab::Pool(address) => {
                let (of, place) = self.pool_layout.place(address);
                &mut self.pool[of][place..][..SLAB_WORDS]
            }
        }
    }

    /// Returns the slabs of a bucket's list; ends after more than there are.
    fn list(&self, bucket: u32) -> impl Iterator<Item = Slab> + '_ {
        let next = |slab: &Slab| match self.words(*slab)[LINK] {
            NO_SLAB => None,
            address => Some(Slab::Pool(address)),
        };
        std::iter::successors(Some(Slab::Base(bucket)), next).take(self.pool_layout.slabs() + 2)
    }

    fn places(&self, bucket: u32) -> impl Iterator<Item = Place> + '_ {
        let entries = self.layout.entries.per_slab();
        self.list(bucket)
            .flat_map(move |slab| (0..entries).map(move |i| (slab, i)))
    }

    /// Returns the key and value of any entry: empty, deleted or live.
    fn entry(&self, (slab, i): Place) -> (u32, u32) {
        let words = self.words(slab);
        match self.layout.entries {
            Entries::Pairs => (words[2 * i], words[2 * i + 1]),
            Entries::Keys => (words[i], words[i]),
        }
    }

    fn set_entry(&mut self, (slab, i): Place, (key, value): (u32, u32)) {
        let pairs = self.layout.entries == Entries::Pairs;
        let words = self.words_mut(slab);
        if pairs {
            (words[2 * i], words[2 * i + 1]) = (key, value);
        } else {
            words[i] = key;
        }
    }

    fn empty_entry() -> (u32, u32) {
        (u32::MAX, u32::MAX)
    }

    fn deleted_entry(&self) -> (u32, u32) {
        match self.layout.entries {
            Entries::Pairs => (u32::MAX, DELETED),
            Entries::Keys => (DELETED, DELETED),
        }
    }

    /// Returns the item of an entry.
    fn item(&self, place: Place) -> Option<(u32, u32)> {
        let (key, value) = self.entry(place);
        let is_item = match self.layout.entries {
            Entries::Pairs => value <= MAX_VALUE,
            Entries::Keys => key <= MAX_KEY,
        };
        is_item.then_some((key, value))
    }

    fn instances(&self, key: u32) -> impl Iterator<Item = Place> + '_ {
        self.places(self.layout.bucket(key))
            .filter(move |place| self.item(*place).is_some_and(|(k, _)| k == key))
    }

    /// Does SEARCH: returns the first instance's value.
    pub fn search(&self, key: u32) -> Option<u32> {
        let place = self.instances(key).next()?;
        self.item(place).map(|(_, value)| value)
    }

    /// Does SEARCHALL: returns the values of all instances, in the order of the list.
    pub fn search_all(&self, key: u32) -> Vec<u32> {
        let items = self.instances(key).filter_map(|place| self.item(place));
        items.map(|(_, value)| value).collect()
    }

    /// Does INSERT: stores another instance, in the first empty or deleted entry.
    ///
    /// # Errors
    /// If there is no slab for it.
    pub fn insert(&mut self, key: u32, value: u32) -> Result<(), String> {
        let free = [Self::empty_entry(), self.deleted_entry()];
        self.store(key, value, &free)
    }

    /// Does REPLACE: stores in the place of the first instance, else in the first empty entry.
    /// Returns the value replaced.
    ///
    /// # Errors
    /// If there is no slab for it.
    pub fn replace(&mut self, key: u32, value: u32) -> Result<Option<u32>, String> {
        let before = self.search(key);
        let instance = self.instances(key).next();
        match instance {
            Some(place) => self.set_entry(place, (key, value)),
            None => self.store(key, value, &[Self::empty_entry()])?,
        }
        Ok(before)
    }

    fn store(&mut self, key: u32, value: u32, free: &[(u32, u32)]) -> Result<(), String> {
        let bucket = self.layout.bucket(key);
        let place = self
            .places(bucket)
            .find(|place| free.contains(&self.entry(*place)));
        let place = match place {
            Some(place) => place,
            None => (self.extend(bucket)?, 0),
        };
        self.set_entry(place, (key, value));
        Ok(())
    }

    /// Links a new slab to a bucket's list.
    fn extend(&mut self, bucket: u32) -> Result<Slab, String> {
        let address = self.allocate().ok_or("no slab is free")?;
        let last = self.list(bucket).last().ok_or("a bucket has no slab")?;
        self.words_mut(last)[LINK] = address;
        Ok(Slab::Pool(address))
    }

    /// Does DELETE: removes the first instance. Returns its value.
    pub fn delete(&mut self, key: u32) -> Option<u32> {
        let place = self.instances(key).next()?;
        let before = self.item(place).map(|(_, value)| value);
        self.set_entry(place, self.deleted_entry());
        before
    }

    /// Does DELETEALL: removes all instances. Returns how many there were.
    pub fn delete_all(&mut self, key: u32) -> usize {
        std::iter::from_fn(|| self.delete(key)).count()
    }

    /// Does FLUSH: moves all items to the fronts of their lists and gives the slabs behind back.
    pub fn flush(&mut self) {
        for bucket in 0..self.layout.buckets {
            let slabs: Vec<Slab> = self.list(bucket).collect();
            let items = self.places(bucket).filter_map(|place| self.item(place));
            let items: Vec<(u32, u32)> = items.collect();
            let per_slab = self.layout.entries.per_slab();
            let kept = items.len().div_ceil(per_slab).max(1);
            for (n, slab) in slabs.iter().enumerate() {
                for i in 0..per_slab {
                    let item = items.get(n * per_slab + i).copied();
                    self.set_entry((*slab, i), item.unwrap_or(Self::empty_entry()));
                }
                if n + 1 >= kept {
                    self.words_mut(*slab)[LINK] = NO_SLAB;
                }
                if n >= kept
                    && let Slab::Pool(address) = slab
                {
                    self.set_free(*address, true);
                }
            }
        }
    }

    fn is_free(&self, address: u32) -> bool {
        let (of, word, bit) = self.pool_layout.bit(address);
        self.pool[of][word] >> bit & 1 == 1
    }

    fn set_free(&mut self, address: u32, free: bool) {
        let (of, word, bit) = self.pool_layout.bit(address);
        let words = &mut self.pool[of][word];
        *words = *words & !(1 << bit) | u32::from(free) << bit;
    }

    /// Returns the first free slab, which is so no more.
    fn allocate(&mut self) -> Option<u32> {
        let mut addresses = (0..self.pool_layout.slabs()).map(|n| self.pool_layout.address(n));
        let address = addresses.find(|address| self.is_free(*address))?;
        self.set_free(address, false);
        Some(address)
    }

    /// Returns all items, bucket after bucket.
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        (0..self.layout.buckets)
            .flat_map(|bucket| self.places(bucket))
            .filter_map(|place| self.item(place))
            .collect()
    }

    /// Returns the number of slabs that searches for each of the items read, added up.
    pub fn reads_of_hits(&self) -> u64 {
        let entries = 0..self.layout.entries.per_slab();
        let items = |slab: Slab| {
            entries
                .clone()
                .filter(move |i| self.item((slab, *i)).is_some())
        };
        let of_bucket = |bucket| {
            let slabs = self.list(bucket).zip(1u64..);
            slabs.map(|(slab, place)| place * items(slab).count() as u64)
        };
        (0..self.layout.buckets).flat_map(of_bucket).sum()
    }

    /// Returns the numbers of items, deleted entries and slabs in use.
    pub fn census(&self) -> SlabCensus {
        let mut census = SlabCensus::default();
        let deleted = self.deleted_entry();
        for place in (0..self.layout.buckets).flat_map(|bucket| self.places(bucket)) {
            census.items += u64::from(self.item(place).is_some());
            census.deleted += u64::from(self.entry(place) == deleted);
        }
        let numbers = 0..self.pool_layout.slabs();
        let in_use = numbers.filter(|n| !self.is_free(self.pool_layout.address(*n)));
        census.slabs = in_use.count() as u64;
        census
    }

    /// Checks every invariant.
    ///
    /// # Errors
    /// The first violation: a list with a free slab, or with one that is in a list
    /// already; a slab that is lost; a free one that is not empty; an item in a foreign bucket or
    /// behind an empty entry.
    pub fn check(&self) -> Result<(), String> {
        let mut linked = HashSet::new();
        for bucket in 0..self.layout.buckets {
            for slab in self.list(bucket) {
                if let Slab::Pool(address) = slab
                    && (self.is_free(address) || !linked.insert(address))
                {
                    return Err(format!(
                        "slab {address:#x} of bucket {bucket} is free or in a list already"
                    ));
                }
            }
            self.check_entries(bucket)?;
        }
        for address in (0..self.pool_layout.slabs()).map(|n| self.pool_layout.address(n)) {
            let is_free = self.is_free(address);
            if is_free == linked.contains(&address) {
                return Err(format!("slab {address:#x} is in no list, and not free"));
            }
            if is_free
                && self
                    .words(Slab::Pool(address))
                    .iter()
                    .any(|w| *w != u32::MAX)
            {
                return Err(format!("slab {address:#x} is free, but not empty"));
            }
        }
        Ok(())
    }

    fn check_entries(&self, bucket: u32) -> Result<(), String> {
        let mut ended = false;
        for place in self.places(bucket) {
            let entry = self.entry(place);
            ended |= entry == Self::empty_entry();
            if ended && entry != Self::empty_entry() {
                return Err(format!(
                    "{entry:?} stands behind an empty entry of {bucket}"
                ));
            }
            if let Some((key, _)) = self.item(place)
                && self.layout.bucket(key) != bucket
            {
                return Err(format!("key {key} is in bucket {bucket}, not in its own"));
            }
        }
        Ok(())
    }
}
