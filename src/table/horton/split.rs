//! Splits items into ranges of buckets on the device; the driver of `cl/split.cl`.
//!
//! ```text
//!  keys, values ─▶ coarse bins ─▶ … ─▶ ranges of RANGE buckets, each with room for
//!                  in the table's        mean + 8 σ items
//!                  own memory
//! ```
//!
//! Every level splits a bin into at most [`MAX_BINS`]. A coarse bin stands in the memory of its own
//! buckets, which the build fills only later, so that a split of any depth needs one
//! scratch buffer. Levels alternate between the two and end in scratch.

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};

use super::build::Items;
use super::kernels;
use super::layout::Layout;

/// Bins that one level splits a bin into; more would leave a work-group's tile too few
/// items a bin to write them in whole cache lines.
pub(super) const MAX_BINS: usize = 512;

/// Items by range of buckets: `counts[r]` items from `r * capacity`, in any order.
pub(super) struct Ranges {
    pub items: Buffer<u64>,
    pub counts: Buffer<u32>,
    pub capacity: u32,
    pub ranges: usize,
}

/// Bins of one level: `ranges` ranges each, or fewer in the last.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level {
    /// Base-2 logarithm of the ranges of a bin.
    ranges_log2: u32,
    /// Bins that a bin of the level before is split into.
    fan_out: usize,
}

/// The levels for so many ranges, coarsest first: equal fan-outs, powers of two.
fn levels(ranges: usize) -> Vec<Level> {
    let bits = ranges.next_power_of_two().trailing_zeros();
    let most = MAX_BINS.trailing_zeros();
    let count = bits.div_ceil(most).max(1);
    let mut left = bits;
    (0..count)
        .map(|level| {
            let taken = left.div_ceil(count - level);
            left -= taken;
            Level {
                ranges_log2: left,
                fan_out: 1 << taken,
            }
        })
        .collect()
}

/// Splits `items` for a table of `layout` whose words are `table`, which is overwritten.
pub(super) struct Split<'a> {
    pub program: &'a ProgramText,
    pub layout: Layout,
    pub table: &'a Buffer<u64>,
    pub counters: &'a Buffer<u32>,
    /// Work-group size.
    pub group: usize,
}

/// Where a level reads or writes: `counts[b]` items from `b * capacity`.
struct Bins<'a> {
    items: &'a Buffer<u64>,
    counts: Buffer<u32>,
    capacity: usize,
}

impl Split<'_> {
    pub fn run(&self, queue: &mut Queue, items: Items<'_>) -> Result<Ranges> {
        let range_buckets = kernels::range(self.layout.bucket_size);
        let ranges = (self.layout.buckets as usize).div_ceil(range_buckets);
        let capacity = self.range_capacity(items.keys.len());
        let scratch = queue.allocate("build items by range", ranges * capacity)?;
        let levels = levels(ranges);
        let mut source: Option<Bins<'_>> = None;
        for (depth, level) in levels.iter().enumerate() {
            let (to, range_capacity) = match (levels.len() - depth) % 2 {
                1 => (&scratch, capacity),
                _ => (self.table, range_buckets * self.layout.slots()),
            };
            let bins = ranges.div_ceil(1 << level.ranges_log2);
            let bins = Bins {
                items: to,
                counts: queue.allocate("bin counts", bins)?,
                capacity: range_capacity << level.ranges_log2,
            };
            queue.fill(&bins.counts, 0)?;
            self.level(queue, items, source.as_ref(), level, &bins)?;
            source = Some(bins);
        }
        let counts = match source {
            Some(bins) => bins.counts,
            None => return Err(Error::Invalid("a split has no level".to_owned())),
        };
        Ok(Ranges {
            items: scratch,
            counts,
            capacity: capacity as u32,
            ranges,
        })
    }

    /// Room for the items of a range: hashed keys are spread like balls over bins, so eight
    /// standard deviations above the mean are never reached, unless keys repeat.
    fn range_capacity(&self, n: usize) -> usize {
        let range = kernels::range(self.layout.bucket_size) as f64;
        let mean = n as f64 * (range / f64::from(self.layout.buckets)).min(1.0);
        ((mean + 8.0 * mean.sqrt()) as usize + 64).next_multiple_of(16)
    }

    /// Splits every bin of `from`, or the keys themselves, into `to`.
    fn level(
        &self,
        queue: &mut Queue,
        items: Items<'_>,
        from: Option<&Bins<'_>>,
        level: &Level,
        to: &Bins<'_>,
    ) -> Result<()> {
        let (bins, capacity) = match from {
            Some(from) => (from.counts.len(), from.capacity),
            None => (1, items.keys.len()),
        };
        let tiles = capacity.div_ceil(kernels::split_tile(queue.info()));
        let shift = level.ranges_log2 + kernels::range(self.layout.bucket_size).trailing_zeros();
        let end = |items: &Buffer<u64>| Arg::U32((items.len() / self.layout.slots()) as u32);
        let args = [
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            from.map_or(Arg::Null, |from| Arg::Longs(from.items)),
            from.map_or(Arg::Null, |from| Arg::Words(&from.counts)),
            Arg::Longs(to.items),
            Arg::Words(&to.counts),
            Arg::Words(self.counters),
            Arg::U32(capacity as u32),
            from.map_or(Arg::U32(0), |from| end(from.items)),
            Arg::U32(tiles as u32),
            Arg::U32(level.fan_out as u32),
            Arg::U32(shift),
            Arg::U32(to.capacity as u32),
            end(to.items),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        let work_items = bins * tiles * self.group;
        queue.launch(self.program, "split", (work_items, self.group), &args)
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
            let levels = levels(ranges);
            let bins: usize = levels.iter().map(|level| level.fan_out).product();
            assert!(bins >= ranges && bins < 2 * ranges.max(1), "{ranges}");
            assert!(levels.iter().all(|level| level.fan_out <= MAX_BINS));
            assert_eq!(levels.last().map(|level| level.ranges_log2), Some(0));
        }
    }
}
