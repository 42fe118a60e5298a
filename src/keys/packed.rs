//! Packed keys, which are exact: all key columns in mixed radix.
//!
//! Column `c` of a build side has `values` codes: one for each integer between its smallest and its
//! largest value. Under `NullEqualsNull` a column with a NULL has one more for it:
//!
//! ```text
//!   column a:  -3 … 6, NULL       codes 0 … 9, 10     key = code(a) + 11 · code(b)
//!   column b:  100 … 120          codes 0 … 20        231 codes in all
//! ```
//!
//! Up to 2^32 codes make normalized keys of one word, up to 2^64 of two, low word first: numbers of
//! codes are kept as `u128`, factors modulo 2^64. Differences are taken modulo the width of the
//! type. There the values of the range, and only they, end up at or below its span, extreme values
//! included. A 64-bit column whose values span half its type or more gets the whole type as its
//! range.
//!
//! The loops are over plain slices, one column at a time: a first pass writes all codes
//! and notices whether any value was outside the range; only then a second pass over the
//! (cached) batch finds out which, or writes a code for them that no build row has. NULL slots
//! are encoded like values and repaired later. One core encodes faster than it can fetch.
//!
//! A filter's set needs no codes: a test of one column is one pass.

use std::ops::BitOr;

use arrow::array::{Array, ArrayData, ArrayRef};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::cast;
use arrow::datatypes::{ArrowNativeType, DataType, IntervalUnit};
use datafusion::common::NullEquality;

use super::masks::{self, and};
use super::text::{StringLengths, is_text};
use crate::error::Result;

/// Returns the largest number of codes that normalized keys of so many words can tell apart.
fn max_codes(words: usize) -> u128 {
    1 << (32 * words)
}

/// Words of the longest normalized key.
const MAX_WORDS: usize = 2;

/// The packed encoding of all key columns of a join.
#[derive(Clone, Debug)]
pub struct PackedKeys {
    columns: Vec<Column>,
    /// The product of the columns' codes; 0 when no row can match.
    codes: u128,
    /// Words of a normalized key, 1 or 2.
    words: usize,
}

/// One column's part of the normalized key.
#[derive(Clone, Debug)]
struct Column {
    native: PhysicalType,
    /// The smallest value of the build side, whose code is 0.
    min: i128,
    /// The distance from `min` to the largest value; `None` when every value is NULL.
    span: Option<u64>,
    /// The code of NULL, if NULLs can match.
    null_code: Option<u64>,
    /// The product of the codes of the columns before this one; `None` before the first.
    factor: Option<u64>,
}

impl PackedKeys {
    /// Returns the encoding for a build side that nothing can match.
    pub fn nothing() -> Self {
        Self {
            columns: Vec::new(),
            codes: 0,
            words: 1,
        }
    }

    /// Returns the shortest encoding for key columns of these `extents`, or `None` when all columns
    /// together have more than 2^64 codes.
    pub fn fit(
        extents: &[KeyRange],
        types: &[DataType],
        null_equality: NullEquality,
    ) -> Option<Self> {
        (1..=MAX_WORDS).find_map(|words| Self::of_words(words, extents, types, null_equality))
    }

    /// Returns the encoding with normalized keys of so many words.
    fn of_words(
        words: usize,
        extents: &[KeyRange],
        types: &[DataType],
        null_equality: NullEquality,
    ) -> Option<Self> {
        let mut codes = 1;
        let mut columns = Vec::with_capacity(types.len());
        for (extent, data_type) in extents.iter().zip(types) {
            let native = PhysicalType::of(data_type)?;
            let limit = max_codes(words) / codes;
            let mut column = Column::fit(extent, native, limit, null_equality)?;
            if column.codes() == 0 {
                return Some(Self::nothing());
            }
            column.factor = (!columns.is_empty()).then_some(codes as u64);
            codes *= column.codes();
            columns.push(column);
        }
        Some(Self {
            columns,
            codes,
            words,
        })
    }

    /// Returns the number of distinct normalized keys, at most 2^64.
    pub fn codes(&self) -> u128 {
        self.codes
    }

    /// Returns the number of 32-bit words of a normalized key.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Returns the number of bits of the largest normalized key.
    pub fn bits(&self) -> u32 {
        u128::BITS - self.codes.saturating_sub(1).leading_zeros()
    }

    /// Returns a normalized key that no build row has, if one is left.
    pub fn absent(&self) -> Option<u64> {
        let is_left = (1..max_codes(self.words)).contains(&self.codes);
        is_left.then_some(self.codes as u64)
    }

