//! The memory of a queue thread's commands that are not known to be done.
//!
//! ```text
//!  command ─▶ hold ─▶ InUse ─┬─ clFinish ────────▶ clear: idle, if nobody else has it
//!                            └─ clFinish failed ─▶ strand_on_host: page-locked memory stays
//! ```
//!
//! A driver knows which of its buffers a command uses, but not whose host memory.

use std::sync::Arc;

use super::pool::{Block, Pool};
use super::staging::StagingMemory;

/// The memory that the commands of one queue use.
#[derive(Debug, Default)]
pub(super) struct InUse {
    blocks: Vec<Arc<Block>>,
    /// Memory of the host's, which they copy from and to.
    staged: Vec<StagingMemory>,
}

impl InUse {
    /// Holds `block` until the job has finished.
    pub(super) fn hold(&mut self, block: &Arc<Block>) {
        // The last one is usually the next one.
        let is_held = |held: &Arc<Block>| Arc::ptr_eq(held, block);
        if !self.blocks.iter().rev().any(is_held) {
            self.blocks.push(Arc::clone(block));
        }
    }

    /// Holds memory of the host's until the job has finished.
    pub(super) fn hold_staged(&mut self, memory: &StagingMemory) {
        self.staged.push(memory.clone());
    }

    /// Finds a block of `bytes` of `pool` that has no owner any more: later commands of the queue
    /// thread's queue may have it. It stays held, as earlier ones may still run.
    pub(super) fn take(&mut self, pool: &Arc<Pool>, bytes: u64) -> Option<Arc<Block>> {
        let fits = |block: &Arc<Block>| block.bytes() == bytes && block.is_of(pool);
        let is_free = |block: &mut Arc<Block>| fits(block) && Arc::get_mut(block).is_some();
        let at = self.blocks.iter_mut().position(is_free)?;
        Some(Arc::clone(&self.blocks[at]))
    }

    /// Returns the bytes of all memory.
    pub(super) fn bytes(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(|block| block.bytes()).sum();
        let staged: u64 = self.staged.iter().map(StagingMemory::bytes).sum();
        blocks + staged
    }

    /// Returns whether commands alone hold some block, which is free when they are done.
    pub(super) fn has_free(&mut self) -> bool {
        let mut blocks = self.blocks.iter_mut();
        blocks.any(|block| Arc::get_mut(block).is_some())
    }

    /// Lets all memory go, although the commands may still run. Page-locked memory, which they copy
    /// from and to, stays for good.
    pub(super) fn strand_on_host(&mut self) {
        self.blocks.clear();
        for memory in self.staged.drain(..) {
            if let StagingMemory::Locked(range) = memory {
                std::mem::forget(range);
            }
        }
    }

    /// Lets all memory go: the commands so far are done.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.staged.clear();
    }
}
