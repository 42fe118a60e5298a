//! Every OpenCL call of this crate, each through one gate that names its site.
//!
//! ```text
//!  queue, context, … ─▶ opencl::write(…) ─▶ at(CallSite::Write, what) ─▶ ocl::core
//!                                            ├─ a panic inside `ocl` becomes a Failed
//!                                            ├─ the watchdog knows that it is under way
//!                                            └─ debug builds: counted, and failed on demand
//! ```
//!
//! A driver may fail any call at any time, and `ocl` panics on status codes that it does not know.
//! So all calls stand in one file, and none can be forgotten: a test compares the calls here with
//! the sites and finds none elsewhere. In release builds the gate is a `catch_unwind`, which costs
//! nothing until something unwinds, a lock that exits take, and a note for the watchdog. Releasing
//! objects is not here: the loader's forwarders answer that it succeeded, even if the driver says
//! otherwise.

use std::ffi::{CString, c_void};
use std::sync::atomic::AtomicBool;

use ocl::core::{
    self as cl, ArgVal, CommandQueue, CommandQueueProperties, Context, ContextProperties, DeviceId,
    Event, EventInfo, Kernel, MapFlags, Mem, MemFlags, MemMap, OclPrm, PlatformId, PlatformInfo,
    ProfilingInfo, Program, ProgramInfo, ProgramInfoResult,
};

use super::exit;
#[cfg(debug_assertions)]
use super::faults;
use super::host_pages::HostPages;
use super::status::{Failed, without_panic};
use super::watchdog::{self, COMPILER_PATIENCE};

/// The site of an OpenCL call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallSite {
    PlatformIds,
    PlatformInfo,
    DeviceIds,
    DeviceInfo,
    CreateContext,
    CreateQueue,
    ProgramFromSource,
    ProgramFromBinary,
    BuildProgram,
    ProgramBinaries,
    CreateBuffer,
    ReleaseBuffer,
    Map,
    Unmap,
    Write,
    Read,
    Fill,
    Copy,
    CreateKernel,
    SubGroupInfo,
    SetArg,
    Enqueue,
    Finish,
    Flush,
    EventStatus,
    EventTime,
    Wait,
}

impl CallSite {
    /// Returns the name of the OpenCL function.
    pub(super) fn function(self) -> &'static str {
        match self {
            CallSite::PlatformIds => "clGetPlatformIDs",
            CallSite::PlatformInfo => "clGetPlatformInfo",
            CallSite::DeviceIds => "clGetDeviceIDs",
            CallSite::DeviceInfo => "clGetDeviceInfo",
            CallSite::CreateContext => "clCreateContext",
            CallSite::CreateQueue => "clCreateCommandQueue",
            CallSite::ProgramFromSource => "clCreateProgramWithSource",
            CallSite::ProgramFromBinary => "clCreateProgramWithBinary",
            CallSite::BuildProgram => "clBuildProgram",
            CallSite::ProgramBinaries => "clGetProgramInfo",
            CallSite::CreateBuffer => "clCreateBuffer",
            CallSite::ReleaseBuffer => "clReleaseMemObject",
            CallSite::Map => "clEnqueueMapBuffer",
            CallSite::Unmap => "clEnqueueUnmapMemObject",
            CallSite::Write => "clEnqueueWriteBuffer",
            CallSite::Read => "clEnqueueReadBuffer",
            CallSite::Fill => "clEnqueueFillBuffer",
            CallSite::Copy => "clEnqueueCopyBuffer",
            CallSite::CreateKernel => "clCreateKernel",
            CallSite::SubGroupInfo => "clGetKernelSubGroupInfo",
            CallSite::SetArg => "clSetKernelArg",
            CallSite::Enqueue => "clEnqueueNDRangeKernel",
            CallSite::Finish => "clFinish",
            CallSite::Flush => "clFlush",
            CallSite::EventStatus => "clGetEventInfo",
            CallSite::EventTime => "clGetEventProfilingInfo",
            CallSite::Wait => "clWaitForEvents",
        }
    }
}

impl CallSite {
    /// Returns the factor by which the call may take longer than others: a compiler does.
    fn patience(self) -> u32 {
        match self {
            CallSite::BuildProgram => COMPILER_PATIENCE,
            _ => 1,
        }
    }
}

/// The result of a call.
pub(super) type Called<T> = Result<T, Failed>;

