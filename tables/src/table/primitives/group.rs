//! Groups of equal keys, made on the device; the host side of `cl/primitives/group.cl`.
//!
//! ```text
//!  keys  7 3 7 3 9   sort   3 3 7 7 9   unique keys  3 7 9
//!  rows  0 1 2 3 4  ─────▶  1 3 0 2 4 ─▶ offsets     0 2 4 5
//! ```
//!
//! A cuckoo bucket cannot hold many equal keys. So rows with equal keys stand in a group outside
//! the table, and the table maps the key to the group's number. Rows of a group ascend, because a
//! join promises matches in build order.
//!
//! A radix sort makes the groups: a hot key costs there what any other key costs. Setting hot keys
//! apart and grouping by ranges of hashed keys gains nothing in whole joins
//! (benches/results/grouping-2026-11-25.md). Scratch: 20 bytes per row.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::kernel_sources;
use crate::table::api::Items;
use crate::table::launch::GROUP;

use super::bucket::MAX_VALUE;
use super::rows::gather_rows;
use super::{radix_sort, scan};

/// Rows by group, on the device.
#[derive(Debug)]
pub struct Groups {
    /// The distinct keys, in no order; one per group.
    pub unique_keys: Buffer<u32>,
    /// `groups + 1` positions in `rows`.
    pub offsets: Buffer<u32>,
    /// Rows, group after group, ascending within each.
    pub rows: Buffer<u32>,
}

/// The rows of groups, which are left once a table has their keys.
#[derive(Debug)]
pub struct RowGroups {
    /// `groups + 1` positions in `rows`.
    pub offsets: Buffer<u32>,
    /// Rows, group after group, ascending within each.
    pub rows: Buffer<u32>,
}

impl RowGroups {
    /// Returns the number of groups.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Returns whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes that they take on the device.
    pub fn bytes(&self) -> u64 {
        self.offsets.bytes() + self.rows.bytes()
    }
}

impl From<Groups> for RowGroups {
    fn from(Groups { offsets, rows, .. }: Groups) -> Self {
        Self { offsets, rows }
    }
}

/// Groups items. Their values are row numbers, ascending and at most [`MAX_VALUE`]; without them,
/// positions count. Only the low `key_bits` bits of the keys may be set: fewer bits, fewer passes.
///
/// # Errors
/// [`Error::TooManyRows`], [`Error::DeviceMemory`], OpenCL's own.
pub fn group(queue: &mut Queue, items: Items<'_>, key_bits: u32) -> Result<Groups> {
    let (n, limit) = (items.keys.len(), MAX_VALUE as usize);
    if n > limit {
        return Err(Error::TooManyRows { rows: n, limit });
    }
    let (keys, rows) = radix_sort::sort(queue, items, key_bits)?;
    // One element more than rows: its prefix sum is the number of groups.
    let marks = queue.allocate("group marks", n + 1)?;
    queue.fill(&marks, 0)?;
    let args = [Arg::Words(&keys), Arg::Words(&marks), Arg::U32(n as u32)];
    queue.launch(&text(), "mark_groups", (n, GROUP), &args)?;
    scan::exclusive(queue, &marks, n + 1)?;
    let groups = queue.count((&marks, n), ("groups", n))?;
    let unique_keys = queue.allocate("unique keys", groups)?;
    let offsets = queue.allocate_table("group offsets", groups + 1)?;
    queue.upload(&offsets, groups, &[n as u32])?;
    let args = [
        Arg::Words(&keys),
        Arg::Words(&marks),
        Arg::Words(&unique_keys),
        Arg::Words(&offsets),
        Arg::U32(n as u32),
    ];
    queue.launch(&text(), "collect_groups", (n, GROUP), &args)?;
    Ok(Groups {
        unique_keys,
        offsets,
        rows,
    })
}

/// Groups positions by key. Those of a group stand in the order of their `checks`, then their own.
///
/// # Errors
/// [`Error::DeviceMemory`] and OpenCL's own.
pub fn group_by_pairs(
    queue: &mut Queue,
    keys: &Buffer<u32>,
    checks: &Buffer<u32>,
) -> Result<Groups> {
    let by_check = Items {
        keys: checks,
        values: None,
    };
    let (_, order) = radix_sort::sort(queue, by_check, u32::BITS)?;
    let keys = gather_rows(queue, (keys, 0), &order, order.len())?;
    let items = Items {
        keys: &keys,
        values: Some(&order),
    };
    group(queue, items, u32::BITS)
}

fn text() -> ProgramText {
    ProgramText::new("group", &[], &[kernel_sources::GROUP])
}

/// Returns the programs under the names of files; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [("group".to_owned(), text())]
        .into_iter()
        .chain(radix_sort::programs())
}
