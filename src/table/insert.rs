//! Bulk insert into tables of buckets: what does not depend on how items are placed.
//!
//! ```text
//!  items ─distinct─▶ insert_distinct ─▶ done
//!                       └ full ─▶ the table as it was | a larger one with everything
//! ```

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
    /// The table is as it was; with these keys it would have `wanted` items.
    Full { keys: Vec<u32>, wanted: usize },
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
        Insertion::Full { keys, .. } if table.growth().when_full == WhenFull::Reject => {
            Err(rejected(table, keys))
        }
        Insertion::Full { wanted, .. } => {
            let (larger, new) = grown(table, queue, distinct.items(), wanted)?;
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

/// A table with the items of `table` and those, with room for `wanted`; and how many were new.
fn grown<T: Buckets>(
    table: &T,
    queue: &mut Queue,
    items: Items<'_>,
    wanted: usize,
) -> Result<(T, usize)> {
    let (keys, values) = table.extract(queue)?;
    let old = Items {
        keys: &keys,
        values: Some(&values),
    };
    let mut left = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let layout = grown_layout(table, wanted, attempt)?;
        let mut larger = table.empty_like(queue, layout)?;
        if let Insertion::Full { keys, .. } = larger.insert_distinct(queue, old)? {
            left = keys;
            continue;
        }
        match larger.insert_distinct(queue, items)? {
            Insertion::Done(new) => return Ok((larger, new)),
            Insertion::Full { keys, .. } => left = keys,
        }
    }
    Err(rejected(table, left))
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

fn rejected<T: Buckets>(table: &T, mut keys: Vec<u32>) -> Error {
    keys.sort_unstable();
    Error::Rejected {
        keys,
        len: table.len(),
        capacity: table.capacity(),
    }
}

/// The last `count` of `keys`.
pub(super) fn last_keys(queue: &mut Queue, keys: &Buffer<u32>, count: usize) -> Result<Vec<u32>> {
    let count = count.min(keys.len());
    let mut out = vec![0; count];
    queue.download(keys, keys.len() - count, &mut out)?;
    Ok(out)
}
