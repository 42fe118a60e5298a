//! The models of the Horton paper, section 6: equations 3 to 9.
//!
//! Items of a bucket are taken to be Poisson distributed. S is the number of slots per bucket, λ
//! the mean number of items that hash to it: load factor times S.

/// Remap entries of a Type B bucket.
const TAGS: f64 = 21.0;

/// Items of a bucket beyond which the sums stop: far above any mean here.
const MOST: usize = 120;

/// A table of so many slots per bucket at a load factor.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    slots: usize,
    mean: f64,
}

impl Model {
    pub fn new(slots: usize, load: f64) -> Self {
        Self {
            slots,
            mean: load * slots as f64,
        }
    }

    /// Returns the share of buckets to which exactly `x` items hash (equation 3).
    pub fn poisson(&self, x: usize) -> f64 {
        let log_factorial: f64 = (1..=x).map(|i| (i as f64).ln()).sum();
        (x as f64 * self.mean.ln() - self.mean - log_factorial).exp()
    }

    fn sum(&self, items: std::ops::RangeInclusive<usize>, weight: impl Fn(usize) -> f64) -> f64 {
        items.map(|x| weight(x) * self.poisson(x)).sum()
    }

    /// Returns the share of the table's space that holds remap entries (equation 4).
    pub fn entry_space(&self) -> f64 {
        self.sum(self.slots + 1..=MOST, |_| 1.0) / self.slots as f64
    }

    /// Buckets read by a lookup that hits (equations 5 to 7).
    pub fn hit(&self) -> f64 {
        let remapped = self.sum(self.slots + 1..=MOST, |x| (x - self.slots + 1) as f64);
        1.0 + remapped / self.mean
    }

    /// Buckets read by a lookup that misses (equations 8 and 9).
    pub fn miss(&self) -> f64 {
        let most = self.slots - 1 + TAGS as usize;
        let aliased = self.sum(self.slots + 1..=most, |x| (x - self.slots + 1) as f64);
        1.0 + aliased / TAGS
    }
}
