//! The encoding of one join's keys, chosen by the build side.
//!
//! ```text
//!  key columns of the build side ─▶ KeyRanges ─▶ packed │ padded │ hashed
//!  key columns of either side    ─▶ KeyEncoder ─▶ normalized keys, and which rows can match
//! ```

use std::fmt;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use datafusion::common::NullEquality;

use crate::error::{Error, Result};
use crate::table::multimap::KeyFormat;

use super::hashed::HashedKeys;
use super::packed::{KeyRange, PackedKeys};
use super::padded::PaddedStrings;
use super::verify;

/// The encoding by which one join's keys become normalized keys; fixed once the build side is
/// known.
#[derive(Clone, Debug)]
pub struct KeyEncoder {
    plan: Plan,
    types: Vec<DataType>,
}

#[derive(Clone, Debug)]
enum Plan {
    PackedKeys(PackedKeys),
    PaddedStrings(PaddedStrings),
    HashedKeys(HashedKeys),
}

/// The facts that the choice of an encoding depends on: rows, and the range of each key column.
/// Parts of a build side are measured side by side.
#[derive(Clone, Debug)]
pub struct KeyRanges {
    rows: usize,
    /// `None` if some column's values have no codes.
    columns: Option<Vec<KeyRange>>,
}

impl KeyRanges {
    /// Returns the ranges of `keys[b][c]`, key column `c` of batch `b`, of type `types[c]`.
    ///
    /// # Errors
    /// [`Error::Internal`] without key columns, or when a batch does not have the columns
    /// that `types` names.
    pub fn measure(keys: &[Vec<ArrayRef>], types: &[DataType]) -> Result<Self> {
        if types.is_empty() {
            return Err(Error::Internal(
                "a join needs at least one key column".into(),
            ));
        }
        let mut rows = 0;
        for batch in keys {
            rows += row_count(batch, types)?;
        }
        Ok(Self {
            rows,
            columns: KeyRange::measure(keys, types)?,
        })
    }

    /// Returns the ranges of both parts together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        let columns = match (self.columns, other.columns) {
            (Some(a), Some(b)) => a.into_iter().zip(b).map(|(a, b)| a.union(b)).collect(),
            _ => None,
        };
        Self {
            rows: self.rows + other.rows,
            columns,
        }
    }
}

impl KeyEncoder {
    /// Chooses the encoding for a build side.
    ///
    /// `build_keys[b][c]` is key column `c` of build batch `b` (the evaluated key
    /// expressions, all columns of a batch of one length) and `types[c]` its type.
    ///
    /// # Errors
    /// [`Error::Internal`] without key columns, or when a batch does not have the columns
    /// that `types` names.
    #[cfg(test)]
    pub fn fit(
        build_keys: &[Vec<ArrayRef>],
        types: &[DataType],
        null_equality: NullEquality,
    ) -> Result<Self> {
        Ok(Self::for_ranges(
            &KeyRanges::measure(build_keys, types)?,
            types,
            null_equality,
        ))
    }

    /// Returns an encoder of hashed normalized keys.
    #[cfg(test)]
    pub fn hashed(hashed: HashedKeys, types: Vec<DataType>) -> Self {
        let plan = Plan::HashedKeys(hashed);
        Self { plan, types }
    }

    /// Chooses the encoding for a build side of these key ranges. Without any build row keys are
    /// packed, with no codes: nothing can match.
    pub fn for_ranges(
        extents: &KeyRanges,
        types: &[DataType],
        null_equality: NullEquality,
    ) -> Self {
        let exact = match (extents.rows, &extents.columns) {
            (0, _) => Some(Plan::PackedKeys(PackedKeys::nothing())),
            (_, Some(columns)) => PackedKeys::fit(columns, types, null_equality)
                .map(Plan::PackedKeys)
                .or_else(|| {
                    PaddedStrings::fit(columns, types, null_equality).map(Plan::PaddedStrings)
                }),
            (_, None) => None,
        };
        Self {
            plan: exact.unwrap_or_else(|| Plan::HashedKeys(HashedKeys::new(null_equality))),
            types: types.to_vec(),
        }
    }

    /// Keeps only the low `bits` bits of hashed normalized keys (none when 0, all from 32 on).
    ///
    /// A testing aid: it makes unequal keys collide as often as wanted. Exact keys of several words
    /// give way to hashed ones if less than 32 bits are kept. Those of one word stay as they are.
    #[must_use]
    pub fn with_normalized_key_bits(mut self, bits: u32, null_equality: NullEquality) -> Self {
        if bits < u32::BITS {
            self = self.one_word(null_equality);
        }
        if let Plan::HashedKeys(hashed) = &mut self.plan {
            hashed.keep_bits(bits);
        }
        self
    }

    /// Returns an encoder with normalized keys of one word: hashed ones, if these have more.
    #[must_use]
    pub fn one_word(mut self, null_equality: NullEquality) -> Self {
        if self.words() > 1 {
            self.plan = Plan::HashedKeys(HashedKeys::new(null_equality));
        }
        self
    }

