//! Groups of rows in device memory, and how they are put together from parts.

use crate::device::{Buffer, Queue};
use crate::error::Result;

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

/// What is left of groups once a table has their keys.
#[derive(Debug)]
pub struct RowGroups {
    /// `groups + 1` positions in `rows`.
    pub offsets: Buffer<u32>,
    /// Rows, group after group, ascending within each.
    pub rows: Buffer<u32>,
}

impl RowGroups {
    /// Groups.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        self.offsets.bytes() + self.rows.bytes()
    }
}

impl From<Groups> for RowGroups {
    fn from(Groups { offsets, rows, .. }: Groups) -> Self {
        Self { offsets, rows }
    }
}

/// How many groups and rows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Size {
    pub groups: usize,
    pub rows: usize,
}

impl Size {
    pub fn and(self, other: Self) -> Self {
        Self {
            groups: self.groups + other.groups,
            rows: self.rows + other.rows,
        }
    }
}

/// Rows that have been grouped, part of all.
pub(super) trait Part {
    fn size(&self) -> Size;

    /// Writes the groups behind so many others.
    fn emit(&self, queue: &mut Queue, to: &Groups, first: Size) -> Result<()>;
}

impl Groups {
    /// Room for distinct keys and offsets, the last offset set.
    pub(super) fn allocate_keys(
        queue: &mut Queue,
        size: Size,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let unique_keys = queue.allocate("unique keys", size.groups)?;
        let offsets = queue.allocate_table("group offsets", size.groups + 1)?;
        queue.upload(&offsets, size.groups, &[size.rows as u32])?;
        Ok((unique_keys, offsets))
    }

    /// The groups of all parts.
    pub(super) fn of(queue: &mut Queue, parts: &[Option<&dyn Part>]) -> Result<Self> {
        let parts = || parts.iter().flatten();
        let size = parts().fold(Size::default(), |sum, part| sum.and(part.size()));
        let (unique_keys, offsets) = Self::allocate_keys(queue, size)?;
        let groups = Self {
            unique_keys,
            offsets,
            rows: queue.allocate_table("rows by group", size.rows)?,
        };
        let mut first = Size::default();
        for part in parts() {
            part.emit(queue, &groups, first)?;
            first = first.and(part.size());
        }
        Ok(groups)
    }
}
