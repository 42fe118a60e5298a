//! The spill partition of each row: by a hash of its keys.
//!
//! The hash is DataFusion's, by which its joins find equal keys, with a seed of its own at each
//! level. So rows that share a partition, or came through a `RepartitionExec`, are divided again.
//! The seeds are random in each process: nobody can choose keys that stay together at all levels.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

use crate::error::Result;

use super::spec::{NullKeyRows, PartitionSpec};

/// The seed of the first level's hash.
static SEED: LazyLock<u64> = LazyLock::new(|| std::hash::RandomState::new().hash_one(0));

/// The number in place of a partition's for a row that can be dropped.
pub const DROPPED: u32 = u32::MAX;

/// Returns the number of each row's partition.
///
/// # Errors
/// The errors of the key expressions.
pub fn partition_numbers(spec: &PartitionSpec, batch: &RecordBatch) -> Result<Vec<u32>> {
    let keys = evaluate_expressions_to_arrays(&spec.keys, batch)?;
    let partitions = spec.partitions;
    let mut hashes = vec![0; batch.num_rows()];
    let seed = RandomState::with_seed(SEED.wrapping_add(spec.level));
    create_hashes(&keys, &seed, &mut hashes)?;
    let nulls = null_rows(&keys, spec.null_keys);
    let number = |(row, hash): (usize, u64)| match (&nulls, spec.null_keys) {
        (Some(nulls), null_keys) if nulls[row] => match null_keys {
            NullKeyRows::Drop => DROPPED,
            NullKeyRows::Separate => partitions as u32,
            _ => (row % partitions) as u32,
        },
        _ => partition_of(hash, partitions) as u32,
    };
    Ok(hashes.into_iter().enumerate().map(number).collect())
}

/// Returns the partition of a hash: by its high bits after Fibonacci hashing, as a table's bits are
/// the low ones.
fn partition_of(hash: u64, partitions: usize) -> usize {
    let high = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((high * partitions as u64) >> 32) as usize
}

/// Returns whether each row has a NULL key, where that matters.
fn null_rows(keys: &[ArrayRef], null_keys: NullKeyRows) -> Option<Vec<bool>> {
    if null_keys == NullKeyRows::Match || keys.iter().all(|key| key.logical_null_count() == 0) {
        return None;
    }
    let nulls: Vec<_> = keys.iter().filter_map(|key| key.logical_nulls()).collect();
    let rows = 0..keys.first().map_or(0, |key| key.len());
    Some(
        rows.map(|row| nulls.iter().any(|n| n.is_null(row)))
            .collect(),
    )
}
