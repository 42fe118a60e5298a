//! The table that a join builds: any keys, repeating or not, to the rows that have them.
//!
//! ```text
//!  unique keys      table: key ─▶ row
//!  repeating keys   table: key ─▶ group g ─▶ rows[offsets[g] .. offsets[g + 1]]
//! ```
//!
//! Most builds are primary keys, so the table is first built as if keys were unique. If keys
//! repeat, the build mostly finds that after a small part of its work. Only then are the rows
//! grouped and the table built over the distinct keys. Keys of two words have tables of their own
//! on CPUs ([`cacheline`](super::cacheline)). Otherwise keys of several words are grouped by what
//! the table knows them by, and told apart by [`multiword`](super::multiword).

use std::sync::Arc;

use crate::device::{Buffer, Queue};
use crate::error::{Error, Result};
use crate::table::api::Items;
use crate::table::primitives::group::{RowGroups, group};

use super::index::{HashIndex, IndexConfig, IndexInput};
use super::multiword::{GroupedCodes, HashAndTag, Mixing, Runs};
use super::pairs::{LookedUp, Matches, Pairs};

/// Number of keys of several words up to which a collision of 32-bit hashes is rarer than one build
/// in 500.
const LIKELY_DISTINCT: usize = 1 << 12;

/// Number of codes of a key that can be any 32-bit word.
const ANY: u64 = 1 << 32;

/// Mixings that are tried before a build gives up: each has one chance in 2^64 per pair of keys to
/// fail.
const MIXINGS: u32 = 4;

/// A device table over any keys, and the rows that its values stand for.
#[derive(Debug)]
pub struct MultiMap {
    /// Key to row, or key to group, or key to run.
    pub index: HashIndex,
    /// The rows by group; without them keys are unique and values are rows.
    pub groups: Option<Arc<RowGroups>>,
    /// Keys of several words, which the table's values stand for.
    pub runs: Option<Runs>,
}

/// The build side's keys on the device.
#[derive(Debug, Clone, Copy)]
pub struct MultiMapInput<'a> {
    /// One key per row that can match.
    pub keys: &'a Buffer<u32>,
    /// Their row numbers; without them, their positions.
    pub rows: Option<&'a Buffer<u32>>,
    /// Format of a key.
    pub format: KeyFormat,
}

/// The format of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFormat {
    /// One word, which is below `codes`.
    OneWord {
        /// Keys that there can be, at most 2^32.
        codes: u64,
    },
    /// A number of words, at least two, low word first.
    Words(usize),
}

impl KeyFormat {
    /// Keys of one word that may be any.
    pub const ANY_WORD: Self = Self::OneWord { codes: ANY };

    /// Returns the number of 32-bit words of a key.
    pub fn words(self) -> usize {
        match self {
            Self::OneWord { .. } => 1,
            Self::Words(words) => words,
        }
    }
}

impl MultiMapInput<'_> {
    /// Refuses words that make no whole keys, and row numbers for more or fewer keys.
    fn check(&self) -> Result<()> {
        let (words, given) = (self.format.words(), self.keys.len());
        let rows = self.rows.map_or(given / words, Buffer::len);
        if given == rows * words {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "{given} words of keys and {rows} rows: expected {words} words a row"
        )))
    }
}

impl MultiMap {
    /// Builds the table on the queue's device. `config` is that of a Horton table, by
    /// reference, an [`IndexConfig`] or an [`IndexKind`](super::IndexKind).
    ///
    /// # Errors
    /// [`Error::Invalid`] if keys and rows differ in number, and those of [`HashIndex::build`] and
    /// [`group`].
    pub fn build(
        queue: &mut Queue,
        config: impl Into<IndexConfig>,
        input: MultiMapInput<'_>,
    ) -> Result<Self> {
        let config = &config.into();
        input.check()?;
        let codes = match input.format {
            KeyFormat::OneWord { codes } => codes,
            KeyFormat::Words(2) => return Self::build_codes(queue, config, input),
            KeyFormat::Words(words) => return Self::build_wide(queue, config, input, words),
        };
        let items = Items {
            keys: input.keys,
            values: input.rows,
        };
        match HashIndex::build(queue, config, IndexInput { items, codes })? {
            Some(index) => Ok(Self {
                index,
                groups: None,
                runs: None,
            }),
            None => Self::build_groups(queue, config, items, codes),
        }
    }

    fn build_groups(
        queue: &mut Queue,
        config: &IndexConfig,
        items: Items<'_>,
        codes: u64,
    ) -> Result<Self> {
        let bits = u64::BITS - codes.saturating_sub(1).leading_zeros();
        let groups = group(queue, items, bits)?;
        let items = Items {
            keys: &groups.unique_keys,
            values: None,
        };
        let index = HashIndex::build(queue, config, IndexInput { items, codes })?;
        let index = index.ok_or(Error::DuplicateKeys)?;
        Ok(Self {
            index,
            groups: Some(Arc::new(groups.into())),
            runs: None,
        })
    }

