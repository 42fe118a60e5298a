//! What a join builds: any keys, repeating or not, to the rows that have them.
//!
//! ```text
//!  unique keys      table: key ─▶ row
//!  repeating keys   table: key ─▶ group g ─▶ rows[offsets[g] .. offsets[g + 1]]
//! ```
//!
//! Most builds are primary keys, so the table is first built as if keys were unique; the
//! build's own pass over the buckets finds a repeat, and only then are the rows grouped
//! (one pass wasted) and the table built over the distinct keys.

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};

use super::group::group;
use super::horton::build::build;
use super::horton::{Built, HortonTable, Items, MAX_VALUE, TableConfig};

/// Rows by key: what lookups in the table mean.
#[derive(Debug)]
pub enum Rows {
    /// Keys are unique: a lookup's value is the row.
    Unique,
    /// A lookup's value is a group: `rows[offsets[g]..offsets[g + 1]]`, ascending.
    Grouped {
        /// `groups + 1` positions in `rows`, on the host.
        offsets: Vec<u32>,
        /// Rows, group after group, on the host.
        rows: Vec<u32>,
    },
}

/// A device table over any keys, and the rows that its values stand for.
#[derive(Debug)]
pub struct GroupedTable {
    /// Key to row, or key to group.
    pub table: HortonTable,
    /// What the table's values stand for.
    pub rows: Rows,
}

/// The build side's keys on the host.
#[derive(Debug)]
pub struct BuildKeys {
    /// One key a row that can match.
    pub keys: Vec<u32>,
    /// Their row numbers; without them, their positions.
    pub rows: Option<Vec<u32>>,
    /// Bits that a key may have.
    pub bits: u32,
}

impl GroupedTable {
    /// Builds the table on the queue's device.
    ///
    /// # Errors
    /// [`Error::TooManyRows`] over 2^31 - 2 keys; those of [`build`] and [`group`].
    pub fn build(queue: &mut Queue, config: &TableConfig, input: &BuildKeys) -> Result<Self> {
        let n = input.keys.len();
        if n > MAX_VALUE as usize {
            return Err(Error::TooManyRows {
                rows: n,
                limit: MAX_VALUE as usize,
            });
        }
        let keys = queue.buffer_from("build keys", &input.keys)?;
        let rows = match &input.rows {
            Some(rows) => Some(queue.buffer_from("build rows", rows)?),
            None => None,
        };
        let items = Items {
            keys: &keys,
            values: rows.as_ref(),
        };
        match build(queue, config, items)? {
            Built::Table(table) => Ok(Self {
                table,
                rows: Rows::Unique,
            }),
            Built::Repeats => Self::build_groups(queue, config, &keys, rows.as_ref(), input.bits),
        }
    }

    fn build_groups(
        queue: &mut Queue,
        config: &TableConfig,
        keys: &Buffer<u32>,
        rows: Option<&Buffer<u32>>,
        bits: u32,
    ) -> Result<Self> {
        let groups = group(queue, keys, rows, bits)?;
        let items = Items {
            keys: &groups.unique_keys,
            values: None,
        };
        let Built::Table(table) = build(queue, config, items)? else {
            return Err(Error::DuplicateKeys);
        };
        let rows = Rows::Grouped {
            offsets: queue.read(&groups.offsets, groups.offsets.len())?,
            rows: queue.read(&groups.rows, groups.rows.len())?,
        };
        Ok(Self { table, rows })
    }
}
