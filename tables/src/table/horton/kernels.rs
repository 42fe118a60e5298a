//! The programs of a Horton table and the sizes of their launches.
//!
//! ```text
//!  build      hash · bucket · local · split · fill · build · census
//!  displace   hash · bucket · fill · changing · displace, where a build leaves stragglers
//!  update     that of build · put_wide · items · merge · changing · sweep, for values of 32 bits
//!  lookup     hash · bucket (· tile) · lookup
//!  gather     hash · bucket (· tile) · gather_bound
//! ```
//!
//! Every constant lives in Rust and reaches the kernels as a define; a variant (bucket
//! size, lookup body, CPU or GPU) is a define too, never a copied file.

use crate::device::program::ProgramText;
use crate::device::{DeviceInfo, DeviceKind, KernelBody, Queue, SubGroupShuffle};
use crate::kernel_sources::{self, Part};
use crate::table::launch::{group_of, peek_define, with_sub_groups};
use crate::table::primitives::bucket::{self, BucketSize, Variant};
use crate::table::primitives::hash::Reduction;
use crate::table::primitives::radix_partition::{self, Counter, NONE, Rest};

use super::tuning::{Kind, Residence, Second, Tuning, Workload};

/// Overflowing items of one bucket that the build looks at. With random keys a bucket of
/// billions has about 30 in all (paper, section 6.1); more means that the seed is bad.
const CHAIN_LIMIT: u32 = 64;

/// The round of displacement from which stragglers spare each other every other time; six to eleven
/// rounds place them all as a rule.
const LATE_ROUND: u32 = 12;

/// Keys that queue in `lookup_chunk`: enough to hide one latency of memory behind the others'.
const WAITING: usize = 16;

/// New items that a range of buckets may have in an insert: its slots and eight standard
/// deviations, in 5 KiB of local memory.
const RANGE_ITEMS: usize = 2560;

/// Slots of a range of buckets: 16 KiB of local memory, so that several work-groups share a
/// compute unit, and half of the 32 KiB that every device has.
const RANGE_SLOTS: usize = 2048;

/// Returns the number of buckets of a range.
pub(crate) fn range(bucket_size: BucketSize) -> usize {
    RANGE_SLOTS / bucket_size.slots()
}

/// The way in which a work-item reads buckets: a kernel body on a device, with what its program
/// depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reader {
    Chunk { prefetch: bool },
    LocalTile,
    SubGroupTile(SubGroupShuffle),
    WarpTile,
}

impl Reader {
    fn new(info: &DeviceInfo, body: KernelBody) -> Self {
        match (body, info.sub_group_shuffle()) {
            (KernelBody::Chunk, _) => Reader::Chunk {
                prefetch: info.has_prefetch(),
            },
            (KernelBody::SubGroupTile, Some(shuffle)) => Reader::SubGroupTile(shuffle),
            (KernelBody::WarpTile, _) => Reader::WarpTile,
            (KernelBody::LocalTile | KernelBody::SubGroupTile, _) => Reader::LocalTile,
        }
    }

    /// Kernels that compilers for all devices can be shown, and part of their file names.
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

    /// Returns the default tuning of this reader, for no device in particular.
    fn default_tuning(self, bucket_size: BucketSize) -> Tuning {
        let (body, kind) = match self {
            Reader::Chunk { .. } => (KernelBody::Chunk, DeviceKind::Cpu),
            Reader::LocalTile => (KernelBody::LocalTile, DeviceKind::Gpu),
            Reader::SubGroupTile(_) => (KernelBody::SubGroupTile, DeviceKind::Gpu),
            Reader::WarpTile => (KernelBody::WarpTile, DeviceKind::Gpu),
        };
        let workload = Workload {
            kind: Kind::Horton,
            slots: bucket_size.slots(),
            residence: Residence::Memory,
        };
        Tuning::measured(body, kind, &workload)
    }

