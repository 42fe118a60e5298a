//! The forwarders: one C function for every function of the OpenCL 3.0 host API and of its
//! OpenGL sharing. That is what `cl-sys` declares and more, so that another OpenCL crate in the
//! same program links as well.
//!
//! Handles, callbacks and pointers are passed on unread, all as `Ptr`: they look alike in the C
//! calling convention, and the caller made them for the library that gets them. The signatures
//! come from the Khronos headers: `cl_bitfield` is `u64`; `cl_uint`, `cl_bool` and enumerations
//! are `u32`.

#![allow(non_snake_case, clippy::too_many_arguments)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use crate::library::symbol;

/// A handle, a callback, or a pointer to data in either direction.
type Ptr = *mut c_void;

/// `CL_SUCCESS`.
const SUCCESS: i32 = 0;

/// `CL_INVALID_OPERATION`: the answer of a function that the library does not have.
const INVALID_OPERATION: i32 = -59;

/// `CL_PLATFORM_NOT_FOUND_KHR`: the answer of a library without a platform.
const PLATFORM_NOT_FOUND: i32 = -1001;

/// Defines the function `$name`: its arguments, and `$body`, which gets the library's function of
/// that name, if there is one, as `$function`.
macro_rules! export {
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, |$function:ident| $body:expr) => {
        #[cfg(not(any(windows, target_vendor = "apple")))]
        std::arch::global_asm!(concat!(".hidden ", stringify!($name)));

        // SAFETY: name and signature are those of OpenCL's header, and the program has no other
        // function of that name: the archive that `-lOpenCL` finds is empty.
        #[unsafe(no_mangle)]
        unsafe extern "system" fn $name($($arg: $ty),*) $(-> $ret)? {
            type Function = unsafe extern "system" fn($($ty),*) $(-> $ret)?;
            static FUNCTION: OnceLock<Option<Function>> = OnceLock::new();
            // SAFETY: `Function` is the signature of this name in every OpenCL library.
            let $function = *FUNCTION.get_or_init(|| unsafe { symbol(stringify!($name)) });
            $body
        }
    };
}

/// Defines a function that forwards, or answers `$absent` when the library does not have it.
macro_rules! forward {
    ($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?, $absent:expr) => {
        export!($name($($arg: $ty),*) $(-> $ret)?, |function| match function {
            // SAFETY: the caller keeps the function's contract; the arguments are the same.
            Some(function) => unsafe { function($($arg),*) },
            None => $absent,
        });
    };
}

/// Defines functions that return a status.
macro_rules! commands {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(forward!($name($($arg: $ty),*) -> i32, INVALID_OPERATION);)*
    };
}

/// Defines functions that release an object. They succeed even if the library says otherwise, which
/// after a device was lost may be anything: no one can do anything about it, and `ocl` panics, in a
/// `drop`.
macro_rules! releases {
    ($(fn $name:ident($object:ident: Ptr);)*) => {
        $(export!($name($object: Ptr) -> i32, |function| match function {
            Some(function) => {
                // SAFETY: the caller keeps the function's contract; the argument is the same.
                unsafe { function($object) };
                SUCCESS
            }
            None => INVALID_OPERATION,
        });)*
    };
}

/// Defines functions that return an object and take `errcode_ret` after the arguments given here.
macro_rules! constructors {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(forward!($name($($arg: $ty,)* errcode_ret: *mut i32) -> Ptr, {
            // SAFETY: by the function's contract `errcode_ret` is null or may be written.
            unsafe { set(errcode_ret, INVALID_OPERATION) };
            null_mut()
        });)*
    };
}

/// Writes an output argument that the caller may leave out.
///
/// # Safety
/// `output` is null or may be written.
unsafe fn set<T>(output: *mut T, value: T) {
    if !output.is_null() {
        // SAFETY: not null, so it may be written by the caller's promise.
        unsafe { output.write(value) };
    }
}

