//! Groups by ranges of hashed keys; the driver of `cl/primitives/group/range.cl`.
//!
//! ```text
//!  keys, rows ─split─▶ ranges ─group_range─▶ ordered, groups counted ─scan─▶ ─emit_groups─▶ groups
//!                         └─▶ crowded ranges ─radix_pass─▶ their keys, rows, for the sort
//! ```
//!
//! Twice to four times as fast as the sort, as long as a range fits local memory, which has room
//! for 2.2 times the mean: up to about 70 rows a key. A range that does not, and all ranges of a
//! coarse bin that overflows, are crowded: what the split kept of their rows is ignored, and one
//! stable pass over the input picks the rows again. Scratch: 27 bytes a row, and 8 for every
//! crowded one.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, KernelBody, Queue};
use crate::error::Result;
use crate::sources;
use crate::table::api::Items;
use crate::table::launch::{GROUP, group_of, local_group};
use crate::table::primitives::bucket::BucketSize;
use crate::table::primitives::hash::{self, Reduction};
use crate::table::primitives::scan;
use crate::table::primitives::split::{self, COUNTERS, Rest, Shape, Split};

use super::groups::{Groups, Part, Size};
use super::pass::{Digit, Kernels, Pass};

/// Buckets of a range; with 8 slots and [`LOAD`] 922 rows.
const RANGE: usize = 128;

/// Rows that a range has room for in local memory: 16 KiB.
const RANGE_ITEMS: usize = 2048;

/// Rows a slot. What they are split by are not buckets of a table, only parts of the keys' hashes.
const LOAD: f64 = 0.9;

const SEED: u32 = 0x9e37_79b9;

const PARTS: [(&str, &str); 1] = [sources::GROUP_RANGE];

const DIGIT: [(&str, &str); 2] = [sources::HASH, sources::DIGIT_OF_RANGE];

