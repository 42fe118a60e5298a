//! The kinds of devices and of kernel bodies.
//!
//! ```text
//!  kind ◀─ info ◀─ cache ◀─ program, self_test_cache ◀─ pick
//! ```
//!
//! These names need no driver, so every other file may use them. Were they in `info`, it and
//! `program` would need each other.

use std::fmt;

/// The extension with 64-bit atomics, which a program that needs it enables.
pub(crate) const INT64_ATOMICS: &str = "cl_khr_int64_base_atomics";

/// Slots of a bucket that joins have unless they ask for others.
pub(super) const DEFAULT_SLOTS: usize = 8;

/// The kind of processor that a device is, in the order in which `auto` prefers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// A dedicated accelerator.
    Accelerator,
    /// The host's processor, through a CPU runtime such as PoCL.
    Cpu,
}

/// The lookup kernel's body: one source, several ways to divide a bucket among lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelBody {
    /// A contiguous chunk of keys per work-item with rolling prefetch: CPU runtimes.
    Chunk,
    /// `slots / 2` lanes per bucket, talking through local memory: any GPU.
    LocalTile,
    /// `slots / 2` lanes per bucket, talking through the shuffles of sub-groups.
    SubGroupTile,
    /// `slots / 2` lanes per bucket, talking through warp shuffles in inline PTX: NVIDIA.
    WarpTile,
}

impl KernelBody {
    /// All kernel bodies.
    pub const ALL: [KernelBody; 4] = [
        KernelBody::Chunk,
        KernelBody::LocalTile,
        KernelBody::SubGroupTile,
        KernelBody::WarpTile,
    ];

    /// Returns whether a volatile load sees what atomics wrote: NVIDIA's read the L2, where those
    /// write.
    pub(crate) fn volatile_sees_atomics(self) -> bool {
        self == KernelBody::WarpTile
    }
}

impl fmt::Display for KernelBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KernelBody::Chunk => "chunk per work-item, prefetching",
            KernelBody::LocalTile => "tile of lanes, local memory",
            KernelBody::SubGroupTile => "tile of lanes, sub-group shuffles",
            KernelBody::WarpTile => "tile of lanes, warp shuffles",
        })
    }
}

/// The extension that lets the lanes of a sub-group read each other's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SubGroupShuffle {
    /// `cl_intel_subgroups`, in OpenCL C 1.2.
    Intel,
    /// `cl_khr_subgroup_shuffle`, in OpenCL C 3.0.
    Khronos,
}
