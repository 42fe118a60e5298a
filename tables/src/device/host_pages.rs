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
//!
//! A forked process has none of the pages. Linux would copy all that are pinned. Where it does not
//! know that they are, this process would write to a copy, and the device would read the others.

use std::ptr::NonNull;

/// Bytes of a large page.
#[cfg(target_os = "linux")]
const LARGE_PAGE: usize = 2 << 20;

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
        let slack = if bytes < LARGE_PAGE { 0 } else { LARGE_PAGE };
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
        let pages = Self {
            address,
            bytes,
            whole: (whole, all),
        };
        if !pages.advise(libc::MADV_DONTFORK) {
            return None;
        }
        super::huge_pages::ask(address.as_ptr() as usize, bytes);
        pages.touch();
        Some(pages)
    }

    /// Tells the system how the mapping is used. Returns whether it listens.
    fn advise(&self, advice: libc::c_int) -> bool {
        let (whole, bytes) = self.whole;
        // SAFETY: the mapping is this one's own, and whoever asks knows what the advice does to it.
        let failed = unsafe { libc::madvise(whole.as_ptr().cast(), bytes, advice) };
        if failed != 0 {
            let error = std::io::Error::last_os_error();
            log::debug!("advice {advice} on {bytes} bytes: {error}");
        }
        failed == 0
    }

    /// Leaves the addresses to a driver that may still use them, for good. The memory goes back to
    /// the system once the driver pins it no more: nobody reads it again.
    pub(super) fn leave_to_driver(self) {
        self.advise(libc::MADV_DONTNEED);
        std::mem::forget(self);
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

    /// Leaves the addresses to a driver that may still use them, for good.
    pub(super) fn leave_to_driver(self) {
        std::mem::forget(self);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Returns the flags of the mapping that has `address`, as `/proc/self/smaps` shows them.
    fn flags_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_in = false;
        for line in maps.lines() {
            let bounds = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let bounds = bounds.and_then(|(from, to)| {
                let parse = |text| usize::from_str_radix(text, 16).ok();
                Some(parse(from)?..parse(to)?)
            });
            match bounds {
                Some(bounds) => is_in = bounds.contains(&address),
                None if is_in && line.starts_with("VmFlags:") => return line.to_owned(),
                None => {}
            }
        }
        panic!("no mapping has {address:x}");
    }

    #[test]
    fn pages_begin_where_large_ones_do_and_are_not_forked() {
        for bytes in [4096, 1 << 20, LARGE_PAGE, 3 * LARGE_PAGE] {
            let pages = HostPages::new(bytes as u64).unwrap();
            let page = if bytes < LARGE_PAGE { 4096 } else { LARGE_PAGE };
            assert_eq!(pages.address().as_ptr().align_offset(page), 0);
            assert_eq!(pages.bytes(), bytes);
            // SAFETY: the pages have so many bytes.
            unsafe { pages.address().add(bytes - 1).write(7) };
            let flags = flags_of(pages.address().as_ptr() as usize);
            assert!(flags.contains(" dc"), "{flags}");
        }
    }

    #[test]
    fn pages_that_are_left_keep_their_addresses() {
        let pages = HostPages::new(LARGE_PAGE as u64).unwrap();
        let address = pages.address();
        // SAFETY: the pages have so many bytes.
        unsafe { address.write(7) };
        pages.leave_to_driver();
        // SAFETY: the mapping stays, and its memory is new.
        assert_eq!(unsafe { address.read_volatile() }, 0);
        flags_of(address.as_ptr() as usize);
    }
}
