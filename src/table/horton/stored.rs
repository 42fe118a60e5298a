//! A table's words in host memory, for a device that has no room for them all the time.
//!
//! ```text
//!  device  [words] ──store──▶ host  [words] ──lend──▶ device  [words], until dropped
//! ```
//!
//! The words are the same on both sides, so nothing is built again: a table comes back at the
//! speed of a copy.

use crate::device::Queue;
use crate::error::Result;

use super::{Census, HortonTable, Layout};

/// A table of values up to [`MAX_VALUE`](super::MAX_VALUE) in host memory.
#[derive(Debug)]
pub struct StoredTable {
    layout: Layout,
    census: Census,
    words: Vec<u64>,
}

impl HortonTable {
    /// Bytes of its words, without room to spare.
    pub fn stored_bytes(&self) -> usize {
        size_of::<u64>() * self.layout.words()
    }

    /// Copies a table that was built with values up to [`MAX_VALUE`](super::MAX_VALUE) to the host.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn store(&self, queue: &mut Queue) -> Result<StoredTable> {
        Ok(StoredTable {
            layout: self.layout,
            census: self.census,
            words: queue.read(&self.words, self.layout.words())?,
        })
    }
}

impl StoredTable {
    /// Copies the table to the device.
    ///
    /// # Errors
    /// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn lend(&self, queue: &mut Queue) -> Result<HortonTable> {
        let words = queue.allocate_table("a Horton table", self.words.len())?;
        queue.upload(&words, 0, &self.words)?;
        Ok(HortonTable::new(self.layout, words, self.census))
    }
}
