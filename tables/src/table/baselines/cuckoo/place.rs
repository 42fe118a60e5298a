//! Bulk placement in a cuckoo table on the device; the host side of
//! `cl/baselines/cuckoo/place.cl`.
//!
//! ```text
//!  new items ─place─▶ slots; stragglers ─{ explore ─▶ propose ─▶ commit ─▶ release }*─▶ slots
//! ```
//!
//! A straggler follows the shortest chain of moves; where a search finds none, it takes the place
//! of an item of its buckets, which is a straggler of the next round. Scratch: 8 bytes per new
//! item, 5 bytes per bucket and 48 per straggler.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::kernel_sources;
use crate::table::baselines::updates::items::Stored;
use crate::table::horton::patience::{Patience, ROUNDS};
use crate::table::launch::{grid_of, group_of, peek_define};
use crate::table::primitives::bucket::{self, BucketSize, Layout, Variant, key_of};
use crate::table::primitives::radix_partition::NONE;

use super::config::Placement;

/// Buckets that a search looks at; two moves deep with 8 slots, three with 4.
const NODES: usize = 256;

/// 32-bit words of a chain of moves; counterpart of the define in `cl/baselines/cuckoo/place.cl`.
const PATH_WORDS: usize = 8;

/// Returns the program of a job that inserts or removes.
pub(super) fn program(queue: &Queue, variant: Variant, placement: Placement) -> ProgramText {
    text(variant, placement, queue.body())
}

fn text(variant: Variant, placement: Placement, body: KernelBody) -> ProgramText {
    let group = group_of(body).to_string();
    let first_fit = placement == Placement::FirstFit;
    let mut defines = bucket::defines(variant, false);
    defines.extend([
        ("NONE", format!("{NONE:#x}u")),
        ("FIRST_FIT", u8::from(first_fit).to_string()),
        ("NODES", NODES.to_string()),
        ("ITEMS_GROUP", group.clone()),
        ("CENSUS_GROUP", group),
        peek_define(body.volatile_sees_atomics()),
    ]);
    let parts = [
        kernel_sources::HASH,
        kernel_sources::BUCKET,
        kernel_sources::FILL,
        kernel_sources::PUT_WIDE,
        kernel_sources::ITEMS,
        kernel_sources::CENSUS,
        kernel_sources::CUCKOO,
    ];
    ProgramText::new("cuckoo", &defines, &parts)
}

/// Returns every program that changes cuckoo tables under the name of a file; see
/// [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let kinds = [
        ("balanced", Placement::LoadBalanced),
        ("first_fit", Placement::FirstFit),
    ];
    BucketSize::ALL.into_iter().flat_map(move |bucket_size| {
        kinds.into_iter().flat_map(move |(kind, placement)| {
            [KernelBody::Chunk, KernelBody::LocalTile]
                .into_iter()
                .map(move |body| {
                    let variant = Variant {
                        cuckoo: true,
                        wide: true,
                        ..bucket_size.into()
                    };
                    let name = format!("cuckoo_{kind}_{bucket_size}_{}", group_of(body));
                    (name, text(variant, placement, body))
                })
        })
    })
}

/// A table into which new items go.
pub(super) struct Placing<'a> {
    pub program: &'a ProgramText,
    pub layout: Layout,
    pub words: &'a Buffer<u64>,
}

/// Items without a slot.
struct Stragglers {
    words: Buffer<u64>,
    counter: Buffer<u32>,
    count: usize,
}

impl Stragglers {
    fn new(queue: &mut Queue, capacity: usize) -> Result<Self> {
        Ok(Self {
            words: queue.allocate("items without a slot", capacity)?,
            counter: queue.buffer_from("items without a slot, counted", &[0])?,
            count: 0,
        })
    }

    fn recount(&mut self, queue: &mut Queue) -> Result<()> {
        let what = ("items without a slot", self.words.len());
        self.count = queue.count((&self.counter, 0), what)?;
        Ok(())
    }
}

