//! Bulk build of a Horton table on the device.
//!
//! ```text
//!  keys, values ─split─▶ items by range of buckets (table/primitives/radix_partition.rs)
//!               ─fill_range─▶ primary slots, overflow by bucket; a key twice? ──▶ Repeats
//!               ─place─▶ Type B buckets, remapped items, stragglers (0.4 % at load 0.95)
//!               ─displace─▶ no stragglers (displace.rs)
//!               ─census─▶ what the table is made of
//! ```
//!
//! The paper inserts serially on the CPU (section 7); here each phase is a kernel over all items,
//! ranges or overflowing buckets (`cl/horton/build.cl`). A build that leaves stragglers is tried
//! again with another seed, then with more buckets, [`ATTEMPTS`] times in all. Scratch
//! memory: about 14 bytes per key and 13 per bucket.
//!
//! Displacement alone needs 64-bit atomics. A device without them builds tables at loads that leave
//! no stragglers (`most_load`); should there be some even so, that is another attempt.

use std::ops::Range;

use crate::device::program::ProgramText;
use crate::device::{Arg, Buffer, Device, Queue};
use crate::error::{Error, Result};
use crate::table::api::{ATTEMPTS, Items, WhenFull};
use crate::table::horton::kernels;
use crate::table::launch::local_group;
use crate::table::primitives::bucket::{BucketSize, Layout, MAX_VALUE};
use crate::table::primitives::radix_partition::{COUNTERS, Counter, Ranges, Shape, Split};

use super::displace::Stragglers;
use super::phases::{Overflow, Phases, RECORD_WORDS, census};
use super::table::{HortonTable, TableConfig};

/// Attempts with the first size.
const SEEDS_BEFORE_GROWTH: usize = 2;

/// The result of a bulk build.
#[derive(Debug)]
pub enum Built {
    /// A table with every key in it.
    Table(HortonTable),
    /// Some key is there more than once: build over groups instead.
    Repeats,
}

/// The result of one attempt.
enum Attempt {
    Done(Built),
    /// Number of items that found no slot.
    Rejected(usize),
}

/// Builds a table of `items`, whose values are at most [`MAX_VALUE`], on the queue's device.
///
/// # Errors
/// [`Error::TooManyRows`]; [`Error::TableFull`] if some keys have no slot after [`ATTEMPTS`]
/// attempts, [`Error::DeviceMemory`], and OpenCL's own.
pub fn build(queue: &mut Queue, config: &TableConfig, items: Items<'_>) -> Result<Built> {
    config.check()?;
    let n = items.keys.len();
    let limit = MAX_VALUE as usize;
    if n > limit {
        return Err(Error::TooManyRows { rows: n, limit });
    }
    let program = kernels::build_program(queue, config.variant());
    let mut rejected = 0;
    let mut buckets = 0;
    // Without leave to grow, only other seeds are tried.
    let attempts = match config.when_full {
        WhenFull::Grow => ATTEMPTS,
        WhenFull::Reject => SEEDS_BEFORE_GROWTH,
    };
    let config = &TableConfig {
        load_factor: config.load_factor.min(most_load(queue, config.bucket_size)),
        ..*config
    };
    for attempt in 0..attempts {
        let layout = layout(config, n, attempt)?;
        buckets = layout.buckets as usize;
        match Builder::new(queue, &program, layout, items)?.attempt(queue)? {
            Attempt::Done(built) => return Ok(built),
            Attempt::Rejected(count) => rejected = count,
        }
        log::debug!(
            "{rejected} of {n} keys did not fit into {buckets} buckets (attempt {attempt})"
        );
    }
    Err(Error::TableFull {
        keys: n,
        rejected,
        buckets,
        attempts,
    })
}

/// Returns the highest load that a build can reach. Without displacement it is one that leaves no
/// stragglers. Of a hundred million items in one table there were none up to 0.85 with 8 slots. Of
/// 15 to 19 million there were none up to 0.6 with 4 slots, and 0.9 with 16.
fn most_load(queue: &Queue, bucket_size: BucketSize) -> f64 {
    match bucket_size {
        _ if queue.info().has_int64_atomics() => 1.0,
        BucketSize::Four => 0.6,
        BucketSize::Eight => 0.85,
        BucketSize::Sixteen => 0.9,
    }
}

