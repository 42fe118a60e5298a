//! Groups by a radix sort; the driver of `cl/group_sort.cl`.
//!
//! ```text
//!  keys  7 3 7 3 9      sort    3 3 7 7 9    unique keys  3 7 9
//!  rows  0 1 2 3 4     ─────▶   1 3 0 2 4 ─▶ offsets      0 2 4 5     rows 1 3 0 2 4
//! ```
//!
//! A stable least-significant-digit sort: rows of a group ascend, and a hot key costs what any
//! other key costs. Scratch: 16 bytes a row.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;

use crate::table::scan;

use super::Groups;

/// Work-group size of kernels that need none.
const GROUP: usize = 256;

/// Bits of a digit; twin of `cl/group_sort.cl`.
const RADIX_BITS: u32 = 8;

/// Items that a work-group sorts in local memory: 26 KiB in all.
const SORT_TILE: usize = 4096;

/// The program for work-groups of `group`.
fn text(group: usize) -> ProgramText {
    let defines = [
        ("WORD", "uint".to_owned()),
        ("SORT_GROUP", group.to_string()),
        ("SORT_TILE", SORT_TILE.to_string()),
    ];
    let parts = [
        ("local.cl", include_str!("../../../cl/local.cl")),
        ("group_sort.cl", include_str!("../../../cl/group_sort.cl")),
    ];
    ProgramText::new("group by sort", &defines, &parts)
}

/// Every program of this module under the name of a file; see [`crate::table::programs`].
pub(super) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [1, 256]
        .into_iter()
        .map(|group| (format!("group_sort_{group}"), text(group)))
}

/// Groups `keys`: fewer `key_bits`, fewer passes.
pub(super) fn group(
    queue: &mut Queue,
    keys: &Buffer<u32>,
    rows: Option<&Buffer<u32>>,
    key_bits: u32,
) -> Result<Groups> {
    let grouper = Grouper::new(queue, keys.len());
    let (keys, rows) = grouper.sort(queue, keys, rows, key_bits)?;
    grouper.collect(queue, &keys, rows)
}

struct Grouper {
    program: ProgramText,
    group: usize,
    n: usize,
    tile: usize,
}

impl Grouper {
    fn new(queue: &Queue, n: usize) -> Self {
        let group = scan::local_group(queue);
        Self {
            program: text(group),
            group,
            n,
            tile: tile(queue, n),
        }
    }

    /// Keys and rows in key order; rows of equal keys keep their order.
    fn sort(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        rows: Option<&Buffer<u32>>,
        key_bits: u32,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let mut pair = self.pass(queue, keys, rows, 0)?;
        let mut spare: Option<(Buffer<u32>, Buffer<u32>)> = None;
        let mut shift = RADIX_BITS;
        while shift < key_bits.min(32) {
            let out = match spare.take() {
                Some(out) => out,
                None => self.allocate_pair(queue)?,
            };
            self.pass_into(queue, (&pair.0, Some(&pair.1)), &out, shift)?;
            spare = Some(std::mem::replace(&mut pair, out));
            shift += RADIX_BITS;
        }
        Ok(pair)
    }

    fn allocate_pair(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
        Ok((
            queue.allocate("sorted keys", self.n)?,
            queue.allocate("sorted rows", self.n)?,
        ))
    }

    fn pass(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        rows: Option<&Buffer<u32>>,
        shift: u32,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let out = self.allocate_pair(queue)?;
        self.pass_into(queue, (keys, rows), &out, shift)?;
        Ok(out)
    }

    /// One digit of the sort.
    fn pass_into(
        &self,
        queue: &mut Queue,
        (keys, rows): (&Buffer<u32>, Option<&Buffer<u32>>),
        out: &(Buffer<u32>, Buffer<u32>),
        shift: u32,
    ) -> Result<()> {
        let tiles = self.n.div_ceil(self.tile);
        let grid = (tiles * self.group, self.group);
        let counts = queue.allocate("digit counts", tiles << RADIX_BITS)?;
        let (n, tiles) = (Arg::U32(self.n as u32), Arg::U32(tiles as u32));
        let (tile, shift) = (Arg::U32(self.tile as u32), Arg::U32(shift));
        let keys = Arg::Words(keys);
        let args = [keys, Arg::Words(&counts), n, tile, tiles, shift];
        queue.launch(&self.program, "histogram", grid, &args)?;
        scan::exclusive(queue, &counts, counts.len())?;
        let rows = rows.map_or(Arg::Null, Arg::Words);
        let (keys_out, rows_out) = (Arg::Words(&out.0), Arg::Words(&out.1));
        let mut args = vec![keys, rows, keys_out, rows_out, Arg::Words(&counts), n];
        if self.group > 1 {
            args.extend([tiles, shift]);
            return queue.launch(&self.program, "scatter_tile", grid, &args);
        }
        args.extend([tile, tiles, shift]);
        queue.launch(&self.program, "scatter", grid, &args)
    }

    /// Boundaries of the runs of equal keys.
    fn collect(&self, queue: &mut Queue, keys: &Buffer<u32>, rows: Buffer<u32>) -> Result<Groups> {
        let n = self.n;
        // One element more than rows: its prefix sum is the number of groups.
        let marks = queue.allocate("group marks", n + 1)?;
        queue.fill(&marks, 0)?;
        let args = [Arg::Words(keys), Arg::Words(&marks), Arg::U32(n as u32)];
        queue.launch(&self.program, "mark_groups", (n, GROUP), &args)?;
        scan::exclusive(queue, &marks, n + 1)?;
        let mut groups = [0u32];
        queue.download(&marks, n, &mut groups)?;
        let groups = groups[0] as usize;
        let found = Groups {
            rows,
            ..Groups::allocate(queue, groups, n)?
        };
        let args = [
            Arg::Words(keys),
            Arg::Words(&marks),
            Arg::Words(&found.unique_keys),
            Arg::Words(&found.offsets),
            Arg::U32(n as u32),
        ];
        queue.launch(&self.program, "collect_groups", (n, GROUP), &args)?;
        Ok(found)
    }
}

/// Items of a tile: what a work-group sorts at once; on a CPU a few long tiles a core.
fn tile(queue: &Queue, n: usize) -> usize {
    let cores = queue.info().compute_units.max(1) as usize;
    match queue.body() {
        KernelBody::Chunk => n.div_ceil(cores * 16).max(256),
        _ => SORT_TILE,
    }
}
