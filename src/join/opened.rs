//! A join whose rows can be read: one that is prepared whole, or one in spill partitions.

use std::sync::Arc;

use datafusion::error::Result as DataFusionResult;
use datafusion::execution::SendableRecordBatchStream;
use futures::future::{BoxFuture, Shared};

use crate::error::{Error, Result};

use super::prepare::{EarlierBuild, PreparedJoin};
use super::side::Side;
use super::spill::spilled::Spilled;

/// A join that streams wait for together, or the one error of its build for all of them.
pub type SharedJoin = Shared<BoxFuture<'static, Result<Arc<OpenedJoin>, Arc<Error>>>>;

/// A join whose rows can be read.
pub enum OpenedJoin {
    /// Its build side is in memory, on the device or on the host: this side.
    Whole(PreparedJoin, Side),
    /// Neither side fits into memory.
    Spilled(Arc<Spilled>),
}

impl OpenedJoin {
    /// Returns whether each stream can be read more than once, by any number of consumers.
    pub fn can_be_read_again(&self) -> bool {
        match self {
            OpenedJoin::Whole(join, _) => join.can_be_read_again(),
            OpenedJoin::Spilled(_) => false,
        }
    }

    /// Returns what another build of the same join must keep to.
    pub fn earlier(&self) -> EarlierBuild {
        match self {
            OpenedJoin::Whole(join, _) if join.is_shared() => EarlierBuild::Shared,
            OpenedJoin::Whole(join, build) => EarlierBuild::Whole {
                build: *build,
                partitioning: join.partitioning(),
            },
            OpenedJoin::Spilled(_) => EarlierBuild::Spilled,
        }
    }

    /// Returns the rows of stream `at`, for output partition `partition`, or none if the
    /// probe side has fewer streams.
    ///
    /// # Errors
    /// The errors of executing DataFusion's own join, or of restoring a promised order.
    pub fn stream(
        &self,
        at: usize,
        partition: usize,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        match self {
            OpenedJoin::Whole(join, _) => Ok(join.stream(at, partition)?),
            OpenedJoin::Spilled(spilled) => spilled.stream(at, partition),
        }
    }
}
