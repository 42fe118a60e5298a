//! Launching the kernels of a slab hash.
//!
//! ```text
//!  operations ─launch─▶ done, and the numbers of those without a slab
//!                        ▲                    │ SlabAlloc: add a super block
//!                        └──── launch them ◀──┘ else: Error::NoRoom
//! ```
//!
//! A kernel cannot add memory, so one that runs out finishes what it can and lists the rest. (The
//! paper adds super blocks "after a threshold number of resident changes", section V.)

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::baselines::slab::kernels;
use crate::table::primitives::scan;
use crate::table::primitives::word::MAX_VALUE;

use super::layout::{Entries, MAX_KEY, SlabCensus};
use super::table::SlabHash;

/// The most operations of one launch.
const MAX_OPERATIONS: usize = 1 << 31;

/// Indices of the counters that kernels add to; counterpart of the defines in
/// `cl/baselines/slab/table.cl`.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    Added,
    Removed,
    Rejects,
    Invalid,
}

/// Counters in all.
const COUNTERS: usize = 4;

/// The numbers that the kernels of one call counted.
#[derive(Default)]
pub(super) struct Counts([usize; COUNTERS]);

impl Counts {
    pub fn get(&self, counter: Counter) -> usize {
        self.0[counter as usize]
    }
}

/// Operations on the device, `n` of them.
#[derive(Clone, Copy)]
pub(super) struct Operations<'a> {
    pub kernel: &'static str,
    pub kinds: Option<&'a Buffer<u32>>,
    pub keys: &'a Buffer<u32>,
    pub values: Option<&'a Buffer<u32>>,
    pub answers: Option<&'a Buffer<u32>>,
    pub n: usize,
}

impl<'a> Operations<'a> {
    /// Returns operations of the one kind that `kernel` does.
    pub fn for_keys(
        kernel: &'static str,
        keys: &'a Buffer<u32>,
        values: Option<&'a Buffer<u32>>,
        n: usize,
    ) -> Self {
        Self {
            kernel,
            kinds: None,
            keys,
            values,
            answers: None,
            n,
        }
    }

    fn check(&self) -> Result<()> {
        let short = |buffer: &Buffer<u32>| buffer.len() < self.n;
        let given = [self.kinds, Some(self.keys), self.values, self.answers];
        if self.n > MAX_OPERATIONS || given.into_iter().flatten().any(short) {
            return Err(Error::Invalid(format!(
                "{} operations (at most {MAX_OPERATIONS}) with a buffer of fewer elements: expected one \
                 element each",
                self.n
            )));
        }
        Ok(())
    }
}

fn words(buffer: Option<&Buffer<u32>>) -> Arg<'_> {
    buffer.map_or(Arg::Null, Arg::Words)
}

/// Operations that a launch takes: all, or those that a launch before had no room for.
#[derive(Clone, Copy)]
struct Pass<'a> {
    picked: Option<&'a Buffer<u32>>,
    n: usize,
}

impl SlabHash {
    /// Does operations that change the table, growing a SlabAlloc as they need.
    pub(super) fn run(&mut self, queue: &mut Queue, operations: &Operations<'_>) -> Result<Counts> {
        operations.check()?;
        let mut all = Counts::default();
        let mut left: Option<Buffer<u32>> = None;
        let mut n = operations.n;
        loop {
            let counters = queue.buffer_from("counters", &[0u32; COUNTERS])?;
            let rejects = queue.allocate("operations without room", n)?;
            let pass = Pass {
                picked: left.as_ref(),
                n,
            };
            self.pass(queue, operations, pass, Some((&counters, &rejects)))?;
            let counts = queue.read(&counters, COUNTERS)?;
            for (sum, count) in all.0.iter_mut().zip(&counts) {
                *sum += *count as usize;
            }
            let count = |counter: Counter| counts[counter as usize] as usize;
            self.len = self.len + count(Counter::Added) - count(Counter::Removed);
            self.removed += count(Counter::Removed);
            n = count(Counter::Rejects);
            if n == 0 || !self.pool_grows(queue)? {
                break;
            }
            left = Some(rejects);
        }
        self.refuse(operations.n, n, all.get(Counter::Invalid))?;
        Ok(all)
    }

    /// Returns whether another super block could be added: running out of device memory is running
    /// out of slabs.
    fn pool_grows(&mut self, queue: &mut Queue) -> Result<bool> {
        match self.pool.grow(queue) {
            Err(Error::DeviceMemory { .. }) => Ok(false),
            grown => grown,
        }
    }

    fn refuse(&self, given: usize, rejected: usize, invalid: usize) -> Result<()> {
        if invalid > 0 {
            let limit = match self.layout.entries {
                Entries::Pairs => format!("values are over the limit of {MAX_VALUE}"),
                Entries::Keys => format!("keys are over the limit of {MAX_KEY}"),
            };
            return Err(Error::Invalid(format!("{invalid} of {given} {limit}")));
        }
        match rejected {
            0 => Ok(()),
            rejected => Err(Error::NoRoom {
                table: "a slab hash",
                keys: given,
                rejected,
            }),
        }
    }

    /// Does operations that change nothing.
    pub(super) fn launch(&self, queue: &mut Queue, operations: &Operations<'_>) -> Result<()> {
        operations.check()?;
        let pass = Pass {
            picked: None,
            n: operations.n,
        };
        self.pass(queue, operations, pass, None)
    }

