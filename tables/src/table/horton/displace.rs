//! Displacement: slots for the items that `place` found none for; the host side of
//! `cl/horton/displace.cl`.
//!
//! ```text
//!  stragglers ─▶ { explore ─▶ propose ─▶ commit ─▶ release }* ─▶ none left
//! ```
//!
//! A round moves every straggler that wins the claims of its move (Horton paper, section 4.4, in
//! parallel). The first explores only the stragglers' own candidates; then those of one
//! primary item that could make room; and when few are left, those of all.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::table::horton::kernels;
use crate::table::launch::grid_of;
use crate::table::primitives::bucket::Layout;
use crate::table::primitives::radix_partition::{Counter, NONE};

use super::patience::{Patience, ROUNDS};

/// The round from which on all primary items of a straggler's bucket are looked at; with few
/// stragglers left it is not the work of a round that counts, but how long it takes.
const ALL_FROM: u32 = 4;

/// 32-bit words of a move: a packed way out and three claims.
const MOVE_WORDS: usize = 4;

/// Entries of a bucket's group that `explore` looks at for each mover, and the way home.
const ENTRIES: usize = 8;

/// Items without a slot, double-buffered between rounds.
pub(crate) struct Stragglers {
    pub words: Buffer<u64>,
    pub capacity: usize,
    pub count: usize,
}

impl Stragglers {
    pub fn new(queue: &mut Queue, capacity: usize) -> Result<Self> {
        Ok(Self {
            words: queue.allocate("build stragglers", capacity)?,
            capacity,
            count: 0,
        })
    }
}

/// The table whose stragglers find slots.
pub(crate) struct Displacement<'a> {
    pub layout: Layout,
    /// True if values have 32 bits.
    pub wide: bool,
    pub table: &'a Buffer<u64>,
    /// Items of four buckets per word, a byte each.
    pub fill: &'a Buffer<u32>,
    pub counters: &'a Buffer<u32>,
}

/// The memory that the rounds work on: the best way out and a move for each straggler, and a place
/// for the claim of each group.
struct Scratch {
    best: Buffer<u32>,
    moves: Buffer<u32>,
    claims: Buffer<u32>,
}

/// Stragglers before a round, and room for those after it.
struct Sides<'a> {
    from: &'a Stragglers,
    to: &'a Stragglers,
}

impl Displacement<'_> {
    /// Returns the items that are left without a slot: all, where the device lacks 64-bit atomics.
    pub fn run(&self, queue: &mut Queue, mut from: Stragglers) -> Result<Stragglers> {
        let can_be_tried = queue.info().has_int64_atomics() && from.count <= from.capacity;
        if from.count == 0 || !can_be_tried {
            return Ok(from);
        }
        let program = kernels::displace_program(queue, self.layout.variant(self.wide));
        // Whole groups may be sent away, so that there can be more stragglers for a while.
        from.capacity = from.capacity.min(2 * from.count + 4096);
        let scratch = Scratch {
            best: queue.allocate("ways out of stragglers", from.capacity)?,
            moves: queue.allocate("displacement moves", MOVE_WORDS * from.capacity)?,
            claims: queue.allocate("displacement claims", self.layout.buckets as usize)?,
        };
        queue.fill(&scratch.claims, NONE)?;
        let mut to = Stragglers::new(queue, from.capacity)?;
        let mut patience = Patience::new(from.count);
        for round in 0..ROUNDS {
            let sides = Sides {
                from: &from,
                to: &to,
            };
            self.round(queue, &program, sides, &scratch, round)?;
            let mut count = [0u32];
            queue.download(self.counters, Counter::Stragglers as usize, &mut count)?;
            to.count = count[0] as usize;
            std::mem::swap(&mut from, &mut to);
            log::trace!("displacement round {round}: {} items left", from.count);
            let over = from.count == 0 || from.count > from.capacity;
            if over || patience.ends(round, from.count) {
                break;
            }
        }
        Ok(from)
    }

    fn round(
        &self,
        queue: &mut Queue,
        program: &ProgramText,
        Sides { from, to }: Sides<'_>,
        scratch: &Scratch,
        round: u32,
    ) -> Result<()> {
        let movers = match round {
            0 => 1,
            1..ALL_FROM => 2,
            _ if from.count * ways_of(self.layout.slots()) > u32::MAX as usize => 2,
            _ => self.layout.slots(),
        };
        let n = Arg::U32(from.count as u32);
        let grid = grid_of(from.count);
        let (buckets, seed) = (Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed));
        let (table, fill) = (Arg::Longs(self.table), Arg::Words(self.fill));
        let stragglers = Arg::Longs(&from.words);
        let best = Arg::Words(&scratch.best);
        let (moves, claims) = (Arg::Words(&scratch.moves), Arg::Words(&scratch.claims));

        queue.fill(&scratch.best, 0)?;
        let (m, round) = (Arg::U32(movers as u32), Arg::U32(round));
        let args = [table, fill, stragglers, best, n, m, round, buckets, seed];
        let ways = grid_of(from.count * movers * ENTRIES * self.layout.slots());
        queue.launch(program, "explore", ways, &args)?;
        let args = [table, stragglers, best, moves, claims, n, buckets, seed];
        queue.launch(program, "propose", grid, &args)?;
        // `commit` counts who is left in the straggler counter, which starts at zero.
        queue.fill(self.counters, 0)?;
        let args = [
            table,
            fill,
            stragglers,
            moves,
            claims,
            Arg::Longs(&to.words),
            Arg::Words(self.counters),
            n,
            Arg::U32(to.capacity as u32),
            buckets,
            seed,
        ];
        queue.launch(program, "commit", grid, &args)?;
        queue.launch(program, "release", grid, &[moves, claims, n])
    }
}

/// Returns the number of ways out that `explore` looks at for one straggler with all movers.
fn ways_of(slots: usize) -> usize {
    slots * ENTRIES * slots
}