// No library, and no platform in it, are both success with zero platforms: on the status for
// "not found" `ocl` would retry for ten seconds and fail.
export!(
    clGetPlatformIDs(num_entries: u32, platforms: Ptr, num_platforms: *mut u32) -> i32,
    |function| {
        let status = match function {
            // SAFETY: the caller keeps the function's contract; the arguments are the same.
            Some(function) => unsafe { function(num_entries, platforms, num_platforms) },
            None => PLATFORM_NOT_FOUND,
        };
        if status != PLATFORM_NOT_FOUND {
            return status;
        }
        // SAFETY: by the function's contract `num_platforms` is null or may be written.
        unsafe { set(num_platforms, 0) };
        SUCCESS
    }
);

forward!(clSVMAlloc(context: Ptr, flags: u64, size: usize, alignment: u32) -> Ptr, null_mut());
forward!(clSVMFree(context: Ptr, svm_pointer: Ptr), ());
forward!(clGetExtensionFunctionAddress(name: Ptr) -> Ptr, null_mut());
forward!(clGetExtensionFunctionAddressForPlatform(platform: Ptr, name: Ptr) -> Ptr, null_mut());

releases! {
    fn clReleaseDevice(device: Ptr);
    fn clReleaseContext(context: Ptr);
    fn clReleaseCommandQueue(queue: Ptr);
    fn clReleaseMemObject(memobj: Ptr);
    fn clReleaseSampler(sampler: Ptr);
    fn clReleaseProgram(program: Ptr);
    fn clReleaseKernel(kernel: Ptr);
    fn clReleaseEvent(event: Ptr);
}

