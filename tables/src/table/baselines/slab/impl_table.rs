//! The slab hash as a [`Table`] of distinct keys: a batch that does not fit is taken back.
//!
//! ```text
//!  items ─search─▶ old values ─replace─▶ done
//!                                 └ no room ─▶ old values back, new keys deleted, flush: as it was
//!                                                └ again, if that dropped deleted entries
//!                                                └ or all items into a larger table
//! ```
//!
//! Whether a batch fits depends on which lists its keys go to, so room cannot be counted beforehand
//! as in linear probing; and copying the table, as tables of buckets do, would cost a copy of the
//! whole pool for every batch. The old values cost a search per key, before each insertion, and 12
//! bytes. A batch that did not fit costs a [`flush`](SlabHash::flush) besides, as its slabs must go
//! back.

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::{
    ATTEMPTS, Answers, Items, MISS, Statistics, Table, WhenFull, enough, read_pairs,
};
use crate::table::baselines::batch::{Batch, Kind};
use crate::table::primitives::word;

use super::layout::{MAX_BLOCKS, PoolLayout};
use super::table::{SlabConfig, SlabHash};

/// Any 32-bit keys to values up to [`MAX_VALUE`](crate::table::baselines::slab::MAX_VALUE); in a
/// table of keys, keys up to [`MAX_KEY`](crate::table::baselines::slab::MAX_KEY), each its own
/// value.
///
/// * A lookup of an absent key reads a whole list: keep [`SlabConfig::slabs_per_bucket`] below 1.
/// * The number of buckets never changes while items fit: a table that has outgrown its
///   [`with_room`](Self::with_room) many times over has long lists.
/// * Of a key that is given more than once, any value counts.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::table::baselines::slab::{SlabConfig, SlabHash};
/// use horton_tables::table::{Items, Table};
///
/// # fn main() -> horton_tables::Result<()> {
/// let found = Device::open("auto")?.run_blocking(|queue| {
///     let keys = queue.buffer_from("keys", &[7, 3, 9])?;
///     let items = Items { keys: &keys, values: None };
///     let mut table = SlabHash::build(queue, &SlabConfig::default(), items)?;
///     assert_eq!(table.insert_pairs(queue, &[9, 5], &[90, 50])?, 1); // 9 was there
///     assert_eq!(table.remove_many(queue, &[7, 8])?, 1);
///     table.lookup_many(queue, &[3, 5, 7, 9])
/// })?;
/// assert_eq!(found.value, [Some(1), Some(50), None, Some(90)]);
/// # Ok(())
/// # }
/// ```
impl Table for SlabHash {
    type Config = SlabConfig;

    fn build(queue: &mut Queue, config: &SlabConfig, items: Items<'_>) -> Result<Self> {
        let mut table = Self::with_room(queue, config, items.count()?)?;
        table.insert(queue, items)?;
        Ok(table)
    }

    fn insert(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        let n = items.count()?;
        if n == 0 {
            return Ok(0);
        }
        let before = self.len;
        let cluttered = self.removed > 0;
        let mut rejected = self.replace_all_or_none(queue, items)?;
        if !rejected.is_empty() && cluttered {
            rejected = self.replace_all_or_none(queue, items)?;
        }
        match self.config.when_full {
            _ if rejected.is_empty() => {}
            WhenFull::Grow => *self = self.grown(queue, items)?,
            WhenFull::Reject => return Err(self.rejected(rejected)),
        }
        Ok(self.len - before)
    }

    fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: &Answers,
        n: usize,
    ) -> Result<()> {
        enough("answers", answers.found.len(), n)?;
        self.search(queue, keys, &answers.values, n)?;
        word::mark_found(queue, &self.program(queue), answers, n)
    }

    /// Removes as [`Table::remove`] does; of a key with several instances, one is removed each time
    /// it is given.
    fn remove(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        self.delete(queue, keys, n)
    }

    fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of entries that there is memory for, in base slabs and in the pool as it
    /// is.
    fn capacity(&self) -> usize {
        let slabs = self.layout.buckets as usize + self.pool.layout().slabs();
        slabs * self.layout.entries.per_slab()
    }

    /// Returns the statistics. A lookup reads slabs: 1 for an item in a base slab, 2 for one in the
    /// slab behind it, and so on.
    fn statistics(&self, queue: &mut Queue) -> Result<Statistics> {
        let reads = self.reads_of_hits(queue)? as f64;
        Ok(Statistics {
            items: self.len,
            capacity: self.capacity(),
            bytes: self.bytes(),
            reads_per_hit: reads / self.len.max(1) as f64,
        })
    }

    fn items(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
        let pairs = self.pairs(queue)?;
        read_pairs(queue, pairs)
    }
}

