//! The build side's keys as normalized keys, by parts.
//!
//! ```text
//!  key columns of batches ─parts─▶ KeyRanges ─union─▶ KeyEncoder
//!     no NULLs   KeyPart::Plain     written straight to where the device copies from
//!     NULLs      KeyPart::Encoded   normalized keys of the rows that can match, in host memory
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
use tracing::trace_span;

use crate::error::{Error, Result};

use crate::keys::encoder::{KeyEncoder, KeyRanges};
use crate::parallel::{Morsel, map_blocking, map_parallel, parts};
use crate::table::multimap::KeyFormat;

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

/// Keys of consecutive rows, to be written to where the device copies them from.
#[derive(Debug)]
pub enum KeyPart {
    /// All rows have a key. They are encoded when they are written.
    Plain(KeyEncoder, Morsel),
    /// Some rows may have no key. The others have theirs in host memory.
    Encoded(NormalizedKeys),
}

impl KeyPart {
    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        match self {
            Self::Plain(_, part) => part.rows,
            Self::Encoded(keys) => keys.keys.len() / keys.words,
        }
    }

    /// Writes the keys' words to `out`, which has room for just these.
    ///
    /// # Errors
    /// The errors of [`KeyEncoder::encode`].
    pub fn write(&self, out: &mut [u32]) -> Result<()> {
        let _work = trace_span!("encode keys").entered();
        match self {
            Self::Plain(encoder, part) => encode_plain(encoder, part, out),
            Self::Encoded(keys) => {
                out.copy_from_slice(&keys.keys);
                Ok(())
            }
        }
    }

    /// Writes the numbers that the keys' rows have in the whole build side.
    pub fn number(&self, out: &mut [u32]) {
        match self {
            Self::Plain(_, part) => {
                let numbers = out.iter_mut().zip(part.first_row as u32..);
                numbers.for_each(|(out, row)| *out = row);
            }
            Self::Encoded(keys) => keys.number(out),
        }
    }
}

/// Writes the normalized keys of all rows of `part` to `out`.
fn encode_plain(encoder: &KeyEncoder, part: &Morsel, out: &mut [u32]) -> Result<()> {
    let words = encoder.words();
    let mut at = 0;
    for columns in &part.columns {
        let len = words * columns.first().map_or(0, |column| column.len());
        let out = &mut out[at..at + len];
        if encoder.encode(columns, out)?.is_some() {
            let reason = "a build row has no key, though none is NULL";
            return Err(Error::Internal(reason.to_owned()));
        }
        at += len;
    }
    Ok(())
}

/// The build side's keys on their way to the device.
#[derive(Debug)]
pub struct KeysToSend {
    /// Format of the normalized keys.
    pub format: KeyFormat,
    /// Rows of the build side, with or without a key.
    pub rows: usize,
    /// The keys of all rows that can match, in order.
    pub parts: Vec<Arc<KeyPart>>,
    /// Parts that are worked on at once.
    pub width: usize,
    /// What is reserved for keys in host memory; `None` if they are encoded when they are written.
    encoded: Option<MemoryReservation>,
}

impl KeysToSend {
    /// Chooses how `keys` are sent, `width` parts at a time. If some may be NULL they are encoded
    /// now, within what `memory` can be reserved.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool.
    pub async fn new(
        encoder: &KeyEncoder,
        keys: &[Vec<ArrayRef>],
        width: usize,
        memory: &MemoryReservation,
    ) -> Result<Self> {
        let first_keys = keys.iter().filter_map(|columns| columns.first());
        let rows = first_keys.map(|column| column.len()).sum();
        let (parts, encoded) = if has_nulls(keys) {
            let memory = memory.new_empty();
            memory.try_grow(encoded_bytes(encoder, rows))?;
            let parts = encode_parts(encoder, keys, width).await?.into_iter();
            let encoded = parts.map(|part| Arc::new(KeyPart::Encoded(part)));
            (encoded.collect(), Some(memory))
        } else {
            let plain = |part| Arc::new(KeyPart::Plain(encoder.clone(), part));
            (parts(keys).into_iter().map(plain).collect(), None)
        };
        Ok(Self {
            format: encoder.format(),
            rows,
            parts,
            width,
            encoded,
        })
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.parts.iter().map(|part| part.count()).sum()
    }

    /// Returns whether the keys were encoded in host memory first.
    pub fn is_encoded(&self) -> bool {
        self.encoded.is_some()
    }
}

/// Returns the host bytes of the normalized keys of `rows` rows, and of the rows' numbers.
pub fn encoded_bytes(encoder: &KeyEncoder, rows: usize) -> usize {
    (4 * encoder.words() + 4) * rows
}

/// Returns whether some key is NULL.
fn has_nulls(keys: &[Vec<ArrayRef>]) -> bool {
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
        async move {
            let _work = trace_span!("measure keys").entered();
            KeyRanges::measure(&part.columns, &types)
        }
    };
    let extents = map_parallel(parts(keys), width, measure).await?;
    let whole = extents.into_iter().reduce(KeyRanges::union);
    let extents = match whole {
        Some(extents) => extents,
        None => KeyRanges::measure(&[], types)?,
    };
    Ok(KeyEncoder::for_ranges(&extents, types, null_equality))
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
    let _work = trace_span!("encode keys").entered();
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