/// Returns the shape of an attempt: first another seed, then 2, 4, 8, … % more buckets.
pub(crate) fn layout(config: &TableConfig, n: usize, attempt: usize) -> Result<Layout> {
    let slots = config.bucket_size.slots() as f64;
    let growth = match attempt {
        0..SEEDS_BEFORE_GROWTH => 0.0,
        more => 0.01 * (1u32 << (more - 1)) as f64,
    };
    let spare = attempt.saturating_sub(1);
    let buckets = (n as f64 / (slots * config.load_factor) * (1.0 + growth)).ceil() as u64;
    let least = config.min_capacity.div_ceil(config.bucket_size.slots());
    let buckets = buckets.max(1).max(least as u64) + spare as u64;
    let buckets = u32::try_from(buckets)
        .map_err(|_| Error::Invalid(format!("{n} keys need more than 2^32 buckets")))?;
    Ok(Layout {
        bucket_size: config.bucket_size,
        buckets,
        seed: config
            .seed
            .wrapping_add((attempt as u32).wrapping_mul(0x9e37_79b9)),
        reduction: config.reduction,
    })
}

/// One attempt: the table, and what its phases share.
struct Builder<'a> {
    program: &'a ProgramText,
    layout: Layout,
    items: Items<'a>,
    words: Buffer<u64>,
    counters: Buffer<u32>,
    /// Size of work-groups that work in local memory.
    group: usize,
}

impl<'a> Builder<'a> {
    fn new(
        queue: &mut Queue,
        program: &'a ProgramText,
        layout: Layout,
        items: Items<'a>,
    ) -> Result<Self> {
        let group = local_group(queue);
        let room = layout
            .words()
            .max(shape(&layout, items.keys.len()).spare_words());
        let words = queue.allocate_table("a Horton table", room)?;
        let counters = queue.allocate("build counters", COUNTERS)?;
        queue.fill(&counters, 0)?;
        Ok(Self {
            program,
            layout,
            items,
            words,
            counters,
            group,
        })
    }

    fn attempt(self, queue: &mut Queue) -> Result<Attempt> {
        let overflow = self.overflow(queue)?;
        let counts = self.fill_ranges(queue, &overflow)?;
        let count = |counter: Counter| counts[counter as usize] as usize;
        if count(Counter::Repeats) > 0 {
            return Ok(Attempt::Done(Built::Repeats));
        }
        if count(Counter::Crowded) > 0 {
            return Ok(Attempt::Rejected(count(Counter::Crowded)));
        }
        // Every overflowing bucket loses a slot to its entries.
        let wanted = self.items.keys.len() + count(Counter::Overflowing);
        if wanted > self.layout.words() {
            return Ok(Attempt::Rejected(wanted - self.layout.words()));
        }
        let phases = self.phases();
        let mut stragglers = Stragglers::new(queue, self.items.keys.len() / 4 + 1024)?;
        phases.place(
            queue,
            &overflow,
            count(Counter::Overflowing),
            &mut stragglers,
        )?;
        let left = phases.displace(queue, stragglers, &overflow.fill)?;
        if left.count > 0 {
            return Ok(Attempt::Rejected(left.count));
        }
        self.finish(queue)
    }

    fn overflow(&self, queue: &mut Queue) -> Result<Overflow> {
        let (items, buckets) = (self.items.keys.len(), self.layout.buckets as usize);
        Overflow::with_room(
            queue,
            buckets,
            overflow_room(items),
            overflowing_room(buckets),
        )
    }

