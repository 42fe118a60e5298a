//! Pairs of a probe row and a build row.
//!
//! ```text
//!  probe  0 0 1 4     build  7 9 2 -      row 4 has no match
//! ```
//!
//! A lookup finds pairs, the residual filter drops some, the join type adds rows without a match.
//! What is left makes an output batch.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{concat, filter, take};

use crate::error::Result;
use crate::join::rows::{BuildRow, NO_ROW, Source};

/// Pairs of rows that make an output batch.
#[derive(Debug, Default, Clone)]
pub struct Pairs {
    /// Build rows, or [`NO_ROW`]; empty if no output column needs them.
    pub build: Vec<BuildRow>,
    /// Columns of the build side at those rows, as far as the device gathered them.
    pub gathered: BTreeMap<Source, ArrayRef>,
    /// Rows of the probe batch, ascending but for unmatched rows at the end.
    pub probe: Vec<u32>,
    /// Mark column of mark joins.
    pub mark: Option<BooleanArray>,
}

impl Pairs {
    /// Returns all rows of a probe batch in their order, each once: with its only match where its
    /// bit is set, else without one. These pairs are the matches in the order of their rows, with
    /// any rows of the probe batch.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn fill_unmatched(mut self, matched: &BooleanBuffer) -> Result<Self> {
        let rows = matched.len();
        let matches = matched.count_set_bits();
        // Of a batch without a match there is no column.
        let has_build = !self.build.is_empty() || matches == 0;
        self.probe = (0..rows as u32).collect();
        if matches < rows {
            let places = match_of_each_row(matched);
            for column in self.gathered.values_mut() {
                *column = take(column, &places, None)?;
            }
            let build = places
                .iter()
                .filter(|_| has_build)
                .map(|place| match place {
                    Some(place) => self.build[place as usize],
                    None => NO_ROW,
                });
            self.build = build.collect();
        }
        self.debug_assert_lengths();
        Ok(self)
    }

    /// Checks that what there is of each pair is there of all of them.
    fn debug_assert_lengths(&self) {
        let pairs = self.build.len().max(self.probe.len());
        debug_assert!(
            self.build.is_empty() || self.build.len() == pairs,
            "build rows"
        );
        debug_assert!(
            self.probe.is_empty() || self.probe.len() == pairs,
            "probe rows"
        );
        debug_assert!(
            self.gathered.values().all(|column| column.len() == pairs),
            "gathered columns"
        );
    }

    /// Returns a gathered column.
    pub fn gathered(&self, source: Source) -> Option<&ArrayRef> {
        self.gathered.get(&source)
    }

    /// Returns how many probe rows there are among the pairs, which come in their order.
    pub fn probe_rows(&self) -> usize {
        let changes = self.probe.windows(2).filter(|pair| pair[0] != pair[1]);
        changes.count() + usize::from(!self.probe.is_empty())
    }

    /// Returns whether the probe rows are `0..rows`, each once: then its columns can be passed on.
    pub fn are_whole(&self, rows: usize) -> bool {
        self.probe.len() == rows && self.probe.iter().zip(0..).all(|(row, i)| *row == i)
    }

    /// Appends pairs of `probe` rows without a build row.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn append_unmatched(&mut self, probe: Vec<u32>) -> Result<()> {
        self.debug_assert_lengths();
        for column in self.gathered.values_mut() {
            let nulls = new_null_array(column.data_type(), probe.len());
            *column = concat(&[column.as_ref(), nulls.as_ref()])?;
        }
        if self.build.len() == self.probe.len() {
            self.build.extend(std::iter::repeat_n(NO_ROW, probe.len()));
        }
        self.probe.extend(probe);
        Ok(())
    }

    /// Returns the pairs whose bit is set.
    ///
    /// # Errors
    /// Arrow's errors.
    pub fn keep(mut self, passed: &BooleanBuffer) -> Result<Self> {
        self.debug_assert_lengths();
        debug_assert!(self.probe.is_empty() || self.probe.len() == passed.len());
        if passed.count_set_bits() == passed.len() {
            return Ok(self);
        }
        let mask = BooleanArray::new(passed.clone(), None);
        for column in self.gathered.values_mut() {
            *column = filter(column, &mask)?;
        }
        Ok(Self {
            build: kept(&self.build, passed),
            probe: kept(&self.probe, passed),
            mark: None,
            gathered: self.gathered,
        })
    }
}

