//! The programs of a Horton table and the sizes of their launches.
//!
//! ```text
//!  build    hash · bucket · local · split · fill · build · displace · census
//!  update   the same · items · merge · sweep, for values of 32 bits
//!  lookup   hash · bucket (· tile) · lookup
//!  gather   hash · bucket (· tile) · gather
//! ```
//!
//! Every constant lives in Rust and reaches the kernels as a define; a variant (bucket
//! size, lookup body, CPU or GPU) is a define too, never a copied file.

use crate::device::program::ProgramText;
use crate::device::{DeviceInfo, DeviceKind, KernelBody, Queue, SubGroupShuffle};
use crate::table::hash::Reduction;
use crate::table::scan::group_of;
use crate::table::split::{self, NONE, Rest};

use super::layout::{self, BucketSize, Variant};

/// Overflowing items of one bucket that the build looks at. With random keys a bucket of
/// billions has about 30 in all (paper, section 6.1); more means that the seed is bad.
const CHAIN_LIMIT: u32 = 64;

/// The round of displacement from which stragglers spare each other every other time; six to eleven
/// rounds place them all as a rule.
const LATE_ROUND: u32 = 12;

/// Keys between a prefetch and its lookup; 32 was best on PoCL and Intel's CPU runtime.
pub(super) const LOOK_AHEAD: u32 = 32;

/// Work-group size of kernels that need none; with small ones, a GPU spends its time on starting
/// them.
pub(super) const GROUP: usize = 256;

/// Work-group size of kernels over tiles of lanes.
pub(super) const TILE_GROUP: usize = 256;

/// Keys that a work-item of `lookup_buffered` looks up: the more, the fuller the warps that look at
/// second buckets.
const CACHED_ROUNDS: usize = 16;

/// The largest table that is taken to stay in the cache, in bytes. Beyond it memory is what lookups
/// wait for, and one key a work-item is faster (on an H200 0.85 against 0.78 of the limit).
const CACHED_TABLE: usize = 48 << 20;

/// New items that a range of buckets may have in an insert: its slots and eight standard deviations,
/// in 5 KiB of local memory.
const RANGE_ITEMS: usize = 2560;

/// Slots of a range of buckets: 16 KiB of local memory, so that several work-groups share a
/// compute unit, and half of the 32 KiB that every device has.
const RANGE_SLOTS: usize = 2048;

/// Buckets of a range.
pub(super) fn range(bucket_size: BucketSize) -> usize {
    RANGE_SLOTS / bucket_size.slots()
}

/// How a work-item reads buckets: a kernel body on a device, with what its program depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reader {
    Chunk { prefetch: bool },
    LocalTile,
    SubGroupTile(SubGroupShuffle),
    WarpTile,
}

impl Reader {
    fn new(queue: &Queue) -> Self {
        match (queue.body(), queue.info().sub_group_shuffle()) {
            (KernelBody::Chunk, _) => Reader::Chunk {
                prefetch: queue.info().has_prefetch(),
            },
            (KernelBody::SubGroupTile, Some(shuffle)) => Reader::SubGroupTile(shuffle),
            (KernelBody::WarpTile, _) => Reader::WarpTile,
            (KernelBody::LocalTile | KernelBody::SubGroupTile, _) => Reader::LocalTile,
        }
    }

