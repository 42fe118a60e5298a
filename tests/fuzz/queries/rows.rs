//! Rows of a query as text, and what rows of another run may be.
//!
//! ```text
//!  expected ─ compare ──────▶ found       the same, in an order that was asked for; some, if LIMIT
//!           ─ compare_kept ─▶ of streams  none but those, and all where all streams were read
//! ```

use std::collections::HashMap;
use std::fmt::Write;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;

use super::draw::Outer;

/// Rows as text, in their order.
pub struct Rows {
    rows: Vec<String>,
    /// They come from several partitions, so that their order says nothing.
    is_merged: bool,
}

impl Rows {
    pub fn from_batches(batches: &[RecordBatch], is_merged: bool) -> Result<Self> {
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter();
            let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
            let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let mut text = String::new();
                for column in &columns {
                    let _ = write!(text, "{} ", column.value(row));
                }
                rows.push(text);
            }
        }
        Ok(Self { rows, is_merged })
    }

    fn sorted(&self) -> Vec<&str> {
        let mut sorted: Vec<&str> = self.rows.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted
    }

    /// Compares with what was `found` for the `outer` query.
    pub fn compare(&self, outer: Outer, found: &Self) -> std::result::Result<(), String> {
        let (expected, actual) = (self.sorted(), found.sorted());
        if let Outer::Some(n) = outer {
            let wanted = n.min(expected.len());
            let mut left = expected.iter();
            let all_there = actual.iter().all(|row| left.any(|other| other == row));
            return match actual.len() == wanted && all_there {
                true => Ok(()),
                false => Err(format!("{} of {wanted} rows, or others", actual.len())),
            };
        }
        if expected != actual {
            let at = expected.iter().zip(&actual).position(|(a, b)| a != b);
            let at = at.unwrap_or(expected.len().min(actual.len()));
            return Err(format!(
                "{} rows for {}; row {at} is {:?} for {:?}",
                actual.len(),
                expected.len(),
                actual.get(at),
                expected.get(at)
            ));
        }
        let is_in_order = match outer {
            _ if found.is_merged => true,
            Outer::First(_) => self.rows == found.rows,
            // Equal rows may come in any order.
            Outer::Ordered => self.keys().eq(found.keys()),
            _ => true,
        };
        match is_in_order {
            true => Ok(()),
            false => Err("order of rows".to_owned()),
        }
    }

    /// Compares with what was `found` of some streams of as many `rounds`, of all if it `is_whole`.
    pub fn compare_kept(
        &self,
        outer: Outer,
        (rounds, is_whole): (usize, bool),
        found: &Self,
    ) -> std::result::Result<(), String> {
        let all = self.rows.iter().map(String::as_str);
        let mut left: HashMap<&str, usize> = HashMap::new();
        all.for_each(|row| *left.entry(row).or_default() += rounds);
        for row in &found.rows {
            match left.get_mut(row.as_str()) {
                Some(times) if *times > 0 => *times -= 1,
                _ => return Err(format!("row {row:?}, or too often")),
            }
        }
        let wanted = rounds
            * match outer {
                Outer::Some(n) => n.min(self.rows.len()),
                _ => self.rows.len(),
            };
        let count = found.rows.len();
        match count == wanted || count < wanted && !is_whole {
            true => Ok(()),
            false => Err(format!("{count} of {wanted} rows")),
        }
    }

    /// Returns the first two columns of each row.
    fn keys(&self) -> impl Iterator<Item = Vec<&str>> {
        self.rows.iter().map(|row| row.split(' ').take(2).collect())
    }
}
