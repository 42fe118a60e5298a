//! Numbers that look random, each computed from its place.
//!
//! ```text
//!   mix           any 64 bits ─▶ any others, distinct
//!   Permutation   0..count    ─▶ 0..count, distinct
//!   below         64 bits     ─▶ 0..count, evenly
//! ```
//!
//! Drawn ones would be distinct only by remembering which came; these make any batch of a table on
//! any thread.

/// A bijection on `0..count` that looks random.
pub struct Permutation {
    /// Numbers it permutes.
    pub count: u64,
    bits: u32,
}

impl Permutation {
    /// Returns one of `0..count`.
    pub fn new(count: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { count, bits }
    }

    /// Scrambles among the numbers of `bits` bits until one is below `count`: twice at most, on
    /// average.
    pub fn apply(&self, number: u64) -> u64 {
        let mut x = number;
        loop {
            x = self.scramble(x);
            if x < self.count {
                return x;
            }
        }
    }

    /// Returns a bijection on the numbers of `bits` bits: odd factors and xor with a shift are.
    fn scramble(&self, x: u64) -> u64 {
        let mask = (1u128 << self.bits) as u64;
        let mask = mask.wrapping_sub(1);
        let shift = (self.bits / 2).max(1);
        let mut x = x;
        for factor in [0x9E37_79B9_7F4A_7C15u64, 0xD6E8_FEB8_6659_FD93] {
            x = x.wrapping_mul(factor).wrapping_add(0x2545_F491_4F6C_DD1D) & mask;
            x ^= x >> shift;
        }
        x
    }
}

/// Returns a bijection on 64 bits: the finalizer of SplitMix64.
pub fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Returns `bits` as a fraction of 2^64, times `count`.
pub fn below(bits: u64, count: u64) -> u64 {
    ((u128::from(bits) * u128::from(count)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn permutations_reach_every_number_once() {
        for count in [1, 2, 3, 64, 65, 1000, 4097] {
            let permutation = Permutation::new(count);
            let reached: BTreeSet<u64> = (0..count).map(|i| permutation.apply(i)).collect();
            assert_eq!(reached, (0..count).collect(), "{count}");
        }
        let permutation = Permutation::new(1 << 20);
        let steps =
            (0..1000).filter(|&i| permutation.apply(i + 1).abs_diff(permutation.apply(i)) < 1000);
        assert!(steps.count() < 100, "sequential");
    }
}
