//! SlabAlloc and SlabAlloc-light: where slabs come from; the host side of
//! `cl/baselines/slab/alloc.cl`.
//!
//! ```text
//!  SlabAlloc        [super block] [super block] …    a buffer each; more can be added
//!  SlabAlloc-light  [super block | super block | …]  one buffer
//!      super block  = bitmaps │ memory block (1024 slabs) │ memory block │ …
//! ```
//!
//! Slab hash paper, section V. Kernels allocate and free by themselves; the host only adds super
//! blocks between launches, when one has come back without slabs ("exhausted"). OpenCL 1.2 cannot
//! keep pointers in buffers, so every super block is an argument of every kernel, 32 at most; the
//! paper's 255 would be 8-bit numbers all the same.

use std::sync::Arc;

use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::baselines::slab::kernels;

use super::layout::{Entries, MAX_SUPER_BLOCKS, PoolLayout};

/// Memory for slabs on a device.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::table::baselines::slab::{PoolLayout, SlabPool};
///
/// # fn main() -> horton_tables::Result<()> {
/// let device = Device::open("auto")?;
/// device.run_blocking(|queue| {
///     let layout = PoolLayout { light: true, super_blocks: 1, blocks: 4 };
///     let pool = SlabPool::new(queue, layout)?;
///     let (slabs, failed) = pool.allocate_many(queue, 5000)?;
///     assert_eq!((slabs.len(), failed), (5000, 904));
///     pool.free_many(queue, &slabs)
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SlabPool {
    layout: PoolLayout,
    buffers: Vec<Arc<Buffer<u64>>>,
}

impl SlabPool {
    /// Returns a pool whose slabs are all free and empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a layout that addresses cannot name, [`Error::DeviceMemory`], and
    /// OpenCL's own.
    pub fn new(queue: &mut Queue, layout: PoolLayout) -> Result<Self> {
        layout.check()?;
        let mut pool = Self {
            layout: PoolLayout {
                super_blocks: 0,
                ..layout
            },
            buffers: Vec::new(),
        };
        if layout.light {
            pool.add(queue, layout.super_blocks)?;
        } else {
            for _ in 0..layout.super_blocks {
                pool.add(queue, 1)?;
            }
        }
        Ok(pool)
    }

    /// Adds a buffer of so many super blocks.
    fn add(&mut self, queue: &mut Queue, super_blocks: usize) -> Result<()> {
        let words = super_blocks * self.layout.super_block_words();
        let buffer = queue.allocate("super blocks of slabs", words / 2)?;
        queue.fill(&buffer, u64::MAX)?;
        self.buffers.push(Arc::new(buffer));
        self.layout.super_blocks += super_blocks;
        Ok(())
    }

    /// Adds a super block, if this is a SlabAlloc and has not the most already; whether it has.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn grow(&mut self, queue: &mut Queue) -> Result<bool> {
        if self.layout.light || self.layout.super_blocks == MAX_SUPER_BLOCKS {
            return Ok(false);
        }
        self.add(queue, 1)?;
        Ok(true)
    }

    /// Allocates a slab for each of `n` independent threads; their addresses, and how many got none
    /// ([`NO_SLAB`](super::NO_SLAB)).
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn allocate_many(&self, queue: &mut Queue, n: usize) -> Result<(Buffer<u32>, usize)> {
        let addresses = queue.allocate("addresses of slabs", n)?;
        let failures = queue.buffer_from("failed allocations", &[0u32])?;
        let mut args = self.args();
        args.extend([
            Arg::Words(&addresses),
            Arg::Words(&failures),
            Arg::U32(n as u32),
            Arg::U32(self.layout.super_blocks as u32),
        ]);
        let program = kernels::program(queue, Entries::Pairs, &self.layout);
        let grid = kernels::singles(queue, n);
        queue.launch(&program, "allocate_slabs", grid, &args)?;
        let failed = queue.read(&failures, 1)?[0];
        Ok((addresses, failed as usize))
    }

    /// Frees slabs, which must be allocated, empty and in no list; [`NO_SLAB`](super::NO_SLAB) is
    /// skipped.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn free_many(&self, queue: &mut Queue, addresses: &Buffer<u32>) -> Result<()> {
        let n = addresses.len();
        let mut args = self.args();
        args.extend([Arg::Words(addresses), Arg::U32(n as u32)]);
        let program = kernels::program(queue, Entries::Pairs, &self.layout);
        let grid = kernels::singles(queue, n);
        queue.launch(&program, "deallocate_slabs", grid, &args)
    }

    /// Returns the super blocks as the first arguments of a kernel.
    pub(super) fn args(&self) -> Vec<Arg<'_>> {
        let given = self.buffers.iter().map(|buffer| Arg::Longs(buffer));
        let missing = kernels::pool_arguments(self.layout.light);
        given
            .chain(std::iter::repeat(Arg::Null))
            .take(missing)
            .collect()
    }

    /// Returns the shape of the pool.
    pub fn layout(&self) -> PoolLayout {
        self.layout
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.bytes()).sum()
    }

    /// Returns the words of every super block.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn download(&self, queue: &mut Queue) -> Result<Vec<Vec<u32>>> {
        let mut super_blocks = Vec::new();
        for buffer in &self.buffers {
            let words = halves(&queue.read(buffer, buffer.len())?);
            let chunks = words.chunks(self.layout.super_block_words());
            super_blocks.extend(chunks.map(<[u32]>::to_vec));
        }
        Ok(super_blocks)
    }

    /// Returns a pool with these words.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are not those of `layout`; as [`new`](Self::new).
    pub fn upload(queue: &mut Queue, layout: PoolLayout, words: &[Vec<u32>]) -> Result<Self> {
        let size = layout.super_block_words();
        if words.len() != layout.super_blocks || words.iter().any(|block| block.len() != size) {
            return Err(Error::Invalid(format!(
                "invalid words of a pool: expected {} super blocks of {size} words",
                layout.super_blocks
            )));
        }
        let pool = Self::new(queue, layout)?;
        for (s, words) in words.iter().enumerate() {
            let words = doubles(words);
            let (buffer, offset) = if layout.light {
                (&pool.buffers[0], s * size / 2)
            } else {
                (&pool.buffers[s], 0)
            };
            queue.upload(buffer, offset, &words)?;
        }
        Ok(pool)
    }
}

/// Returns 64-bit `words` as 32-bit ones, low halves first.
pub(super) fn halves(words: &[u64]) -> Vec<u32> {
    let halves = |word: &u64| [*word as u32, (*word >> 32) as u32];
    words.iter().flat_map(halves).collect()
}

/// Returns pairs of 32-bit `words` as 64-bit ones, low halves first.
pub(super) fn doubles(words: &[u32]) -> Vec<u64> {
    let (pairs, _) = words.as_chunks::<2>();
    let double = |pair: &[u32; 2]| u64::from(pair[1]) << 32 | u64::from(pair[0]);
    pairs.iter().map(double).collect()
}
