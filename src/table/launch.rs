//! How elements are spread over work-items where each element is independent.
//!
//! ```text
//!  CPU   [share | share | share | …]      one work-item a group, a contiguous share each
//!  GPU   [ 0 1 2 … 255 | 256 … ]          one element a work-item, groups of GROUP
//! ```
//!
//! A kernel walks `share` elements from `get_global_id(0) * share`, whatever the device. On CPU
//! runtimes that gives prefetching something to run ahead of; on GPUs neighbours read neighbours.

use crate::device::{DeviceKind, KernelBody, Queue};
use crate::error::{Error, Result};

use crate::table::primitives::scan::group_of;

/// Work-group size on GPUs; with small ones, a GPU spends its time on starting them.
pub(crate) const GROUP: usize = 256;

/// Keys between a prefetch and its use on CPU runtimes (measured for lookups of Horton tables).
pub(crate) const LOOK_AHEAD: u32 = 32;

/// Work-items that a CPU core gets, so that all end at about the same time.
const ITEMS_PER_CORE: usize = 16;

/// Shares of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    /// Elements a work-item.
    pub share: usize,
    /// Work-items a group.
    pub group: usize,
}

impl Spread {
    /// `per_item` elements a work-item on GPUs, as much as evens out on CPUs.
    pub fn new(queue: &Queue, elements: usize, per_item: usize) -> Self {
        let group = group_of(queue.body());
        let share = match queue.body() {
            KernelBody::Chunk => {
                let units = queue.info().compute_units.max(1) as usize;
                let items = units * ITEMS_PER_CORE;
                elements.div_ceil(items).max(1).next_multiple_of(16)
            }
            KernelBody::LocalTile | KernelBody::SubGroupTile | KernelBody::WarpTile => per_item,
        };
        Self { share, group }
    }

    /// Launch size for so many elements.
    pub fn grid(self, elements: usize) -> (usize, usize) {
        (elements.div_ceil(self.share), self.group)
    }
}

/// Whether `n` keys can be looked up where keys and values are of `room` elements.
///
/// # Errors
/// [`Error::Internal`] if not.
pub(crate) fn check_lookup(n: usize, room: usize) -> Result<()> {
    match n <= room && n <= u32::MAX as usize {
        true => Ok(()),
        false => Err(Error::Internal(format!(
            "a lookup of {n} keys (at most 2^32 - 1) in buffers of {room}"
        ))),
    }
}

/// Whether kernels prefetch.
pub(crate) fn prefetches(queue: &Queue) -> bool {
    queue.body() == KernelBody::Chunk && queue.info().has_prefetch()
}

/// Bytes of a table up to which random accesses to it stay in the cache.
pub(crate) fn cached_bytes(queue: &Queue) -> usize {
    match queue.info().kind {
        DeviceKind::Cpu => 4 << 20,
        _ => 32 << 20,
    }
}
