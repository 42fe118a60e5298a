//! The facts that joining a pair of spill partitions needs: its sides, its build side, smaller
//! pairs of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::joins::HashJoinExec;

use crate::error::{Error, Result};
use crate::join::build_side::table::KEY_BYTES;
use crate::join::decision::{BuildId, PartitionStorage};
use crate::join::input::buffered::{BufferedInput, ReadOutcome};
use crate::join::input::build_batches::BuildBatches;
use crate::join::input::files::SpillFiles;
use crate::join::memory::of_rows;
use crate::join::prepare::JoinContext;
use crate::join::side::Side;

use super::partition::PartitionPair;
use super::plan::{pairs_of, partition_all, spec};

/// Partitions that each side of a pair in memory is split into, if the device had no room for it
/// after all.
pub const REPARTITION_FANOUT: usize = 4;

/// A join whose rows are in pairs of spill partitions.
pub struct PairJoin {
    /// The facts of its node; the join there is the one of a pair.
    pub node: JoinContext,
    /// The join as planned.
    pub planned: Arc<HashJoinExec>,
    /// Bytes that joins may take on the device.
    pub device_limit: u64,
    /// The files of the left and of the right side.
    pub files: [SpillFiles; 2],
    /// The number of the next pair that is prepared.
    pub next_partition: AtomicUsize,
}

impl PairJoin {
    /// Returns the rows of the build side, if the memory pool has room for them.
    pub async fn build(&self, pair: &PartitionPair, build: Side) -> Result<Option<BuildBatches>> {
        if pair.is_in_memory() {
            let pool = self.node.context.memory_pool();
            let memory = of_rows(pool, self.node.partition, build);
            let batches = pair.partition(build).batches().to_vec();
            if let Ok(held) = BuildBatches::held(batches, memory) {
                return Ok(Some(held));
            }
        }
        let mut reading = self.reading(pair, build)?;
        if self.fits(pair, build, &mut reading).await? {
            Ok(Some(reading.collect()))
        } else {
            Ok(None)
        }
    }

    /// Returns the other side of a pair, in `parts`.
    pub fn probing(&self, pair: &PartitionPair, side: Side, parts: usize) -> Result<BufferedInput> {
        if parts == 1 {
            return self.reading(pair, side);
        }
        let files = &self.files[side as usize];
        let streams = pair.partition(side).streams(files, parts);
        Ok(self.reading_of(side, streams))
    }

    /// Returns whether all rows of the build side are there now.
    pub async fn fits(
        &self,
        pair: &PartitionPair,
        build: Side,
        reading: &mut BufferedInput,
    ) -> Result<bool> {
        // Asked first: what cannot fit need not be read.
        if !reading.has_room(pair.partition(build).rows, pair.partition(build).bytes) {
            return Ok(false);
        }
        match reading.turn(usize::MAX).await? {
            ReadOutcome::Ended => Ok(true),
            ReadOutcome::Failed => Err(reading.lost()),
            _ => Ok(false),
        }
    }

    /// Returns a side of a pair, not read yet.
    pub fn reading(&self, pair: &PartitionPair, side: Side) -> Result<BufferedInput> {
        let files = &self.files[side as usize];
        let stream = pair.partition(side).stream(files)?;
        Ok(self.reading_of(side, vec![stream]))
    }

    pub fn reading_of(&self, side: Side, streams: Vec<SendableRecordBatchStream>) -> BufferedInput {
        let pool = self.node.context.memory_pool();
        let memory = of_rows(pool, self.node.partition, side);
        let schema = Arc::clone(self.files[side as usize].schema());
        BufferedInput::new(schema, streams, memory)
    }

    /// Returns the pairs of a pair, by another hash.
    pub async fn split(&self, pair: &PartitionPair) -> Result<Vec<PartitionPair>> {
        let level = pair.level + 1;
        let spec = |side| {
            let spec = spec(&self.node, &self.planned, &self.files, side).at_level(level);
            if pair.is_in_memory() {
                spec.at_home(PartitionStorage::Memory, REPARTITION_FANOUT)
            } else {
                spec
            }
        };
        let streams = |side| Ok::<_, Error>(self.reading(pair, side)?.into_streams());
        let left = partition_all(spec(Side::Left), streams(Side::Left)?).await?;
        let right = partition_all(spec(Side::Right), streams(Side::Right)?).await?;
        Ok(pairs_of(&left, &right, level))
    }

    /// Returns whether smaller partitions than one of `rows` build rows may have room on the
    /// device. Where its table is a 64th of the limit already, others have the room.
    pub fn can_shrink(&self, rows: usize) -> bool {
        let most = self.device_limit / 64;
        KEY_BYTES * rows as u64 > most || rows > self.node.config.knobs.max_table_rows
    }

    pub fn next_at(&self) -> BuildId {
        let at = self.next_partition.fetch_add(1, Ordering::Relaxed);
        self.node.at(Some(at))
    }
}
