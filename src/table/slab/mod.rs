//! The slab hash: a table that changes while it is used, and grows as it must.
//!
//! ```text
//!  bucket 0 ─▶ [base slab] ─▶ [slab] ─▶ [slab]      slabs of 128 bytes come from SlabAlloc
//!  bucket 1 ─▶ [base slab]
//!  …            15 pairs, or 30 keys, and a link
//! ```
//!
//! Ashkiani, Farach-Colton, Owens, "A Dynamic Hash Table for the GPU", IPDPS 2018. Operations of
//! all kinds run side by side in one launch, and a list grows inside it. A
//! lookup reads 1 + β slabs for a key that is not there, where β, the mean number of slabs that the items of a bucket
//! would fill, is chosen at the start ([`SlabConfig::slabs_per_bucket`]); beyond about 65 % memory utilisation most
//! operations visit a second slab. Deleted entries are used again by [`insert_instances`](SlabHash::insert_instances), or cleared away by
//! [`flush`](SlabHash::flush).
//!
//! * [`layout`]: words, addresses, shapes
//! * [`alloc`]: SlabAlloc and SlabAlloc-light
//! * [`model`]: the same table in plain Rust, a test oracle
//! * `kernels`: program text and launch sizes; `operations`: launching them
//! * `table`: the same as every kind of table does it
//!
//! [`insert_instances`](SlabHash::insert_instances), [`replace`](SlabHash::replace), [`delete`](SlabHash::delete),
//! [`search`](SlabHash::search) and so on are the paper's operations, which do what they can and count what they cannot;
//! [`Table`](crate::table::Table) has a key once and takes a batch back if it does not fit.

pub mod alloc;
mod as_table;
mod kernels;
mod launch;
pub mod layout;
pub mod model;

use std::sync::Arc;

use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::batch::Batch;
use crate::table::{Items, WhenFull};

use alloc::{doubles, halves};
use launch::{Counter, Operations};

pub use crate::table::primitives::word::{MAX_VALUE, MISS};
pub use alloc::SlabPool;
pub(crate) use kernels::programs;
pub use layout::{Entries, MAX_BLOCKS, MAX_KEY, MAX_SUPER_BLOCKS, NO_SLAB, PoolLayout, SlabLayout};
pub use model::SlabModel;

/// How a table is built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlabConfig {
    /// What slabs hold.
    pub entries: Entries,
    /// β of the paper, section III-C: slabs that the items of a bucket would fill, above 0. It decides the number of
    /// buckets; 0.7 gives 60 % memory utilisation.
    pub slabs_per_bucket: f64,
    /// Where slabs come from. A SlabAlloc grows by super blocks up to [`MAX_SUPER_BLOCKS`], a SlabAlloc-light never.
    pub pool: PoolLayout,
    /// Entries in the base slabs, at least.
    pub min_capacity: usize,
    /// What [`Table::insert`](crate::table::Table::insert) does when slabs have run out.
    pub when_full: WhenFull,
    /// Seed of the hash function.
    pub seed: u32,
}

impl Default for SlabConfig {
    /// Pairs at 60 % utilisation; SlabAlloc with super blocks of 32 MiB, as in the paper's evaluation.
    fn default() -> Self {
        Self {
            entries: Entries::Pairs,
            slabs_per_bucket: 0.7,
            pool: PoolLayout {
                light: false,
                super_blocks: 1,
                blocks: 256,
            },
            min_capacity: 0,
            when_full: WhenFull::Grow,
            seed: 0x5348_3137,
        }
    }
}

/// What a table is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlabCensus {
    /// Items.
    pub items: u64,
    /// Deleted entries.
    pub deleted: u64,
    /// Slabs in use, base slabs not counted.
    pub slabs: u64,
}

/// A slab hash in device memory.
#[derive(Debug)]
pub struct SlabHash {
    config: SlabConfig,
    layout: SlabLayout,
    base: Arc<Buffer<u64>>,
    pool: SlabPool,
    len: usize,
    /// Deleted entries, at most: items removed since the last flush.
    removed: usize,
}

impl SlabHash {
    /// An empty table with buckets for `items` items.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a configuration that makes no sense, [`Error::DeviceMemory`], and OpenCL's own.
    pub fn with_room(queue: &mut Queue, config: &SlabConfig, items: usize) -> Result<Self> {
        let share = config.slabs_per_bucket * config.entries.per_slab() as f64;
        let least = config.min_capacity.div_ceil(config.entries.per_slab());
        let buckets = (items as f64 / share).ceil().max(1.0).max(least as f64);
        // NaN and infinity, too, are no share.
        if !(share > 0.0 && buckets < f64::from(1 << 28)) {
            return Err(Error::Invalid(format!(
                "no table has {items} items at {} slabs a bucket",
                config.slabs_per_bucket
            )));
        }
        let pool = SlabPool::new(queue, config.pool)?;
        let layout = SlabLayout {
            entries: config.entries,
            buckets: buckets as u32,
            seed: config.seed,
        };
        let base = queue.allocate("base slabs", buckets as usize * layout::SLAB_WORDS / 2)?;
        queue.fill(&base, u64::MAX)?;
        Ok(Self {
            config: *config,
            layout,
            base: Arc::new(base),
            pool,
            len: 0,
            removed: 0,
        })
    }

