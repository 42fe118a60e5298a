//! The spill partition of each row: by a hash of its keys.
//!
//! The hash is DataFusion's, by which its joins find equal keys, with a seed of its own at each
//! level. So rows that share a partition, or came through a `RepartitionExec`, are divided again.
//! The seeds are random in each process: nobody can choose keys that stay together at all levels.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::compute::filter;
use datafusion::common::hash_utils::{RandomState, create_hashes};
use datafusion::logical_expr::utils::can_hash;
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;

use crate::error::Result;

use super::spec::{NullKeyRows, PartitionSpec};

/// The seed of the first level's hash.
static SEED: LazyLock<u64> = LazyLock::new(|| std::hash::RandomState::new().hash_one(0));

/// Stands for a partition number where a row can be dropped.
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
    let Some(nulls) = null_rows(&keys, spec.null_keys) else {
        let numbers = hashes
            .into_iter()
            .map(|hash| partition_of(hash, partitions));
        return Ok(numbers.collect());
    };
    let of_rows = match spec.null_keys {
        NullKeyRows::ByRow => row_hashes(batch, &nulls, &seed)?,
        _ => Vec::new(),
    };
    let mut of_rows = of_rows.into_iter();
    let number = |(hash, is_null): (u64, bool)| match (is_null, spec.null_keys) {
        (true, NullKeyRows::Drop) => DROPPED,
        (true, NullKeyRows::Separate) => partitions as u32,
        (true, NullKeyRows::ByRow) => partition_of(of_rows.next().unwrap_or_default(), partitions),
        _ => partition_of(hash, partitions),
    };
    Ok(hashes.into_iter().zip(nulls).map(number).collect())
}

/// Returns hashes of all columns of the rows that are `wanted`, in their order. Columns that cannot
/// be hashed are left out.
fn row_hashes(batch: &RecordBatch, wanted: &[bool], seed: &RandomState) -> Result<Vec<u64>> {
    let wanted = BooleanArray::from(wanted.to_vec());
    let columns = batch.columns().iter();
    let columns = columns.filter(|column| can_hash(column.data_type()));
    let columns = columns.map(|column| Ok(filter(column, &wanted)?));
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let mut hashes = vec![0; wanted.true_count()];
    create_hashes(&columns, seed, &mut hashes)?;
    Ok(hashes)
}

/// Returns the partition of a hash: by its high bits after Fibonacci hashing, as a table's bits are
/// the low ones.
fn partition_of(hash: u64, partitions: usize) -> u32 {
    let high = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((high * partitions as u64) >> 32) as u32
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray, UInt32Array};
    use arrow::compute::take_record_batch;

    use super::*;

    #[test]
    fn a_row_with_a_null_key_has_the_same_hash_wherever_it_is() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..90).map(|n| Some(n / 3))));
        let texts = (0..90).map(|n| (n % 3 > 0).then(|| format!("text {n}")));
        let texts: ArrayRef = Arc::new(StringArray::from_iter(texts));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let order: Vec<u32> = (0..90).map(|n| n * 7 % 90).collect();
        let other = take_record_batch(&batch, &UInt32Array::from(order.clone())).unwrap();
        let seed = RandomState::with_seed(1);
        let hashes = |batch| row_hashes(batch, &[true; 90], &seed).unwrap();
        let (first, second) = (hashes(&batch), hashes(&other));
        let again: Vec<u64> = order.iter().map(|row| first[*row as usize]).collect();
        assert_eq!(second, again);
        let partitions: std::collections::HashSet<u32> =
            first.iter().map(|hash| partition_of(*hash, 16)).collect();
        assert!(partitions.len() > 12, "{partitions:?}");
        let wanted: Vec<bool> = (0..90).map(|row| row % 4 == 0).collect();
        let some: Vec<u64> = first.iter().copied().step_by(4).collect();
        assert_eq!(row_hashes(&batch, &wanted, &seed).unwrap(), some);
    }
}
