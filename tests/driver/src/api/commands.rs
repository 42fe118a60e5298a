//! OpenCL's functions that put commands in line of a queue, and those of their events.
//!
//! ```text
//!  clEnqueueXxx(queue, …, events to wait for) ─▶ send ─▶ the queue's thread ─▶ work
//!                                                  └▶ an event ─▶ clWaitForEvents
//! ```

use super::{GROUP_MAX, called, give, made, store};
use crate::device::Answer;
use crate::faults::pass;
use crate::memory::{Buffer, copy};
use crate::objects::{Ptr, add, find, references};
use crate::program::Kernel;
use crate::queue::{Event, MAP, Queue, UNMAP, Work, wait_for};
use crate::settings::settings;
use crate::status::{
    Called, INVALID_VALUE, INVALID_WORK_DIMENSION, INVALID_WORK_GROUP_SIZE, MEM_COPY_OVERLAP,
    OUT_OF_RESOURCES,
};

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
