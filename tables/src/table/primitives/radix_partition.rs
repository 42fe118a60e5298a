//! A radix partition: splits items into ranges of buckets on the device; the host side of
//! `cl/primitives/radix_partition.cl`.
//!
//! ```text
//!  keys, values ─▶ coarse bins ─▶ … ─▶ ranges of buckets, each with room for
//!                  in the spare        `capacity` items, in scratch memory
//!                  memory
//! ```
//!
//! Every level splits a bin into at most [`MAX_BINS`]. A coarse bin stands in spare memory, where
//! the words of its own buckets do: a build spares the table that it will fill later. So a split of
//! any depth needs one scratch buffer. Levels alternate between the two and end in scratch.

use std::ops::Range;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, DeviceInfo, KernelBody, Queue};
use crate::error::Result;
use crate::kernel_sources;
use crate::table::api::Items;
use crate::table::launch::group_of;

use super::bucket::{self, BucketSize, Variant};

/// Bins that one level splits a bin into; more would leave a work-group's tile too few items per
/// bin to write them in whole cache lines.
const MAX_BINS: usize = 512;

/// Local memory that a tile of 4096 items needs, in bytes.
const LARGE_TILE_MEMORY: u64 = 40 << 10;

/// Words beyond those of all buckets: eight standard deviations of any last coarse bin exceed its
/// own words by 784 at most, up to load 0.98.
const LAST_BIN_SLACK: usize = 1024;

/// Standard deviations above the mean that one coarse bin of hashed keys in 30,000 exceeds.
const SUSPICIOUS: f64 = 4.0;

/// The mark for no item and no bucket.
pub(crate) const NONE: u32 = u32::MAX;

/// Indices of the counters that the kernels share.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Repeats,
    Crowded,
    Overflow,
    Overflowing,
    Stragglers,
}

/// Counters in all.
pub(crate) const COUNTERS: usize = 5;

impl Counter {
    const ALL: [(&str, Counter); COUNTERS] = [
        ("REPEATS", Counter::Repeats),
        ("CROWDED", Counter::Crowded),
        ("OVERFLOW", Counter::Overflow),
        ("OVERFLOWING", Counter::Overflowing),
        ("STRAGGLERS", Counter::Stragglers),
    ];

    /// Returns the defines by which kernels name them.
    pub fn defines() -> [(&'static str, String); COUNTERS] {
        Self::ALL.map(|(name, counter)| (name, (counter as usize).to_string()))
    }
}

/// Returns the number of items of a tile.
fn tile(info: &DeviceInfo) -> usize {
    if info.local_memory >= LARGE_TILE_MEMORY {
        4096
    } else {
        2048
    }
}

/// The text that comes after `cl/primitives/radix_partition.cl` in a program.
pub(crate) struct Rest<'a> {
    pub defines: &'a [(&'static str, String)],
    /// File names and texts.
    pub parts: &'a [(&'static str, &'static str)],
}

/// Returns a program that splits, and then does what `rest` does.
pub(crate) fn program(
    queue: &Queue,
    name: &'static str,
    variant: impl Into<Variant>,
    rest: &Rest<'_>,
) -> ProgramText {
    text(name, variant, queue.body(), tile(queue.info()), rest)
}

/// Returns the same for no device in particular.
pub(crate) fn text(
    name: &'static str,
    variant: impl Into<Variant>,
    body: KernelBody,
    tile: usize,
    rest: &Rest<'_>,
) -> ProgramText {
    let group = group_of(body);
    let mut defines = bucket::defines(variant.into(), false);
    defines.extend([
        ("NONE", format!("{NONE:#x}u")),
        ("WORD", "uint".to_owned()),
        ("ONE_ITEM", u8::from(group == 1).to_string()),
        ("MAX_BINS", MAX_BINS.to_string()),
        ("SPLIT_GROUP", group.to_string()),
        ("SPLIT_TILE", tile.to_string()),
    ]);
    defines.extend(Counter::defines());
    defines.extend_from_slice(rest.defines);
    let mut parts = vec![
        kernel_sources::HASH,
        kernel_sources::BUCKET,
        kernel_sources::LOCAL,
        kernel_sources::RADIX_PARTITION,
    ];
    parts.extend_from_slice(rest.parts);
    ProgramText::new(name, &defines, &parts)
}

/// The shape that items are split by: their primary buckets in a table of so many buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub bucket_size: BucketSize,
    pub buckets: u32,
    pub seed: u32,
    /// Buckets of a range, a power of two.
    pub range: usize,
    /// Items that a range has room for.
    pub capacity: usize,
}

