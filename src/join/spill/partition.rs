//! Spill partitions, and pairs of them.
//!
//! ```text
//!  SpillPartition ─ a temporary file ─▶ stream, as often as it is asked for
//! ```
//!
//! A spill partition does not change once it is written. It can be read again, by the passes of a
//! side that does not fit.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::spill_file::SpillFile;

use crate::error::Result;
use crate::join::input::build_batches::empty_stream;
use crate::join::input::files::SpillFiles;
use crate::join::side::Side;

/// The number of times that rows are partitioned at most: enough for 3^8 times the memory at least,
/// and an end for keys of which many share a hash.
const LEVELS_MAX: u64 = 8;

/// Rows of one side that belong together.
pub struct SpillPartition {
    /// Number of rows.
    pub rows: usize,
    /// Bytes that they take in memory.
    pub bytes: usize,
    /// The file, if there are rows.
    pub(super) file: Option<Arc<dyn SpillFile>>,
}

impl SpillPartition {
    /// Returns the rows, from the first on.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn stream(&self, files: &SpillFiles) -> Result<SendableRecordBatchStream> {
        match &self.file {
            Some(file) => Ok(files.read(Arc::clone(file))?),
            None => Ok(empty_stream(files.schema())),
        }
    }
}

/// Both sides' rows of some keys.
#[derive(Clone)]
pub struct PartitionPair {
    partitions: [Arc<SpillPartition>; 2],
    /// Number of times that the rows were partitioned before.
    pub level: u64,
    /// Bytes of all pairs that came of the same rows.
    all_bytes: [usize; 2],
}

impl PartitionPair {
    /// Returns the pair of two spill partitions, whose rows were partitioned `level` times before.
    pub fn new(left: Arc<SpillPartition>, right: Arc<SpillPartition>, level: u64) -> Self {
        Self {
            partitions: [left, right],
            level,
            all_bytes: [usize::MAX; 2],
        }
    }

    /// Returns the pair as one of some that have so many bytes together.
    pub fn with_all_bytes(self, all_bytes: [usize; 2]) -> Self {
        Self { all_bytes, ..self }
    }

    /// Returns the spill partition of a side.
    pub fn partition(&self, side: Side) -> &Arc<SpillPartition> {
        &self.partitions[side as usize]
    }

    /// Returns the side with fewer bytes.
    pub fn smaller(&self) -> Side {
        if self.partition(Side::Right).bytes < self.partition(Side::Left).bytes {
            Side::Right
        } else {
            Side::Left
        }
    }

    /// Returns whether no row can come of the pair, as a side has none.
    pub fn is_trivially_empty(&self, join_type: JoinType) -> bool {
        let [left, right] = &self.partitions;
        let swapped = join_type.swap();
        match [left.rows == 0, right.rows == 0] {
            [true, true] => true,
            [true, false] => join_type.empty_build_side_produces_empty_result(),
            [false, true] => swapped.empty_build_side_produces_empty_result(),
            [false, false] => false,
        }
    }

    /// Returns whether another hash may make smaller pairs of it. One that has more than half of
    /// what came of the same rows has a hot key: no hash takes that apart.
    pub fn can_split(&self, side: Side) -> bool {
        let is_hot = self.partition(side).bytes > self.all_bytes[side as usize] / 2;
        self.level + 1 < LEVELS_MAX && !is_hot && self.partition(side).rows > 1
    }
}
