//! The table that a join looks keys up in: any kind, behind one face.
//!
//! ```text
//!  distinct keys ─build─▶ Horton | direct | cache-line ─lookup─▶ row, or group, or MISS
//!  keys that repeat ────▶ none: group them first (table/multimap/map.rs)
//! ```
//!
//! Joins need no more of a table than this, so everything behind it (groups, pairs, windows,
//! visited rows) is the same for all. An enum and not the trait [`Table`](crate::table::Table):
//! that one answers with 32-bit values and a word beside each that says whether they were found,
//! and takes keys that repeat.
//!
//! Cost: a Horton table reads about one 64-byte bucket per lookup at load 0.8. A direct table reads
//! 4 bytes, but only takes keys that are dense numbers. A cache-line table reads one 64-byte line,
//! and has 21 bytes per key.

use std::fmt;

use crate::device::{Buffer, DeviceKind, Queue};
use crate::error::{Error, Result};
use crate::table::api::Items;
use crate::table::horton::build::{Built, build};
use crate::table::horton::table::{HortonTable, TableConfig};

use super::cacheline::CacheLineTable;
use super::direct::{CACHED, DirectTable, SPARSEST, SPARSEST_CACHED};
use super::pairs::LookedUp;

/// Number of keys from which [`IndexKind::Auto`] chooses another table than Horton's on a CPU.
/// Fewer keys fit into the nearest cache.
const ON_CPU_FROM: usize = 256;

/// Number of codes up to which a direct table is worth it for any number of keys from
/// `ON_CPU_FROM` on. Such a table is filled in no time.
const FEW_CODES: usize = 1 << 18;

/// The index that a join builds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum IndexKind {
    /// The index that suits the keys and the device. On CPUs and from 256 keys on, that is
    /// [`Direct`](Self::Direct) for dense or few possible keys, else
    /// [`CacheLine`](Self::CacheLine). It is a Horton table everywhere else.
    #[default]
    Auto,
    /// A slot for every possible key if keys are dense numbers, else a Horton table.
    Direct,
    /// A Horton table.
    Horton,
    /// Linear probing by cache lines over keys of one or two words. Longer keys, and repeating
    /// keys of two words, go by one word of their mix.
    CacheLine,
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IndexKind::Auto => "auto",
            IndexKind::Direct => "direct",
            IndexKind::Horton => "horton",
            IndexKind::CacheLine => "cache_line",
        })
    }
}

/// The configuration of an index: its kind, and how it is built.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IndexConfig {
    /// The kind of index.
    pub kind: IndexKind,
    /// Configuration of a Horton table. Its seed is that of every kind.
    pub horton: TableConfig,
}

impl From<&TableConfig> for IndexConfig {
    fn from(config: &TableConfig) -> Self {
        Self {
            kind: IndexKind::Horton,
            horton: *config,
        }
    }
}

impl From<IndexKind> for IndexConfig {
    fn from(kind: IndexKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}

impl IndexConfig {
    /// Returns the seed of the hash functions.
    pub fn seed(&self) -> u32 {
        self.horton.seed
    }

    /// Builds a table of distinct keys of two words, if that is asked for or suits the device.
    /// Returns `None` if not, or if some key repeats: then
    /// [`multiword`](crate::table::multimap::multiword) goes by half of their mix.
    ///
    /// # Errors
    /// Those of [`CacheLineTable::build`].
    pub fn build_codes(&self, queue: &mut Queue, items: Items<'_>) -> Result<Option<HashIndex>> {
        let wanted = match self.kind {
            IndexKind::Auto => CacheLineTable::suits(queue),
            IndexKind::CacheLine => true,
            IndexKind::Direct | IndexKind::Horton => false,
        };
        if !wanted {
            return Ok(None);
        }
        let table = CacheLineTable::build(queue, self.seed(), items, 2)?;
        Ok(table.map(HashIndex::CacheLine))
    }

