//! Groups by a radix sort; the driver of `cl/primitives/group/sort.cl`.
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
use crate::sources;
use crate::table::api::Items;
use crate::table::launch::{GROUP, group_of};
use crate::table::primitives::scan;

use super::groups::{Groups, Part, Size};
use super::pass::{Digit, Kernels, Pass, RADIX_BITS};

const KERNELS: Kernels<'_> = Kernels {
    name: "group by sort",
    defines: &[],
    digit: &[sources::DIGIT_OF_KEY],
    rest: &[sources::GROUP_SORT],
};

/// Every program of this module under the name of a file; see [`crate::table::programs`].
pub(super) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [KernelBody::Chunk, KernelBody::LocalTile]
        .into_iter()
        .map(|body| {
            let name = format!("group_sort_{}", group_of(body));
            (name, KERNELS.text(body))
        })
}

/// Rows in the order of their keys, groups counted.
pub(super) struct Sorted {
    program: ProgramText,
    keys: Buffer<u32>,
    rows: Buffer<u32>,
    /// For every row the groups that begin before it.
    marks: Buffer<u32>,
    groups: usize,
}

impl Sorted {
    /// Sorts rows by the low `key_bits` of their keys: fewer bits, fewer passes.
    pub fn new(queue: &mut Queue, items: Items<'_>, key_bits: u32) -> Result<Self> {
        let program = KERNELS.text(queue.body());
        let (keys, rows) = sort(queue, &program, items, key_bits)?;
        let n = keys.len();
        // One element more than rows: its prefix sum is the number of groups.
        let marks = queue.allocate("group marks", n + 1)?;
        queue.fill(&marks, 0)?;
        let args = [Arg::Words(&keys), Arg::Words(&marks), Arg::U32(n as u32)];
        queue.launch(&program, "mark_groups", (n, GROUP), &args)?;
        scan::exclusive(queue, &marks, n + 1)?;
        let groups = queue.count((&marks, n), ("groups", n))?;
        Ok(Self {
            program,
            keys,
            rows,
            marks,
            groups,
        })
    }
}

impl Part for Sorted {
    fn size(&self) -> Size {
        Size {
            groups: self.groups,
            rows: self.rows.len(),
        }
    }

    fn emit(&self, queue: &mut Queue, to: &Groups, first: Size) -> Result<()> {
        let n = self.rows.len();
        let args = [
            Arg::Words(&self.keys),
            Arg::Words(&self.rows),
            Arg::Words(&self.marks),
            Arg::Words(&to.unique_keys),
            Arg::Words(&to.offsets),
            Arg::Words(&to.rows),
            Arg::U32(first.groups as u32),
            Arg::U32(first.rows as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(&self.program, "collect_groups", (n, GROUP), &args)
    }
}

/// The positions of `keys` in key order; those of equal keys ascend.
pub(super) fn order(queue: &mut Queue, keys: &Buffer<u32>) -> Result<Buffer<u32>> {
    let program = KERNELS.text(queue.body());
    let items = Items { keys, values: None };
    let (_, order) = sort(queue, &program, items, u32::BITS)?;
    Ok(order)
}

/// Keys and rows in key order; rows of equal keys keep their order.
fn sort(
    queue: &mut Queue,
    program: &ProgramText,
    items: Items<'_>,
    key_bits: u32,
) -> Result<(Buffer<u32>, Buffer<u32>)> {
    let pass = Pass::new(queue, program, items.keys.len());
    let mut pair = allocate_pair(queue, items.keys.len())?;
    move_by(queue, &pass, items, &pair, 0)?;
    let mut spare: Option<(Buffer<u32>, Buffer<u32>)> = None;
    let mut shift = RADIX_BITS;
    while shift < key_bits.min(32) {
        let out = match spare.take() {
            Some(out) => out,
            None => allocate_pair(queue, items.keys.len())?,
        };
        let source = Items {
            keys: &pair.0,
            values: Some(&pair.1),
        };
        move_by(queue, &pass, source, &out, shift)?;
        spare = Some(std::mem::replace(&mut pair, out));
        shift += RADIX_BITS;
    }
    Ok(pair)
}

fn allocate_pair(queue: &mut Queue, n: usize) -> Result<(Buffer<u32>, Buffer<u32>)> {
    Ok((
        queue.allocate("sorted keys", n)?,
        queue.allocate("sorted rows", n)?,
    ))
}

/// One digit of the sort.
fn move_by(
    queue: &mut Queue,
    pass: &Pass<'_>,
    items: Items<'_>,
    (keys, rows): &(Buffer<u32>, Buffer<u32>),
    shift: u32,
) -> Result<()> {
    let digit = Digit {
        table: None,
        by: shift,
    };
    let places = pass.places(queue, items.keys, digit)?;
    pass.scatter(queue, items, digit, &places, (keys, rows))
}
