//! The division of elements over work-items where each element is independent.
//!
//! ```text
//!  CPU   [chunk | chunk | chunk | …]      one work-item per group, a contiguous chunk each
//!  GPU   [ 0 1 2 … 255 | 256 … ]          one element per work-item, groups of GROUP
//! ```
//!
//! A kernel walks `per_item` elements from `get_global_id(0) * per_item`, on any device. On CPU
//! runtimes that gives prefetching something to run ahead of; on GPUs neighbours read neighbours.
//!
//! Sizes and defines that programs of several tables share are here, too: work-groups, caches, and
//! how kernels see what others' atomics write.

use crate::device::program::ProgramText;
use crate::device::{DeviceInfo, DeviceKind, KernelBody, Queue, SubGroupShuffle};
use crate::error::{Error, Result};

/// Work-group size on GPUs; with small ones, a GPU spends its time on starting them.
pub(crate) const GROUP: usize = 256;

/// Keys between a prefetch and its use on CPU runtimes (measured for lookups of Horton tables).
pub(crate) const LOOK_AHEAD: u32 = 32;

/// Work-items that a CPU core gets, so that all end at about the same time.
const ITEMS_PER_CORE: usize = 16;

/// The division of a launch into work-items and groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchConfig {
    /// Elements per work-item.
    pub per_item: usize,
    /// Work-items per group.
    pub group: usize,
}

impl LaunchConfig {
    /// Returns `on_gpu` elements per work-item on GPUs, as much as evens out on CPUs.
    pub fn new(queue: &Queue, elements: usize, on_gpu: usize) -> Self {
        let group = group_of(queue.body());
        let per_item = match queue.body() {
            KernelBody::Chunk => {
                let units = queue.info().compute_units.max(1) as usize;
                let items = units * ITEMS_PER_CORE;
                elements.div_ceil(items).max(1).next_multiple_of(16)
            }
            KernelBody::LocalTile | KernelBody::SubGroupTile | KernelBody::WarpTile => on_gpu,
        };
        Self { per_item, group }
    }

    /// Returns the launch size for so many elements.
    pub fn grid(self, elements: usize) -> (usize, usize) {
        (elements.div_ceil(self.per_item), self.group)
    }
}

/// Checks that `n` keys can be looked up where keys and values are of `room` elements.
///
/// # Errors
/// [`Error::Invalid`] if not.
pub(crate) fn check_lookup(n: usize, room: usize) -> Result<()> {
    if n <= room && n <= u32::MAX as usize {
        Ok(())
    } else {
        Err(Error::Invalid(format!(
            "a lookup of {n} keys (at most 2^32 - 1) in buffers of {room}"
        )))
    }
}

/// Returns whether kernels prefetch.
pub(crate) fn prefetches(queue: &Queue) -> bool {
    queue.body() == KernelBody::Chunk && queue.info().has_prefetch()
}

/// Returns the bytes of a table up to which random accesses to it stay in the cache.
pub(crate) fn cached_bytes(info: &DeviceInfo) -> u64 {
    match info.kind {
        DeviceKind::Cpu => 4 << 20,
        _ => 48 << 20,
    }
}

/// Returns the work-group size of kernels over tiles in local memory: one thread on CPU runtimes,
/// where barriers between work-items cost more than the items.
pub(crate) fn local_group(queue: &Queue) -> usize {
    group_of(queue.body())
}

/// Returns the same for a kernel body.
pub(crate) fn group_of(body: KernelBody) -> usize {
    match body {
        KernelBody::Chunk => 1,
        KernelBody::LocalTile | KernelBody::SubGroupTile | KernelBody::WarpTile => 256,
    }
}

/// Returns how kernels see what others' atomics write.
pub(crate) fn peek_define(peek: bool) -> (&'static str, String) {
    ("PEEK_VOLATILE", u8::from(peek).to_string())
}

/// Returns a program whose tiles of so many lanes talk through sub-groups.
pub(crate) fn with_sub_groups(
    text: ProgramText,
    shuffle: SubGroupShuffle,
    lanes: usize,
) -> ProgramText {
    let text = text.with_sub_group_lanes(lanes);
    match shuffle {
        SubGroupShuffle::Intel => text,
        SubGroupShuffle::Khronos => text.with_options("-cl-std=CL3.0"),
    }
}

/// Returns the launch size of one work-item per element.
pub(crate) fn grid_of(items: usize) -> (usize, usize) {
    (items, GROUP)
}

/// Returns the number of elements per work-item where each walks a contiguous chunk: enough
/// work-items to fill the device, chunks of whole cache lines.
pub(crate) fn elements_per_item(info: &DeviceInfo, items: usize) -> usize {
    let per_unit = match info.kind {
        DeviceKind::Cpu => 16,
        _ => 2048,
    };
    elements_per_item_of(info, items, per_unit)
}

/// Returns the same with so many work-items per compute unit.
pub(crate) fn elements_per_item_of(info: &DeviceInfo, items: usize, per_unit: usize) -> usize {
    let workers = info.compute_units.max(1) as usize * per_unit;
    items.div_ceil(workers).max(1).next_multiple_of(16)
}
