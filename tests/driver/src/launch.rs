//! Launches a kernel: checks its arguments, and sets up what the hardware would.
//!
//! ```text
//!   arguments ─ sizes, kinds ──▶ kernarg ─────────┐
//!   groups, local ──▶ dispatch packet ──┐         │
//!   descriptor's properties ──▶ SGPRs  s[0:1]  s[2:3]  …  then the group's number
//!   buffers ──▶ ranges: the only memory that instructions may touch
//! ```
//!
//! Source: LLVM's "User Guide for AMDGPU Backend", its sections on kernel descriptors and AQL
//! packets. A queue of packets would be closer to the hardware, but no kernel would see it.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::code_object::{CodeObject, Kernel, Parameter};
use crate::functions::{Functions, Range};
use crate::races::Race;
use crate::target::Target;
use crate::tools::{name_of, written};
use crate::waves::{self, End, Tally, Work};

/// Held while a kernel runs: what it may touch is a global of the library with its functions.
static RUNS: Mutex<()> = Mutex::new(());

/// Bytes behind the arguments that a wide load may read.
const BEHIND_ARGUMENTS: usize = 256;

/// A code object, with the functions of its instructions.
pub struct LoadedCode {
    target: Target,
    object: CodeObject,
    functions: Functions,
}

impl LoadedCode {
    /// Loads a code object. The native code of its instructions is kept in the folder `cache`.
    ///
    /// # Errors
    /// If it is broken, or if LLVM's tools are missing or fail.
    pub fn load(target: Target, bytes: &[u8], cache: &Path) -> Result<Self, String> {
        let file = written(cache.join(name_of(bytes)).with_extension("elf"), bytes)?;
        let object = CodeObject::load(&file)?;
        let functions = Functions::load(target, &file, object.memory.len(), cache)?;
        Ok(Self {
            target,
            object,
            functions,
        })
    }

    /// Returns whether it has a kernel of that name.
    pub fn has_kernel(&self, name: &str) -> bool {
        self.kernel(name).is_some()
    }

    fn kernel(&self, name: &str) -> Option<&Kernel> {
        let mut kernels = self.object.kernels().iter();
        kernels.find(|kernel| kernel.name == name)
    }
}

/// An argument: the bytes of a value, or the 8 bytes of a buffer's address.
pub struct Argument {
    pub is_memory: bool,
    pub value: Vec<u8>,
}

/// A launch.
pub struct Launch<'a> {
    pub kernel: &'a str,
    /// Work-groups, and the work-items of each.
    pub groups: u32,
    pub local: u32,
    pub arguments: &'a [Argument],
    /// Start and end of the buffers. They must stay until the launch is over.
    pub buffers: &'a [(u64, u64)],
    /// The seed by which waves take turns at random, instead of one after the other.
    pub mixed: Option<u64>,
    /// Whether races between work-items are looked for.
    pub finds_races: bool,
}

/// Runs a launch. Returns the instructions of its waves, and errors that did not stop it.
///
/// # Errors
/// If the arguments do not fit, or if the kernel does what no device would bear.
pub fn run(code: &LoadedCode, launch: &Launch) -> Result<(u64, Vec<String>), String> {
    let kernel = code.kernel(launch.kernel).ok_or("no such kernel")?;
    check(code.target, kernel, launch)?;
    let arguments = arguments_of(kernel, launch)?;
    let (object, arguments_at) = (range(&code.object.memory), range(&arguments));
    let addresses = [object.0 + kernel.descriptor, arguments_at.0];
    let packet = packet_of(kernel, launch, addresses);
    let work = Work {
        functions: &code.functions,
        kernel,
        launch,
        base: object.0,
        wave_size: code.target.wave_size(),
        user: user_registers(kernel, range(&packet).0, arguments_at.0),
    };
    let own = [object, range(&packet), arguments_at];
    let ranges = launch.buffers.iter().copied().chain(own);
    let mut ranges: Vec<_> = ranges.map(|(from, to)| Range(from, to)).collect();
    ranges.sort_unstable();
    let (tally, end) = run_alone(&work, &ranges);
    report(&work, tally, end)
}

/// Returns where bytes begin and end. The system's allocator aligns them by 16, and scalar loads of
/// the kernel need 4.
fn range(bytes: &[u8]) -> (u64, u64) {
    let pointers = bytes.as_ptr_range();
    (pointers.start as u64, pointers.end as u64)
}

/// Runs the waves while no other launch runs.
fn run_alone(work: &Work, ranges: &[Range]) -> (Tally, End) {
    let _alone = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let memory = work.functions.memory.as_ptr();
    // SAFETY: it is the library's global, which only the holder of the lock touches. The ranges
    // are the launch's own memory and buffers, which stay until it is over.
    unsafe {
        (*memory).count = ranges.len() as u64;
        (*memory).ranges = ranges.as_ptr();
        (*memory).local_bytes = work.kernel.local_bytes.into();
        (*memory).fault = 0;
        (*memory).last = 0;
        (*memory).notes = work.launch.finds_races.into();
        (*memory).touched = 0;
        waves::run(work)
    }
}

