//! A linear-probing table in device memory: bulk operations, rehashing, and what it is made of.

use std::sync::Arc;

use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::{Items, WhenFull, enough};
use crate::table::baselines::batch::{self, Batch, Kind};
use crate::table::baselines::linear::kernels;
use crate::table::launch::{LaunchConfig, cached_bytes};
use crate::table::primitives::radix_partition::{
    self, COUNTERS as SPLIT_COUNTERS, Ranges, Shape, Split,
};
use crate::table::primitives::word::{EMPTY_WORD, too_large};

use super::layout::{Deletion, LinearLayout};
use super::model::{LinearModel, ProbeLengths};

/// Ranges that keys are split into: the most that the split does in one pass. Each is 2 MiB of a
/// table of 1 GiB, so that those in use at one time fit an L2.
const RANGES: usize = 512;

/// The fewest keys that are worth splitting: a few for each range.
const SPLIT_KEYS: usize = 1 << 18;

/// Items of a range that a work-item inserts on GPUs: what they count is added up once for all.
const ITEMS_PER_ITEM: usize = 4;

/// Slots that a work-item of a pass over the table takes on GPUs: a cache line.
const SLOTS_PER_ITEM: usize = 16;

/// A sweep follows when more than one in so many slots had a key removed: it reads 8 bytes per
/// slot, so 64 for each of those keys.
const SWEEP_SHARE: usize = 8;

/// The configuration of a table of linear probing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearConfig {
    /// The most items per slot that a build or growth makes, in (0, 1]; the slots are the next
    /// power of two.
    pub load_factor: f64,
    /// Slots at least.
    pub min_capacity: usize,
    /// Behaviour of [`Table::insert`](crate::table::Table::insert) when there is no room.
    pub when_full: WhenFull,
    /// Slots that deletions leave.
    pub deletion: Deletion,
    /// Seed of the hash function.
    pub seed: u32,
}

impl Default for LinearConfig {
    fn default() -> Self {
        Self {
            load_factor: 0.5,
            min_capacity: 0,
            when_full: WhenFull::Grow,
            deletion: Deletion::KeepsKey,
            seed: 0x4c50_3031,
        }
    }
}

/// The result of an insertion of many keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inserted {
    /// Keys that were not in the table before.
    pub new: usize,
    /// Insertions that replaced a value: of a key that was in the table, or that was given twice.
    pub replaced: usize,
}

/// Indices of the counters that kernels add to; counterpart of the defines in
/// `cl/baselines/linear/table.cl`.
enum Counter {
    Added,
    Removed,
    Rejects,
    Invalid,
}

/// Counters in all.
const COUNTERS: usize = 4;

/// The numbers that the kernels of one operation counted.
struct Counts(Vec<u32>);

impl Counts {
    fn get(&self, counter: Counter) -> usize {
        self.0[counter as usize] as usize
    }
}

/// A linear-probing table of 32-bit keys to values up to [`MAX_VALUE`](super::MAX_VALUE) in device
/// memory.
#[derive(Debug)]
pub struct LinearTable {
    pub(super) config: LinearConfig,
    pub(super) layout: LinearLayout,
    pub(super) words: Arc<Buffer<u64>>,
    pub(super) len: usize,
    /// Slots of deleted keys, at most: keys removed since the last sweep or rehash.
    pub(super) removed: usize,
}

impl LinearTable {
    /// Returns an empty table of at least `slots` slots.
    ///
    /// # Errors
    /// [`Error::Invalid`] over [`MAX_CAPACITY`](super::MAX_CAPACITY), [`Error::DeviceMemory`], and
    /// OpenCL's own.
    pub fn with_capacity(queue: &mut Queue, config: &LinearConfig, slots: usize) -> Result<Self> {
        let layout = LinearLayout::new(slots, config.deletion, config.seed)?;
        let words = queue.allocate_table("a linear-probing table", layout.capacity)?;
        queue.fill(&words, EMPTY_WORD)?;
        Ok(Self {
            config: *config,
            layout,
            words: Arc::new(words),
            len: 0,
            removed: 0,
        })
    }