/// Makes the `call` at `site`, whose `what` tells its uses apart.
#[cfg_attr(not(debug_assertions), expect(unused_variables))]
fn at<T>(site: CallSite, what: &'static str, call: impl FnOnce() -> cl::Result<T>) -> Called<T> {
    let _watched = watchdog::call(site.function(), site.patience());
    #[cfg(debug_assertions)]
    faults::pass(site.function(), what)?;
    let _under_way = exit::enter();
    match without_panic(call) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Failed::from(error)),
        Err(panic) => Err(Failed::Panic(panic)),
    }
}

// ---------------------------------------------------------------- which devices there are

pub(super) fn platform_ids() -> Called<Vec<PlatformId>> {
    static SEEN: AtomicBool = AtomicBool::new(false);
    exit::loading(&SEEN, || {
        at(CallSite::PlatformIds, "", cl::get_platform_ids)
    })
}

pub(super) fn platform_text(platform: PlatformId, what: PlatformInfo) -> Called<String> {
    at(CallSite::PlatformInfo, "", || {
        cl::get_platform_info(platform, what).map(|text| text.to_string())
    })
}

pub(super) fn device_ids(platform: &PlatformId) -> Called<Vec<DeviceId>> {
    at(CallSite::DeviceIds, "", || {
        cl::get_device_ids(platform, None, None)
    })
}

/// Returns the raw answer to `request`, an OpenCL constant.
pub(super) fn device_info(id: DeviceId, request: u32) -> Called<Vec<u8>> {
    at(CallSite::DeviceInfo, "", || {
        cl::get_device_info_raw(id, request)
    })
}

// ---------------------------------------------------------------- contexts and programs

pub(super) fn create_context(platform: PlatformId, device: DeviceId) -> Called<Context> {
    let properties = ContextProperties::new().platform(platform);
    static SEEN: AtomicBool = AtomicBool::new(false);
    exit::loading(&SEEN, || {
        at(CallSite::CreateContext, "", || {
            cl::create_context(Some(&properties), &[device], None, None)
        })
    })
}

pub(super) fn create_queue(context: &Context, device: DeviceId) -> Called<CommandQueue> {
    let properties = Some(CommandQueueProperties::PROFILING_ENABLE);
    at(CallSite::CreateQueue, "", || {
        cl::create_command_queue(context, device, properties)
    })
}

pub(super) fn program_from_source(
    context: &Context,
    source: CString,
    name: &'static str,
) -> Called<Program> {
    at(CallSite::ProgramFromSource, name, || {
        cl::create_program_with_source(context, &[source])
    })
}

pub(super) fn program_from_binary(
    context: &Context,
    device: DeviceId,
    binary: &[u8],
    name: &'static str,
) -> Called<Program> {
    at(CallSite::ProgramFromBinary, name, || {
        cl::create_program_with_binary(context, &[device], &[binary])
    })
}

pub(super) fn build_program(
    program: &Program,
    device: DeviceId,
    options: &CString,
    name: &'static str,
) -> Called<()> {
    static SEEN: AtomicBool = AtomicBool::new(false);
    exit::loading(&SEEN, || {
        at(CallSite::BuildProgram, name, || {
            cl::build_program(program, Some(&[device]), options, None, None)
        })
    })
}

pub(super) fn program_binaries(program: &Program, name: &'static str) -> Called<Vec<Vec<u8>>> {
    at(
        CallSite::ProgramBinaries,
        name,
        || match cl::get_program_info(program, ProgramInfo::Binaries)? {
            ProgramInfoResult::Binaries(binaries) => Ok(binaries),
            _ => Ok(Vec::new()),
        },
    )
}

pub(super) fn create_kernel(program: &Program, kernel: &'static str) -> Called<Kernel> {
    at(CallSite::CreateKernel, kernel, || {
        cl::create_kernel(program, kernel)
    })
}

// `ocl` declares what OpenCL 1.2 has. The loader forwards this function of OpenCL 2.1 on all
// systems.
unsafe extern "system" {
    fn clGetKernelSubGroupInfo(
        kernel: *mut c_void,
        device: *mut c_void,
        request: u32,
        input_size: usize,
        input: *const c_void,
        size: usize,
        value: *mut c_void,
        size_ret: *mut usize,
    ) -> i32;
}

