//! The keys of the two tables.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;

use super::columns::views;
use super::random::{Permutation, mix};

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

/// Keys by number.
pub struct Keyed {
    keys: Keys,
    present: Permutation,
    all: Permutation,
}

impl Keyed {
    pub fn new(keys: Keys, present: u64, all: u64) -> Self {
        Self {
            keys,
            present: Permutation::new(present),
            all: Permutation::new(all),
        }
    }

    pub fn key(&self, number: u64) -> u64 {
        match self.keys {
            Keys::Sparse => mix(number),
            Keys::Holes => self.all.apply(number),
            Keys::Dense | Keys::Text if number < self.present.count => self.present.apply(number),
            Keys::Dense | Keys::Text => number,
        }
    }

    pub fn column(&self, numbers: impl ExactSizeIterator<Item = u64>) -> ArrayRef {
        if self.keys != Keys::Text {
            let keys = numbers.map(|number| self.key(number) as i64);
            return Arc::new(Int64Array::from_iter_values(keys));
        }
        let width = "customer#".len() + 10;
        let texts = numbers.map(|number| format!("customer#{:09}", self.key(number)));
        views(texts, width)
    }

    pub fn data_type(&self) -> DataType {
        match self.keys {
            Keys::Text => DataType::Utf8View,
            _ => DataType::Int64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn keys_of_all_numbers_are_distinct() {
        for keys in [Keys::Dense, Keys::Holes, Keys::Sparse, Keys::Text] {
            let keyed = Keyed::new(keys, 3000, 9000);
            let reached: BTreeSet<u64> = (0..9000).map(|number| keyed.key(number)).collect();
            assert_eq!(reached.len(), 9000, "{keys:?}");
        }
        let dense = Keyed::new(Keys::Dense, 3000, 9000);
        assert!((0..3000).all(|number| dense.key(number) < 3000));
    }
}
