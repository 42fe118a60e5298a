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
//! * `range`: by ranges of hashed keys in local memory, as a rule
//! * `sort`: by a radix sort, where keys have many rows: a hot key costs there what any other
//!   key costs

mod range;
mod sort;

use crate::device::program::ProgramText;
use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};

use super::horton::MAX_VALUE;

/// Rows by group, on the device.
#[derive(Debug)]
pub struct Groups {
    /// The distinct keys, in no order; one a group.
    pub unique_keys: Buffer<u32>,
    /// `groups + 1` positions in `rows`.
    pub offsets: Buffer<u32>,
    /// Rows, group after group, ascending within each.
    pub rows: Buffer<u32>,
}

impl Groups {
    /// Room for so many groups of so many rows, the last offset set.
    fn allocate(queue: &mut Queue, groups: usize, rows: usize) -> Result<Self> {
        let allocated = Self {
            unique_keys: queue.allocate("unique keys", groups)?,
            offsets: queue.allocate("group offsets", groups + 1)?,
            rows: queue.allocate("rows by group", rows)?,
        };
        queue.upload(&allocated.offsets, groups, &[rows as u32])?;
        Ok(allocated)
    }
}

/// Groups `keys`; `rows` are their row numbers, ascending and at most [`MAX_VALUE`] (without them, their
/// positions). Only the low `key_bits` bits of the keys may be set.
///
/// # Errors
/// [`Error::TooManyRows`], [`Error::DeviceMemory`] and OpenCL's own.
pub fn group(
    queue: &mut Queue,
    keys: &Buffer<u32>,
    rows: Option<&Buffer<u32>>,
    key_bits: u32,
) -> Result<Groups> {
    let (n, limit) = (keys.len(), MAX_VALUE as usize);
    if n > limit {
        return Err(Error::TooManyRows { rows: n, limit });
    }
    match range::group(queue, keys, rows) {
        Ok(Some(groups)) => Ok(groups),
        // The sort needs less memory, too.
        Ok(None) | Err(Error::DeviceMemory { .. }) => sort::group(queue, keys, rows, key_bits),
        Err(error) => Err(error),
    }
}

/// Every grouping program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    range::programs().chain(sort::programs())
}
