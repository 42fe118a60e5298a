//! The build side on the device: its keys' table, and what lookups need beside it.
//!
//! ```text
//!  keys ──────────parts, side by side─▶ device: keys ─▶ MultiMap
//!  wanted columns ────────────────────▶ device: columns, to be gathered by row
//!  join types that ask which build rows were matched: one bit per value of the table
//! ```
//!
//! Nothing of it comes back but those bits, once, at the end of the probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, TryFutureExt};

use crate::device::{Answer, Buffer, Cost, Placed, Queue};
use crate::error::{DeviceError, Error, Result};
use crate::table::multimap::pairs::{LookedUp, Matches};
use crate::table::multimap::{HashIndex, IndexConfig};
use crate::table::multimap::{MultiMap, MultiMapInput};
use crate::table::primitives::group::RowGroups;
use crate::table::primitives::rows::set_bits;

use crate::join::bitmap::{Bitmap, ones_of};
use crate::join::lookup::columns::{DeviceColumn, Upload};
use crate::keys::source::{KeyPart, KeysToSend};
use crate::parallel::map_parallel;

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
    lost: AtomicBool,
    /// Rows of the build side.
    pub rows: usize,
    /// Any key to its rows.
    pub built: MultiMap,
    /// One bit per value of the table, if lookups are to say which they found.
    pub visited: Option<Buffer<u32>>,
    /// Columns to gather.
    pub columns: Vec<DeviceColumn>,
}

/// Keys on the device, with their rows.
#[derive(Debug)]
pub struct DeviceKeys {
    keys: Buffer<u32>,
    rows: Option<Buffer<u32>>,
}

impl JoinTable {
    /// Builds the table of `keys`. Lookups note which of its values they found, if it
    /// `notes_visits`.
    ///
    /// # Errors
    /// The errors of [`MultiMap::build`].
    pub async fn build(
        upload: Upload<'_>,
        keys: &KeysToSend,
        config: IndexConfig,
        notes_visits: bool,
    ) -> Result<Self> {
        let (format, rows) = (keys.format, keys.rows);
        let (keys, sending) = send_keys(upload, keys).await?;
        let limit = upload.memory_limit;
        let built = upload.device.run(move |queue| {
            queue.limit_memory(limit);
            let keys = MultiMapInput {
                keys: &keys.keys,
                rows: keys.rows.as_ref(),
                format,
            };
            let built = MultiMap::build(queue, config, keys)?;
            let visited = if notes_visits {
                Some(unset_bits(queue, values(&built, rows))?)
            } else {
                None
            };
            Ok((built, visited))
        });
        let built = built.await?;
        upload.metrics.add_cost(&built.cost);
        let cost = sending + built.cost.busy();
        let (built, visited) = built.value;
        upload.metrics.add_table(&built.index);
        Ok(Self {
            device: upload.device.clone(),
            memory_limit: limit,
            cost,
            lost: AtomicBool::new(false),
            rows,
            built,
            visited,
            columns: Vec::new(),
        })
    }

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

/// Returns how many values the table can have: rows, or groups.
fn values(built: &MultiMap, rows: usize) -> usize {
    built.groups.as_ref().map_or(rows, |groups| groups.len())
}

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

/// Sends the keys of all parts, one after the other. The numbers of their rows go with them if some
/// row has no key, as they are not the keys' positions then. Returns the device's time for it, too.
///
/// # Errors
/// [`DeviceMemory`](DeviceError::DeviceMemory), OpenCL's own, and those of [`KeyPart::write`].
async fn send_keys(upload: Upload<'_>, keys: &KeysToSend) -> Result<(DeviceKeys, Duration)> {
    let (n, words) = (keys.count(), keys.format.words());
    let is_numbered = n < keys.rows;
    let limit = upload.memory_limit;
    let buffers = upload.device.run(move |queue| {
        queue.limit_memory(limit);
        let keys = queue.allocate("build keys", n * words)?;
        let rows = if is_numbered {
            Some(queue.allocate("build rows", n)?)
        } else {
            None
        };
        Ok(DeviceKeys { keys, rows })
    });
    let buffers = Arc::new(buffers.await?.value);
    let mut at = 0;
    let mut placed = Vec::with_capacity(keys.parts.len());
    for part in &keys.parts {
        placed.push((at, Arc::clone(part)));
        at += part.count();
    }
    let send = |(at, part): (usize, Arc<KeyPart>)| {
        let (device, buffers) = (upload.device.clone(), Arc::clone(&buffers));
        let metrics = upload.metrics.clone();
        async move {
            let n = part.count();
            let sent = {
                let permit = device.upload().await?;
                let mut keys = permit.staging("build keys", n * words)?;
                part.write(&mut keys)?;
                let rows = match buffers.rows {
                    Some(_) => {
                        let mut rows = permit.staging("build rows", n)?;
                        part.number(&mut rows);
                        Some(rows)
                    }
                    None => None,
                };
                device.run(move |queue| {
                    let _permit = permit;
                    if let (Some(buffer), Some(rows)) = (&buffers.rows, rows) {
                        queue.send_to(buffer, at, rows)?;
                    }
                    queue.send_to(&buffers.keys, at * words, keys)
                })
            };
            let cost = sent.await?.cost;
            metrics.add_cost(&cost);
            Ok(cost.busy())
        }
    };
    let times: Vec<Duration> = map_parallel(placed, keys.width, send).await?;
    let keys = Arc::try_unwrap(buffers);
    let keys = keys.map_err(|_| Error::Internal("build keys are still being sent".into()))?;
    Ok((keys, times.into_iter().sum()))
}
