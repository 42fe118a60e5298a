//! Blocks of device memory that are used again.
//!
//! ```text
//!  allocate ──▶ an idle block of the size's class? ──▶ clCreateBuffer
//!     │
//!     ▼
//!  Arc<Block> ◀── owners: buffers and mapped staging memory, on any thread
//!             ◀── queue threads: blocks that commands of their job use, until it has finished
//!     │ nobody holds it
//!     ▼
//!  idle; beyond the cap, and when a job asks for more than is free, others are released
//! ```
//!
//! A probe chunk wants the same handful of buffers again and again, and creating one costs time. A
//! GPU driver may wait for all queues when memory is freed; a CPU runtime gets fresh pages by one
//! fault each. Sizes are rounded up to one of eight classes per octave, at most an eighth too much.
//! Blocks over [`BLOCK_BYTES_MAX`] are tables, which come and go with queries: they are released.
//!
//! A command may run long after the call that enqueued it. Meanwhile another thread may drop the
//! owner of its memory: a query is cancelled, a job is skipped. So a queue thread holds the blocks
//! that its commands use, and a block is idle only when its queue threads have finished, too. Later
//! commands of the same in-order queue may have a block at once that only their queue thread holds.
//!
//! Idle memory counts in the device's [`Budget`](super::budget::Budget). Its bytes become idle, or
//! are used again, while the pool is locked, so that all idle bytes can be found there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::budget::{Grant, Refused};
use super::memory::Memory;
use super::releases::Releases;

/// Bytes of the smallest block.
const BLOCK_BYTES_MIN: u64 = 4 << 10;

/// Bytes of the largest block that is kept.
const BLOCK_BYTES_MAX: u64 = 256 << 20;

/// Idle blocks of one device.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Idle>,
    cap: u64,
    releases: Arc<Releases>,
}

/// Memory that is not used, and its bytes of the budget.
type Kept = (Memory, Grant);

#[derive(Debug, Default)]
struct Idle {
    blocks: BTreeMap<u64, Vec<Kept>>,
    bytes: u64,
    /// True if the context is lost: nothing is kept any more.
    closed: bool,
}

impl Idle {
    /// Returns the size whose idle blocks take most bytes, but not `other`.
    fn most_but(&self, other: u64) -> Option<u64> {
        let others = self.blocks.iter().filter(|(size, _)| **size != other);
        let taken = |(size, blocks): &(&u64, &Vec<Kept>)| **size * blocks.len() as u64;
        let largest = others
            .filter(|of_size| taken(of_size) > 0)
            .max_by_key(taken);
        largest.map(|(size, _)| *size)
    }

    /// Takes an idle block of `size` bytes, if there is one.
    fn take(&mut self, size: u64) -> Option<Kept> {
        let kept = self.blocks.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(kept)
    }
}

/// Memory of one buffer. Its owners and the queue threads whose commands use it share it; when the
/// last of them drops it, it goes back to its pool.
#[derive(Debug)]
pub(super) struct Block {
    /// Taken out in `drop` only.
    memory: Option<Memory>,
    bytes: u64,
    pool: Arc<Pool>,
    /// Its bytes of the budget. Taken out in `drop` only.
    grant: Option<Grant>,
}

/// Returns the bytes of a block with room for `bytes` of data.
pub(super) fn block_bytes(bytes: u64) -> u64 {
    if bytes > BLOCK_BYTES_MAX {
        return bytes;
    }
    let bytes = bytes.max(BLOCK_BYTES_MIN);
    let step = (bytes.next_power_of_two() / 16).max(1);
    bytes.div_ceil(step) * step
}

impl Pool {
    /// Returns a pool that keeps up to `cap` bytes. `releases` releases the others.
    pub(super) fn new(cap: u64, releases: &Arc<Releases>) -> Arc<Self> {
        Arc::new(Self {
            idle: Mutex::default(),
            cap,
            releases: Arc::clone(releases),
        })
    }

