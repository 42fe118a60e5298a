//! The build side's keys as normalized keys, by parts.
//!
//! ```text
//!  key columns of batches ─parts─▶ KeyRanges ─union─▶ KeyEncoder
//!     no NULLs   Plain     a part at a time, straight to where the device copies from
//!     NULLs      Encoded   normalized keys of the rows that can match, in host memory
//! ```
//!
//! The build side comes as one stream, so ranges, encoding and sending are done part by part on
//! all cores. Keys without NULLs are not encoded in host memory first: that is a copy of all of
//! them, to pages touched for the first time. With NULLs it must be, as the place of a part's keys
//! depends on how many the parts before it have.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::NullEquality;
use datafusion::execution::memory_pool::MemoryReservation;

use crate::error::{Error, Result};

use crate::keys::encoder::{KeyEncoder, KeyRanges};
use crate::parallel::{Morsel, map_blocking, map_parallel, parts};

/// The normalized keys of one part of the build side.
#[derive(Debug)]
pub struct NormalizedKeys {
    /// The part's first row.
    pub first_row: usize,
    /// One key per row that can match, low word first.
    pub keys: Vec<u32>,
    /// 32-bit words of a key.
    pub words: usize,
    /// Numbers of these rows in the part, from its first; `None` if all.
    pub rows: Option<Vec<u32>>,
}

impl NormalizedKeys {
    /// Writes the numbers that the rows of all keys have in the whole build side.
    pub fn number(&self, out: &mut [u32]) {
        debug_assert_eq!(out.len() * self.words, self.keys.len(), "a number per key");
        let first = self.first_row as u32;
        match &self.rows {
            Some(rows) => {
                let numbers = out.iter_mut().zip(rows);
                numbers.for_each(|(out, row)| *out = first + row);
            }
            None => {
                let numbers = out.iter_mut().zip(first..);
                numbers.for_each(|(out, row)| *out = row);
            }
        }
    }
}

/// Keys that can be written to where the device copies them from.
pub trait KeySource: Send + 'static {
    /// Returns the number of keys.
    fn count(&self) -> usize;

    /// Writes the keys' words to `out`, which has room for just these.
    ///
    /// # Errors
    /// The errors of [`KeyEncoder::encode`].
    fn write(&self, out: &mut [u32]) -> Result<()>;

    /// Writes the numbers that the keys' rows have in the whole build side.
    fn number(&self, out: &mut [u32]);
}

impl KeySource for Arc<NormalizedKeys> {
    fn count(&self) -> usize {
        self.keys.len() / self.words
    }

    fn write(&self, out: &mut [u32]) -> Result<()> {
        out.copy_from_slice(&self.keys);
        Ok(())
    }

    fn number(&self, out: &mut [u32]) {
        NormalizedKeys::number(self, out);
    }
}

/// The keys of a part whose rows all have one, encoded when they are written.
#[derive(Debug)]
pub struct PlainKeys {
    encoder: KeyEncoder,
    part: Morsel,
}

impl PlainKeys {
    /// Returns the keys of all rows of `keys[b][c]`, by parts.
    pub fn of(encoder: &KeyEncoder, keys: &[Vec<ArrayRef>]) -> Vec<Self> {
        let plain = |part| Self {
            encoder: encoder.clone(),
            part,
        };
        parts(keys).into_iter().map(plain).collect()
    }
}

impl KeySource for PlainKeys {
    fn count(&self) -> usize {
        self.part.rows
    }

    fn write(&self, out: &mut [u32]) -> Result<()> {
        let words = self.encoder.words();
        let mut at = 0;
        for columns in &self.part.columns {
            let len = words * columns.first().map_or(0, |column| column.len());
            let out = &mut out[at..at + len];
            if self.encoder.encode(columns, out)?.is_some() {
                let reason = "a build row has no key, though none is NULL";
                return Err(Error::Internal(reason.to_owned()));
            }
            at += len;
        }
        Ok(())
    }

    fn number(&self, out: &mut [u32]) {
        let first = self.part.first_row as u32;
        out.iter_mut()
            .zip(first..)
            .for_each(|(out, row)| *out = row);
    }
}

/// The build side's keys on their way to the device.
#[derive(Debug)]
pub enum KeysToSend {
    /// All rows have one.
    Plain,
    /// Some rows may have none.
    Encoded(EncodedKeys),
}