commands! {
    fn clGetPlatformInfo(platform: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clGetDeviceIDs(
        platform: Ptr, device_type: u64, num_entries: u32, devices: Ptr, num_devices: Ptr,
    );
    fn clGetDeviceInfo(device: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clCreateSubDevices(
        in_device: Ptr, properties: Ptr, num_devices: u32, out_devices: Ptr, num_devices_ret: Ptr,
    );
    fn clRetainDevice(device: Ptr);
    fn clSetDefaultDeviceCommandQueue(context: Ptr, device: Ptr, queue: Ptr);
    fn clGetDeviceAndHostTimer(device: Ptr, device_timestamp: Ptr, host_timestamp: Ptr);
    fn clGetHostTimer(device: Ptr, host_timestamp: Ptr);
    fn clRetainContext(context: Ptr);
    fn clGetContextInfo(context: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clSetContextDestructorCallback(context: Ptr, pfn_notify: Ptr, user_data: Ptr);
    fn clRetainCommandQueue(queue: Ptr);
    fn clGetCommandQueueInfo(queue: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clRetainMemObject(memobj: Ptr);
    fn clGetSupportedImageFormats(
        context: Ptr, flags: u64, image_type: u32, num_entries: u32, image_formats: Ptr,
        num_image_formats: Ptr,
    );
    fn clGetMemObjectInfo(memobj: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clGetImageInfo(image: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clGetPipeInfo(pipe: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clSetMemObjectDestructorCallback(memobj: Ptr, pfn_notify: Ptr, user_data: Ptr);
    fn clRetainSampler(sampler: Ptr);
    fn clGetSamplerInfo(sampler: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clRetainProgram(program: Ptr);
    fn clBuildProgram(
        program: Ptr, num_devices: u32, device_list: Ptr, options: Ptr, pfn_notify: Ptr,
        user_data: Ptr,
    );
    fn clCompileProgram(
        program: Ptr, num_devices: u32, device_list: Ptr, options: Ptr, num_input_headers: u32,
        input_headers: Ptr, header_include_names: Ptr, pfn_notify: Ptr, user_data: Ptr,
    );
    fn clSetProgramReleaseCallback(program: Ptr, pfn_notify: Ptr, user_data: Ptr);
    fn clSetProgramSpecializationConstant(
        program: Ptr, spec_id: u32, spec_size: usize, spec_value: Ptr,
    );
    fn clUnloadPlatformCompiler(platform: Ptr);
    fn clGetProgramInfo(program: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clGetProgramBuildInfo(
        program: Ptr, device: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr,
    );
    fn clCreateKernelsInProgram(
        program: Ptr, num_kernels: u32, kernels: Ptr, num_kernels_ret: Ptr,
    );
    fn clRetainKernel(kernel: Ptr);
    fn clSetKernelArg(kernel: Ptr, arg_index: u32, arg_size: usize, arg_value: Ptr);
    fn clSetKernelArgSVMPointer(kernel: Ptr, arg_index: u32, arg_value: Ptr);
    fn clSetKernelExecInfo(kernel: Ptr, param: u32, size: usize, value: Ptr);
    fn clGetKernelInfo(kernel: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clGetKernelArgInfo(
        kernel: Ptr, arg_index: u32, param: u32, size: usize, value: Ptr, size_ret: Ptr,
    );
    fn clGetKernelWorkGroupInfo(
        kernel: Ptr, device: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr,
    );
    fn clGetKernelSubGroupInfo(
        kernel: Ptr, device: Ptr, param: u32, input_value_size: usize, input_value: Ptr,
        size: usize, value: Ptr, size_ret: Ptr,
    );
    fn clWaitForEvents(num_events: u32, event_list: Ptr);
    fn clGetEventInfo(event: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clRetainEvent(event: Ptr);
    fn clSetUserEventStatus(event: Ptr, execution_status: i32);
    fn clSetEventCallback(event: Ptr, callback_type: i32, pfn_notify: Ptr, user_data: Ptr);
    fn clGetEventProfilingInfo(
        event: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr,
    );
    fn clFlush(queue: Ptr);
    fn clFinish(queue: Ptr);
    fn clEnqueueReadBuffer(
        queue: Ptr, buffer: Ptr, blocking: u32, offset: usize, size: usize, ptr: Ptr,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueReadBufferRect(
        queue: Ptr, buffer: Ptr, blocking: u32, buffer_origin: Ptr, host_origin: Ptr, region: Ptr,
        buffer_row_pitch: usize, buffer_slice_pitch: usize, host_row_pitch: usize,
        host_slice_pitch: usize, ptr: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueWriteBuffer(
        queue: Ptr, buffer: Ptr, blocking: u32, offset: usize, size: usize, ptr: Ptr,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueWriteBufferRect(
        queue: Ptr, buffer: Ptr, blocking: u32, buffer_origin: Ptr, host_origin: Ptr, region: Ptr,
        buffer_row_pitch: usize, buffer_slice_pitch: usize, host_row_pitch: usize,
        host_slice_pitch: usize, ptr: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueFillBuffer(
        queue: Ptr, buffer: Ptr, pattern: Ptr, pattern_size: usize, offset: usize, size: usize,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueCopyBuffer(
        queue: Ptr, src_buffer: Ptr, dst_buffer: Ptr, src_offset: usize, dst_offset: usize,
        size: usize, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueCopyBufferRect(
        queue: Ptr, src_buffer: Ptr, dst_buffer: Ptr, src_origin: Ptr, dst_origin: Ptr, region: Ptr,
        src_row_pitch: usize, src_slice_pitch: usize, dst_row_pitch: usize, dst_slice_pitch: usize,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueReadImage(
        queue: Ptr, image: Ptr, blocking: u32, origin: Ptr, region: Ptr, row_pitch: usize,
        slice_pitch: usize, ptr: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueWriteImage(
        queue: Ptr, image: Ptr, blocking: u32, origin: Ptr, region: Ptr, input_row_pitch: usize,
        input_slice_pitch: usize, ptr: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueFillImage(
        queue: Ptr, image: Ptr, fill_color: Ptr, origin: Ptr, region: Ptr, num_waits: u32,
        waits: Ptr, event: Ptr,
    );
    fn clEnqueueCopyImage(
        queue: Ptr, src_image: Ptr, dst_image: Ptr, src_origin: Ptr, dst_origin: Ptr, region: Ptr,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueCopyImageToBuffer(
        queue: Ptr, src_image: Ptr, dst_buffer: Ptr, src_origin: Ptr, region: Ptr,
        dst_offset: usize, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueCopyBufferToImage(
        queue: Ptr, src_buffer: Ptr, dst_image: Ptr, src_offset: usize, dst_origin: Ptr,
        region: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueUnmapMemObject(
        queue: Ptr, memobj: Ptr, mapped_ptr: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueMigrateMemObjects(
        queue: Ptr, num_mem_objects: u32, mem_objects: Ptr, flags: u64, num_waits: u32, waits: Ptr,
        event: Ptr,
    );
    fn clEnqueueNDRangeKernel(
        queue: Ptr, kernel: Ptr, work_dim: u32, global_work_offset: Ptr, global_work_size: Ptr,
        local_work_size: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueNativeKernel(
        queue: Ptr, user_func: Ptr, args: Ptr, cb_args: usize, num_mem_objects: u32, mem_list: Ptr,
        args_mem_loc: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueMarkerWithWaitList(queue: Ptr, num_waits: u32, waits: Ptr, event: Ptr);
    fn clEnqueueBarrierWithWaitList(queue: Ptr, num_waits: u32, waits: Ptr, event: Ptr);
    fn clEnqueueSVMFree(
        queue: Ptr, num_svm_pointers: u32, svm_pointers: Ptr, pfn_free_func: Ptr, user_data: Ptr,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueSVMMemcpy(
        queue: Ptr, blocking: u32, dst_ptr: Ptr, src_ptr: Ptr, size: usize, num_waits: u32,
        waits: Ptr, event: Ptr,
    );
    fn clEnqueueSVMMemFill(
        queue: Ptr, svm_ptr: Ptr, pattern: Ptr, pattern_size: usize, size: usize, num_waits: u32,
        waits: Ptr, event: Ptr,
    );
    fn clEnqueueSVMMap(
        queue: Ptr, blocking: u32, flags: u64, svm_ptr: Ptr, size: usize, num_waits: u32,
        waits: Ptr, event: Ptr,
    );
    fn clEnqueueSVMUnmap(queue: Ptr, svm_ptr: Ptr, num_waits: u32, waits: Ptr, event: Ptr);
    fn clEnqueueSVMMigrateMem(
        queue: Ptr, num_svm_pointers: u32, svm_pointers: Ptr, sizes: Ptr, flags: u64,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clSetCommandQueueProperty(
        queue: Ptr, properties: u64, enable: u32, old_properties: Ptr,
    );
    fn clEnqueueMarker(queue: Ptr, event: Ptr);
    fn clEnqueueWaitForEvents(queue: Ptr, num_events: u32, event_list: Ptr);
    fn clEnqueueBarrier(queue: Ptr);
    fn clUnloadCompiler();
    fn clEnqueueTask(queue: Ptr, kernel: Ptr, num_waits: u32, waits: Ptr, event: Ptr);
    fn clGetGLObjectInfo(memobj: Ptr, gl_object_type: Ptr, gl_object_name: Ptr);
    fn clGetGLTextureInfo(memobj: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr);
    fn clEnqueueAcquireGLObjects(
        queue: Ptr, num_objects: u32, mem_objects: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueReleaseGLObjects(
        queue: Ptr, num_objects: u32, mem_objects: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clGetGLContextInfoKHR(
        properties: Ptr, param: u32, size: usize, value: Ptr, size_ret: Ptr,
    );
}

constructors! {
    fn clCreateContext(
        properties: Ptr, num_devices: u32, devices: Ptr, pfn_notify: Ptr, user_data: Ptr,
    );
    fn clCreateContextFromType(properties: Ptr, device_type: u64, pfn_notify: Ptr, user_data: Ptr);
    fn clCreateCommandQueueWithProperties(context: Ptr, device: Ptr, properties: Ptr);
    fn clCreateBuffer(context: Ptr, flags: u64, size: usize, host_ptr: Ptr);
    fn clCreateSubBuffer(buffer: Ptr, flags: u64, create_type: u32, create_info: Ptr);
    fn clCreateImage(context: Ptr, flags: u64, image_format: Ptr, image_desc: Ptr, host_ptr: Ptr);
    fn clCreatePipe(
        context: Ptr, flags: u64, pipe_packet_size: u32, pipe_max_packets: u32, properties: Ptr,
    );
    fn clCreateBufferWithProperties(
        context: Ptr, properties: Ptr, flags: u64, size: usize, host_ptr: Ptr,
    );
    fn clCreateImageWithProperties(
        context: Ptr, properties: Ptr, flags: u64, image_format: Ptr, image_desc: Ptr,
        host_ptr: Ptr,
    );
    fn clCreateSamplerWithProperties(context: Ptr, sampler_properties: Ptr);
    fn clCreateProgramWithSource(context: Ptr, count: u32, strings: Ptr, lengths: Ptr);
    fn clCreateProgramWithBinary(
        context: Ptr, num_devices: u32, device_list: Ptr, lengths: Ptr, binaries: Ptr,
        binary_status: Ptr,
    );
    fn clCreateProgramWithBuiltInKernels(
        context: Ptr, num_devices: u32, device_list: Ptr, kernel_names: Ptr,
    );
    fn clCreateProgramWithIL(context: Ptr, il: Ptr, length: usize);
    fn clLinkProgram(
        context: Ptr, num_devices: u32, device_list: Ptr, options: Ptr, num_input_programs: u32,
        input_programs: Ptr, pfn_notify: Ptr, user_data: Ptr,
    );
    fn clCreateKernel(program: Ptr, kernel_name: Ptr);
    fn clCloneKernel(source_kernel: Ptr);
    fn clCreateUserEvent(context: Ptr);
    fn clEnqueueMapBuffer(
        queue: Ptr, buffer: Ptr, blocking: u32, map_flags: u64, offset: usize, size: usize,
        num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clEnqueueMapImage(
        queue: Ptr, image: Ptr, blocking: u32, map_flags: u64, origin: Ptr, region: Ptr,
        image_row_pitch: Ptr, image_slice_pitch: Ptr, num_waits: u32, waits: Ptr, event: Ptr,
    );
    fn clCreateImage2D(
        context: Ptr, flags: u64, image_format: Ptr, image_width: usize, image_height: usize,
        image_row_pitch: usize, host_ptr: Ptr,
    );
    fn clCreateImage3D(
        context: Ptr, flags: u64, image_format: Ptr, image_width: usize, image_height: usize,
        image_depth: usize, image_row_pitch: usize, image_slice_pitch: usize, host_ptr: Ptr,
    );
    fn clCreateCommandQueue(context: Ptr, device: Ptr, properties: u64);
    fn clCreateSampler(
        context: Ptr, normalized_coords: u32, addressing_mode: u32, filter_mode: u32,
    );
    fn clCreateFromGLBuffer(context: Ptr, flags: u64, bufobj: u32);
    fn clCreateFromGLTexture(context: Ptr, flags: u64, target: u32, miplevel: i32, texture: u32);
    fn clCreateFromGLRenderbuffer(context: Ptr, flags: u64, renderbuffer: u32);
    fn clCreateFromGLTexture2D(context: Ptr, flags: u64, target: u32, miplevel: i32, texture: u32);
    fn clCreateFromGLTexture3D(context: Ptr, flags: u64, target: u32, miplevel: i32, texture: u32);
}
