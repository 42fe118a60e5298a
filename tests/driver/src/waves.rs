//! Runs the waves of a launch.
//!
//! ```text
//!   in order   group 0: wave 0 ─▶ barrier, wave 1 ─▶ barrier, wave 0 ─▶ end, wave 1 ─▶ end
//!              group 1: …
//!   mixed      group 2, wave 1: 7 instructions; group 0, wave 3: 12; group 2, wave 0: 1; …
//! ```
//!
//! Mixed, what depends on the order of waves shows, and a seed shows it again. Registers and local
//! memory begin with garbage, as on a device.
//!
//! Source: LLVM's "User Guide for AMDGPU Backend", on the initial state of a kernel. Threads would
//! interleave waves as well, but no seed would bring an order back.

use std::collections::BTreeMap;

use crate::code_object::Kernel;
use crate::functions::{Functions, Touch};
use crate::isa::Instruction;
use crate::launch::Launch;
use crate::races::{Mark, Race, Races};

/// Scalar registers: EXEC, the program counter, a work-item's private bytes.
const EXEC: usize = 126;
const PC: usize = 256;
const PRIVATE_BYTES: usize = 259;

/// Registers, some more than there are, and the scalar ones that begin with garbage.
const SCALARS: usize = 276;
const VECTORS: usize = 320;
const SCALARS_OF_KERNEL: usize = 106;

/// The program counter of a wave that has ended.
const END: u64 = u64::MAX;

const INSTRUCTIONS_MAX: u64 = 2_000_000_000;

/// Waves of so many groups take turns at most, each for so many instructions at most.
const RESIDENT: u32 = 4;
const QUANTUM: u32 = 20;

/// A launch, as the hardware sees it.
pub(crate) struct Work<'a> {
    pub functions: &'a Functions,
    pub kernel: &'a Kernel,
    pub launch: &'a Launch<'a>,
    /// Where the code is.
    pub base: u64,
    pub wave_size: u32,
    /// The user SGPRs.
    pub user: Vec<u32>,
}

/// What was counted.
#[derive(Default)]
pub(crate) struct Tally {
    pub instructions: u64,
    /// Barriers that not all work-items of a group met, or at different places.
    pub wrong_barriers: BTreeMap<&'static str, u64>,
    pub races: Vec<Race>,
}

impl Tally {
    fn barrier_met(&mut self, how: &'static str, is_wrong: bool) {
        if is_wrong {
            *self.wrong_barriers.entry(how).or_default() += 1;
        }
    }
}

/// The end of a launch: an error is the program counter where it stopped, and why.
pub(crate) type End = Result<(), (u64, String)>;

/// Runs a launch.
///
/// # Safety
/// No other thread runs these functions. Their `memory` has only ranges that they may touch, and
/// the bytes of the kernel's local memory.
pub(crate) unsafe fn run(work: &Work) -> (Tally, End) {
    let seed = work.launch.mixed;
    let resident = seed.map_or(1, |_| RESIDENT.min(work.launch.groups));
    let mut running = Running {
        work,
        groups: (0..resident).map(|_| Group::new(work)).collect(),
        started: 0,
        intervals: 0,
        random: seed.map(|seed| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        races: work.races(resident),
        tally: Tally::default(),
    };
    let end = running.run();
    running.tally.races = running.races.map_or_else(Vec::new, |races| races.found);
    (running.tally, end)
}

/// A launch that runs.
struct Running<'a> {
    work: &'a Work<'a>,
    /// Slots of groups.
    groups: Vec<Group>,
    started: u32,
    /// What groups did from their start or a barrier to the next one.
    intervals: u32,
    /// If waves take turns at random.
    random: Option<u64>,
    /// If they are looked for.
    races: Option<Races>,
    tally: Tally,
}

