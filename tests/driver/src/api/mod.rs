//! The functions of OpenCL that the loader's forwarders look for.
//!
//! ```text
//!  clXxx(handles, values, places of results) ─▶ called(|| …) ─▶ a status
//! ```
//!
//! A function that is not here is one that the loader answers in our place, with an error. What the
//! functions do is in the other files; here handles become objects, and results go to where the
//! caller wants them.
//!
//! The caller's pointers are good for what the specification says of each function. All unsafe code
//! here depends on that, as it would in any driver.

#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

mod commands;
mod devices;
mod memory;
mod programs;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::device::Answer;
use crate::memory::copy;
use crate::objects::{Context, Ptr, release, retain};
use crate::program::{Kernel, Program};
use crate::queue::{Event, Queue};
use crate::status::{Called, INVALID_VALUE, OUT_OF_RESOURCES, SUCCESS};

/// Work-items of a group at most.
const GROUP_MAX: usize = 256;

/// Returns the status of a call. A panic must not reach the caller's code.
fn called(call: impl FnOnce() -> Called<()>) -> i32 {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => OUT_OF_RESOURCES,
    }
}

/// Returns the handle of a call that makes an object, or NULL, and stores its status.
unsafe fn made(status: *mut i32, call: impl FnOnce() -> Called<Ptr>) -> Ptr {
    let mut handle = std::ptr::null_mut();
    let is = called(|| {
        handle = call()?;
        Ok(())
    });
    // SAFETY: the caller's place, or NULL.
    unsafe { store(status, is) };
    handle
}

/// Stores `value` where the caller wants it, if it does.
unsafe fn store<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's place for one such value.
        unsafe { place.write_unaligned(value) };
    }
}

/// Gives an answer to a caller that has `size` bytes for it.
unsafe fn give(answer: Called<Answer>, size: usize, value: Ptr, needs: *mut usize) -> i32 {
    called(|| {
        let Answer(bytes) = answer?;
        // SAFETY: the caller's place, or NULL.
        unsafe { store(needs, bytes.len()) };
        if value.is_null() {
            return Ok(());
        }
        if size < bytes.len() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller has `size` bytes there.
        unsafe { copy(bytes.as_ptr(), value.cast(), bytes.len()) };
        Ok(())
    })
}

macro_rules! retain_and_release {
    ($($retain:ident $release:ident $kind:ty),* $(,)?) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $retain(handle: Ptr) -> i32 {
            called(|| retain::<$kind>(handle))
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn $release(handle: Ptr) -> i32 {
            called(|| release::<$kind>(handle))
        }
    )*};
}

retain_and_release! {
    clRetainContext clReleaseContext Context,
    clRetainCommandQueue clReleaseCommandQueue Queue,
    clRetainProgram clReleaseProgram Program,
    clRetainKernel clReleaseKernel Kernel,
    clRetainEvent clReleaseEvent Event,
}
