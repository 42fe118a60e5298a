//! The device layer: the one home of `ocl` and of `unsafe`.
//!
//! ```text
//!  join streams ──jobs──▶ queue threads ──▶ in-order queue ──▶ OpenCL device
//!  (tokio tasks) ◀answers─ (1 or 3 per device) [Queue]           buffers, kernels
//! ```
//!
//! OpenCL calls block, and `ocl` panics on what it does not expect. So neither may happen on a
//! thread of an asynchronous runtime. Each opened [`Device`] has queue threads, each of which owns
//! a queue and kernels each. A job is a closure over [`Queue`], sent through a channel and answered
//! through another. A panic inside a job becomes an error.
//!
//! * `info`: which devices there are and what they say of themselves; `kind`: their kinds
//! * `pick`: picking one, and the kernels that it runs
//! * `load`: how much work a device has
//! * `upload_permits`: how many uploads are on their way at once
//! * `placement`: the devices that share work, and which of them a join goes to
//! * `handle`: an opened device, as others use it
//! * `queue_threads`: its threads; `inbox`: jobs in line; `job`: what a job returns and costs
//! * `memory_threads`: those that create and release memory; `shared`: what all threads share
//! * `queue`: what a job can do: memory, `transfer`, `launch`
//! * `buffer`, `staging`: memory of the device and of the host, as elements
//! * `memory`, `pool`: memory objects, and blocks of them that are used again
//! * `releases`: memory that a driver is to release
//! * `in_use`: the memory of commands that may still run
//! * `locked`, `host_pages`: page-locked memory of the host, and the pages that it lies in
//! * `budget`: how many bytes of a device may be in use
//! * `context`: what the queue threads of a device share
//! * `program`: program text from `.cl` parts and defines, compiled
//! * `cache`: files that keep compiled programs and results of self-tests
//! * [`self_test_cache`]: what self-tests found, remembered
//! * `opencl`: every OpenCL call, through one gate; `faults`, in debug builds, fails them on demand
//! * `exit`: no call beside the driver's clean-up
//! * `status`: OpenCL's errors under their names
//! * [`host`]: prefetching on the host itself
//! * `huge_pages`: large pages under the buffers of CPU devices
//!
//! Jobs of several queries run a few at a time; a job is one probe chunk or one build, so they
//! interleave, and a device runs one kernel well at a time anyway.

pub(crate) mod budget;
mod buffer;
pub(crate) mod cache;
mod context;
mod exit;
#[cfg(debug_assertions)]
pub mod faults;
mod handle;
pub mod host;
mod host_pages;
mod huge_pages;
mod identity;
mod in_use;
mod inbox;
mod info;
mod job;
mod kind;
mod load;
mod locked;
mod memory;
mod memory_threads;
mod opencl;
mod pick;
mod placement;
mod pool;
pub(crate) mod program;
mod queue;
mod queue_threads;
mod releases;
pub mod self_test_cache;
mod shared;
mod staging;
mod status;
mod upload_permits;
mod watchdog;

pub use budget::{Budget, MEMORY_WAIT};
pub use buffer::Buffer;
pub use exit::guard_this_thread;
pub use handle::{Device, UploadPermit};
pub use info::{DeviceInfo, list, platforms};
pub use job::{Answer, Cost};
pub(crate) use kind::SubGroupShuffle;
pub use kind::{DeviceKind, KernelBody};
pub use pick::names_device;
pub use pick::{pick, pick_all};
pub use placement::Devices;
pub use placement::Placed;
pub use program::ProgramText;
pub use queue::Queue;
pub use queue::launch::Arg;
pub use staging::Staging;
pub use watchdog::DEVICE_TIMEOUT;
