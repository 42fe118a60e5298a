//! Buffers, and what the host sees of them.
//!
//! ```text
//!  [ bytes of the buffer            | guard up to the next page and one more ]
//!    garbage, or what was there before              0xc5 …
//!
//!  map ─▶ a copy of the bytes ─▶ the host writes ─▶ unmap: copied back, then overwritten
//! ```
//!
//! A device's memory is not the host's. So what is mapped is a copy, which comes and goes when the
//! queue's thread gets there. A kernel that writes behind a buffer is found by its guard. One that
//! reads what nobody wrote finds garbage, or the bytes of a buffer that was released.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::objects::{Object, Ptr};
use crate::settings::settings;
use crate::status::{
    Called, INVALID_BUFFER_SIZE, INVALID_MEM_OBJECT, INVALID_VALUE, MEM_OBJECT_ALLOCATION_FAILURE,
};

const PAGE: usize = 4096;
const GUARD: u8 = 0xc5;
const GARBAGE: u8 = 0xa5;

/// Bytes of a new buffer that are garbage: the system's own zeros would cost more.
const GARBAGE_MAX: usize = 16 << 20;

pub const USE_HOST_PTR: u64 = 8;

const MAP_WRITE: u64 = 2;
const MAP_WRITE_INVALIDATE: u64 = 4;

/// Bytes of all buffers.
static USED: AtomicU64 = AtomicU64::new(0);

/// Blocks that were released, by their bytes.
static RELEASED: Mutex<BTreeMap<usize, Vec<Block>>> = Mutex::new(BTreeMap::new());

/// Whole pages of this process, with room for a guard.
struct Block {
    all: Box<[u8]>,
    /// Where the first page begins.
    first: usize,
}

impl Block {
    fn new(room: usize) -> Self {
        let all = vec![0; room + PAGE].into_boxed_slice();
        let first = all.as_ptr().align_offset(PAGE);
        Self { all, first }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.all[self.first..]
    }
}

/// A buffer.
pub struct Buffer {
    pub context: Ptr,
    pub flags: u64,
    pub size: usize,
    block: Mutex<Option<Block>>,
    address: u64,
    /// Its bytes and those of its guard.
    room: usize,
    /// Where the host sees it, if the host said so; 0 if not.
    host: usize,
    mapped: Mutex<BTreeMap<usize, Mapped>>,
}

// SAFETY: `context` is a number that stands for an object; nobody follows it.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Object for Buffer {
    const INVALID: i32 = INVALID_MEM_OBJECT;
}

/// Bytes that the host sees, at a place that is the key of the map.
struct Mapped {
    /// `None` for bytes of the host.
    own: Option<Box<[u8]>>,
    bytes: usize,
    offset: usize,
    flags: u64,
}

impl Buffer {
    /// Takes `size` bytes.
    ///
    /// # Errors
    /// The status of a device that has no more, and of a buffer without bytes.
    pub fn new(context: Ptr, flags: u64, size: usize) -> Called<Self> {
        if size == 0 {
            return Err(INVALID_BUFFER_SIZE);
        }
        if USED.fetch_add(size as u64, Ordering::SeqCst) + size as u64 > settings().memory {
            USED.fetch_sub(size as u64, Ordering::SeqCst);
            return Err(MEM_OBJECT_ALLOCATION_FAILURE);
        }
        let room = size.next_multiple_of(PAGE) + PAGE;
        let released = lock(&RELEASED).get_mut(&room).and_then(Vec::pop);
        let mut block = released.unwrap_or_else(|| {
            let mut block = Block::new(room);
            block.bytes()[..size.min(GARBAGE_MAX)].fill(GARBAGE);
            block
        });
        let bytes = &mut block.bytes()[..room];
        bytes[size..].fill(GUARD);
        let address = bytes.as_ptr() as u64;
        Ok(Self {
            context,
            flags,
            size,
            address,
            room,
            host: 0,
            block: Mutex::new(Some(block)),
            mapped: Mutex::default(),
        })
    }

    /// Returns the buffer with the bytes that are at `host`, where the host sees it from then on;
    /// as it is, if that is NULL.
    ///
    /// # Safety
    /// Nobody else uses the bytes while they are mapped. They stay until the buffer is gone.
    pub unsafe fn with_host(mut self, host: *const u8) -> Arc<Self> {
        if !host.is_null() {
            self.host = host as usize;
            // SAFETY: the caller's promise, and the block has as many bytes.
            unsafe { copy(host, self.address as *mut u8, self.size) };
        }
        Arc::new(self)
    }

    /// Returns where its bytes begin and end.
    pub fn range(&self) -> (u64, u64) {
        (self.address, self.address + self.size as u64)
    }

