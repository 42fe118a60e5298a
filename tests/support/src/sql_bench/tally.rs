//! Columns folded to a few numbers, which are the same for the same rows in any order.
//!
//! ```text
//!   rows
//!   per column   values   cells that are not NULL
//!                total    sum of what the cells say, whole strings included, modulo 2^64
//!                bytes    of strings
//!
//!   making tables   each row counted as often as it is in a result ─┐
//!   a result        each row counted once                          ─┴▶ equal?
//! ```
//!
//! Sorting both and comparing them cell by cell would need them in memory, and takes longer than
//! the join. `values` costs nothing, as arrays know their NULLs: [`Reading::Counts`].

use std::iter::repeat;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{DataType, Date32Type, Decimal128Type, Float64Type, Int64Type};

use super::Result;

/// How much of some rows is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Every cell.
    Cells,
    /// Rows and NULLs.
    Counts,
}

/// One column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Cells that are not NULL.
    pub values: u64,
    /// What they say, added up.
    pub total: u64,
    /// Bytes of strings.
    pub bytes: u64,
}

/// Some rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many there are.
    pub rows: u64,
    /// Their columns.
    pub columns: Vec<Sum>,
}

impl Tally {
    /// Returns no rows of so many columns.
    pub fn empty(columns: usize) -> Self {
        Self {
            rows: 0,
            columns: vec![Sum::default(); columns],
        }
    }

    /// Returns a row of integers.
    pub fn row(values: &[Option<u64>]) -> Self {
        let column = |value: &Option<u64>| Sum {
            values: u64::from(value.is_some()),
            total: value.unwrap_or_default(),
            bytes: 0,
        };
        Self {
            rows: 1,
            columns: values.iter().map(column).collect(),
        }
    }

    /// Returns rows of integers without NULLs that have these sums.
    pub fn integers(rows: u64, totals: &[u64]) -> Self {
        let column = |&total: &u64| Sum {
            values: rows,
            total,
            bytes: 0,
        };
        Self {
            rows,
            columns: totals.iter().map(column).collect(),
        }
    }

    /// Returns `rows` of `columns`.
    ///
    /// # Errors
    /// A type that neither tables nor results have.
    pub fn read(rows: usize, columns: &[ArrayRef], reading: Reading) -> Result<Self> {
        let column = |array: &ArrayRef| match reading {
            Reading::Cells => {
                let mut sum = Sum::default();
                each(array, repeat(1), |times, cell| sum.add(&cell, times))?;
                Ok(sum)
            }
            Reading::Counts => Ok(Sum {
                values: (array.len() - array.null_count()) as u64,
                ..Sum::default()
            }),
        };
        Ok(Self {
            rows: rows as u64,
            columns: columns.iter().map(column).collect::<Result<_>>()?,
        })
    }

    /// Returns what [`read`](Self::read) would have given.
    pub fn as_read(&self, reading: Reading) -> Self {
        let mut all = self.clone();
        if reading == Reading::Counts {
            for column in &mut all.columns {
                *column = Sum {
                    values: column.values,
                    ..Sum::default()
                };
            }
        }
        all
    }

    /// The sum of an integer column, as SQL has it: NULL of no values.
    pub fn total(&self, column: usize) -> Option<u64> {
        let column = self.columns.get(column)?;
        (column.values > 0).then_some(column.total)
    }

    /// The sum of the lengths of a column's strings, likewise.
    pub fn bytes(&self, column: usize) -> Option<u64> {
        let column = self.columns.get(column)?;
        (column.values > 0).then_some(column.bytes)
    }

    /// Adds other rows of the same columns.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.add(more, 1);
        }
    }

    /// Returns these columns before those of as many rows.
    pub fn beside(mut self, other: Self) -> Self {
        self.columns.extend(other.columns);
        self
    }

    /// Returns the rows that are not among `some` of them.
    fn without(&self, some: &Self) -> Self {
        let columns = self.columns.iter().zip(&some.columns);
        let rest = |(all, some): (&Sum, &Sum)| Sum {
            values: all.values - some.values,
            total: all.total.wrapping_sub(some.total),
            bytes: all.bytes - some.bytes,
        };
        Self {
            rows: self.rows - some.rows,
            columns: columns.map(rest).collect(),
        }
    }
}

impl Sum {
    fn add(&mut self, cell: &Self, times: u64) {
        self.values += cell.values * times;
        self.total = self.total.wrapping_add(cell.total.wrapping_mul(times));
        self.bytes += cell.bytes * times;
    }
}

/// One side's columns, in the parts that results are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// All its rows.
    pub all: Tally,
    /// Rows with a match.
    pub hits: Tally,
    /// Rows as often as they have one.
    pub pairs: Tally,
}

impl Matched {
    /// Returns no rows of so many columns.
    pub fn empty(columns: usize) -> Self {
        let none = Tally::empty(columns);
        Self {
            all: none.clone(),
            hits: none.clone(),
            pairs: none,
        }
    }

    /// Returns rows that have so many `matches`.
    ///
    /// # Errors
    /// A type that no table has.
    pub fn read(matches: &[u64], columns: &[ArrayRef]) -> Result<Self> {
        let mut side = Self::empty(columns.len());
        side.all.rows = matches.len() as u64;
        side.hits.rows = matches.iter().filter(|&&matches| matches > 0).count() as u64;
        side.pairs.rows = matches.iter().sum();
        let tallies = side.all.columns.iter_mut().zip(&mut side.hits.columns);
        let tallies = tallies.zip(&mut side.pairs.columns);
        for (((all, hits), pairs), array) in tallies.zip(columns) {
            let matches = matches.iter().copied();
            each(array, matches, |matches, cell| {
                all.add(&cell, 1);
                hits.add(&cell, u64::from(matches > 0));
                pairs.add(&cell, matches);
            })?;
        }
        Ok(side)
    }