/// Returns the number of the match of each row, NULL where there is none. Bits tell the rows that
/// have one.
fn match_of_each_row(matched: &BooleanBuffer) -> UInt32Array {
    let mut next = 0;
    let mut numbers = Vec::with_capacity(matched.len());
    numbers.extend(matched.iter().map(|is_matched| {
        let number = next;
        next += u32::from(is_matched);
        number
    }));
    UInt32Array::new(numbers.into(), Some(NullBuffer::new(matched.clone())))
}

/// Returns the `rows` whose bit is set; none if there are none.
fn kept<R: Copy>(rows: &[R], passed: &BooleanBuffer) -> Vec<R> {
    if rows.is_empty() {
        Vec::new()
    } else {
        passed.set_indices().map(|i| rows[i]).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    /// The build row and the gathered value of each row whose bits are `matched`, if it has them.
    /// The matches have build rows from 7 on, and values from 70 on.
    fn fill_unmatched(matched: &[bool], has_build: bool) -> Vec<(Option<u32>, Option<i64>)> {
        let matched = BooleanBuffer::from(matched);
        let n = matched.count_set_bits() as u32;
        let mut pairs = Pairs::default();
        if has_build {
            pairs.build = (7..7 + n).map(BuildRow).collect();
        }
        if n > 0 {
            let values = Int64Array::from_iter_values((70..).take(n as usize));
            pairs.gathered.insert(Source::Batch(3), Arc::new(values));
        }
        let all = pairs.fill_unmatched(&matched).unwrap();
        assert!(all.are_whole(matched.len()));
        let build = |row: usize| all.build.get(row).filter(|row| **row != NO_ROW);
        let column = all.gathered(Source::Batch(3));
        let column = column.map(|column| column.as_primitive::<Int64Type>());
        let value = |row: usize| column.filter(|c| c.is_valid(row)).map(|c| c.value(row));
        let rows = 0..matched.len();
        rows.map(|row| (build(row).map(|row| row.0), value(row)))
            .collect()
    }

    #[test]
    fn all_rows_come_in_their_order_with_their_only_match() {
        let (yes, no) = (true, false);
        let expected = [
            (None, None),
            (Some(7), Some(70)),
            (None, None),
            (Some(8), Some(71)),
        ];
        assert_eq!(fill_unmatched(&[no, yes, no, yes], true), expected);
        let without_rows = expected.map(|(_, value)| (None, value));
        assert_eq!(fill_unmatched(&[no, yes, no, yes], false), without_rows);
        assert_eq!(
            fill_unmatched(&[yes, yes], true),
            [(Some(7), Some(70)), (Some(8), Some(71))]
        );
        for has_build in [yes, no] {
            assert_eq!(fill_unmatched(&[no, no], has_build), [(None, None); 2]);
            assert_eq!(fill_unmatched(&[], has_build), []);
        }
    }

    #[test]
    fn rows_without_a_match_come_last_with_build_rows_or_without() {
        for build in [vec![BuildRow(4)], Vec::new()] {
            let mut pairs = Pairs {
                build: build.clone(),
                probe: vec![2],
                ..Pairs::default()
            };
            pairs.append_unmatched(vec![0, 1]).unwrap();
            assert_eq!(pairs.probe, [2, 0, 1]);
            assert_eq!(pairs.build.len(), 3 * build.len());
        }
    }
}