/// Returns the instructions and what was wrong, or where and why the launch stopped.
fn report(work: &Work, tally: Tally, end: End) -> Result<(u64, Vec<String>), String> {
    let barriers = tally.wrong_barriers.iter();
    let barriers = barriers.map(|(how, count)| format!("{count} barriers {how}"));
    let sizes = (work.launch.local, work.wave_size);
    let race = |race: &Race| race.text(sizes, |place| work.functions.text(place.into()));
    let mut remarks: Vec<_> = barriers.chain(tally.races.iter().map(race)).collect();
    let Err((pc, why)) = end else {
        return Ok((tally.instructions, remarks));
    };
    let text = work.functions.text(pc.wrapping_sub(work.base));
    remarks.push(format!("stopped at {text}: {why}"));
    Err(remarks.join("; "))
}

/// Checks that the kernel can be launched so.
fn check(target: Target, kernel: &Kernel, launch: &Launch) -> Result<(), String> {
    let has_group_id = kernel.resources >> 7 & 1 == 1;
    let is_wave32 = kernel.properties >> 10 & 1 == 1;
    let has_wave_size = is_wave32 == (target.wave_size() == 32);
    let is_preloaded = kernel.properties >> 16 & 0x7f != 0;
    let fits = (1..=kernel.local_max.min(1024)).contains(&launch.local);
    let is_too_large = launch.groups.checked_mul(launch.local).is_none();
    let wrong = [
        (!has_group_id, "no work-group id"),
        (!has_wave_size, "waves of another size"),
        (is_preloaded, "arguments preloaded into registers"),
        (!fits, "a work-group that is too small or too large"),
        (is_too_large, "2^32 work-items or more"),
    ];
    let wrong = wrong.into_iter().find(|(is_wrong, _)| *is_wrong);
    wrong.map_or(Ok(()), |(_, what)| Err(what.to_owned()))
}

/// Returns the bytes of the arguments, and of the hidden ones behind them.
fn arguments_of(kernel: &Kernel, launch: &Launch) -> Result<Vec<u8>, String> {
    let is_hidden = |parameter: &&Parameter| parameter.kind.starts_with("hidden_");
    let (hidden, explicit): (Vec<_>, Vec<_>) = kernel.parameters.iter().partition(is_hidden);
    let (given, needed) = (launch.arguments.len(), explicit.len());
    if given != needed {
        return Err(format!("{given} arguments of {needed}"));
    }
    let mut bytes = vec![0; kernel.kernarg_bytes as usize + BEHIND_ARGUMENTS];
    let mut write = |to: &Parameter, value: &[u8]| {
        bytes[to.offset as usize..][..value.len()].copy_from_slice(value);
    };
    for (i, (parameter, argument)) in explicit.iter().zip(launch.arguments).enumerate() {
        let Parameter { size, kind, .. } = parameter;
        let Argument { value, is_memory } = argument;
        if value.len() != *size as usize {
            return Err(format!("argument {i} has {} bytes of {size}", value.len()));
        }
        let is_null = value.iter().all(|byte| *byte == 0);
        if (kind == "global_buffer") != *is_memory && !is_null {
            return Err(format!("argument {i} is a {kind}"));
        }
        write(parameter, value);
    }
    for parameter in hidden {
        let value: u32 = match parameter.kind.as_str() {
            "hidden_block_count_x" => launch.groups,
            "hidden_group_size_x" => launch.local,
            "hidden_block_count_y" | "hidden_block_count_z" | "hidden_grid_dims" => 1,
            "hidden_group_size_y" | "hidden_group_size_z" => 1,
            _ => 0,
        };
        let size = parameter.size.min(4) as usize;
        write(parameter, &value.to_le_bytes()[..size]);
    }
    Ok(bytes)
}

/// Returns the dispatch packet, with the addresses of the descriptor and of the arguments.
fn packet_of(kernel: &Kernel, launch: &Launch, addresses: [u64; 2]) -> Vec<u8> {
    // A kernel dispatch that waits for those before it, of one dimension.
    let halves = [2 | 1 << 8, 1, launch.local as u16, 1, 1, 0];
    let items = launch.groups * launch.local;
    let words = [items, 1, 1, kernel.private_bytes, kernel.local_bytes];
    let mut packet: Vec<u8> = halves.into_iter().flat_map(u16::to_le_bytes).collect();
    packet.extend(words.into_iter().flat_map(u32::to_le_bytes));
    packet.extend(addresses.into_iter().flat_map(u64::to_le_bytes));
    packet
}

/// Returns the user SGPRs.
fn user_registers(kernel: &Kernel, packet: u64, arguments: u64) -> Vec<u32> {
    let pair = |address: u64| vec![address as u32, (address >> 32) as u32];
    // By the properties' bits: private segment buffer, dispatch packet, queue, arguments, dispatch
    // id, flat scratch, private bytes.
    let parts = [
        vec![0; 4],
        pair(packet),
        pair(0),
        pair(arguments),
        pair(0),
        pair(0),
        vec![kernel.private_bytes],
    ];
    let parts = parts.into_iter().enumerate();
    let asked = parts.filter(|(bit, _)| kernel.properties >> bit & 1 == 1);
    let mut user: Vec<u32> = asked.flat_map(|(_, part)| part).collect();
    user.resize((kernel.resources >> 1 & 31) as usize, 0);
    user
}
