//! Bulk build of a Horton table on the device.
//!
//! ```text
//!  keys, values ─claim─▶ primary slots, chains of overflow
//!               ─find_repeats─▶ a key twice?  ──▶ Repeats: group the keys first
//!               ─place─▶ Type B, remapped groups, stragglers (0.01 % at load 0.8, 1.4 % at 0.95)
//!               ─{propose, commit, release}─▶ displacement until none is left
//!               ─census─▶ what the table is made of
//! ```
//!
//! The paper inserts serially on the CPU (section 7); here each phase is a kernel
//! over all keys, all buckets or all stragglers (`cl/horton.cl`). A build that leaves
//! stragglers is tried again with another seed, then with more buckets, [`ATTEMPTS`] times in
//! all. Scratch memory: 4 bytes a key and 8 a bucket, plus the straggler lists.

use std::sync::Arc;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};

use super::layout::{EMPTY_WORD, Layout};
use super::model::Census;
use super::{HortonTable, TableConfig, kernels};

/// Seeds and sizes that are tried before a build gives up.
pub const ATTEMPTS: usize = 8;

/// Rounds of displacement before an attempt counts as failed.
const ROUNDS: u32 = 200;

/// Indices of the counters that the kernels share; twin of the defines in `cl/horton.cl`.
#[derive(Clone, Copy)]
enum Counter {
    Repeats = 0,
    Crowded = 1,
    Stragglers = 2,
}

const COUNTERS: usize = 3;

/// 32-bit words of a packed `Move` of `cl/horton.cl`.
const MOVE_WORDS: usize = 8;

/// The keys of a bulk build, on the device.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a> {
    /// One key an item.
    pub keys: &'a Buffer<u32>,
    /// One value an item, at most [`MAX_VALUE`](super::MAX_VALUE); without them an item's value
    /// is its position.
    pub values: Option<&'a Buffer<u32>>,
}

/// What a bulk build found.
#[derive(Debug)]
pub enum Built {
    /// A table with every key in it.
    Table(HortonTable),
    /// Some key is there more than once: build over groups instead.
    Repeats,
}

/// What one attempt came to.
enum Attempt {
    Done(Built),
    /// So many items found no slot.
    Rejected(usize),
}

/// Builds a table of `items` on the queue's device.
///
/// # Errors
/// [`Error::TableFull`] if some keys have no slot after [`ATTEMPTS`] attempts,
/// [`Error::DeviceMemory`], and OpenCL's own.
pub fn build(queue: &mut Queue, config: &TableConfig, items: Items<'_>) -> Result<Built> {
    config.check()?;
    let n = items.keys.len();
    let program = kernels::program(queue.info(), config);
    let mut rejected = 0;
    let mut buckets = 0;
    for attempt in 0..ATTEMPTS {
        let layout = layout(config, n, attempt)?;
        buckets = layout.buckets as usize;
        match Builder::new(queue, &program, layout, items)?.attempt(config)? {
            Attempt::Done(built) => return Ok(built),
            Attempt::Rejected(count) => rejected = count,
        }
        log::debug!(
            "{rejected} of {n} keys did not fit into {buckets} buckets (attempt {attempt})"
        );
    }
    Err(Error::TableFull {
        keys: n,
        rejected,
        buckets,
        attempts: ATTEMPTS,
    })
}

/// Shape of an attempt: first another seed, then 2, 4, 8, … % more buckets.
fn layout(config: &TableConfig, n: usize, attempt: usize) -> Result<Layout> {
    let slots = config.bucket_size.slots() as f64;
    let growth = match attempt {
        0 | 1 => 0.0,
        more => 0.01 * (1u32 << (more - 1)) as f64,
    };
    let spare = attempt.saturating_sub(1);
    let buckets = (n as f64 / (slots * config.load_factor) * (1.0 + growth)).ceil() as u64;
    let buckets = buckets.max(1) + spare as u64;
    let buckets = u32::try_from(buckets)
        .map_err(|_| Error::Invalid(format!("{n} keys need more than 2^32 buckets")))?;
    Ok(Layout {
        bucket_size: config.bucket_size,
        buckets,
        seed: config
            .seed
            .wrapping_add((attempt as u32).wrapping_mul(0x9e37_79b9)),
    })
}

