//! The facts that joining a pair of spill partitions needs: its sides, its build side, smaller
//! pairs of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datafusion::physical_plan::joins::HashJoinExec;

use crate::error::{Error, Result};
use crate::join::decision::BuildId;
use crate::join::input::buffered::{BufferedInput, ReadOutcome};
use crate::join::input::build_batches::BuildBatches;
use crate::join::input::files::SpillFiles;
use crate::join::memory::rows_reservation;
use crate::join::prepare::JoinContext;
use crate::join::side::Side;

use super::partition::PartitionPair;
use super::plan::{pairs_of, partition_all, spec};

/// A join whose rows are in pairs of spill partitions.
pub struct PairJoin {
    /// The facts of its node; the join there is the one of a pair.
    pub node: JoinContext,
    /// The join as planned.
    pub planned: Arc<HashJoinExec>,
    /// The files of the left and of the right side.
    pub files: [SpillFiles; 2],
    /// The number of the next pair that is prepared.
    pub next_partition: AtomicUsize,
}

impl PairJoin {
    /// Returns the rows of the build side, if the memory pool has room for them.
    pub async fn build(&self, pair: &PartitionPair, build: Side) -> Result<Option<BuildBatches>> {
        let mut input = self.input(pair, build)?;
        // Asked first: what cannot fit need not be read.
        if !input.has_room(pair.partition(build).rows, pair.partition(build).bytes) {
            return Ok(None);
        }
        match input.read(usize::MAX).await? {
            ReadOutcome::Ended => Ok(Some(input.collect())),
            ReadOutcome::Failed => Err(input.failure()),
            _ => Ok(None),
        }
    }

    /// Returns a side of a pair, not read yet.
    pub fn input(&self, pair: &PartitionPair, side: Side) -> Result<BufferedInput> {
        let files = &self.files[side as usize];
        let stream = pair.partition(side).stream(files)?;
        let pool = self.node.context.memory_pool();
        let memory = rows_reservation(pool, self.node.partition, side);
        let schema = Arc::clone(files.schema());
        Ok(BufferedInput::new(schema, vec![stream], memory))
    }

    /// Returns the pairs of a pair, by another hash.
    pub async fn split(&self, pair: &PartitionPair) -> Result<Vec<PartitionPair>> {
        let level = pair.level + 1;
        let spec = |side| spec(&self.node, &self.planned, &self.files, side).at_level(level);
        let streams = |side| Ok::<_, Error>(self.input(pair, side)?.into_streams());
        let left = partition_all(spec(Side::Left), streams(Side::Left)?).await?;
        let right = partition_all(spec(Side::Right), streams(Side::Right)?).await?;
        Ok(pairs_of(&left, &right, level))
    }

    pub fn next_id(&self) -> BuildId {
        let at = self.next_partition.fetch_add(1, Ordering::Relaxed);
        self.node.at(Some(at))
    }
}
