//! The build side on the device: its keys' table, its columns, and which rows lookups found.
//!
//! ```text
//!            ┌ MultiMap       any key to its rows
//!  JoinTable ┤ DeviceColumn   values to be gathered by row
//!            └ VisitedBits    the values that lookups found
//! ```
//!
//! [`upload`](super::upload) brings it there. Nothing of it comes back but those bits, at the end
//! of the probe or after so many lookups. Only join types that emit build rows have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::{BoxFuture, FutureExt, TryFutureExt};

use crate::device::{Answer, Cost, Placed, Queue};
use crate::error::{DeviceError, Error, Result};
use crate::table::multimap::{HashIndex, MultiMap};

use crate::join::bitmap::Bitmap;
use crate::join::lookup::columns::DeviceColumn;
use crate::join::lookup::visited_bits::VisitedBits;

/// The build side on the device.
#[derive(Debug)]
pub struct JoinTable {
    /// The device, with the join that is placed there.
    pub device: Placed,
    /// Bytes of the device's memory that may be in use.
    pub memory_limit: u64,
    /// True if the device has failed since the build.
    pub(super) failed: AtomicBool,
    /// Rows of the build side.
    pub rows: usize,
    /// Any key to its rows.
    pub built: MultiMap,
    /// The values that lookups found, if they are to say which.
    pub visited: Option<VisitedBits>,
    /// Columns to gather.
    pub columns: Vec<DeviceColumn>,
}

impl JoinTable {
    /// Runs `job` on the table's device, within the limit of its memory.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Queue) -> Result<T, DeviceError> + Send + 'static,
    ) -> BoxFuture<'static, Result<Answer<T>>> {
        let limit = self.memory_limit;
        let answer = self.device.run(move |queue| {
            queue.limit_memory(limit);
            job(queue)
        });
        answer.map_err(Error::from).boxed()
    }

    /// Returns whether its device failed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Notes that its device failed.
    pub fn mark_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns the table.
    pub fn table(&self) -> &HashIndex {
        &self.built.index
    }

    /// Returns the bytes on the device.
    pub fn bytes(&self) -> usize {
        let visited = self
            .visited
            .as_ref()
            .map_or(0, |visited| visited.bits().bytes());
        let columns: u64 = self.columns.iter().map(DeviceColumn::bytes).sum();
        (self.built.bytes() + visited + columns) as usize
    }

    /// Returns whether no key has several pairs.
    pub fn is_unique(&self) -> bool {
        self.built.groups.is_none()
    }

    /// Sets the bits, of `rows` rows, of those that lookups found.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub async fn mark_visited(self: Arc<Self>, visited: &Bitmap, rows: usize) -> Result<Cost> {
        let asked = Arc::clone(&self);
        let bits = asked.run(move |queue| match &self.visited {
            Some(visited) => visited.rows(queue, rows),
            None => Ok(Vec::new()),
        });
        let bits = bits.await?;
        visited.set_all(&bits.value);
        Ok(bits.cost)
    }
}