    /// REPLACE for every item: a key that is there gets the new value, of keys given more than once one value counts.
    /// Returns how many were not there.
    ///
    /// # Errors
    /// [`Error::NoRoom`] if slabs run out: every item that is not rejected is stored, and nothing is lost.
    /// [`Error::Invalid`] with the number of values over [`MAX_VALUE`], or keys over [`MAX_KEY`] in a table of keys.
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn replace(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        self.store(queue, "replace_keys", items)
    }

    /// INSERT for every item: another instance, whether the key is there or not.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    pub fn insert_instances(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize> {
        self.store(queue, "insert_keys", items)
    }

    fn store(
        &mut self,
        queue: &mut Queue,
        kernel: &'static str,
        items: Items<'_>,
    ) -> Result<usize> {
        let n = items.count()?;
        let counts = self.run(
            queue,
            &Operations::of_keys(kernel, items.keys, items.values, n),
        )?;
        Ok(counts.of(Counter::Added))
    }

    /// SEARCH for the first `n` of `keys`; `values[i]` receives a value (the key itself in a table of keys) or [`MISS`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if a buffer is shorter than `n` or `n` exceeds 2^31; OpenCL's own.
    pub fn search(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        let operations = Operations {
            answers: Some(values),
            ..Operations::of_keys("search_keys", keys, None, n)
        };
        self.launch(queue, &operations)
    }

    /// Counts the instances of the first `n` of `keys` into `counts`.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn count(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        counts: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        let operations = Operations {
            answers: Some(counts),
            ..Operations::of_keys("count_keys", keys, None, n)
        };
        self.launch(queue, &operations)
    }

    /// SEARCHALL for all of `keys`: offsets, one more than keys, and values; those of key i are
    /// `values[offsets[i]..offsets[i + 1]]`, in no order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are more than 2^32 - 1 values; as [`search`](Self::search).
    pub fn search_all(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
    ) -> Result<(Buffer<u32>, Buffer<u32>)> {
        self.list_instances(queue, keys)
    }

    /// DELETE for the first `n` of `keys`: the first instance of each; returns how many there were.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn delete(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        let counts = self.run(queue, &Operations::of_keys("delete_keys", keys, None, n))?;
        Ok(counts.of(Counter::Removed))
    }

    /// DELETEALL for the first `n` of `keys`: all instances; returns how many there were.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn delete_all(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize> {
        let counts = self.run(
            queue,
            &Operations::of_keys("delete_all_keys", keys, None, n),
        )?;
        Ok(counts.of(Counter::Removed))
    }

    /// Does operations of all kinds, side by side; `answers[i]` receives what [`Kind`](crate::table::batch::Kind) says. Where slabs run out
    /// and a SlabAlloc grows, the operations without room are done in another launch.
    ///
    /// # Errors
    /// As [`replace`](Self::replace); [`Error::Invalid`] if the buffers differ in length. Operations of unknown
    /// kinds do nothing, and their answers are left as they were.
    pub fn apply(
        &mut self,
        queue: &mut Queue,
        batch: Batch<'_>,
        answers: &Buffer<u32>,
    ) -> Result<()> {
        let operations = Operations {
            kernel: "apply_batch",
            kinds: Some(batch.kinds),
            keys: batch.keys,
            values: Some(batch.values),
            answers: Some(answers),
            n: batch.len()?,
        };
        self.run(queue, &operations)?;
        Ok(())
    }

    /// FLUSH for every bucket: moves the items together, drops deleted entries and gives slabs back to the pool.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn flush(&mut self, queue: &mut Queue) -> Result<()> {
        let mut args = self.pool.args();
        args.extend([Arg::Longs(&self.base), Arg::U32(self.layout.buckets)]);
        let grid = kernels::singles(queue, self.layout.buckets as usize);
        queue.launch(&self.program(queue), "flush", grid, &args)?;
        self.removed = 0;
        Ok(())
    }

    /// Brings the words back as a model.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn to_model(&self, queue: &mut Queue) -> Result<SlabModel> {
        Ok(SlabModel {
            layout: self.layout,
            pool_layout: self.pool.layout(),
            base: halves(&queue.read(&self.base, self.base.len())?),
            pool: self.pool.download(queue)?,
        })
    }

    /// Sends a model's words to the device.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn from_model(queue: &mut Queue, model: &SlabModel) -> Result<Self> {
        let config = SlabConfig {
            entries: model.layout.entries,
            pool: model.pool_layout,
            seed: model.layout.seed,
            ..SlabConfig::default()
        };
        Ok(Self {
            config,
            layout: model.layout,
            base: Arc::new(queue.buffer_from("base slabs", &doubles(&model.base))?),
            pool: SlabPool::upload(queue, model.pool_layout, &model.pool)?,
            len: model.census().items as usize,
            removed: model.census().deleted as usize,
        })
    }

    /// Shape and seed.
    pub fn layout(&self) -> SlabLayout {
        self.layout
    }

    /// Where slabs come from.
    pub fn pool(&self) -> &SlabPool {
        &self.pool
    }

    /// Bytes of items by bytes of slabs in use, base slabs included (section III-C): at most 0.94.
    ///
    /// # Errors
    /// As [`census`](Self::census).
    pub fn utilisation(&self, queue: &mut Queue) -> Result<f64> {
        let census = self.census(queue)?;
        let slabs = u64::from(self.layout.buckets) + census.slabs;
        let used = census.items * self.layout.entries.words() as u64;
        Ok(used as f64 / (slabs * layout::SLAB_WORDS as u64) as f64)
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.base.bytes() + self.pool.bytes()
    }
}