    /// Writes the normalized key of each row of the only key column to `out`, and `absent` for
    /// values outside the range. Returns how many these are; `None`, without having written
    /// anything, if there are more columns, NULLs, or keys of more words.
    pub fn encode_or_absent(
        &self,
        columns: &[ArrayRef],
        out: &mut [u32],
        absent: u64,
    ) -> Result<Option<usize>> {
        let ([only], [array], 1) = (self.columns.as_slice(), columns, self.words) else {
            return Ok(None);
        };
        let values = Values::of(array)?;
        Ok(match values.nulls() {
            None => only.encode_or_absent(&values, out, absent as u32),
            Some(_) => None,
        })
    }

    /// Writes `key` to `out` for each of `rows`.
    pub fn fill(&self, out: &mut [u32], rows: &BooleanBuffer, key: u64) {
        match self.words {
            1 => fill::<1>(out.as_chunks_mut().0, rows, key),
            _ => fill::<MAX_WORDS>(out.as_chunks_mut().0, rows, key),
        }
    }

    /// Writes the normalized key of each row to `out` and returns which of them can match.
    pub fn encode(&self, columns: &[ArrayRef], out: &mut [u32]) -> Result<Option<BooleanBuffer>> {
        match self.words {
            1 => self.encode_words::<1>(columns, out.as_chunks_mut().0),
            _ => self.encode_words::<MAX_WORDS>(columns, out.as_chunks_mut().0),
        }
    }

    /// Returns the rows of the only key column for whose normalized key `has` is true. NULLs and
    /// values outside the range are left out.
    pub fn test(&self, column: &ArrayRef, has: impl Fn(u64) -> bool) -> Result<BooleanBuffer> {
        match self.columns.first() {
            Some(only) => Ok(only.test(&Values::of(column)?, has)),
            None => Ok(BooleanBuffer::new_unset(column.len())),
        }
    }

    fn encode_words<const W: usize>(
        &self,
        columns: &[ArrayRef],
        out: &mut [[u32; W]],
    ) -> Result<Option<BooleanBuffer>> {
        let mut mask = None;
        if self.codes == 0 {
            mask = Some(BooleanBuffer::new_unset(out.len()));
            out.fill([0; W]);
        }
        for (column, array) in self.columns.iter().zip(columns) {
            mask = and(mask, column.encode(&Values::of(array)?, out));
        }
        Ok(mask)
    }
}

fn fill<const W: usize>(out: &mut [[u32; W]], rows: &BooleanBuffer, key: u64) {
    let key = to_words(key);
    rows.set_indices().for_each(|row| out[row] = key);
}

/// Returns the words of a normalized key, low word first.
#[inline]
fn to_words<const W: usize>(code: u64) -> [u32; W] {
    std::array::from_fn(|word| (code >> (32 * word)) as u32)
}

/// Returns the normalized key of some words.
#[inline]
fn from_words<const W: usize>(words: [u32; W]) -> u64 {
    words
        .iter()
        .rev()
        .fold(0, |code, word| code << 32 | u64::from(*word))
}

/// The values of one key column, or of a part of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyRange {
    /// Smallest and largest; `None` when every value is NULL.
    range: Option<(i128, i128)>,
    nulls: bool,
    /// Strings, which have no range.
    pub text: Option<StringLengths>,
}