/// Returns the work-items of the sub-groups that a kernel runs in, in work-groups of `group`.
/// Devices have the function from OpenCL 2.1 on.
pub(super) fn sub_group_size(
    kernel: &Kernel,
    name: &'static str,
    device: DeviceId,
    group: usize,
) -> Called<usize> {
    /// OpenCL's number of `CL_KERNEL_MAX_SUB_GROUP_SIZE_FOR_NDRANGE`.
    const MAX_SUB_GROUP_SIZE: u32 = 0x2033;
    let mut size = 0usize;
    let mut status = 0;
    at(CallSite::SubGroupInfo, name, || {
        // SAFETY: kernel and device are live objects; the request takes a work-group's size and
        // answers with one `size_t`, for which `size` has room.
        status = unsafe {
            clGetKernelSubGroupInfo(
                kernel.as_ptr().cast(),
                device.as_raw().cast(),
                MAX_SUB_GROUP_SIZE,
                size_of::<usize>(),
                (&raw const group).cast(),
                size_of::<usize>(),
                (&raw mut size).cast(),
                std::ptr::null_mut(),
            )
        };
        Ok(())
    })?;
    match status {
        0.. => Ok(size),
        failed => Err(Failed::ended(failed)),
    }
}

pub(super) fn set_arg(
    kernel: &Kernel,
    name: &'static str,
    index: u32,
    value: ArgVal<'_>,
) -> Called<()> {
    at(CallSite::SetArg, name, || {
        cl::set_kernel_arg(kernel, index, value)
    })
}

// ---------------------------------------------------------------- memory

pub(super) fn create_buffer(
    context: &Context,
    flags: MemFlags,
    bytes: u64,
    what: &'static str,
) -> Called<Mem> {
    at(CallSite::CreateBuffer, what, || {
        // SAFETY: no host pointer is handed over (`data` is None), so the buffer aliases nothing.
        unsafe { cl::create_buffer::<_, u8>(context, flags, bytes as usize, None) }
    })
}

/// Creates a buffer whose bytes lie in `pages`.
///
/// # Safety
/// The pages stay until the buffer is released.
pub(super) unsafe fn create_buffer_in(
    context: &Context,
    pages: &HostPages,
    what: &'static str,
) -> Called<Mem> {
    at(CallSite::CreateBuffer, what, || {
        let flags = MemFlags::READ_WRITE | MemFlags::USE_HOST_PTR;
        // SAFETY: the pages are there, written to, and nobody's but the caller's.
        let bytes = unsafe { std::slice::from_raw_parts(pages.address().as_ptr(), pages.bytes()) };
        // SAFETY: the driver is given bytes that stay as long as it uses them, as the caller
        // promises.
        unsafe { cl::create_buffer(context, flags, bytes.len(), Some(bytes)) }
    })
}

/// Lets a buffer go. The driver frees it once no command uses it any more.
pub(super) fn release(mem: Mem) -> Called<()> {
    let mut status = 0;
    at(CallSite::ReleaseBuffer, "", || {
        // SAFETY: the object is live, and the reference that goes is the caller's.
        status = unsafe { cl::ffi::clReleaseMemObject(mem.as_ptr()) };
        Ok(())
    })?;
    std::mem::forget(mem);
    match status {
        0 => Ok(()),
        failed => Err(Failed::ended(failed)),
    }
}

/// Maps the first `bytes` of a buffer for reading and writing, after the commands before, for which
/// it waits.
///
/// # Safety
/// The buffer has that many bytes, and no command uses it until it is unmapped.
pub(super) unsafe fn map(
    commands: &CommandQueue,
    mem: &Mem,
    bytes: usize,
    what: &'static str,
) -> Called<(MemMap<u8>, Event)> {
    let mut event = Event::null();
    let map = at(CallSite::Map, what, || {
        let flags = MapFlags::new().read().write();
        // SAFETY: blocking, so the memory is the host's when the call returns; the rest is the
        // caller's promise.
        unsafe {
            cl::enqueue_map_buffer::<u8, _, _, ()>(
                commands,
                mem,
                true,
                flags,
                0,
                bytes,
                None,
                Some(&mut event),
            )
        }
    })?;
    Ok((map, event))
}

pub(super) fn unmap(
    commands: &CommandQueue,
    mem: &Mem,
    map: &MemMap<u8>,
    what: &'static str,
) -> Called<Event> {
    let mut event = Event::null();
    at(CallSite::Unmap, what, || {
        cl::enqueue_unmap_mem_object::<u8, _, _, ()>(commands, mem, map, None, Some(&mut event))
    })?;
    Ok(event)
}

/// Copies `data` to the elements from `offset`; waits for it if `blocking`.
///
/// # Safety
/// The buffer has those elements; without waiting, `data` stays until the copy is done.
pub(super) unsafe fn write<T: OclPrm>(
    commands: &CommandQueue,
    mem: &Mem,
    blocking: bool,
    what: &'static str,
    offset: usize,
    data: &[T],
) -> Called<Event> {
    let mut event = Event::null();
    at(CallSite::Write, what, || {
        // SAFETY: the caller's promise.
        unsafe {
            cl::enqueue_write_buffer(
                commands,
                mem,
                blocking,
                offset,
                data,
                None::<()>,
                Some(&mut event),
            )
        }
    })?;
    Ok(event)
}

