//! Which OpenCL devices there are, which of them can run the kernels, and picking one.
//!
//! ```text
//!  horton.device = 'auto'      GPU > accelerator > CPU > software renderer; most compute units first, then
//!                              with 64-bit atomics first; none that failed its self-test
//!                = '0:1'       second device of the first platform
//!                = 'radeon'    part of a device or platform name, any case
//! ```
//!
//! What a join's kernels need is little: an available compiler, little-endian words, 64-bit
//! addresses, and work-groups of at least 256 items with 32 KiB of local memory. 32-bit atomics are
//! core since OpenCL 1.1. A device lacking any of it is listed with the reason and skipped by
//! `auto`. 64-bit atomics are an extension that only tables that change need, and builds at high
//! loads. That a driver's kernels are right, too, a self-test shows before joins use it
//! (`verdict`).

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ocl::core::{DeviceId, DeviceInfo as Request, PlatformId, PlatformInfo};

use crate::error::{Error, Result};

use super::call;
use super::program::INT64_ATOMICS;
use super::verdict::{self, DEFAULT_SLOTS, Verdict};

/// What kind of processor a device is, in the order in which `auto` prefers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// A dedicated accelerator.
    Accelerator,
    /// The host's processor, through a CPU runtime such as PoCL.
    Cpu,
}

/// The lookup kernel's body: one source, several ways to spread a bucket over lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KernelBody {
    /// A contiguous chunk of keys per work-item with rolling prefetch: CPU runtimes.
    Chunk,
    /// `slots / 2` lanes a bucket, talking through local memory: any GPU.
    LocalTile,
    /// `slots / 2` lanes a bucket, talking through the shuffles of sub-groups.
    SubGroupTile,
    /// `slots / 2` lanes a bucket, talking through warp shuffles in inline PTX: NVIDIA.
    WarpTile,
}

impl KernelBody {
    /// All bodies.
    pub const ALL: [KernelBody; 4] = [
        KernelBody::Chunk,
        KernelBody::LocalTile,
        KernelBody::SubGroupTile,
        KernelBody::WarpTile,
    ];

    /// Whether a volatile load sees what atomics wrote: NVIDIA's read the L2, where those write.
    pub fn volatile_sees_atomics(self) -> bool {
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

/// Which extension lets the lanes of a sub-group read each other's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubGroupShuffle {
    /// `cl_intel_subgroups`, in OpenCL C 1.2.
    Intel,
    /// `cl_khr_subgroup_shuffle`, in OpenCL C 3.0.
    Khronos,
}

/// Parts of the names of Mesa's software renderers.
const SOFTWARE_RENDERERS: [&str; 4] = ["llvmpipe", "lavapipe", "softpipe", "swrast"];

/// One OpenCL device: its place, its limits, and whether the kernels can run there.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Index of the platform, then of the device within it; `0:1` in `horton.device`.
    pub index: (usize, usize),
    /// Platform name.
    pub platform: String,
    /// Its version; PoCL's names the compiler, too.
    pub platform_version: String,
    /// Device name.
    pub name: String,
    /// Vendor name.
    pub vendor: String,
    /// OpenCL version string of the device, with the driver's.
    pub version: String,
    /// GPU, accelerator or CPU.
    pub kind: DeviceKind,
    /// Compute units (cores or multiprocessors).
    pub compute_units: u32,
    /// Largest work-group, in work-items.
    pub max_work_group: usize,
    /// Global memory in bytes.
    pub global_memory: u64,
    /// Largest single buffer in bytes.
    pub max_allocation: u64,
    /// Local memory of a work-group in bytes.
    pub local_memory: u64,
    /// Space-separated extension names.
    pub extensions: String,
    /// Work-items of its narrowest sub-groups; 0 if it has none that kernels can use, or does not
    /// say.
    pub sub_group_width: usize,
    /// Whether it works in the host's memory, as CPUs and integrated GPUs do.
    pub unified_memory: bool,
    /// What keeps the kernels from running there, if anything.
    pub obstacle: Option<String>,
    pub(super) platform_id: PlatformId,
    pub(super) device_id: DeviceId,
}

impl DeviceInfo {
    /// The lookup kernel body that this device runs: the fastest, or what its self-test found to
    /// work.
    pub fn body(&self) -> KernelBody {
        match verdict::of(self) {
            Some(Verdict::Passed(body)) => body,
            _ => self.fastest_body(),
        }
    }

