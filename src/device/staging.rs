//! Host memory that a device copies to and from at full speed.
//!
//! ```text
//!  GPU   Staging: page-locked memory ─send: copy──▶ Buffer ─kernels─▶ Buffer ─fetch: copy─▶ Staging
//!  CPU   Staging: a mapped buffer ──send: unmap───▶ the same memory as Buffer ─fetch: map─▶ Staging
//! ```
//!
//! From ordinary memory a driver copies through a buffer of its own, at a third of the link's
//! speed or less; where the device is the host's CPU nothing needs to be copied at all. Both
//! come from pools, because locking pages costs more than using them a few times.

use std::ops::{Deref, DerefMut};

use ocl::core::{CommandQueue, Mem, MemMap, OclPrm};

use super::call::{self, Called};
use super::memory::Grant;
use super::pool::Block;

/// A buffer that the host sees; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Taken out when it ends.
    map: Option<MemMap<u8>>,
    mem: Mem,
    commands: CommandQueue,
}

// SAFETY: a shared mapping only tells its address; what stands there is read and written through
// `Staging`, which is borrowed accordingly.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `mem`, waiting for the commands before it in `commands`. It is
    /// unmapped through `host`, on which no kernels run.
    pub(super) fn new(
        mem: &Mem,
        bytes: usize,
        commands: &CommandQueue,
        host: &CommandQueue,
    ) -> Called<Self> {
        // SAFETY: callers map no more bytes than the buffer has, and use it on the device only
        // after `end`.
        let map = unsafe { call::map(commands, mem, bytes, "") }?;
        Ok(Self {
            map: Some(map),
            mem: mem.clone(),
            commands: host.clone(),
        })
    }

    /// Gives the memory back to the device, before later commands of `commands`.
    ///
    /// # Errors
    /// The driver's: then the device may not see what the host wrote.
    pub(super) fn end(mut self, commands: &CommandQueue) -> Called<()> {
        match self.map.take() {
            Some(map) => call::unmap(commands, &self.mem, &map, "to send"),
            None => Ok(()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let Some(map) = self.map.take() else { return };
        if let Err(error) = call::unmap(&self.commands, &self.mem, &map, "after reading") {
            log::debug!("clEnqueueUnmapMemObject failed: {error}");
        }
    }
}

/// `len` elements of host memory, with what an earlier use left in them.
pub struct Staging<T: OclPrm> {
    /// Of a CPU's buffer; page-locked memory is mapped for good, by its block.
    pub(super) mapping: Option<Mapping>,
    pub(super) block: Block,
    pub(super) grant: Option<Grant>,
    pub(super) len: usize,
    pub(super) element: std::marker::PhantomData<T>,
}

impl<T: OclPrm> Staging<T> {
    /// Keeps the first `len` elements.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The elements' bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the elements are plain words, so their bytes can be looked at.
        unsafe { std::slice::from_raw_parts(self.as_ptr().cast(), size_of_val(&self[..])) }
    }

    /// The elements' bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = size_of_val(&self[..]);
        // SAFETY: as above, every bit pattern is an element, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), bytes) }
    }

    fn map(&self) -> &MemMap<u8> {
        let mapping = self.mapping.as_ref();
        match mapping.or(self.block.memory().mapping.as_ref()) {
            Some(Mapping { map: Some(map), .. }) => map,
            _ => unreachable!("staging memory is mapped"),
        }
    }
}

impl<T: OclPrm> Deref for Staging<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the block has room for `len` elements and is mapped, page-aligned, for as long
        // as `self` lives; `self` is its only user; every bit pattern is a `T`.
        unsafe { std::slice::from_raw_parts(self.map().as_ptr().cast(), self.len) }
    }
}

impl<T: OclPrm> DerefMut for Staging<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.map().as_ptr().cast_mut().cast(), self.len) }
    }
}

impl<T: OclPrm> std::fmt::Debug for Staging<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Staging({} × {} bytes)", self.len, size_of::<T>())
    }
}
