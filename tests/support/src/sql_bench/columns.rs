//! The payload columns of the two tables: which there are, and their cells.
//!
//! ```text
//!              build                          probe
//!   narrow     v                              w               small integers, to sum up
//!   strings    v, s                           w
//!   wide 6     b_int b_decimal b_text         p_int p_decimal p_text
//!   wide 12    … and b_float b_date b_note    … and p_float p_date p_note
//!
//!   row of its table ─▶ 64 mixed bits, others per column ─▶ cell
//!                                                            └ an int or a note may be NULL
//! ```
//!
//! A cell depends on its row alone, so that any thread makes any batch. Texts and notes have 4 to
//! 32 bytes: views hold the short ones, and point to the long ones. TPC-H has columns of all these
//! types, but no NULLs, and no hit rate to choose.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::builder::StringViewBuilder;
use arrow::array::{ArrayRef, ArrowPrimitiveType, Decimal128Array, PrimitiveArray};
use arrow::datatypes::{DataType, Date32Type, Field, Float64Type, Int64Type};

use super::Result;
use super::random::{below, mix};

/// Values of [`V`], [`W`] lie below this.
pub const VALUES: u64 = 1000;

/// Digits of a decimal, and those after its point.
const DECIMAL: (u8, i8) = (12, 2);

/// Days that dates lie in, from 1970 on.
const DAYS: u64 = 20_000;

/// One in so many cells is NULL, in columns that have NULLs.
const NULL_EVERY: u64 = 8;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Integers below [`VALUES`].
    Small,
    /// Any integers of 64 bits, with NULLs.
    Int,
    /// Prices.
    Decimal,
    /// Strings.
    Text,
    /// Fractions.
    Float,
    /// Days.
    Date,
    /// Strings, with NULLs.
    Note,
}

/// A payload column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name, which no other column of the two tables has.
    pub name: &'static str,
    kind: Kind,
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind }
}

/// The build side's column to sum up.
pub const V: Column = column("v", Kind::Small);

/// The probe side's.
pub const W: Column = column("w", Kind::Small);

const STRINGS: [Column; 2] = [V, column("s", Kind::Text)];

const WIDE_BUILD: [Column; 6] = [
    column("b_int", Kind::Int),
    column("b_decimal", Kind::Decimal),
    column("b_text", Kind::Text),
    column("b_float", Kind::Float),
    column("b_date", Kind::Date),
    column("b_note", Kind::Note),
];

const WIDE_PROBE: [Column; 6] = [
    column("p_int", Kind::Int),
    column("p_decimal", Kind::Decimal),
    column("p_text", Kind::Text),
    column("p_float", Kind::Float),
    column("p_date", Kind::Date),
    column("p_note", Kind::Note),
];

/// The columns beside the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An integer of each side.
    Narrow,
    /// And strings of the build side.
    Strings,
    /// So many columns of all types, 12 at most, half of them of each side.
    Wide(usize),
}

impl Payload {
    /// The build side's columns.
    pub fn build(self) -> &'static [Column] {
        match self {
            Payload::Narrow => &[V],
            Payload::Strings => &STRINGS,
            Payload::Wide(columns) => half(&WIDE_BUILD, columns),
        }
    }

    /// The probe side's columns.
    pub fn probe(self) -> &'static [Column] {
        match self {
            Payload::Narrow | Payload::Strings => &[W],
            Payload::Wide(columns) => half(&WIDE_PROBE, columns),
        }
    }
}