impl Shape {
    pub fn ranges(&self) -> usize {
        (self.buckets as usize).div_ceil(self.range)
    }

    /// Returns the words of spare memory that a split needs: none if it has one level; else the
    /// words of all buckets and some more, as the last coarse bin may have few buckets, and few
    /// vary much.
    pub fn spare_words(&self) -> usize {
        if levels(self.ranges()).0.is_empty() {
            0
        } else {
            self.buckets as usize * self.bucket_size.slots() + LAST_BIN_SLACK
        }
    }
}

/// Bins of one level: `1 << ranges_log2` ranges each, or fewer in the last.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    ranges_log2: u32,
    /// Bins that a bin of the level before is split into.
    fan_out: usize,
}

/// Returns the last level for so many ranges, and those before it, coarsest first: fan-outs as
/// equal as powers of two can be.
fn levels(ranges: usize) -> (Vec<Level>, Level) {
    let bits = ranges.next_power_of_two().trailing_zeros();
    let count = bits.div_ceil(MAX_BINS.trailing_zeros()).max(1);
    let mut left = bits;
    let coarse = (1..count).map(|level| {
        let taken = left.div_ceil(count - level + 1);
        left -= taken;
        Level {
            ranges_log2: left,
            fan_out: 1 << taken,
        }
    });
    let coarse = coarse.collect();
    let last = Level {
        ranges_log2: 0,
        fan_out: 1 << left,
    };
    (coarse, last)
}

/// Items by range: `counts[r]` items, or `capacity` if that is less, from `r * capacity`, in
/// any order.
pub(crate) struct Ranges {
    pub items: Buffer<u64>,
    pub counts: Buffer<u32>,
    pub shape: Shape,
}

impl Ranges {
    fn new(queue: &mut Queue, shape: Shape) -> Result<Self> {
        let ranges = shape.ranges();
        let counts = queue.allocate("range counts", ranges)?;
        queue.fill(&counts, 0)?;
        Ok(Self {
            items: queue.allocate("items by range", ranges * shape.capacity)?,
            counts,
            shape,
        })
    }
}

/// The bins that a level writes items to: bins of `capacity` items each, and how many each has.
struct Target<'a> {
    items: &'a Buffer<u64>,
    counts: &'a Buffer<u32>,
    capacity: usize,
}

/// The bins of a coarse level: `counts[b]` items from `b * capacity`, or what there is room for.
struct Bins {
    in_scratch: bool,
    ranges_log2: u32,
    counts: Buffer<u32>,
    capacity: usize,
}

/// A split about to do its last level.
pub(crate) struct Split<'a> {
    program: &'a ProgramText,
    items: Items<'a>,
    spare: &'a Buffer<u64>,
    counters: &'a Buffer<u32>,
    group: usize,
    coarse: Vec<Bins>,
    last: Level,
    pub ranges: Ranges,
}

impl<'a> Split<'a> {
    /// Allocates the ranges and does all levels but the last. `spare` has
    /// [`spare_words`](Shape::spare_words) words, which are overwritten; `counters` has
    /// [`COUNTERS`].
    pub fn new(
        queue: &mut Queue,
        program: &'a ProgramText,
        shape: Shape,
        items: Items<'a>,
        (spare, counters): (&'a Buffer<u64>, &'a Buffer<u32>),
    ) -> Result<Self> {
        let (coarse, last) = levels(shape.ranges());
        let mut split = Self {
            program,
            items,
            spare,
            counters,
            group: group_of(queue.body()),
            coarse: Vec::with_capacity(coarse.len()),
            last,
            ranges: Ranges::new(queue, shape)?,
        };
        for (depth, level) in coarse.iter().enumerate() {
            let bins = shape.ranges().div_ceil(1 << level.ranges_log2);
            let in_scratch = (coarse.len() - depth) % 2 == 0;
            let range_capacity = if in_scratch {
                shape.capacity
            } else {
                shape.range * shape.bucket_size.slots()
            };
            let to = Bins {
                in_scratch,
                ranges_log2: level.ranges_log2,
                counts: queue.allocate("bin counts", bins)?,
                capacity: range_capacity << level.ranges_log2,
            };
            queue.fill(&to.counts, 0)?;
            let to_items = split.items_of(in_scratch);
            let target = Target {
                items: to_items,
                counts: &to.counts,
                capacity: to.capacity,
            };
            split.level(queue, 0..split.bins(), level, target)?;
            split.coarse.push(to);
        }
        Ok(split)
    }