/// One attempt: the table and its scratch buffers.
struct Builder<'a> {
    queue: &'a mut Queue,
    program: &'a ProgramText,
    layout: Layout,
    items: Items<'a>,
    words: Buffer<u64>,
    counters: Buffer<u32>,
}

impl<'a> Builder<'a> {
    fn new(
        queue: &'a mut Queue,
        program: &'a ProgramText,
        layout: Layout,
        items: Items<'a>,
    ) -> Result<Self> {
        let words = queue.allocate("a Horton table", layout.words())?;
        queue.fill(&words, EMPTY_WORD)?;
        let counters = queue.allocate("build counters", COUNTERS)?;
        queue.fill(&counters, 0)?;
        Ok(Self {
            queue,
            program,
            layout,
            items,
            words,
            counters,
        })
    }

    fn attempt(mut self, config: &TableConfig) -> Result<Attempt> {
        let buckets = self.layout.buckets as usize;
        let fill = self.queue.allocate("bucket fill counts", buckets)?;
        self.queue.fill(&fill, 0)?;
        let chain = self.queue.allocate("bucket chains", buckets)?;
        self.queue.fill(&chain, kernels::NONE)?;
        let next = self.queue.allocate("chain links", self.items.keys.len())?;
        self.claim(&fill, &chain, &next)?;
        self.find_repeats(&fill, &chain, &next)?;
        if self.count(Counter::Repeats)? > 0 {
            return Ok(Attempt::Done(Built::Repeats));
        }
        let crowded = self.count(Counter::Crowded)?;
        if crowded > 0 {
            return Ok(Attempt::Rejected(crowded));
        }
        let capacity = self.items.keys.len() / 4 + 1024;
        let mut stragglers = Stragglers::new(self.queue, capacity)?;
        self.place(&fill, &chain, &next, &stragglers)?;
        drop((fill, next));
        stragglers.count = self.count(Counter::Stragglers)?;
        let left = self.displace(stragglers, chain)?;
        if left > 0 {
            return Ok(Attempt::Rejected(left));
        }
        self.finish(config)
    }

    fn claim(&mut self, fill: &Buffer<u32>, chain: &Buffer<u32>, next: &Buffer<u32>) -> Result<()> {
        let n = self.items.keys.len();
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(fill),
            Arg::Words(chain),
            Arg::Words(next),
            Arg::Words(self.items.keys),
            values(self.items),
            Arg::U32(n as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        self.queue
            .launch(self.program, "claim", kernels::grid(n), &args)
    }

    fn find_repeats(
        &mut self,
        fill: &Buffer<u32>,
        chain: &Buffer<u32>,
        next: &Buffer<u32>,
    ) -> Result<()> {
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(fill),
            Arg::Words(chain),
            Arg::Words(next),
            Arg::Words(self.items.keys),
            Arg::Words(&self.counters),
            Arg::U32(self.layout.buckets),
        ];
        let grid = kernels::grid(self.layout.buckets as usize);
        self.queue.launch(self.program, "find_repeats", grid, &args)
    }