    /// Those that compilers for all devices can be shown, and part of their file names.
    const ALL: [(Reader, &'static str); 5] = [
        (Reader::Chunk { prefetch: false }, "chunk"),
        (Reader::LocalTile, "local_tile"),
        (
            Reader::SubGroupTile(SubGroupShuffle::Intel),
            "sub_group_tile.intel",
        ),
        (
            Reader::SubGroupTile(SubGroupShuffle::Khronos),
            "khronos_sub_group_tile.intel",
        ),
        (Reader::WarpTile, "warp_tile.nvidia"),
    ];

    /// A program over buckets that ends in `part`.
    fn text(self, name: &'static str, variant: Variant, part: (&str, &'static str)) -> ProgramText {
        let prefetch = self == Reader::Chunk { prefetch: true };
        let shuffle = match self {
            Reader::SubGroupTile(SubGroupShuffle::Intel) => "intel_sub_group_shuffle",
            Reader::SubGroupTile(SubGroupShuffle::Khronos) => "sub_group_shuffle",
            _ => "",
        };
        let tiles = !matches!(self, Reader::Chunk { .. });
        let flag = |flag: bool| u8::from(flag).to_string();
        let mut defines = layout::defines(variant, prefetch);
        defines.extend([
            ("NONE", format!("{NONE:#x}u")),
            ("LOOK_AHEAD", LOOK_AHEAD.to_string()),
            ("TILES", flag(tiles)),
            ("TILE_GROUP", TILE_GROUP.to_string()),
            ("SHUFFLE_PTX", flag(self == Reader::WarpTile)),
            ("SHUFFLE_SUB_GROUP", flag(!shuffle.is_empty())),
            ("SUB_GROUP_SHUFFLE", shuffle.to_owned()),
        ]);
        let mut parts = vec![
            ("hash.cl", include_str!("../../../cl/hash.cl")),
            ("bucket.cl", include_str!("../../../cl/bucket.cl")),
        ];
        if tiles {
            parts.push(("tile.cl", include_str!("../../../cl/tile.cl")));
        }
        parts.push(part);
        let text = ProgramText::new(name, &defines, &parts);
        match self {
            Reader::SubGroupTile(SubGroupShuffle::Khronos) => text.with_options("-cl-std=CL3.0"),
            // As many warps as there can be; 40 registers cost 0.6 % of the lookups.
            Reader::WarpTile => text.with_options("-cl-nv-maxrregcount=32"),
            _ => text,
        }
    }

    fn lookup(self, variant: Variant) -> ProgramText {
        let part = ("lookup.cl", include_str!("../../../cl/lookup.cl"));
        self.text("lookup", variant, part)
    }

    fn gather(self, variant: Variant) -> ProgramText {
        let part = ("gather.cl", include_str!("../../../cl/gather.cl"));
        self.text("gather", variant, part)
    }
}

/// The build program of a job.
pub(super) fn build_program(queue: &Queue, variant: Variant) -> ProgramText {
    let rest = Rest {
        defines: &build_defines(
            variant.bucket_size,
            queue.body(),
            queue.volatile_sees_atomics(),
        ),
        parts: &BUILD_PARTS,
    };
    split::program(queue, "horton build", variant, &rest)
}

/// The program of a job that inserts or removes.
pub(super) fn update_program(queue: &Queue, variant: Variant) -> ProgramText {
    let rest = Rest {
        defines: &build_defines(
            variant.bucket_size,
            queue.body(),
            queue.volatile_sees_atomics(),
        ),
        parts: &UPDATE_PARTS,
    };
    split::program(queue, "horton update", variant, &rest)
}

const BUILD_PARTS: [(&str, &str); 4] = [
    ("fill.cl", include_str!("../../../cl/fill.cl")),
    ("build.cl", include_str!("../../../cl/build.cl")),
    ("displace.cl", include_str!("../../../cl/displace.cl")),
    ("census.cl", include_str!("../../../cl/census.cl")),
];

const UPDATE_PARTS: [(&str, &str); 7] = [
    BUILD_PARTS[0],
    BUILD_PARTS[1],
    BUILD_PARTS[2],
    BUILD_PARTS[3],
    ("items.cl", include_str!("../../../cl/items.cl")),
    ("merge.cl", include_str!("../../../cl/merge.cl")),
    ("sweep.cl", include_str!("../../../cl/sweep.cl")),
];

