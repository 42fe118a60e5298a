//! Host memory that a device copies to and from at full speed.
//!
//! ```text
//!  GPU   page-locked Staging ─send: copy──▶ Buffer ─kernels─▶ Buffer ─fetch: copy─▶ Staging
//!  CPU   a mapped Staging ──send: unmap───▶ that memory as Buffer ─fetch: map────▶ Staging
//! ```
//!
//! From ordinary memory a driver copies through a buffer of its own, at a third of the link's
//! speed or less. A CPU device needs no copy at all: `memory` changes hands. Both kinds come from
//! pools, because locking pages costs more than using them a few times.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use ocl::core::OclPrm;

use super::locked::LockedRange;
use super::pool::Block;

/// `len` elements of host memory that a device can copy from, or use itself.
pub struct Staging<T: OclPrm> {
    address: NonNull<T>,
    pub(super) memory: StagingMemory,
    pub(super) len: usize,
}

/// The memory that elements lie in. Clones share it.
#[derive(Debug, Clone)]
pub(super) enum StagingMemory {
    /// Of a CPU device, and mapped.
    Mapped(Arc<Block>),
    /// Of the host, which a GPU copies from and to.
    Locked(Arc<LockedRange>),
}

impl StagingMemory {
    /// Returns the number of its bytes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            StagingMemory::Mapped(block) => block.bytes(),
            StagingMemory::Locked(range) => range.bytes(),
        }
    }
}

// SAFETY: the elements are plain words in memory that stays mapped as long as `memory` is held; the
// owner of the staging memory is their only user, and reads and writes them by its borrow rules.
unsafe impl<T: OclPrm> Send for Staging<T> {}
// SAFETY: as above; a shared borrow only reads.
unsafe impl<T: OclPrm> Sync for Staging<T> {}

impl<T: OclPrm> Staging<T> {
    /// Returns the first `len` elements at `address`, where `block` is mapped.
    pub(super) fn mapped(address: NonNull<u8>, block: Arc<Block>, len: usize) -> Self {
        Self {
            address: address.cast(),
            memory: StagingMemory::Mapped(block),
            len,
        }
    }

    /// Returns the first `len` elements of `range`.
    pub(super) fn locked(range: Arc<LockedRange>, len: usize) -> Self {
        Self {
            address: range.address().cast(),
            memory: StagingMemory::Locked(range),
            len,
        }
    }

    /// Returns whether its memory is kept when it is dropped.
    pub(super) fn is_kept(&self) -> bool {
        match &self.memory {
            StagingMemory::Mapped(block) => block.is_kept(),
            StagingMemory::Locked(range) => range.is_kept(),
        }
    }

    /// Keeps the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the bytes of the elements.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the elements are plain words, so their bytes can be looked at.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(&self[..])) }
    }

    /// Returns the bytes of the elements, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = size_of_val(&self[..]);
        // SAFETY: as above, every bit pattern is an element, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), bytes) }
    }
}

impl<T: OclPrm> Deref for Staging<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has room for `len` elements and stays mapped, page-aligned, as long
        // as `self` holds it; `self` is its only user; every bit pattern is a `T`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.len) }
    }
}

impl<T: OclPrm> DerefMut for Staging<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.len) }
    }
}

impl<T: OclPrm> std::fmt::Debug for Staging<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} × {} bytes)", self.len, size_of::<T>())
    }
}