    /// The body that is fastest by what the device says of itself.
    pub(crate) fn fastest_body(&self) -> KernelBody {
        let has = |body| self.has_tiles_of(body, DEFAULT_SLOTS / 2);
        match self.kind {
            DeviceKind::Cpu => KernelBody::Chunk,
            _ if has(KernelBody::WarpTile) => KernelBody::WarpTile,
            _ if has(KernelBody::SubGroupTile) => KernelBody::SubGroupTile,
            _ => KernelBody::LocalTile,
        }
    }

    /// Whether kernels with this body run there, at least with buckets of the default size: the
    /// device has what they need, and its self-test did not find them wrong.
    pub fn supports(&self, body: KernelBody) -> bool {
        self.runs(body, DEFAULT_SLOTS / 2)
    }

    /// Whether tiles of so many lanes talk by `body` there.
    pub(crate) fn runs(&self, body: KernelBody, lanes: usize) -> bool {
        let local_tiles = Some(Verdict::Passed(KernelBody::LocalTile));
        let needs_none = matches!(body, KernelBody::Chunk | KernelBody::LocalTile);
        needs_none || self.has_tiles_of(body, lanes) && verdict::of(self) != local_tiles
    }

    /// Whether tiles of so many lanes, a power of two, can talk by `body`: all lanes of a tile must
    /// be in one sub-group.
    fn has_tiles_of(&self, body: KernelBody, lanes: usize) -> bool {
        match body {
            KernelBody::Chunk | KernelBody::LocalTile => true,
            KernelBody::SubGroupTile => {
                let width = self.sub_group_width;
                self.sub_group_shuffle().is_some() && width > 0 && width.is_multiple_of(lanes)
            }
            KernelBody::WarpTile => self.has("cl_nv_pragma_unroll"),
        }
    }

    /// `body`, or local tiles where tiles of so many lanes cannot talk by it.
    pub(crate) fn body_for_lanes(&self, body: KernelBody, lanes: usize) -> KernelBody {
        match self.has_tiles_of(body, lanes) {
            true => body,
            false => KernelBody::LocalTile,
        }
    }

    /// The same for lookups in buckets of so many slots, two a lane.
    pub(crate) fn body_for_slots(&self, body: KernelBody, slots: usize) -> KernelBody {
        match self.runs(body, slots / 2) {
            true => body,
            false => KernelBody::LocalTile,
        }
    }

    /// How sub-groups shuffle there, if they do. Khronos' extension is used in OpenCL C 3.0.
    pub fn sub_group_shuffle(&self) -> Option<SubGroupShuffle> {
        if self.has("cl_intel_subgroups") {
            return Some(SubGroupShuffle::Intel);
        }
        let has_c = self.version.starts_with("OpenCL 3.");
        (has_c && self.has("cl_khr_subgroup_shuffle")).then_some(SubGroupShuffle::Khronos)
    }

    /// Whether it computes in software what a GPU's driver is for: right, but slower than a CPU's
    /// runtime.
    pub fn is_software_renderer(&self) -> bool {
        let name = self.name.to_lowercase();
        SOFTWARE_RENDERERS.iter().any(|known| name.contains(known))
    }

    /// Whether it has atomics on 64-bit words.
    pub fn has_int64_atomics(&self) -> bool {
        self.has(INT64_ATOMICS)
    }

    fn has(&self, extension: &str) -> bool {
        self.extensions.split_whitespace().any(|e| e == extension)
    }

    /// Whether a `__builtin_prefetch` compiles and does something there (PoCL, Intel's CPU runtime).
    pub fn has_prefetch(&self) -> bool {
        let platform = self.platform.to_lowercase();
        self.kind == DeviceKind::Cpu
            && (platform.contains("portable computing language") || platform.contains("intel"))
    }

    /// Whether a volatile load sees what atomics wrote, as between the cores of a CPU; an atomic
    /// that changes nothing costs many times as much. Not where a simulator would call it a race.
    pub fn has_coherent_caches(&self) -> bool {
        self.has_prefetch()
    }

    /// Short name with the place: `0:0 NVIDIA H200`.
    pub fn label(&self) -> String {
        format!("{}:{} {}", self.index.0, self.index.1, self.name)
    }

    /// What keeps `auto` from using it: that it lacks something, or its self-test failed.
    fn obstacle(&self) -> Option<String> {
        let failed = || match verdict::of(self)? {
            Verdict::Failed(reason) => Some(format!("its self-test failed: {reason}")),
            Verdict::Passed(_) => None,
        };
        self.obstacle.clone().or_else(failed)
    }