    /// Returns a program over buckets that ends in `part`.
    fn text(
        self,
        name: &'static str,
        variant: Variant,
        tuning: &Tuning,
        part: Part,
    ) -> ProgramText {
        let prefetch = self == Reader::Chunk { prefetch: true };
        let shuffle = match self {
            Reader::SubGroupTile(SubGroupShuffle::Intel) => "intel_sub_group_shuffle",
            Reader::SubGroupTile(SubGroupShuffle::Khronos) => "sub_group_shuffle",
            _ => "",
        };
        let tiles = !matches!(self, Reader::Chunk { .. });
        let flag = |flag: bool| u8::from(flag).to_string();
        let mut defines = bucket::defines(variant, prefetch);
        defines.extend([
            ("NONE", format!("{NONE:#x}u")),
            ("TILES", flag(tiles)),
            ("SHUFFLE_PTX", flag(self == Reader::WarpTile)),
            ("SHUFFLE_SUB_GROUP", flag(!shuffle.is_empty())),
            ("SUB_GROUP_SHUFFLE", shuffle.to_owned()),
        ]);
        defines.extend(tuned_defines(tuning));
        let mut parts = vec![kernel_sources::HASH, kernel_sources::BUCKET];
        if tiles {
            parts.push(kernel_sources::TILE);
        }
        parts.push(part);
        let text = ProgramText::new(name, &defines, &parts);
        match (self, tuning) {
            (Reader::SubGroupTile(shuffle), Tuning::Tile { lanes, .. }) => {
                with_sub_groups(text, shuffle, *lanes)
            }
            // As many warps as there can be; 40 registers cost 0.6 % of the lookups.
            (Reader::WarpTile, _) => text.with_options("-cl-nv-maxrregcount=32"),
            _ => text,
        }
    }

    fn lookup(self, variant: Variant, tuning: &Tuning) -> ProgramText {
        self.text("lookup", variant, tuning, kernel_sources::LOOKUP)
    }

    fn gather(self, variant: Variant) -> ProgramText {
        let tuning = self.default_tuning(variant.bucket_size);
        self.text("gather", variant, &tuning, kernel_sources::GATHER_BOUND)
    }
}

/// Returns the parts of a `tuning` that are compiled in.
fn tuned_defines(tuning: &Tuning) -> Vec<(&'static str, String)> {
    match *tuning {
        Tuning::Chunk {
            look_ahead, second, ..
        } => vec![
            ("LOOK_AHEAD", look_ahead.to_string()),
            ("BUFFERED", u8::from(second == Second::Buffered).to_string()),
            ("WAITING", WAITING.to_string()),
        ],
        Tuning::Tile {
            lanes,
            unroll,
            group,
            ..
        } => vec![
            ("LANES", lanes.to_string()),
            ("UNROLL", unroll.to_string()),
            ("TILE_GROUP", group.to_string()),
        ],
    }
}

/// Returns the build program of a job.
pub(crate) fn build_program(queue: &Queue, variant: Variant) -> ProgramText {
    phases_program(queue, "horton build", variant, &BUILD_PARTS)
}

/// Returns the program of a job that inserts or removes.
pub(crate) fn update_program(queue: &Queue, variant: Variant) -> ProgramText {
    phases_program(queue, "horton update", variant, &UPDATE_PARTS)
}

fn phases_program(
    queue: &Queue,
    name: &'static str,
    variant: Variant,
    parts: &[Part],
) -> ProgramText {
    let defines = build_defines(
        variant.bucket_size,
        queue.body(),
        queue.volatile_sees_atomics(),
    );
    let rest = Rest {
        defines: &defines,
        parts,
    };
    radix_partition::program(queue, name, variant, &rest)
}

/// Returns the program of a job that has stragglers.
pub(crate) fn displace_program(queue: &Queue, variant: Variant) -> ProgramText {
    let peek = queue.volatile_sees_atomics();
    ProgramText::once("horton displace", &(variant, peek), || {
        displace_text(variant, peek)
    })
}

fn displace_text(variant: Variant, peek: bool) -> ProgramText {
    let mut defines = bucket::defines(variant, false);
    defines.extend(Counter::defines());
    defines.extend([
        ("NONE", format!("{NONE:#x}u")),
        ("LATE_ROUND", format!("{LATE_ROUND}u")),
        peek_define(peek),
    ]);
    let mut parts = vec![
        kernel_sources::HASH,
        kernel_sources::BUCKET,
        kernel_sources::FILL,
    ];
    if variant.wide {
        parts.push(kernel_sources::PUT_WIDE);
    }
    parts.extend([kernel_sources::CHANGING, kernel_sources::DISPLACE]);
    ProgramText::new("horton displace", &defines, &parts)
}