    fn phases(&self) -> Phases<'_> {
        Phases {
            program: self.program,
            layout: self.layout,
            wide: false,
            words: &self.words,
            counters: &self.counters,
        }
    }

    /// Splits the items by range and fills every range's primary slots. Stops after one coarse bin
    /// if keys repeat there: most keys that repeat show it by then, and a key with many rows in the
    /// fullest bin, its own. Returns the counters.
    fn fill_ranges(&self, queue: &mut Queue, overflow: &Overflow) -> Result<Vec<u32>> {
        let shape = shape(&self.layout, self.items.keys.len());
        let memory = (&self.words, &self.counters);
        let split = Split::new(queue, self.program, shape, self.items, memory)?;
        let mut counts = Vec::new();
        let suspect = split.suspect_bin(queue)?;
        for bins in [suspect..suspect + 1, 0..suspect, suspect + 1..split.bins()] {
            if bins.is_empty() {
                continue;
            }
            let ranges = split.finish(queue, bins)?;
            self.fill_range(queue, &split.ranges, ranges, overflow)?;
            counts = queue.read(&self.counters, COUNTERS)?;
            if counts[Counter::Repeats as usize] > 0 {
                break;
            }
        }
        Ok(counts)
    }

    fn fill_range(
        &self,
        queue: &mut Queue,
        items: &Ranges,
        ranges: Range<usize>,
        overflow: &Overflow,
    ) -> Result<()> {
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(&overflow.fill),
            Arg::Longs(&items.items),
            Arg::Words(&items.counts),
            Arg::Longs(&overflow.items),
            Arg::Words(&overflow.buckets),
            Arg::Words(&self.counters),
            Arg::U32(ranges.start as u32),
            Arg::U32(items.shape.capacity as u32),
            Arg::U32(overflow.items.len() as u32),
            Arg::U32((overflow.buckets.len() / RECORD_WORDS) as u32),
            Arg::U32(self.layout.buckets),
            Arg::U32(self.layout.seed),
        ];
        let grid = (ranges.len() * self.group, self.group);
        queue.launch(self.program, "fill_range", grid, &args)
    }

    /// Ends an attempt. The census says once more that no item was lost.
    fn finish(self, queue: &mut Queue) -> Result<Attempt> {
        let items = self.items.keys.len();
        let census = census(queue, self.program, &self.layout, &self.words)?;
        if census.items as usize != items {
            let built = census.items;
            let what = format!("a Horton table was built with {built} of {items} items");
            return Err(queue.wrong_answer(what));
        }
        let table = HortonTable::new(self.layout, self.words, census);
        Ok(Attempt::Done(Built::Table(table)))
    }
}

/// Returns the shape that a table's items are split by. Hashed keys are spread like balls over
/// bins, so that eight standard deviations above the mean of a range are never reached, unless keys
/// repeat.
pub(crate) fn shape(layout: &Layout, items: usize) -> Shape {
    let range = kernels::range(layout.bucket_size);
    let share = (range as f64 / f64::from(layout.buckets)).min(1.0);
    let mean = items as f64 * share;
    Shape {
        bucket_size: layout.bucket_size,
        buckets: layout.buckets,
        seed: layout.seed,
        range,
        capacity: ((mean + 8.0 * mean.sqrt()) as usize + 64).next_multiple_of(16),
    }
}

/// Returns room for overflowing items: with random keys at most 30 % overflow (4 slots, load 1).
fn overflow_room(items: usize) -> usize {
    items / 3 + 4096
}

/// Returns room for overflowing buckets: with random keys at most 43 % are (16 slots, load 1).
fn overflowing_room(buckets: usize) -> usize {
    buckets / 2 + 1024
}

impl HortonTable {
    /// Builds a table of `keys[i]` → `values[i]` on `device`, blocking.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the lengths differ or a value exceeds [`MAX_VALUE`],
    /// [`Error::DuplicateKeys`], and those of [`build`].
    pub fn from_pairs(
        device: &Device,
        keys: &[u32],
        values: &[u32],
        config: &TableConfig,
    ) -> Result<Self> {
        check_pairs(keys, values)?;
        let (keys, values, config) = (keys.to_vec(), values.to_vec(), *config);
        let job = move |queue: &mut Queue| {
            let keys = queue.buffer_from("keys", &keys)?;
            let values = queue.buffer_from("values", &values)?;
            let items = Items {
                keys: &keys,
                values: Some(&values),
            };
            match build(queue, &config, items)? {
                Built::Table(table) => Ok(table),
                Built::Repeats => Err(Error::DuplicateKeys),
            }
        };
        Ok(device.run_blocking(job)?.value)
    }
}

fn check_pairs(keys: &[u32], values: &[u32]) -> Result<()> {
    if keys.len() != values.len() {
        return Err(Error::Invalid(format!(
            "{} keys and {} values: expected one value a key",
            keys.len(),
            values.len()
        )));
    }
    match values.iter().find(|v| **v > MAX_VALUE) {
        Some(value) => Err(Error::Invalid(format!(
            "value {value} is over the limit of a Horton table, {MAX_VALUE}"
        ))),
        None => Ok(()),
    }
}
