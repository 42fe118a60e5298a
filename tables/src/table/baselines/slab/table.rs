//! A slab hash in device memory: how it is built, and what it is made of.

use std::sync::Arc;

use crate::device::{Arg, Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::WhenFull;
use crate::table::baselines::slab::kernels;

use super::alloc::{SlabPool, doubles, halves};
use super::layout::{self, Entries, PoolLayout, SlabLayout};
use super::model::SlabModel;

/// The configuration of a slab hash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlabConfig {
    /// Entries that slabs hold.
    pub entries: Entries,
    /// β of the paper, section III-C: slabs that the items of a bucket would fill, above 0. It
    /// decides the number of buckets; 0.7 gives 60 % memory utilisation.
    pub slabs_per_bucket: f64,
    /// Pool that slabs come from. A SlabAlloc grows by super blocks up to
    /// [`MAX_SUPER_BLOCKS`](super::MAX_SUPER_BLOCKS), a SlabAlloc-light never.
    pub pool: PoolLayout,
    /// Entries in the base slabs, at least.
    pub min_capacity: usize,
    /// Behaviour of [`Table::insert`](crate::table::Table::insert) when slabs have run out.
    pub when_full: WhenFull,
    /// Seed of the hash function.
    pub seed: u32,
}

impl Default for SlabConfig {
    /// Returns the defaults: pairs at 60 % utilisation; SlabAlloc with super blocks of 32 MiB, as
    /// in the paper's evaluation.
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

/// A slab hash in device memory.
#[derive(Debug)]
pub struct SlabHash {
    pub(super) config: SlabConfig,
    pub(super) layout: SlabLayout,
    pub(super) base: Arc<Buffer<u64>>,
    pub(super) pool: SlabPool,
    pub(super) len: usize,
    /// Deleted entries, at most: items removed since the last flush.
    pub(super) removed: usize,
}

impl SlabHash {
    /// Returns an empty table with buckets for `items` items.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a configuration that makes no sense, [`Error::DeviceMemory`], and
    /// OpenCL's own.
    pub fn with_room(queue: &mut Queue, config: &SlabConfig, items: usize) -> Result<Self> {
        let share = config.slabs_per_bucket * config.entries.per_slab() as f64;
        let least = config.min_capacity.div_ceil(config.entries.per_slab());
        let buckets = (items as f64 / share).ceil().max(1.0).max(least as f64);
        // NaN and infinity, too, are no share.
        if !(share > 0.0 && buckets < f64::from(1 << 28)) {
            return Err(Error::Invalid(format!(
                "a slab hash cannot hold {items} items at {} slabs a bucket: choose a number above 0 \
                 that makes fewer than 2^28 buckets",
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

    /// Does FLUSH for every bucket: moves the items together, drops deleted entries and gives slabs
    /// back to the pool.
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

    /// Returns the shape and the seed of the table.
    pub fn layout(&self) -> SlabLayout {
        self.layout
    }

    /// Returns where slabs come from.
    pub fn pool(&self) -> &SlabPool {
        &self.pool
    }

    /// Returns the bytes of items by bytes of slabs in use, base slabs included (section III-C): at
    /// most 0.94.
    ///
    /// # Errors
    /// As [`census`](Self::census).
    pub fn utilisation(&self, queue: &mut Queue) -> Result<f64> {
        let census = self.census(queue)?;
        let slabs = u64::from(self.layout.buckets) + census.slabs;
        let used = census.items * self.layout.entries.words() as u64;
        Ok(used as f64 / (slabs * layout::SLAB_WORDS as u64) as f64)
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.base.bytes() + self.pool.bytes()
    }
}