fn half(side: &'static [Column], columns: usize) -> &'static [Column] {
    side.get(..columns / 2).unwrap_or(side)
}

impl Column {
    /// Its type, and whether it has NULLs.
    pub fn field(self) -> Field {
        let data_type = match self.kind {
            Kind::Small | Kind::Int => DataType::Int64,
            Kind::Decimal => DataType::Decimal128(DECIMAL.0, DECIMAL.1),
            Kind::Text | Kind::Note => DataType::Utf8View,
            Kind::Float => DataType::Float64,
            Kind::Date => DataType::Date32,
        };
        Field::new(self.name, data_type, self.has_nulls())
    }

    fn has_nulls(self) -> bool {
        matches!(self.kind, Kind::Int | Kind::Note)
    }

    /// Returns the cell of `row` in a column of small integers.
    pub fn small(self, row: u64) -> u64 {
        below(self.bits(row), VALUES)
    }

    fn bits(self, row: u64) -> u64 {
        let salt = |salt: u64, byte| salt.rotate_left(8) ^ u64::from(byte);
        let salt = self.name.bytes().fold(0, salt);
        mix(row ^ mix(salt))
    }

    /// Makes its cells of `rows`.
    ///
    /// # Errors
    /// Of Arrow; there is none for these types.
    pub fn make(self, rows: Range<u64>) -> Result<ArrayRef> {
        let cells = rows.map(|row| {
            let bits = self.bits(row);
            (!self.has_nulls() || !bits.is_multiple_of(NULL_EVERY)).then_some(bits)
        });
        let (digits, scale) = DECIMAL;
        Ok(match self.kind {
            Kind::Small => numbers::<Int64Type>(cells, |bits| below(bits, VALUES) as i64),
            Kind::Int => numbers::<Int64Type>(cells, |bits| bits as i64),
            Kind::Decimal => {
                let most = 10u64.pow(u32::from(digits));
                let cells = cells.map(|cell| cell.map(|bits| i128::from(below(bits, most))));
                let cells = Decimal128Array::from_iter(cells);
                Arc::new(cells.with_precision_and_scale(digits, scale)?)
            }
            Kind::Float => numbers::<Float64Type>(cells, |bits| bits as f64 / 2f64.powi(64)),
            Kind::Date => numbers::<Date32Type>(cells, |bits| below(bits, DAYS) as i32),
            Kind::Text | Kind::Note => views(cells.map(|cell| cell.map(text))),
        })
    }
}

fn numbers<T: ArrowPrimitiveType>(
    cells: impl Iterator<Item = Option<u64>>,
    value: impl Fn(u64) -> T::Native,
) -> ArrayRef {
    let cells = cells.map(|cell| cell.map(&value));
    Arc::new(cells.collect::<PrimitiveArray<T>>())
}

/// Returns 4 to 32 hexadecimal digits: some fit a view, some do not.
fn text(bits: u64) -> String {
    let mut text = format!("{bits:016x}{:016x}", mix(bits));
    text.truncate(4 + (mix(!bits) % 29) as usize);
    text
}

/// String views over one buffer that has no room to spare.
pub fn views(texts: impl Iterator<Item = Option<String>>) -> ArrayRef {
    let texts: Vec<Option<String>> = texts.collect();
    let bytes: usize = texts.iter().flatten().map(String::len).sum();
    let block = u32::try_from(bytes.max(1)).unwrap_or(u32::MAX);
    let mut views = StringViewBuilder::with_capacity(texts.len()).with_fixed_block_size(block);
    views.extend(texts);
    Arc::new(views.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, AsArray};
    use std::collections::BTreeSet;

    const ALL: [Payload; 4] = [
        Payload::Narrow,
        Payload::Strings,
        Payload::Wide(6),
        Payload::Wide(12),
    ];

    #[test]
    fn halves() {
        let columns = |payload: Payload| (payload.build().len(), payload.probe().len());
        assert_eq!(ALL.map(columns), [(1, 1), (2, 1), (3, 3), (6, 6)]);
        for payload in ALL {
            let both = payload.build().iter().chain(payload.probe());
            let names: BTreeSet<&str> = both.clone().map(|column| column.name).collect();
            assert_eq!(names.len(), both.count());
        }
    }

    #[test]
    fn columns_are_as_their_fields_say() {
        for column in WIDE_BUILD.into_iter().chain(STRINGS) {
            let (field, made) = (column.field(), column.make(0..8000).unwrap());
            assert_eq!(field.data_type(), made.data_type());
            let nulls = made.null_count();
            let expected = if field.is_nullable() { 900..1100 } else { 0..1 };
            assert!(expected.contains(&nulls), "{}: {nulls}", column.name);
            let part = column.make(100..200).unwrap();
            assert_eq!(*part, *made.slice(100, 100), "{}", column.name);
        }
        let (build, probe) = (WIDE_BUILD[0].make(0..100), WIDE_PROBE[0].make(0..100));
        assert_ne!(*build.unwrap(), *probe.unwrap());
    }

    #[test]
    fn small_cells_are_those_of_the_column() {
        let made = V.make(0..1000).unwrap();
        let values = made.as_primitive::<Int64Type>().values();
        let expected: Vec<i64> = (0..1000).map(|row| V.small(row) as i64).collect();
        assert_eq!(values.to_vec(), expected);
        assert!(expected.iter().all(|&value| value < VALUES as i64));
    }

    #[test]
    fn some_texts_fit_a_view() {
        let lengths: BTreeSet<usize> = (0..1000).map(|row| text(mix(row)).len()).collect();
        assert_eq!(lengths, (4..=32).collect());
    }
}
