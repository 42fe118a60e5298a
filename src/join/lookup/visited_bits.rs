//! The build rows that lookups on a device found.
//!
//! ```text
//!  all keys differ   a lookup finds a row     bit per row ─────────────────────▶ bit per build row
//!  some are equal    a lookup finds a group   bit per group ─▶ rows of groups ─▶ bit per build row
//! ```
//!
//! A group of equal keys can have any number of rows, so a lookup notes the group alone. Its rows
//! are noted once, when the bits are read.

use std::sync::Arc;

use crate::device::{Buffer, Queue};
use crate::error::{DeviceError, Result};
use crate::join::bitmap::ones_of;
use crate::table::multimap::MultiMap;
use crate::table::multimap::pairs::{LookedUp, Matches};
use crate::table::primitives::group::RowGroups;
use crate::table::primitives::rows::set_bits;

/// Rows of a window of visited rows, at most.
const VISITED_WINDOW_ROWS: usize = 1 << 20;

/// The values of a table that lookups found.
#[derive(Debug)]
pub enum VisitedBits {
    /// One bit per build row, as no two have equal keys.
    Rows(Buffer<u32>),
    /// One bit per group of build rows with equal keys.
    Groups(Buffer<u32>, Arc<RowGroups>),
}

impl VisitedBits {
    /// Returns the bits for lookups in the table `built`, whose build side has `rows` rows. None is
    /// set.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub fn new(queue: &mut Queue, built: &MultiMap, rows: usize) -> Result<Self, DeviceError> {
        Ok(match &built.groups {
            None => Self::Rows(unset_bits(queue, rows)?),
            Some(groups) => {
                let bits = unset_bits(queue, groups.len())?;
                Self::Groups(bits, Arc::clone(groups))
            }
        })
    }

    /// Returns the bits, which lookups set.
    pub fn bits(&self) -> &Buffer<u32> {
        match self {
            Self::Rows(bits) | Self::Groups(bits, _) => bits,
        }
    }

    /// Returns one bit for each of `rows` build rows: whether a lookup found it.
    ///
    /// # Errors
    /// [`DeviceMemory`](DeviceError::DeviceMemory) and OpenCL's own.
    pub fn rows(&self, queue: &mut Queue, rows: usize) -> Result<Vec<u32>, DeviceError> {
        let visited = queue.read(self.bits(), self.bits().len())?;
        let Self::Groups(_, groups) = self else {
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
    let window = queue.allocate("visited rows", rows.clamp(1, VISITED_WINDOW_ROWS))?;
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

/// Returns the bits as [`rows_of_groups`] does, but by the host, a window of the groups at a time.
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
        WordReader::new(&groups.offsets),
        WordReader::new(&groups.rows),
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
    fn new(buffer: &'a Buffer<u32>) -> Self {
        Self {
            buffer,
            window: Vec::new(),
            first: 0,
        }
    }

    fn at(&mut self, queue: &mut Queue, at: usize) -> Result<u32, DeviceError> {
        if !(self.first..self.first + self.window.len()).contains(&at) {
            let len = self
                .buffer
                .len()
                .saturating_sub(at)
                .min(VISITED_WINDOW_ROWS);
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
fn unset_bits(queue: &mut Queue, n: usize) -> Result<Buffer<u32>, DeviceError> {
    let bits = queue.allocate("visited bits", n.div_ceil(32))?;
    queue.fill(&bits, 0)?;
    Ok(bits)
}

/// Returns the numbers whose bits are set.
fn set_numbers(words: &[u32]) -> impl Iterator<Item = u32> {
    let words = words.iter().enumerate();
    words.flat_map(|(w, word)| ones_of(u64::from(*word), 32 * w as u32))
}
