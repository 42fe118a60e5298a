//! The Horton program's text and the sizes of its launches.
//!
//! Every constant lives in Rust and reaches the kernels as a define; a variant (bucket
//! size, lookup body) is a define too, never a copied file.

use crate::device::program::ProgramText;
use crate::device::{DeviceInfo, DeviceKind, KernelBody};
use crate::table::hash;

use super::TableConfig;
use super::layout::{self, BucketSize};
use super::limit;

/// No item, no bucket: the end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// Overflowing items of one bucket that the build looks at. With random keys a bucket of
/// billions has about 30 in all (paper, section 6.1); more means that the seed is bad.
const CHAIN_LIMIT: u32 = 64;

/// Keys between a prefetch and its lookup; 32 was best on PoCL and Intel's CPU runtime.
pub(super) const LOOK_AHEAD: u32 = 32;

/// Work-group size of all kernels but the CPU lookup; AMD's limit is 256.
pub(super) const GROUP: usize = 64;

/// Work-group size of `lookup_tile`.
pub(super) const TILE_GROUP: usize = 256;

/// The program for one device and configuration.
pub(super) fn program(info: &DeviceInfo, config: &TableConfig) -> ProgramText {
    let body = config.body.unwrap_or_else(|| info.body());
    text(config.bucket_size, body, info.has_prefetch())
}

/// The program's text; `prefetch` only where [`DeviceInfo::has_prefetch`].
pub(crate) fn text(bucket_size: BucketSize, body: KernelBody, prefetch: bool) -> ProgramText {
    let mut defines = hash::defines();
    defines.extend(layout::defines(bucket_size, prefetch));
    defines.extend([
        ("NONE", format!("{NONE:#x}u")),
        ("CHAIN_LIMIT", CHAIN_LIMIT.to_string()),
        ("LOOK_AHEAD", LOOK_AHEAD.to_string()),
    ]);
    let mut parts = vec![
        ("hash.cl", include_str!("../../../cl/hash.cl")),
        ("bucket.cl", include_str!("../../../cl/bucket.cl")),
        ("horton.cl", include_str!("../../../cl/horton.cl")),
    ];
    if body != KernelBody::Chunk {
        let shuffle = u8::from(body == KernelBody::WarpTile);
        defines.push(("TILE_GROUP", TILE_GROUP.to_string()));
        defines.push(("WARP_SHUFFLE", shuffle.to_string()));
        parts.push(("tile.cl", include_str!("../../../cl/tile.cl")));
    }
    ProgramText::new("horton", &defines, &parts)
}

/// Every program over Horton tables under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let tables = BucketSize::ALL.into_iter().flat_map(|bucket_size| {
        KernelBody::ALL.into_iter().map(move |body| {
            let suffix = match body {
                KernelBody::Chunk => "chunk",
                KernelBody::LocalTile => "local_tile",
                KernelBody::WarpTile => "warp_tile.nvidia",
            };
            let name = format!("horton_{bucket_size}_{suffix}");
            (name, text(bucket_size, body, false))
        })
    });
    let limits = BucketSize::ALL
        .into_iter()
        .map(|size| (format!("gather_{size}"), limit::program(size, false)));
    tables.chain(limits)
}

/// Launch size of one work-item per element.
pub(super) fn grid(items: usize) -> (usize, usize) {
    (items, GROUP)
}

/// Elements per work-item where each walks a contiguous share: enough work-items to fill the
/// device, shares of whole cache lines.
pub(super) fn share(info: &DeviceInfo, items: usize) -> usize {
    let per_unit = match info.kind {
        DeviceKind::Cpu => 16,
        _ => 2048,
    };
    let workers = info.compute_units.max(1) as usize * per_unit;
    items.div_ceil(workers).max(1).next_multiple_of(16)
}
