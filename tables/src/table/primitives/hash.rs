//! Hash functions of a Horton table; the counterpart of `cl/primitives/hash.cl`, function for
//! function.
//!
//! ```text
//!  key ──jenkins──▶ h ──× buckets──▶ primary bucket
//!                   └──jenkins──▶ × 21 ──▶ tag 0..=20
//!  (primary bucket, tag) ──▶ k_sec ──▶ R_1 … R_7
//! ```
//!
//! Horton paper, sections 5.3.1 and 5.3.4. Items that share a remap entry hash to one secondary
//! bucket, because `k_sec` is made one-to-one from (primary bucket, tag). So an entry can be
//! cleared when nothing in that bucket needs it. Two things differ from the paper. Hashes are
//! reduced to a bucket by multiply-high: as uniform as `%`, without the division; the paper's `%`
//! is there too, see [`Reduction`]. And a per-table seed enters them: a set of keys that is bad for
//! one table is an ordinary set for the next attempt.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// Remap entries of a Type B bucket: 21 entries of 3 bits beside the type bit.
pub const TAGS: u32 = 21;

/// Secondary functions: what 3 bits can name, 0 meaning none.
pub const SECONDARY_FUNCTIONS: u32 = 7;

/// Separates the tag's hash from the primary hash.
const TAG_SALT: u32 = 0x9e37_79b9;

/// Separates a cuckoo table's second hash from the primary hash.
const SECOND_SALT: u32 = 0x6c07_8965;

/// Folds the high word of a secondary key (tables beyond 2^32 / 21 buckets) into the low one.
const FOLD: u32 = 0x85eb_ca6b;

/// Step constants of the secondary functions (`KT` in equation 2 of the paper): odd, random.
const KT: [u32; 8] = [
    0x2c1b_3c6d,
    0x297a_2d39,
    0x7feb_352d,
    0x846c_a68b,
    0xc2b2_ae35,
    0x27d4_eb2f,
    0x1656_67b1,
    0xb529_7a4d,
];

/// Returns Bob Jenkins' 32-bit to 32-bit integer hash: six shifts, full avalanche, invertible.
pub fn jenkins(mut a: u32) -> u32 {
    a = a.wrapping_add(0x7ed5_5d16).wrapping_add(a << 12);
    a = (a ^ 0xc761_c23c) ^ (a >> 19);
    a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    (a ^ 0xb55a_4f09) ^ (a >> 16)
}

/// Returns a seed that nobody can choose keys against: keys that share a bucket, a tag or a
/// secondary bucket under one seed are spread by another. Drawn from the operating system's random
/// numbers.
pub fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// The way in which a hash becomes a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reduction {
    /// The high word of the product with the number of buckets.
    #[default]
    MultiplyHigh,
    /// The remainder of the division by the number of buckets, as in the paper.
    Modulo,
}

impl Reduction {
    /// Returns the bucket of a hash, in `0..buckets`.
    pub fn reduce(self, hash: u32, buckets: u32) -> u32 {
        match self {
            Reduction::MultiplyHigh => mul_hi(hash, buckets),
            Reduction::Modulo => hash % buckets,
        }
    }
}

fn mul_hi(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// Returns the hash of a key's primary function.
pub fn primary_hash(key: u32, seed: u32) -> u32 {
    jenkins(key ^ seed)
}

/// Returns the bucket of a key's primary function by multiply-high, in `0..buckets`.
pub fn primary_bucket(key: u32, seed: u32, buckets: u32) -> u32 {
    mul_hi(primary_hash(key, seed), buckets)
}

/// Returns the hash of a key's second function in a cuckoo table, where keys have two buckets.
pub fn second_hash(key: u32, seed: u32) -> u32 {
    jenkins(jenkins(key ^ seed).wrapping_add(SECOND_SALT))
}

/// Returns the index of a key's remap entry, in `0..21`.
pub fn tag_of(key: u32, seed: u32) -> u32 {
    mul_hi(jenkins(jenkins(key ^ seed).wrapping_add(TAG_SALT)), TAGS)
}

/// Returns the hash of secondary function `entry` (1..=7) for what overflows `bucket` with `tag`.
pub fn secondary_hash(bucket: u32, tag: u32, entry: u32, seed: u32) -> u32 {
    let k = u64::from(bucket) * u64::from(TAGS) + u64::from(tag);
    let base = jenkins(k as u32 ^ ((k >> 32) as u32).wrapping_mul(FOLD) ^ !seed);
    base.wrapping_add(KT[(k & 7) as usize].wrapping_mul(entry))
}

/// Returns the bucket of [`secondary_hash`] by multiply-high, in `0..buckets`.
pub fn secondary_bucket(bucket: u32, tag: u32, entry: u32, seed: u32, buckets: u32) -> u32 {
    mul_hi(secondary_hash(bucket, tag, entry, seed), buckets)
}

/// Returns the constants as defines for `cl/primitives/hash.cl`.
pub(crate) fn defines(reduction: Reduction) -> Vec<(&'static str, String)> {
    let kt: Vec<String> = KT.iter().map(|k| format!("{k:#x}u")).collect();
    vec![
        ("TAGS", TAGS.to_string()),
        ("TAG_SALT", format!("{TAG_SALT:#x}u")),
        ("SECOND_SALT", format!("{SECOND_SALT:#x}u")),
        (
            "MODULO",
            u8::from(reduction == Reduction::Modulo).to_string(),
        ),
        ("FOLD", format!("{FOLD:#x}u")),
        ("KT", kt.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the chi-squared of how evenly `count` draws fall into `bins`; about `bins` when
    /// uniform.
    fn chi_squared(bins: usize, count: usize, bin: impl Fn(u32) -> u32) -> f64 {
        let mut seen = vec![0usize; bins];
        (0..count as u32).for_each(|i| seen[bin(i) as usize] += 1);
        let expected = count as f64 / bins as f64;
        seen.iter()
            .map(|&n| (n as f64 - expected).powi(2) / expected)
            .sum()
    }

    #[test]
    fn sequential_keys_fill_buckets_tags_and_secondaries_evenly() {
        // 6 sigma of a chi-squared with k degrees of freedom: k + 6·sqrt(2k).
        let bound = |k: f64| k + 6.0 * (2.0 * k).sqrt();
        for seed in [0, 1, 0xdead_beef] {
            let primary = chi_squared(1000, 1 << 20, |i| primary_bucket(i, seed, 1000));
            assert!(primary < bound(1000.0), "{primary}");
            let tags = chi_squared(21, 1 << 20, |i| tag_of(i, seed));
            assert!(tags < bound(21.0), "{tags}");
            let second = |i| Reduction::Modulo.reduce(second_hash(i, seed), 1000);
            let second = chi_squared(1000, 1 << 20, second);
            assert!(second < bound(1000.0), "{second}");
            for entry in 1..=7 {
                let second = chi_squared(1000, 1 << 18, |i| {
                    secondary_bucket(i, i % 21, entry, seed, 1000)
                });
                assert!(second < bound(1000.0), "{entry}: {second}");
            }
        }
    }

    #[test]
    fn tags_are_uniform_among_the_keys_of_one_bucket() {
        let keys: Vec<u32> = (0..1 << 22)
            .filter(|&k| primary_bucket(k, 7, 64) == 3)
            .collect();
        let tags = chi_squared(21, keys.len(), |i| tag_of(keys[i as usize], 7));
        assert!(tags < 21.0 + 6.0 * 42f64.sqrt(), "{tags}");
    }
}