fn defines() -> [(&'static str, String); 2] {
    [
        ("RANGE", RANGE.to_string()),
        ("RANGE_ITEMS", RANGE_ITEMS.to_string()),
    ]
}

/// The program that picks rows of crowded ranges.
fn pick_text(body: KernelBody) -> ProgramText {
    let mut defines = hash::defines(Reduction::MultiplyHigh);
    defines.extend([
        ("RANGE", RANGE.to_string()),
        ("SEED", format!("{SEED:#x}u")),
    ]);
    let kernels = Kernels {
        name: "pick crowded ranges",
        defines: &defines,
        digit: &DIGIT,
        rest: &[],
    };
    kernels.text(body)
}

/// Every program of this module under the name of a file; see [`crate::table::programs`].
pub(super) fn programs() -> impl Iterator<Item = (String, ProgramText)> {
    let bodies = [KernelBody::Chunk, KernelBody::LocalTile];
    bodies.into_iter().flat_map(|body| {
        let rest = Rest {
            defines: &defines(),
            parts: &PARTS,
        };
        let text = split::text("group by range", BucketSize::Eight, body, 4096, &rest);
        let group = group_of(body);
        [
            (format!("group_range_{group}"), text),
            (format!("pick_crowded_{group}"), pick_text(body)),
        ]
    })
}

fn shape(n: usize) -> Shape {
    let slots = BucketSize::Eight.slots() as f64;
    Shape {
        bucket_size: BucketSize::Eight,
        buckets: (n as f64 / (slots * LOAD)).ceil().max(1.0) as u32,
        seed: SEED,
        range: RANGE,
        capacity: RANGE_ITEMS,
    }
}

/// Distinct keys that all belong to the first of the ranges that `rows` rows are split by.
pub(super) fn crowding_keys(rows: usize, keys: usize) -> Vec<u32> {
    let shape = shape(rows);
    let range_of = |key: u32| {
        let hash = hash::primary_hash(key, shape.seed);
        Reduction::MultiplyHigh.reduce(hash, shape.buckets) as usize / shape.range
    };
    let crowding = (0..=u32::MAX).filter(|key| range_of(*key) == 0);
    crowding.take(keys).collect()
}

/// Rows by range, ordered within each that is not crowded, groups counted.
pub(super) struct Ranged {
    program: ProgramText,
    group: usize,
    shape: Shape,
    items: Buffer<u64>,
    /// A bit a range: whether it is left out.
    crowded: Buffer<u32>,
    /// Rows before each range, and in all.
    row_starts: Buffer<u32>,
    /// Groups before each range, and in all.
    group_starts: Buffer<u32>,
    size: Size,
}

impl Ranged {
    /// Groups what is not in crowded ranges.
    pub fn new(queue: &mut Queue, items: Items<'_>) -> Result<Self> {
        let rest = Rest {
            defines: &defines(),
            parts: &PARTS,
        };
        let program = split::program(queue, "group by range", BucketSize::Eight, &rest);
        let shape = shape(items.keys.len());
        let ranges = shape.ranges();
        let split = SplitItems::new(queue, &program, shape, items)?;
        let mut ranged = Self {
            program,
            group: local_group(queue),
            shape,
            items: split.items,
            crowded: queue.allocate("crowded ranges", ranges.div_ceil(32))?,
            row_starts: queue.allocate("rows by range", ranges + 1)?,
            group_starts: queue.allocate("groups by range", ranges + 1)?,
            size: Size::default(),
        };
        let n = items.keys.len();
        ranged.order(queue, (&split.counts, &split.incomplete), n)?;
        Ok(ranged)
    }

    fn grid(&self) -> (usize, usize) {
        (self.shape.ranges() * self.group, self.group)
    }

    /// Orders every range's items, of `n` in all, and counts its groups.
    fn order(
        &mut self,
        queue: &mut Queue,
        (counts, incomplete): (&Buffer<u32>, &Buffer<u32>),
        n: usize,
    ) -> Result<()> {
        let ranges = self.shape.ranges();
        let starts = [&self.row_starts, &self.group_starts];
        for zeroed in [&self.crowded, starts[0], starts[1]] {
            queue.fill(zeroed, 0)?;
        }
        let args = [
            Arg::Longs(&self.items),
            Arg::Words(counts),
            Arg::Words(incomplete),
            Arg::Words(&self.crowded),
            Arg::Words(&self.row_starts),
            Arg::Words(&self.group_starts),
            Arg::U32(self.shape.buckets),
            Arg::U32(self.shape.seed),
        ];
        queue.launch(&self.program, "group_range", self.grid(), &args)?;
        let mut total = |starts, what| {
            scan::exclusive(queue, starts, ranges + 1)?;
            queue.count((starts, ranges), what)
        };
        let rows = total(&self.row_starts, ("rows in ranges", n))?;
        let groups = total(&self.group_starts, ("groups", rows))?;
        self.size = Size { rows, groups };
        Ok(())
    }

    /// Keys and rows of the crowded ranges, in their order; `None` if there are none.
    pub fn crowded_rows(
        &self,
        queue: &mut Queue,
        items: Items<'_>,
    ) -> Result<Option<(Buffer<u32>, Buffer<u32>)>> {
        let n = items.keys.len();
        let left = n - self.size.rows;
        if left == 0 {
            return Ok(None);
        }
        let program = pick_text(queue.body());
        let digit = Digit {
            table: Some(&self.crowded),
            by: self.shape.buckets,
        };
        let pass = Pass::new(queue, &program, n);
        let places = pass.places(queue, items.keys, digit)?;
        let keys = queue.allocate("crowded keys", left)?;
        let rows = queue.allocate("crowded rows", left)?;
        pass.scatter(queue, items, digit, &places, (&keys, &rows))?;
        Ok(Some((keys, rows)))
    }
}

impl Part for Ranged {
    fn size(&self) -> Size {
        self.size
    }

    fn emit(&self, queue: &mut Queue, to: &Groups, first: Size) -> Result<()> {
        let args = [
            Arg::Longs(&self.items),
            Arg::Words(&self.row_starts),
            Arg::Words(&self.group_starts),
            Arg::Words(&to.unique_keys),
            Arg::Words(&to.offsets),
            Arg::Words(&to.rows),
            Arg::U32(first.groups as u32),
            Arg::U32(first.rows as u32),
        ];
        queue.launch(&self.program, "emit_groups", self.grid(), &args)
    }
}

/// Items by range, before they are ordered.
struct SplitItems {
    items: Buffer<u64>,
    counts: Buffer<u32>,
    /// Not 0 for ranges of coarse bins that overflow.
    incomplete: Buffer<u32>,
}

impl SplitItems {
    fn new(
        queue: &mut Queue,
        program: &ProgramText,
        shape: Shape,
        items: Items<'_>,
    ) -> Result<Self> {
        // Nobody asks how much did not fit: the counts of bins and ranges say where.
        let counters = queue.allocate("split counters", COUNTERS)?;
        queue.fill(&counters, 0)?;
        let spare = queue.allocate("coarse bins", shape.spare_words())?;
        let split = Split::new(queue, program, shape, items, (&spare, &counters))?;
        let ranges = shape.ranges();
        let incomplete = queue.allocate("incomplete ranges", ranges)?;
        queue.fill(&incomplete, 0)?;
        for bins in split.coarse() {
            let args = [
                Arg::Words(bins.counts),
                Arg::Words(&incomplete),
                Arg::U32(ranges as u32),
                Arg::U32(bins.ranges_log2),
                Arg::U32(bins.capacity as u32),
                Arg::U32(bins.end),
            ];
            queue.launch(program, "mark_incomplete", (ranges, GROUP), &args)?;
        }
        split.finish(queue, 0..split.bins())?;
        Ok(Self {
            items: split.ranges.items,
            counts: split.ranges.counts,
            incomplete,
        })
    }
}
