//! The table that a join looks keys up in: any kind, behind one face.
//!
//! ```text
//!  distinct keys ─build─▶ Horton | linear probing | direct | codes ─lookup─▶ row, or group, or MISS
//!  keys that repeat ────▶ none: group them first (table/grouped.rs)
//! ```
//!
//! Joins need no more of a table than this, so everything behind it (groups, pairs, windows, visited
//! rows) is the same for all. An enum and not the trait [`Table`]: that one answers with
//! 32-bit values and a word beside each that says whether they were found, and takes keys that repeat.
//!
//! Cost: a Horton table reads about one 64-byte bucket a lookup at load 0.8; linear probing one or two 8-byte
//! slots for a hit and 2.5 for a miss at load 0.5, which are mostly in one cache line, of up to
//! twice as large a table. A direct table reads 4 bytes, but only takes keys that are dense numbers, and a
//! table of codes one 64-byte line, of 21 bytes a key.

use crate::device::{Buffer, DeviceKind, Queue};
use crate::error::{Error, Result};

use super::codes::CodeTable;
use super::direct::{CACHED, DirectTable, SPARSEST, SPARSEST_CACHED};
use super::horton::build::build;
use super::horton::{Built, HortonTable, TableConfig};
use super::linear::{LinearConfig, LinearTable};
use super::{Items, Table};

/// Keys from which on [`KeyTableConfig::Auto`] takes another table than Horton's on a CPU: with fewer, all are in
/// the nearest cache.
const ON_CPU_FROM: usize = 256;

/// Codes for which a direct table, filled in no time, is worth it for any number of keys from there on.
const FEW_CODES: usize = 1 << 18;

/// Which table, and how it is built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeyTableConfig {
    /// What suits the keys and the device: on CPUs, for 256 keys and more, [`Direct`](Self::Direct) where they are
    /// dense or few enough for the caches, else [`Codes`](Self::Codes); a Horton table on all others.
    Auto(TableConfig),
    /// A table with a slot for every possible key where they are dense numbers, else a Horton table.
    Direct(TableConfig),
    /// A Horton table.
    Horton(TableConfig),
    /// Linear probing.
    Linear(LinearConfig),
    /// Linear probing over keys of one or two words, a cache line at a time; over one word of the mix of longer ones, and of
    /// two words that repeat.
    Codes(TableConfig),
}

impl From<&TableConfig> for KeyTableConfig {
    fn from(config: &TableConfig) -> Self {
        Self::Horton(*config)
    }
}

impl From<&LinearConfig> for KeyTableConfig {
    fn from(config: &LinearConfig) -> Self {
        Self::Linear(*config)
    }
}

impl KeyTableConfig {
    /// Seed of the hash functions.
    pub fn seed(&self) -> u32 {
        match self {
            Self::Auto(config)
            | Self::Direct(config)
            | Self::Horton(config)
            | Self::Codes(config) => config.seed,
            Self::Linear(config) => config.seed,
        }
    }

    /// Builds a table of distinct keys of two words, if that is asked for or suits the device; `None` if not, or if
    /// some key repeats: then [`wide`](super::wide) goes by half of their mix.
    ///
    /// # Errors
    /// Those of [`CodeTable::build`].
    pub fn build_codes(&self, queue: &mut Queue, items: Items<'_>) -> Result<Option<KeyTable>> {
        let wanted = match self {
            Self::Auto(_) => CodeTable::suits(queue),
            Self::Codes(_) => true,
            Self::Direct(_) | Self::Horton(_) | Self::Linear(_) => false,
        };
        match wanted {
            true => {
                let table = CodeTable::build(queue, self.seed(), (items, 2))?;
                Ok(table.map(KeyTable::Codes))
            }
            false => Ok(None),
        }
    }

    /// The kind for `n` keys below `codes`.
    fn kind(&self, queue: &Queue, n: usize, codes: u64) -> Kind {
        let entries = usize::try_from(codes).unwrap_or(usize::MAX);
        let dense = codes < 1 << u32::BITS && entries <= SPARSEST.saturating_mul(n);
        let cached = entries <= CACHED.min(SPARSEST_CACHED.saturating_mul(n)).max(FEW_CODES);
        let on_cpu = n >= ON_CPU_FROM && queue.info().kind == DeviceKind::Cpu;
        match *self {
            Self::Linear(config) => Kind::Linear(config),
            Self::Codes(config) => Kind::Codes(config.seed),
            Self::Direct(_) if dense => Kind::Direct(entries),
            Self::Auto(_) if on_cpu && (dense || cached) => Kind::Direct(entries),
            Self::Auto(config) if on_cpu && CodeTable::suits(queue) => Kind::Codes(config.seed),
            Self::Auto(config) | Self::Direct(config) | Self::Horton(config) => {
                Kind::Horton(config)
            }
        }
    }
}

