//! The programs of the slab hash and its allocators, and the sizes of their launches.
//!
//! ```text
//!  slab   hash · word · local · lanes · slab_alloc · slab
//!         KEY_ONLY 0 | 1, LIGHT 0 | 1, BLOCKS, and how lanes talk
//! ```

use crate::device::program::ProgramText;
use crate::device::{KernelBody, Queue, SubGroupShuffle};
use crate::kernel_sources;
use crate::table::baselines::batch;
use crate::table::launch::{self, LOOK_AHEAD, LaunchConfig, with_sub_groups};
use crate::table::primitives::hash::{self, Reduction};
use crate::table::primitives::word;

use super::layout::{Entries, MAX_KEY, MAX_SUPER_BLOCKS, PoolLayout};

/// Lanes of a tile on GPUs: each takes 16 bytes of a slab.
const TILE_LANES: usize = 8;

/// Work-group size where lanes talk through local memory: all of a group wait for its slowest
/// operation.
const LOCAL_GROUP: usize = 64;

/// The facts that a program depends on.
#[derive(Clone, Copy)]
struct Variant {
    entries: Entries,
    light: bool,
    blocks: usize,
    body: KernelBody,
    shuffle: Option<SubGroupShuffle>,
    prefetch: bool,
    peek_volatile: bool,
}

/// Returns the number of lanes of a tile and of work-items of a group.
fn lanes_and_group(body: KernelBody) -> (usize, usize) {
    match body {
        KernelBody::Chunk => (1, 1),
        KernelBody::LocalTile => (TILE_LANES, LOCAL_GROUP),
        KernelBody::SubGroupTile | KernelBody::WarpTile => (TILE_LANES, launch::GROUP),
    }
}

impl Variant {
    fn text(self) -> ProgramText {
        let flag = |flag: bool| u8::from(flag).to_string();
        let (lanes, group) = lanes_and_group(self.body);
        let shuffle = match (self.body, self.shuffle) {
            (KernelBody::SubGroupTile, Some(SubGroupShuffle::Intel)) => "intel_sub_group_shuffle",
            (KernelBody::SubGroupTile, Some(SubGroupShuffle::Khronos)) => "sub_group_shuffle",
            _ => "",
        };
        let bases: Vec<String> = (0..pool_arguments(self.light))
            .map(|i| format!("super_block_{i}"))
            .collect();
        let params: Vec<String> = bases
            .iter()
            .map(|name| format!("__global entry_t *{name}"))
            .collect();
        let mut defines = hash::defines(Reduction::MultiplyHigh);
        defines.extend(word::defines(self.peek_volatile));
        defines.extend(batch::defines());
        defines.extend([
            ("WORD", "ulong".to_owned()),
            ("ONE_ITEM", flag(group == 1)),
            ("LANES", lanes.to_string()),
            ("LANES_GROUP", group.to_string()),
            ("SHUFFLE_PTX", flag(self.body == KernelBody::WarpTile)),
            ("SHUFFLE_SUB_GROUP", flag(!shuffle.is_empty())),
            ("SUB_GROUP_SHUFFLE", shuffle.to_owned()),
            ("LIGHT", flag(self.light)),
            ("BLOCKS", format!("{}u", self.blocks)),
            ("SUPER_BLOCKS", bases.len().to_string()),
            ("POOL_PARAMS", params.join(", ")),
            ("POOL_BASES", bases.join(", ")),
            ("KEY_ONLY", flag(self.entries == Entries::Keys)),
            ("MAX_KEY", format!("{MAX_KEY:#x}u")),
            ("LOOK_AHEAD", LOOK_AHEAD.to_string()),
            ("PREFETCH", flag(self.prefetch)),
        ]);
        let parts = [
            kernel_sources::HASH,
            kernel_sources::WORD,
            kernel_sources::LOCAL,
            kernel_sources::LANES,
            kernel_sources::SLAB_ALLOC,
            kernel_sources::SLAB,
        ];
        let text = ProgramText::new("slab hash", &defines, &parts);
        match (self.body, self.shuffle) {
            (KernelBody::SubGroupTile, Some(shuffle)) => with_sub_groups(text, shuffle, lanes),
            _ => text,
        }
    }
}

/// Returns how lanes talk on a queue's device.
fn body(queue: &Queue) -> KernelBody {
    queue.info().body_for_lanes(queue.body(), TILE_LANES)
}

/// Returns the number of arguments of a kernel for the super blocks.
pub(super) fn pool_arguments(light: bool) -> usize {
    if light { 1 } else { MAX_SUPER_BLOCKS }
}

/// Returns the program of a job.
pub(super) fn program(queue: &Queue, entries: Entries, pool: &PoolLayout) -> ProgramText {
    Variant {
        entries,
        light: pool.light,
        blocks: pool.blocks,
        body: body(queue),
        shuffle: queue.info().sub_group_shuffle(),
        prefetch: launch::prefetches(queue),
        peek_volatile: queue.volatile_sees_atomics(),
    }
    .text()
}

/// Returns how operations, or slabs, are divided among work-items.
pub(super) fn launch_config(queue: &Queue, elements: usize) -> LaunchConfig {
    let (_, group) = lanes_and_group(body(queue));
    LaunchConfig {
        group,
        ..LaunchConfig::new(queue, elements, 1)
    }
}

/// Returns the launch size of one work-item per element.
pub(super) fn singles(queue: &Queue, elements: usize) -> (usize, usize) {
    (elements, lanes_and_group(body(queue)).1)
}

/// Returns every program of the slab hash under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let bodies = [
        (KernelBody::Chunk, None, "chunk"),
        (KernelBody::LocalTile, None, "local_tile"),
        (
            KernelBody::SubGroupTile,
            Some(SubGroupShuffle::Intel),
            "sub_group_tile.intel",
        ),
        (
            KernelBody::SubGroupTile,
            Some(SubGroupShuffle::Khronos),
            "khronos_sub_group_tile.intel",
        ),
        (KernelBody::WarpTile, None, "warp_tile.nvidia"),
    ];
    Entries::ALL.into_iter().flat_map(move |entries| {
        [true, false].into_iter().flat_map(move |light| {
            bodies.into_iter().map(move |(body, shuffle, suffix)| {
                let variant = Variant {
                    entries,
                    light,
                    blocks: 256,
                    body,
                    shuffle,
                    prefetch: false,
                    peek_volatile: false,
                };
                let entries = match entries {
                    Entries::Pairs => "pairs",
                    Entries::Keys => "keys",
                };
                let alloc = if light { "light" } else { "full" };
                (format!("slab_{entries}_{alloc}_{suffix}"), variant.text())
            })
        })
    })
}
