//! OpenCL's functions of programs and kernels. A launch is a command (`commands`).
//!
//! ```text
//!  source or binary ─▶ a program ─ clBuildProgram ─▶ clCreateKernel ─▶ a kernel ─ clSetKernelArg
//! ```

use std::ffi::{CStr, c_char};

use super::{GROUP_MAX, called, give, made, store};
use crate::device::{Answer, DEVICE};
use crate::faults::{pass, pass_compiler};
use crate::memory::copy;
use crate::objects::{Context, Ptr, add, find};
use crate::program::{Kernel, Program};
use crate::settings::settings;
use crate::status::{INVALID_BINARY, INVALID_VALUE, SUCCESS};

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
