//! The way in which a side is partitioned: into how many spill partitions, and what becomes of NULL
//! keys.

use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExprRef;

use crate::join::input::files::SpillFiles;

/// Largest number of partitions of a side. With 16, a partition has about a sixteenth of its rows.
const PARTITIONS_MAX: usize = 16;

/// Smallest number of partitions of a side. Of two, one has at least half of the rows, even without
/// a hot key.
const PARTITIONS_MIN: usize = 3;

/// Files that the streams of a join have open together: half of what a process may have by default
/// (`ulimit -n`, 1024).
const OPEN_FILES_MAX: usize = 512;

/// Open files per partition: one for the first side, and two more while the second side is written.
const FILES_PER_PARTITION: usize = 3;

/// Returns the partitions of a side of which `streams` streams may be partitioned at once.
pub fn partitions(streams: usize) -> usize {
    let each = OPEN_FILES_MAX / FILES_PER_PARTITION / streams.max(1);
    each.clamp(PARTITIONS_MIN, PARTITIONS_MAX)
}

/// The treatment of rows with a NULL key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NullKeyRows {
    /// They match each other.
    Match,
    /// They match nothing, and are emitted: a hash of the whole row says where they go.
    ByRow,
    /// They match nothing, and are dropped.
    Drop,
    /// NOT IN: what becomes of them is known when both sides are known.
    Separate,
}

/// The way in which a side is partitioned.
pub struct PartitionSpec {
    /// Key expressions of the side.
    pub keys: Vec<PhysicalExprRef>,
    /// The treatment of NULL keys.
    pub null_keys: NullKeyRows,
    /// Number of partitions.
    pub partitions: usize,
    /// Number of times that its rows were partitioned before.
    pub level: u64,
    /// The files of the side.
    pub files: SpillFiles,
    /// Rows of a batch.
    pub batch_size: usize,
    /// Partitions that are written at a time.
    pub width: usize,
    /// Partitioners of the side that run at once. They share the bytes in memory.
    pub at_once: usize,
    /// The reservation of rows in memory.
    pub memory: MemoryReservation,
}

impl PartitionSpec {
    /// Returns the spec for one of `at_once` partitioners that run at once.
    pub fn with_at_once(self, at_once: usize) -> Self {
        Self {
            at_once: at_once.max(1),
            ..self
        }
    }

    /// Returns the spec for rows that were partitioned `level` times before.
    pub fn at_level(self, level: u64) -> Self {
        Self { level, ..self }
    }

    /// Returns a copy of the spec for other rows.
    pub fn for_other_rows(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            files: self.files.clone(),
            memory: self.memory.new_empty(),
            ..*self
        }
    }
}
