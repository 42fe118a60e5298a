//! Bucketized cuckoo tables: the baselines of the Horton paper.
//!
//! ```text
//!  key ─H1─▶ bucket ─miss─H2─▶ bucket ─▶ value | absent        two buckets at most, no entries
//!
//!  load-balanced   an item goes to the emptier of its two buckets: 1.5 buckets a hit
//!  first fit       to the first one unless it is full: fewer a hit, longer displacements
//!  both            2 buckets a miss
//! ```
//!
//! Breslow et al., USENIX ATC 2016, section 3.3. Buckets, hash functions, lookup kernels and the
//! choice among them are those of the [Horton table](super::horton), so that a comparison is one of
//! tables. Unlike there, an item's bucket may hold it only by luck, and no bucket says
//! where else to look.
//!
//! * `place`: bulk placement on the device, driver of `cl/cuckoo/place.cl`
//! * [`model`]: the same table in plain Rust, a test oracle

mod as_table;
pub mod model;
mod place;

use std::sync::Arc;

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};

use crate::table::horton::lookup::{Lookup, Out, check_narrow};
use crate::table::horton::tuning::{Kind, Tuning};
use crate::table::horton::{BucketSize, Census, TableConfig};
use crate::table::primitives::bucket::{Layout, Variant};
use crate::table::primitives::hash::Reduction;
use crate::table::{Reads, WhenFull};

pub use model::CuckooModel;
pub(crate) use place::programs;

/// Which bucket an item goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The emptier one of its two.
    #[default]
    LoadBalanced,
    /// The first one with a free slot.
    FirstFit,
}

/// How a table is built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CuckooConfig {
    /// Slots per bucket; 8 is the default.
    pub bucket_size: BucketSize,
    /// Items per slot, in (0, 1].
    pub load_factor: f64,
    /// Seed of the hash functions.
    pub seed: u32,
    /// How hashes become buckets.
    pub reduction: Reduction,
    /// Slots that there are at least, for items to come.
    pub min_capacity: usize,
    /// What happens when some keys find no slot.
    pub when_full: WhenFull,
    /// Which bucket an item goes to.
    pub placement: Placement,
}

impl Default for CuckooConfig {
    fn default() -> Self {
        let horton = TableConfig::default();
        Self {
            bucket_size: horton.bucket_size,
            load_factor: horton.load_factor,
            seed: horton.seed,
            reduction: horton.reduction,
            min_capacity: horton.min_capacity,
            when_full: horton.when_full,
            placement: Placement::LoadBalanced,
        }
    }
}

impl CuckooConfig {
    /// The shape of a table of `n` items.
    fn layout(&self, n: usize) -> Result<Layout> {
        if !(self.load_factor > 0.0 && self.load_factor <= 1.0) {
            return Err(Error::Invalid(format!(
                "invalid load_factor {}: expected a number in (0, 1]",
                self.load_factor
            )));
        }
        let slots = self.bucket_size.slots();
        let asked = (n as f64 / (slots as f64 * self.load_factor)).ceil() as usize;
        let buckets = asked.max(self.min_capacity.div_ceil(slots)).max(1);
        Ok(Layout {
            bucket_size: self.bucket_size,
            buckets: u32::try_from(buckets)
                .map_err(|_| Error::Invalid(format!("{n} keys need more than 2^32 buckets")))?,
            seed: self.seed,
            reduction: self.reduction,
        })
    }
}

/// A bucketized cuckoo table of distinct keys in device memory. Clones share the memory.
#[derive(Debug, Clone)]
pub struct CuckooTable {
    layout: Layout,
    words: Arc<Buffer<u64>>,
    census: Census,
    config: CuckooConfig,
    /// Whether there may be values beyond [`MAX_VALUE`](super::horton::MAX_VALUE).
    wide: bool,
    /// Whether the item is there whose word is that of an empty slot; it stands in no bucket.
    twin: bool,
}

impl CuckooTable {
    /// Looks up the first `n` of `keys` in a table of values up to
    /// [`MAX_VALUE`](super::horton::MAX_VALUE), as
    /// [`HortonTable::lookup`](super::horton::HortonTable::lookup) does: `values[i]` receives the value
    /// or [`MISS`](super::horton::MISS), `reads[0]` grows by the number of second buckets read.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the table has other values, a buffer is shorter than `n` or `n` exceeds
    /// 2^32 - 1; OpenCL's own.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        values: &Buffer<u32>,
        reads: &Buffer<u32>,
        n: usize,
    ) -> Result<()> {
        check_narrow(self.wide || self.twin)?;
        let out = Out::narrow(values, reads);
        self.as_lookup(false).run(queue, keys, &out, n)
    }

    /// The same with any other `tuning`: for who measures tunings.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup); [`Error::Invalid`] if the tuning does not fit the device.
    pub fn lookup_tuned(
        &self,
        queue: &mut Queue,
        (keys, n): (&Buffer<u32>, usize),
        (values, reads): (&Buffer<u32>, &Buffer<u32>),
        tuning: &Tuning,
    ) -> Result<()> {
        check_narrow(self.wide || self.twin)?;
        let out = Out::narrow(values, reads);
        self.as_lookup(false)
            .run_tuned(queue, (keys, n), &out, tuning)
    }

    /// Counts the buckets and cache lines that looking up the first `n` of `keys` reads.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer keys; OpenCL's own.
    pub fn count_reads(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Reads> {
        self.as_lookup(true).count(queue, keys, n)
    }

    fn as_lookup(&self, wide: bool) -> Lookup<'_> {
        Lookup {
            kind: match self.config.placement {
                Placement::LoadBalanced => Kind::LoadBalanced,
                Placement::FirstFit => Kind::FirstFit,
            },
            variant: self.variant(wide),
            layout: self.layout,
            words: &self.words,
        }
    }

    fn variant(&self, wide: bool) -> Variant {
        Variant {
            cuckoo: true,
            ..self.layout.variant(wide)
        }
    }

    /// Brings the words back as a model.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn download(&self, queue: &mut Queue) -> Result<CuckooModel> {
        Ok(CuckooModel {
            layout: self.layout,
            words: queue.read(&self.words, self.layout.words())?,
            twin: self.twin,
        })
    }

    /// Sends a model's words to the device; later items are placed as `config` says.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn upload(queue: &mut Queue, model: &CuckooModel, config: CuckooConfig) -> Result<Self> {
        Ok(Self {
            layout: model.layout,
            words: Arc::new(queue.buffer_from("a cuckoo table", &model.words)?),
            census: model.census(),
            config,
            wide: model.is_wide(),
            twin: model.twin,
        })
    }

    /// Shape and seed.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Which bucket an item goes to.
    pub fn placement(&self) -> Placement {
        self.config.placement
    }

    /// Items in buckets, and those in their second one; no bucket is Type B.
    pub fn census(&self) -> Census {
        self.census
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.words.bytes()
    }
}
