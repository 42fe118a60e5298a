//! The device layer: the one home of `ocl` and of `unsafe`.
//!
//! ```text
//!  join streams ──jobs──▶ owner thread ──▶ in-order queue ──▶ OpenCL device
//!  (tokio tasks) ◀answers─ (one a device)   [Queue]            buffers, kernels
//! ```
//!
//! OpenCL calls block and `ocl` panics on what it does not expect, so neither may happen
//! on a DataFusion runtime thread. Each opened [`Device`] has one thread that owns its
//! context, queue, programs and kernels; a job is a closure over [`Queue`], sent through a
//! channel and answered through another. A panic inside a job becomes an error.
//!
//! * [`info`]: which devices there are, which are accepted, and picking one
//! * [`owner`]: the owner thread, jobs and what they cost
//! * [`queue`]: buffers, transfers and kernel launches inside a job
//! * [`memory`]: the byte budget of a device
//! * [`program`]: program text from `.cl` parts and defines, and the binary cache
//! * [`host`]: the host itself, for comparison
//! * `status`: OpenCL's errors under their names
//!
//! The price of one thread is that jobs of several queries run one after the other; a job
//! is one probe chunk or one build, so they interleave, and a device runs one kernel well
//! at a time anyway.

pub mod host;
pub mod info;
pub mod memory;
pub mod owner;
pub mod program;
pub mod queue;
mod status;

pub use info::{DeviceInfo, DeviceKind, KernelBody, SubGroupShuffle, list, pick, platforms};
pub use owner::{Answer, Cost, Device};
pub use queue::{Arg, Buffer, Queue};
