//! Groups of equal keys, made on the device.
//!
//! ```text
//!  keys  7 3 7 3 9      unique keys  3 7 9
//!  rows  0 1 2 3 4 ───▶ offsets      0 2 4 5     rows 1 3 0 2 4
//! ```
//!
//! A cuckoo bucket cannot hold many equal keys, so rows with equal keys stand in a group
//! outside the table and the table maps the key to the group's number. Rows of a group ascend,
//! because a join owes matches in build order.
//!
//! ```text
//!  rows ─▶ hot: keys of thousands of rows, found in a sample ──────────────▶ groups
//!              │ others, unless all of these have one row
//!              ▼
//!          range: by ranges of hashed keys in local memory ────────────────▶ groups
//!              │ rows of crowded ranges
//!              ▼
//!          sort: by a radix sort, the one that takes any keys ─────────────▶ groups
//! ```
//!
//! * [`groups`]: the groups, and how they are put together from parts
//! * `hot`: one pass over all rows, if there are such keys
//! * `range`: two to four times as fast as the sort, but a range must fit local memory
//! * `sort`: a hot key costs there what any other key costs
//! * `pass`: what hot keys, crowded ranges and the sort share, rows by digit
//!
//! So a key with many rows costs what its own rows do, not what all others do. The hot keys could
//! be left to the sort of crowded rows; but then those rows would be moved four times instead of
//! once, and a sort of all rows runs at a third of the rate of unique keys.
//!
//! Scratch: 27 bytes a row; with hot keys 8 more; and for every row of a crowded range 24 more. If
//! that is not to be had, all rows are sorted: 16 bytes a row, and 12 for their groups.

pub mod groups;
mod hot;
mod pass;
mod range;
mod sort;

use crate::device::program::ProgramText;
use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::Items;

use super::bucket::MAX_VALUE;
use super::rows::gather_rows;

pub use groups::{Groups, RowGroups};

use groups::Part;
use hot::{Parted, Sample};
use range::Ranged;
use sort::Sorted;

/// Groups items and has `build` make something of the distinct keys, in the groups' order. The
/// items' values are their row numbers, ascending and at most [`MAX_VALUE`] (without them, their
/// positions). Only the low `key_bits` bits of the keys may be set.
///
/// `build` answers `None` to keys that are not distinct: it is first asked with those that there
/// are if only hot keys repeat.
///
/// # Errors
/// [`Error::TooManyRows`], [`Error::DeviceMemory`], OpenCL's own and those of `build`;
/// [`Error::DuplicateKeys`] if it does not take the distinct keys.
pub fn group<T>(
    queue: &mut Queue,
    items: Items<'_>,
    key_bits: u32,
    build: impl Fn(&mut Queue, &Buffer<u32>) -> Result<Option<T>>,
) -> Result<(T, Groups)> {
    let (built, groups) = grouped(queue, items, key_bits, &build)?;
    let built = match built {
        Some(built) => built,
        None => build(queue, &groups.unique_keys)?.ok_or(Error::DuplicateKeys)?,
    };
    Ok((built, groups))
}

/// Groups items as [`group`] does, and makes nothing of them.
///
/// # Errors
/// [`Error::TooManyRows`], [`Error::DeviceMemory`], OpenCL's own.
pub fn group_only(queue: &mut Queue, items: Items<'_>, key_bits: u32) -> Result<Groups> {
    let (_, groups) = grouped(queue, items, key_bits, &|_, _| Ok(None::<()>))?;
    Ok(groups)
}

/// Groups positions by key; those of a group stand in the order of their `checks`, then their own.
///
/// # Errors
/// [`Error::DeviceMemory`] and OpenCL's own.
pub fn group_by_pairs(
    queue: &mut Queue,
    keys: &Buffer<u32>,
    checks: &Buffer<u32>,
) -> Result<Groups> {
    let order = sort::order(queue, checks)?;
    let keys = gather_rows(queue, (keys, 0), &order, order.len())?;
    let items = Items {
        keys: &keys,
        values: Some(&order),
    };
    by_sort(queue, items, u32::BITS)
}

/// The groups, and what `build` makes of keys of which only hot ones repeat.
fn grouped<T>(
    queue: &mut Queue,
    items: Items<'_>,
    key_bits: u32,
    build: &impl Fn(&mut Queue, &Buffer<u32>) -> Result<Option<T>>,
) -> Result<(Option<T>, Groups)> {
    let (n, limit) = (items.keys.len(), MAX_VALUE as usize);
    if n > limit {
        return Err(Error::TooManyRows { rows: n, limit });
    }
    let grouped = match Sample::take(queue, items.keys)? {
        Sample::None => by_range(queue, items, key_bits, None).map(|groups| (None, groups)),
        Sample::Few(hot) => by_hot_keys(queue, items, key_bits, &hot, build),
        Sample::Many => by_sort(queue, items, key_bits).map(|groups| (None, groups)),
    };
    match grouped {
        // The sort of all rows needs least memory.
        Err(Error::DeviceMemory { .. }) => Ok((None, by_sort(queue, items, key_bits)?)),
        grouped => grouped,
    }
}

/// Groups with `hot` keys among them, and what `build` makes of the keys if only those repeat.
fn by_hot_keys<T>(
    queue: &mut Queue,
    items: Items<'_>,
    key_bits: u32,
    hot: &[u32],
    build: impl Fn(&mut Queue, &Buffer<u32>) -> Result<Option<T>>,
) -> Result<(Option<T>, Groups)> {
    let parted = Parted::new(queue, items, hot)?;
    let (unique_keys, offsets) = parted.single_rows(queue)?;
    if let Some(built) = build(queue, &unique_keys)? {
        let groups = Groups {
            unique_keys,
            offsets,
            rows: parted.rows,
        };
        return Ok((Some(built), groups));
    }
    drop((unique_keys, offsets));
    let rest = Items {
        keys: &parted.rest_keys,
        values: Some(&parted.rows),
    };
    let groups = by_range(queue, rest, key_bits, Some(&parted))?;
    Ok((None, groups))
}

/// Groups of `items`, and of hot keys that were set apart.
fn by_range(
    queue: &mut Queue,
    items: Items<'_>,
    key_bits: u32,
    hot: Option<&Parted>,
) -> Result<Groups> {
    let ranged = Ranged::new(queue, items)?;
    let sorted = match ranged.crowded_rows(queue, items)? {
        Some((keys, rows)) => {
            let crowded = Items {
                keys: &keys,
                values: Some(&rows),
            };
            Some(Sorted::new(queue, crowded, key_bits)?)
        }
        None => None,
    };
    let sorted = sorted.as_ref().map(|sorted| sorted as &dyn Part);
    let hot = hot.map(|parted| parted as &dyn Part);
    Groups::of(queue, &[Some(&ranged), sorted, hot])
}

fn by_sort(queue: &mut Queue, items: Items<'_>, key_bits: u32) -> Result<Groups> {
    let sorted = Sorted::new(queue, items, key_bits)?;
    Groups::of(queue, &[Some(&sorted)])
}

/// So many distinct keys that, if enough of `rows` rows have them, crowd one of the ranges that
/// these are grouped by.
pub(crate) fn crowding_keys(rows: usize, keys: usize) -> Vec<u32> {
    range::crowding_keys(rows, keys)
}

/// Every grouping program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    range::programs()
        .chain(sort::programs())
        .chain(hot::programs())
}
