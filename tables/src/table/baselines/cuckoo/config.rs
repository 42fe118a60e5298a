//! The configuration of a cuckoo table, and the bucket that an item goes to.

use crate::error::{Error, Result};
use crate::table::api::WhenFull;
use crate::table::horton::table::TableConfig;
use crate::table::primitives::bucket::{BucketSize, Layout};
use crate::table::primitives::hash::Reduction;

/// The bucket that an item goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// The emptier one of its two.
    #[default]
    LoadBalanced,
    /// The first one with a free slot.
    FirstFit,
}

/// The configuration of a cuckoo table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CuckooConfig {
    /// Slots per bucket; 8 is the default.
    pub bucket_size: BucketSize,
    /// Items per slot, in (0, 1].
    pub load_factor: f64,
    /// Seed of the hash functions.
    pub seed: u32,
    /// Reduction of hashes to buckets.
    pub reduction: Reduction,
    /// Slots that there are at least, for items to come.
    pub min_capacity: usize,
    /// Behaviour of an insert when some keys find no slot.
    pub when_full: WhenFull,
    /// The bucket that an item goes to.
    pub placement: Placement,
}

impl Default for CuckooConfig {
    fn default() -> Self {
        let horton = TableConfig::default();
        Self {
            bucket_size: horton.bucket_size,
            load_factor: horton.load_factor,
            seed: horton.seed,
            reduction: horton.reduction,
            min_capacity: horton.min_capacity,
            when_full: horton.when_full,
            placement: Placement::LoadBalanced,
        }
    }
}

impl CuckooConfig {
    /// Returns the shape of a table of `n` items.
    pub(super) fn layout(&self, n: usize) -> Result<Layout> {
        if !(self.load_factor > 0.0 && self.load_factor <= 1.0) {
            return Err(Error::Invalid(format!(
                "invalid load_factor {}: expected a number in (0, 1]",
                self.load_factor
            )));
        }
        let slots = self.bucket_size.slots();
        let asked = (n as f64 / (slots as f64 * self.load_factor)).ceil() as usize;
        let buckets = asked.max(self.min_capacity.div_ceil(slots)).max(1);
        Ok(Layout {
            bucket_size: self.bucket_size,
            buckets: u32::try_from(buckets)
                .map_err(|_| Error::Invalid(format!("{n} keys need more than 2^32 buckets")))?,
            seed: self.seed,
            reduction: self.reduction,
        })
    }
}
