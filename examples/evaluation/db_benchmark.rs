//! The tables and questions of db-benchmark's join task (h2o.ai, later DuckDB Labs).
//!
//! ```text
//!   x       n rows           id1 ─▶ small    n / 10^6 rows
//!                            id2 ─▶ medium   n / 10^3 rows   id5: id2 as text
//!                            id3 ─▶ big      n rows
//!
//!   keys of x   0 ┣━━━━ 0.9 n ━━━━╋━ 0.1 n ━┫
//!   of the other  ┣━━━━ 0.9 n ━━━━┫         ┣━ 0.1 n ━┫    shuffled, so they have no order
//! ```
//!
//! The rules are those of its `_data/join-datagen.R`: nine of ten keys are on both sides, each key
//! is there once in its own table, and drawn at random elsewhere. R's random numbers are not. A
//! hash of the row's number stands for them, so that any part of a table is made by itself.
//!
//! The five questions ask for sums, by which db-benchmark checks its answers. It also keeps all
//! columns of the joined rows, which these do not.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};
use arrow::error::ArrowError;

/// Names and texts of the questions.
pub const QUESTIONS: [(&str, &str); 5] = [
    ("q1_small_inner", include_str!("queries/q1_small_inner.sql")),
    (
        "q2_medium_inner",
        include_str!("queries/q2_medium_inner.sql"),
    ),
    (
        "q3_medium_outer",
        include_str!("queries/q3_medium_outer.sql"),
    ),
    (
        "q4_medium_factor",
        include_str!("queries/q4_medium_factor.sql"),
    ),
    ("q5_big_inner", include_str!("queries/q5_big_inner.sql")),
];

/// Fewest rows of a table: a tenth of them has keys of its own.
const LEAST_ROWS: u64 = 10;

/// One of the four tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// The table that the others are joined to.
    X,
    /// The smallest.
    Small,
    /// The one in between.
    Medium,
    /// A table as large as `x`.
    Big,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::X, Self::Small, Self::Medium, Self::Big];

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::X => "x",
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Big => "big",
        }
    }

    /// Its rows where `x` has `n`.
    pub fn rows(self, n: u64) -> u64 {
        match self {
            Self::X | Self::Big => n,
            Self::Small => n / 1_000_000,
            Self::Medium => n / 1000,
        }
        .max(LEAST_ROWS)
    }

    /// Its key columns by number: id1 is a key of small, id2 of medium, id3 of big.
    fn keys(self) -> usize {
        match self {
            Self::Small => 1,
            Self::Medium => 2,
            Self::X | Self::Big => 3,
        }
    }

    /// Rows `from..to` where `x` has `n` rows in all.
    ///
    /// # Errors
    /// None that is known: columns have their types and lengths by construction.
    pub fn batch(self, n: u64, from: u64, to: u64) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<(String, ArrayRef)> = vec![];
        let mut texts: Vec<(String, ArrayRef)> = vec![];
        for number in 1..=self.keys() {
            let keys: Vec<i32> = (from..to).map(|row| self.key(n, number, row)).collect();
            let text = StringArray::from_iter_values(keys.iter().map(|key| format!("id{key}")));
            columns.push((format!("id{number}"), Arc::new(Int32Array::from(keys))));
            texts.push((format!("id{}", number + 3), Arc::new(text)));
        }
        columns.append(&mut texts);
        let name = if self == Self::X { "v1" } else { "v2" };
        let values = (from..to).map(|row| self.value(row));
        let values = Float64Array::from_iter_values(values);
        columns.push((name.to_string(), Arc::new(values)));
        RecordBatch::try_from_iter(columns)
    }

    /// The key of column `id<number>` in `row`.
    fn key(self, n: u64, number: usize, row: u64) -> i32 {
        let keyed = [Self::Small, Self::Medium, Self::Big][number - 1];
        let keys = keyed.rows(n);
        let seed = self.seed() + number as u64;
        // The last key column of a table has each key once, be it its own or that of big in x.
        let position = match number == self.keys() {
            true => shuffled(row, keys, seed),
            false => hash(seed, row) % keys,
        };
        let own = keys / 10;
        let shared = keys - own;
        let position = match self == Self::X || position < shared {
            true => position,
            false => position + own,
        };
        // Both sides name a key alike: by a shuffle that only the key's table decides.
        shuffled(position, keys + own, number as u64) as i32 + 1
    }

    /// A number from 0 to 100 of six decimal places.
    fn value(self, row: u64) -> f64 {
        (hash(self.seed(), row) % 100_000_000) as f64 / 1e6
    }

    fn seed(self) -> u64 {
        match self {
            Self::X => 100,
            Self::Small => 200,
            Self::Medium => 300,
            Self::Big => 400,
        }
    }
}

