//! A driver with faults: an OpenCL library that passes calls on to the system's, but for what
//! `HORTON_SHIM` says.
//!
//! ```text
//!  ocl ─▶ the loader's forwarders ─▶ HORTON_OPENCL_LIBRARY = this ─▶ libOpenCL.so.1 ─▶ PoCL
//! ```
//!
//! | word of `HORTON_SHIM` | |
//! |---|---|
//! | `gpu` | devices say that they are GPUs with a memory of their own: queue threads, copies and tiles as there |
//! | `platform=NAME` | platforms say that this is their name |
//! | `sub-groups=N` | devices say that they have sub-groups of N work-items, and Khronos' shuffles |
//! | `board=NAME` | devices say that this is the name of their board, as AMD's do |
//! | `without=EXTENSION` | devices do not say that they have it |
//! | `delay=MS` | copies to the device that nobody waits for begin so many milliseconds later |
//! | `compile=MS` | programs take so many milliseconds longer to compile; meanwhile the driver's clean-up at exit aborts |
//! | `refuse=TEXT` | programs with the text do not compile |
//! | `skip=KERNEL` | launches of the kernel do nothing, and succeed |
//! | `fail=KERNEL` | launches of the kernel do nothing, and their commands end with `CL_OUT_OF_RESOURCES` |
//! | `down=FILE` | while the file is there, launches on a platform's first device end as with `fail` |
//! | `late=KERNEL` | the same, but the commands say so only when others behind them have ended |

#![cfg(target_os = "linux")]
#![allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// A handle, or a pointer to data in either direction.
type Ptr = *mut c_void;

const SUCCESS: i32 = 0;
const OUT_OF_RESOURCES: i32 = -5;
const BUILD_PROGRAM_FAILURE: i32 = -11;
const INVALID_VALUE: i32 = -30;

const PLATFORM_NAME: u32 = 0x0902;
const DEVICE_TYPE: u32 = 0x1000;
const DEVICE_EXTENSIONS: u32 = 0x1030;
const DEVICE_HOST_UNIFIED_MEMORY: u32 = 0x1035;
const DEVICE_BOARD_NAME_AMD: u32 = 0x4038;
const DEVICE_MAX_NUM_SUB_GROUPS: u32 = 0x105c;
const DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE: u32 = 0x1067;
const KERNEL_FUNCTION_NAME: u32 = 0x1190;
const QUEUE_CONTEXT: u32 = 0x1090;
const QUEUE_DEVICE: u32 = 0x1091;
const DEVICE_PLATFORM: u32 = 0x1031;

const ALL: u64 = 0xffff_ffff;

const GPU: u64 = 4;

/// Time by which late commands say later than others how they ended.
const LATE: Duration = Duration::from_millis(50);

/// The words of `HORTON_SHIM`.
static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let words = std::env::var("HORTON_SHIM").unwrap_or_default();
    words.split_whitespace().map(str::to_owned).collect()
});

/// Programs that do not compile.
static REFUSED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Number of programs that are being compiled with `compile`.
static COMPILING: AtomicUsize = AtomicUsize::new(0);

fn says(word: &str) -> bool {
    WORDS.iter().any(|said| said == word)
}

/// Returns what is said of `name`, once or several times.
fn said<'a>(name: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    WORDS
        .iter()
        .filter_map(move |word| word.strip_prefix(name)?.strip_prefix('='))
}

unsafe extern "C" {
    fn dlsym(handle: Ptr, name: *const c_char) -> Ptr;
    fn atexit(handler: extern "C" fn()) -> i32;
}

/// Returns the function called `name` behind this library.
///
/// # Safety
/// `F` is a function pointer of the type that OpenCL's header gives it.
unsafe fn real<F: Copy>(name: &CStr) -> F {
    const RTLD_NEXT: Ptr = -1isize as Ptr;
    // SAFETY: the name ends with a NUL.
    let found = unsafe { dlsym(RTLD_NEXT, name.as_ptr()) };
    assert!(!found.is_null(), "no {name:?} behind the shim");
    // SAFETY: a function pointer is as large as any, and this one is of type `F` by the caller's
    // promise.
    unsafe { std::mem::transmute_copy(&found) }
}