    /// Its place among those that `auto` chooses from, the best first. Of two drivers of one
    /// device, which has the same compute units, the one with 64-bit atomics has all kinds of
    /// tables.
    fn rank(&self) -> impl Ord + use<> {
        (
            self.is_software_renderer(),
            self.kind,
            std::cmp::Reverse(self.compute_units),
            !self.has_int64_atomics(),
        )
    }

    fn matches(&self, asked: &str) -> bool {
        let asked = asked.to_lowercase();
        asked == format!("{}:{}", self.index.0, self.index.1)
            || self.name.to_lowercase().contains(&asked)
            || self.platform.to_lowercase().contains(&asked)
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} [{:?}, {}, {}; {} compute units, {:.1} GiB, buffers to {:.1} GiB] {}",
            self.label(),
            self.kind,
            self.platform,
            self.version,
            self.compute_units,
            gib(self.global_memory),
            gib(self.max_allocation),
            match &self.obstacle {
                None => format!("accepted; {}", self.body()),
                Some(reason) => format!("not accepted: {reason}"),
            }
        )
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Names of all platforms by index, those without devices included.
///
/// # Errors
/// [`Error::NoPlatform`] if there is no OpenCL loader or no platform.
pub fn platforms() -> Result<Vec<String>> {
    let _guard = one_at_a_time();
    Ok(platform_ids()?
        .into_iter()
        .map(|platform| platform_text(platform, PlatformInfo::Name))
        .collect())
}

/// Every device of every platform.
///
/// # Errors
/// [`Error::NoPlatform`] if there is no OpenCL loader or no platform. Platforms without
/// devices, and devices that cannot be asked, are left out.
pub fn list() -> Result<Vec<DeviceInfo>> {
    let _guard = one_at_a_time();
    Ok(platform_ids()?
        .iter()
        .enumerate()
        .flat_map(|(p, platform)| devices_of(p, platform))
        .collect())
}

/// PoCL lists no devices to a thread that asks while another initialises it.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ASKING: Mutex<()> = Mutex::new(());
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn platform_ids() -> Result<Vec<PlatformId>> {
    horton_opencl_loader::link();
    let platforms = call::platform_ids().map_err(|e| Error::NoPlatform(e.to_string()))?;
    match platforms.is_empty() {
        true => Err(Error::NoPlatform(
            horton_opencl_loader::status().to_string(),
        )),
        false => Ok(platforms),
    }
}

fn platform_text(platform: PlatformId, what: PlatformInfo) -> String {
    call::platform_text(platform, what).unwrap_or_default()
}

fn devices_of(p: usize, platform: &PlatformId) -> Vec<DeviceInfo> {
    let ids = match call::device_ids(platform) {
        Ok(ids) => ids,
        Err(error) => {
            log::debug!("OpenCL platform {p} has no devices: {error}");
            return Vec::new();
        }
    };
    ids.iter()
        .enumerate()
        .map(|(d, id)| describe((p, d), *platform, *id))
        .collect()
}

fn describe(index: (usize, usize), platform: PlatformId, id: DeviceId) -> DeviceInfo {
    let kind_bits = number(id, Request::Type);
    let mut info = DeviceInfo {
        index,
        platform: platform_text(platform, PlatformInfo::Name),
        platform_version: platform_text(platform, PlatformInfo::Version),
        name: text(id, Request::Name),
        vendor: text(id, Request::Vendor),
        version: format!(
            "{}, driver {}",
            text(id, Request::Version),
            text(id, Request::DriverVersion)
        ),
        kind: match kind_bits {
            bits if bits & 4 != 0 => DeviceKind::Gpu,
            bits if bits & 8 != 0 => DeviceKind::Accelerator,
            _ => DeviceKind::Cpu,
        },
        compute_units: number(id, Request::MaxComputeUnits) as u32,
        max_work_group: number(id, Request::MaxWorkGroupSize) as usize,
        global_memory: number(id, Request::GlobalMemSize),
        max_allocation: number(id, Request::MaxMemAllocSize),
        local_memory: number(id, Request::LocalMemSize),
        extensions: text(id, Request::Extensions),
        sub_group_width: 0,
        unified_memory: number(id, Request::HostUnifiedMemory) != 0,
        obstacle: None,
        platform_id: platform,
        device_id: id,
    };
    info.sub_group_width = sub_group_width(&info, id);
    info.obstacle = obstacle(&info, id);
    info
}

