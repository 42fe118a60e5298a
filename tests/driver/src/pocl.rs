//! The functions of PoCL that are used here, and its CPU.
//!
//! ```text
//!  dlopen libOpenCL.so.1, its names to itself ─▶ functions by name ─▶ the platform that is PoCL's
//!                                                              ─▶ one context, one queue
//! ```
//!
//! The names of this library are the same as those of the one that is opened. So they are looked up
//! in the other one alone, and none of them is ever linked.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::LazyLock;

use crate::objects::Ptr;
use crate::status::SUCCESS;

const LIBRARY: &CStr = c"libOpenCL.so.1";
const PLATFORM: &[u8] = b"Portable Computing Language";
const PLATFORM_NAME: u32 = 0x0902;
const BUILD_LOG: u32 = 0x1183;
const USE_HOST_PTR: u64 = 8;
const ANY_DEVICE: u64 = 0xffff_ffff;

/// Declares functions of OpenCL with their types, and looks them up.
macro_rules! functions {
    ($($name:ident($($argument:ty),*) -> $answer:ty;)*) => {
        #[allow(non_snake_case)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl Functions {
            fn of(library: Ptr) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let function = symbol(library, stringify!($name))?;
                        // SAFETY: OpenCL's function of that name has this type.
                        unsafe { std::mem::transmute::<Ptr, unsafe extern "C" fn($($argument),*) -> $answer>(function) }
                    },)*
                })
            }
        }
    };
}

functions! {
    clGetPlatformIDs(u32, *mut Ptr, *mut u32) -> i32;
    clGetPlatformInfo(Ptr, u32, usize, Ptr, *mut usize) -> i32;
    clGetDeviceIDs(Ptr, u64, u32, *mut Ptr, *mut u32) -> i32;
    clCreateContext(*const isize, u32, *const Ptr, Ptr, Ptr, *mut i32) -> Ptr;
    clCreateCommandQueue(Ptr, Ptr, u64, *mut i32) -> Ptr;
    clCreateProgramWithSource(Ptr, u32, *const *const c_char, *const usize, *mut i32) -> Ptr;
    clBuildProgram(Ptr, u32, *const Ptr, *const c_char, Ptr, Ptr) -> i32;
    clGetProgramBuildInfo(Ptr, Ptr, u32, usize, Ptr, *mut usize) -> i32;
    clCreateKernel(Ptr, *const c_char, *mut i32) -> Ptr;
    clSetKernelArg(Ptr, u32, usize, *const c_void) -> i32;
    clCreateBuffer(Ptr, u64, usize, Ptr, *mut i32) -> Ptr;
    clReleaseMemObject(Ptr) -> i32;
    clEnqueueNDRangeKernel(
        Ptr, Ptr, u32, *const usize, *const usize, *const usize, u32, *const Ptr, *mut Ptr
    ) -> i32;
    clFinish(Ptr) -> i32;
}

fn symbol(library: Ptr, name: &str) -> Result<Ptr, String> {
    let text = CString::new(name).map_err(|error| error.to_string())?;
    // SAFETY: the library is open.
    let found = unsafe { libc::dlsym(library, text.as_ptr()) };
    match found.is_null() {
        true => Err(format!("{LIBRARY:?} has no {name}")),
        false => Ok(found),
    }
}

/// PoCL's CPU, with a context and a queue.
pub struct Pocl {
    functions: Functions,
    device: Ptr,
    context: Ptr,
    queue: Ptr,
}

// SAFETY: OpenCL's objects may be used by any thread. Kernels are not, while their arguments are
// set: `Kernel` needs `&mut` for that.
unsafe impl Send for Pocl {}
// SAFETY: as above.
unsafe impl Sync for Pocl {}

/// A program of PoCL's, which stays for the process.
pub struct Program(Ptr);

// SAFETY: as for `Pocl`.
unsafe impl Send for Program {}
// SAFETY: as for `Pocl`.
unsafe impl Sync for Program {}

/// A kernel of PoCL's, which stays for the process.
pub struct Kernel(Ptr);

// SAFETY: as for `Pocl`.
unsafe impl Send for Kernel {}

/// An argument of a kernel.
pub enum Argument<'a> {
    /// Memory from that address on, of so many bytes.
    Memory(u64, usize),
    /// A pointer to nothing.
    Null,
    Value(&'a [u8]),
}