impl KeyRange {
    /// Returns the ranges of `keys[batch][column]`. Returns `None` when a column is neither of
    /// strings nor of a type with codes. Does so, too, when its strings are too long, or it alone
    /// has more than 2^64 codes.
    pub fn measure(keys: &[Vec<ArrayRef>], types: &[DataType]) -> Result<Option<Vec<Self>>> {
        let mut extents = vec![Self::default(); types.len()];
        for (extent, data_type) in extents.iter_mut().zip(types) {
            if is_text(data_type) {
                extent.text = Some(StringLengths::default());
            }
        }
        for batch in keys {
            for ((extent, data_type), array) in extents.iter_mut().zip(types).zip(batch) {
                let of_batch = Self::of_batch(array, data_type)?;
                match of_batch.and_then(|of_batch| extent.union(of_batch)) {
                    Some(union) => *extent = union,
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(extents))
    }

    /// Returns the range of one array.
    fn of_batch(array: &ArrayRef, data_type: &DataType) -> Result<Option<Self>> {
        if is_text(data_type) {
            return Ok(StringLengths::measure(array).map(|text| Self {
                text: Some(text),
                ..Self::default()
            }));
        }
        let Some(native) = PhysicalType::of(data_type) else {
            return Ok(None);
        };
        let values = Values::of(array)?;
        Ok(Some(Self {
            range: values.range(native),
            nulls: values.nulls().is_some(),
            text: None,
        }))
    }

    /// Returns the range of both, or `None` if that has more than 2^64 codes.
    pub fn union(self, other: Self) -> Option<Self> {
        let range = match (self.range, other.range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (a, b) => a.or(b),
        };
        let too_wide = range.is_some_and(|(min, max)| span(min, max) >= max_codes(MAX_WORDS));
        (!too_wide).then_some(Self {
            range,
            nulls: self.nulls || other.nulls,
            text: match (self.text, other.text) {
                (Some(a), Some(b)) => Some(a.union(b)),
                (a, b) => a.or(b),
            },
        })
    }
}

impl Column {
    /// Returns the codes of one column; `None` if they are more than `limit`.
    fn fit(
        extent: &KeyRange,
        native: PhysicalType,
        limit: u128,
        null_equality: NullEquality,
    ) -> Option<Self> {
        let range = extent.range.map(|range| native.widened(range));
        if range.is_some_and(|(min, max)| span(min, max) >= limit) {
            return None;
        }
        let null_codes = extent.nulls && null_equality == NullEquality::NullEqualsNull;
        let mut column = Self {
            native,
            min: range.map_or(0, |(min, _)| min),
            span: range.map(|(min, max)| span(min, max) as u64),
            null_code: None,
            factor: None,
        };
        if null_codes {
            // Less than 2^64 if it is to stay within the limit, which is checked below.
            column.null_code = Some(column.codes() as u64);
        }
        (column.codes() <= limit).then_some(column)
    }

    /// Returns the number of codes, at most 2^64 + 1.
    fn codes(&self) -> u128 {
        self.span.map_or(0, |span| u128::from(span) + 1) + u128::from(self.null_code.is_some())
    }

    /// Encodes one batch of this column; returns the rows that can match.
    fn encode<const W: usize>(
        &self,
        values: &Values,
        out: &mut [[u32; W]],
    ) -> Option<BooleanBuffer> {
        let Some(span) = self.span else {
            if self.factor.is_none() {
                out.fill([0; W]);
            }
            return Some(values.null_mask());
        };
        by_native!(self.native, T => {
            let range = Range::<T>::new(self.min, span);
            let in_range = range.encode(values.slice(), out, self.factor);
            match (values.nulls(), self.null_code) {
                (None, _) => in_range,
                (Some(nulls), None) => and(in_range, Some(nulls.inner().clone())),
                (Some(_), Some(code)) => {
                    let null = values.null_mask();
                    for row in null.set_indices() {
                        let change = code.wrapping_sub(range.code(values.slice()[row]));
                        add(&mut out[row], change, self.factor);
                    }
                    in_range.map(|mask| &mask | &null)
                }
            }
        })
    }

    /// Writes the codes of values without NULLs, and `absent` for those outside the range. Returns
    /// how many these are; `None` if the column has no range.
    fn encode_or_absent(&self, values: &Values, out: &mut [u32], absent: u32) -> Option<usize> {
        let span = self.span?;
        by_native!(self.native, T => {
            let (range, values) = (Range::<T>::new(self.min, span), values.slice());
            if !range.write(values, out.as_chunks_mut::<1>().0, None) {
                return Some(0);
            }
            range.write_or_absent(values, out, absent);
        });
        Some(out.iter().filter(|code| **code == absent).count())
    }

    /// Returns the rows for whose code `has` is true. NULLs are left out.
    fn test(&self, values: &Values, has: impl Fn(u64) -> bool) -> BooleanBuffer {
        let Some(span) = self.span else {
            return BooleanBuffer::new_unset(values.len());
        };
        let passes = by_native!(self.native, T => {
            Range::<T>::new(self.min, span).test(values.slice(), has)
        });
        match values.nulls() {
            Some(nulls) => &passes & nulls.inner(),
            None => passes,
        }
    }
}

/// Adds a column's code to a normalized key.
#[inline]
fn add<const W: usize>(key: &mut [u32; W], code: u64, factor: Option<u64>) {
    let code = code.wrapping_mul(factor.unwrap_or(1));
    *key = to_words(from_words(*key).wrapping_add(code));
}

/// Returns `max - min` for `min <= max`, which as a difference of `i128`s may need 128 bits.
fn span(min: i128, max: i128) -> u128 {
    max.wrapping_sub(min) as u128
}

/// The values of a column with codes, in the physical type `T`.
struct Range<T: Key> {
    min: T,
    span: T::Code,
}

impl<T: Key> Range<T> {
    fn new(min: i128, span: u64) -> Self {
        Self {
            min: T::narrow(min),
            span: T::Code::narrow(span),
        }
    }

    fn code(&self, value: T) -> u64 {
        value.minus(self.min).low()
    }

    /// Writes the codes of `values` (of a first column) or adds them times `factor`; returns which
    /// are in the range if not all are.
    fn encode<const W: usize>(
        &self,
        values: &[T],
        out: &mut [[u32; W]],
        factor: Option<u64>,
    ) -> Option<BooleanBuffer> {
        let is_any_outside = self.write(values, out, factor);
        is_any_outside.then(|| self.test(values, |_| true))
    }

    /// Writes the same; returns whether any of `values` is outside the range.
    fn write<const W: usize>(
        &self,
        values: &[T],
        out: &mut [[u32; W]],
        factor: Option<u64>,
    ) -> bool {
        let mut excess = T::Code::default();
        let mut code = |value: &T| {
            let code = value.minus(self.min);
            excess = excess | code.excess(self.span);
            code.low()
        };
        let pairs = out.iter_mut().zip(values);
        match factor {
            None => pairs.for_each(|(out, value)| *out = to_words(code(value))),
            Some(_) => pairs.for_each(|(out, value)| add(out, code(value), factor)),
        }
        excess.top_bit()
    }

    /// Writes the codes of `values`, and `absent` for those outside the range.
    fn write_or_absent(&self, values: &[T], out: &mut [u32], absent: u32) {
        for (out, value) in out.iter_mut().zip(values) {
            let code = value.minus(self.min);
            *out = if code > self.span {
                absent
            } else {
                code.low() as u32
            };
        }
    }

    /// Returns which of `values` are in the range, with a code for which `has` is true. Calls `has`
    /// for values outside, too, with any number: a branch would take longer.
    fn test(&self, values: &[T], has: impl Fn(u64) -> bool) -> BooleanBuffer {
        let Self { min, span } = *self;
        masks::collect(values, move |value| {
            let code = value.minus(min);
            !code.excess(span).top_bit() & has(code.low())
        })
    }
}

/// A physical type whose values have codes.
trait Key: ArrowNativeType + Ord {
    /// Wide enough for differences, and not narrower than a word.
    type Code: Code;

    /// Returns the value as a number.
    fn widen(self) -> i128;
    /// Returns the value that is `number` modulo the width of the type.
    fn narrow(number: i128) -> Self;
    /// Returns `self - min` modulo the width of the type.
    fn minus(self, min: Self) -> Self::Code;
}

macro_rules! keys {
    ($($native:ty, $unsigned:ty => $code:ty;)*) => {$(
        impl Key for $native {
            type Code = $code;

            #[inline]
            fn widen(self) -> i128 {
                self as i128
            }

            #[inline]
            fn narrow(number: i128) -> Self {
                number as Self
            }

            #[inline]
            fn minus(self, min: Self) -> $code {
                <$code>::from(self.wrapping_sub(min) as $unsigned)
            }
        }
    )*};
}

keys! {
    i8, u8 => u32;
    i16, u16 => u32;
    i32, u32 => u32;
    i64, u64 => u64;
    u8, u8 => u32;
    u16, u16 => u32;
    u32, u32 => u32;
    u64, u64 => u64;
    i128, u128 => u128;
}

/// The difference between a value and its column's minimum.
trait Code: Copy + Default + Ord + BitOr<Output = Self> {
    /// Returns a span that fits.
    fn narrow(span: u64) -> Self;
    /// Returns the low 64 bits: the code, if the value is in the range.
    fn low(self) -> u64;
    /// Returns a number with the top bit set exactly if `self > span`. `span` is less than half of
    /// all numbers, or of all but one, which is never exceeded. Such numbers are ORed: the vector
    /// units of the x86-64 baseline cannot compare 64 bits.
    fn excess(self, span: Self) -> Self;
    /// Returns whether the top bit is set.
    fn top_bit(self) -> bool;
}

macro_rules! codes {
    ($($code:ty: |$self:ident, $span:ident| $excess:expr;)*) => {$(
        impl Code for $code {
            #[inline]
            fn narrow(span: u64) -> Self {
                span as Self
            }

            #[inline]
            fn low(self) -> u64 {
                self as u64
            }

            #[inline]
            fn excess($self, $span: Self) -> Self {
                $excess
            }

            #[inline]
            fn top_bit(self) -> bool {
                self >> (Self::BITS - 1) != 0
            }
        }
    )*};
}

codes! {
    u32: |self, span| u32::from(self > span) << 31;
    u64: |self, span| (self | span.wrapping_sub(self)) & !span;
    u128: |self, span| self | span.wrapping_sub(self);
}

/// The physical types of the columns that have codes.
#[derive(Clone, Copy, Debug)]
enum PhysicalType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    I128,
}

/// Evaluates `$body` with `$T` standing for the Rust type of a [`PhysicalType`].
macro_rules! by_native {
    ($native:expr, $T:ident => $body:expr) => {
        by_native!(@ $native, $T => $body; I8 i8, I16 i16, I32 i32, I64 i64,
            U8 u8, U16 u16, U32 u32, U64 u64, I128 i128)
    };
    (@ $native:expr, $T:ident => $body:expr; $($variant:ident $t:ty),*) => {
        match $native {
            $(PhysicalType::$variant => { type $T = $t; $body })*
        }
    };
}
use by_native;

impl PhysicalType {
    /// Returns the physical type of `data_type` if its values have codes: integers that are equal
    /// exactly if the values are.
    fn of(data_type: &DataType) -> Option<Self> {
        use DataType::*;
        Some(match data_type {
            Int8 => Self::I8,
            Int16 => Self::I16,
            Int32 | Date32 | Time32(_) | Decimal32(..) | Interval(IntervalUnit::YearMonth) => {
                Self::I32
            }
            Int64 | Date64 | Time64(_) | Timestamp(..) | Duration(_) | Decimal64(..) => Self::I64,
            UInt8 | Boolean => Self::U8,
            UInt16 => Self::U16,
            UInt32 => Self::U32,
            UInt64 => Self::U64,
            Decimal128(..) => Self::I128,
            _ => return None,
        })
    }

