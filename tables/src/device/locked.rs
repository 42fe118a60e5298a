//! Page-locked host memory of a GPU: regions, from which ranges are taken.
//!
//! ```text
//!  region  8 MiB   [ range │ range │  free  ]
//!  region 16 MiB   [ range │ free │ range │       free        ]
//!
//!  take ─ has a region room? ─┬─ yes ─▶ LockedRange ─ dropped ─▶ free, one with its neighbours
//!                             └─ no ──▶ add: the driver locks another region
//! ```
//!
//! To lock memory takes a driver half a millisecond, and more for each megabyte. Other calls wait
//! for it. So regions are large, and are locked rarely. A range may have any size. Memory that was
//! locked for chunks of one size thus serves those of another.
//!
//! No budget counts this memory. Regions of which nobody uses a range stay locked up to a cap. The
//! one that was used last stays in the place of others.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::Memory;
use super::releases::{Releases, Unused};

/// Bytes of the first region: the chunks of one stream.
const REGION_MIN: u64 = 8 << 20;

/// Bytes of a region, unless one range needs more. A larger one takes as long per megabyte, and
/// launches wait longer.
const REGION_MAX: u64 = 16 << 20;

/// Bytes to which the size of a region that is larger than usual is rounded up, at least.
const REGION_STEP: u64 = 2 << 20;

/// Ranges begin at multiples of so many bytes.
const PAGE: usize = 4096;

/// The page-locked memory of one context.
#[derive(Debug)]
pub(super) struct LockedMemory {
    state: Mutex<State>,
    cap: u64,
    releases: Arc<Releases>,
}

#[derive(Debug, Default)]
struct State {
    /// Regions by number.
    regions: BTreeMap<u64, Region>,
    next: u64,
    /// Bytes of all regions.
    bytes: u64,
    /// Bytes of regions of which nobody uses a range.
    idle: u64,
    /// True if the context is lost: nothing is kept any more.
    is_closed: bool,
}

/// Memory that was locked at once.
#[derive(Debug)]
struct Region {
    memory: Memory,
    address: NonNull<u8>,
    free: FreeRanges,
}

/// The parts of a region that are free.
#[derive(Debug)]
struct FreeRanges {
    /// The bytes of each, by its offset. No two of them touch.
    ranges: BTreeMap<usize, usize>,
    /// Bytes of the region.
    bytes: usize,
}

// SAFETY: the address is that of its memory, which may go to another thread with it.
unsafe impl Send for Region {}

/// A part of a region, whose only user is its owner: a stream, or the commands of a queue.
#[derive(Debug)]
pub(super) struct LockedRange {
    of: Arc<LockedMemory>,
    region: u64,
    offset: usize,
    bytes: usize,
    address: NonNull<u8>,
}

// SAFETY: it is a part of memory that nobody else uses, on whichever thread.
unsafe impl Send for LockedRange {}
// SAFETY: it hands out no more than its address.
unsafe impl Sync for LockedRange {}

impl FreeRanges {
    /// Returns those of a region of `bytes` bytes, which is free.
    fn of(bytes: usize) -> Self {
        Self {
            ranges: BTreeMap::from([(0, bytes)]),
            bytes,
        }
    }

    /// Returns whether the whole region is free.
    fn is_whole(&self) -> bool {
        self.ranges.get(&0) == Some(&self.bytes)
    }

    /// Takes the first `bytes` bytes that are free. Returns their offset.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (&offset, &room) = self.ranges.iter().find(|(_, room)| **room >= bytes)?;
        self.ranges.remove(&offset);
        if room > bytes {
            self.ranges.insert(offset + bytes, room - bytes);
        }
        Some(offset)
    }

    /// Makes `bytes` bytes from `offset` on free, one range with what is free beside them.
    fn give_back(&mut self, mut offset: usize, mut bytes: usize) {
        if let Some(room) = self.ranges.remove(&(offset + bytes)) {
            bytes += room;
        }
        let before = self.ranges.range(..offset).next_back();
        if let Some((&start, &room)) = before
            && start + room == offset
        {
            (offset, bytes) = (start, bytes + room);
        }
        self.ranges.insert(offset, bytes);
    }
}

/// Returns the bytes of a range with room for `bytes` of data.
pub(super) fn range_bytes(bytes: u64) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(1);
    bytes.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)
}

