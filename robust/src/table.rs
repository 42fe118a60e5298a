//! A table of random rows.
//!
//! ```text
//!   id       0, step, 2 step …   no two rows share one
//!   k1, k2   keys of joins: skewed or not, sparse or not, some NULL
//!   x, s     payloads, a number and a text, for filters and sums
//! ```

use crate::random::Random;

/// Numbers and texts of the payload, from 0.
pub const PAYLOADS: usize = 1_000_000;

/// One table of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its keys: the first is `id`, which no two rows share, then `k1`, `k2` and so on.
    pub keys: Vec<Vec<Option<i64>>>,
    /// The column `x`, and the number in the column `s`.
    pub payloads: [Vec<usize>; 2],
    /// Difference of one `id` to the next.
    pub step: i64,
    /// The filter on payload `.0`: only values below `.1`.
    pub filter: Option<(usize, usize)>,
}

impl Table {
    pub fn rows(&self) -> usize {
        self.payloads[0].len()
    }

    pub fn draw(random: &mut Random, rows: usize) -> Self {
        let step = random.pick([1, 1_000_003]);
        let mut draw = || {
            (0..rows)
                .map(|_| random.below(PAYLOADS))
                .collect::<Vec<_>>()
        };
        let mut payloads = [draw(), draw()];
        if random.one_in(4) {
            // A filter then keeps rows whose ids are next to each other, or the frequent ones.
            payloads[0].sort_unstable();
        }
        Self {
            keys: vec![(0..rows as i64).map(|id| Some(id * step)).collect()],
            payloads,
            step,
            filter: None,
        }
    }

    /// Adds a key with values `0, step, …` of which there are `values`; returns its column.
    pub fn add_key(&mut self, random: &mut Random, values: usize, step: i64) -> usize {
        let (is_skewed, has_nulls) = (random.one_in(3), random.one_in(4));
        let mut key = || {
            let value = match is_skewed {
                true => random.zipf(values),
                false => random.below(values),
            };
            (!has_nulls || !random.one_in(20)).then_some(value as i64 * step)
        };
        let keys = (0..self.rows()).map(|_| key()).collect();
        self.keys.push(keys);
        self.keys.len() - 1
    }

    /// Returns whether the filter keeps a row.
    pub fn keeps(&self, row: usize) -> bool {
        self.filter
            .is_none_or(|(payload, below)| self.payloads[payload][row] < below)
    }
}

/// The text of a payload. Texts have the order of their numbers.
pub fn text(payload: usize) -> String {
    format!("s{payload:07}")
}
