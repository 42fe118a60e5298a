//! Linear probing as a [`Table`]: room is made sure of before a slot changes.
//!
//! ```text
//!  n items ─ n slots to spare? ─yes──────────────────────────────────────────▶ put
//!               └no─ n new keys at most, how many really? ─there is room──────▶ put
//!                       │              └ with deleted keys dropped ─rehash────▶ put
//!                       └ no room ─▶ the table as it was | a larger one ──────▶ put
//! ```
//!
//! A probe finds every slot there is, so an insertion has no room if and only if slots run out.
//! Counting keys beforehand is enough: nothing ever needs to be undone. (Tables of buckets work on
//! a copy, as their items find room or not; a slab hash undoes.) Counting costs a pass over the
//! table, grouping the batch's keys and looking them up. It is done only where the table has fewer
//! slots to spare than the batch has items. The table counts as full with a slot in 32 empty:
//! without empty slots each lookup that misses would read all slots.

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::{Answers, Items, MISS, Statistics, Table, WhenFull, enough, read_pairs};
use crate::table::baselines::linear::kernels;
use crate::table::primitives::distinct::Distinct;
use crate::table::primitives::{scan, word};

use super::layout::{Deletion, LinearLayout};
use super::table::{LinearConfig, LinearTable};

/// Any 32-bit keys to values up to [`MAX_VALUE`](crate::table::baselines::linear::MAX_VALUE).
///
/// * Needs twice the memory of other tables at its load factor of 0.5, and slows down as it fills:
///   see [`probe_lengths`](Self::probe_lengths).
/// * With [`Deletion::KeepsKey`], room of deleted keys comes back only when the table is short of
///   it: then an insertion rehashes all.
/// * Of a key that is given more than once, any value counts.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::table::baselines::linear::{Deletion, LinearConfig, LinearTable};
/// use horton_tables::table::{Items, Table};
///
/// # fn main() -> horton_tables::Result<()> {
/// let found = Device::open("auto")?.run_blocking(|queue| {
///     let deletion = Deletion::LeavesTombstone;
///     let config = LinearConfig { deletion, ..LinearConfig::default() };
///     let keys = queue.buffer_from("keys", &[7, 3, 9])?;
///     let mut table = LinearTable::build(queue, &config, Items { keys: &keys, values: None })?;
///     assert_eq!(table.insert_pairs(queue, &[9, 5], &[90, 50])?, 1); // 9 was there
///     assert_eq!(table.remove_many(queue, &[7, 8])?, 1);
///     // Values have two numbers less than keys.
///     assert!(table.insert_pairs(queue, &[1, 2], &[10, u32::MAX]).is_err());
///     table.lookup_many(queue, &[1, 3, 5, 7, 9])
/// })?;
/// assert_eq!(found.value, [None, Some(1), Some(50), None, Some(90)]);
/// # Ok(())
/// # }
/// ```
impl Table for LinearTable {
    type Config = LinearConfig;

    /// Builds a table as [`Table::build`] does; the load factor is that of `config` or less.
    fn build(queue: &mut Queue, config: &LinearConfig, items: Items<'_>) -> Result<Self> {
        if !(config.load_factor > 0.0 && config.load_factor <= 1.0) {
            return Err(Error::Invalid(format!(
                "invalid load_factor {}: expected a number in (0, 1]",
                config.load_factor
            )));
        }
        let slots = LinearLayout::slots_for(items.count()?, config.load_factor);
        let mut table = Self::with_capacity(queue, config, slots.max(config.min_capacity))?;
        table.put(queue, items)?;
        Ok(table)
    }

    fn insert(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        if items.count()? == 0 {
            return Ok(0);
        }
        if let Some(values) = items.values {
            let program = kernels::program(queue, self.layout.deletion);
            word::check_values(queue, &program, values)?;
        }
        self.make_room(queue, items)?;
        Ok(self.put(queue, items)?.new)
    }

    fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: &Answers,
        n: usize,
    ) -> Result<()> {
        enough("answers", answers.found.len(), n)?;
        LinearTable::lookup(self, queue, keys, &answers.values, n)?;
        let program = kernels::program(queue, self.layout.deletion);
        word::mark_found(queue, &program, answers, n)
    }

    fn remove(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        self.take(queue, keys, n)
    }

    fn len(&self) -> usize {
        self.len
    }

    /// Returns 31 of 32 slots. ([`put`](Self::put) fills all.)
    fn capacity(&self) -> usize {
        self.layout.room()
    }

    /// Returns items divided by slots, in 0..=1.
    fn load_factor(&self) -> f64 {
        self.len as f64 / self.layout.capacity as f64
    }

    /// Returns the statistics. A lookup reads slots, not buckets: 1 + the mean [probe
    /// length](Self::probe_lengths).
    fn statistics(&self, queue: &mut Queue) -> Result<Statistics> {
        let lengths = self.probe_lengths(queue)?;
        Ok(Statistics {
            items: self.len,
            capacity: self.capacity(),
            bytes: self.bytes(),
            reads_per_hit: match self.len {
                0 => 0.0,
                _ => 1.0 + lengths.mean(),
            },
        })
    }

    fn items(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>> {
        let pairs = self.pairs(queue)?;
        read_pairs(queue, pairs)
    }
}

impl LinearTable {
    /// Returns whether so many new keys find a slot, for all that is known.
    fn has_room(&self, new: usize) -> bool {
        let kept = match self.layout.deletion {
            Deletion::KeepsKey => self.removed,
            Deletion::LeavesTombstone => 0,
        };
        self.len + kept + new <= self.layout.room()
    }

    /// Makes room for `items`, or fails and leaves the items as they are.
    fn make_room(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<()> {
        if self.has_room(items.keys.len()) {
            return Ok(());
        }
        // Deleted keys that came back took their own slots again.
        self.removed = self.probe_lengths(queue)?.deleted as usize;
        let distinct = Distinct::new(queue, items)?;
        let n = distinct.keys.len();
        let answers = Answers::with_room(queue, n)?;
        Table::lookup(self, queue, &distinct.keys, &answers, n)?;
        let new = n - sum(queue, &answers.found, n)?;
        let (wanted, room) = (self.len + new, self.layout.room());
        if self.has_room(new) {
            Ok(())
        } else if wanted <= room {
            self.rehash(queue, self.layout.capacity)
        } else if self.config.when_full == WhenFull::Grow {
            let slots = LinearLayout::slots_for(wanted, self.config.load_factor);
            self.rehash(queue, slots)
        } else {
            Err(Error::Rejected {
                keys: last_new_keys(queue, (&distinct, &answers), wanted - room)?,
                len: self.len,
                capacity: room,
            })
        }
    }
}

/// Returns the last `count` of the keys that were not found, in order.
fn last_new_keys(
    queue: &mut Queue,
    (distinct, answers): (&Distinct, &Answers),
    count: usize,
) -> Result<Vec<u32>> {
    let n = distinct.keys.len();
    let keys = queue.read(&distinct.keys, n)?;
    let values = queue.read(&answers.values, n)?;
    let new = keys
        .into_iter()
        .zip(values)
        .filter(|(_, value)| *value == MISS);
    let mut keys: Vec<u32> = new.rev().take(count).map(|(key, _)| key).collect();
    keys.sort_unstable();
    Ok(keys)
}

/// Returns the first `n` of some numbers added up; they are gone afterwards.
fn sum(queue: &mut Queue, numbers: &Buffer<u32>, n: usize) -> Result<usize> {
    let mut last = [0, 0];
    let Some(at) = n.checked_sub(1) else {
        return Ok(0);
    };
    queue.download(numbers, at, &mut last[..1])?;
    scan::exclusive(queue, numbers, n)?;
    queue.download(numbers, at, &mut last[1..])?;
    Ok(last[0] as usize + last[1] as usize)
}
