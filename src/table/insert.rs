//! Bulk insert into tables of buckets: what does not depend on how items are placed.
//!
//! ```text
//!  items ─distinct─▶ insert_distinct ─▶ done
//!                       └ full ─▶ the table as it was | a larger one with everything
//! ```

use std::collections::HashSet;

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};

use super::Items;
use super::distinct::Distinct;
use super::horton::build::ATTEMPTS;
use super::horton::layout::{EMPTY_WORD, Layout, key_of, value_of};
use super::{Table, WhenFull};

/// What came of inserting items with distinct keys.
pub(super) enum Insertion {
    /// So many keys were new.
    Done(usize),
    /// The table is as it was.
    Full(Full),
}

/// Items that do not all fit.
pub(super) struct Full {
    /// Keys that were to be inserted.
    pub fresh: Buffer<u32>,
    /// Keys for which no slot was found, as far as it was tried; perhaps keys that were there before,
    /// whose slots others took.
    pub left: Vec<u32>,
    /// Items too many.
    pub count: usize,
    /// Items that the table would have.
    pub wanted: usize,
}

impl Full {
    /// The `count` keys that find no room: those left, and the last others in the stead of keys that
    /// were there before and stay.
    fn rejected(&self, queue: &mut Queue) -> Result<Vec<u32>> {
        let fresh = queue.read(&self.fresh, self.fresh.len())?;
        let left: HashSet<u32> = self.left.iter().copied().collect();
        let (mut keys, others): (Vec<u32>, Vec<u32>) =
            fresh.into_iter().partition(|key| left.contains(key));
        keys.extend(others.into_iter().rev());
        keys.truncate(self.count);
        keys.sort_unstable();
        Ok(keys)
    }
}

/// How a full table grows.
pub(super) struct Growth {
    pub when_full: WhenFull,
    /// Items per slot that a larger table is made for.
    pub load_factor: f64,
}

/// A table of buckets.
pub(super) trait Buckets: Table {
    fn layout(&self) -> Layout;
    fn growth(&self) -> Growth;
    /// Whether the item is there whose word is that of an empty slot.
    fn has_twin(&self) -> bool;
    /// A table of another shape without items in its buckets, otherwise like this one.
    fn empty_like(&self, queue: &mut Queue, layout: Layout) -> Result<Self>;
    /// Inserts or updates items with distinct keys.
    fn insert_distinct(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<Insertion>;
    /// Keys and values of all items in buckets.
    fn extract(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)>;
}

/// [`Table::insert`].
pub(super) fn insert<T: Buckets>(
    table: &mut T,
    queue: &mut Queue,
    items: Items<'_>,
) -> Result<usize> {
    if items.count()? == 0 {
        return Ok(0);
    }
    let distinct = Distinct::new(queue, items)?;
    match table.insert_distinct(queue, distinct.items())? {
        Insertion::Done(new) => Ok(new),
        Insertion::Full(full) if table.growth().when_full == WhenFull::Reject => {
            Err(rejected(table, full.rejected(queue)?))
        }
        Insertion::Full(full) => {
            let (larger, new) = grown(table, queue, distinct.items(), full)?;
            *table = larger;
            Ok(new)
        }
    }
}

/// [`Table::items`].
pub(super) fn items<T: Buckets>(table: &T, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
    let (keys, values) = table.extract(queue)?;
    let n = keys.len();
    let (keys, values) = (queue.read(&keys, n)?, queue.read(&values, n)?);
    let twin = table
        .has_twin()
        .then_some((key_of(EMPTY_WORD), value_of(EMPTY_WORD)));
    Ok(keys.into_iter().zip(values).chain(twin).collect())
}

/// A table with room for the items of `table` and those that were too many; and how many were new.
fn grown<T: Buckets>(
    table: &T,
    queue: &mut Queue,
    items: Items<'_>,
    mut full: Full,
) -> Result<(T, usize)> {
    let wanted = full.wanted;
    let (keys, values) = table.extract(queue)?;
    let old = Items {
        keys: &keys,
        values: Some(&values),
    };
    for attempt in 1..=ATTEMPTS {
        let layout = grown_layout(table, wanted, attempt)?;
        let mut larger = table.empty_like(queue, layout)?;
        if let Insertion::Full(_) = larger.insert_distinct(queue, old)? {
            continue;
        }
        match larger.insert_distinct(queue, items)? {
            Insertion::Done(new) => return Ok((larger, new)),
            Insertion::Full(again) => full = again,
        }
    }
    Err(rejected(table, full.rejected(queue)?))
}

/// More buckets: an eighth more each attempt, and as many as the load factor wants.
fn grown_layout<T: Buckets>(table: &T, wanted: usize, attempt: usize) -> Result<Layout> {
    let layout = table.layout();
    let wanted_slots = wanted as f64 / table.growth().load_factor;
    let asked = (wanted_slots / layout.slots() as f64).ceil() as usize;
    let buckets = layout.buckets as usize;
    let least = (buckets + buckets / 8 + 1).max(asked);
    let buckets = least + least / 8 * (attempt - 1);
    let step = 0x9e37_79b9_u32.wrapping_mul(attempt as u32);
    Ok(Layout {
        buckets: u32::try_from(buckets)
            .map_err(|_| Error::Invalid(format!("{wanted} keys need more than 2^32 buckets")))?,
        seed: layout.seed.wrapping_add(step),
        ..layout
    })
}

fn rejected<T: Buckets>(table: &T, keys: Vec<u32>) -> Error {
    Error::Rejected {
        keys,
        len: table.len(),
        capacity: table.capacity(),
    }
}
