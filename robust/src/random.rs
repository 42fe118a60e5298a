//! Random numbers that a seed determines.
//!
//! ```text
//!   seed, number ─▶ Mersenne Twister ─▶ below(n), fraction(), log_uniform(100, 1e6), zipf(n) …
//! ```

use rand_mt::Mt64;

/// A source of random numbers.
pub struct Random(Mt64);

impl Random {
    /// Returns the source of thing `number` under `seed`: it does not depend on other things.
    pub fn new(seed: u64, number: usize) -> Self {
        // Seeds next to each other must not give the numbers of their neighbours' things.
        let mut seeds = Mt64::new(seed);
        Self(Mt64::new(seeds.next_u64().wrapping_add(number as u64)))
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.0.next_u64() % n.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy, const N: usize>(&mut self, from: [T; N]) -> T {
        from[self.below(N)]
    }

    /// From 0 to 1, without 1.
    pub fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `low` to `high`: each decade is as likely as any other.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.fraction())
    }

    /// Below `n`: number `i` about 1 / (i + 1) as often as 0, as Zipf's law says.
    pub fn zipf(&mut self, n: usize) -> usize {
        let most = n.saturating_sub(1);
        (self.log_uniform(1.0, n as f64 + 1.0) as usize - 1).min(most)
    }

    /// Brings `things` into a random order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_is_skewed_and_below_its_bound() {
        let mut random = Random::new(1, 2);
        let drawn: Vec<usize> = (0..10_000).map(|_| random.zipf(1000)).collect();
        let times = |n| drawn.iter().filter(|&&other| other == n).count();
        assert!(drawn.iter().all(|&n| n < 1000));
        assert!(times(0) > 800 && times(9) < times(0) / 5);
        assert_eq!(random.zipf(1), 0);
    }

    #[test]
    fn a_shuffle_keeps_all() {
        let mut things: Vec<usize> = (0..50).collect();
        Random::new(3, 0).shuffle(&mut things);
        assert_ne!(things, (0..50).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..50).collect::<Vec<_>>());
    }
}
