//! A Horton table in device memory: how it is built, and what it is made of.

use std::sync::Arc;

use crate::device::{Buffer, Device, Queue};
use crate::error::{Error, Result};
use crate::table::api::{Answers, Table, WhenFull};
use crate::table::primitives::bucket::{BucketSize, Layout, Variant};
use crate::table::primitives::hash::Reduction;

use super::model::{Census, HortonModel};

/// The configuration of a Horton table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableConfig {
    /// Slots per bucket; 8 is the default.
    pub bucket_size: BucketSize,
    /// Items per slot, in (0, 1]; the table grows beyond it when its keys do not fit. The
    /// default is [`DEFAULT_LOAD_FACTOR`].
    pub load_factor: f64,
    /// Seed of the hash functions. For keys that somebody may have chosen against the known
    /// default, [`random_seed`](crate::table::primitives::hash::random_seed); joins draw one each.
    pub seed: u32,
    /// Reduction of hashes to buckets.
    pub reduction: Reduction,
    /// Slots that there are at least, for items to come.
    pub min_capacity: usize,
    /// Behaviour of an insert when some keys find no slot.
    pub when_full: WhenFull,
    /// Time at which remapped items return to their primary buckets after removals.
    pub upkeep: Upkeep,
}

/// The time at which, after removals, remapped items return to their primary buckets and Type B
/// buckets turn Type A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upkeep {
    /// Every removal does so: lookups read as few buckets as they can.
    Eager,
    /// A removal does so when an eighth of the slots has been emptied. An insert does so when it
    /// has to displace items. Until then a removal only clears the entries that nothing needs.
    /// Removals are 4 to 9 times as fast as eager ones, mixtures of operations by a tenth; lookups
    /// lose 10 % at worst (measured: `benches/results/tables-2026-11-21.md`), unless
    /// [`HortonTable::repatriate`] is called before them.
    #[default]
    Lazy,
}

/// The default load factor.
pub const DEFAULT_LOAD_FACTOR: f64 = 0.8;

impl Default for TableConfig {
    fn default() -> Self {
        Self {
            bucket_size: BucketSize::Eight,
            load_factor: DEFAULT_LOAD_FACTOR,
            seed: 0x4854_4a31,
            reduction: Reduction::MultiplyHigh,
            min_capacity: 0,
            when_full: WhenFull::Grow,
            upkeep: Upkeep::default(),
        }
    }
}

impl TableConfig {
    /// Returns the facts that programs that build depend on.
    pub(crate) fn variant(&self) -> Variant {
        Variant {
            reduction: self.reduction,
            ..self.bucket_size.into()
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.load_factor > 0.0 && self.load_factor <= 1.0 {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "invalid load_factor {}: expected a number in (0, 1]",
            self.load_factor
        )))
    }
}

/// A Horton table of distinct keys in device memory. Clones share the memory.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::table::horton::{HortonTable, TableConfig};
///
/// # fn main() -> horton_tables::Result<()> {
/// let device = Device::open("auto")?;
/// let config = TableConfig::default();
/// let table = HortonTable::from_pairs(&device, &[7, 3, 9], &[70, 30, 90], &config)?;
/// assert_eq!(table.lookup_blocking(&device, &[9, 8, 7])?, [Some(90), None, Some(70)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct HortonTable {
    pub(crate) layout: Layout,
    pub(crate) words: Arc<Buffer<u64>>,
    pub(crate) census: Census,
    pub(crate) config: TableConfig,
    /// True if there may be values beyond [`MAX_VALUE`](super::MAX_VALUE).
    pub(crate) wide: bool,
    /// True if the item is there whose word is that of an empty slot; it stands in no bucket.
    pub(crate) sentinel: bool,
    /// Items removed since remapped ones came home.
    pub(crate) removed: usize,
}

impl HortonTable {
    /// Returns a table of values up to [`MAX_VALUE`](super::MAX_VALUE) that has been built.
    pub(crate) fn new(layout: Layout, words: Buffer<u64>, census: Census) -> Self {
        Self {
            layout,
            words: Arc::new(words),
            census,
            config: TableConfig {
                bucket_size: layout.bucket_size,
                seed: layout.seed,
                reduction: layout.reduction,
                ..TableConfig::default()
            },
            wide: false,
            sentinel: false,
            removed: 0,
        }
    }

    /// Returns the values of `keys`, in their order; blocking.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn lookup_blocking(&self, device: &Device, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let n = keys.len();
        let (keys, table) = (keys.to_vec(), self.clone());
        let job = move |queue: &mut Queue| {
            let keys = queue.buffer_from("keys", &keys)?;
            let answers = Answers::with_room(queue, n)?;
            Table::lookup(&table, queue, &keys, &answers, n)?;
            answers.read(queue, n)
        };
        Ok(device.run_blocking(job)?.value)
    }

    /// Brings the words back as a model.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn download(&self, queue: &mut Queue) -> Result<HortonModel> {
        Ok(HortonModel {
            layout: self.layout,
            words: queue.read(&self.words, self.layout.words())?,
            sentinel: self.sentinel,
        })
    }

    /// Sends a model's words to the device.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and OpenCL's own.
    pub fn upload(queue: &mut Queue, model: &HortonModel) -> Result<Self> {
        let words = queue.buffer_from("a Horton table", &model.words)?;
        Ok(Self {
            wide: model.is_wide(),
            sentinel: model.sentinel,
            ..Self::new(model.layout, words, model.census())
        })
    }

    /// Returns the shape and the seed of the table.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.census.items as usize + usize::from(self.sentinel)
    }

    /// Returns whether the table has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns items divided by slots, in 0..=1.
    pub fn load_factor(&self) -> f64 {
        self.len() as f64 / self.layout.words() as f64
    }

    /// Returns the share of buckets that are Type B, in 0..=1.
    pub fn type_b_share(&self) -> f64 {
        f64::from(self.census.type_b) / f64::from(self.layout.buckets)
    }

    /// Returns the census of the table: the parts that it is made of.
    pub fn census(&self) -> Census {
        self.census
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        self.words.bytes()
    }
}
