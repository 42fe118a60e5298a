//! The build side's keys as surrogates, by parts.
//!
//! ```text
//!  key columns of batches ─parts─▶ extents ─union─▶ KeyEncoder ─▶ surrogates of each part, rows that can match
//! ```
//!
//! Extents, encoding and sending are done part by part on all cores, for the build side comes as one stream.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};

use crate::error::Result;

use super::build::BuildSpec;
use super::keys::{Extents, KeyEncoder};
use super::parts::{Part, parts, side_by_side};

/// The surrogate keys of one part of the build side.
#[derive(Debug)]
pub struct SurrogateKeys {
    /// The part's first row.
    pub first_row: usize,
    /// One key a row that can match, low word first.
    pub keys: Vec<u32>,
    /// 32-bit words of a key.
    pub words: usize,
    /// Which of the part's rows those are, counted from its first; `None` if all.
    pub rows: Option<Vec<u32>>,
}

impl SurrogateKeys {
    /// Writes the numbers that the rows of the keys `range` have in the whole build side.
    pub(super) fn number(&self, range: Range<usize>, out: &mut [u32]) {
        let first = self.first_row as u32;
        match &self.rows {
            Some(rows) => out
                .iter_mut()
                .zip(&rows[range])
                .for_each(|(out, row)| *out = first + row),
            None => out
                .iter_mut()
                .zip(first + range.start as u32..)
                .for_each(|(out, row)| *out = row),
        }
    }
}

/// Some of a part's surrogate keys, numbered as keys, not words.
#[derive(Debug, Clone)]
pub struct KeyRange {
    of: Arc<SurrogateKeys>,
    range: Range<usize>,
}

impl KeyRange {
    /// All keys of a part.
    pub fn all(keys: SurrogateKeys) -> Self {
        Self {
            range: 0..keys.keys.len() / keys.words,
            of: Arc::new(keys),
        }
    }

    /// The keys `wanted`, counted through all of `keys`.
    pub fn cut(keys: &[KeyRange], wanted: Range<usize>) -> Vec<KeyRange> {
        let mut before = 0;
        let mut cut = Vec::new();
        for part in keys {
            let from = wanted.start.saturating_sub(before).min(part.len());
            let to = wanted.end.saturating_sub(before).min(part.len());
            if from < to {
                cut.push(Self {
                    of: Arc::clone(&part.of),
                    range: part.range.start + from..part.range.start + to,
                });
            }
            before += part.len();
        }
        cut
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Whether all rows of the part have a key.
    pub fn has_all_rows(&self) -> bool {
        self.of.rows.is_none()
    }

    /// The number of the row of the first key, if [all rows](Self::has_all_rows) have one.
    pub fn first_row(&self) -> u32 {
        (self.of.first_row + self.range.start) as u32
    }

    /// The keys' words.
    pub(super) fn keys(&self) -> &[u32] {
        let words = self.of.words;
        &self.of.keys[self.range.start * words..self.range.end * words]
    }

    /// Writes the numbers that the keys' rows have in the whole build side.
    pub fn number(&self, out: &mut [u32]) {
        self.of.number(self.range.clone(), out);
    }
}

/// Chooses the encoding of `keys` and encodes them, by parts.
pub(super) async fn encode(
    spec: &BuildSpec,
    keys: &[Vec<ArrayRef>],
) -> Result<(KeyEncoder, Vec<SurrogateKeys>)> {
    let measure = |part: Part| {
        let types = spec.types.clone();
        async move { Extents::measure(&part.columns, &types) }
    };
    let extents = side_by_side(parts(keys), spec.width, measure).await?;
    let whole = extents.into_iter().reduce(Extents::union);
    let extents = match whole {
        Some(extents) => extents,
        None => Extents::measure(&[], &spec.types)?,
    };
    let encoder = KeyEncoder::of(&extents, &spec.types, spec.null_equality)
        .with_surrogate_bits(spec.config.surrogate_bits, spec.null_equality);
    let encoded = encode_parts(&encoder, keys, spec.width).await?;
    Ok((encoder, encoded))
}

/// The surrogates of all rows that can match, by parts.
pub(super) async fn encode_parts(
    encoder: &KeyEncoder,
    keys: &[Vec<ArrayRef>],
    width: usize,
) -> Result<Vec<SurrogateKeys>> {
    let encode = |part: Part| {
        let encoder = encoder.clone();
        async move { encode_part(&encoder, &part) }
    };
    side_by_side(parts(keys), width, encode).await
}

/// Surrogates of the rows that can match.
fn encode_part(encoder: &KeyEncoder, part: &Part) -> Result<SurrogateKeys> {
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
    Ok(SurrogateKeys {
        first_row: part.first_row,
        keys,
        words,
        rows,
    })
}
