//! Scans of tables in memory whose partitions have about as many rows each.
//!
//! ```text
//!  p0: a b c d e f        p0: a c e
//!  p1:               ─▶   p1: b d f
//! ```
//!
//! `CREATE TABLE … AS SELECT` writes what each partition of the query put out. A Parquet file of
//! one row group comes out of one partition, so the table lies in one, and a core alone reads it.
//! Each batch goes to the partition that has the fewest rows so far. In a table in the order of
//! time, rows of one day are spread over all of them.
//!
//! DataFusion deals batches out anew where there are fewer partitions than cores
//! (`MemorySourceConfig::repartitioned`), and leaves partitions without rows as they are.
//!
//! A table with a known order stays as it is. So does one of which a LIMIT takes the first rows,
//! and one whose provider says by which keys it is partitioned.
//!
//! UPSTREAM(not reported): this file goes once `repartitioned` looks at rows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::source::{DataSource, DataSourceExec};
use datafusion::physical_plan::{ExecutionPlan, Partitioning};

use super::cached_statistics::with_source;

/// Returns `scan` with the batches of its table dealt out evenly; `None` if no partition has more
/// than its share and the largest batch, or if the scan is of something else.
///
/// # Errors
/// DataFusion's errors of making a scan.
pub fn with_even_partitions(scan: &DataSourceExec) -> Result<Option<DataSourceExec>> {
    let Some(table) = scan.data_source().downcast_ref::<MemorySourceConfig>() else {
        return Ok(None);
    };
    // Others trust what a scan says of its partitions, whatever the table does.
    let Partitioning::UnknownPartitioning(_) = scan.properties().output_partitioning() else {
        return Ok(None);
    };
    if !table.sort_information().is_empty() || table.fetch().is_some() {
        return Ok(None);
    }
    let Some(partitions) = dealt_out(table.partitions()) else {
        return Ok(None);
    };
    let projection = table.projection().clone();
    let even = MemorySourceConfig::try_new(&partitions, table.original_schema(), projection)?;
    let even = even.with_show_sizes(table.show_sizes());
    Ok(Some(with_source(scan, Arc::new(even))))
}

/// Returns as many partitions of the same batches, dealt out evenly; `None` if they are even.
fn dealt_out(partitions: &[Vec<RecordBatch>]) -> Option<Vec<Vec<RecordBatch>>> {
    let rows_of = |batches: &Vec<RecordBatch>| batches.iter().map(RecordBatch::num_rows).sum();
    let rows: Vec<usize> = partitions.iter().map(rows_of).collect();
    let share = rows.iter().sum::<usize>().checked_div(rows.len())?;
    let batches = partitions.iter().flatten();
    let largest = batches.clone().map(RecordBatch::num_rows).max()?;
    if *rows.iter().max()? <= share + largest {
        return None;
    }
    let mut even = vec![Vec::new(); partitions.len()];
    // Rows of each partition so far, the fewest first.
    let mut filled: BinaryHeap<_> = (0..partitions.len()).map(|at| Reverse((0, at))).collect();
    for batch in batches {
        let Reverse((rows, at)) = filled.pop()?;
        even[at].push(batch.clone());
        filled.push(Reverse((rows + batch.num_rows(), at)));
    }
    Some(even)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};

    use super::*;

    fn batch(rows: i64) -> RecordBatch {
        let values = Arc::new(Int64Array::from_iter_values(0..rows)) as _;
        RecordBatch::try_from_iter([("v", values)]).unwrap()
    }

    fn table(rows: &[&[i64]]) -> MemorySourceConfig {
        let partitions = rows.iter().map(|rows| rows.iter().map(|r| batch(*r)));
        let partitions: Vec<Vec<_>> = partitions.map(Iterator::collect).collect();
        let schema = Schema::new(vec![Field::new("v", DataType::Int64, false)]);
        MemorySourceConfig::try_new(&partitions, Arc::new(schema), Some(vec![0])).unwrap()
    }

    /// The rows of each batch, by partition.
    fn sizes(scan: &DataSourceExec) -> Vec<Vec<usize>> {
        let table = scan.data_source().downcast_ref::<MemorySourceConfig>();
        let partitions = table.unwrap().partitions().iter();
        let sizes = partitions.map(|batches| batches.iter().map(RecordBatch::num_rows));
        sizes.map(Iterator::collect).collect()
    }

    fn even(table: MemorySourceConfig) -> Option<Vec<Vec<usize>>> {
        let scan = DataSourceExec::new(Arc::new(table));
        let even = with_even_partitions(&scan).unwrap();
        even.as_ref().map(sizes)
    }

    #[test]
    fn batches_of_one_partition_are_dealt_out_in_their_order() {
        let found = even(table(&[&[], &[5, 4, 3, 2], &[]]));
        assert_eq!(found, Some(vec![vec![5], vec![4], vec![3, 2]]));
    }

    #[test]
    fn even_partitions_stay() {
        assert_eq!(even(table(&[])), None);
        assert_eq!(even(table(&[&[], &[]])), None);
        assert_eq!(even(table(&[&[10]])), None);
        assert_eq!(even(table(&[&[10], &[]])), None);
        // Eight is a batch more than the share of five.
        assert_eq!(even(table(&[&[5, 3], &[2]])), None);
        let one_more = even(table(&[&[5, 5, 1], &[2]]));
        assert_eq!(one_more, None);
        assert!(even(table(&[&[5, 5, 5], &[2]])).is_some());
    }

    #[test]
    fn partitions_by_keys_stay() {
        let scan = || DataSourceExec::new(Arc::new(table(&[&[5, 5, 5, 5], &[]])));
        let is_dealt_out = |partitioning: Partitioning| {
            let scan = scan().with_partitioning(partitioning);
            with_even_partitions(&scan).unwrap().is_some()
        };
        assert!(is_dealt_out(Partitioning::UnknownPartitioning(2)));
        let key = col("v", &scan().schema()).unwrap();
        assert!(!is_dealt_out(Partitioning::Hash(vec![key], 2)));
    }

    #[test]
    fn a_known_order_and_a_limit_stay() {
        let uneven = || table(&[&[5, 5, 5, 5], &[]]);
        assert!(even(uneven()).is_some());
        assert_eq!(even(uneven().with_limit(Some(3))), None);
        let key = col("v", &uneven().original_schema()).unwrap();
        let order = LexOrdering::new([PhysicalSortExpr::new_default(key)]).unwrap();
        let ordered = uneven().try_with_sort_information(vec![order]).unwrap();
        assert_eq!(even(ordered), None);
    }
}