    fn place(
        &mut self,
        fill: &Buffer<u32>,
        chain: &Buffer<u32>,
        next: &Buffer<u32>,
        stragglers: &Stragglers,
    ) -> Result<()> {
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(fill),
            Arg::Words(chain),
            Arg::Words(next),
            Arg::Words(self.items.keys),
            values(self.items),
            Arg::Longs(&stragglers.words),
            Arg::Words(&self.counters),
            Arg::U32(stragglers.capacity as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        let grid = kernels::grid(self.layout.buckets as usize);
        self.queue.launch(self.program, "place", grid, &args)
    }

    /// Rounds of displacement; `owner` is one word a bucket. Returns how many are left.
    fn displace(&mut self, mut from: Stragglers, owner: Buffer<u32>) -> Result<usize> {
        if from.count == 0 || from.count > from.capacity {
            return Ok(from.count);
        }
        self.queue.fill(&owner, kernels::NONE)?;
        let mut to = Stragglers::new(self.queue, from.capacity)?;
        let moves = self
            .queue
            .allocate("displacement moves", MOVE_WORDS * from.capacity)?;
        for round in 0..ROUNDS {
            self.round(&from, &to, &moves, &owner, round)?;
            to.count = self.count(Counter::Stragglers)?;
            std::mem::swap(&mut from, &mut to);
            if from.count == 0 || from.count > from.capacity {
                break;
            }
        }
        Ok(from.count)
    }

    fn round(
        &mut self,
        from: &Stragglers,
        to: &Stragglers,
        moves: &Buffer<u32>,
        owner: &Buffer<u32>,
        round: u32,
    ) -> Result<()> {
        let n = Arg::U32(from.count as u32);
        let grid = kernels::grid(from.count);
        let (buckets, seed) = (Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed));
        let (table, stragglers) = (Arg::Longs(&self.words), Arg::Longs(&from.words));
        let (moves, owner) = (Arg::Words(moves), Arg::Words(owner));
        let args = [
            table,
            stragglers,
            moves,
            owner,
            n,
            buckets,
            seed,
            Arg::U32(round),
        ];
        self.queue.launch(self.program, "propose", grid, &args)?;
        // `commit` counts who is left in the straggler counter, which starts at zero.
        self.queue.fill(&self.counters, 0)?;
        let args = [
            table,
            stragglers,
            moves,
            owner,
            Arg::Longs(&to.words),
            Arg::Words(&self.counters),
            Arg::U32(to.capacity as u32),
            n,
            buckets,
            seed,
        ];
        self.queue.launch(self.program, "commit", grid, &args)?;
        self.queue
            .launch(self.program, "release", grid, &[moves, owner, n])
    }

    fn finish(self, config: &TableConfig) -> Result<Attempt> {
        let census = take_census(self.queue, self.program, &self.layout, &self.words)?;
        if census.items as usize != self.items.keys.len() {
            return Err(Error::Invalid(format!(
                "a Horton table was built with {} of {} items; please report this",
                census.items,
                self.items.keys.len()
            )));
        }
        Ok(Attempt::Done(Built::Table(HortonTable {
            layout: self.layout,
            words: Arc::new(self.words),
            census,
            config: *config,
        })))
    }

    fn count(&mut self, counter: Counter) -> Result<usize> {
        let mut count = [0u32];
        self.queue
            .download(&self.counters, counter as usize, &mut count)?;
        Ok(count[0] as usize)
    }
}

fn values(items: Items<'_>) -> Arg<'_> {
    items.values.map_or(Arg::Null, Arg::Words)
}

/// Items without a slot, double-buffered between rounds.
struct Stragglers {
    words: Buffer<u64>,
    capacity: usize,
    count: usize,
}

impl Stragglers {
    fn new(queue: &mut Queue, capacity: usize) -> Result<Self> {
        Ok(Self {
            words: queue.allocate("build stragglers", capacity)?,
            capacity,
            count: 0,
        })
    }
}

/// Counts what the words of a table hold, on the device.
pub(super) fn take_census(
    queue: &mut Queue,
    program: &ProgramText,
    layout: &Layout,
    words: &Buffer<u64>,
) -> Result<Census> {
    let sums = queue.allocate("census sums", 3)?;
    queue.fill(&sums, 0)?;
    let share = kernels::share(queue.info(), layout.buckets as usize);
    let args = [
        Arg::Longs(words),
        Arg::Words(&sums),
        Arg::U32(share as u32),
        Arg::U32(layout.buckets),
        Arg::U32(layout.seed),
    ];
    let workers = (layout.buckets as usize).div_ceil(share);
    queue.launch(program, "census", kernels::grid(workers), &args)?;
    let sums = queue.read(&sums, 3)?;
    Ok(Census {
        type_b: sums[0],
        items: sums[1],
        secondary: sums[2],
    })
}
