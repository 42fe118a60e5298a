//! The build side on the device: its keys' table, its columns, and which rows lookups found.
//!
//! ```text
//!            ┌ MultiMap       any key to its rows
//!  JoinTable ┤ DeviceColumn   values to be gathered by row
//!            └ visited        one bit per value of the table ── groups ─▶ one bit per build row
//! ```
//!
//! [`upload`](super::upload) brings it there. Nothing of it comes back but those bits, at the end of
//! the probe or after so many lookups. Only join types that emit build rows have them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};

use crate::device::{Answer, Buffer, Cost, Placed, Queue};
use crate::error::{DeviceError, Error, Result};
use crate::table::multimap::pairs::{LookedUp, Matches};
use crate::table::multimap::{HashIndex, MultiMap};
use crate::table::primitives::group::RowGroups;
use crate::table::primitives::rows::set_bits;

use crate::join::bitmap::{Bitmap, ones_of};
use crate::join::lookup::columns::DeviceColumn;

/// Rows of a window of visited rows, at most.
const VISITS: usize = 1 << 20;

/// The build side on the device.
#[derive(Debug)]
pub struct JoinTable {
    /// The device, with the join that is placed there.
    pub device: Placed,
    /// Bytes of the device's memory that may be in use.
    pub memory_limit: u64,
    /// The device's time for its keys and for building it.
    pub cost: Duration,
    /// True if the device has failed since the build.
    pub(super) lost: AtomicBool,
    /// Rows of the build side.
    pub rows: usize,
    /// Any key to its rows.
    pub built: MultiMap,
    /// One bit per value of the table, if lookups are to say which they found.
    pub visited: Option<Buffer<u32>>,
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
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Notes that its device failed.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Release);
    }

    /// Returns the table.
    pub fn table(&self) -> &HashIndex {
        &self.built.index
    }

    /// Returns the bytes on the device.
    pub fn bytes(&self) -> usize {
        let visited = self.visited.as_ref().map_or(0, Buffer::bytes);
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
        let bits = asked.run(move |queue| self.visited_rows(queue, rows));
        let bits = bits.await?;
        visited.set_all(&bits.value);
        Ok(bits.cost)
    }

    /// Returns one bit for each of `rows` build rows: whether a lookup found it.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub fn visited_rows(&self, queue: &mut Queue, rows: usize) -> Result<Vec<u32>, DeviceError> {
        let Some(visited) = &self.visited else {
            return Ok(vec![0; rows.div_ceil(32)]);
        };
        let visited = queue.read(visited, visited.len())?;
        let Some(groups) = &self.built.groups else {
            return Ok(visited);
        };
        match rows_of_groups(queue, groups, &visited, rows) {
            Err(error) if error.is_device_memory() => {
                log::debug!("{error}; the host goes through the groups");
                rows_of_groups_by_host(queue, groups, &visited, rows)
            }
            found => found,
        }
    }
}

/// Returns the bits of the `rows` rows that are in groups whose bits are set in `visited`.
fn rows_of_groups(
    queue: &mut Queue,
    groups: &Arc<RowGroups>,
    visited: &[u32],
    rows: usize,
) -> Result<Vec<u32>, DeviceError> {
    let met: Vec<u32> = set_numbers(visited).collect();
    let values = queue.buffer_from("visited groups", &met)?;
    let reads = queue.buffer_from("bucket reads", &[0])?;
    let met_values = LookedUp { values, reads };
    let matches = Matches::count(queue, met_values, Some(Arc::clone(groups)), met.len())?;
    let bits = unset_bits(queue, rows)?;
    let window = queue.allocate("visited rows", rows.clamp(1, VISITS))?;
    let mut first = 0;
    loop {
        let written = matches.write_build(queue, first, &window)?;
        if written == 0 {
            return queue.read(&bits, bits.len());
        }
        set_bits(queue, &window, written, &bits)?;
        first += written as u64;
    }
}

/// Returns the bits as `rows_of_groups` does, but by the host, a window of the groups at a time.
/// The device has no memory left to do it. It costs the copying of all rows of groups that were
/// found.
fn rows_of_groups_by_host(
    queue: &mut Queue,
    groups: &RowGroups,
    visited: &[u32],
    rows: usize,
) -> Result<Vec<u32>, DeviceError> {
    let mut bits = vec![0u32; rows.div_ceil(32)];
    let (mut offsets, mut members) = (
        WordReader::of(&groups.offsets),
        WordReader::of(&groups.rows),
    );
    for group in set_numbers(visited).map(|group| group as usize) {
        let range = offsets.at(queue, group)?..offsets.at(queue, group + 1)?;
        for at in range {
            let row = members.at(queue, at as usize)?;
            match bits.get_mut(row as usize / 32) {
                Some(word) => *word |= 1 << (row % 32),
                None => return Err(queue.wrong_answer(format!("build row {row} of {rows}"))),
            }
        }
    }
    Ok(bits)
}

/// Reads words of a buffer in ascending order.
struct WordReader<'a> {
    buffer: &'a Buffer<u32>,
    /// The words that are here; `first` is the first one's place.
    window: Vec<u32>,
    first: usize,
}

impl<'a> WordReader<'a> {
    fn of(buffer: &'a Buffer<u32>) -> Self {
        Self {
            buffer,
            window: Vec::new(),
            first: 0,
        }
    }

    fn at(&mut self, queue: &mut Queue, at: usize) -> Result<u32, DeviceError> {
        if !(self.first..self.first + self.window.len()).contains(&at) {
            let len = self.buffer.len().saturating_sub(at).min(VISITS);
            self.window.resize(len, 0);
            self.first = at;
            queue.download(self.buffer, at, &mut self.window)?;
        }
        match self.window.get(at - self.first) {
            Some(word) => Ok(*word),
            None => Err(queue.wrong_answer(format!("place {at} of {}", self.buffer.len()))),
        }
    }
}

/// Returns `n` bits on the device, none of which is set.
pub(super) fn unset_bits(queue: &mut Queue, n: usize) -> Result<Buffer<u32>, DeviceError> {
    let bits = queue.allocate("visited bits", n.div_ceil(32))?;
    queue.fill(&bits, 0)?;
    Ok(bits)
}

/// Returns the numbers whose bits are set.
fn set_numbers(words: &[u32]) -> impl Iterator<Item = u32> {
    let words = words.iter().enumerate();
    words.flat_map(|(w, word)| ones_of(u64::from(*word), 32 * w as u32))
}