/// Returns PoCL, opened at the first call.
///
/// # Errors
/// Why it cannot be used.
pub fn pocl() -> Result<&'static Pocl, String> {
    static POCL: LazyLock<Result<Pocl, String>> = LazyLock::new(Pocl::open);
    POCL.as_ref().map_err(String::clone)
}

impl Pocl {
    fn open() -> Result<Self, String> {
        // SAFETY: its initialisers are those of a library that programs link.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("{LIBRARY:?} cannot be opened"));
        }
        let functions = Functions::of(library)?;
        let device = device(&functions)?;
        let mut status = SUCCESS;
        // SAFETY: one device, no properties, no function to call.
        let context = unsafe {
            (functions.clCreateContext)(
                std::ptr::null(),
                1,
                &raw const device,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw mut status,
            )
        };
        ok("clCreateContext", status)?;
        // SAFETY: context and device are there.
        let queue =
            unsafe { (functions.clCreateCommandQueue)(context, device, 0, &raw mut status) };
        ok("clCreateCommandQueue", status)?;
        Ok(Self {
            functions,
            device,
            context,
            queue,
        })
    }

    /// Compiles a program.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn build(&self, source: &str, options: &str) -> Result<Program, String> {
        let text = |text: &str| CString::new(text).map_err(|error| error.to_string());
        let (source, options) = (text(source)?, text(options)?);
        let mut status = SUCCESS;
        // SAFETY: one text, which ends with a zero.
        let program = unsafe {
            let create = self.functions.clCreateProgramWithSource;
            create(
                self.context,
                1,
                &source.as_ptr(),
                std::ptr::null(),
                &raw mut status,
            )
        };
        ok("clCreateProgramWithSource", status)?;
        // SAFETY: a program of this device.
        let status = unsafe {
            let build = self.functions.clBuildProgram;
            let nothing = std::ptr::null_mut();
            build(
                program,
                1,
                &raw const self.device,
                options.as_ptr(),
                nothing,
                nothing,
            )
        };
        ok("clBuildProgram", status).map_err(|error| format!("{error}: {}", self.log(program)))?;
        Ok(Program(program))
    }

    /// Returns what the compiler said of a program.
    fn log(&self, program: Ptr) -> String {
        let mut text = vec![0u8; 1 << 16];
        let (size, mut used) = (text.len(), 0);
        // SAFETY: the text has so many bytes.
        unsafe {
            let ask = self.functions.clGetProgramBuildInfo;
            ask(
                program,
                self.device,
                BUILD_LOG,
                size,
                text.as_mut_ptr().cast(),
                &raw mut used,
            );
        }
        String::from_utf8_lossy(&text[..used.min(size)]).into_owned()
    }

    /// Returns a kernel of a program.
    ///
    /// # Errors
    /// The call that failed: the program has no such kernel.
    pub fn kernel(&self, program: &Program, name: &str) -> Result<Kernel, String> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        let mut status = SUCCESS;
        // SAFETY: the program was built.
        let kernel =
            unsafe { (self.functions.clCreateKernel)(program.0, name.as_ptr(), &raw mut status) };
        ok("clCreateKernel", status)?;
        Ok(Kernel(kernel))
    }

    /// Runs a kernel to its end, in groups of `local` of `items` work-items.
    ///
    /// # Errors
    /// The call that failed.
    ///
    /// # Safety
    /// Memory among the arguments is there, nobody else uses it meanwhile, and the kernel stays
    /// within it.
    pub unsafe fn run(
        &self,
        kernel: &mut Kernel,
        (items, local): (usize, usize),
        arguments: &[Argument],
    ) -> Result<(), String> {
        let mut memory = Vec::new();
        let ended = arguments.iter().enumerate().try_for_each(|(i, argument)| {
            // SAFETY: the caller's promise.
            unsafe { self.set(kernel, i as u32, argument, &mut memory) }
        });
        let ended = ended.and_then(|()| {
            // SAFETY: all arguments are set, and the caller promises the rest.
            unsafe { self.launch(kernel, items, local) }
        });
        for object in memory {
            // SAFETY: it was created here, and no command uses it any more.
            unsafe { (self.functions.clReleaseMemObject)(object) };
        }
        ended
    }

    /// Sets argument `i`. Objects that stand for memory are added to `memory`.
    ///
    /// # Safety
    /// That of [`run`](Self::run).
    unsafe fn set(
        &self,
        kernel: &mut Kernel,
        i: u32,
        argument: &Argument,
        memory: &mut Vec<Ptr>,
    ) -> Result<(), String> {
        let (size, value): (usize, *const c_void) = match argument {
            Argument::Memory(address, bytes) => {
                // SAFETY: the caller's promise.
                let object = unsafe { self.memory(*address, *bytes) }?;
                memory.push(object);
                (
                    size_of::<Ptr>(),
                    memory
                        .last()
                        .map_or_else(std::ptr::null, |at| std::ptr::from_ref(at).cast()),
                )
            }
            Argument::Null => (size_of::<Ptr>(), std::ptr::null()),
            Argument::Value(bytes) => (bytes.len(), bytes.as_ptr().cast()),
        };
        // SAFETY: so many bytes are there, or it is a pointer to nothing.
        let status = unsafe { (self.functions.clSetKernelArg)(kernel.0, i, size, value) };
        ok("clSetKernelArg", status)
    }

    /// Returns an object that stands for memory of this process.
    ///
    /// # Safety
    /// That of [`run`](Self::run).
    unsafe fn memory(&self, address: u64, bytes: usize) -> Result<Ptr, String> {
        let mut status = SUCCESS;
        // SAFETY: the caller's promise.
        let object = unsafe {
            let create = self.functions.clCreateBuffer;
            create(
                self.context,
                USE_HOST_PTR,
                bytes,
                address as Ptr,
                &raw mut status,
            )
        };
        ok("clCreateBuffer", status)?;
        Ok(object)
    }

    /// Launches a kernel and waits for it.
    ///
    /// # Safety
    /// All arguments are set, and the rest is that of [`run`](Self::run).
    unsafe fn launch(&self, kernel: &Kernel, items: usize, local: usize) -> Result<(), String> {
        let (functions, nothing) = (&self.functions, std::ptr::null_mut());
        // SAFETY: the caller's promise; one dimension, no events.
        let status = unsafe {
            (functions.clEnqueueNDRangeKernel)(
                self.queue,
                kernel.0,
                1,
                std::ptr::null(),
                &raw const items,
                &raw const local,
                0,
                std::ptr::null(),
                nothing,
            )
        };
        ok("clEnqueueNDRangeKernel", status)?;
        // SAFETY: the queue is there.
        ok("clFinish", unsafe { (functions.clFinish)(self.queue) })
    }
}

