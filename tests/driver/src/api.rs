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

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::device::{self, Answer, DEVICE, PLATFORM};
use crate::faults::{pass, pass_compiler, pass_release};
use crate::memory::{Buffer, copy};
use crate::objects::{Context, Ptr, add, find, references, release, retain};
use crate::program::{Kernel, Program};
use crate::queue::{Event, MAP, Queue, UNMAP, Work, wait_for};
use crate::settings::settings;
use crate::status::{
    Called, DEVICE_NOT_FOUND, INVALID_BINARY, INVALID_HOST_PTR, INVALID_VALUE,
    INVALID_WORK_DIMENSION, INVALID_WORK_GROUP_SIZE, MEM_COPY_OVERLAP, OUT_OF_RESOURCES, SUCCESS,
};

/// Types of devices that this one is of: the default, and GPUs.
const TYPES: u64 = 1 | 4;

/// Work-items of a group at most.
const GROUP_MAX: usize = 256;

/// Types of commands.
const LAUNCH: u32 = 0x11f0;
const READ: u32 = 0x11f3;
const WRITE: u32 = 0x11f4;
const COPY: u32 = 0x11f5;
const FILL: u32 = 0x1207;

/// A pointer of the caller's that a command uses later.
#[derive(Clone, Copy)]
struct Host(*mut u8);

// SAFETY: the caller keeps its memory until the command has ended, whichever thread runs that.
unsafe impl Send for Host {}

impl Host {
    fn pointer(self) -> *mut u8 {
        self.0
    }
}

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

#[unsafe(no_mangle)]
pub extern "C" fn clRetainMemObject(handle: Ptr) -> i32 {
    called(|| retain::<Buffer>(handle))
}

#[unsafe(no_mangle)]
pub extern "C" fn clReleaseMemObject(handle: Ptr) -> i32 {
    pass_release();
    called(|| release::<Buffer>(handle))
}

// ---------------------------------------------------------------- platform and device

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

// ---------------------------------------------------------------- contexts and queues

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

// ---------------------------------------------------------------- buffers

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
        if !host.is_null() {
            return Err(INVALID_HOST_PTR);
        }
        pass(context)?;
        Ok(add(Buffer::new(context, flags, size)?))
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

// ---------------------------------------------------------------- commands

/// The events that a command waits for, and where its own goes.
struct Events(u32, *const Ptr, *mut Ptr);