/// The values that take a batch back: its keys' values from before, and the memory to do it with.
struct Undo<'a> {
    keys: &'a Buffer<u32>,
    before: Answers,
    after: Buffer<u32>,
}

impl<'a> Undo<'a> {
    fn new(table: &SlabHash, queue: &mut Queue, keys: &'a Buffer<u32>) -> Result<Self> {
        let n = keys.len();
        let undo = Self {
            keys,
            before: Answers::with_room(queue, n)?,
            after: queue.allocate("what a batch left", n)?,
        };
        table.lookup(queue, keys, &undo.before, n)?;
        Ok(undo)
    }

    /// Puts the old values back, deletes the others and gives their slabs back; returns the keys
    /// that had no room.
    fn run(self, table: &mut SlabHash, queue: &mut Queue) -> Result<Vec<u32>> {
        let n = self.keys.len();
        table.search(queue, self.keys, &self.after, n)?;
        let keys = queue.read(self.keys, n)?;
        let after = queue.read(&self.after, n)?;
        let missing = keys.into_iter().zip(after).filter(|(_, v)| *v == MISS);
        let mut rejected: Vec<u32> = missing.map(|(key, _)| key).collect();
        rejected.sort_unstable();
        rejected.dedup();
        let kinds = queue.read(&self.before.found, n)?.into_iter();
        let kinds: Vec<u32> = kinds
            .map(|found| match found {
                0 => Kind::Delete as u32,
                _ => Kind::Replace as u32,
            })
            .collect();
        queue.upload(&self.before.found, 0, &kinds)?;
        let batch = Batch {
            kinds: &self.before.found,
            keys: self.keys,
            values: &self.before.values,
        };
        table.apply(queue, batch, &self.after)?;
        table.flush(queue)?;
        Ok(rejected)
    }
}

impl SlabHash {
    /// Replaces every item; if some find no room (or cannot be stored), none. Returns the keys
    /// without room.
    fn replace_all_or_none(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<Vec<u32>> {
        let undo = Undo::new(self, queue, items.keys)?;
        let Err(error) = self.replace(queue, items) else {
            return Ok(Vec::new());
        };
        let rejected = undo.run(self, queue)?;
        match error {
            Error::NoRoom { .. } => Ok(rejected),
            other => Err(other),
        }
    }

    fn rejected(&self, keys: Vec<u32>) -> Error {
        Error::Rejected {
            keys,
            len: self.len,
            capacity: self.capacity(),
        }
    }

    /// Returns a table with all items of this one and those, and with buckets for as many.
    fn grown(&self, queue: &mut Queue, items: Items<'_>) -> Result<Self> {
        let (keys, values) = self.pairs(queue)?;
        let old = Items {
            keys: &keys,
            values: Some(&values),
        };
        let mut config = self.config;
        config.pool = self.pool.layout();
        for _ in 0..ATTEMPTS {
            config.pool = larger(config.pool);
            let wanted = self.len + items.keys.len();
            let mut table = Self::with_room(queue, &config, wanted)?;
            let fits = match table.insert_instances(queue, old) {
                Ok(_) => table.replace(queue, items),
                full => full,
            };
            match fits {
                Ok(_) => return Ok(table),
                Err(Error::NoRoom { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(self.rejected(Vec::new()))
    }
}

/// Returns a pool of twice the size, unless there is none.
fn larger(pool: PoolLayout) -> PoolLayout {
    if pool.blocks < MAX_BLOCKS {
        PoolLayout {
            blocks: 2 * pool.blocks,
            ..pool
        }
    } else {
        PoolLayout {
            super_blocks: pool.super_blocks + 1,
            ..pool
        }
    }
}