impl Running<'_> {
    fn run(&mut self) -> End {
        while self.start_groups() {
            let start = self.below(self.groups.len() as u32);
            let slot = first_from(start, &self.groups, |group| group.left > 0);
            let start = self.below(self.groups[slot].waves.len() as u32);
            let is_ready = |wave: &Wave| wave.state == State::Ready;
            let wave = first_from(start, &self.groups[slot].waves, is_ready);
            let steps = match self.random {
                Some(_) => 1 + self.below(QUANTUM) as u64,
                None => u64::MAX,
            };
            self.run_wave(slot, wave, steps)?;
            self.release(slot);
        }
        Ok(())
    }

    /// Returns 0 in order, or a random number below `n`, by xorshift.
    fn below(&mut self, n: u32) -> usize {
        let Some(random) = &mut self.random else {
            return 0;
        };
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        ((*random >> 32) as u32 % n) as usize
    }

    /// Starts groups in the free slots. Returns whether there is one that runs.
    fn start_groups(&mut self) -> bool {
        let free = self.groups.iter_mut().enumerate();
        for (slot, group) in free.filter(|(_, group)| group.left == 0) {
            if self.started < self.work.launch.groups {
                group.start(self.work, self.started);
                self.intervals += 1;
                group.interval = self.intervals;
                if let Some(races) = &mut self.races {
                    races.start_group(slot);
                }
                self.started += 1;
            }
        }
        self.groups.iter().any(|group| group.left > 0)
    }

    /// Runs a wave for up to `steps` instructions, or to its next barrier.
    fn run_wave(&mut self, slot: usize, wave: usize, steps: u64) -> End {
        let group = &mut self.groups[slot];
        let wave = &mut group.waves[wave];
        for _ in 0..steps {
            let pc = wave.pair(PC);
            if pc == END {
                wave.state = State::Ended;
                group.left -= 1;
                break;
            }
            let instruction = self.work.execute(pc, wave, &mut group.local);
            let instruction = instruction.map_err(|why| (pc, why))?;
            if let Some(races) = &mut self.races {
                let touches = self.work.take_touches();
                let place = pc.wrapping_sub(self.work.base) as u32;
                let first = Mark::new(group.interval, wave.first, place);
                races.look(slot, instruction.access, first, touches);
            }
            self.tally.instructions += 1;
            if self.tally.instructions > INSTRUCTIONS_MAX {
                return Err((pc, format!("more than {INSTRUCTIONS_MAX} instructions")));
            }
            if instruction.is_barrier {
                let active = wave.pair(EXEC) & (u64::MAX >> (64 - self.work.wave_size));
                let is_partial = active != wave.exec;
                self.tally
                    .barrier_met("met by a part of a wave", is_partial);
                wave.state = State::Waits { at: pc };
                break;
            }
        }
        Ok(())
    }

    /// Lets the waves of a group go on if all that have not ended wait at a barrier.
    fn release(&mut self, slot: usize) {
        let group = &mut self.groups[slot];
        let place = |wave: &Wave| match wave.state {
            State::Waits { at } => Some(at),
            _ => None,
        };
        let mut places = group.waves.iter().filter_map(place);
        let Some(first) = places.next() else { return };
        let is_split = places.clone().any(|at| at != first);
        if places.count() + 1 < group.left {
            return;
        }
        let has_ended = group.left < group.waves.len();
        self.tally.barrier_met("met at different places", is_split);
        self.tally.barrier_met("met after a wave's end", has_ended);
        self.intervals += 1;
        group.interval = self.intervals;
        let waiting = group.waves.iter_mut().filter(|wave| place(wave).is_some());
        waiting.for_each(|wave| wave.state = State::Ready);
    }
}

/// Returns the first that is fine, from `start` on and around.
fn first_from<T>(start: usize, items: &[T], is_fine: impl Fn(&T) -> bool) -> usize {
    let mut places = (start..items.len()).chain(0..start);
    places
        .find(|place| is_fine(&items[*place]))
        .unwrap_or(start)
}