    /// Returns whether equal normalized keys mean equal keys, so that no candidate needs verifying.
    pub fn is_exact(&self) -> bool {
        !matches!(self.plan, Plan::HashedKeys(_))
    }

    /// Returns whether normalized keys are packed, so that [`test`](Self::test) takes them.
    pub fn is_packed(&self) -> bool {
        matches!(self.plan, Plan::PackedKeys(_))
    }

    /// Returns the number of 32-bit words of a normalized key, 1 to 8.
    pub fn words(&self) -> usize {
        match &self.plan {
            Plan::PackedKeys(exact) => exact.words(),
            Plan::PaddedStrings(padded) => padded.words(),
            Plan::HashedKeys(_) => 1,
        }
    }

    /// Returns the format that normalized keys have in a table.
    pub fn format(&self) -> KeyFormat {
        match self.words() {
            1 => KeyFormat::OneWord {
                codes: self.codes(),
            },
            words => KeyFormat::Words(words),
        }
    }

    /// Returns the number of normalized keys of one word that there can be.
    fn codes(&self) -> u64 {
        match &self.plan {
            Plan::PackedKeys(exact) => u64::try_from(exact.codes()).unwrap_or(u64::MAX),
            Plan::PaddedStrings(_) | Plan::HashedKeys(_) => 1 << self.bits().min(u32::BITS),
        }
    }

    /// Returns the number of packed keys of one word that there can be; `None` for other keys.
    pub fn domain_size(&self) -> Option<u64> {
        let one_word = self.is_exact() && self.words() == 1;
        match &self.plan {
            Plan::PackedKeys(_) if one_word => Some(self.codes()),
            _ => None,
        }
    }

    /// Returns the number of bits that a normalized key needs: the logarithm of the number of
    /// codes, 32 when hashed, all of its words' when it has strings.
    pub fn bits(&self) -> u32 {
        match &self.plan {
            Plan::PackedKeys(exact) => exact.bits(),
            Plan::PaddedStrings(padded) => 32 * padded.words() as u32,
            Plan::HashedKeys(hashed) => hashed.bits(),
        }
    }

    /// Writes the normalized key of every row of `columns`, of either side, to `out`, low word
    /// first. `out` has room for [`words`](Self::words) words per row. Returns which rows can
    /// match; `None` means that all of them can.
    ///
    /// A row cannot match when it has a NULL key that equals nothing, or, if
    /// [exact](Self::is_exact), a value outside the build side's range. The normalized key of
    /// such a row is unspecified.
    ///
    /// # Errors
    /// [`Error::Internal`] when the columns are not the key columns of this encoder, or
    /// differ in length, or have not as many rows as `out`.
    pub fn encode(&self, columns: &[ArrayRef], out: &mut [u32]) -> Result<Option<BooleanBuffer>> {
        self.check(columns, out)?;
        let mask = match &self.plan {
            Plan::PackedKeys(exact) => exact.encode(columns, out)?,
            Plan::PaddedStrings(padded) => padded.encode(columns, out)?,
            Plan::HashedKeys(hashed) => hashed.encode(columns, out)?,
        };
        Ok(mask.filter(|mask| mask.has_false()))
    }

    /// Returns the number of rows of `columns`, if they are key columns of this encoder and `out`
    /// has room for their normalized keys.
    fn check(&self, columns: &[ArrayRef], out: &[u32]) -> Result<usize> {
        let rows = row_count(columns, &self.types)?;
        if out.len() == rows * self.words() {
            return Ok(rows);
        }
        Err(Error::Internal(format!(
            "{} words for the normalized keys of {rows} rows of {} words",
            out.len(),
            self.words()
        )))
    }

    /// Returns the rows of `key`, the only key column, for whose packed key `has` is true. Rows
    /// that cannot match and NULLs are left out.
    ///
    /// # Errors
    /// [`Error::Internal`] if `key` is not the only key column of this encoder, or if its keys are
    /// not packed.
    pub fn test(&self, key: &ArrayRef, has: impl Fn(u64) -> bool) -> Result<BooleanBuffer> {
        row_count(std::slice::from_ref(key), &self.types)?;
        match &self.plan {
            Plan::PackedKeys(exact) => exact.test(key, has),
            Plan::PaddedStrings(_) | Plan::HashedKeys(_) => {
                Err(Error::Internal("only packed keys can be tested".to_owned()))
            }
        }
    }