    /// Returns a block of the new `memory` of `bytes` (see [`block_bytes`]).
    pub(super) fn block(self: &Arc<Self>, memory: Memory, bytes: u64, grant: Grant) -> Arc<Block> {
        Arc::new(Block {
            memory: Some(memory),
            bytes,
            pool: Arc::clone(self),
            grant: Some(grant),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle block for `bytes`, if one fits. Refuses if more than `limit` bytes of the
    /// budget would then be taken.
    pub(super) fn take_idle(
        self: &Arc<Self>,
        bytes: u64,
        limit: u64,
    ) -> Result<Option<Arc<Block>>, Refused> {
        self.take_idle_if(bytes, limit, |_| true)
    }

    /// Takes an idle block for `bytes` that `is_wanted`, as [`take_idle`](Self::take_idle) does.
    pub(super) fn take_idle_if(
        self: &Arc<Self>,
        bytes: u64,
        limit: u64,
        is_wanted: impl Fn(&Memory) -> bool,
    ) -> Result<Option<Arc<Block>>, Refused> {
        let mut idle = self.idle();
        let Some(blocks) = idle.blocks.get_mut(&bytes) else {
            return Ok(None);
        };
        let Some(at) = blocks.iter().rposition(|(memory, _)| is_wanted(memory)) else {
            return Ok(None);
        };
        let (memory, mut grant) = blocks.swap_remove(at);
        match grant.use_again(limit) {
            Ok(()) => {
                idle.bytes -= bytes;
                Ok(Some(self.block(memory, bytes, grant)))
            }
            Err(refused) => {
                blocks.push((memory, grant));
                Err(refused)
            }
        }
    }

    /// Returns whether a block of `bytes` is kept when nobody uses it.
    pub(super) fn keeps(&self, bytes: u64) -> bool {
        bytes <= BLOCK_BYTES_MAX.min(self.cap)
    }

    /// Keeps memory that is not used any more, or has it released.
    fn give(&self, (memory, mut grant): Kept, bytes: u64) {
        let mut released = Vec::new();
        let mut idle = self.idle();
        let mut keeps = self.keeps(bytes) && !idle.closed;
        while keeps && idle.bytes + bytes > self.cap {
            // Sizes that are in use push out those that are not.
            match idle.most_but(bytes).and_then(|size| idle.take(size)) {
                Some(other) => released.push(other),
                None => keeps = false,
            }
        }
        grant.lay_idle();
        if keeps {
            idle.blocks.entry(bytes).or_default().push((memory, grant));
            idle.bytes += bytes;
        } else {
            released.push((memory, grant));
        }
        drop(idle);
        self.let_go(released);
    }

    /// Releases what is idle: at least `bytes`, or all there is. Returns whether there was any. To
    /// be called on threads that the watchdog looks after.
    pub(super) fn release(&self, bytes: u64) -> bool {
        let any = self.releases.release_waiting();
        let mut released = Vec::new();
        let mut idle = self.idle();
        let least = idle.bytes.saturating_sub(bytes);
        while idle.bytes > least {
            match idle.most_but(0).and_then(|size| idle.take(size)) {
                Some(kept) => released.push(kept),
                None => break,
            }
        }
        drop(idle);
        let any = any || !released.is_empty();
        self.let_go(released);
        any
    }

    fn let_go(&self, released: Vec<Kept>) {
        let released = released.into_iter();
        let unused = released.map(|(memory, grant)| (memory, Some(grant)));
        self.releases.release(unused.collect());
    }

    /// Releases every idle block: memory is short.
    pub(super) fn clear(&self) {
        self.release(u64::MAX);
    }

    /// Keeps nothing from now on: commands of a lost context may still write to its memory.
    pub(super) fn close(&self) {
        self.idle().closed = true;
        self.clear();
    }
}

impl Block {
    /// Returns the memory; taken out in `drop` only.
    pub(super) fn memory(&self) -> &Memory {
        match &self.memory {
            Some(memory) => memory,
            None => unreachable!("a block has its memory until it is dropped"),
        }
    }

    /// Returns whether it came from `pool`.
    pub(super) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Returns whether its pool keeps it when nobody uses it any more.
    pub(super) fn is_kept(&self) -> bool {
        self.pool.keeps(self.bytes)
    }

    /// Returns the bytes of the block.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (Some(memory), Some(grant)) = (self.memory.take(), self.grant.take()) {
            self.pool.give((memory, grant), self.bytes);
        }
    }
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
            BLOCK_BYTES_MAX - 1,
            BLOCK_BYTES_MAX + 1,
        ] {
            let block = block_bytes(bytes);
            assert!(
                block >= bytes && block_bytes(block) == block,
                "{bytes} {block}"
            );
            assert!(block - bytes <= bytes / 8, "{bytes} {block}");
        }
        assert_eq!(block_bytes(1), BLOCK_BYTES_MIN);
    }
}
