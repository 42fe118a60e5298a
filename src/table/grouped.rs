//! What a join builds: any keys, repeating or not, to the rows that have them.
//!
//! ```text
//!  unique keys      table: key ─▶ row
//!  repeating keys   table: key ─▶ group g ─▶ rows[offsets[g] .. offsets[g + 1]]
//! ```
//!
//! Most builds are primary keys, so the table is first built as if keys were unique; the
//! build finds a repeat, as a rule after a small part of its work, and only then are the rows
//! grouped and the table built over the distinct keys. If only a few hot keys repeat, setting
//! their rows apart is all the grouping there is.

use std::sync::Arc;

use crate::device::{Buffer, Queue};
use crate::error::Result;

use super::group::{Groups, group};
use super::horton::build::build;
use super::horton::{Built, HortonTable, Items, TableConfig};
use super::pairs::{LookedUp, Matches, Pairs};

/// A device table over any keys, and the rows that its values stand for.
#[derive(Debug)]
pub struct GroupedTable {
    /// Key to row, or key to group.
    pub table: HortonTable,
    /// The rows by group; without them keys are unique and values are rows.
    pub groups: Option<Arc<Groups>>,
}

/// The build side's keys on the device.
#[derive(Debug, Clone, Copy)]
pub struct BuildKeys<'a> {
    /// One key a row that can match.
    pub keys: &'a Buffer<u32>,
    /// Their row numbers; without them, their positions.
    pub rows: Option<&'a Buffer<u32>>,
    /// Bits that a key may have.
    pub bits: u32,
}

impl GroupedTable {
    /// Builds the table on the queue's device.
    ///
    /// # Errors
    /// Those of [`build`] and [`group`].
    pub fn build(queue: &mut Queue, config: &TableConfig, input: BuildKeys<'_>) -> Result<Self> {
        let items = Items {
            keys: input.keys,
            values: input.rows,
        };
        match build(queue, config, items)? {
            Built::Table(table) => Ok(Self {
                table,
                groups: None,
            }),
            Built::Repeats => Self::build_groups(queue, config, items, input.bits),
        }
    }

    fn build_groups(
        queue: &mut Queue,
        config: &TableConfig,
        items: Items<'_>,
        bits: u32,
    ) -> Result<Self> {
        let (table, groups) = group(queue, items, bits, |queue, unique_keys| {
            let items = Items {
                keys: unique_keys,
                values: None,
            };
            match build(queue, config, items)? {
                Built::Table(table) => Ok(Some(table)),
                Built::Repeats => Ok(None),
            }
        })?;
        Ok(Self {
            table,
            groups: Some(Arc::new(groups)),
        })
    }

    /// Joins the first `n` of `keys`, all on the device: pairs of their positions and the
    /// build rows with equal keys, in probe order.
    ///
    /// ```
    /// use horton_join::device::Device;
    /// use horton_join::table::grouped::{BuildKeys, GroupedTable};
    /// use horton_join::table::horton::TableConfig;
    ///
    /// # fn main() -> horton_join::error::Result<()> {
    /// let pairs = Device::open("auto")?.run_blocking(|queue| {
    ///     let build = queue.buffer_from("build keys", &[5, 3, 5, 8])?;
    ///     let keys = BuildKeys { keys: &build, rows: None, bits: 32 };
    ///     let table = GroupedTable::build(queue, &TableConfig::default(), keys)?;
    ///     let probe = queue.buffer_from("probe keys", &[8, 9, 5])?;
    ///     let pairs = table.join(queue, &probe, 3)?;
    ///     Ok((queue.read(&pairs.probe, 3)?, queue.read(&pairs.build, 3)?))
    /// })?;
    /// assert_eq!(pairs.value, (vec![0, 2, 2], vec![3, 0, 2]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TooManyPairs`](crate::error::Error::TooManyPairs) beyond 2^32 - 1, for which [`Matches`] has windows;
    /// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn join(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Pairs> {
        self.look_up(queue, keys, n)?.into_pairs(queue)
    }

    /// Looks up the first `n` of `keys` and counts their pairs.
    ///
    /// # Errors
    /// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn look_up(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Matches> {
        let values = queue.allocate("looked-up values", n)?;
        let reads = queue.allocate("bucket reads", 1)?;
        queue.fill(&reads, 0)?;
        self.table.lookup(queue, keys, &values, &reads, n)?;
        Matches::count(queue, LookedUp { values, reads }, self.groups.clone(), n)
    }
}