    /// Returns where the byte at `offset` is, if `bytes` bytes follow from there.
    ///
    /// # Errors
    /// The status of a call with other bytes than the buffer has, or with none.
    pub fn at(&self, offset: usize, bytes: usize) -> Called<*mut u8> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.size);
        match end {
            Some(_) if bytes > 0 => Ok((self.address as *mut u8).wrapping_add(offset)),
            _ => Err(INVALID_VALUE),
        }
    }

    /// Returns whether nobody wrote behind it. Mends the guard.
    pub fn is_guard_whole(&self) -> bool {
        let mut block = lock(&self.block);
        let Some(block) = block.as_mut() else {
            return true;
        };
        let guard = &mut block.bytes()[self.size..self.room];
        // Without a branch for each byte: each launch looks at the guards of its buffers.
        let is_whole = guard.iter().fold(0, |differs, byte| differs | byte ^ GUARD) == 0;
        if !is_whole {
            guard.fill(GUARD);
        }
        is_whole
    }

    /// Maps `bytes` bytes from `offset` on. They are there once [`fill_mapped`](Self::fill_mapped)
    /// has been called.
    ///
    /// # Errors
    /// The errors of [`at`](Self::at).
    pub fn map(&self, flags: u64, offset: usize, bytes: usize) -> Called<Ptr> {
        self.at(offset, bytes)?;
        let mut own = match self.host {
            0 => Some(vec![GARBAGE; bytes].into_boxed_slice()),
            _ => None,
        };
        let place = own
            .as_mut()
            .map_or(self.host + offset, |own| own.as_mut_ptr() as usize);
        let mapped = Mapped {
            own,
            bytes,
            offset,
            flags,
        };
        lock(&self.mapped).insert(place, mapped);
        Ok(place as Ptr)
    }

    /// Copies the buffer's bytes to where they were mapped.
    pub fn fill_mapped(&self, place: usize) {
        let all = lock(&self.mapped);
        let Some(mapped) = all.get(&place) else {
            return;
        };
        if mapped.flags & MAP_WRITE_INVALIDATE == 0
            && let Ok(from) = self.at(mapped.offset, mapped.bytes)
        {
            // SAFETY: `at` checked that so many bytes of the block follow, and those at `place` are
            // others. Kernels and copies of one queue do not run at the same time.
            unsafe { copy(from, place as *mut u8, mapped.bytes) };
        }
    }

    /// Returns whether something is mapped at `place`.
    pub fn is_mapped(&self, place: usize) -> bool {
        lock(&self.mapped).contains_key(&place)
    }

    /// Copies what the host wrote at `place` back, and takes that place away.
    pub fn unmap(&self, place: usize) {
        let Some(mapped) = lock(&self.mapped).remove(&place) else {
            return;
        };
        if mapped.flags & (MAP_WRITE | MAP_WRITE_INVALIDATE) != 0
            && let Ok(to) = self.at(mapped.offset, mapped.bytes)
        {
            // SAFETY: as in `fill_mapped`.
            unsafe { copy(place as *const u8, to, mapped.bytes) };
        }
        // SAFETY: the bytes are there until the host knows that they are unmapped.
        unsafe { std::ptr::write_bytes(place as *mut u8, GARBAGE, mapped.bytes) };
        drop(mapped.own);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.is_guard_whole() {
            eprintln!(
                "horton-driver: WRITTEN BEHIND a buffer of {} bytes",
                self.size
            );
        }
        if self.host != 0 {
            // SAFETY: the bytes stay until the buffer is gone, and it goes only now.
            unsafe { std::ptr::write_bytes(self.host as *mut u8, GARBAGE, self.size) };
        }
        USED.fetch_sub(self.size as u64, Ordering::SeqCst);
        if let Some(block) = lock(&self.block).take() {
            let mut released = lock(&RELEASED);
            released.entry(self.room).or_default().push(block);
        }
    }
}

/// Copies `bytes` bytes.
///
/// # Safety
/// So many bytes can be read at `from` and written at `to`, and they do not overlap.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_a_copy_until_it_is_unmapped() {
        let buffer = Buffer::new(std::ptr::null_mut(), 0, 100).unwrap();
        let place = buffer.map(MAP_WRITE, 10, 4).unwrap().cast::<u8>();
        // SAFETY: four bytes are mapped there.
        let seen = unsafe { std::slice::from_raw_parts_mut(place, 4) };
        buffer.fill_mapped(place as usize);
        seen.copy_from_slice(&[1, 2, 3, 4]);
        // SAFETY: the buffer has so many bytes.
        let own = |n| unsafe { *buffer.at(n, 1).unwrap() };
        assert_eq!(own(10), GARBAGE);
        buffer.unmap(place as usize);
        assert_eq!([own(9), own(10), own(13)], [GARBAGE, 1, 4]);
        assert!(!buffer.is_mapped(place as usize));
        assert_eq!(buffer.at(97, 4), Err(INVALID_VALUE));
    }

    #[test]
    fn what_is_mapped_of_the_hosts_is_where_the_host_said() {
        // Of another size than other tests have: what is released is used again.
        let mut host = [3u8; 3 * PAGE];
        let buffer = Buffer::new(std::ptr::null_mut(), USE_HOST_PTR, host.len()).unwrap();
        // SAFETY: the bytes outlive the buffer, and are looked at while they are mapped.
        let buffer = unsafe { buffer.with_host(host.as_ptr()) };
        let place = buffer.map(MAP_WRITE, 10, 4).unwrap() as usize;
        assert_eq!(place, host.as_mut_ptr() as usize + 10);
        buffer.fill_mapped(place);
        host[10] = 7;
        buffer.unmap(place);
        // SAFETY: the buffer has so many bytes.
        let own = |n| unsafe { *buffer.at(n, 1).unwrap() };
        assert_eq!([own(9), own(10), own(11), own(14)], [3, 7, 3, 3]);
        assert_eq!(host[9..12], [3, GARBAGE, GARBAGE]);
    }

    #[test]
    fn a_write_behind_a_buffer_is_found_once() {
        let buffer = Buffer::new(std::ptr::null_mut(), 0, 100).unwrap();
        assert!(buffer.is_guard_whole());
        let (_, end) = buffer.range();
        // SAFETY: the block has a guard there.
        unsafe { *(end as *mut u8) = 1 };
        assert!(!buffer.is_guard_whole());
        assert!(buffer.is_guard_whole());
    }
}