const BUILD_PARTS: [Part; 3] = [
    kernel_sources::FILL,
    kernel_sources::BUILD,
    kernel_sources::CENSUS,
];

const UPDATE_PARTS: [Part; 8] = [
    kernel_sources::FILL,
    kernel_sources::PUT_WIDE,
    kernel_sources::BUILD,
    kernel_sources::CENSUS,
    kernel_sources::ITEMS,
    kernel_sources::MERGE,
    kernel_sources::CHANGING,
    kernel_sources::SWEEP,
];

fn build_defines(
    bucket_size: BucketSize,
    body: KernelBody,
    peek: bool,
) -> [(&'static str, String); 8] {
    let (range, group) = (range(bucket_size), group_of(body));
    [
        ("CHAIN_LIMIT", format!("{CHAIN_LIMIT}u")),
        ("RANGE_GROUP", group.to_string()),
        ("RANGE", range.to_string()),
        ("RANGE_LINKS", (range + 256).to_string()),
        ("RANGE_ITEMS", RANGE_ITEMS.to_string()),
        ("CENSUS_GROUP", group.to_string()),
        ("ITEMS_GROUP", group.to_string()),
        peek_define(peek),
    ]
}

/// Returns the lookup program of a job.
pub(crate) fn lookup_program(queue: &Queue, variant: Variant, tuning: &Tuning) -> ProgramText {
    let reader = Reader::new(queue.info(), tuning.body());
    ProgramText::once("lookup", &(reader, variant, tuning), || {
        reader.lookup(variant, tuning)
    })
}

/// Returns the program that only gathers buckets, and its tuning.
pub(crate) fn gather_program(queue: &Queue, variant: Variant) -> (ProgramText, Tuning) {
    let info = queue.info();
    let workload = Workload {
        kind: Kind::Horton,
        slots: variant.bucket_size.slots(),
        residence: Residence::Memory,
    };
    let tuning = Tuning::for_device(info, queue.body(), &workload);
    (Reader::new(info, tuning.body()).gather(variant), tuning)
}

/// Returns the keys per work-item of a tile, `most` or as few as leave every compute unit 2048
/// work-items.
pub(crate) fn rounds(info: &DeviceInfo, keys: usize, most: usize) -> usize {
    let units = info.compute_units.max(1) as usize;
    (keys / (units * 2048)).clamp(1, most.max(1))
}

/// Returns every program over Horton tables under the name of a file; see
/// [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let builds = BucketSize::ALL.into_iter().flat_map(|bucket_size| {
        let wide = Variant {
            wide: true,
            ..bucket_size.into()
        };
        let displace = [
            (format!("horton_displace_{bucket_size}"), bucket_size.into()),
            (format!("horton_displace_wide_{bucket_size}"), wide),
        ]
        .map(|(name, variant)| (name, displace_text(variant, false)));
        [KernelBody::Chunk, KernelBody::LocalTile]
            .into_iter()
            .flat_map(move |body| {
                [
                    phases("build", bucket_size.into(), body, &BUILD_PARTS),
                    phases("update", wide, body, &UPDATE_PARTS),
                ]
            })
            .chain(displace)
    });
    let readers = BucketSize::ALL.into_iter().flat_map(|bucket_size| {
        Reader::ALL.into_iter().flat_map(move |(reader, suffix)| {
            let gather = reader.gather(bucket_size.into());
            lookup_variants(bucket_size)
                .map(move |(kind, variant)| {
                    let name = format!("{kind}_lookup_{bucket_size}_{suffix}");
                    let tuning = reader.default_tuning(bucket_size);
                    (name, reader.lookup(variant, &tuning))
                })
                .into_iter()
                .chain([(format!("gather_{bucket_size}_{suffix}"), gather)])
        })
    });
    builds.chain(readers)
}

/// Returns a program that builds or updates, and the name of its file.
fn phases(kind: &str, variant: Variant, body: KernelBody, parts: &[Part]) -> (String, ProgramText) {
    let rest = Rest {
        defines: &build_defines(variant.bucket_size, body, body.volatile_sees_atomics()),
        parts,
    };
    let name = format!("horton_{kind}_{}_{}", variant.bucket_size, group_of(body));
    let text = radix_partition::text("horton phases", variant, body, 4096, &rest);
    (name, text)
}

/// Returns the lookups there are over buckets of one size, and the first part of their files'
/// names.
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
