//! The numbers of OpenCL that are used here, by their names in `CL/cl.h`.

/// The answer of a call: an error is its status.
pub type Called<T> = Result<T, i32>;

pub const SUCCESS: i32 = 0;
pub const DEVICE_NOT_FOUND: i32 = -1;
pub const DEVICE_NOT_AVAILABLE: i32 = -2;
pub const MEM_OBJECT_ALLOCATION_FAILURE: i32 = -4;
pub const OUT_OF_RESOURCES: i32 = -5;
pub const OUT_OF_HOST_MEMORY: i32 = -6;
pub const MEM_COPY_OVERLAP: i32 = -8;
pub const BUILD_PROGRAM_FAILURE: i32 = -11;
pub const EXEC_STATUS_ERROR_FOR_EVENTS: i32 = -14;
pub const INVALID_VALUE: i32 = -30;
pub const INVALID_CONTEXT: i32 = -34;
pub const INVALID_COMMAND_QUEUE: i32 = -36;
pub const INVALID_HOST_PTR: i32 = -37;
pub const INVALID_MEM_OBJECT: i32 = -38;
pub const INVALID_BINARY: i32 = -42;
pub const INVALID_PROGRAM: i32 = -44;
pub const INVALID_PROGRAM_EXECUTABLE: i32 = -45;
pub const INVALID_KERNEL_NAME: i32 = -46;
pub const INVALID_KERNEL: i32 = -48;
pub const INVALID_ARG_INDEX: i32 = -49;
pub const INVALID_KERNEL_ARGS: i32 = -52;
pub const INVALID_WORK_DIMENSION: i32 = -53;
pub const INVALID_WORK_GROUP_SIZE: i32 = -54;
pub const INVALID_EVENT: i32 = -58;
pub const INVALID_BUFFER_SIZE: i32 = -61;

/// States of a command: it has ended, it runs, it waits.
pub const COMPLETE: i32 = 0;
pub const RUNNING: i32 = 1;
pub const QUEUED: i32 = 3;