impl LockedMemory {
    /// Returns memory of which up to `cap` bytes stay locked when nobody uses them. `releases`
    /// releases the others.
    pub(super) fn new(cap: u64, releases: &Arc<Releases>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            cap,
            releases: Arc::clone(releases),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes room for `bytes` bytes of data, if a region has some. Calls no driver.
    pub(super) fn take(self: &Arc<Self>, bytes: u64) -> Option<Arc<LockedRange>> {
        let bytes = range_bytes(bytes);
        let mut state = self.state();
        if state.is_closed {
            return None;
        }
        let mut regions = state.regions.iter_mut();
        let (number, start, offset, idle) = regions.find_map(|(number, region)| {
            let idle = region.idle_bytes();
            let offset = region.free.take(bytes)?;
            Some((*number, region.address, offset, idle))
        })?;
        state.idle -= idle;
        drop(state);
        Some(self.range(number, start, offset, bytes))
    }

    /// Returns the bytes of the region to be locked where no region has room for `bytes` bytes of
    /// data.
    pub(super) fn next_region(&self, bytes: u64) -> u64 {
        let usual = if self.state().bytes < REGION_MAX {
            REGION_MIN
        } else {
            REGION_MAX
        };
        let bytes = range_bytes(bytes) as u64;
        if bytes <= usual {
            return usual;
        }
        // Sizes that differ by a little serve each other.
        let step = REGION_STEP.max(bytes.checked_next_power_of_two().unwrap_or(0) / 8);
        bytes.checked_next_multiple_of(step).unwrap_or(bytes)
    }

    /// Adds `memory`, which is mapped at `address`, and takes room for `bytes` bytes of data from
    /// it. Returns `None` if it has less.
    pub(super) fn add(
        self: &Arc<Self>,
        (memory, address): (Memory, NonNull<u8>),
        bytes: u64,
    ) -> Option<Arc<LockedRange>> {
        let bytes = range_bytes(bytes);
        let size = memory.bytes();
        let mut free = FreeRanges::of(usize::try_from(size).ok()?);
        let offset = free.take(bytes)?;
        let region = Region {
            memory,
            address,
            free,
        };
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.bytes += size;
        state.regions.insert(number, region);
        drop(state);
        Some(self.range(number, address, offset, bytes))
    }

    fn range(
        self: &Arc<Self>,
        region: u64,
        start: NonNull<u8>,
        offset: usize,
        bytes: usize,
    ) -> Arc<LockedRange> {
        // SAFETY: the region has `bytes` bytes from `offset` on.
        let address = unsafe { start.add(offset) };
        Arc::new(LockedRange {
            of: Arc::clone(self),
            region,
            offset,
            bytes,
            address,
        })
    }

    /// Makes a range free. While idle regions take more than the cap, others go before its own.
    fn give_back(&self, range: &LockedRange) {
        let mut state = self.state();
        let Some(region) = state.regions.get_mut(&range.region) else {
            return;
        };
        region.free.give_back(range.offset, range.bytes);
        let idle = region.idle_bytes();
        state.idle += idle;
        let most = if state.is_closed { 0 } else { self.cap };
        let mut released = Vec::new();
        while state.idle > most {
            let other = state.idle_but(range.region);
            match state.remove(other.unwrap_or(range.region)) {
                Some(unused) => released.push(unused),
                None => break,
            }
        }
        drop(state);
        self.releases.release(released);
    }

    /// Releases every region that nobody uses: memory is short.
    pub(super) fn clear(&self) {
        let mut released = Vec::new();
        let mut state = self.state();
        while let Some(number) = state.idle_but(u64::MAX) {
            released.extend(state.remove(number));
        }
        drop(state);
        self.releases.release(released);
    }

    /// Keeps nothing from now on: commands of a lost context may still write to its memory.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.clear();
    }
}

impl State {
    /// Returns the number of a region of which nobody uses a range, other than `number`.
    fn idle_but(&self, number: u64) -> Option<u64> {
        let mut regions = self.regions.iter();
        let idle = regions.find(|(other, region)| **other != number && region.free.is_whole());
        idle.map(|(other, _)| *other)
    }

    /// Removes a region of which nobody uses a range.
    fn remove(&mut self, number: u64) -> Option<Unused> {
        let region = self.regions.remove(&number)?;
        self.bytes -= region.free.bytes as u64;
        self.idle -= region.idle_bytes();
        Some((region.memory, None))
    }
}

impl Region {
    /// Returns its bytes if nobody uses a range of it, else 0.
    fn idle_bytes(&self) -> u64 {
        if self.free.is_whole() {
            self.free.bytes as u64
        } else {
            0
        }
    }
}

impl LockedRange {
    /// Returns where it begins.
    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Returns whether it is a part of `memory`.
    pub(super) fn is_of(&self, memory: &Arc<LockedMemory>) -> bool {
        Arc::ptr_eq(&self.of, memory)
    }

    /// Returns whether its region stays locked when it is dropped.
    pub(super) fn is_kept(&self) -> bool {
        let state = self.of.state();
        let region = state.regions.get(&self.region);
        let fits = |region: &Region| region.free.bytes as u64 <= self.of.cap;
        !state.is_closed && region.is_some_and(fits)
    }
}

impl Drop for LockedRange {
    fn drop(&mut self) {
        self.of.give_back(self);
    }
}

#[cfg(test)]
mod tests {
    use rand_mt::Mt;

    use super::*;

    #[test]
    fn ranges_never_overlap_and_all_come_back() {
        const BYTES: usize = 200;
        let mut random = Mt::new(7);
        let mut draw = |below: usize| random.next_u32() as usize % below;
        let mut free = FreeRanges::of(BYTES);
        let mut is_taken = [false; BYTES];
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for _ in 0..20_000 {
            let bytes = 1 + draw(40);
            if draw(2) == 0 {
                let longest = is_taken
                    .split(|is_taken| *is_taken)
                    .map(<[bool]>::len)
                    .max();
                let Some(offset) = free.take(bytes) else {
                    assert!(longest.unwrap_or(0) < bytes, "{free:?}");
                    continue;
                };
                let mut part = is_taken[offset..offset + bytes].iter_mut();
                assert!(part.all(|is_taken| !std::mem::replace(is_taken, true)));
                taken.push((offset, bytes));
            } else if !taken.is_empty() {
                let (offset, bytes) = taken.swap_remove(draw(taken.len()));
                is_taken[offset..offset + bytes].fill(false);
                free.give_back(offset, bytes);
            }
            assert_eq!(free.is_whole(), taken.is_empty());
        }
    }
}
