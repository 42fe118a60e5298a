//! Host memory for a driver to lock, in large pages that are there before the driver is asked.
//!
//! ```text
//!  ALLOC_HOST_PTR    driver: 1024 pages of 4 KiB, made, cleared and pinned one by one
//!                    ░░░░░░░░░░░░░░░░░░░░  the launches of all queues wait
//!
//!  USE_HOST_PTR      this process: 2 pages of 2 MiB, made and cleared ─▶ driver: pins two
//!                    ▓▓▓▓▓▓                                              ░░░░
//! ```
//!
//! Only one thread at a time locks pages in a driver, and other calls wait for it. Making and
//! clearing the pages takes most of that time, and needs no driver. Linux gives large pages on
//! request, where transparent huge pages are not `never`. Without them the pages are small, and are
//! made before the driver is asked all the same. `benches/notes.md` has the measurements.

use std::ptr::NonNull;

/// Bytes of a large page.
pub(super) const LARGE_PAGE: u64 = 2 << 20;

/// Pages of this process that nobody else uses.
#[derive(Debug)]
pub(super) struct HostPages {
    address: NonNull<u8>,
    bytes: usize,
    /// What the system gave, to be given back.
    #[cfg(target_os = "linux")]
    whole: (NonNull<u8>, usize),
}

// SAFETY: it is memory, and stands for itself on any thread.
unsafe impl Send for HostPages {}
// SAFETY: it hands out no more than its address.
unsafe impl Sync for HostPages {}

impl HostPages {
    /// Returns where the memory begins, at a page.
    pub(super) fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(target_os = "linux")]
impl HostPages {
    /// Takes `bytes` bytes of memory, whose pages are there when it returns; `None` if the system
    /// has none.
    pub(super) fn new(bytes: u64) -> Option<Self> {
        let bytes = usize::try_from(bytes).ok()?;
        // Linux may align a mapping to small pages alone.
        let slack = if bytes < LARGE_PAGE as usize {
            0
        } else {
            LARGE_PAGE as usize
        };
        let all = bytes.checked_add(slack)?;
        // SAFETY: a new mapping at a place of the system's choice.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                all,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            log::debug!("no {all} bytes: {}", std::io::Error::last_os_error());
            return None;
        }
        let whole = NonNull::new(mapped.cast::<u8>())?;
        let skipped = whole.as_ptr().align_offset(slack.max(1));
        // SAFETY: the bytes that are skipped are fewer than the slack.
        let address = unsafe { whole.add(skipped) };
        super::huge_pages::ask(address.as_ptr() as usize, bytes);
        let pages = Self {
            address,
            bytes,
            whole: (whole, all),
        };
        pages.touch();
        Some(pages)
    }

    /// Has the system make all pages, by a write to each small one.
    fn touch(&self) {
        const SMALL_PAGE: usize = 4096;
        for at in (0..self.bytes).step_by(SMALL_PAGE) {
            // SAFETY: the mapping has the byte, and nobody else knows of it yet.
            unsafe { self.address.add(at).write_volatile(0) };
        }
    }
}

#[cfg(target_os = "linux")]
impl Drop for HostPages {
    fn drop(&mut self) {
        let (whole, bytes) = self.whole;
        // SAFETY: the mapping is this one's own, and its owner lets nobody use it any more.
        let failed = unsafe { libc::munmap(whole.as_ptr().cast(), bytes) };
        if failed != 0 {
            let error = std::io::Error::last_os_error();
            log::debug!("{bytes} bytes were not given back: {error}");
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl HostPages {
    /// Returns `None`: other systems' drivers make their own pages.
    pub(super) fn new(_: u64) -> Option<Self> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_where_large_ones_do() {
        for bytes in [4096, 1 << 20, LARGE_PAGE, 3 * LARGE_PAGE] {
            let pages = HostPages::new(bytes).unwrap();
            let page = LARGE_PAGE.min(bytes.max(4096)) as usize;
            assert_eq!(pages.address().as_ptr().align_offset(page.min(4096)), 0);
            if bytes >= LARGE_PAGE {
                assert_eq!(pages.address().as_ptr().align_offset(page), 0);
            }
            assert_eq!(pages.bytes() as u64, bytes);
            // SAFETY: the pages have so many bytes.
            unsafe { pages.address().add(pages.bytes() - 1).write(7) };
        }
    }
}