    /// Rows without a match.
    pub fn misses(&self) -> Tally {
        self.all.without(&self.hits)
    }

    /// Adds other rows of the same columns.
    pub fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.hits.add(&other.hits);
        self.pairs.add(&other.pairs);
    }
}

/// Calls `see` for each value of `array`, with its row's part of `times`.
fn each(
    array: &ArrayRef,
    times: impl Iterator<Item = u64>,
    mut see: impl FnMut(u64, Sum),
) -> Result<()> {
    match array.data_type() {
        DataType::Int64 => each_number::<Int64Type>(array, times, |value| value as u64, see),
        DataType::Date32 => each_number::<Date32Type>(array, times, |value| value as u64, see),
        DataType::Decimal128(..) => {
            each_number::<Decimal128Type>(array, times, |value| value as u64, see)
        }
        // The bits, as a sum of floats would depend on their order.
        DataType::Float64 => each_number::<Float64Type>(array, times, f64::to_bits, see),
        DataType::Utf8View => {
            for (text, times) in array.as_string_view().iter().zip(times) {
                if let Some(text) = text {
                    see(times, Sum::of_text(text));
                }
            }
        }
        other => return Err(format!("a column of {other} is not read here").into()),
    }
    Ok(())
}

fn each_number<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    times: impl Iterator<Item = u64>,
    total: impl Fn(T::Native) -> u64,
    mut see: impl FnMut(u64, Sum),
) {
    for (value, times) in array.as_primitive::<T>().iter().zip(times) {
        if let Some(value) = value {
            let (values, bytes) = (1, 0);
            let total = total(value);
            see(
                times,
                Sum {
                    values,
                    total,
                    bytes,
                },
            );
        }
    }
}

impl Sum {
    /// One string: its hash is what it says.
    fn of_text(text: &str) -> Self {
        let hash = |hash: u64, &byte: &u8| hash.wrapping_mul(31).wrapping_add(u64::from(byte));
        Self {
            values: 1,
            total: text.as_bytes().iter().fold(0, hash),
            bytes: text.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, Decimal128Array, Float64Array, Int64Array, StringViewArray};
    use std::sync::Arc;

    const LONG: &str = "a string that no view has room for";

    fn columns() -> Vec<ArrayRef> {
        vec![
            Arc::new(Int64Array::from(vec![Some(-1), None, Some(3)])),
            Arc::new(StringViewArray::from(vec![Some("ab"), Some(LONG), None])),
            Arc::new(Float64Array::from(vec![0.5, 0.25, 0.125])),
        ]
    }

    #[test]
    fn rows_count_as_often_as_they_match() {
        let columns = columns();
        let side = Matched::read(&[0, 1, 2], &columns).unwrap();
        assert_eq!((side.all.rows, side.hits.rows, side.pairs.rows), (3, 2, 3));
        assert_eq!(side.all.total(0), Some(2));
        assert_eq!(
            (side.hits.total(0), side.pairs.total(0)),
            (Some(3), Some(6))
        );
        assert_eq!(side.pairs.bytes(1), Some(LONG.len() as u64));
        let misses = side.misses();
        let first: Vec<ArrayRef> = columns.iter().map(|column| column.slice(0, 1)).collect();
        assert_eq!(misses, Tally::read(1, &first, Reading::Cells).unwrap());
        assert_eq!(misses.bytes(1), Some(2));
        let mut twice = side.clone();
        twice.add(&side);
        assert_eq!(twice.all.total(0), Some(4));
    }

    #[test]
    fn any_order_is_equal_and_any_other_cell_is_not() {
        let whole = |columns: &[ArrayRef]| Tally::read(3, columns, Reading::Cells).unwrap();
        let made = whole(&columns());
        let indices = arrow::array::UInt32Array::from(vec![2, 0, 1]);
        let moved = columns()
            .into_iter()
            .map(|column| arrow::compute::take(&column, &indices, None).unwrap());
        assert_eq!(whole(&moved.collect::<Vec<_>>()), made);
        let mut other = columns();
        other[1] = Arc::new(StringViewArray::from(vec![
            Some("ab"),
            Some("a string that no view has more for"),
            None,
        ]));
        assert_ne!(whole(&other), made);
        let counts = |columns: &[ArrayRef]| Tally::read(3, columns, Reading::Counts).unwrap();
        assert_eq!(counts(&other), made.as_read(Reading::Counts));
        assert_eq!(made.as_read(Reading::Cells), made);
    }

    #[test]
    fn rows_of_integers() {
        let row: [ArrayRef; 2] = [
            Arc::new(Int64Array::from(vec![7])),
            Arc::new(Int64Array::from(vec![None])),
        ];
        let read = Tally::read(1, &row, Reading::Cells).unwrap();
        assert_eq!(read, Tally::row(&[Some(7), None]));
        assert_eq!(
            (read.total(0), read.total(1), read.total(2)),
            (Some(7), None, None)
        );
    }

    #[test]
    fn types() {
        let known: [ArrayRef; 2] = [
            Arc::new(Decimal128Array::from(vec![1])),
            Arc::new(Date32Array::from(vec![1])),
        ];
        for array in known {
            let read = Tally::read(1, &[array], Reading::Cells).unwrap();
            assert_eq!(read, Tally::row(&[Some(1)]));
        }
        let other: ArrayRef = Arc::new(arrow::array::BooleanArray::from(vec![true]));
        assert!(Tally::read(1, &[other], Reading::Cells).is_err());
    }
}
