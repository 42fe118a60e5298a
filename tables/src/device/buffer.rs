//! Memory of a device as typed elements.
//!
//! ```text
//!  Buffer<T> { len } ─▶ Arc<Block> ─▶ Memory ─▶ cl_mem
//!                          └─ also held by queue threads whose commands use it (`pool`)
//! ```
//!
//! Dropping a buffer waits for nothing: the block outlives it until its commands are done.
//! An empty buffer has a block of one element, as OpenCL has no empty buffers.

use std::sync::Arc;

use crate::error::{Error, Result};

use super::pool::Block;

/// A device buffer of `len` elements. Its bytes return to the budget when it is dropped and the
/// commands that use it are done.
#[derive(Debug)]
pub struct Buffer<T> {
    pub(super) block: Arc<Block>,
    pub(super) len: usize,
    pub(super) _element: std::marker::PhantomData<T>,
}

impl<T> Buffer<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the elements from `len` on; their memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the bytes of its elements.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

pub(super) fn within<T>(buffer: &Buffer<T>, offset: usize, len: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= buffer.len => Ok(()),
        _ => Err(Error::Invalid(format!(
            "{len} elements from {offset} on are outside of a device buffer of {}",
            buffer.len
        ))),
    }
}
