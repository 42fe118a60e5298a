//! Exclusive prefix sums on the device; the host side of `cl/primitives/scan.cl`.
//!
//! ```text
//!  data  3 1 4 1 5 9 2 6   ─▶   0 3 4 8 9 14 23 25
//! ```
//!
//! Two passes over the data and, in the same way, over the sums of its tiles: reduce, then
//! scan. A single pass with look-back needs work-groups that make progress side by side, which
//! OpenCL does not promise.

use ocl::core::OclPrm;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::Result;
use crate::kernel_sources;
use crate::table::launch::local_group;

/// Words of a tile: 8 or 16 KiB of local memory.
const TILE: usize = 2048;

/// A word that is scanned: `u32` or `u64`.
pub(crate) trait Word: OclPrm {
    const NAME: &'static str;
    fn arg(buffer: &Buffer<Self>) -> Arg<'_>;
}

impl Word for u32 {
    const NAME: &'static str = "uint";
    fn arg(buffer: &Buffer<Self>) -> Arg<'_> {
        Arg::Words(buffer)
    }
}

impl Word for u64 {
    const NAME: &'static str = "ulong";
    fn arg(buffer: &Buffer<Self>) -> Arg<'_> {
        Arg::Longs(buffer)
    }
}

fn text(word: &str, group: usize) -> ProgramText {
    let defines = [
        ("WORD", word.to_owned()),
        ("ONE_ITEM", u8::from(group == 1).to_string()),
        ("SCAN_GROUP", group.to_string()),
        ("SCAN_TILE", TILE.to_string()),
    ];
    let parts = [kernel_sources::LOCAL, kernel_sources::SCAN];
    ProgramText::new("scan", &defines, &parts)
}

/// Returns every scan program under the name of a file; see [`crate::table::programs`].
pub(crate) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [u32::NAME, u64::NAME].into_iter().flat_map(|word| {
        [1, 256]
            .into_iter()
            .map(move |group| (format!("scan_{word}_{group}"), text(word, group)))
    })
}

/// Replaces the first `n` of `data` by their exclusive prefix sums.
///
/// # Errors
/// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
pub(crate) fn exclusive<W: Word>(queue: &mut Queue, data: &Buffer<W>, n: usize) -> Result<()> {
    let group = local_group(queue);
    let program = ProgramText::once("scan", &(W::NAME, group), || text(W::NAME, group));
    scan(queue, &program, group, data, n)
}

fn scan<W: Word>(
    queue: &mut Queue,
    program: &ProgramText,
    group: usize,
    data: &Buffer<W>,
    n: usize,
) -> Result<()> {
    let tiles = n.div_ceil(TILE);
    let grid = (tiles * group, group);
    let size = Arg::U32(n as u32);
    let bases = match tiles {
        0 | 1 => None,
        _ => {
            let sums = queue.allocate::<W>("prefix sums", tiles)?;
            let args = [W::arg(data), W::arg(&sums), size];
            queue.launch(program, "sum_tiles", grid, &args)?;
            scan(queue, program, group, &sums, tiles)?;
            Some(sums)
        }
    };
    let bases = bases.as_ref().map_or(Arg::Null, W::arg);
    queue.launch(program, "scan_tiles", grid, &[W::arg(data), bases, size])
}
