//! The operations that hash tables of every kind here can do.
//!
//! ```text
//!  build ─▶ table ─insert─▶ table ─remove─▶ table     each a bulk operation on the device
//!             │ lookup: keys ─▶ Answers (value, found)
//!             └ items: back on the host
//! ```
//!
//! One trait for all kinds, so that a test, a fuzzer or a benchmark is written once and runs over
//! each of them. Keys are any 32-bit numbers; values are, too, in tables of buckets, and go up to
//! [`MAX_VALUE`](super::baselines::linear::MAX_VALUE) in linear probing and slab hashes, which
//! refuse a batch with others. Operations come in bulk, as a device is fast at nothing else; within
//! one batch there is no order.

use crate::device::{Buffer, Queue};
use crate::error::Result;

/// The answer of a lookup without [`Answers`] for an absent key.
pub const MISS: u32 = u32::MAX;

/// Seeds and sizes that are tried before a build gives up.
pub const ATTEMPTS: usize = 8;

/// The keys and values of a bulk operation, on the device.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a> {
    /// One key per item: a word, or as many as the table's keys have.
    pub keys: &'a Buffer<u32>,
    /// One value per item; without them an item's value is its position.
    pub values: Option<&'a Buffer<u32>>,
}

impl Items<'_> {
    /// Returns the number of items.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if the lengths differ.
    pub fn count(&self) -> Result<usize> {
        let keys = self.keys.len();
        match self.values {
            Some(values) if values.len() != keys => Err(crate::error::Error::Invalid(format!(
                "{keys} keys and {} values: expected one value a key",
                values.len()
            ))),
            _ => Ok(keys),
        }
    }
}

/// The buffers of the device in which a lookup leaves its answers.
#[derive(Debug)]
pub struct Answers {
    /// The value of key `i`, if it was found; else anything.
    pub values: Buffer<u32>,
    /// 1 if key `i` was found, else 0.
    pub found: Buffer<u32>,
}

impl Answers {
    /// Returns room for the answers to `n` keys.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn with_room(queue: &mut Queue, n: usize) -> Result<Self> {
        Ok(Self {
            values: queue.allocate("looked-up values", n)?,
            found: queue.allocate("whether keys were found", n)?,
        })
    }

    /// Brings the first `n` answers back.
    ///
    /// # Errors
    /// OpenCL's own.
    pub fn read(&self, queue: &mut Queue, n: usize) -> Result<Vec<Option<u32>>> {
        let (values, found) = (queue.read(&self.values, n)?, queue.read(&self.found, n)?);
        let answers = values.into_iter().zip(found);
        Ok(answers
            .map(|(value, found)| (found != 0).then_some(value))
            .collect())
    }
}

/// The parts that a table is made of, counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Statistics {
    /// Number of items.
    pub items: usize,
    /// Items that there is room for.
    pub capacity: usize,
    /// Bytes in device memory.
    pub bytes: u64,
    /// Mean number of buckets that a lookup reads for a key that the table has; 0 in an empty
    /// table.
    pub reads_per_hit: f64,
}

/// Behaviour of an insert when some keys find no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The table stays as it was and the error says which keys had no room.
    Reject,
    /// The table is rebuilt with more room.
    #[default]
    Grow,
}

