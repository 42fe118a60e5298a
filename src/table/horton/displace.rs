//! Displacement: slots for the items that `place` found none for; the driver of
//! `cl/displace.cl`.
//!
//! ```text
//!  stragglers ─▶ { propose ─▶ commit ─▶ release }* ─▶ none left
//! ```
//!
//! A round moves every straggler that wins the buckets its move touches (Horton paper, section
//! 4.4, in parallel).

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;

use super::build::Counter;
use super::kernels;
use super::layout::Layout;

/// Rounds before an attempt counts as failed.
const ROUNDS: u32 = 200;

/// 32-bit words of a packed `Move` of `cl/displace.cl`.
const MOVE_WORDS: usize = 8;

/// Items without a slot, double-buffered between rounds.
pub(super) struct Stragglers {
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
pub(super) struct Displacement<'a> {
    pub program: &'a ProgramText,
    pub layout: Layout,
    pub table: &'a Buffer<u64>,
    pub counters: &'a Buffer<u32>,
}

/// What the rounds work on: a move a straggler, an owner a bucket.
struct Scratch {
    moves: Buffer<u32>,
    owner: Buffer<u32>,
}

impl Displacement<'_> {
    /// Returns how many items are left without a slot.
    pub fn run(&self, queue: &mut Queue, mut from: Stragglers) -> Result<usize> {
        if from.count == 0 || from.count > from.capacity {
            return Ok(from.count);
        }
        let scratch = Scratch {
            moves: queue.allocate("displacement moves", MOVE_WORDS * from.capacity)?,
            owner: queue.allocate("displacement claims", self.layout.buckets as usize)?,
        };
        queue.fill(&scratch.owner, kernels::NONE)?;
        let mut to = Stragglers::new(queue, from.capacity)?;
        for round in 0..ROUNDS {
            self.round(queue, &from, &to, &scratch, round)?;
            let mut count = [0u32];
            queue.download(self.counters, Counter::Stragglers as usize, &mut count)?;
            to.count = count[0] as usize;
            std::mem::swap(&mut from, &mut to);
            log::trace!("displacement round {round}: {} items left", from.count);
            if from.count == 0 || from.count > from.capacity {
                break;
            }
        }
        Ok(from.count)
    }

    fn round(
        &self,
        queue: &mut Queue,
        from: &Stragglers,
        to: &Stragglers,
        scratch: &Scratch,
        round: u32,
    ) -> Result<()> {
        let n = Arg::U32(from.count as u32);
        let grid = kernels::grid(from.count);
        let (buckets, seed) = (Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed));
        let (table, stragglers) = (Arg::Longs(self.table), Arg::Longs(&from.words));
        let (moves, owner) = (Arg::Words(&scratch.moves), Arg::Words(&scratch.owner));
        let round = Arg::U32(round);
        let args = [table, stragglers, moves, owner, n, buckets, seed, round];
        queue.launch(self.program, "propose", grid, &args)?;
        // `commit` counts who is left in the straggler counter, which starts at zero.
        queue.fill(self.counters, 0)?;
        let args = [
            table,
            stragglers,
            moves,
            owner,
            Arg::Longs(&to.words),
            Arg::Words(self.counters),
            Arg::U32(to.capacity as u32),
            n,
            buckets,
            seed,
        ];
        queue.launch(self.program, "commit", grid, &args)?;
        queue.launch(self.program, "release", grid, &[moves, owner, n])
    }
}