impl Work<'_> {
    /// Returns the races of the launch, none yet, if they are looked for.
    fn races(&self, resident: u32) -> Option<Races> {
        let sizes = (self.launch.local, self.wave_size);
        let local = (resident, self.kernel.local_bytes);
        let races = || Races::new(self.launch.buffers, sizes, local, self.functions.word());
        self.launch.finds_races.then(races)
    }

    /// Returns what the instructions touched that were run since the last call.
    fn take_touches(&self) -> &[Touch] {
        let mut memory = self.functions.memory;
        // SAFETY: no other thread touches it, as `run` demands, and no instruction runs while the
        // touches are looked at.
        let memory = unsafe { memory.as_mut() };
        let touched = std::mem::take(&mut memory.touched);
        &memory.touches[..touched as usize]
    }

    /// Runs the instruction at `pc`.
    fn execute(&self, pc: u64, wave: &mut Wave, local: &mut [u8]) -> Result<&Instruction, String> {
        let instruction = self.functions.instruction(pc.wrapping_sub(self.base))?;
        let function = self.functions.function(instruction);
        // SAFETY: there are all registers that an instruction can name. What it touches in memory,
        // it checks by `memory` and by the private bytes, as `run` demands.
        unsafe {
            function(
                wave.scalars.as_mut_ptr(),
                wave.vectors.as_mut_ptr(),
                local.as_mut_ptr(),
                wave.private.as_mut_ptr(),
                instruction.numbers.as_ptr(),
            )
        };
        // SAFETY: no other thread touches it, as `run` demands.
        let memory = unsafe { self.functions.memory.as_ref() };
        let what = match memory.fault {
            0 => return Ok(instruction),
            1 => "global memory that is no buffer",
            2 => "local memory out of bounds",
            _ => "private memory out of bounds",
        };
        Err(format!("{what}, {:#x}", memory.address))
    }
}

/// A slot for a group, with the group in it.
struct Group {
    waves: Vec<Wave>,
    local: Vec<u8>,
    /// Waves that have not ended.
    left: usize,
    /// What it does until its next barrier.
    interval: u32,
}

impl Group {
    fn new(work: &Work) -> Self {
        let count = work.launch.local.div_ceil(work.wave_size);
        Self {
            waves: (0..count).map(|_| Wave::new(work)).collect(),
            local: Vec::new(),
            left: 0,
            interval: 0,
        }
    }

    fn start(&mut self, work: &Work, number: u32) {
        let garbage = (0xdead_be00 + (number & 0xff)).to_le_bytes();
        self.local = garbage.repeat(work.kernel.local_bytes.div_ceil(4) as usize);
        let firsts = (0..).step_by(work.wave_size as usize);
        for (wave, first) in self.waves.iter_mut().zip(firsts) {
            wave.start(work, number, first);
        }
        self.left = self.waves.len();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Waits { at: u64 },
    Ended,
}

/// A wave. A vector register has a word for each lane.
struct Wave {
    scalars: Vec<u32>,
    vectors: Vec<u32>,
    private: Vec<u8>,
    /// The number of its first work-item in the launch.
    first: u32,
    /// The work-items that it began with.
    exec: u64,
    state: State,
}

impl Wave {
    fn new(work: &Work) -> Self {
        let lanes = work.wave_size as usize;
        Self {
            scalars: vec![0; SCALARS],
            vectors: vec![0; VECTORS * lanes],
            private: vec![0; (work.kernel.private_bytes as usize + 64) * lanes],
            first: 0,
            exec: 0,
            state: State::Ended,
        }
    }

    fn start(&mut self, work: &Work, group: u32, first: u32) {
        self.scalars.fill(0);
        self.vectors.fill(0x6b6b_6b6b);
        self.private.fill(0x6b);
        let garbage = self.scalars[..SCALARS_OF_KERNEL].iter_mut();
        garbage
            .zip(0x5a5a_0000..)
            .for_each(|(scalar, value)| *scalar = value);
        self.scalars[..work.user.len()].copy_from_slice(&work.user);
        self.scalars[work.user.len()] = group;
        self.scalars[PRIVATE_BYTES] = work.kernel.private_bytes;
        self.first = group * work.launch.local + first;
        let lanes = (work.launch.local - first).min(work.wave_size);
        self.exec = u64::MAX >> (64 - lanes);
        self.set_pair(EXEC, self.exec);
        self.set_pair(PC, work.base.wrapping_add(work.kernel.entry));
        let ids = self.vectors[..work.wave_size as usize].iter_mut();
        ids.zip(first..).for_each(|(id, number)| *id = number);
        self.state = State::Ready;
    }

    fn pair(&self, low: usize) -> u64 {
        u64::from(self.scalars[low]) | u64::from(self.scalars[low + 1]) << 32
    }

    fn set_pair(&mut self, low: usize, value: u64) {
        self.scalars[low] = value as u32;
        self.scalars[low + 1] = (value >> 32) as u32;
    }
}