    /// Returns a table over keys of two words as they are, where the device has a fast one and they
    /// do not repeat.
    fn build_codes(
        queue: &mut Queue,
        config: &IndexConfig,
        input: MultiMapInput<'_>,
    ) -> Result<Self> {
        let items = Items {
            keys: input.keys,
            values: input.rows,
        };
        match config.build_codes(queue, items)? {
            Some(index) => Ok(Self {
                index,
                groups: None,
                runs: None,
            }),
            None => Self::build_wide(queue, config, input, 2),
        }
    }

    fn build_wide(
        queue: &mut Queue,
        config: &IndexConfig,
        input: MultiMapInput<'_>,
        words: usize,
    ) -> Result<Self> {
        for attempt in 0..MIXINGS {
            let seed = config
                .seed()
                .wrapping_add(attempt.wrapping_mul(0x9e37_79b9));
            let mixing = Mixing { words, seed };
            if let Some(built) = Self::build_mixed(queue, config, input, mixing)? {
                return Ok(built);
            }
            log::debug!("two keys of {words} words share 64 bits of their mix with seed {seed:#x}");
        }
        Err(Error::DuplicateKeys)
    }

    /// Returns the same with one mixing; `None` if it does not tell all keys apart.
    fn build_mixed(
        queue: &mut Queue,
        config: &IndexConfig,
        input: MultiMapInput<'_>,
        mixing: Mixing,
    ) -> Result<Option<Self>> {
        let n = input.keys.len() / mixing.words;
        let codes = HashAndTag::new(queue, input.keys, n, mixing)?;
        if n <= LIKELY_DISTINCT {
            let items = Items {
                keys: &codes.keys,
                values: None,
            };
            if let Some(index) = HashIndex::build(queue, config, IndexInput { items, codes: ANY })?
            {
                let runs = Runs::from_rows(queue, (&codes, input.keys), input.rows)?;
                return Ok(Some(Self {
                    index,
                    groups: None,
                    runs: Some(runs),
                }));
            }
        }
        let Some(grouped) = GroupedCodes::new(queue, (codes, input.keys), input.rows)? else {
            return Ok(None);
        };
        let items = Items {
            keys: &grouped.keys,
            values: Some(&grouped.first),
        };
        match HashIndex::build(queue, config, IndexInput { items, codes: ANY })? {
            Some(index) => Ok(Some(Self {
                index,
                groups: grouped.groups.map(Arc::new),
                runs: Some(grouped.runs),
            })),
            None => Err(Error::DuplicateKeys),
        }
    }

    /// Joins the first `n` of `keys`, all on the device: pairs of their positions and the
    /// build rows with equal keys, in probe order.
    ///
    /// ```
    /// use horton_tables::device::Device;
    /// use horton_tables::table::multimap::{KeyFormat, MultiMap, MultiMapInput};
    /// use horton_tables::table::horton::TableConfig;
    ///
    /// # fn main() -> horton_tables::Result<()> {
    /// let pairs = Device::open("auto")?.run_blocking(|queue| {
    ///     let build = queue.buffer_from("build keys", &[5, 3, 5, 8])?;
    ///     let keys = MultiMapInput { keys: &build, rows: None, format: KeyFormat::ANY_WORD };
    ///     let table = MultiMap::build(queue, &TableConfig::default(), keys)?;
    ///     let probe = queue.buffer_from("probe keys", &[8, 9, 5])?;
    ///     let pairs = table.join(queue, &probe, 3)?;
    ///     Ok((queue.read(&pairs.probe, 3)?, queue.read(&pairs.build, 3)?))
    /// })?;
    /// assert_eq!(pairs.value, (vec![0, 2, 2], vec![3, 0, 2]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TooManyPairs`](crate::error::Error::TooManyPairs) beyond 2^32 - 1, for which [`Matches`]
    /// has windows; [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn join(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Pairs> {
        self.lookup(queue, keys, n)?.into_pairs(queue)
    }

    /// Looks up the first `n` of `keys` and counts their pairs.
    ///
    /// # Errors
    /// [`DeviceMemory`](crate::error::Error::DeviceMemory) and OpenCL's own.
    pub fn lookup(&self, queue: &mut Queue, keys: &Buffer<u32>, n: usize) -> Result<Matches> {
        let looked_up = match &self.runs {
            None => self.index.lookup(queue, keys, n)?,
            Some(runs) => {
                let codes = HashAndTag::new(queue, keys, n, runs.mixing())?;
                let found = self.index.lookup(queue, &codes.keys, n)?;
                LookedUp {
                    values: runs.resolve(queue, &found.values, (&codes, keys), n)?,
                    ..found
                }
            }
        };
        Matches::count(queue, looked_up, self.groups.clone(), n)
    }

    /// Returns the number of 32-bit words of a key.
    pub fn key_words(&self) -> usize {
        match &self.runs {
            Some(runs) => runs.mixing().words,
            None => self.index.key_words(),
        }
    }

    /// Returns the bytes on the device.
    pub fn bytes(&self) -> u64 {
        let groups = self.groups.as_ref().map_or(0, |groups| groups.bytes());
        self.index.bytes() + groups + self.runs.as_ref().map_or(0, Runs::bytes)
    }
}
