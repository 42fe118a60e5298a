//! The build side's table: keys go up, and rows by group come back down.
//!
//! ```text
//!  SurrogateKeys ─▶ device: GroupedTable ─▶ the table stays there
//!                                       └─▶ groups come back, because batches are
//!                                           gathered on the host
//! ```

use crate::device::Queue;
use crate::error::Result;
use crate::table::grouped::{BuildKeys, GroupedTable};
use crate::table::horton::{HortonTable, TableConfig};

/// The build side's surrogate keys.
#[derive(Debug)]
pub struct SurrogateKeys {
    /// One key a row that can match.
    pub keys: Vec<u32>,
    /// Their row numbers; without them, their positions.
    pub rows: Option<Vec<u32>>,
    /// Bits that a key may have.
    pub bits: u32,
}

/// Rows by key: what lookups in the table mean.
#[derive(Debug)]
pub enum Rows {
    /// Keys are unique: a lookup's value is the row.
    Unique,
    /// A lookup's value is a group: `rows[offsets[g]..offsets[g + 1]]`, ascending.
    Grouped {
        /// `groups + 1` positions in `rows`.
        offsets: Vec<u32>,
        /// Rows, group after group.
        rows: Vec<u32>,
    },
}

/// A table on the device and the rows that its values stand for.
#[derive(Debug)]
pub struct JoinTable {
    /// Key to row, or key to group.
    pub table: HortonTable,
    /// What the table's values stand for.
    pub rows: Rows,
}

impl JoinTable {
    /// Builds the table on the queue's device.
    ///
    /// # Errors
    /// Those of [`GroupedTable::build`].
    pub fn build(queue: &mut Queue, config: &TableConfig, input: &SurrogateKeys) -> Result<Self> {
        let keys = queue.buffer_from("build keys", &input.keys)?;
        let rows = match &input.rows {
            Some(rows) => Some(queue.buffer_from("build rows", rows)?),
            None => None,
        };
        let keys = BuildKeys {
            keys: &keys,
            rows: rows.as_ref(),
            bits: input.bits,
        };
        let built = GroupedTable::build(queue, config, keys)?;
        let rows = match &built.groups {
            None => Rows::Unique,
            Some(groups) => Rows::Grouped {
                offsets: queue.read(&groups.offsets, groups.offsets.len())?,
                rows: queue.read(&groups.rows, groups.rows.len())?,
            },
        };
        Ok(Self {
            table: built.table,
            rows,
        })
    }

    /// Bytes of the table on the device and of its groups on the host.
    pub fn bytes(&self) -> usize {
        let groups = match &self.rows {
            Rows::Unique => 0,
            Rows::Grouped { offsets, rows } => 4 * (offsets.len() + rows.len()),
        };
        self.table.bytes() as usize + groups
    }
}
