//! The OpenCL devices that there are, and what they say of themselves.
//!
//! ```text
//!  platforms ─▶ devices of each ─▶ describe ─▶ DeviceInfo { name, limits, obstacle }
//! ```
//!
//! A join's kernels need little:
//!
//! * an available compiler, little-endian words and 64-bit addresses,
//! * work-groups of at least 256 items with 32 KiB of local memory,
//! * 32-bit atomics, which are core since OpenCL 1.1.
//!
//! A device that lacks any of it is listed with the reason, and `auto` skips it. Some tables also
//! need 64-bit atomics, an extension. `pick` chooses among the devices.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ocl::core::{DeviceId, DeviceInfo as Request, PlatformId, PlatformInfo};

use crate::error::{Error, Result};

use super::identity::Identity;
use super::kind::{DEFAULT_SLOTS, DeviceKind, INT64_ATOMICS, KernelBody, SubGroupShuffle};
use super::opencl;

/// The request for a board's name, which has no name in `ocl`.
const BOARD_NAME_AMD: u32 = 0x4038;

/// Parts of the names of Mesa's software renderers.
const SOFTWARE_RENDERERS: [&str; 4] = ["llvmpipe", "lavapipe", "softpipe", "swrast"];

/// One OpenCL device: its place, its limits, and whether the kernels can run there.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Index of the platform, then of the device within it; `0:1` as text.
    pub index: (usize, usize),
    /// Name of the platform.
    pub platform: String,
    /// Its version; PoCL's names the compiler, too.
    pub platform_version: String,
    /// Name of the device.
    pub name: String,
    /// Name of its board, where the driver's name is that of the chip: `AMD Radeon RX 7900 XTX` for
    /// `gfx1100`. Empty if there is none.
    pub board: String,
    /// Name of the vendor.
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
    /// True if it works in the host's memory, as CPUs and integrated GPUs do.
    pub unified_memory: bool,
    /// Reason why the kernels cannot run there, if there is one.
    pub obstacle: Option<String>,
    pub(super) identity: Identity,
    pub(super) platform_id: PlatformId,
    pub(super) device_id: DeviceId,
}

impl DeviceInfo {
    /// Returns whether its memory is the host's.
    pub fn shares_host_memory(&self) -> bool {
        self.kind == DeviceKind::Cpu || self.unified_memory
    }

    /// Returns the body that should be fastest, by what the device says of itself.
    pub(crate) fn fastest_body(&self) -> KernelBody {
        let has = |body| self.has_tiles_of(body, DEFAULT_SLOTS / 2);
        match self.kind {
            DeviceKind::Cpu => KernelBody::Chunk,
            _ if has(KernelBody::WarpTile) => KernelBody::WarpTile,
            _ if has(KernelBody::SubGroupTile) => KernelBody::SubGroupTile,
            _ => KernelBody::LocalTile,
        }
    }

    /// Returns whether tiles of `lanes` lanes, a power of two, can talk by `body`. All lanes of a
    /// tile must be in one sub-group.
    pub(super) fn has_tiles_of(&self, body: KernelBody, lanes: usize) -> bool {
        match body {
            KernelBody::Chunk | KernelBody::LocalTile => true,
            KernelBody::SubGroupTile => {
                let width = self.sub_group_width;
                self.sub_group_shuffle().is_some() && width > 0 && width.is_multiple_of(lanes)
            }
            KernelBody::WarpTile => self.has("cl_nv_pragma_unroll"),
        }
    }

    /// Returns `body`, or local tiles where tiles of `lanes` lanes cannot talk by it.
    pub(crate) fn body_for_lanes(&self, body: KernelBody, lanes: usize) -> KernelBody {
        if self.has_tiles_of(body, lanes) {
            body
        } else {
            KernelBody::LocalTile
        }
    }

    /// Returns how sub-groups shuffle there, if they do. Khronos' extension needs OpenCL C 3.0.
    pub(crate) fn sub_group_shuffle(&self) -> Option<SubGroupShuffle> {
        if self.has("cl_intel_subgroups") {
            return Some(SubGroupShuffle::Intel);
        }
        let has_c = self.version.starts_with("OpenCL 3.");
        (has_c && self.has("cl_khr_subgroup_shuffle")).then_some(SubGroupShuffle::Khronos)
    }

    /// Returns whether the device renders in software, as Mesa can: right, but slower than a CPU's
    /// runtime.
    pub(super) fn is_software_renderer(&self) -> bool {
        let name = self.name.to_lowercase();
        SOFTWARE_RENDERERS.iter().any(|known| name.contains(known))
    }

    /// Returns whether the device has atomics on 64-bit words.
    pub fn has_int64_atomics(&self) -> bool {
        self.has(INT64_ATOMICS)
    }

    fn has(&self, extension: &str) -> bool {
        self.extensions.split_whitespace().any(|e| e == extension)
    }

