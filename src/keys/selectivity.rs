//! The selectivity of a [set of keys](super::membership) before it is made: by a sample of the rows
//! that it would test.
//!
//! ```text
//!  1024 probe rows ─ hashes ─▶ Sample: 64 Ki bits, sorted hashes ◀─ hash of each build key
//!                                       └─ few build keys get further ─▶ this row would pass
//! ```
//!
//! A large set costs several accesses to memory per build key, and is of no use if most rows pass.
//! The sample lies in a core's cache, so that a build key costs its hash there. The search ends
//! once enough rows are known to pass. The sampled rows are random ones of the whole table: those
//! that a scan reads first may all be of one day.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use crate::error::Result;
use crate::parallel::{Morsel, map_blocking, parts};

use super::membership::{as_types, hashes, nulls_of_any};

/// Bits that tell whether a hash may be one of the sample's. A sample of 1024 rows sets one of 64.
const BITS: usize = 1 << 16;

/// Returns whether at least the part `most` of the sampled rows have a key among `keys`, where
/// column `c` is `keys[b][c]` of the type `types[c]`. Column `c` of the sample is `sample[c]`. A
/// key with a NULL is found nowhere. The keys are searched in `width` parts side by side.
///
/// # Errors
/// If a column cannot be hashed or cast to that of `keys`.
pub async fn are_most_among(
    sample: &[ArrayRef],
    keys: &[Vec<ArrayRef>],
    types: &[DataType],
    (most, width): (f64, usize),
) -> Result<bool> {
    let sample = Arc::new(Sample::new(&as_types(sample, types)?, most)?);
    let of_part = Arc::clone(&sample);
    let look = move |part: Morsel| {
        for keys in &part.columns {
            if !of_part.has_most() {
                of_part.find(keys)?;
            }
        }
        Ok(())
    };
    map_blocking(parts(keys), width, look).await?;
    Ok(sample.has_most())
}

/// The hashes of sampled rows, and which of them were found.
struct Sample {
    /// A bit for each [place](place_of) of a hash.
    bits: Vec<u64>,
    /// Ascending.
    hashes: Vec<SampledHash>,
    found: AtomicUsize,
    wanted: usize,
}

struct SampledHash {
    hash: u64,
    /// Rows of the sample that have it.
    rows: usize,
    is_found: AtomicBool,
}

impl Sample {
    /// Returns the sample of these keys, by their columns. It has most of them once the part `most`
    /// is found.
    fn new(keys: &[ArrayRef], most: f64) -> Result<Self> {
        let nulls = nulls_of_any(keys);
        let hashes = hashes(keys)?;
        let wanted = (hashes.len() as f64 * most).ceil() as usize;
        let valid = hashes.into_iter().enumerate();
        let valid = valid.filter(|(row, _)| nulls.as_ref().is_none_or(|n| n.is_valid(*row)));
        let mut hashes: Vec<u64> = valid.map(|(_, hash)| hash).collect();
        hashes.sort_unstable();
        let mut bits = vec![0; BITS / 64];
        for hash in &hashes {
            let (word, bit) = place_of(*hash);
            bits[word] |= bit;
        }
        let hashes = hashes.chunk_by(|a, b| a == b).map(|equal| SampledHash {
            hash: equal[0],
            rows: equal.len(),
            is_found: AtomicBool::new(false),
        });
        Ok(Self {
            bits,
            hashes: hashes.collect(),
            found: AtomicUsize::new(0),
            wanted,
        })
    }

    fn has_most(&self) -> bool {
        self.found.load(Ordering::Relaxed) >= self.wanted
    }

    /// Notes which sampled rows have one of these keys, given by their columns.
    fn find(&self, keys: &[ArrayRef]) -> Result<()> {
        for hash in hashes(keys)? {
            let (word, bit) = place_of(hash);
            if self.bits[word] & bit == 0 {
                continue;
            }
            let Ok(at) = self
                .hashes
                .binary_search_by_key(&hash, |sampled| sampled.hash)
            else {
                continue;
            };
            let sampled = &self.hashes[at];
            if !sampled.is_found.load(Ordering::Relaxed)
                && !sampled.is_found.swap(true, Ordering::Relaxed)
            {
                self.found.fetch_add(sampled.rows, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Returns the word and the bit of it that stand for a hash.
fn place_of(hash: u64) -> (usize, u64) {
    let place = hash as usize % BITS;
    (place / 64, 1 << (place % 64))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int32Array, Int64Array, StringArray};

    use super::*;

    fn ints(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
        Arc::new(Int64Array::from_iter(values))
    }

    async fn are_most(sample: ArrayRef, build: &[ArrayRef], most: f64) -> bool {
        let keys: Vec<Vec<ArrayRef>> = build.iter().map(|key| vec![Arc::clone(key)]).collect();
        let types = [build[0].data_type().clone()];
        are_most_among(&[sample], &keys, &types, (most, 2))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn rows_count_that_have_a_key_in_any_part() {
        let build: Vec<ArrayRef> = (0..40)
            .map(|b| ints((0..1000).map(|row| Some((1000 * b + row) << 20))))
            .collect();
        // 600 of 1000 rows have one, and a key that repeats counts as often as rows have it.
        let sample = || {
            ints((0..1000).map(|row| {
                Some(
                    if row < 600 {
                        row % 300 * 131
                    } else {
                        50_000 + row
                    } << 20,
                )
            }))
        };
        assert!(are_most(sample(), &build, 0.6).await);
        assert!(!are_most(sample(), &build, 0.601).await);
    }

    #[tokio::test]
    async fn a_null_is_not_among_the_keys() {
        let build = [ints([Some(1), None, Some(0)].into_iter())];
        let sample = ints([Some(1), None, None, Some(1)].into_iter());
        assert!(are_most(Arc::clone(&sample), &build, 0.5).await);
        assert!(!are_most(sample, &build, 0.75).await);
    }

    #[tokio::test]
    async fn keys_of_other_types_are_cast() {
        let build = [ints((0..100).map(Some))];
        let sample: ArrayRef = Arc::new(Int32Array::from_iter_values(50..150));
        assert!(are_most(Arc::clone(&sample), &build, 0.5).await);
        assert!(!are_most(sample, &build, 0.51).await);
    }

    #[tokio::test]
    async fn keys_of_several_columns_are_among_others_together() {
        let letters: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "b"]));
        let build = vec![vec![ints((0..4).map(Some)), Arc::clone(&letters)]];
        let types = [DataType::Int64, DataType::Utf8];
        let same = [ints((0..4).map(Some)), Arc::clone(&letters)];
        let crossed = [ints((1..5).map(Some)), letters];
        assert!(
            are_most_among(&same, &build, &types, (1.0, 1))
                .await
                .unwrap()
        );
        assert!(
            !are_most_among(&crossed, &build, &types, (0.1, 1))
                .await
                .unwrap()
        );
    }
}