/// Puts a command of type `kind` in line of `queue`. Waits for it if it `is_blocking`.
unsafe fn send(
    queue: Ptr,
    (kind, is_blocking): (u32, bool),
    Events(count, waits, out): Events,
    work: Work,
) -> Called<()> {
    let waits = (0..count as usize).map(|n| {
        // SAFETY: the caller has so many events there.
        find::<Event>(unsafe { waits.add(n).read_unaligned() })
    });
    let waits = waits.collect::<Called<Vec<_>>>()?;
    let line = find::<Queue>(queue)?;
    pass(line.context)?;
    let event = line.send((queue, kind), waits, work)?;
    if is_blocking && event.wait() < 0 {
        return Err(OUT_OF_RESOURCES);
    }
    if !out.is_null() {
        // SAFETY: the caller's place for one handle.
        unsafe { store(out, add(event)) };
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueReadBuffer(
    queue: Ptr,
    buffer: Ptr,
    blocking: u32,
    offset: usize,
    size: usize,
    to: *mut u8,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    called(|| {
        let (buffer, to) = (find::<Buffer>(buffer)?, Host(to));
        buffer.at(offset, size)?;
        let work = move || {
            let from = buffer.at(offset, size)?;
            // SAFETY: the buffer has so many bytes there, and so has the caller until now.
            unsafe { copy(from, to.pointer(), size) };
            Ok(())
        };
        let events = Events(count, waits, event);
        // SAFETY: the caller's events.
        unsafe { send(queue, (READ, blocking != 0), events, Box::new(work)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueWriteBuffer(
    queue: Ptr,
    buffer: Ptr,
    blocking: u32,
    offset: usize,
    size: usize,
    from: *mut u8,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    called(|| {
        let (buffer, from) = (find::<Buffer>(buffer)?, Host(from));
        buffer.at(offset, size)?;
        let work = move || {
            let to = buffer.at(offset, size)?;
            // SAFETY: the buffer has so many bytes there, and so has the caller until now.
            unsafe { copy(from.pointer(), to, size) };
            Ok(())
        };
        let events = Events(count, waits, event);
        // SAFETY: the caller's events.
        unsafe { send(queue, (WRITE, blocking != 0), events, Box::new(work)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueCopyBuffer(
    queue: Ptr,
    from: Ptr,
    to: Ptr,
    from_offset: usize,
    to_offset: usize,
    size: usize,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    called(|| {
        let overlaps = from == to && from_offset.abs_diff(to_offset) < size;
        let (from, to) = (find::<Buffer>(from)?, find::<Buffer>(to)?);
        from.at(from_offset, size)?;
        to.at(to_offset, size)?;
        if overlaps {
            return Err(MEM_COPY_OVERLAP);
        }
        let work = move || {
            let (from, to) = (from.at(from_offset, size)?, to.at(to_offset, size)?);
            // SAFETY: the buffers have so many bytes there, which do not overlap.
            unsafe { copy(from, to, size) };
            Ok(())
        };
        let events = Events(count, waits, event);
        // SAFETY: the caller's events.
        unsafe { send(queue, (COPY, false), events, Box::new(work)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueFillBuffer(
    queue: Ptr,
    buffer: Ptr,
    pattern: *const u8,
    length: usize,
    offset: usize,
    size: usize,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    called(|| {
        let buffer = find::<Buffer>(buffer)?;
        buffer.at(offset, size)?;
        let is_whole = length.is_power_of_two() && length <= 128;
        if !is_whole || !offset.is_multiple_of(length) || !size.is_multiple_of(length) {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller has so many bytes there, which may be gone after the call.
        let pattern = unsafe { std::slice::from_raw_parts(pattern, length) }.to_vec();
        let work = move || {
            for at in (offset..offset + size).step_by(length) {
                // SAFETY: the buffer has so many bytes there.
                unsafe { copy(pattern.as_ptr(), buffer.at(at, length)?, length) };
            }
            Ok(())
        };
        let events = Events(count, waits, event);
        // SAFETY: the caller's events.
        unsafe { send(queue, (FILL, false), events, Box::new(work)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueMapBuffer(
    queue: Ptr,
    buffer: Ptr,
    blocking: u32,
    flags: u64,
    offset: usize,
    size: usize,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
    status: *mut i32,
) -> Ptr {
    let mapped = || {
        let buffer = find::<Buffer>(buffer)?;
        let place = buffer.map(flags, offset, size)?;
        let at = place as usize;
        let work = move || {
            buffer.fill_mapped(at);
            Ok(())
        };
        let events = Events(count, waits, event);
        // SAFETY: the caller's events.
        unsafe { send(queue, (MAP, blocking != 0), events, Box::new(work)) }?;
        Ok(place)
    };
    // SAFETY: the caller's place, or NULL.
    unsafe { made(status, mapped) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueUnmapMemObject(
    queue: Ptr,
    buffer: Ptr,
    place: Ptr,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    called(|| {
        let (buffer, place) = (find::<Buffer>(buffer)?, place as usize);
        if !buffer.is_mapped(place) {
            return Err(INVALID_VALUE);
        }
        let work = move || {
            buffer.unmap(place);
            Ok(())
        };
        let events = Events(count, waits, event);
        // SAFETY: the caller's events.
        unsafe { send(queue, (UNMAP, false), events, Box::new(work)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueNDRangeKernel(
    queue: Ptr,
    kernel: Ptr,
    dimensions: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    count: u32,
    waits: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    called(|| {
        let kernel = find::<Kernel>(kernel)?;
        // SAFETY: the caller has a number for each dimension there, or NULL.
        let first = |place: *const usize| (!place.is_null()).then(|| unsafe { place.read() });
        let (Some(global), Some(local)) = (first(global), first(local)) else {
            return Err(INVALID_WORK_GROUP_SIZE);
        };
        if dimensions != 1 || first(offset).unwrap_or_default() != 0 {
            return Err(INVALID_WORK_DIMENSION);
        }
        let is_whole = (1..=GROUP_MAX).contains(&local) && global.is_multiple_of(local);
        let groups = u32::try_from(global / local.max(1));
        let (true, Ok(groups)) = (is_whole, groups) else {
            return Err(INVALID_WORK_GROUP_SIZE);
        };
        let launch = kernel.launch(groups, local as u32)?;
        let events = Events(count, waits, event);
        let work: Work = Box::new(move || launch.run());
        let work = match settings().is_native {
            true => find::<Queue>(queue)?.unless_failed(work),
            false => work,
        };
        // SAFETY: the caller's events.
        unsafe { send(queue, (LAUNCH, false), events, work) }
    })
}

// ---------------------------------------------------------------- events

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clWaitForEvents(count: u32, events: *const Ptr) -> i32 {
    called(|| {
        let events = (0..count as usize).map(|n| {
            // SAFETY: the caller has so many events there.
            find::<Event>(unsafe { events.add(n).read_unaligned() })
        });
        wait_for(&events.collect::<Called<Vec<_>>>()?)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetEventInfo(
    handle: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Event>(handle).and_then(|event| match what {
        0x11d0 => Ok(Answer::handle(event.queue)),
        0x11d1 => Ok(Answer::int(event.kind)),
        0x11d2 => Ok(Answer::int(references(handle) as u32)),
        0x11d3 => Ok(Answer::int(event.status() as u32)),
        0x11d4 => Ok(Answer::handle(find::<Queue>(event.queue)?.context)),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetEventProfilingInfo(
    handle: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Event>(handle).map(|event| {
        let (started, ended) = event.times();
        Answer::long(if what == 0x1283 { ended } else { started })
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

// ---------------------------------------------------------------- programs and kernels

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateProgramWithSource(
    context: Ptr,
    count: u32,
    texts: *const *const c_char,
    lengths: *const usize,
    status: *mut i32,
) -> Ptr {
    let program = || {
        find::<Context>(context)?;
        let mut source = Vec::new();
        for n in 0..count as usize {
            // SAFETY: the caller has so many texts, each of the length that it says, or up to a
            // zero if it says none.
            source.extend_from_slice(unsafe {
                let (text, length) = (*texts.add(n), length_of(lengths, n));
                match length {
                    0 => CStr::from_ptr(text).to_bytes(),
                    length => std::slice::from_raw_parts(text.cast(), length),
                }
            });
        }
        let source = String::from_utf8(source).map_err(|_| INVALID_VALUE)?;
        Ok(add(Program::of_source(context, source)))
    };
    // SAFETY: the caller's place, or NULL.
    unsafe { made(status, program) }
}

/// Returns length `n` of the caller's `lengths`; 0 if there are none.
unsafe fn length_of(lengths: *const usize, n: usize) -> usize {
    if lengths.is_null() {
        return 0;
    }
    // SAFETY: there is one for each text.
    unsafe { *lengths.add(n) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateProgramWithBinary(
    context: Ptr,
    count: u32,
    _: *const Ptr,
    lengths: *const usize,
    binaries: *const *const u8,
    statuses: *mut i32,
    status: *mut i32,
) -> Ptr {
    let program = || {
        find::<Context>(context)?;
        if count != 1 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller has one binary of that length.
        let binary = unsafe { std::slice::from_raw_parts(*binaries, *lengths) }.to_vec();
        let program = Program::of_binary(context, binary);
        let is = program.as_ref().err().map_or(SUCCESS, |_| INVALID_BINARY);
        // SAFETY: the caller's place for one status, or NULL.
        unsafe { store(statuses, is) };
        Ok(add(program?))
    };
    // SAFETY: the caller's place, or NULL.
    unsafe { made(status, program) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clBuildProgram(
    program: Ptr,
    _: u32,
    _: *const Ptr,
    options: *const c_char,
    _: Ptr,
    _: Ptr,
) -> i32 {
    called(|| {
        let program = find::<Program>(program)?;
        let options = match options.is_null() {
            true => "".into(),
            // SAFETY: a text of the caller's.
            false => unsafe { CStr::from_ptr(options) }.to_string_lossy(),
        };
        pass_compiler(program.context)?;
        program.build(&options)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetProgramInfo(
    handle: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    const BINARIES: u32 = 0x1166;
    let program = find::<Program>(handle);
    if let (BINARIES, Ok(program)) = (what, &program) {
        let binary = program.binary();
        // SAFETY: the caller has a place there for each device's binary, as long as it was told.
        unsafe {
            store(needs, size_of::<Ptr>());
            if !value.is_null() {
                copy(binary.as_ptr(), *value.cast(), binary.len());
            }
        }
        return SUCCESS;
    }
    let answer = program.and_then(|program| match what {
        0x1161 => Ok(Answer::handle(program.context)),
        0x1162 => Ok(Answer::int(1)),
        0x1163 => Ok(Answer::handle(DEVICE as Ptr)),
        0x1165 => Ok(Answer::long(program.binary().len() as u64)),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetProgramBuildInfo(
    handle: Ptr,
    _: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    // CL_BUILD_SUCCESS, or CL_BUILD_ERROR.
    let built = |is_built| if is_built { 0 } else { -2i32 };
    let answer = find::<Program>(handle).and_then(|program| match what {
        0x1181 => Ok(Answer::int(built(program.is_built()) as u32)),
        0x1182 => Ok(Answer::text("")),
        0x1183 => Ok(Answer::text(&program.log())),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateKernel(
    program: Ptr,
    name: *const c_char,
    status: *mut i32,
) -> Ptr {
    let kernel = || {
        // SAFETY: a text of the caller's.
        let name = unsafe { CStr::from_ptr(name) }.to_str();
        let kernel = Kernel::new(program, name.map_err(|_| INVALID_VALUE)?)?;
        pass(kernel.context)?;
        Ok(add(kernel))
    };
    // SAFETY: the caller's place, or NULL.
    unsafe { made(status, kernel) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clSetKernelArg(
    kernel: Ptr,
    index: u32,
    size: usize,
    value: *const u8,
) -> i32 {
    called(|| {
        let kernel = find::<Kernel>(kernel)?;
        // One of a launch's calls, as there would be few others among the faults.
        if index == 0 {
            pass(kernel.context)?;
        }
        let value = match value.is_null() {
            true => vec![0; size],
            // SAFETY: the caller has so many bytes there.
            false => unsafe { std::slice::from_raw_parts(value, size) }.to_vec(),
        };
        kernel.set(index, value)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetKernelInfo(
    handle: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Kernel>(handle).and_then(|kernel| match what {
        0x1190 => Ok(Answer::text(&kernel.name)),
        0x1193 => Ok(Answer::handle(kernel.context)),
        0x1194 => Ok(Answer::handle(kernel.program)),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetKernelWorkGroupInfo(
    handle: Ptr,
    _: Ptr,
    what: u32,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let answer = find::<Kernel>(handle).and_then(|_| match what {
        0x11b0 => Ok(Answer::long(GROUP_MAX as u64)),
        0x11b3 => Ok(Answer::long(u64::from(settings().target.wave_size()))),
        _ => Err(INVALID_VALUE),
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetKernelSubGroupInfo(
    handle: Ptr,
    _: Ptr,
    what: u32,
    _: usize,
    input: *const usize,
    size: usize,
    value: Ptr,
    needs: *mut usize,
) -> i32 {
    let wave = settings().target.wave_size() as usize;
    let answer = find::<Kernel>(handle).and_then(|_| {
        // SAFETY: the caller has the size of a group there.
        let group = unsafe { input.read() };
        match what {
            0x2033 => Ok(Answer::long(wave as u64)),
            0x2034 => Ok(Answer::long(group.div_ceil(wave) as u64)),
            _ => Err(INVALID_VALUE),
        }
    });
    // SAFETY: the caller's places.
    unsafe { give(answer, size, value, needs) }
}
