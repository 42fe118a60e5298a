//! A stable radix sort; the host side of `cl/primitives/radix_sort.cl`.
//!
//! ```text
//!  keys, rows ─histogram─▶ counts by (digit, tile) ─scan─▶ places ─scatter─▶ keys, rows by digit
//!      ▲                                                                         │
//!      └───────────────────────── next digit, from the lowest ───────────────────┘
//! ```
//!
//! Scratch: 16 bytes per row for two pairs of keys and rows, and a quarter of a byte for counts.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::kernel_sources;
use crate::table::api::Items;
use crate::table::launch::{group_of, local_group};

use super::scan;

/// Bits of a digit.
const RADIX_BITS: u32 = 8;

/// Items that a work-group sorts in local memory: 26 KiB in all.
const TILE: usize = 4096;

/// Keys and rows on the device.
type Sorted = (Buffer<u32>, Buffer<u32>);

/// Sorts keys, and the rows beside them, by the low `key_bits` bits of the keys. Rows of equal keys
/// keep their order; without values, rows are positions.
///
/// # Errors
/// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
pub(crate) fn sort(queue: &mut Queue, items: Items<'_>, key_bits: u32) -> Result<Sorted> {
    let n = items.keys.len();
    let pass = Pass::new(queue, n);
    let mut sorted = allocate(queue, n)?;
    pass.run(queue, items, &sorted, 0)?;
    let mut spare: Option<Sorted> = None;
    let mut shift = RADIX_BITS;
    while shift < key_bits.min(u32::BITS) {
        let out = match spare.take() {
            Some(out) => out,
            None => allocate(queue, n)?,
        };
        let (keys, rows) = &sorted;
        let source = Items {
            keys,
            values: Some(rows),
        };
        pass.run(queue, source, &out, shift)?;
        spare = Some(std::mem::replace(&mut sorted, out));
        shift += RADIX_BITS;
    }
    Ok(sorted)
}

fn allocate(queue: &mut Queue, n: usize) -> Result<Sorted> {
    // The rows become a table's groups.
    Ok((
        queue.allocate("sorted keys", n)?,
        queue.allocate_table("sorted rows", n)?,
    ))
}

/// Passes over `n` items.
struct Pass {
    program: ProgramText,
    group: usize,
    n: usize,
    tile: usize,
}

impl Pass {
    fn new(queue: &Queue, n: usize) -> Self {
        Self {
            program: text(queue.body()),
            group: local_group(queue),
            n,
            tile: tile(queue, n),
        }
    }

    /// Moves `items` to their places by the digit from bit `shift` on.
    fn run(&self, queue: &mut Queue, items: Items<'_>, out: &Sorted, shift: u32) -> Result<()> {
        let tiles = self.n.div_ceil(self.tile);
        let places = queue.allocate("digit counts", tiles << RADIX_BITS)?;
        let grid = (tiles * self.group, self.group);
        let args = [
            Arg::Words(items.keys),
            Arg::Words(&places),
            Arg::U32(self.n as u32),
            Arg::U32(self.tile as u32),
            Arg::U32(tiles as u32),
            Arg::U32(shift),
        ];
        queue.launch(&self.program, "histogram", grid, &args)?;
        scan::exclusive(queue, &places, places.len())?;
        let (keys, rows) = out;
        let mut args = vec![
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(keys),
            Arg::Words(rows),
            Arg::Words(&places),
            Arg::U32(self.n as u32),
        ];
        let by_item = self.group == 1;
        args.extend(by_item.then_some(Arg::U32(self.tile as u32)));
        args.extend([Arg::U32(tiles as u32), Arg::U32(shift)]);
        let kernel = if by_item { "scatter" } else { "scatter_tile" };
        queue.launch(&self.program, kernel, grid, &args)
    }
}

/// Returns the items of a tile: what a work-group sorts at once, or on a CPU a few long tiles per
/// core.
fn tile(queue: &Queue, n: usize) -> usize {
    let cores = queue.info().compute_units.max(1) as usize;
    match queue.body() {
        KernelBody::Chunk => n.div_ceil(cores * 16).max(256),
        _ => TILE,
    }
}

fn text(body: KernelBody) -> ProgramText {
    let defines = [
        ("WORD", "uint".to_owned()),
        ("ONE_ITEM", u8::from(group_of(body) == 1).to_string()),
        ("PASS_GROUP", group_of(body).to_string()),
        ("PASS_TILE", TILE.to_string()),
        ("RADIX", (1 << RADIX_BITS).to_string()),
    ];
    let parts = [kernel_sources::LOCAL, kernel_sources::RADIX_SORT];
    ProgramText::new("radix sort", &defines, &parts)
}

/// Returns the programs under the names of files; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [KernelBody::Chunk, KernelBody::LocalTile]
        .into_iter()
        .map(|body| (format!("radix_sort_{}", group_of(body)), text(body)))
}
