//! Hashed normalized keys: DataFusion's 64-bit hash of all key columns, folded to 32 bits.
//!
//! `create_hashes` reads every type that `HashJoinExec` joins on, hashes `-0.0` like `0.0`
//! and hashes each dictionary value once. Its hash of a NULL depends on the columns before
//! only, so rows that are equal under `NullEqualsNull` get equal hashes too.
//!
//! The hash is a fast one: either half of it alone shows structure. XOR of the halves does not:
//! sequences, strides, grids, floats and numbered texts collide as often as random numbers would.
//! The variant of the hash with one more multiplication per value collides as often, so it is not
//! used. Cost: DataFusion's kernels and one pass over their result.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::common::NullEquality;
use datafusion::common::hash_utils::{RandomState, with_hashes};

use crate::error::Result;
use crate::table::primitives::hash::random_seed;

/// The hashed encoding of all key columns of a join.
#[derive(Clone, Debug)]
pub struct HashedKeys {
    null_equality: NullEquality,
    /// Shared by both sides of a join.
    state: RandomState,
    /// The bits of the folded hash that are kept.
    mask: u32,
}

impl HashedKeys {
    pub fn new(null_equality: NullEquality) -> Self {
        Self {
            null_equality,
            state: RandomState::with_seed(random_seed()),
            mask: u32::MAX,
        }
    }

    /// Keeps the low `bits` bits.
    pub fn keep_bits(&mut self, bits: u32) {
        self.mask = u32::MAX
            .checked_shr(u32::BITS.saturating_sub(bits))
            .unwrap_or(0);
    }

    /// Returns the number of bits of the largest normalized key.
    pub fn bits(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Writes the normalized key of each row to `out` and returns which of them can match.
    pub fn encode(&self, columns: &[ArrayRef], out: &mut [u32]) -> Result<Option<BooleanBuffer>> {
        with_hashes(columns, &self.state, |hashes| {
            for (out, hash) in out.iter_mut().zip(hashes) {
                *out = fold(*hash) & self.mask;
            }
            Ok(())
        })?;
        Ok(match self.null_equality {
            NullEquality::NullEqualsNothing => valid_rows(columns),
            NullEquality::NullEqualsNull => None,
        })
    }
}

/// Returns the rows without a NULL in any column; `None` if those are all.
fn valid_rows(columns: &[ArrayRef]) -> Option<BooleanBuffer> {
    let nulls: Vec<Option<NullBuffer>> = columns.iter().map(Array::logical_nulls).collect();
    NullBuffer::union_many(nulls.iter().map(Option::as_ref)).map(NullBuffer::into_inner)
}

/// Returns 32 bits of a 64-bit hash.
fn fold(hash: u64) -> u32 {
    (hash >> 32 ^ hash) as u32
}
