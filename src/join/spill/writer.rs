//! Spill partitions that are being filled, and their files.
//!
//! ```text
//!  rows ─▶ kept ─▶ batches of up to FILE_BATCH_BYTES ─▶ a temporary file per partition
//! ```

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::error::Result as DataFusionResult;

use crate::join::input::files::{Append, SpillFiles};

use super::partition::SpillPartition;

/// Bytes of a batch in a file, about: what a reader has in memory at once.
const FILE_BATCH_BYTES: usize = 512 << 10;

/// A spill partition that is being filled.
#[derive(Default)]
pub struct PartitionWriter {
    kept: Vec<RecordBatch>,
    file: Option<Append>,
    rows: usize,
    bytes: usize,
}

impl PartitionWriter {
    pub fn push(&mut self, part: RecordBatch, bytes: usize) {
        self.rows += part.num_rows();
        self.bytes += bytes;
        self.kept.push(part);
    }

    /// Moves all rows into the file.
    pub fn write(&mut self, files: &SpillFiles, batch_size: usize) -> DataFusionResult<()> {
        if self.kept.is_empty() {
            return Ok(());
        }
        let append = match &mut self.file {
            Some(append) => append,
            None => self.file.insert(files.begin()?),
        };
        for batch in grouped(std::mem::take(&mut self.kept), batch_size) {
            append(Some(&batch))?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> DataFusionResult<Arc<SpillPartition>> {
        let file = match &mut self.file {
            Some(append) => append(None)?,
            None => None,
        };
        let (rows, bytes) = (self.rows, self.bytes);
        Ok(Arc::new(SpillPartition { rows, bytes, file }))
    }
}

/// Returns the rows in batches of up to `batch_size` rows and about [`FILE_BATCH_BYTES`].
fn grouped(batches: Vec<RecordBatch>, batch_size: usize) -> impl Iterator<Item = RecordBatch> {
    let mut batches = batches.into_iter().peekable();
    let groups = std::iter::from_fn(move || {
        let first = batches.next()?;
        let (mut rows, mut bytes) = (first.num_rows(), first.get_array_memory_size());
        let mut group = vec![first];
        while let Some(next) = batches.peek() {
            rows += next.num_rows();
            bytes += next.get_array_memory_size();
            if rows > batch_size || bytes > FILE_BATCH_BYTES {
                break;
            }
            group.extend(batches.next());
        }
        Some(merged(group))
    });
    groups.flatten()
}

/// Returns one batch, or those that there are if their columns have no room in one.
fn merged(group: Vec<RecordBatch>) -> Vec<RecordBatch> {
    let one = match group.as_slice() {
        [first, _, ..] => concat_batches(&first.schema(), &group).ok(),
        _ => None,
    };
    one.map_or(group, |batch| vec![batch])
}