/// Copies the elements from `offset` into `out`. Waits for the copy, and for earlier commands, if
/// `blocking`.
///
/// # Safety
/// The buffer has those elements; without waiting, `out` stays untouched until the copy is done.
pub(super) unsafe fn read<T: OclPrm>(
    commands: &CommandQueue,
    mem: &Mem,
    blocking: bool,
    offset: usize,
    out: &mut [T],
) -> Called<Event> {
    let mut event = Event::null();
    at(CallSite::Read, "", || {
        // SAFETY: the caller's promise.
        unsafe {
            cl::enqueue_read_buffer(
                commands,
                mem,
                blocking,
                offset,
                out,
                None::<()>,
                Some(&mut event),
            )
        }
    })?;
    Ok(event)
}

pub(super) fn fill<T: OclPrm>(
    commands: &CommandQueue,
    mem: &Mem,
    value: T,
    len: usize,
) -> Called<Event> {
    let mut event = Event::null();
    at(CallSite::Fill, "", || {
        cl::enqueue_fill_buffer(
            commands,
            mem,
            value,
            0,
            len,
            None::<()>,
            Some(&mut event),
            None,
        )
    })?;
    Ok(event)
}

pub(super) fn copy<T: OclPrm>(
    commands: &CommandQueue,
    from: &Mem,
    to: &Mem,
    len: usize,
) -> Called<Event> {
    let mut event = Event::null();
    at(CallSite::Copy, "", || {
        cl::enqueue_copy_buffer::<T, _, _, _>(
            commands,
            from,
            to,
            0,
            0,
            len,
            None::<()>,
            Some(&mut event),
        )
    })?;
    Ok(event)
}

// ---------------------------------------------------------------- commands

/// Launches `kernel`, called `name`, over `global` work-items in groups of `group`.
///
/// # Safety
/// Its arguments are set, and the kernel stays within the buffers among them.
pub(super) unsafe fn enqueue(
    commands: &CommandQueue,
    kernel: &Kernel,
    name: &'static str,
    global: usize,
    group: usize,
) -> Called<Event> {
    let mut event = Event::null();
    at(CallSite::Enqueue, name, || {
        // SAFETY: the caller's promise.
        unsafe {
            cl::enqueue_kernel(
                commands,
                kernel,
                1,
                None,
                &[global, 1, 1],
                Some([group, 1, 1]),
                None::<()>,
                Some(&mut event),
            )
        }
    })?;
    Ok(event)
}

pub(super) fn finish(commands: &CommandQueue, what: &'static str) -> Called<()> {
    at(CallSite::Finish, what, || cl::finish(commands))
}

/// Hands the commands to the device, without waiting.
pub(super) fn flush(commands: &CommandQueue) -> Called<()> {
    at(CallSite::Flush, "", || cl::flush(commands))
}

/// Checks that a command which is done has not failed. `what` is the command.
pub(super) fn event_status(event: &Event, what: &'static str) -> Called<()> {
    let status = match current_status(event, what)? {
        // Some drivers report completion late. A failure shows in the status.
        1.. => {
            let waited = at(CallSite::Wait, what, || cl::wait_for_event(event));
            match current_status(event, what)? {
                1.. => return waited,
                status => status,
            }
        }
        status => status,
    };
    match status {
        0.. => Ok(()),
        failed => Err(Failed::ended(failed)),
    }
}

/// Returns the state of a command now: positive before it has ended, negative if it failed.
fn current_status(event: &Event, what: &'static str) -> Called<i32> {
    let mut status = 0i32;
    at(CallSite::EventStatus, what, || {
        // SAFETY: the event is a live object, and `status` has room for what this parameter
        // returns.
        let called = unsafe {
            cl::ffi::clGetEventInfo(
                *event.as_ptr_ref(),
                EventInfo::CommandExecutionStatus as u32,
                size_of::<i32>(),
                (&raw mut status).cast(),
                std::ptr::null_mut(),
            )
        };
        if called != 0 {
            status = called;
        }
        Ok(())
    })?;
    Ok(status)
}

/// Returns a time of a finished command, in nanoseconds of the device's clock.
pub(super) fn event_time(event: &Event, when: ProfilingInfo) -> Called<u64> {
    at(CallSite::EventTime, "", || {
        cl::get_event_profiling_info(event, when)?.time()
    })
}
