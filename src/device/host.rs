//! The host's own processor: what it is told ahead, where it compares strings at random places and
//! where CPU runtimes are measured beside it.

/// Asks the system for large pages under `slice`, as under the buffers of CPU devices that are read at
/// random places; before it is written to, as pages stay what they are.
pub fn ask_for_large_pages<T>(slice: &[T]) {
    super::pages::ask(slice.as_ptr() as usize, size_of_val(slice));
}

/// Asks for the cache line of `slice[index]`, which will be read soon; does nothing outside the
/// slice and on processors without a known instruction.
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