/// A hash table of distinct 32-bit keys to 32-bit values in device memory.
///
/// Every method takes the queue of the device that the table is on.
///
/// ```
/// use horton_tables::device::Device;
/// use horton_tables::error::{Error, Result};
/// use horton_tables::table::horton::{HortonTable, TableConfig};
/// use horton_tables::table::{Items, Table, WhenFull};
///
/// # fn main() -> Result<()> {
/// Device::open("auto")?.run_blocking(|queue| {
///     let config = TableConfig {
///         min_capacity: 64,
///         when_full: WhenFull::Reject,
///         ..TableConfig::default()
///     };
///     let keys = queue.buffer_from("keys", &[7, 3, 9])?;
///     let items = Items { keys: &keys, values: None };
///     let mut table = HortonTable::build(queue, &config, items)?; // key ─▶ position
///     assert_eq!((table.len(), table.capacity()), (3, 64));
///     assert_eq!(table.load_factor(), 3.0 / 64.0);
///     assert_eq!(table.statistics(queue)?.reads_per_hit, 1.0);
///
///     // A hundred more find no room: an error with their number, and nothing has changed.
///     let many: Vec<u32> = (100..200).collect();
///     let keys = queue.buffer_from("keys", &many)?;
///     match table.insert(queue, Items { keys: &keys, values: None }) {
///         Err(Error::Rejected { keys, .. }) => assert!(keys.len() >= 39),
///         other => panic!("{other:?}"),
///     }
///     let mut items = table.items(queue)?;
///     items.sort_unstable();
///     assert_eq!(items, [(3, 1), (7, 0), (9, 2)]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub trait Table: Sized {
    /// Shape, seed and policies.
    type Config;

    /// Builds a table of `items`, of which there may be none. If a key is there more than once, it
    /// gets one of its values, whichever.
    ///
    /// # Errors
    /// [`Error::Rejected`](crate::error::Error::Rejected) (or
    /// [`Error::TableFull`](crate::error::Error::TableFull)) if some keys find no room;
    /// [`Error::Invalid`](crate::error::Error::Invalid) if the numbers of keys and values differ,
    /// the table cannot store a value (or key), or the configuration makes no sense;
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory), and OpenCL's own.
    fn build(queue: &mut Queue, config: &Self::Config, items: Items<'_>) -> Result<Self>;

    /// Inserts keys that are not there and gives new values to those that are; returns how many
    /// were not there. If a key is there more than once in `items`, it gets one of its values,
    /// whichever, and counts once.
    ///
    /// # Errors
    /// As [`build`](Self::build). After an error the table is as it was before.
    fn insert(&mut self, queue: &mut Queue, items: Items<'_>) -> Result<usize>;

    /// Looks the first `n` of `keys` up.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::error::Error::Invalid) if there are fewer keys or less room for
    /// answers, [`Error::DeviceMemory`](crate::error::Error::DeviceMemory), and OpenCL's own.
    fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        answers: &Answers,
        n: usize,
    ) -> Result<()>;

    /// Removes the first `n` of `keys`; returns how many were there, each counted once.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup). After an error the table is as it was before.
    fn remove(&mut self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<usize>;

    /// Returns the number of items.
    fn len(&self) -> usize;

    /// Returns whether the table has no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of items that there is room for.
    fn capacity(&self) -> usize;

    /// Returns items divided by capacity, in 0..=1.
    fn load_factor(&self) -> f64 {
        self.len() as f64 / self.capacity().max(1) as f64
    }

    /// Returns the statistics of the table: the parts that it is made of.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    fn statistics(&self, queue: &mut Queue) -> Result<Statistics>;

    /// Brings all items (key, value) back, in no order.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    fn items(&self, queue: &mut Queue) -> Result<Vec<(u32, u32)>>;
    /// Does [`insert`](Self::insert) for pairs in host memory.
    ///
    /// # Errors
    /// As there; [`Error::Invalid`](crate::error::Error::Invalid) if the lengths differ.
    fn insert_pairs(&mut self, queue: &mut Queue, keys: &[u32], values: &[u32]) -> Result<usize> {
        let keys = queue.buffer_from("keys", keys)?;
        let values = queue.buffer_from("values", values)?;
        let items = Items {
            keys: &keys,
            values: Some(&values),
        };
        self.insert(queue, items)
    }

    /// Does [`lookup`](Self::lookup) for keys in host memory. Returns the value of each.
    ///
    /// # Errors
    /// As there.
    fn lookup_many(&self, queue: &mut Queue, keys: &[u32]) -> Result<Vec<Option<u32>>> {
        let n = keys.len();
        let answers = Answers::with_room(queue, n)?;
        let keys = queue.buffer_from("keys", keys)?;
        self.lookup(queue, &keys, &answers, n)?;
        answers.read(queue, n)
    }

    /// Does [`remove`](Self::remove) for keys in host memory.
    ///
    /// # Errors
    /// As there.
    fn remove_many(&mut self, queue: &mut Queue, keys: &[u32]) -> Result<usize> {
        let n = keys.len();
        let keys = queue.buffer_from("keys", keys)?;
        self.remove(queue, &keys, n)
    }
}

/// Brings items back from two buffers of one length.
pub(crate) fn read_pairs(
    queue: &mut Queue,
    (keys, values): (Buffer<u32>, Buffer<u32>),
) -> Result<Vec<(u32, u32)>> {
    let n = keys.len();
    let (keys, values) = (queue.read(&keys, n)?, queue.read(&values, n)?);
    Ok(keys.into_iter().zip(values).collect())
}

/// Refuses a buffer of fewer elements than operations.
pub(crate) fn enough(what: &str, given: usize, n: usize) -> Result<()> {
    if given >= n {
        Ok(())
    } else {
        Err(crate::error::Error::Invalid(format!(
            "{n} operations with {given} {what}: expected one each"
        )))
    }
}