    /// Returns the number of coarse bins that the last level splits.
    pub fn bins(&self) -> usize {
        self.coarse.last().map_or(1, |bins| bins.counts.len())
    }

    /// Returns the coarse bin to look at first for keys that repeat: the fullest, if hashing alone
    /// would hardly fill it so; else, as all are alike, the first.
    pub fn suspect_bin(&self, queue: &mut Queue) -> Result<usize> {
        let Some(bins) = self.coarse.last() else {
            return Ok(0);
        };
        let counts = queue.read(&bins.counts, bins.counts.len())?;
        let fullest = (0..counts.len()).max_by_key(|bin| counts[*bin]);
        let shape = &self.ranges.shape;
        let buckets = (shape.range << bins.ranges_log2) as f64;
        let mean = self.items.keys.len() as f64 * buckets / f64::from(shape.buckets);
        let expected = mean + SUSPICIOUS * mean.sqrt();
        Ok(fullest
            .filter(|bin| f64::from(counts[*bin]) > expected)
            .unwrap_or(0))
    }

    /// Returns where bins in a buffer end, in units of a bucket's items.
    fn end_of(&self, items: &Buffer<u64>) -> u32 {
        (items.len() / self.ranges.shape.bucket_size.slots()) as u32
    }

    /// Splits some of the coarse bins; returns their ranges.
    pub fn finish(&self, queue: &mut Queue, bins: Range<usize>) -> Result<Range<usize>> {
        let ranges = &self.ranges;
        let target = Target {
            items: &ranges.items,
            counts: &ranges.counts,
            capacity: ranges.shape.capacity,
        };
        self.level(queue, bins.clone(), &self.last, target)?;
        let all = ranges.shape.ranges();
        let first_range = |bin: usize| (bin * self.last.fan_out).min(all);
        Ok(first_range(bins.start)..first_range(bins.end))
    }

    fn items_of(&self, in_scratch: bool) -> &Buffer<u64> {
        if in_scratch {
            &self.ranges.items
        } else {
            self.spare
        }
    }

    /// Splits some bins of the last coarse level, or the keys themselves.
    fn level(
        &self,
        queue: &mut Queue,
        bins: Range<usize>,
        level: &Level,
        to: Target<'_>,
    ) -> Result<()> {
        let shape = &self.ranges.shape;
        let from = self.coarse.last();
        let capacity = from.map_or(self.items.keys.len(), |from| from.capacity);
        let from_items = from.map(|from| self.items_of(from.in_scratch));
        let tiles = capacity.div_ceil(tile(queue.info()));
        let shift = level.ranges_log2 + shape.range.trailing_zeros();
        let args = [
            Arg::Words(self.items.keys),
            self.items.values.map_or(Arg::Null, Arg::Words),
            from_items.map_or(Arg::Null, Arg::Longs),
            from.map_or(Arg::Null, |from| Arg::Words(&from.counts)),
            Arg::Longs(to.items),
            Arg::Words(to.counts),
            Arg::Words(self.counters),
            Arg::U32(bins.start as u32),
            Arg::U32(capacity as u32),
            Arg::U32(from_items.map_or(0, |items| self.end_of(items))),
            Arg::U32(tiles as u32),
            Arg::U32(level.fan_out as u32),
            Arg::U32(shift),
            Arg::U32(to.capacity as u32),
            Arg::U32(self.end_of(to.items)),
            Arg::U32(shape.buckets),
            Arg::U32(shape.seed),
        ];
        let work_items = bins.len() * tiles * self.group;
        let kernel = match self.group {
            1 => "split_chunk",
            _ => "split",
        };
        queue.launch(self.program, kernel, (work_items, self.group), &args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_cover_the_ranges_with_few_bins_each() {
        for ranges in [
            1,
            2,
            3,
            511,
            512,
            513,
            32_768,
            1 << 18,
            (1 << 18) + 1,
            1 << 21,
        ] {
            let (coarse, last) = levels(ranges);
            let all = || coarse.iter().chain([&last]);
            let bins: usize = all().map(|level| level.fan_out).product();
            assert!(bins >= ranges && bins < 2 * ranges.max(1), "{ranges}");
            assert!(all().all(|level| level.fan_out <= MAX_BINS));
            assert_eq!(last.ranges_log2, 0);
        }
    }
}
