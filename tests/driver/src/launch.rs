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

use crate::code_object::{CodeObject, Kernel, Mapping, Parameter};
use crate::functions::{Functions, Range};
use crate::races::Race;
use crate::target::Target;
use crate::waves::{self, End, Tally, Work};

/// Held while a kernel runs: what it may touch is a global of the library with its functions.
static RUNS: Mutex<()> = Mutex::new(());

/// The bytes of a dispatch packet, and those behind the arguments that a wide load may read.
const PACKET_BYTES: usize = 64;
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
        let object = CodeObject::load(bytes)?;
        let (from, to) = object.memory.range();
        let functions = Functions::load(target, bytes, to - from, cache)?;
        Ok(Self {
            target,
            object,
            functions,
        })
    }

    /// Returns its kernels.
    pub fn kernels(&self) -> &[Kernel] {
        self.object.kernels()
    }

    /// Returns whether it has a kernel of that name.
    pub fn has_kernel(&self, name: &str) -> bool {
        self.kernel(name).is_some()
    }

    fn kernel(&self, name: &str) -> Option<&Kernel> {
        let mut kernels = self.kernels().iter();
        kernels.find(|kernel| kernel.name == name)
    }

    /// Returns the instructions that are not known. To meet one is an error.
    pub fn unknown(&self) -> &[String] {
        &self.functions.unknown
    }
}

/// An argument: the bytes of a value, or the 8 bytes of a buffer's address.
pub struct Argument {
    pub is_memory: bool,
    pub value: Vec<u8>,
}

/// The order in which waves run.
#[derive(Clone, Copy)]
pub struct Order {
    /// Whether they are interleaved at random.
    pub is_mixed: bool,
    pub seed: u64,
    /// The most instructions before another wave goes on.
    pub quantum: u32,
    /// Groups that run at a time, up to 8.
    pub resident: u32,
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
    pub order: Order,
    /// Whether races between work-items are looked for.
    pub finds_races: bool,
}

/// What a launch did.
pub struct Counts {
    /// Instructions of waves.
    pub instructions: u64,
    pub barriers: u64,
    /// Errors of the kernel that did not stop it.
    pub remarks: Vec<String>,
}

/// Runs a launch.
///
/// # Errors
/// If the arguments do not fit, or if the kernel does what no device would bear.
pub fn run(code: &LoadedCode, launch: &Launch) -> Result<Counts, String> {
    let kernel = code.kernel(launch.kernel).ok_or("no such kernel")?;
    check(code.target, kernel, launch)?;
    let arguments = Mapping::new(kernel.kernarg_bytes as usize + BEHIND_ARGUMENTS)?;
    write_arguments(&arguments, kernel, launch)?;
    let packet = Mapping::new(PACKET_BYTES)?;
    let object = code.object.memory.range();
    let addresses = [object.0 + kernel.descriptor, arguments.range().0];
    packet.write(0, &packet_of(kernel, launch, addresses))?;
    let work = Work {
        functions: &code.functions,
        kernel,
        launch,
        base: object.0,
        wave_size: code.target.wave_size(),
        user: user_registers(kernel, packet.range().0, arguments.range().0),
    };
    let own = [object, packet.range(), arguments.range()];
    let ranges = launch.buffers.iter().copied().chain(own);
    let mut ranges: Vec<_> = ranges.map(|(from, to)| Range(from, to)).collect();
    ranges.sort_unstable();
    let (tally, end) = run_alone(&work, &ranges);
    report(&work, tally, end)
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

/// Returns the counts, or where and why the launch stopped.
fn report(work: &Work, tally: Tally, end: End) -> Result<Counts, String> {
    let remarks = [
        (tally.partial_barriers, "barriers met by a part of a wave"),
        (tally.split_barriers, "barriers met at different places"),
        (tally.ended_early, "barriers met after a wave's end"),
    ];
    let remarks = remarks.iter().filter(|(count, _)| *count > 0);
    let remarks = remarks.map(|(count, what)| format!("{count} {what}"));
    let mut remarks: Vec<_> = remarks.collect();
    let sizes = (work.launch.local, work.wave_size);
    let race = |race: &Race| race.text(sizes, |place| work.functions.text(place.into()));
    remarks.extend(tally.races.iter().map(race));
    if let Err((pc, why)) = end {
        let offset = pc.wrapping_sub(work.base);
        let text = work.functions.text(offset);
        remarks.push(format!("stopped at {text}: {why}"));
        return Err(remarks.join("; "));
    }
    Ok(Counts {
        instructions: tally.instructions,
        barriers: tally.barriers,
        remarks,
    })
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

/// Writes the arguments, and the hidden ones behind them.
fn write_arguments(to: &Mapping, kernel: &Kernel, launch: &Launch) -> Result<(), String> {
    let is_hidden = |parameter: &&Parameter| parameter.kind.starts_with("hidden_");
    let (hidden, explicit): (Vec<_>, Vec<_>) = kernel.parameters.iter().partition(is_hidden);
    let (given, needed) = (launch.arguments.len(), explicit.len());
    if given != needed {
        return Err(format!("{given} arguments of {needed}"));
    }
    for (i, (parameter, argument)) in explicit.iter().zip(launch.arguments).enumerate() {
        let Parameter { offset, size, kind } = parameter;
        if argument.value.len() != *size as usize {
            return Err(format!(
                "argument {i} has {} bytes of {size}",
                argument.value.len()
            ));
        }
        let is_null = argument.value.iter().all(|byte| *byte == 0);
        if (kind == "global_buffer") != argument.is_memory && !is_null {
            return Err(format!("argument {i} is a {kind}"));
        }
        to.write(*offset as usize, &argument.value)?;
    }
    for Parameter { offset, size, kind } in hidden {
        let value: u32 = match kind.as_str() {
            "hidden_block_count_x" => launch.groups,
            "hidden_group_size_x" => launch.local,
            "hidden_block_count_y" | "hidden_block_count_z" | "hidden_grid_dims" => 1,
            "hidden_group_size_y" | "hidden_group_size_z" => 1,
            _ => 0,
        };
        to.write(
            *offset as usize,
            &value.to_le_bytes()[..(*size as usize).min(4)],
        )?;
    }
    Ok(())
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
