//! Items of a table of buckets: where they are, new values for them, taking them out; the host side
//! of `cl/baselines/updates/items.cl`.
//!
//! ```text
//!  keys ─locate─▶ places ─store─▶ present: new values in place; fresh: to be inserted
//!                        └erase─▶ empty slots
//!  table ─extract─▶ keys, values
//! ```
//!
//! Horton and cuckoo tables share it. Nothing here moves an item.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::Items;
use crate::table::launch::{elements_per_item, grid_of, local_group};
use crate::table::primitives::bucket::Layout;

/// The numbers that `store` and `erase` count; counterpart of the defines in
/// `cl/baselines/updates/items.cl`.
#[derive(Clone, Copy)]
enum Found {
    Fresh = 0,
    Cleared = 1,
    Wide = 2,
    Sentinel = 3,
    SentinelKey = 4,
    Erased = 5,
}

/// Counters in all.
const FOUND: usize = 6;

/// A table, and the program that has `cl/baselines/updates/items.cl` in it.
pub(crate) struct ItemsOf<'a> {
    pub program: &'a ProgramText,
    pub layout: Layout,
    pub words: &'a Buffer<u64>,
}

/// The result of storing items.
pub(crate) struct Stored {
    /// Items that must be inserted.
    pub keys: Buffer<u32>,
    pub values: Buffer<u32>,
    /// Items that left their slot for good, or to be inserted again.
    pub cleared: usize,
    /// True if some value is not one of a join's table.
    pub wide: bool,
    /// True if the item whose word is that of an empty slot was among them.
    pub sentinel: bool,
    /// True if another item with its key was.
    pub sentinel_key: bool,
}

/// The result of erasing keys.
pub(crate) struct Erased {
    pub count: usize,
    /// True if the key of an empty slot's word was among them.
    pub sentinel_key: bool,
}

impl ItemsOf<'_> {
    /// Returns the word index of each of the first `n` keys plus one, 0 for those that are not
    /// there.
    fn locate(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Buffer<u64>> {
        let places = queue.allocate("places of keys", n)?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(keys),
            Arg::Longs(&places),
            Arg::U32(n as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        queue.launch(self.program, "locate", grid_of(n), &args)?;
        Ok(places)
    }

    /// Gives items that are there their new values; keys are distinct.
    pub fn store(&self, queue: &mut Queue, items: Items<'_>) -> Result<Stored> {
        let n = items.keys.len();
        let places = self.locate(queue, items.keys, n)?;
        let (mut keys, mut values, counters) = self.compact(queue, n)?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Longs(&places),
            Arg::Words(&keys),
            Arg::Words(&values),
            Arg::Words(&counters),
            Arg::U32(n as u32),
        ];
        queue.launch(self.program, "store", strided(queue, n), &args)?;
        let counts = queue.read(&counters, FOUND)?;
        let count = |found: Found| counts[found as usize] as usize;
        keys.truncate(count(Found::Fresh));
        values.truncate(count(Found::Fresh));
        Ok(Stored {
            keys,
            values,
            cleared: count(Found::Cleared),
            wide: count(Found::Wide) > 0,
            sentinel: count(Found::Sentinel) > 0,
            sentinel_key: count(Found::SentinelKey) > 0,
        })
    }

    /// Empties the slots of the first `n` keys, which may repeat.
    pub fn erase(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Erased> {
        let places = self.locate(queue, keys, n)?;
        let counters = queue.buffer_from("counters", &[0; FOUND])?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(keys),
            Arg::Longs(&places),
            Arg::Words(&counters),
            Arg::U32(n as u32),
        ];
        queue.launch(self.program, "erase", strided(queue, n), &args)?;
        let counts = queue.read(&counters, FOUND)?;
        Ok(Erased {
            count: counts[Found::Erased as usize] as usize,
            sentinel_key: counts[Found::Sentinel as usize] > 0,
        })
    }

    /// Returns all `len` items: keys and values, in no order.
    pub fn extract(&self, queue: &mut Queue, len: usize) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let (keys, values, counters) = self.compact(queue, len)?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(&keys),
            Arg::Words(&values),
            Arg::Words(&counters),
            Arg::U32(self.layout.buckets),
        ];
        let grid = strided(queue, self.layout.words());
        queue.launch(self.program, "extract", grid, &args)?;
        Ok((keys, values))
    }

    /// Returns room for `n` items, and counters.
    fn compact(
        &self,
        queue: &mut Queue,
        n: usize,
    ) -> Result<(Buffer<u32>, Buffer<u32>, Buffer<u32>)> {
        Ok((
            queue.allocate("keys to insert", n)?,
            queue.allocate("values to insert", n)?,
            queue.buffer_from("counters", &[0; FOUND])?,
        ))
    }
}

/// Checks that there are `n` keys, and that 32 bits can count them.
pub(crate) fn check_keys(keys: &Buffer<u32>, n: usize) -> Result<()> {
    if keys.len() < n || n > u32::MAX as usize {
        Err(Error::Invalid(format!(
            "{n} keys (at most 2^32 - 1) from a buffer of {}",
            keys.len()
        )))
    } else {
        Ok(())
    }
}

/// Returns the launch size of work-groups that stride over `n` elements.
pub(crate) fn strided(queue: &Queue, n: usize) -> (usize, usize) {
    let group = local_group(queue);
    let per_item = elements_per_item(queue.info(), n).div_ceil(group);
    (n.div_ceil(per_item * group) * group, group)
}