/// A kind of table.
enum Kind {
    Horton(TableConfig),
    Linear(LinearConfig),
    /// With so many entries.
    Direct(usize),
    /// With this seed.
    Codes(u32),
}

/// A table of distinct keys to rows, up to 2^31 - 2, in device memory. Keys are of 32 bits, in a
/// [`Codes`](Self::Codes) table perhaps of 64.
#[derive(Debug)]
pub enum KeyTable {
    /// A Horton table.
    Horton(HortonTable),
    /// Linear probing.
    Linear(LinearTable),
    /// A slot for every possible key.
    Direct(DirectTable),
    /// Linear probing over keys of one or two words.
    Codes(CodeTable),
}

impl KeyTable {
    /// Builds a table of `items`, whose values are at most 2^31 - 2 and whose keys are below `codes`; `None`
    /// if some key is there more than once.
    ///
    /// # Errors
    /// Those of [`build`], [`Table::build`], [`DirectTable::build`] or [`CodeTable::build`].
    pub fn build(
        queue: &mut Queue,
        config: &KeyTableConfig,
        (items, codes): (Items<'_>, u64),
    ) -> Result<Option<Self>> {
        match config.kind(queue, items.keys.len(), codes) {
            Kind::Horton(config) => Ok(match build(queue, &config, items)? {
                Built::Table(table) => Some(Self::Horton(table)),
                Built::Repeats => None,
            }),
            Kind::Linear(config) => {
                let table = LinearTable::build(queue, &config, items)?;
                let distinct = table.len() == items.keys.len();
                Ok(distinct.then_some(Self::Linear(table)))
            }
            Kind::Direct(entries) => {
                let table = DirectTable::build(queue, entries, items);
                // The keys are below `codes`, so who finds one that is not is wrong.
                let table = table.map_err(|error| match error {
                    Error::Invalid(what) => queue.wrong_answer(what),
                    error => error,
                })?;
                Ok(table.map(Self::Direct))
            }
            Kind::Codes(seed) => {
                let table = CodeTable::build(queue, seed, (items, 1))?;
                Ok(table.map(Self::Codes))
            }
        }
    }

    /// Looks up the first `n` of `keys`: `values[i]` receives the value, or all ones for a key that is not
    /// there. `reads[0]` grows by the second buckets read, if the table has buckets.
    ///
    /// # Errors
    /// Those of the table's own `lookup`.
    pub fn lookup(
        &self,
        queue: &mut Queue,
        keys: &Buffer<u32>,
        (values, reads): (&Buffer<u32>, &Buffer<u32>),
        n: usize,
    ) -> Result<()> {
        match self {
            Self::Horton(table) => table.lookup(queue, keys, values, reads, n),
            Self::Linear(table) => table.find(queue, keys, values, n),
            Self::Direct(table) => table.lookup(queue, keys, values, n),
            Self::Codes(table) => table.lookup(queue, keys, values, n),
        }
    }

    /// The table, if it is a Horton table.
    pub fn as_horton(&self) -> Option<&HortonTable> {
        match self {
            Self::Horton(table) => Some(table),
            Self::Linear(_) | Self::Direct(_) | Self::Codes(_) => None,
        }
    }

    /// 32-bit words of a key.
    pub fn key_words(&self) -> usize {
        match self {
            Self::Horton(_) | Self::Linear(_) | Self::Direct(_) => 1,
            Self::Codes(table) => table.key_words(),
        }
    }

    /// Keys.
    pub fn len(&self) -> usize {
        match self {
            Self::Horton(table) => table.len(),
            Self::Linear(table) => table.len(),
            Self::Direct(table) => table.len(),
            Self::Codes(table) => table.len(),
        }
    }

    /// Whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slots.
    pub fn slots(&self) -> usize {
        match self {
            Self::Horton(table) => table.layout().words(),
            Self::Linear(table) => table.layout().capacity,
            Self::Direct(table) => table.entries(),
            Self::Codes(table) => table.slots(),
        }
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Horton(table) => table.bytes(),
            Self::Linear(table) => table.bytes(),
            Self::Direct(table) => table.bytes(),
            Self::Codes(table) => table.bytes(),
        }
    }
}
