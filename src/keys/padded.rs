//! Exact surrogates of strings: padded to the length of the build side's longest.
//!
//! ```text
//!   columns  a Int64  b Utf8, up to 7 bytes          words of a surrogate
//!   row      5        "bolt"                   5 - min │ 4 'bolt' 0
//!   row      7        NULL                     7 - min │ NULL 0 0
//! ```
//!
//! Short strings are the usual string keys, and a device compares a few words where it finds
//! them: equal surrogates are equal keys, and the host neither hashes nor looks at a candidate, which
//! would be a read at a random place for every match. Columns that have codes come first, packed as
//! `exact` does it; then each column of strings or binary values, its length in a word, its
//! bytes in words. A probe string longer than the build side's longest cannot match. Beyond
//! [`MAX_WORDS`] words hashing is cheaper to send.
//!
//! Cost: a copy of the bytes, row after row, as fast as memory on all cores.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes::DataType;
use datafusion::common::NullEquality;

use super::and;
use super::exact::{self, Exact};
use crate::error::Result;

/// Words of the longest surrogate: 32 bytes.
pub(super) const MAX_WORDS: usize = 8;

/// Bytes of a word.
const WORD: usize = size_of::<u32>();

/// In the place of a length: the string is NULL.
const NULL: u32 = u32::MAX;

/// The strings of one key column, or of a part of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// Bytes of the longest.
    longest: usize,
}

/// The padded encoding of all key columns of a join.
#[derive(Clone, Debug)]
pub(super) struct Padded {
    /// The columns with codes, if there are any, and their encoding.
    numbers: Option<(Vec<usize>, Exact)>,
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
    /// Its first word in a surrogate.
    at: usize,
}

/// Whether values of the type are strings of bytes.
pub(super) fn is_text(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    )
}

impl Extent {
    /// The extent of one array; `None` if its strings are too long.
    pub(super) fn measure(array: &ArrayRef) -> Option<Self> {
        let mut extent = Self::default();
        for_each_value(array, |_, bytes| {
            extent.longest = extent.longest.max(bytes.map_or(0, <[u8]>::len));
        });
        extent.fits().then_some(extent)
    }

    /// The extent of both.
    pub(super) fn union(self, other: Self) -> Self {
        Self {
            longest: self.longest.max(other.longest),
        }
    }

    fn fits(self) -> bool {
        self.words() <= MAX_WORDS
    }

    fn words(self) -> usize {
        1 + self.longest.div_ceil(WORD)
    }
}

impl Padded {
    /// The encoding for key columns of these `extents`; `None` if surrogates would be too long or
    /// no column is of strings.
    pub(super) fn fit(
        extents: &[exact::Extent],
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
        let numbers = match columns.is_empty() {
            true => None,
            false => Some((columns, Exact::fit(&ranges, &native, null_equality)?)),
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

    /// Words of a surrogate.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Writes the surrogate of each row to `out` and returns which of them can match.
    pub(super) fn encode(
        &self,
        columns: &[ArrayRef],
        out: &mut [u32],
    ) -> Result<Option<BooleanBuffer>> {
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

/// Calls `each` with every row and its bytes, `None` if NULL.
fn for_each_value(array: &ArrayRef, mut each: impl FnMut(usize, Option<&[u8]>)) {
    macro_rules! walk {
        ($array:expr) => {{
            let array = $array;
            for row in 0..array.len() {
                let value: Option<&[u8]> = array
                    .is_valid(row)
                    .then(|| AsRef::<[u8]>::as_ref(array.value(row)));
                each(row, value);
            }
        }};
    }
    match array.data_type() {
        DataType::Utf8 => walk!(array.as_string::<i32>()),
        DataType::LargeUtf8 => walk!(array.as_string::<i64>()),
        DataType::Utf8View => walk!(array.as_string_view()),
        DataType::Binary => walk!(array.as_binary::<i32>()),
        DataType::LargeBinary => walk!(array.as_binary::<i64>()),
        DataType::BinaryView => walk!(array.as_binary_view()),
        _ => {}
    }
}
