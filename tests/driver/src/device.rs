//! What the platform and the device say of themselves.
//!
//! ROCm 6 is taken as `clinfo` shows it on an MI210, an MI300X and an RX 7900 XTX. Rusticl is as
//! Mesa's `device.rs` has it with radeonsi.

use crate::objects::Ptr;
use crate::settings::settings;
use crate::status::{Called, INVALID_VALUE};
use crate::target::{Driver, Target};

/// The handle of the one platform.
pub const PLATFORM: usize = 1;

/// The handle of the one device.
pub const DEVICE: usize = 2;

const GPU: u64 = 4;
const LOCAL: u32 = 1;

const ROCM: &str = "cl_khr_fp64 cl_khr_global_int32_base_atomics \
    cl_khr_global_int32_extended_atomics cl_khr_local_int32_base_atomics \
    cl_khr_local_int32_extended_atomics cl_khr_int64_base_atomics cl_khr_int64_extended_atomics \
    cl_khr_3d_image_writes cl_khr_byte_addressable_store cl_khr_fp16 cl_khr_gl_sharing \
    cl_amd_device_attribute_query cl_amd_media_ops cl_amd_media_ops2 cl_khr_image2d_from_buffer \
    cl_khr_subgroups cl_khr_depth_images cl_amd_copy_buffer_p2p cl_amd_assembly_program";

const RUSTICL: &str = "cl_khr_byte_addressable_store cl_khr_create_command_queue \
    cl_khr_expect_assume cl_khr_extended_versioning cl_khr_global_int32_base_atomics \
    cl_khr_global_int32_extended_atomics cl_khr_il_program cl_khr_local_int32_base_atomics \
    cl_khr_local_int32_extended_atomics cl_khr_integer_dot_product \
    cl_khr_spirv_no_integer_wrap_decoration cl_khr_suggested_local_work_size cl_khr_fp16 \
    cl_khr_fp64 cl_khr_pci_bus_info cl_khr_subgroup_shuffle cl_khr_subgroup_shuffle_relative";

/// The answer to a question for a property.
pub struct Answer(pub Vec<u8>);

impl Answer {
    pub fn text(text: &str) -> Self {
        let mut bytes = text.as_bytes().to_vec();
        bytes.push(0);
        Self(bytes)
    }

    pub fn int(value: u32) -> Self {
        Self(value.to_ne_bytes().to_vec())
    }

    pub fn long(value: u64) -> Self {
        Self(value.to_ne_bytes().to_vec())
    }

    pub fn handle(value: Ptr) -> Self {
        Self((value as usize).to_ne_bytes().to_vec())
    }
}

fn is_mesa() -> bool {
    settings().driver == Driver::Rusticl
}

/// Returns what the platform says of property `what`.
///
/// # Errors
/// The status of a property that it does not know.
pub fn platform(what: u32) -> Called<Answer> {
    let text = |rocm, mesa| Ok(Answer::text(if is_mesa() { mesa } else { rocm }));
    match what {
        0x0900 => Ok(Answer::text("FULL_PROFILE")),
        0x0901 => text("OpenCL 2.1 AMD-APP (3635.0)", "OpenCL 3.0 "),
        0x0902 => text("AMD Accelerated Parallel Processing", "rusticl"),
        0x0903 => text("Advanced Micro Devices, Inc.", "Mesa/X.org"),
        0x0904 => Ok(Answer::text("cl_khr_icd")),
        _ => Err(INVALID_VALUE),
    }
}

/// The board that has the chip.
fn board(target: Target) -> &'static str {
    match target {
        Target::Gfx90a => "AMD Instinct MI210",
        Target::Gfx942 => "AMD Instinct MI300X",
        Target::Gfx1100 => "AMD Radeon RX 7900 XTX",
    }
}

/// Returns what the device says of property `what`.
///
/// # Errors
/// The status of a property that it does not know.
pub fn device(what: u32) -> Called<Answer> {
    let (target, is_mesa) = (settings().target, is_mesa());
    let wave = target.wave_size();
    let text = |rocm: &str, mesa: &str| Answer::text(if is_mesa { mesa } else { rocm });
    Ok(match what {
        0x1000 => Answer::long(GPU),
        0x1001 => Answer::int(0x1002),
        0x1002 => Answer::int(settings().units),
        0x1004 => Answer::long(if is_mesa { 1024 } else { 256 }),
        0x100d => Answer::int(64),
        0x1010 => Answer::long(settings().memory * 3 / 4),
        0x101f => Answer::long(settings().memory),
        0x1022 => Answer::int(LOCAL),
        0x1023 => Answer::long(64 << 10),
        // Little endian; available; has a compiler and a linker.
        0x1026 | 0x1027 | 0x1028 | 0x103e => Answer::int(1),
        0x102b => text(
            target.name(),
            &format!("{} (radeonsi, emulated, LLVM 19)", board(target)),
        ),
        0x102c => text("Advanced Micro Devices, Inc.", "AMD"),
        // Who keeps compiled kernels keeps them by this version.
        0x102d if settings().is_native => Answer::text("3635.0 (PoCL)"),
        0x102d => text("3635.0 (HSA1.1,LC)", "25.2.0"),
        0x102e => Answer::text("FULL_PROFILE"),
        0x102f => text("OpenCL 2.0 ", "OpenCL 3.0 "),
        0x1030 => text(ROCM, RUSTICL),
        0x1031 => Answer::handle(PLATFORM as Ptr),
        // Its memory is not the host's.
        0x1035 => Answer::int(0),
        0x103d => text("OpenCL C 2.0 ", "OpenCL C 1.2 "),
        0x105c => Answer::int(if is_mesa { 1024 / wave } else { 0 }),
        0x1067 if is_mesa => Answer::long(u64::from(wave)),
        0x4038 if !is_mesa => Answer::text(board(target)),
        _ => return Err(INVALID_VALUE),
    })
}