fn build_defines(
    bucket_size: BucketSize,
    body: KernelBody,
    peek: bool,
) -> [(&'static str, String); 9] {
    let (range, group) = (range(bucket_size), group_of(body));
    [
        ("CHAIN_LIMIT", format!("{CHAIN_LIMIT}u")),
        ("LATE_ROUND", format!("{LATE_ROUND}u")),
        ("RANGE_GROUP", group.to_string()),
        ("RANGE", range.to_string()),
        ("RANGE_LINKS", (range + 256).to_string()),
        ("RANGE_ITEMS", RANGE_ITEMS.to_string()),
        ("CENSUS_GROUP", group.to_string()),
        ("ITEMS_GROUP", group.to_string()),
        peek_define(peek),
    ]
}

/// How kernels see what others' atomics write.
pub(crate) fn peek_define(peek: bool) -> (&'static str, String) {
    ("PEEK_VOLATILE", u8::from(peek).to_string())
}

/// The lookup program of a job.
pub(crate) fn lookup_program(queue: &Queue, variant: Variant) -> ProgramText {
    let reader = Reader::new(queue);
    ProgramText::once("lookup", &(reader, variant), || reader.lookup(variant))
}

/// The program that only gathers buckets.
pub(super) fn gather_program(queue: &Queue, variant: Variant) -> ProgramText {
    Reader::new(queue).gather(variant)
}

/// Whether lookups in a table of so many words are buffered, and then the keys a work-item.
pub(super) fn buffered_rounds(queue: &Queue, words: usize, keys: usize) -> Option<usize> {
    let has_warps = queue.body() == KernelBody::WarpTile;
    let is_cached = words * size_of::<u64>() <= CACHED_TABLE;
    let units = queue.info().compute_units.max(1) as usize;
    // Few keys are spread over the whole device instead.
    let rounds = (keys / (units * 2048)).min(CACHED_ROUNDS);
    (has_warps && is_cached && rounds > 1).then_some(rounds)
}

/// Every program over Horton tables under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let builds = BucketSize::ALL.into_iter().flat_map(|bucket_size| {
        [KernelBody::Chunk, KernelBody::LocalTile]
            .into_iter()
            .flat_map(move |body| {
                let wide = Variant {
                    wide: true,
                    ..bucket_size.into()
                };
                [
                    phases("build", bucket_size.into(), body, &BUILD_PARTS),
                    phases("update", wide, body, &UPDATE_PARTS),
                ]
            })
    });
    let readers = BucketSize::ALL.into_iter().flat_map(|bucket_size| {
        Reader::ALL.into_iter().flat_map(move |(reader, suffix)| {
            let gather = reader.gather(bucket_size.into());
            lookup_variants(bucket_size)
                .map(move |(kind, variant)| {
                    let name = format!("{kind}_lookup_{bucket_size}_{suffix}");
                    (name, reader.lookup(variant))
                })
                .into_iter()
                .chain([(format!("gather_{bucket_size}_{suffix}"), gather)])
        })
    });
    builds.chain(readers)
}

/// A program that builds or updates, and the name of its file.
fn phases(
    kind: &str,
    variant: Variant,
    body: KernelBody,
    parts: &[(&'static str, &'static str)],
) -> (String, ProgramText) {
    let rest = Rest {
        defines: &build_defines(variant.bucket_size, body, body.volatile_sees_atomics()),
        parts,
    };
    let name = format!("horton_{kind}_{}_{}", variant.bucket_size, group_of(body));
    let text = split::text("horton phases", variant, body, 4096, &rest);
    (name, text)
}

/// The lookups there are over buckets of one size, and the first part of their files' names.
fn lookup_variants(bucket_size: BucketSize) -> [(&'static str, Variant); 5] {
    let horton = Variant::from(bucket_size);
    let wide = Variant {
        wide: true,
        ..horton
    };
    let modulo = Variant {
        reduction: Reduction::Modulo,
        ..horton
    };
    let cuckoo = Variant {
        cuckoo: true,
        ..horton
    };
    let wide_cuckoo = Variant {
        cuckoo: true,
        ..wide
    };
    [
        ("horton", horton),
        ("horton_wide", wide),
        ("horton_modulo", modulo),
        ("cuckoo", cuckoo),
        ("cuckoo_wide", wide_cuckoo),
    ]
}

/// Launch size of one work-item per element.
pub(crate) fn grid(items: usize) -> (usize, usize) {
    (items, GROUP)
}

/// Elements per work-item where each walks a contiguous share: enough work-items to fill the
/// device, shares of whole cache lines.
pub(crate) fn share(info: &DeviceInfo, items: usize) -> usize {
    let per_unit = match info.kind {
        DeviceKind::Cpu => 16,
        _ => 2048,
    };
    let workers = info.compute_units.max(1) as usize * per_unit;
    items.div_ceil(workers).max(1).next_multiple_of(16)
}
