//! The device layer: the one home of `ocl` and of `unsafe`.
//!
//! ```text
//!  join streams ──jobs──▶ lanes: threads ──▶ in-order queue ──▶ OpenCL device
//!  (tokio tasks) ◀answers─ (1 or 3 a device)  [Queue]            buffers, kernels
//! ```
//!
//! OpenCL calls block and `ocl` panics on what it does not expect, so neither may happen
//! on a DataFusion runtime thread. Each opened [`Device`] has threads, its lanes, that own a
//! queue and kernels each; a job is a closure over [`Queue`], sent through a
//! channel and answered through another. A panic inside a job becomes an error.
//!
//! * [`info`]: which devices there are, which are accepted, and picking one
//! * [`owner`]: the lanes, jobs and what they cost
//! * [`queue`]: buffers, transfers and kernel launches inside a job
//! * [`staging`]: host memory for fast transfers
//! * `context`, `pool`: what lanes share: context, programs, blocks that are used again
//! * [`budget`]: the byte budget of a device
//! * `call`: every OpenCL call, through one gate; `faults`, in debug builds, fails them on demand
//! * `exit`: no call beside the driver's clean-up
//! * [`verdict`]: what self-tests found, remembered
//! * [`program`]: program text from `.cl` parts and defines, and the binary cache
//! * [`host`]: prefetching on the host itself
//! * `pages`: large pages under the buffers of CPU devices
//! * `status`: OpenCL's errors under their names
//!
//! Jobs of several queries run a few at a time; a job is one probe chunk or one build, so they
//! interleave, and a device runs one kernel well at a time anyway.

pub mod budget;
mod call;
mod context;
mod exit;
#[cfg(debug_assertions)]
pub mod faults;
pub mod host;
pub mod info;
pub mod owner;
mod pages;
mod pool;
pub mod program;
pub mod queue;
pub mod staging;
mod status;
pub mod verdict;

pub use info::{DeviceInfo, DeviceKind, KernelBody, SubGroupShuffle, list, pick, platforms};
pub use owner::{Answer, Cost, Device};
pub use queue::{Arg, Buffer, Queue};
pub use staging::Staging;