type Info = unsafe extern "C" fn(Ptr, u32, usize, Ptr, *mut usize) -> i32;

/// Answers a request with `bytes`.
unsafe fn answer(bytes: &[u8], size: usize, value: Ptr, size_ret: *mut usize) -> i32 {
    if !size_ret.is_null() {
        // SAFETY: by the function's contract it may be written.
        unsafe { size_ret.write(bytes.len()) };
    }
    if value.is_null() {
        return SUCCESS;
    }
    if size < bytes.len() {
        return INVALID_VALUE;
    }
    // SAFETY: by the function's contract there is room for `size` bytes.
    unsafe { value.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
    SUCCESS
}

/// Returns all of an answer.
unsafe fn ask(info: Info, object: Ptr, request: u32) -> Vec<u8> {
    let mut size = 0;
    // SAFETY: only the size is asked for.
    if unsafe { info(object, request, 0, null_mut(), &mut size) } != SUCCESS {
        return Vec::new();
    }
    let mut bytes = vec![0u8; size];
    // SAFETY: there is room for the answer.
    unsafe { info(object, request, size, bytes.as_mut_ptr().cast(), null_mut()) };
    bytes
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetPlatformInfo(
    platform: Ptr,
    request: u32,
    size: usize,
    value: Ptr,
    size_ret: *mut usize,
) -> i32 {
    match said("platform").next() {
        Some(name) if request == PLATFORM_NAME => {
            let bytes = [name.as_bytes(), b"\0"].concat();
            // SAFETY: the caller keeps the function's contract.
            unsafe { answer(&bytes, size, value, size_ret) }
        }
        _ => {
            // SAFETY: the type is that of OpenCL's header.
            let next: Info = unsafe { real(c"clGetPlatformInfo") };
            // SAFETY: the caller keeps the function's contract; the arguments are the same.
            unsafe { next(platform, request, size, value, size_ret) }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetDeviceInfo(
    device: Ptr,
    request: u32,
    size: usize,
    value: Ptr,
    size_ret: *mut usize,
) -> i32 {
    // SAFETY: the type is that of OpenCL's header.
    let next: Info = unsafe { real(c"clGetDeviceInfo") };
    let sub_groups = said("sub-groups").next().and_then(|n| n.parse().ok());
    let board = said("board").next();
    let bytes = match (request, sub_groups) {
        (DEVICE_BOARD_NAME_AMD, _) if board.is_some() => {
            [board.unwrap_or_default().as_bytes(), b"\0"].concat()
        }
        (DEVICE_TYPE, _) if says("gpu") => GPU.to_ne_bytes().to_vec(),
        (DEVICE_HOST_UNIFIED_MEMORY, _) if says("gpu") => 0u32.to_ne_bytes().to_vec(),
        (DEVICE_EXTENSIONS, _) => {
            // SAFETY: the device is the caller's.
            let names = unsafe { ask(next, device, request) };
            let names = String::from_utf8_lossy(&names);
            let mut names: Vec<&str> = names.trim_end_matches('\0').split(' ').collect();
            names.retain(|name| !said("without").any(|without| without == *name));
            if sub_groups.is_some() {
                names.push("cl_khr_subgroup_shuffle");
            }
            if board.is_some() {
                names.push("cl_amd_device_attribute_query");
            }
            [names.join(" ").as_bytes(), b"\0"].concat()
        }
        (DEVICE_MAX_NUM_SUB_GROUPS, Some(_)) => 8u32.to_ne_bytes().to_vec(),
        (DEVICE_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, Some(n)) => usize::to_ne_bytes(n).to_vec(),
        // SAFETY: the caller keeps the function's contract; the arguments are the same.
        _ => return unsafe { next(device, request, size, value, size_ret) },
    };
    // SAFETY: as above.
    unsafe { answer(&bytes, size, value, size_ret) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clCreateProgramWithSource(
    context: Ptr,
    count: u32,
    strings: *mut *const c_char,
    lengths: *const usize,
    status: *mut i32,
) -> Ptr {
    type Create = unsafe extern "C" fn(Ptr, u32, *mut *const c_char, *const usize, *mut i32) -> Ptr;
    // SAFETY: the type is that of OpenCL's header.
    let next: Create = unsafe { real(c"clCreateProgramWithSource") };
    // SAFETY: the caller keeps the function's contract; the arguments are the same.
    let program = unsafe { next(context, count, strings, lengths, status) };
    let mut refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    // A program that was released may have stood at the same place.
    refused.remove(&(program as usize));
    for i in 0..count as usize {
        // SAFETY: there are `count` strings, each with its length, or 0 or no lengths where they
        // end with a NUL.
        let text = unsafe {
            let text = *strings.add(i);
            match lengths.is_null() || *lengths.add(i) == 0 {
                true => CStr::from_ptr(text).to_bytes(),
                false => std::slice::from_raw_parts(text.cast(), *lengths.add(i)),
            }
        };
        let text = String::from_utf8_lossy(text);
        if said("refuse").any(|refused| text.contains(refused)) {
            refused.insert(program as usize);
        }
    }
    program
}

/// The clean-up of a driver that crashes beside its compiler.
extern "C" fn clean_up() {
    if COMPILING.load(Ordering::SeqCst) > 0 {
        std::process::abort();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clBuildProgram(
    program: Ptr,
    devices: u32,
    list: Ptr,
    options: *const c_char,
    notify: Ptr,
    data: Ptr,
) -> i32 {
    type Build = unsafe extern "C" fn(Ptr, u32, Ptr, *const c_char, Ptr, Ptr) -> i32;
    let refused = REFUSED.lock().unwrap_or_else(PoisonError::into_inner);
    if refused.contains(&(program as usize)) {
        return BUILD_PROGRAM_FAILURE;
    }
    drop(refused);
    if let Some(ms) = said("compile").next().and_then(|ms| ms.parse().ok()) {
        COMPILING.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the function takes nothing, returns nothing and does not unwind.
        unsafe { atexit(clean_up) };
        std::thread::sleep(Duration::from_millis(ms));
        COMPILING.fetch_sub(1, Ordering::SeqCst);
    }
    // SAFETY: the type is that of OpenCL's header.
    let next: Build = unsafe { real(c"clBuildProgram") };
    // SAFETY: the caller keeps the function's contract; the arguments are the same.
    unsafe { next(program, devices, list, options, notify, data) }
}

/// Returns whether `queue` is of the first device that its platform lists.
///
/// # Safety
/// `queue` is a command queue.
unsafe fn is_of_first_device(queue: Ptr) -> bool {
    type List = unsafe extern "C" fn(Ptr, u64, u32, *mut Ptr, *mut u32) -> i32;
    let pointer = |bytes: Vec<u8>| {
        let bytes = bytes.as_slice().try_into();
        bytes.map_or(0, usize::from_ne_bytes) as Ptr
    };
    // SAFETY: the queue is the caller's, and what is asked next came of the answer before.
    unsafe {
        let device = pointer(ask(real(c"clGetCommandQueueInfo"), queue, QUEUE_DEVICE));
        let platform = pointer(ask(real(c"clGetDeviceInfo"), device, DEVICE_PLATFORM));
        let mut first = null_mut();
        let list = real::<List>(c"clGetDeviceIDs");
        list(platform, ALL, 1, &raw mut first, null_mut()) == SUCCESS && first == device
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueNDRangeKernel(
    queue: Ptr,
    kernel: Ptr,
    dimensions: u32,
    offset: *const usize,
    global: *const usize,
    local: *const usize,
    waits: u32,
    wait_list: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    type Marker = unsafe extern "C" fn(Ptr, u32, *const Ptr, *mut Ptr) -> i32;
    type Launch = unsafe extern "C" fn(
        Ptr,
        Ptr,
        u32,
        *const usize,
        *const usize,
        *const usize,
        u32,
        *const Ptr,
        *mut Ptr,
    ) -> i32;
    // SAFETY: the kernel is the caller's.
    let name = unsafe { ask(real(c"clGetKernelInfo"), kernel, KERNEL_FUNCTION_NAME) };
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    if said("skip").any(|skipped| skipped == name) {
        // SAFETY: the caller keeps the contract of the launch, whose arguments these are.
        return unsafe {
            real::<Marker>(c"clEnqueueMarkerWithWaitList")(queue, waits, wait_list, event)
        };
    }
    // SAFETY: the queue is the caller's.
    let is_down = || {
        said("down").any(|file| std::fs::exists(file).unwrap_or(false))
            && unsafe { is_of_first_device(queue) }
    };
    if (said("fail").any(|failing| failing == name) || is_down()) && !event.is_null() {
        // SAFETY: the queue is the caller's, who takes the event.
        unsafe {
            *event = user_event(queue);
            end(*event, OUT_OF_RESOURCES);
        }
        return SUCCESS;
    }
    if said("late").any(|failing| failing == name) && !event.is_null() {
        // SAFETY: as above.
        unsafe {
            *event = user_event(queue);
            end_later(*event, LATE, OUT_OF_RESOURCES);
        }
        return SUCCESS;
    }
    // SAFETY: the type is that of OpenCL's header.
    let next: Launch = unsafe { real(c"clEnqueueNDRangeKernel") };
    // SAFETY: the caller keeps the function's contract; the arguments are the same.
    unsafe {
        next(
            queue, kernel, dimensions, offset, global, local, waits, wait_list, event,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clEnqueueWriteBuffer(
    queue: Ptr,
    buffer: Ptr,
    blocking: u32,
    offset: usize,
    size: usize,
    data: *const c_void,
    waits: u32,
    wait_list: *const Ptr,
    event: *mut Ptr,
) -> i32 {
    type Write = unsafe extern "C" fn(
        Ptr,
        Ptr,
        u32,
        usize,
        usize,
        *const c_void,
        u32,
        *const Ptr,
        *mut Ptr,
    ) -> i32;
    type Release = unsafe extern "C" fn(Ptr) -> i32;
    // SAFETY: the type is that of OpenCL's header.
    let next: Write = unsafe { real(c"clEnqueueWriteBuffer") };
    let delay = said("delay").next().and_then(|ms| ms.parse().ok());
    let Some(ms) = delay.filter(|_| blocking == 0 && waits == 0) else {
        // SAFETY: the caller keeps the function's contract; the arguments are the same.
        return unsafe {
            next(
                queue, buffer, blocking, offset, size, data, waits, wait_list, event,
            )
        };
    };
    // SAFETY: the queue is the caller's.
    let start = unsafe { user_event(queue) };
    // SAFETY: the same call, which waits for one event more.
    let status = unsafe {
        next(
            queue, buffer, blocking, offset, size, data, 1, &start, event,
        )
    };
    // SAFETY: the event has not ended yet, and is no one else's.
    unsafe {
        end_later(start, Duration::from_millis(ms), SUCCESS);
        real::<Release>(c"clReleaseEvent")(start);
    }
    status
}

/// Returns a new event in the context of `queue`, to be ended by [`end`].
unsafe fn user_event(queue: Ptr) -> Ptr {
    type Create = unsafe extern "C" fn(Ptr, *mut i32) -> Ptr;
    // SAFETY: the queue is the caller's; its context is a handle.
    unsafe {
        let context = ask(real(c"clGetCommandQueueInfo"), queue, QUEUE_CONTEXT);
        let context = usize::from_ne_bytes(context.try_into().unwrap_or_default());
        real::<Create>(c"clCreateUserEvent")(context as Ptr, null_mut())
    }
}

unsafe fn end(event: Ptr, status: i32) {
    type Set = unsafe extern "C" fn(Ptr, i32) -> i32;
    // SAFETY: the event is one of `user_event` that has not ended yet.
    unsafe { real::<Set>(c"clSetUserEventStatus")(event, status) };
}

/// Ends one of [`user_event`] in another thread.
unsafe fn end_later(event: Ptr, after: Duration, status: i32) {
    type Count = unsafe extern "C" fn(Ptr) -> i32;
    // SAFETY: the event is alive; the thread has a reference of its own.
    unsafe { real::<Count>(c"clRetainEvent")(event) };
    let event = event as usize;
    std::thread::spawn(move || {
        std::thread::sleep(after);
        // SAFETY: that reference is released once.
        unsafe {
            end(event as Ptr, status);
            real::<Count>(c"clReleaseEvent")(event as Ptr);
        }
    });
}