    /// Writes normalized keys of rows to look up to the front of `out`, as
    /// [`encode`](Self::encode) does; returns the rows that have one, or `None` if all have.
    ///
    /// Where the encoding leaves a normalized key that no build row has, a row that cannot match
    /// may have that. So whichever rows are fewer are visited: those that cannot match, to write
    /// it, or those that can, to move their keys to the front.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode).
    pub fn encode_probe(&self, columns: &[ArrayRef], out: &mut [u32]) -> Result<Option<Vec<u32>>> {
        let rows = self.check(columns, out)?;
        let free = match &self.plan {
            Plan::PackedKeys(packed) => packed.absent().map(|absent| (packed, absent)),
            Plan::PaddedStrings(_) | Plan::HashedKeys(_) => None,
        };
        let Some((packed, absent)) = free else {
            return self.encode_matchable(columns, out);
        };
        let are_few = |outside: usize| 2 * outside < rows;
        let mask = match packed.encode_or_absent(columns, out, absent)? {
            Some(0) => return Ok(None),
            Some(outside) if are_few(outside) => return Ok(None),
            Some(_) => BooleanBuffer::collect_bool(rows, |row| u64::from(out[row]) != absent),
            None => match self.encode(columns, out)? {
                None => return Ok(None),
                Some(mask) => mask,
            },
        };
        if are_few(rows - mask.count_set_bits()) {
            packed.fill(out, &!&mask, absent);
            return Ok(None);
        }
        Ok(Some(self.compact(out, &mask)))
    }

    /// Writes the normalized keys of the rows that can match to the front of `out`, as
    /// [`encode`](Self::encode) does those of all; returns their rows, or `None` if all can.
    ///
    /// # Errors
    /// The errors of [`encode`](Self::encode).
    pub fn encode_matchable(
        &self,
        columns: &[ArrayRef],
        out: &mut [u32],
    ) -> Result<Option<Vec<u32>>> {
        let Some(mask) = self.encode(columns, out)? else {
            return Ok(None);
        };
        Ok(Some(self.compact(out, &mask)))
    }

    /// Moves the normalized keys of the rows in `mask` to the front; returns the rows.
    fn compact(&self, out: &mut [u32], mask: &BooleanBuffer) -> Vec<u32> {
        match self.words() {
            1 => compact::<1>(out.as_chunks_mut().0, mask),
            2 => compact::<2>(out.as_chunks_mut().0, mask),
            words => compact_long(out, words, mask),
        }
    }
}

/// Moves the normalized keys of the rows in `mask` to the front; returns the rows.
fn compact<const W: usize>(out: &mut [[u32; W]], mask: &BooleanBuffer) -> Vec<u32> {
    let mut rows = Vec::with_capacity(mask.count_set_bits());
    for (word, first) in mask.bit_chunks().iter_padded().zip((0..).step_by(64)) {
        if word == u64::MAX {
            // Most rows can match, as a rule, or hardly any.
            out.copy_within(first..first + 64, rows.len());
            rows.extend(first as u32..first as u32 + 64);
            continue;
        }
        let mut left = word;
        while left != 0 {
            let row = first + left.trailing_zeros() as usize;
            out[rows.len()] = out[row];
            rows.push(row as u32);
            left &= left - 1;
        }
    }
    rows
}

/// Moves normalized keys of `words` words to the front as `compact` does; returns the rows.
fn compact_long(out: &mut [u32], words: usize, mask: &BooleanBuffer) -> Vec<u32> {
    let rows: Vec<u32> = mask.set_indices().map(|row| row as u32).collect();
    for (to, row) in rows.iter().enumerate() {
        let from = *row as usize * words;
        out.copy_within(from..from + words, to * words);
    }
    rows
}

/// `exact(3 columns, 1234567 codes)` or `hashed(Utf8, Int64)`.
impl fmt::Display for KeyEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.plan {
            Plan::PaddedStrings(padded) => {
                let (columns, words) = (self.types.len(), padded.words());
                let plural = if columns == 1 { "" } else { "s" };
                write!(f, "exact({columns} column{plural}, {words} words)")
            }
            Plan::PackedKeys(exact) => {
                let plural = if self.types.len() == 1 { "" } else { "s" };
                let (columns, codes) = (self.types.len(), exact.codes());
                write!(f, "exact({columns} column{plural}, {codes} codes)")
            }
            Plan::HashedKeys(_) => {
                f.write_str("hashed(")?;
                for (i, data_type) in self.types.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{data_type}")?;
                }
                f.write_str(")")
            }
        }
    }
}

/// Returns the number of rows of `columns`, once they have proved to be key columns of `types`.
fn row_count(columns: &[ArrayRef], types: &[DataType]) -> Result<usize> {
    let rows = columns.first().map_or(0, |column| column.len());
    let fit = columns.len() == types.len()
        && columns.iter().zip(types).all(|(column, data_type)| {
            column.len() == rows && verify::comparable(column.data_type(), data_type)
        });
    if fit {
        return Ok(rows);
    }
    let found: Vec<String> = columns
        .iter()
        .map(|column| format!("{} × {}", column.len(), column.data_type()))
        .collect();
    let wanted: Vec<String> = types.iter().map(DataType::to_string).collect();
    Err(Error::Internal(format!(
        "key columns [{}] found where [{}] of one length were expected",
        found.join(", "),
        wanted.join(", ")
    )))
}
