//! OpenCL's functions of buffers. What reads and writes them is a command (`commands`).
//!
//! ```text
//!  clCreateBuffer ─▶ a buffer ─ clGetMemObjectInfo, clRetainMemObject ─▶ clReleaseMemObject
//! ```

use super::{called, give, made};
use crate::device::Answer;
use crate::faults::{pass, pass_release};
use crate::memory::{Buffer, USE_HOST_PTR};
use crate::objects::{Context, Ptr, add, find, references, release, retain};
use crate::status::{INVALID_HOST_PTR, INVALID_VALUE};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateBuffer(
    context: Ptr,
    flags: u64,
    size: usize,
    host: Ptr,
    status: *mut i32,
) -> Ptr {
    let buffer = || {
        find::<Context>(context)?;
        if host.is_null() == (flags & USE_HOST_PTR != 0) {
            return Err(INVALID_HOST_PTR);
        }
        pass(context)?;
        let buffer = Buffer::new(context, flags, size)?;
        // SAFETY: the caller's bytes, as many as it says, and its own until the buffer is gone.
        Ok(add(unsafe { buffer.with_host(host.cast()) }))
    };
    // SAFETY: the caller's place, or NULL.
    unsafe { made(status, buffer) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetMemObjectInfo(
    handle: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Buffer>(handle).and_then(|buffer| match what {
        0x1101 => Ok(Answer::long(buffer.flags)),
        0x1102 => Ok(Answer::long(buffer.size as u64)),
        0x1105 => Ok(Answer::int(references(handle) as u32)),
        0x1106 => Ok(Answer::handle(buffer.context)),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub extern "C" fn clRetainMemObject(handle: Ptr) -> i32 {
    called(|| retain::<Buffer>(handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn clReleaseMemObject(handle: Ptr) -> i32 {
    pass_release();
    called(|| release::<Buffer>(handle))
}