impl KeysToSend {
    /// Chooses how the `keys` of `rows` rows are sent: encoded before, if some may be NULL.
    ///
    /// # Errors
    /// Those of [`EncodedKeys::new`].
    pub async fn of(
        encoder: &KeyEncoder,
        keys: &[Vec<ArrayRef>],
        rows: usize,
        width: usize,
        memory: &MemoryReservation,
    ) -> Result<Self> {
        if !has_nulls(keys) {
            return Ok(Self::Plain);
        }
        let keys = EncodedKeys::new(encoder, keys, rows, width, memory).await?;
        Ok(Self::Encoded(keys))
    }

    /// Returns the keys of a build side of `rows` rows.
    pub fn count(&self, rows: usize) -> usize {
        match self {
            Self::Plain => rows,
            Self::Encoded(keys) => keys.count(),
        }
    }
}

/// Normalized keys in host memory, and what is reserved for them.
#[derive(Debug)]
pub struct EncodedKeys {
    /// Keys of consecutive rows.
    pub parts: Vec<Arc<NormalizedKeys>>,
    _memory: MemoryReservation,
}

impl EncodedKeys {
    /// Encodes `keys`, `width` parts at a time, within what `memory` can be reserved.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool.
    pub async fn new(
        encoder: &KeyEncoder,
        keys: &[Vec<ArrayRef>],
        rows: usize,
        width: usize,
        memory: &MemoryReservation,
    ) -> Result<Self> {
        let memory = memory.new_empty();
        memory.try_grow(encoded_bytes(encoder, rows))?;
        let parts = encode_parts(encoder, keys, width).await?;
        Ok(Self {
            parts: parts.into_iter().map(Arc::new).collect(),
            _memory: memory,
        })
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.parts.iter().map(KeySource::count).sum()
    }
}

/// Returns the host bytes of the normalized keys of `rows` rows, and of the rows' numbers.
pub fn encoded_bytes(encoder: &KeyEncoder, rows: usize) -> usize {
    (4 * encoder.words() + 4) * rows
}

/// Returns whether some key is NULL.
pub fn has_nulls(keys: &[Vec<ArrayRef>]) -> bool {
    keys.iter()
        .flatten()
        .any(|column| column.logical_null_count() > 0)
}

/// Chooses the encoding of `keys`, whose columns have the given `types`. `width` parts of the keys
/// are measured at a time.
///
/// # Errors
/// The errors of [`KeyRanges::measure`].
pub async fn choose_encoder(
    types: &[DataType],
    null_equality: NullEquality,
    keys: &[Vec<ArrayRef>],
    width: usize,
) -> Result<KeyEncoder> {
    let measure = |part: Morsel| {
        let types = types.to_vec();
        async move { KeyRanges::measure(&part.columns, &types) }
    };
    let extents = map_parallel(parts(keys), width, measure).await?;
    let whole = extents.into_iter().reduce(KeyRanges::union);
    let extents = match whole {
        Some(extents) => extents,
        None => KeyRanges::measure(&[], types)?,
    };
    Ok(KeyEncoder::of(&extents, types, null_equality))
}

/// Returns the normalized keys of all rows that can match, by parts.
pub async fn encode_parts(
    encoder: &KeyEncoder,
    keys: &[Vec<ArrayRef>],
    width: usize,
) -> Result<Vec<NormalizedKeys>> {
    let encoder = encoder.clone();
    let encode = move |part: Morsel| encode_part(&encoder, &part);
    map_blocking(parts(keys), width, encode).await
}

/// Returns the normalized keys of the rows that can match.
fn encode_part(encoder: &KeyEncoder, part: &Morsel) -> Result<NormalizedKeys> {
    let words = encoder.words();
    let mut keys = vec![0; part.rows * words];
    let mut rows: Option<Vec<u32>> = None;
    let (mut before, mut len) = (0, 0);
    for columns in &part.columns {
        let count = columns.first().map_or(0, |column| column.len());
        let out = &mut keys[len * words..][..count * words];
        let matchable = encoder.encode_matchable(columns, out)?;
        len += matchable.as_ref().map_or(count, Vec::len);
        let first = before as u32;
        match (matchable, &mut rows) {
            (None, None) => {}
            (None, Some(rows)) => rows.extend(first..first + count as u32),
            (Some(matchable), rows) => rows
                .get_or_insert_with(|| (0..first).collect())
                .extend(matchable.iter().map(|row| first + row)),
        }
        before += count;
    }
    keys.truncate(len * words);
    Ok(NormalizedKeys {
        first_row: part.first_row,
        keys,
        words,
        rows,
    })
}
