//! OpenCL's functions of platforms, devices, contexts and queues.
//!
//! ```text
//!  the one platform ─▶ the one device ─▶ contexts ─▶ queues ─ flush, finish
//! ```

use std::sync::Arc;

use super::{called, give, made, store};
use crate::device::{self, Answer, DEVICE, PLATFORM};
use crate::faults::pass;
use crate::objects::{Context, Ptr, add, find, references};
use crate::queue::Queue;
use crate::status::{DEVICE_NOT_FOUND, INVALID_VALUE, SUCCESS};

/// Types of devices that this one is of: the default, and GPUs.
const TYPES: u64 = 1 | 4;

unsafe fn list(one: usize, entries: u32, handles: *mut Ptr, count: *mut u32) {
    // SAFETY: the caller's places, or NULL.
    unsafe { store(count, 1) };
    if entries > 0 {
        // SAFETY: as above.
        unsafe { store(handles, one as Ptr) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformIDs(entries: u32, out: *mut Ptr, count: *mut u32) -> i32 {
    // SAFETY: the caller's places, or NULL.
    unsafe { list(PLATFORM, entries, out, count) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformInfo(
    _: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    // SAFETY: the caller's places.
    unsafe { give(device::platform(what), size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetDeviceIDs(
    _: Ptr,
    kind: u64,
    entries: u32,
    out: *mut Ptr,
    count: *mut u32,
) -> i32 {
    if kind & TYPES == 0 {
        return DEVICE_NOT_FOUND;
    }
    // SAFETY: the caller's places, or NULL.
    unsafe { list(DEVICE, entries, out, count) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetDeviceInfo(
    _: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    // SAFETY: the caller's places.
    unsafe { give(device::device(what), size, value, needs) }
}

#[unsafe(no_mangle)]
pub extern "C" fn clRetainDevice(_: Ptr) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn clReleaseDevice(_: Ptr) -> i32 {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateContext(
    _: *const isize,
    _: u32,
    _: *const Ptr,
    _: Ptr,
    _: Ptr,
    status: *mut i32,
) -> Ptr {
    // SAFETY: the caller's place, or NULL.
    unsafe {
        made(status, || {
            pass(std::ptr::null_mut())?;
            Ok(add(Arc::new(Context)))
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetContextInfo(
    context: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Context>(context).and_then(|_| match what {
        0x1080 => Ok(Answer::int(references(context) as u32)),
        0x1081 => Ok(Answer::handle(DEVICE as Ptr)),
        0x1083 => Ok(Answer::int(1)),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateCommandQueue(
    context: Ptr,
    _: Ptr,
    properties: u64,
    status: *mut i32,
) -> Ptr {
    let queue = || {
        find::<Context>(context)?;
        pass(context)?;
        Ok(add(Queue::new(context, properties)?))
    };
    // SAFETY: the caller's place, or NULL.
    unsafe { made(status, queue) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetCommandQueueInfo(
    handle: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Queue>(handle).and_then(|queue| match what {
        0x1090 => Ok(Answer::handle(queue.context)),
        0x1091 => Ok(Answer::handle(DEVICE as Ptr)),
        0x1092 => Ok(Answer::int(references(handle) as u32)),
        0x1093 => Ok(Answer::long(queue.properties)),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub extern "C" fn clFlush(queue: Ptr) -> i32 {
    called(|| pass(find::<Queue>(queue)?.context))
}

#[unsafe(no_mangle)]
pub extern "C" fn clFinish(queue: Ptr) -> i32 {
    called(|| {
        let line = find::<Queue>(queue)?;
        pass(line.context)?;
        line.finish(queue)
    })
}
