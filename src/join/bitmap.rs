//! One bit per row, set by any probe stream.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits that threads set and nobody clears.
#[derive(Debug)]
pub struct Bitmap {
    words: Vec<AtomicU64>,
}

impl Bitmap {
    /// Returns a bitmap of `rows` bits, none of them set.
    pub fn new(rows: usize) -> Self {
        let words = (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words }
    }

    /// Returns the bytes of a bitmap of `rows` bits.
    pub fn bytes(rows: usize) -> usize {
        8 * rows.div_ceil(64)
    }

    /// Sets the bit of `row`.
    #[inline]
    pub fn set(&self, row: u32) {
        let (word, bit) = (&self.words[row as usize / 64], 1 << (row % 64));
        // Most rows are visited again and again: reading first keeps the line shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Sets the bits that are set in `words`, of 32 rows each.
    pub fn set_all(&self, words: &[u32]) {
        debug_assert!(
            words.len().div_ceil(2) <= self.words.len(),
            "bits of more rows"
        );
        let bits = words.iter().map(|word| u64::from(*word)).enumerate();
        for (w, word) in bits.filter(|(_, word)| *word != 0) {
            self.words[w / 2].fetch_or(word << (32 * (w % 2)), Ordering::Relaxed);
        }
    }

    /// Returns whether the bit of `row` is set.
    pub fn get(&self, row: u32) -> bool {
        self.words[row as usize / 64].load(Ordering::Relaxed) >> (row % 64) & 1 == 1
    }

    /// Returns those of `rows` whose bits are set, or not set, in order. Words without any are
    /// passed over.
    pub fn rows(&self, rows: Range<u32>, set: bool) -> impl Iterator<Item = u32> {
        debug_assert!(rows.start <= rows.end, "{rows:?}");
        debug_assert!(
            rows.end.div_ceil(64) as usize <= self.words.len(),
            "{rows:?}"
        );
        let words = rows.start / 64..rows.end.div_ceil(64);
        words.flat_map(move |w| {
            let word = self.words[w as usize].load(Ordering::Relaxed);
            let first = 64 * w;
            let before = u64::MAX << rows.start.saturating_sub(first);
            let after = match rows.end - first {
                end @ 0..64 => !(u64::MAX << end),
                _ => u64::MAX,
            };
            let bits = if set { word } else { !word };
            ones_of(bits & before & after, first)
        })
    }
}

/// Returns the numbers of the bits that are set in `word`, the lowest of which has the number
/// `first`.
pub fn ones_of(word: u64, first: u32) -> impl Iterator<Item = u32> {
    let lower = |word: &u64| Some(word & (word - 1)).filter(|word| *word != 0);
    let words = std::iter::successors(Some(word).filter(|word| *word != 0), lower);
    words.map(move |word| first + word.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_with_and_those_without_a_bit() {
        let size = 300;
        let bitmap = Bitmap::new(size as usize);
        let is_set = |row: &u32| row % 7 == 3 || (64..128).contains(row) || *row == size - 1;
        (0..size).filter(is_set).for_each(|row| bitmap.set(row));
        assert!(bitmap.rows(0..size, true).eq((0..size).filter(is_set)));
        for start in 0..size {
            for end in [start, start + 1, start + 64, 191, 192, 193, size] {
                let rows = start..end.clamp(start, size);
                let found = |set| bitmap.rows(rows.clone(), set).collect::<Vec<_>>();
                let wanted = |set| {
                    rows.clone()
                        .filter(|row| is_set(row) == set)
                        .collect::<Vec<_>>()
                };
                assert_eq!(found(true), wanted(true), "{rows:?}");
                assert_eq!(found(false), wanted(false), "{rows:?}");
            }
        }
    }
}