/// Returns PoCL's first device.
fn device(functions: &Functions) -> Result<Ptr, String> {
    const MOST: u32 = 16;
    let (mut platforms, mut count) = ([std::ptr::null_mut(); MOST as usize], 0);
    // SAFETY: so many handles have room there.
    let status =
        unsafe { (functions.clGetPlatformIDs)(MOST, platforms.as_mut_ptr(), &raw mut count) };
    ok("clGetPlatformIDs", status)?;
    let platforms = &platforms[..count.min(MOST) as usize];
    let platform = platforms
        .iter()
        .find(|platform| is_pocl(functions, **platform));
    let platform = platform.ok_or("PoCL is not installed")?;
    let mut device = std::ptr::null_mut();
    // SAFETY: one handle has room there.
    let status = unsafe {
        let ask = functions.clGetDeviceIDs;
        ask(
            *platform,
            ANY_DEVICE,
            1,
            &raw mut device,
            std::ptr::null_mut(),
        )
    };
    ok("clGetDeviceIDs", status)?;
    Ok(device)
}

fn is_pocl(functions: &Functions, platform: Ptr) -> bool {
    let (mut name, mut used) = ([0u8; 256], 0);
    // SAFETY: the name has so many bytes.
    let status = unsafe {
        let ask = functions.clGetPlatformInfo;
        ask(
            platform,
            PLATFORM_NAME,
            name.len(),
            name.as_mut_ptr().cast(),
            &raw mut used,
        )
    };
    status == SUCCESS && name.starts_with(PLATFORM)
}

fn ok(call: &str, status: i32) -> Result<(), String> {
    match status {
        SUCCESS => Ok(()),
        failed => Err(format!("{call} of PoCL: {failed}")),
    }
}
