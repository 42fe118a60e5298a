//! Pairs of a probe row and a build row.
//!
//! ```text
//!  probe  0 0 1 4     build  7 9 2 -      row 4 has no match
//! ```
//!
//! A lookup finds pairs, the residual filter drops some, the join type adds rows without a match.
//! What is left makes an output batch.

use std::collections::BTreeMap;

use arrow::array::{Array, ArrayRef, BooleanArray, new_null_array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{concat, filter};

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
        self.build.extend(std::iter::repeat_n(NO_ROW, probe.len()));
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

/// Returns the `rows` whose bit is set; none if there are none.
fn kept<R: Copy>(rows: &[R], passed: &BooleanBuffer) -> Vec<R> {
    if rows.is_empty() {
        Vec::new()
    } else {
        passed.set_indices().map(|i| rows[i]).collect()
    }
}
