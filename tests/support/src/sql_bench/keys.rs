//! The keys of the two tables: one to three columns, whose combination stands for a number.
//!
//! ```text
//!   dense     number ─▶ a permutation of 0..present; misses lie above
//!   holes     number ─▶ a permutation of 0..all, of which `present` are there
//!   sparse    number ─▶ 64 mixed bits: distinct, their range fits no 32 bits
//!   text      'customer#000000123', numbered as dense keys are
//!
//!   several   number ─▶ a permutation of 0..all ─▶ / 64   % 64
//!   2 columns                                       k     k2
//!   3 columns                                       k     k2, k3       k2 has / 8, k3 has % 8
//!             └ k of 64 numbers shaped as above, k2 of 32 bits, k3 'warehouse#0007'
//! ```
//!
//! With several columns a miss has a `k` that the build side has, too, at all but the lowest hit
//! rates. If `k` alone were distinct, a join could find its rows by that, and the others would cost
//! it a comparison.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array};
use arrow::datatypes::{DataType, Field};

use super::columns::views;
use super::random::{Permutation, mix};

/// Names of the key columns, of which the first ones are there.
pub const NAMES: [&str; 3] = ["k", "k2", "k3"];

/// Numbers that share `k`, with several key columns.
const GROUP: u64 = 64;

/// Of those, the ones that share `k2` with three columns.
const SHELF: u64 = 8;

/// The shape of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A permutation of `0..present`.
    Dense,
    /// A random part of `0..all`, as a filtered dimension has.
    Holes,
    /// 64 mixed bits.
    Sparse,
    /// `customer#` and nine digits.
    Text,
}

/// Key columns by number.
pub struct Keyed {
    keys: Keys,
    columns: usize,
    present: Permutation,
    all: Permutation,
}

impl Keyed {
    /// Returns keys of 1 to 3 `columns` for the numbers `0..all`, of which `present` are on the
    /// build side.
    pub fn new(keys: Keys, columns: usize, present: u64, all: u64) -> Self {
        Self {
            keys,
            columns,
            present: Permutation::new(present),
            all: Permutation::new(all),
        }
    }

    /// Returns whether the keys of the build side depend on how many numbers there are in all.
    pub fn depends_on_all(keys: Keys, columns: usize) -> bool {
        keys == Keys::Holes || columns > 1
    }

    /// Returns the only key of `number`.
    fn key(&self, number: u64) -> u64 {
        match self.keys {
            Keys::Sparse => mix(number),
            Keys::Holes => self.all.apply(number),
            Keys::Dense | Keys::Text if number < self.present.count => self.present.apply(number),
            Keys::Dense | Keys::Text => number,
        }
    }

    /// Returns `k` of a group of numbers.
    fn group_key(&self, group: u64) -> u64 {
        match self.keys {
            Keys::Sparse => mix(group),
            Keys::Dense | Keys::Holes | Keys::Text => group,
        }
    }

    /// Makes the key columns of rows with `numbers`.
    pub fn make(&self, numbers: &[u64]) -> Vec<ArrayRef> {
        if self.columns == 1 {
            return vec![self.first(numbers.iter().map(|&number| self.key(number)))];
        }
        let places: Vec<u64> = numbers.iter().map(|&n| self.all.apply(n)).collect();
        let places = || places.iter().copied();
        let k = self.first(places().map(|place| self.group_key(place / GROUP)));
        let members = |shelf: u64| {
            let members = places().map(move |place| (place % GROUP / shelf) as i32);
            Arc::new(Int32Array::from_iter_values(members))
        };
        if self.columns == 2 {
            return vec![k, members(1)];
        }
        let last = places().map(|place| Some(format!("warehouse#{:04}", place % SHELF)));
        vec![k, members(SHELF), views(last)]
    }

    /// The column `k` of `keys`.
    fn first(&self, keys: impl Iterator<Item = u64>) -> ArrayRef {
        match self.keys {
            Keys::Text => views(keys.map(|key| Some(format!("customer#{key:09}")))),
            _ => Arc::new(Int64Array::from_iter_values(keys.map(|key| key as i64))),
        }
    }

    /// Names and types of the key columns.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        let first = match self.keys {
            Keys::Text => DataType::Utf8View,
            _ => DataType::Int64,
        };
        let types = [first, DataType::Int32, DataType::Utf8View];
        let fields = NAMES.into_iter().zip(types).take(self.columns);
        fields.map(|(name, data_type)| Field::new(name, data_type, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::util::display::array_value_to_string;
    use std::collections::BTreeSet;

    const ALL: [Keys; 4] = [Keys::Dense, Keys::Holes, Keys::Sparse, Keys::Text];

    fn combinations(keyed: &Keyed, numbers: u64, columns: usize) -> BTreeSet<Vec<String>> {
        let numbers: Vec<u64> = (0..numbers).collect();
        let made = keyed.make(&numbers);
        let row = |row: usize| {
            let columns = made.iter().take(columns);
            columns
                .map(|column| array_value_to_string(column, row).unwrap())
                .collect()
        };
        (0..numbers.len()).map(row).collect()
    }

    #[test]
    fn keys_of_all_numbers_are_distinct() {
        for keys in ALL {
            for columns in 1..=3 {
                let keyed = Keyed::new(keys, columns, 3000, 9000);
                let reached = combinations(&keyed, 9000, columns);
                assert_eq!(reached.len(), 9000, "{keys:?}, {columns}");
            }
        }
        let dense = Keyed::new(Keys::Dense, 1, 3000, 9000);
        assert!((0..3000).all(|number| dense.key(number) < 3000));
    }

    #[test]
    fn of_several_columns_none_tells_a_miss() {
        let keyed = Keyed::new(Keys::Sparse, 3, 3000, 9000);
        let groups = 9000u64.div_ceil(GROUP) as usize;
        assert_eq!(combinations(&keyed, 9000, 1).len(), groups);
        assert_eq!(combinations(&keyed, 3000, 1).len(), groups);
        assert_eq!(combinations(&keyed, 9000, 2).len(), 9000usize.div_ceil(8));
    }

    #[test]
    fn columns_are_as_their_fields_say() {
        for keys in ALL {
            let keyed = Keyed::new(keys, 3, 10, 10);
            let made = keyed.make(&[1, 2]);
            let types: Vec<_> = keyed.fields().map(|f| f.data_type().clone()).collect();
            let found: Vec<_> = made.iter().map(|array| array.data_type().clone()).collect();
            assert_eq!(types, found);
        }
    }
}