/// Stragglers before a round and room for those after it, and what the round works on.
struct Pass<'a> {
    from: &'a Stragglers,
    to: &'a Stragglers,
    paths: &'a Buffer<u32>,
    claims: &'a Buffer<u32>,
}

impl Placing<'_> {
    /// Places items that are not there; returns the keys of those that find no slot.
    pub fn insert(&self, queue: &mut Queue, stored: &Stored) -> Result<Vec<u32>> {
        let (n, buckets) = (stored.keys.len(), self.layout.buckets as usize);
        if n == 0 {
            return Ok(Vec::new());
        }
        let fill = queue.allocate("bucket fill counts", buckets.div_ceil(4))?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(&fill),
            Arg::U32(self.layout.buckets),
        ];
        let grid = grid_of(buckets.div_ceil(4));
        queue.launch(self.program, "count_items", grid, &args)?;
        let mut stragglers = Stragglers::new(queue, n)?;
        let args = [
            Arg::Longs(self.words),
            Arg::Words(&fill),
            Arg::Words(&stored.keys),
            Arg::Words(&stored.values),
            Arg::Longs(&stragglers.words),
            Arg::Words(&stragglers.counter),
            Arg::U32(n as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        queue.launch(self.program, "place", grid_of(n), &args)?;
        stragglers.recount(queue)?;
        self.displace(queue, &fill, stragglers)
    }

    fn displace(
        &self,
        queue: &mut Queue,
        fill: &Buffer<u32>,
        mut from: Stragglers,
    ) -> Result<Vec<u32>> {
        if from.count == 0 {
            return Ok(Vec::new());
        }
        let paths = queue.allocate("displacement paths", PATH_WORDS * from.count)?;
        let claims = queue.allocate("displacement claims", self.layout.buckets as usize)?;
        queue.fill(&claims, NONE)?;
        let mut to = Stragglers::new(queue, from.count)?;
        let mut patience = Patience::new(from.count);
        for round in 0..ROUNDS {
            let pass = Pass {
                from: &from,
                to: &to,
                paths: &paths,
                claims: &claims,
            };
            self.round(queue, fill, pass, round)?;
            to.recount(queue)?;
            std::mem::swap(&mut from, &mut to);
            log::trace!(
                "cuckoo displacement round {round}: {} items left",
                from.count
            );
            if from.count == 0 || patience.ends(round, from.count) {
                break;
            }
        }
        let left = queue.read(&from.words, from.count)?;
        Ok(left.into_iter().map(key_of).collect())
    }

    fn round(
        &self,
        queue: &mut Queue,
        fill: &Buffer<u32>,
        pass: Pass<'_>,
        round: u32,
    ) -> Result<()> {
        let Pass { from, to, .. } = pass;
        let grid = grid_of(from.count);
        let n = Arg::U32(from.count as u32);
        let (table, fill) = (Arg::Longs(self.words), Arg::Words(fill));
        let stragglers = Arg::Longs(&from.words);
        let (paths, claims) = (Arg::Words(pass.paths), Arg::Words(pass.claims));
        let hashing = [Arg::U32(self.layout.buckets), Arg::U32(self.layout.seed)];

        let [buckets, seed] = hashing;
        let round = Arg::U32(round);
        let args = [table, fill, stragglers, paths, n, round, buckets, seed];
        queue.launch(self.program, "explore", grid, &args)?;
        queue.launch(self.program, "propose", grid, &[paths, claims, n])?;
        queue.fill(&to.counter, 0)?;
        let (left, counter) = (Arg::Longs(&to.words), Arg::Words(&to.counter));
        let args = [table, fill, stragglers, paths, claims, left, counter, n];
        queue.launch(self.program, "commit", grid, &args)?;
        queue.launch(self.program, "release", grid, &[paths, claims, n])
    }
}