    /// Returns whether its platform keeps compiled kernels on disk and needs long to hand them out.
    /// PoCL compiles each kernel once more for a binary, for work-groups of any size.
    pub(super) fn keeps_kernels(&self) -> bool {
        self.is_pocl()
    }

    fn is_pocl(&self) -> bool {
        let platform = self.platform.to_lowercase();
        platform.contains("portable computing language")
    }

    /// Returns whether `__builtin_prefetch` compiles and has an effect there: on PoCL and Intel's
    /// runtime.
    pub(crate) fn has_prefetch(&self) -> bool {
        let is_intel = self.platform.to_lowercase().contains("intel");
        self.kind == DeviceKind::Cpu && (self.is_pocl() || is_intel)
    }

    /// Returns whether a volatile load sees what atomics wrote, as between the cores of a CPU. An
    /// atomic load costs many times as much. Simulators, which would report a race, do not count.
    pub(super) fn has_coherent_caches(&self) -> bool {
        self.has_prefetch()
    }

    /// Returns its place and name: `0:0 NVIDIA H200`, `1:0 gfx1100 (AMD Radeon RX 7900 XTX)`.
    pub fn label(&self) -> String {
        let name = format!("{}:{} {}", self.index.0, self.index.1, self.name);
        match self.board.as_str() {
            "" => name,
            board => format!("{name} ({board})"),
        }
    }

    /// Returns whether another platform offers the same device, as far as the drivers tell. Devices
    /// of one platform are different ones.
    pub(super) fn is_same_device(&self, other: &Self) -> bool {
        let by_name = || self.name == other.name;
        self.platform_id != other.platform_id
            && (self.identity.is_same(&other.identity)).unwrap_or_else(by_name)
    }
}

/// Lists the names of all platforms by index, those without devices included.
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

/// Lists every device of every platform.
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

/// Lets one thread ask at a time: PoCL lists no devices while another thread initialises it.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ASKING: Mutex<()> = Mutex::new(());
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn platform_ids() -> Result<Vec<PlatformId>> {
    horton_opencl_loader::link();
    let platforms = opencl::platform_ids().map_err(|e| Error::NoPlatform(e.to_string()))?;
    if platforms.is_empty() {
        let status = horton_opencl_loader::status().to_string();
        return Err(Error::NoPlatform(status));
    }
    Ok(platforms)
}

fn platform_text(platform: PlatformId, what: PlatformInfo) -> String {
    opencl::platform_text(platform, what).unwrap_or_default()
}

fn devices_of(p: usize, platform: &PlatformId) -> Vec<DeviceInfo> {
    let ids = match opencl::device_ids(platform) {
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
        name: text(id, Request::Name as u32),
        board: String::new(),
        vendor: text(id, Request::Vendor as u32),
        version: format!(
            "{}, driver {}",
            text(id, Request::Version as u32),
            text(id, Request::DriverVersion as u32)
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
        extensions: text(id, Request::Extensions as u32),
        sub_group_width: 0,
        unified_memory: number(id, Request::HostUnifiedMemory) != 0,
        obstacle: None,
        identity: Identity::default(),
        platform_id: platform,
        device_id: id,
    };
    if info.has("cl_amd_device_attribute_query") {
        info.board = text(id, BOARD_NAME_AMD);
    }
    info.identity = Identity::new(|extension| info.has(extension), |request| raw(id, request));
    info.sub_group_width = sub_group_width(&info, id);
    info.obstacle = obstacle(&info, id);
    info
}

/// Returns the work-items of the narrowest sub-groups that a kernel may get. Intel's devices list
/// the sizes. Others usually have one, the preferred multiple of work-groups. A launch checks what
/// its kernel really gets.
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
        (info.global_memory == 0, "it reports no memory"),
        (
            info.max_work_group < 256,
            "its work-groups have fewer than 256 work-items",
        ),
        (
            info.local_memory < 32 << 10,
            "its work-groups have less than 32 KiB of local memory",
        ),
        (
            info.version.starts_with("OpenCL 1.0"),
            "its OpenCL 1.0 lacks 32-bit atomics",
        ),
    ];
    lacks
        .iter()
        .find(|(lacking, _)| *lacking)
        .map(|(_, reason)| (*reason).to_owned())
}

/// Returns the raw answer to a request; empty if the device does not answer it.
fn raw(id: DeviceId, request: u32) -> Vec<u8> {
    opencl::device_info(id, request).unwrap_or_default()
}

fn text(id: DeviceId, request: u32) -> String {
    String::from_utf8_lossy(&raw(id, request))
        .trim_end_matches('\0')
        .trim()
        .to_owned()
}

fn number(id: DeviceId, request: Request) -> u64 {
    little_endian(&raw(id, request as u32))
}

/// Returns the number in the first eight bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    let bytes = bytes.iter().take(8).rev();
    bytes.fold(0, |value, byte| value << 8 | u64::from(*byte))
}
