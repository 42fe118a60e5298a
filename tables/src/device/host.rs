//! The host itself: hints for where its processor reads at random places, and its memory.
//!
//! ```text
//!  prefetch(rows, i + 8) … compare(rows, i)     strings of candidate pairs
//! ```
//!
//! They are `unsafe` or a system's own, so they stand here.

/// Asks the system for large pages under `slice`, as for tables of CPU devices. Call it before the
/// slice is first written to: pages keep their size.
pub fn ask_for_large_pages<T>(slice: &[T]) {
    super::huge_pages::ask(slice.as_ptr() as usize, size_of_val(slice));
}

/// Prefetches the cache line of `slice[index]`. Does nothing outside of the slice, or on processors
/// without a known instruction.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the pointer is that of a live element, and every x86-64 processor has SSE.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}

/// Returns the bytes of the machine's memory, or of its container's if that has less; the largest
/// number where the system does not say.
#[cfg(target_os = "linux")]
pub fn memory() -> u64 {
    /// The limits that a container sees of itself, by version 2 and 1 of cgroups.
    const LIMITS: [&str; 2] = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    // SAFETY: both only return a number.
    let [pages, page] =
        unsafe { [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE].map(|name| libc::sysconf(name)) };
    let machine = match (u64::try_from(pages), u64::try_from(page)) {
        (Ok(pages), Ok(page)) => pages.saturating_mul(page),
        _ => u64::MAX,
    };
    let limits = LIMITS.iter().filter_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        text.trim().parse::<u64>().ok()
    });
    limits.fold(machine, u64::min)
}

/// Returns the largest number: the system does not say.
#[cfg(not(target_os = "linux"))]
pub fn memory() -> u64 {
    u64::MAX
}
