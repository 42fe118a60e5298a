//! Large pages under those buffers of CPU devices that are read at random places.
//!
//! ```text
//!  buffer   [ 4 KiB | 4 KiB | …                      ]   a table of 100 MiB: 25,600 pages
//!           [ …     |       2 MiB       |  2 MiB  | … ]                             50
//! ```
//!
//! A processor remembers where some two thousand pages are. With small pages, nearly every lookup
//! at a random place also waits for a page table. Linux gives large pages on request (`madvise`,
//! where transparent huge pages are not `never`); a refusal changes nothing. Buffers that are read
//! once, in order, do not ask, as finding a large page may mean moving others. `benches/notes.md`
//! has the measurements, on 2 cores with PoCL.

/// The size in bytes from which a buffer holds a large page at any alignment.
pub(super) const HUGE_BUFFER_BYTES: u64 = 4 << 20;

/// Asks for large pages under the mapped `bytes` from `address` on.
#[cfg(target_os = "linux")]
pub(super) fn ask(address: usize, bytes: usize) {
    const PAGE_BYTES: usize = 2 << 20;
    let from = address.next_multiple_of(PAGE_BYTES);
    let to = (address + bytes) / PAGE_BYTES * PAGE_BYTES;
    if from >= to {
        return;
    }
    // SAFETY: the range lies within a mapping that the caller holds; the advice concerns how its
    // pages are backed and leaves what stands in them alone.
    let refused = unsafe { libc::madvise(from as *mut _, to - from, libc::MADV_HUGEPAGE) };
    if refused != 0 {
        let error = std::io::Error::last_os_error();
        log::debug!("no large pages for {bytes} bytes: {error}");
    }
}

/// Does nothing: other systems decide by themselves.
#[cfg(not(target_os = "linux"))]
pub(super) fn ask(_: usize, _: usize) {}