/// Work-items of the narrowest sub-groups that a kernel may get. Intel's devices list the sizes;
/// others have one as a rule, of which work-groups are best a multiple. What a kernel gets is
/// looked at once more before its launch.
fn sub_group_width(info: &DeviceInfo, id: DeviceId) -> usize {
    // Their requests have no names in `ocl`.
    const MAX_NUM_SUB_GROUPS: u32 = 0x105c;
    const PREFERRED_WORK_GROUP_SIZE_MULTIPLE: u32 = 0x1067;
    const SUB_GROUP_SIZES_INTEL: u32 = 0x4108;
    let width = match info.sub_group_shuffle() {
        None => 0,
        Some(SubGroupShuffle::Intel) => {
            let sizes = raw(id, SUB_GROUP_SIZES_INTEL);
            let sizes = sizes.chunks_exact(size_of::<usize>()).map(little_endian);
            sizes.min().unwrap_or(0)
        }
        Some(SubGroupShuffle::Khronos) if little_endian(&raw(id, MAX_NUM_SUB_GROUPS)) == 0 => 0,
        Some(SubGroupShuffle::Khronos) => {
            little_endian(&raw(id, PREFERRED_WORK_GROUP_SIZE_MULTIPLE))
        }
    };
    width as usize
}

fn obstacle(info: &DeviceInfo, id: DeviceId) -> Option<String> {
    let lacks = [
        (number(id, Request::Available) == 0, "it is not available"),
        (
            number(id, Request::CompilerAvailable) == 0,
            "it has no OpenCL C compiler",
        ),
        (number(id, Request::EndianLittle) == 0, "it is big-endian"),
        (
            number(id, Request::AddressBits) < 64,
            "its addresses have fewer than 64 bits",
        ),
        (info.global_memory == 0, "it says that it has no memory"),
        (
            info.max_work_group < 256,
            "its work-groups hold fewer than 256 work-items",
        ),
        (
            info.local_memory < 32 << 10,
            "its work-groups have less than 32 KiB of local memory",
        ),
        (
            info.version.starts_with("OpenCL 1.0"),
            "OpenCL 1.0 lacks 32-bit atomics",
        ),
    ];
    lacks
        .iter()
        .find(|(lacking, _)| *lacking)
        .map(|(_, reason)| (*reason).to_owned())
}

/// Raw value of a request; empty when the device does not answer it.
fn raw(id: DeviceId, request: u32) -> Vec<u8> {
    call::device_info(id, request).unwrap_or_default()
}

fn text(id: DeviceId, request: Request) -> String {
    String::from_utf8_lossy(&raw(id, request as u32))
        .trim_end_matches('\0')
        .trim()
        .to_owned()
}

fn number(id: DeviceId, request: Request) -> u64 {
    little_endian(&raw(id, request as u32))
}

/// The number in the first eight bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The device that `asked` (the value of `horton.device`) means.
///
/// # Errors
/// [`Error::NoPlatform`]; [`Error::UnknownDevice`] with the list of devices if nothing
/// matches; [`Error::UnsuitableDevice`] if what matches cannot run the kernels;
/// [`Error::NoUsableDevice`] with the reasons if `auto` finds none that can.
pub fn pick(asked: &str) -> Result<DeviceInfo> {
    choose(list()?, asked.trim())
}

/// Whether the best device is asked for, whichever it is.
pub(super) fn is_auto(asked: &str) -> bool {
    let asked = asked.trim();
    asked.is_empty() || asked.eq_ignore_ascii_case("auto")
}

fn choose(devices: Vec<DeviceInfo>, asked: &str) -> Result<DeviceInfo> {
    if is_auto(asked) {
        return best(devices);
    }
    let matching: Vec<&DeviceInfo> = devices.iter().filter(|d| d.matches(asked)).collect();
    match matching.iter().find(|d| d.obstacle.is_none()) {
        Some(device) => Ok((*device).clone()),
        None => Err(match matching.first() {
            Some(device) => Error::UnsuitableDevice {
                device: device.label(),
                reason: device.obstacle.clone().unwrap_or_default(),
            },
            None => Error::UnknownDevice {
                asked: asked.to_owned(),
                available: devices.iter().map(DeviceInfo::label).collect(),
            },
        }),
    }
}

fn best(devices: Vec<DeviceInfo>) -> Result<DeviceInfo> {
    let reasons = match devices.is_empty() {
        true => vec!["no platform has a device".to_owned()],
        false => devices
            .iter()
            .filter_map(|d| Some(format!("{}: {}", d.label(), d.obstacle()?)))
            .collect(),
    };
    devices
        .into_iter()
        .filter(|d| d.obstacle().is_none())
        .min_by_key(DeviceInfo::rank)
        .ok_or(Error::NoUsableDevice(reasons))
}
