//! Registers, memory and waves of each kernel in code objects, as a Markdown table.
//!
//! ```text
//!  resources FILE.gfx90a.co … ─▶ | kernel | chip | vgprs | … | waves per SIMD |
//!                             ─▶ exit status 1 if one spills vector registers or has few waves
//! ```
//!
//! A SIMD hides the time of memory by other waves. How many it keeps is what registers and local
//! memory allow, with work-groups of 256.
//!
//! Sources: "AMD Instinct MI200 ISA" and "RDNA3 ISA", their chapters on registers and local memory;
//! LLVM's "User Guide for AMDGPU Backend" for the steps in which registers are allocated.

#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use horton_driver::code_object::{CodeObject, Kernel};
use horton_driver::target::Target;

/// Bytes of local memory of a compute unit.
const LOCAL: u32 = 64 << 10;

/// Returns the waves that a SIMD must keep. `split` sorts a block of keys in local memory, and
/// keeps no more than that.
fn waves_min(target: Target) -> u32 {
    if target.is_rdna() { 4 } else { 1 }
}

/// Waves of a SIMD: the most, and how many `kernel` lets it keep.
fn waves(target: Target, kernel: &Kernel) -> (u32, u32) {
    // Most waves; registers of a lane, and their steps; SIMDs of a compute unit.
    let (most, registers, step, simds) = match target.is_rdna() {
        true => (16, 1536, 24, 2),
        false => (8, 512, 8, 4),
    };
    let taken = (kernel.vgprs + kernel.agprs).max(1).next_multiple_of(step);
    let by_registers = registers / taken;
    let groups = LOCAL.checked_div(kernel.local_bytes).unwrap_or(u32::MAX);
    let of_group = 256 / target.wave_size();
    let by_local = groups.saturating_mul(of_group) / simds;
    (most, most.min(by_registers).min(by_local))
}

fn target_of(file: &str) -> Result<Target, String> {
    let named = |target: &Target| file.contains(target.name());
    let target = Target::ALL.into_iter().find(named);
    target.ok_or_else(|| format!("{file}: its name has no chip"))
}

fn main() -> Result<ExitCode, String> {
    let mut rows = BTreeMap::new();
    let mut failed = Vec::new();
    for file in std::env::args().skip(1) {
        let target = target_of(&file)?;
        for kernel in CodeObject::load(Path::new(&file))?.kernels() {
            let (most, kept) = waves(target, kernel);
            let row = format!(
                "{} | {} | {} + {} | {} | {} | {kept} of {most}",
                kernel.vgprs,
                kernel.sgprs,
                kernel.vgpr_spills,
                kernel.sgpr_spills,
                kernel.local_bytes,
                kernel.private_bytes,
            );
            // Several programs have a kernel of one name: the one with the fewest waves is shown.
            let shown = rows.entry((kernel.name.clone(), target.name()));
            let known = shown.or_insert((kept, row.clone()));
            if kept < known.0 {
                *known = (kept, row);
            }
            if kept < waves_min(target) || kernel.vgpr_spills > 0 {
                failed.push(format!("{} of {file}", kernel.name));
            }
        }
    }
    println!(
        "| kernel | chip | VGPRs | SGPRs | spills | local bytes | private bytes | waves per SIMD |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|");
    for ((kernel, chip), (_, row)) in rows {
        println!("| `{kernel}` | {chip} | {row} |");
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "too few waves, or spilled vector registers: {}",
        failed.join(", ")
    );
    Ok(ExitCode::FAILURE)
}