    /// Returns the kind for `n` keys below `codes`.
    fn choose(&self, queue: &Queue, n: usize, codes: u64) -> Chosen {
        let entries = usize::try_from(codes).unwrap_or(usize::MAX);
        let dense = codes < 1 << u32::BITS && entries <= SPARSEST.saturating_mul(n);
        let cached = entries <= CACHED.min(SPARSEST_CACHED.saturating_mul(n)).max(FEW_CODES);
        let on_cpu = n >= ON_CPU_FROM && queue.info().kind == DeviceKind::Cpu;
        match self.kind {
            IndexKind::CacheLine => Chosen::CacheLine,
            IndexKind::Direct if dense => Chosen::Direct { entries },
            IndexKind::Auto if on_cpu && (dense || cached) => Chosen::Direct { entries },
            IndexKind::Auto if on_cpu && CacheLineTable::suits(queue) => Chosen::CacheLine,
            IndexKind::Auto | IndexKind::Direct | IndexKind::Horton => Chosen::Horton,
        }
    }
}

/// Distinct keys of one word, and their rows.
#[derive(Debug, Clone, Copy)]
pub struct IndexInput<'a> {
    /// The keys. Their values are at most 2^31 - 2.
    pub items: Items<'a>,
    /// Possible keys: each key is below it.
    pub codes: u64,
}

/// The kind of index for certain keys.
enum Chosen {
    Horton,
    Direct { entries: usize },
    CacheLine,
}

/// A table of distinct keys to rows, up to 2^31 - 2, in device memory. Keys are of 32 bits, in a
/// [`CacheLine`](Self::CacheLine) table perhaps of 64.
#[derive(Debug)]
pub enum HashIndex {
    /// A Horton table.
    Horton(HortonTable),
    /// A slot for every possible key.
    Direct(DirectTable),
    /// Linear probing over keys of one or two words.
    CacheLine(CacheLineTable),
}

impl HashIndex {
    /// Builds an index over `input`; `None` if some key is there more than once.
    ///
    /// # Errors
    /// Those of [`build`], [`DirectTable::build`] or [`CacheLineTable::build`].
    pub fn build(
        queue: &mut Queue,
        config: &IndexConfig,
        input: IndexInput<'_>,
    ) -> Result<Option<Self>> {
        let IndexInput { items, codes } = input;
        match config.choose(queue, items.keys.len(), codes) {
            Chosen::Horton => Ok(match build(queue, &config.horton, items)? {
                Built::Table(table) => Some(Self::Horton(table)),
                Built::Repeats => None,
            }),
            Chosen::Direct { entries } => {
                let table = DirectTable::build(queue, entries, items);
                // The keys are below `codes`, so who finds one that is not is wrong.
                let table = table.map_err(|error| match error {
                    Error::Invalid(what) => queue.wrong_answer(what),
                    error => error,
                })?;
                Ok(table.map(Self::Direct))
            }
            Chosen::CacheLine => {
                let table = CacheLineTable::build(queue, config.seed(), items, 1)?;
                Ok(table.map(Self::CacheLine))
            }
        }
    }

    /// Looks up the first `n` of `keys`. A key that is not there gets the value
    /// [`MISS`](crate::table::api::MISS).
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] and those of the table's own `lookup`.
    pub fn lookup(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<LookedUp> {
        let values = queue.allocate("looked-up values", n)?;
        let reads = queue.allocate("bucket reads", 1)?;
        queue.fill(&reads, 0)?;
        match self {
            Self::Horton(table) => table.lookup(queue, keys, &values, &reads, n)?,
            Self::Direct(table) => table.lookup(queue, keys, &values, n)?,
            Self::CacheLine(table) => table.lookup(queue, keys, &values, n)?,
        }
        Ok(LookedUp { values, reads })
    }

    /// Returns the table, if it is a Horton table.
    pub fn as_horton(&self) -> Option<&HortonTable> {
        match self {
            Self::Horton(table) => Some(table),
            Self::Direct(_) | Self::CacheLine(_) => None,
        }
    }

    /// Returns the number of 32-bit words of a key.
    pub fn key_words(&self) -> usize {
        match self {
            Self::Horton(_) | Self::Direct(_) => 1,
            Self::CacheLine(table) => table.key_words(),
        }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        match self {
            Self::Horton(table) => table.len(),
            Self::Direct(table) => table.len(),
            Self::CacheLine(table) => table.len(),
        }
    }

    /// Returns whether the table has no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        match self {
            Self::Horton(table) => table.layout().words(),
            Self::Direct(table) => table.entries(),
            Self::CacheLine(table) => table.slots(),
        }
    }

    /// Returns the bytes in device memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Horton(table) => table.bytes(),
            Self::Direct(table) => table.bytes(),
            Self::CacheLine(table) => table.bytes(),
        }
    }
}