    fn pass(
        &self,
        queue: &mut Queue,
        operations: &Operations<'_>,
        pass: Pass<'_>,
        counted: Option<(&Buffer<u32>, &Buffer<u32>)>,
    ) -> Result<()> {
        let config = kernels::launch_config(queue, pass.n);
        let mut args = self.pool.args();
        args.extend([
            Arg::Longs(&self.base),
            words(operations.kinds),
            Arg::Words(operations.keys),
            words(operations.values),
            words(operations.answers),
            words(pass.picked),
            words(counted.map(|(counters, _)| counters)),
            words(counted.map(|(_, rejects)| rejects)),
            Arg::U32(config.per_item as u32),
            Arg::U32(pass.n as u32),
        ]);
        args.extend(self.shape_args());
        args.push(Arg::U32(self.step_limit(pass.n)));
        let program = self.program(queue);
        queue.launch(&program, operations.kernel, config.grid(pass.n), &args)
    }

    /// Returns the number of slabs that an operation may look at: no list is longer than all slabs,
    /// and whenever another operation was first, that one was done.
    fn step_limit(&self, n: usize) -> u32 {
        let slabs = self.pool.layout().slabs() as u64;
        (4 * (slabs + n as u64) + 64).min(u64::from(u32::MAX)) as u32
    }

    fn shape_args(&self) -> [Arg<'static>; 3] {
        [
            Arg::U32(self.pool.layout().super_blocks as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ]
    }

    pub(super) fn program(&self, queue: &Queue) -> ProgramText {
        kernels::program(queue, self.layout.entries, &self.pool.layout())
    }

    pub(super) fn list_instances(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let n = keys.len();
        let offsets = queue.allocate("offsets of instances", n + 1)?;
        queue.fill(&offsets, 0u32)?;
        self.count(queue, keys, &offsets, n)?;
        if n.saturating_mul(self.len) > u32::MAX as usize {
            let counts = queue.read(&offsets, n)?;
            let values: u64 = counts.into_iter().map(u64::from).sum();
            if values > u64::from(u32::MAX) {
                return Err(Error::Invalid(format!(
                    "{values} instances of {n} keys are over the limit of 2^32 - 1: search fewer keys"
                )));
            }
        }
        scan::exclusive(queue, &offsets, n + 1)?;
        let mut end = [0];
        queue.download(&offsets, n, &mut end)?;
        let out = queue.allocate("instances", end[0] as usize)?;
        let config = kernels::launch_config(queue, n);
        let mut args = self.pool.args();
        args.extend([
            Arg::Longs(&self.base),
            Arg::Words(keys),
            Arg::Words(&offsets),
            Arg::Words(&out),
            Arg::U32(config.per_item as u32),
            Arg::U32(n as u32),
        ]);
        args.extend(self.shape_args());
        let program = self.program(queue);
        queue.launch(&program, "list_instances", config.grid(n), &args)?;
        Ok((offsets, out))
    }

    /// Counts items, deleted entries and slabs in use.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn census(&self, queue: &mut Queue) -> Result<SlabCensus> {
        let sums = queue.buffer_from("census sums", &[0u64; 3])?;
        let slabs = self.slabs();
        let config = kernels::launch_config(queue, slabs);
        let mut args = self.pool.args();
        args.extend([
            Arg::Longs(&self.base),
            Arg::Longs(&sums),
            Arg::U32(config.per_item as u32),
            Arg::U32(slabs as u32),
            Arg::U32(self.layout.buckets),
        ]);
        let program = self.program(queue);
        queue.launch(&program, "census", config.grid(slabs), &args)?;
        let sums = queue.read(&sums, 3)?;
        Ok(SlabCensus {
            items: sums[0],
            deleted: sums[1],
            slabs: sums[2],
        })
    }

    /// Collects the items on the device, in no particular order: keys and values, one of each per
    /// item.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn pairs(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let keys = queue.allocate("keys of a table", self.len)?;
        let values = queue.allocate("values of a table", self.len)?;
        let count = queue.buffer_from("items found", &[0u32])?;
        let slabs = self.slabs();
        let config = kernels::launch_config(queue, slabs);
        let mut args = self.pool.args();
        args.extend([
            Arg::Longs(&self.base),
            Arg::Words(&keys),
            Arg::Words(&values),
            Arg::Words(&count),
            Arg::U32(config.per_item as u32),
            Arg::U32(slabs as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.len as u32),
        ]);
        let program = self.program(queue);
        queue.launch(&program, "collect", config.grid(slabs), &args)?;
        Ok((keys, values))
    }

    /// Returns the number of slabs that searches for each of the items read, added up.
    pub(super) fn reads_of_hits(&self, queue: &mut Queue) -> Result<u64> {
        let sum = queue.buffer_from("slabs read", &[0u64])?;
        let mut args = self.pool.args();
        args.extend([
            Arg::Longs(&self.base),
            Arg::Longs(&sum),
            Arg::U32(self.layout.buckets),
        ]);
        let grid = kernels::singles(queue, self.layout.buckets as usize);
        queue.launch(&self.program(queue), "reads_of_hits", grid, &args)?;
        Ok(queue.read(&sum, 1)?[0])
    }

    /// Returns the number of slabs: base slabs and all units of the pool.
    fn slabs(&self) -> usize {
        self.layout.buckets as usize + self.pool.layout().slabs()
    }
}