    /// Returns the range itself, or that of the whole type for 64-bit values that span half of it
    /// or more: what [`Code::excess`] can tell.
    fn widened(self, (min, max): (i128, i128)) -> (i128, i128) {
        let half = 1 << 63;
        match self {
            Self::I64 if span(min, max) >= half => (i64::MIN.into(), i64::MAX.into()),
            Self::U64 if span(min, max) >= half => (0, u64::MAX.into()),
            _ => (min, max),
        }
    }
}

/// One batch of a column: what the different array types of one physical type share.
struct Values(ArrayData);

impl Values {
    /// Reads `array`, without a copy unless it is of bits.
    fn of(array: &ArrayRef) -> Result<Self> {
        Ok(Self(match array.data_type() {
            DataType::Boolean => cast(array, &DataType::UInt8)?.to_data(),
            _ => array.to_data(),
        }))
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the validity, if there is a NULL.
    fn nulls(&self) -> Option<&NullBuffer> {
        self.0.nulls().filter(|nulls| nulls.null_count() > 0)
    }

    /// Returns the rows that are NULL.
    fn null_mask(&self) -> BooleanBuffer {
        match self.nulls() {
            Some(nulls) => !nulls.inner(),
            None => BooleanBuffer::new_unset(self.len()),
        }
    }

    /// Returns the values, those of NULL slots being arbitrary.
    fn slice<T: Key>(&self) -> &[T] {
        match self.0.buffers() {
            [values, ..] => &values.typed_data()[self.0.offset()..][..self.len()],
            [] => &[],
        }
    }

    /// Returns the smallest and the largest value, NULLs aside.
    fn range(&self, native: PhysicalType) -> Option<(i128, i128)> {
        by_native!(native, T => {
            let values = self.slice::<T>();
            let range = match self.nulls() {
                None => range(values),
                Some(nulls) => valid_range(values, nulls),
            };
            range.map(|(min, max)| (min.widen(), max.widen()))
        })
    }
}

/// Returns the smallest and the largest of `values`.
fn range<T: Key>(values: &[T]) -> Option<(T, T)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(min, max), &value| {
        (min.min(value), max.max(value))
    }))
}

/// Returns the smallest and the largest of the `values` that are valid.
fn valid_range<T: Key>(values: &[T], nulls: &NullBuffer) -> Option<(T, T)> {
    let first = *values.get(nulls.valid_indices().next()?)?;
    let words = nulls.inner().bit_chunks().iter_padded();
    let ranges = values.chunks(64).zip(words).filter_map(|(chunk, word)| {
        // NULL slots take the first valid value: cheaper than skipping them.
        let mut valid = [first; 64];
        for (i, (slot, &value)) in valid.iter_mut().zip(chunk).enumerate() {
            *slot = if word >> i & 1 == 1 { value } else { first };
        }
        range(&valid)
    });
    ranges.reduce(|(a, b), (min, max)| (a.min(min), b.max(max)))
}
