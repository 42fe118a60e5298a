//! Exact normalized keys of strings: padded to the length of the build side's longest.
//!
//! ```text
//!   columns  a Int64  b Utf8, up to 7 bytes    words of a normalized key
//!   row      5        "bolt"                   5 - min │ 4 'bolt' 0
//!   row      7        NULL                     7 - min │ NULL 0 0
//! ```
//!
//! Short strings are the usual string keys, and a device compares a few words where it finds them.
//! Equal normalized keys are equal keys, so the host neither hashes nor looks at a candidate. That
//! would be a read at a random place for every match. Columns that have codes come first, as
//! `packed` packs them; then each column of strings or binary values, its length in a word, its
//! bytes in words. A probe string longer than the build side's longest cannot match. Beyond
//! [`MAX_WORDS`] words hashing is cheaper to send.
//!
//! Cost: a copy of the bytes, row after row, as fast as memory on all cores.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;
use datafusion::common::NullEquality;

use super::masks::and;
use super::packed::{self, PackedKeys};
use super::text::{MAX_WORDS, WORD, for_each_value};
use crate::error::Result;

/// The mark of a NULL string, in the place of a length.
const NULL: u32 = u32::MAX;

/// The padded encoding of all key columns of a join.
#[derive(Clone, Debug)]
pub struct PaddedStrings {
    /// The columns with codes, if there are any, and their encoding.
    numbers: Option<(Vec<usize>, PackedKeys)>,
    texts: Vec<Text>,
    null_equality: NullEquality,
    words: usize,
}

/// One column of strings.
#[derive(Clone, Copy, Debug)]
struct Text {
    column: usize,
    /// Bytes of the longest string.
    longest: usize,
    /// The string's first word in a normalized key.
    at: usize,
}

impl PaddedStrings {
    /// Returns the encoding for key columns of these `extents`; `None` if normalized keys would be
    /// too long or no column is of strings.
    pub fn fit(
        extents: &[packed::KeyRange],
        types: &[DataType],
        null_equality: NullEquality,
    ) -> Option<Self> {
        let mut words = 0;
        let (mut columns, mut ranges, mut native) = (Vec::new(), Vec::new(), Vec::new());
        for (column, (extent, data_type)) in extents.iter().zip(types).enumerate() {
            if extent.text.is_none() {
                columns.push(column);
                ranges.push(*extent);
                native.push(data_type.clone());
            }
        }
        let numbers = if columns.is_empty() {
            None
        } else {
            Some((columns, PackedKeys::fit(&ranges, &native, null_equality)?))
        };
        if let Some((_, exact)) = &numbers {
            words += exact.words();
        }
        let mut texts = Vec::new();
        for (column, extent) in extents.iter().enumerate() {
            if let Some(text) = extent.text {
                let longest = text.longest;
                texts.push(Text {
                    column,
                    longest,
                    at: words,
                });
                words += text.words();
            }
        }
        // A table of long keys wants two words at least.
        let words = words.max(2);
        (!texts.is_empty() && words <= MAX_WORDS).then_some(Self {
            numbers,
            texts,
            null_equality,
            words,
        })
    }

    /// Returns the number of 32-bit words of a normalized key.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Writes the normalized key of each row to `out` and returns which of them can match.
    pub fn encode(&self, columns: &[ArrayRef], out: &mut [u32]) -> Result<Option<BooleanBuffer>> {
        out.fill(0);
        let mut mask = None;
        if let Some((numbered, exact)) = &self.numbers {
            let columns: Vec<ArrayRef> = numbered.iter().map(|c| columns[*c].clone()).collect();
            let words = exact.words();
            let mut codes = vec![0; out.len() / self.words * words];
            mask = exact.encode(&columns, &mut codes)?;
            let rows = out.chunks_exact_mut(self.words);
            for (row, code) in rows.zip(codes.chunks_exact(words)) {
                row[..words].copy_from_slice(code);
            }
        }
        for text in &self.texts {
            mask = and(mask, self.encode_text(*text, &columns[text.column], out));
        }
        Ok(mask)
    }

    /// Writes one column's words; returns the rows that can match if not all can.
    fn encode_text(&self, text: Text, array: &ArrayRef, out: &mut [u32]) -> Option<BooleanBuffer> {
        let mut too_long = Vec::new();
        for_each_value(array, |row, bytes| {
            let row_at = row * self.words + text.at;
            let Some(bytes) = bytes else {
                out[row_at] = NULL;
                return;
            };
            if bytes.len() > text.longest {
                too_long.push(row);
                return;
            }
            out[row_at] = bytes.len() as u32;
            let (whole, rest) = bytes.as_chunks::<WORD>();
            let to = &mut out[row_at + 1..][..bytes.len().div_ceil(WORD)];
            for (to, word) in to.iter_mut().zip(whole) {
                *to = u32::from_le_bytes(*word);
            }
            if let (Some(to), false) = (to.last_mut(), rest.is_empty()) {
                let mut word = [0; WORD];
                word[..rest.len()].copy_from_slice(rest);
                *to = u32::from_le_bytes(word);
            }
        });
        let valid = match self.null_equality {
            NullEquality::NullEqualsNothing => array.logical_nulls().map(NullBuffer::into_inner),
            NullEquality::NullEqualsNull => None,
        };
        if too_long.is_empty() {
            return valid;
        }
        let mut fits = vec![true; array.len()];
        too_long.into_iter().for_each(|row| fits[row] = false);
        and(valid, Some(BooleanBuffer::from(fits)))
    }
}
