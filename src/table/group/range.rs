//! Groups by ranges of hashed keys; the driver of `cl/group_range.cl`.
//!
//! ```text
//!  keys, rows ─split─▶ ranges ─group_range─▶ ordered, groups counted ─scan─▶ ─emit_groups─▶ Groups
//! ```
//!
//! Twice to four times as fast as the sort, as long as every range fits local memory, which has
//! room for 2.2 times the mean: up to about 70 rows a key. Scratch: 27 bytes a row.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::table::horton::{BucketSize, Items};
use crate::table::scan::{self, group_of};
use crate::table::split::{self, COUNTERS, Counter, Ranges, Rest, Shape, Split};

use super::Groups;

/// Buckets of a range; with 8 slots and [`LOAD`] 922 rows.
const RANGE: usize = 128;

/// Rows that a range has room for in local memory: 16 KiB.
const RANGE_ITEMS: usize = 2048;

/// Rows a slot. What they are split by are not buckets of a table, only parts of the keys' hashes.
const LOAD: f64 = 0.9;

const SEED: u32 = 0x9e37_79b9;

const PARTS: [(&str, &str); 1] = [("group_range.cl", include_str!("../../../cl/group_range.cl"))];

fn defines() -> [(&'static str, String); 2] {
    [
        ("RANGE", RANGE.to_string()),
        ("RANGE_ITEMS", RANGE_ITEMS.to_string()),
    ]
}

/// Every program of this module under the name of a file; see [`crate::table::programs`].
pub(super) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    [KernelBody::Chunk, KernelBody::LocalTile]
        .into_iter()
        .map(|body| {
            let rest = Rest {
                defines: &defines(),
                parts: &PARTS,
            };
            let text = split::text("group by range", BucketSize::Eight, body, 4096, &rest);
            (format!("group_range_{}", group_of(body)), text)
        })
}

/// Groups `keys`; `None` if some range or key has too many rows.
pub(super) fn group(
    queue: &mut Queue,
    keys: &Buffer<u32>,
    rows: Option<&Buffer<u32>>,
) -> Result<Option<Groups>> {
    let rest = Rest {
        defines: &defines(),
        parts: &PARTS,
    };
    let program = split::program(queue, "group by range", BucketSize::Eight, &rest);
    let n = keys.len();
    let slots = BucketSize::Eight.slots() as f64;
    let shape = Shape {
        bucket_size: BucketSize::Eight,
        buckets: (n as f64 / (slots * LOAD)).ceil().max(1.0) as u32,
        seed: SEED,
        range: RANGE,
        capacity: RANGE_ITEMS,
    };
    let counters = queue.allocate("grouping counters", COUNTERS)?;
    queue.fill(&counters, 0)?;
    let spare = queue.allocate("coarse bins", shape.spare_words())?;
    let items = Items { keys, values: rows };
    let split = Split::new(queue, &program, shape, items, (&spare, &counters))?;
    split.finish(queue, 0..split.bins())?;
    if queue.read(&counters, COUNTERS)?[Counter::Crowded as usize] > 0 {
        return Ok(None);
    }
    let ranges = split.ranges;
    drop(spare);
    let grouper = RangeGrouper {
        program: &program,
        group: scan::local_group(queue),
        shape,
    };
    grouper.run(queue, &ranges, &counters, n)
}

struct RangeGrouper<'a> {
    program: &'a ProgramText,
    group: usize,
    shape: Shape,
}

impl RangeGrouper<'_> {
    /// Groups the items of every range, whose counts become the rows before it; `None` if a key
    /// has too many rows.
    fn run(
        &self,
        queue: &mut Queue,
        split: &Ranges,
        counters: &Buffer<u32>,
        n: usize,
    ) -> Result<Option<Groups>> {
        let (items, counts) = (&split.items, &split.counts);
        let ranges = self.shape.ranges();
        let grid = (ranges * self.group, self.group);
        // One more than ranges: its prefix sum is the number of groups.
        let group_starts = queue.allocate("groups by range", ranges + 1)?;
        queue.fill(&group_starts, 0)?;
        let args = [
            Arg::Longs(items),
            Arg::Words(counts),
            Arg::Words(&group_starts),
            Arg::Words(counters),
            Arg::U32(self.shape.buckets),
            Arg::U32(self.shape.seed),
        ];
        queue.launch(self.program, "group_range", grid, &args)?;
        if queue.read(counters, COUNTERS)?[Counter::Crowded as usize] > 0 {
            return Ok(None);
        }
        scan::exclusive(queue, counts, ranges)?;
        scan::exclusive(queue, &group_starts, ranges + 1)?;
        let mut groups = [0u32];
        queue.download(&group_starts, ranges, &mut groups)?;
        let found = Groups::allocate(queue, groups[0] as usize, n)?;
        let args = [
            Arg::Longs(items),
            Arg::Words(counts),
            Arg::Words(&group_starts),
            Arg::Words(&found.unique_keys),
            Arg::Words(&found.offsets),
            Arg::Words(&found.rows),
            Arg::U32(ranges as u32),
            Arg::U32(n as u32),
        ];
        queue.launch(self.program, "emit_groups", grid, &args)?;
        Ok(Some(found))
    }
}
