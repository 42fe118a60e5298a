//! One bit a row, set by any probe stream.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits that threads set and nobody clears.
#[derive(Debug)]
pub struct Bitmap {
    words: Vec<AtomicU64>,
}

impl Bitmap {
    /// `rows` bits that are not set.
    pub fn new(rows: usize) -> Self {
        let words = (0..rows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { words }
    }

    /// Bytes of a bitmap of `rows` bits.
    pub fn bytes(rows: usize) -> usize {
        8 * rows.div_ceil(64)
    }

    /// Sets the bit of `row`.
    pub fn set(&self, row: u32) {
        let (word, bit) = (&self.words[row as usize / 64], 1 << (row % 64));
        // Most rows are visited again and again: reading first keeps the line shared.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Sets the bits that are set in `words`, of 32 rows each.
    pub fn set_all(&self, words: &[u32]) {
        let bits = words.iter().map(|word| u64::from(*word)).enumerate();
        for (w, word) in bits.filter(|(_, word)| *word != 0) {
            self.words[w / 2].fetch_or(word << (32 * (w % 2)), Ordering::Relaxed);
        }
    }

    /// Whether the bit of `row` is set.
    pub fn get(&self, row: u32) -> bool {
        self.words[row as usize / 64].load(Ordering::Relaxed) >> (row % 64) & 1 == 1
    }

    /// The rows whose bits are set.
    pub fn ones(&self) -> impl Iterator<Item = u32> {
        self.words.iter().enumerate().flat_map(|(w, word)| {
            let word = word.load(Ordering::Relaxed);
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| 64 * w as u32 + bit)
        })
    }
}
