//! Random numbers: every case and every query is drawn from a seed, so that it can be drawn again.
//!
//! ```text
//!  SEED of a run ─ mix(SEED, 0), mix(SEED, 1) … ─▶ a seed each ─ Random ─▶ all that is drawn
//! ```

use rand_mt::Mt64;

/// A source of random numbers.
pub struct Random {
    numbers: Mt64,
    given: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        let numbers = Mt64::new(seed);
        Self { numbers, given: 0 }
    }

    pub fn number(&mut self) -> u64 {
        self.numbers.next_u64()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.number() % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }

    /// Returns 1, then 2, and so on: names for what is drawn.
    pub fn another(&mut self) -> u64 {
        self.given += 1;
        self.given
    }
}

/// A case's seed (splitmix64).
pub fn mix(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