    /// Stores items; the value of a key that is already stored is replaced. Of the values of a key
    /// that is given more than once any one counts.
    ///
    /// # Errors
    /// [`Error::NoRoom`] with the number of keys that found no slot, [`Error::Invalid`] with the
    /// number of values over [`MAX_VALUE`](super::MAX_VALUE): all other items are stored, and
    /// nothing is lost. [`Error::DeviceMemory`] and OpenCL's own.
    pub fn put(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<Inserted> {
        let n = batch::checked_len(items.keys.len())?;
        items.count()?;
        let counters = self.counters(queue)?;
        match self.split(queue, items)? {
            Some(ranges) => self.insert_ranges(queue, &ranges, &counters)?,
            None => self.insert_keys(queue, items, &counters)?,
        }
        let counts = self.count(queue, &counters, n)?;
        let new = counts.get(Counter::Added);
        Ok(Inserted {
            new,
            replaced: n - new,
        })
    }

    /// Looks up the first `n` of `keys`; `values[i]` receives the value or [`MISS`](super::MISS).
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter than `n` or `n` exceeds 2^32 - 1; OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        batch::checked_len(n)?;
        enough("keys", keys.len(), n)?;
        enough("values", values.len(), n)?;
        let config = LaunchConfig::new(queue, n, 1);
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(keys),
            Arg::Words(values),
        ];
        self.launch(queue, "lookup_keys", &args, (config, n))
    }

    /// Removes the first `n` of `keys`; returns how many were there.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup).
    pub fn take(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        batch::checked_len(n)?;
        enough("keys", keys.len(), n)?;
        let counters = self.counters(queue)?;
        let config = LaunchConfig::new(queue, n, 1);
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(keys),
            Arg::Words(&counters),
        ];
        self.launch(queue, "remove_keys", &args, (config, n))?;
        let counts = self.count(queue, &counters, n)?;
        self.sweep_if_due(queue)?;
        Ok(counts.get(Counter::Removed))
    }

    /// Does [`Search`](Kind::Search), [`Insert`](Kind::Insert), [`Replace`](Kind::Replace) and
    /// [`Delete`](Kind::Delete) operations, side by side; `answers[i]` receives the value that the
    /// key of operation i had before, or [`MISS`](super::MISS). With [`Deletion::LeavesTombstone`],
    /// insertions and lookups run in one launch, then deletions in another.
    ///
    /// # Errors
    /// As [`put`](Self::put); [`Error::Invalid`] if the buffers differ in length. Operations of
    /// other kinds do nothing, and their answers are left as they were.
    pub fn apply(
        &mut self,
        queue: &mut Queue,
        batch: Batch<'_>,
        answers: &Buffer<u32>,
    ) -> Result<()> {
        let n = batch.len()?;
        enough("answers", answers.len(), n)?;
        let counters = self.counters(queue)?;
        let insertions = Kind::Search.bit() | Kind::Insert.bit() | Kind::Replace.bit();
        let phases = match self.layout.deletion {
            Deletion::KeepsKey => vec![insertions | Kind::Delete.bit()],
            Deletion::LeavesTombstone => vec![insertions, Kind::Delete.bit()],
        };
        let config = LaunchConfig::new(queue, n, 1);
        for allowed in phases {
            let args = [
                Arg::Longs(&self.words),
                Arg::Words(batch.kinds),
                Arg::Words(batch.keys),
                Arg::Words(batch.values),
                Arg::Words(answers),
                Arg::Words(&counters),
                Arg::U32(allowed),
            ];
            self.launch(queue, "apply_batch", &args, (config, n))?;
        }
        self.count(queue, &counters, n)?;
        self.sweep_if_due(queue)
    }

    /// Empties the deleted slots that no item's probe passes; no key moves. It happens by itself
    /// after every `slots / 8` removals; with [`Deletion::KeepsKey`] there is nothing to do. Needs
    /// a bit per slot.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn sweep(&mut self, queue: &mut Queue) -> Result<()> {
        if self.layout.deletion == Deletion::KeepsKey {
            return Ok(());
        }
        let slots = self.layout.capacity;
        let passed = queue.allocate("slots passed", slots.div_ceil(32))?;
        queue.fill(&passed, 0u32)?;
        let config = LaunchConfig::new(queue, slots, SLOTS_PER_ITEM);
        let args = [Arg::Longs(&self.words), Arg::Words(&passed)];
        for kernel in ["mark_passed", "sweep"] {
            self.launch(queue, kernel, &args, (config, slots))?;
        }
        self.removed = 0;
        Ok(())
    }

    fn sweep_if_due(&mut self, queue: &mut Queue) -> Result<()> {
        if self.removed > self.layout.capacity / SWEEP_SHARE {
            self.sweep(queue)
        } else {
            Ok(())
        }
    }

    /// Moves the items into a table of at least `slots` slots and drops deleted keys. Needs the
    /// memory of both tables.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if the items exceed the slots, [`Error::Invalid`] over
    /// [`MAX_CAPACITY`](super::MAX_CAPACITY), [`Error::DeviceMemory`], and OpenCL's own: then the
    /// table is as it was.
    pub fn rehash(&mut self, queue: &mut Queue, slots: usize) -> Result<()> {
        let mut larger = Self::with_capacity(queue, &self.config, slots)?;
        let capacity = larger.layout.capacity;
        if self.len > capacity {
            return Err(Error::NoRoom {
                table: "a linear-probing table",
                keys: self.len,
                rejected: self.len - capacity,
            });
        }
        let counters = self.counters(queue)?;
        let slots = self.layout.capacity;
        let config = LaunchConfig::new(queue, slots, SLOTS_PER_ITEM);
        let args = [
            Arg::Longs(&self.words),
            Arg::Longs(&larger.words),
            Arg::Words(&counters),
        ];
        larger.launch(queue, "rehash", &args, (config, slots))?;
        larger.count(queue, &counters, self.len)?;
        *self = larger;
        Ok(())
    }

    /// Counts items, deleted slots and probe lengths.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn probe_lengths(&self, queue: &mut Queue) -> Result<ProbeLengths> {
        let sums = queue.allocate("probe lengths", 4)?;
        queue.fill(&sums, 0u64)?;
        let slots = self.layout.capacity;
        let config = LaunchConfig::new(queue, slots, SLOTS_PER_ITEM);
        let args = [Arg::Longs(&self.words), Arg::Longs(&sums)];
        self.launch(queue, "probe_lengths", &args, (config, slots))?;
        let sums = queue.read(&sums, 4)?;
        Ok(ProbeLengths {
            items: sums[0],
            deleted: sums[1],
            sum: sums[2],
            max: sums[3],
        })
    }

    /// Collects the items on the device, in no particular order: their keys and their values,
    /// one of each per item.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn pairs(&self, queue: &mut Queue) -> Result<(Buffer<u32>, Buffer<u32>)> {
        let keys = queue.allocate("keys of a table", self.len)?;
        let values = queue.allocate("values of a table", self.len)?;
        let count = queue.buffer_from("items found", &[0])?;
        let slots = self.layout.capacity;
        let config = LaunchConfig::new(queue, slots, SLOTS_PER_ITEM);
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(&keys),
            Arg::Words(&values),
            Arg::Words(&count),
            Arg::U32(config.per_item as u32),
            Arg::U32(slots as u32),
            Arg::U32(self.len as u32),
        ];
        let program = kernels::program(queue, self.layout.deletion);
        queue.launch(&program, "collect", config.grid(slots), &args)?;
        Ok((keys, values))
    }

    /// Brings the words back as a model.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn to_model(&self, queue: &mut Queue) -> Result<LinearModel> {
        Ok(LinearModel {
            layout: self.layout,
            words: queue.read(&self.words, self.layout.capacity)?,
        })
    }

    /// Sends a model's words to the device.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn from_model(queue: &mut Queue, model: &LinearModel) -> Result<Self> {
        let config = LinearConfig {
            deletion: model.layout.deletion,
            seed: model.layout.seed,
            ..LinearConfig::default()
        };
        Ok(Self {
            config,
            layout: model.layout,
            words: Arc::new(queue.buffer_from("a linear-probing table", &model.words)?),
            len: model.probe_lengths().items as usize,
            removed: model.probe_lengths().deleted as usize,
        })
    }

    /// Returns the shape and the seed of the table.
    pub fn layout(&self) -> LinearLayout {
        self.layout
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.words.bytes()
    }

    /// Launches a kernel over `n` elements, whose arguments end in per_item, n, mask and seed.
    fn launch(
        &self,
        queue: &mut Queue,
        kernel: &'static str,
        args: &[Arg<'_>],
        (config, n): (LaunchConfig, usize),
    ) -> Result<()> {
        let mut args = args.to_vec();
        args.extend([
            Arg::U32(config.per_item as u32),
            Arg::U32(n as u32),
            Arg::U32(self.layout.mask() as u32),
            Arg::U32(self.layout.seed),
        ]);
        let program = kernels::program(queue, self.layout.deletion);
        queue.launch(&program, kernel, config.grid(n), &args)
    }

    fn counters(&self, queue: &mut Queue) -> Result<Buffer<u32>> {
        let counters = queue.allocate("counters", COUNTERS)?;
        queue.fill(&counters, 0u32)?;
        Ok(counters)
    }

    /// Takes over what kernels counted in `n` operations; fails if some of them did.
    fn count(&mut self, queue: &mut Queue, counters: &Buffer<u32>, n: usize) -> Result<Counts> {
        let counts = Counts(queue.read(counters, COUNTERS)?);
        self.len = self.len + counts.get(Counter::Added) - counts.get(Counter::Removed);
        self.removed += counts.get(Counter::Removed);
        match (counts.get(Counter::Invalid), counts.get(Counter::Rejects)) {
            (0, 0) => Ok(counts),
            (0, rejected) => Err(Error::NoRoom {
                table: "a linear-probing table",
                keys: n,
                rejected,
            }),
            (invalid, _) => Err(too_large(invalid, n)),
        }
    }

    fn insert_keys(
        &self,
        queue: &mut Queue,
        items: Items<'_>,
        counters: &Buffer<u32>,
    ) -> Result<()> {
        let n = items.keys.len();
        let config = LaunchConfig::new(queue, n, 1);
        let args = [
            Arg::Longs(&self.words),
            Arg::Words(items.keys),
            items.values.map_or(Arg::Null, Arg::Words),
            Arg::Words(counters),
        ];
        self.launch(queue, "insert_keys", &args, (config, n))
    }

    /// Returns the items by ranges of slots, if that is worth its memory and its pass: not in a
    /// small table, for few keys, or if many keys are the same.
    fn split(&self, queue: &mut Queue, items: Items<'_>) -> Result<Option<Ranges>> {
        let n = items.keys.len();
        if n < SPLIT_KEYS || self.bytes() <= cached_bytes(queue.info()) {
            return Ok(None);
        }
        let program = kernels::split_program(queue);
        let counters = queue.allocate("split counters", SPLIT_COUNTERS)?;
        queue.fill(&counters, 0u32)?;
        let spare = queue.allocate("no spare items", 1)?;
        let memory = (&spare, &counters);
        let split = match Split::new(queue, &program, self.ranges(n), items, memory) {
            Err(Error::DeviceMemory { .. }) => return Ok(None),
            split => split?,
        };
        split.finish(queue, 0..split.bins())?;
        let dropped =
            queue.read(&counters, SPLIT_COUNTERS)?[radix_partition::Counter::Crowded as usize];
        Ok((dropped == 0).then_some(split.ranges))
    }

    /// Returns the ranges of slots, with room for what `n` different keys put there: eight standard
    /// deviations above the mean.
    fn ranges(&self, n: usize) -> Shape {
        let mean = n as f64 / RANGES as f64;
        Shape {
            bucket_size: kernels::SPLIT_UNIT,
            buckets: self.layout.capacity as u32,
            seed: self.layout.seed,
            range: self.layout.capacity / RANGES,
            capacity: ((mean + 8.0 * mean.sqrt()) as usize + 64).next_multiple_of(16),
        }
    }

    fn insert_ranges(
        &self,
        queue: &mut Queue,
        ranges: &Ranges,
        counters: &Buffer<u32>,
    ) -> Result<()> {
        let capacity = ranges.shape.capacity;
        let config = LaunchConfig::new(queue, capacity * RANGES, ITEMS_PER_ITEM);
        let per_item = config.per_item.min(capacity);
        let groups = capacity.div_ceil(per_item * config.group);
        let args = [
            Arg::Longs(&self.words),
            Arg::Longs(&ranges.items),
            Arg::Words(&ranges.counts),
            Arg::Words(counters),
            Arg::U32(capacity as u32),
            Arg::U32(groups as u32),
            Arg::U32(per_item as u32),
            Arg::U32(self.layout.mask() as u32),
            Arg::U32(self.layout.seed),
        ];
        let program = kernels::program(queue, self.layout.deletion);
        let items = RANGES * groups * config.group;
        queue.launch(&program, "insert_ranges", (items, config.group), &args)
    }
}