/// The place of `i` when `0..n` is shuffled by `seed`: each place is taken once.
///
/// Steps through a permutation of the next power of two until it comes back below `n`.
fn shuffled(i: u64, n: u64, seed: u64) -> u64 {
    let bits = (u64::BITS - (n - 1).leading_zeros()).max(1);
    let mask = u64::MAX >> (u64::BITS - bits);
    let mut place = i;
    loop {
        for round in 0..3 {
            // Each of the three maps the numbers of `bits` bits onto themselves.
            place ^= hash(seed, round) & mask;
            place = place.wrapping_mul(0x9E37_79B9_7F4A_7C15) & mask;
            place ^= place >> (bits / 2).max(1);
        }
        if place < n {
            return place;
        }
    }
}

/// SplitMix64 of `i` in the sequence `seed`.
fn hash(seed: u64, i: u64) -> u64 {
    let mut x = (i ^ seed.rotate_left(48)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::AsArray;
    use arrow::datatypes::Int32Type;
    use std::collections::HashSet;

    const N: u64 = 20_000;

    fn keys(table: Table, number: usize) -> Vec<i32> {
        let batch = table.batch(N, 0, table.rows(N)).unwrap();
        let column = batch.column_by_name(&format!("id{number}")).unwrap();
        column.as_primitive::<Int32Type>().values().to_vec()
    }

    #[test]
    fn nine_of_ten_keys_are_on_both_sides() {
        for (number, table) in [(1, Table::Small), (2, Table::Medium), (3, Table::Big)] {
            let own = keys(table, number);
            let distinct: HashSet<i32> = own.iter().copied().collect();
            assert_eq!(distinct.len(), own.len(), "{table:?}");
            let of_x: HashSet<i32> = keys(Table::X, number).into_iter().collect();
            let shared = distinct.intersection(&of_x).count();
            assert_eq!(shared * 10, own.len() * 9, "{table:?}");
            assert!(of_x.iter().chain(&distinct).all(|key| *key >= 1));
        }
        let of_x: HashSet<i32> = keys(Table::X, 3).into_iter().collect();
        assert_eq!(of_x.len() as u64, N, "x has each key of big once");
    }

    #[test]
    fn keys_of_small_are_named_alike_in_all_tables() {
        let small: HashSet<i32> = keys(Table::Small, 1).into_iter().collect();
        let big: HashSet<i32> = keys(Table::Big, 1).into_iter().collect();
        assert_eq!(small, big);
    }

    #[test]
    fn rows_do_not_depend_on_the_part_they_are_made_in() {
        let whole = Table::Big.batch(N, 0, 300).unwrap();
        assert_eq!(whole.slice(100, 50), Table::Big.batch(N, 100, 150).unwrap());
        assert_eq!(whole.schema().fields().len(), 7);
    }

    #[test]
    fn a_shuffle_takes_each_place_once() {
        for n in [1, 2, 11, 64, 1000] {
            let places: HashSet<u64> = (0..n).map(|i| shuffled(i, n, 7)).collect();
            assert_eq!(places, (0..n).collect(), "{n}");
        }
        let moved = (0..1000).filter(|i| shuffled(*i, 1000, 7) != *i).count();
        assert!(moved > 900, "{moved}");
    }

    #[test]
    fn tables_have_at_least_a_key_of_their_own() {
        assert_eq!(Table::Small.rows(100_000), 10);
        assert_eq!(Table::Small.rows(100_000_000), 100);
        assert_eq!(Table::Medium.rows(10_000_000), 10_000);
    }
}
