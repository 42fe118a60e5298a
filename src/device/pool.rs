//! Blocks of device memory that are used again.
//!
//! ```text
//!  allocate ──▶ an idle block of the size's class? ──▶ clCreateBuffer
//!  drop ─┬─ inside a job: its commands may still use it ─▶ the job's own list ─▶ idle at its end
//!        └─ elsewhere ──────────────────────────────────▶ idle; beyond the cap, others are released
//! ```
//!
//! A probe chunk wants the same handful of buffers again and again, and creating one is not
//! free: a GPU driver may wait for all queues when memory is freed, a CPU runtime hands
//! fresh pages to the kernel one fault at a time. Sizes are rounded up to one of eight classes
//! an octave, at most an eighth too much. Blocks over [`LARGEST`] are tables, which come and go
//! with queries: they are created and released.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ocl::core::Mem;

use super::staging::Mapping;

/// Bytes of the smallest block.
const SMALLEST: u64 = 4 << 10;

/// Bytes of the largest block that is kept.
const LARGEST: u64 = 256 << 20;

/// Idle blocks of one device or of its host side.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Idle>,
    cap: u64,
}

#[derive(Debug, Default)]
struct Idle {
    blocks: HashMap<u64, Vec<Memory>>,
    bytes: u64,
}

impl Idle {
    /// A block of another size, of that which takes most: what is used now makes room for what is used next.
    fn take_other(&mut self, bytes: u64) -> Option<Memory> {
        let others = self.blocks.iter().filter(|(size, _)| **size != bytes);
        let (size, _) = others.max_by_key(|(size, blocks)| **size * blocks.len() as u64)?;
        let size = *size;
        let memory = self.blocks.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(memory)
    }
}

/// A memory object, and where the host sees it if it does so for good (page-locked memory).
#[derive(Debug)]
pub(super) struct Memory {
    // Unmapped before it is released.
    pub(super) mapping: Option<Mapping>,
    pub(super) mem: Mem,
}

/// Memory of one buffer; goes back to its pool when dropped.
#[derive(Debug)]
pub(super) struct Block {
    memory: Option<Memory>,
    bytes: u64,
    pool: Arc<Pool>,
}

thread_local! {
    /// Blocks dropped inside the job that this thread runs. Only later commands of the same
    /// in-order queue may have them before the job has finished.
    static OF_JOB: RefCell<Option<Vec<Block>>> = const { RefCell::new(None) };
}

/// The bytes of a block with room for `bytes`.
pub(super) fn block_bytes(bytes: u64) -> u64 {
    if bytes > LARGEST {
        return bytes;
    }
    let bytes = bytes.max(SMALLEST);
    let step = (bytes.next_power_of_two() / 16).max(1);
    bytes.div_ceil(step) * step
}

impl Pool {
    /// A pool that keeps up to `cap` bytes.
    pub(super) fn new(cap: u64) -> Arc<Self> {
        Arc::new(Self {
            idle: Mutex::default(),
            cap,
        })
    }

    /// A block of `bytes` (see [`block_bytes`]), created by `create` if none is idle.
    pub(super) fn take<E>(
        self: &Arc<Self>,
        bytes: u64,
        create: impl FnOnce() -> Result<Memory, E>,
    ) -> Result<Block, E> {
        let dropped = OF_JOB.with_borrow_mut(|dropped| {
            let dropped = dropped.as_mut()?;
            let fits = |block: &Block| block.bytes == bytes && Arc::ptr_eq(&block.pool, self);
            let at = dropped.iter().position(fits)?;
            Some(dropped.swap_remove(at))
        });
        if let Some(block) = dropped {
            return Ok(block);
        }
        let memory = match self.take_idle(bytes) {
            Some(memory) => memory,
            None => create()?,
        };
        Ok(Block {
            memory: Some(memory),
            bytes,
            pool: Arc::clone(self),
        })
    }

    fn take_idle(&self, bytes: u64) -> Option<Memory> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = idle.blocks.get_mut(&bytes)?.pop()?;
        idle.bytes -= bytes;
        Some(memory)
    }

    fn give(&self, memory: Memory, bytes: u64) {
        if bytes > LARGEST {
            return;
        }
        // Released once others may go on.
        let mut released = Vec::new();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while idle.bytes + bytes > self.cap {
            match idle.take_other(bytes) {
                Some(memory) => released.push(memory),
                None => return,
            }
        }
        idle.blocks.entry(bytes).or_default().push(memory);
        idle.bytes += bytes;
        drop(idle);
    }

    /// Releases every idle block: memory is short.
    pub(super) fn clear(&self) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Idle::default();
    }
}

impl Block {
    /// The memory; taken out in `drop` only.
    pub(super) fn memory(&self) -> &Memory {
        match &self.memory {
            Some(memory) => memory,
            None => unreachable!("a block has its memory until it is dropped"),
        }
    }

    /// Whether it came from `pool`.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Bytes of the block.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        let mut block = Some(Block {
            memory: Some(memory),
            bytes: self.bytes,
            pool: Arc::clone(&self.pool),
        });
        // A thread that is ending has no list any more, and no job.
        let _ = OF_JOB.try_with(|dropped| {
            if let Some(dropped) = dropped.borrow_mut().as_mut() {
                dropped.extend(block.take());
            }
        });
        if let Some(memory) = block.and_then(|mut block| block.memory.take()) {
            self.pool.give(memory, self.bytes);
        }
    }
}

/// From here on this thread runs a job.
pub(super) fn begin_job() {
    OF_JOB.with_borrow_mut(|dropped| *dropped = Some(Vec::new()));
}

/// The job's commands have finished: what it dropped is idle.
pub(super) fn end_job() {
    // Taken out first: dropping the blocks looks at the list again.
    let dropped = OF_JOB.take();
    drop(dropped);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_at_most_an_eighth_too_large() {
        for bytes in [
            4096,
            4097,
            5000,
            70_000,
            (1 << 20) + 1,
            LARGEST - 1,
            LARGEST + 1,
        ] {
            let block = block_bytes(bytes);
            assert!(
                block >= bytes && block_bytes(block) == block,
                "{bytes} {block}"
            );
            assert!(block - bytes <= bytes / 8, "{bytes} {block}");
        }
        assert_eq!(block_bytes(1), SMALLEST);
    }
}
