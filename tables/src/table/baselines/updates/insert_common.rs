//! Bulk insert into tables of buckets: what does not depend on how items are placed.
//!
//! ```text
//!  items ─distinct─▶ insert_distinct ─▶ done
//!                       └ full ─▶ the table as it was | a larger one with everything
//!
//!  insert_distinct   copy of the table ─store─▶ new values in place
//!                                      ─place─▶ new items ─census─▶ the table
//! ```
//!
//! It works on a copy. So keys without a slot leave the table as it was, and clones of the handle
//! keep what they had.

use std::collections::HashSet;
use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::{ATTEMPTS, Items, Statistics, Table, WhenFull, read_pairs};
use crate::table::primitives::bucket::{EMPTY_WORD, Layout, key_of, value_of};
use crate::table::primitives::distinct::Distinct;

use crate::table::baselines::updates::items::{ItemsOf, Stored};
use crate::table::horton::model::Census;
use crate::table::horton::phases::census;

/// The result of inserting items with distinct keys.
enum Insertion {
    /// Number of keys that were new.
    Done(usize),
    /// The table is as it was.
    Full(Full),
}

/// Items that do not all fit.
struct Full {
    /// Keys that were to be inserted.
    fresh: Buffer<u32>,
    /// Keys for which no slot was found, as far as it was tried; perhaps keys that were there
    /// before, whose slots others took.
    left: Vec<u32>,
    /// Items too many.
    count: usize,
    /// Items that the table would have.
    wanted: usize,
}

impl Full {
    /// Returns the `count` keys that find no room: first those without a slot, then the last new
    /// keys, to make up for keys that were already stored.
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

/// The way in which a full table grows.
pub(crate) struct Growth {
    pub when_full: WhenFull,
    /// Items per slot that a larger table is made for.
    pub load_factor: f64,
}

/// A table of buckets.
pub(crate) trait Buckets: Table {
    /// Name of the kind of table, with its article.
    const NAME: &'static str;
    fn layout(&self) -> Layout;
    fn growth(&self) -> Growth;
    fn census(&self) -> &Census;
    fn words(&self) -> &Arc<Buffer<u64>>;
    /// Returns whether the item is there whose word is that of an empty slot.
    fn has_sentinel_item(&self) -> bool;
    /// Returns a table of another shape without items in its buckets, otherwise like this one.
    fn empty_like(&self, queue: &mut Queue, layout: Layout) -> Result<Self>;
    /// Returns the program that changes such a table, with `cl/baselines/updates/items.cl` and
    /// `cl/horton/census.cl` in it.
    fn program(&self, queue: &Queue) -> ProgramText;
    /// Places items that are not there; returns the keys of those that find no slot.
    fn place(queue: &mut Queue, slots: &ItemsOf<'_>, stored: &Stored) -> Result<Vec<u32>>;
    /// Makes `words` the table's own, into which `stored` has been placed.
    fn take_over(&mut self, words: Buffer<u64>, census: Census, stored: &Stored);
}

/// Returns an array of words without items.
pub(crate) fn empty_words<T: Buckets>(queue: &mut Queue, layout: Layout) -> Result<Buffer<u64>> {
    let words = queue.allocate_table(T::NAME, layout.words())?;
    queue.fill(&words, EMPTY_WORD)?;
    Ok(words)
}

/// Returns a copy of a table's words.
pub(crate) fn copy_of_words<T: Buckets>(table: &T, queue: &mut Queue) -> Result<Buffer<u64>> {
    let words = queue.allocate_table(T::NAME, table.words().len())?;
    queue.copy(table.words(), &words)?;
    Ok(words)
}

/// Returns the keys and values of all items in buckets.
fn extract<T: Buckets>(table: &T, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
    let items = ItemsOf {
        program: &table.program(queue),
        layout: table.layout(),
        words: table.words(),
    };
    items.extract(queue, table.census().items as usize)
}

/// Inserts or updates items with distinct keys.
fn insert_distinct<T: Buckets>(
    table: &mut T,
    queue: &mut Queue,
    items: Items<'_>,
) -> Result<Insertion> {
    let (program, layout) = (table.program(queue), table.layout());
    let words = copy_of_words(table, queue)?;
    let slots = ItemsOf {
        program: &program,
        layout,
        words: &words,
    };
    let stored = slots.store(queue, items)?;
    let wanted = table.census().items as usize - stored.cleared + stored.keys.len();
    let too_many = wanted.saturating_sub(layout.words());
    let left = match too_many {
        0 => T::place(queue, &slots, &stored)?,
        _ => Vec::new(),
    };
    if too_many > 0 || !left.is_empty() {
        return Ok(Insertion::Full(Full {
            fresh: stored.keys,
            count: too_many.max(left.len()),
            left,
            wanted,
        }));
    }
    let census = census(queue, &program, &layout, &words)?;
    if census.items as usize != wanted {
        let what = format!(
            "an insert left {} of {wanted} items in {}",
            census.items,
            T::NAME
        );
        return Err(queue.wrong_answer(what));
    }
    let before = table.len();
    table.take_over(words, census, &stored);
    Ok(Insertion::Done(table.len() - before))
}

/// Does [`Table::insert`].
pub(crate) fn insert<T: Buckets>(
    table: &mut T,
    queue: &mut Queue,
    items: Items<'_>,
) -> Result<usize> {
    if items.count()? == 0 {
        return Ok(0);
    }
    let distinct = Distinct::new(queue, items)?;
    match insert_distinct(table, queue, distinct.items())? {
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

/// Returns [`Table::statistics`].
pub(crate) fn statistics<T: Buckets>(table: &T) -> Statistics {
    let second = f64::from(table.census().secondary);
    Statistics {
        items: table.len(),
        capacity: table.capacity(),
        bytes: table.words().bytes(),
        reads_per_hit: match table.len() {
            0 => 0.0,
            items => 1.0 + second / items as f64,
        },
    }
}

/// Returns [`Table::items`].
pub(crate) fn items<T: Buckets>(table: &T, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
    let pairs = extract(table, queue)?;
    let mut items = read_pairs(queue, pairs)?;
    if table.has_sentinel_item() {
        items.push((key_of(EMPTY_WORD), value_of(EMPTY_WORD)));
    }
    Ok(items)
}

/// Returns a table with room for the items of `table` and those that were too many; and how many
/// were new.
fn grown<T: Buckets>(
    table: &T,
    queue: &mut Queue,
    items: Items<'_>,
    mut full: Full,
) -> Result<(T, usize)> {
    let wanted = full.wanted;
    let (keys, values) = extract(table, queue)?;
    let old = Items {
        keys: &keys,
        values: Some(&values),
    };
    for attempt in 1..=ATTEMPTS {
        let layout = grown_layout(table, wanted, attempt)?;
        let mut larger = table.empty_like(queue, layout)?;
        if let Insertion::Full(_) = insert_distinct(&mut larger, queue, old)? {
            continue;
        }
        match insert_distinct(&mut larger, queue, items)? {
            Insertion::Done(new) => return Ok((larger, new)),
            Insertion::Full(again) => full = again,
        }
    }
    Err(rejected(table, full.rejected(queue)?))
}

/// Returns more buckets: an eighth more each attempt, and as many as the load factor wants.
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
