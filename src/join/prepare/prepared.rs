//! A join that is prepared: where its rows come from, and how often they can be read.
//!
//! ```text
//!  Device    a probe stream per partition of the probe side ─▶ rows      again, if it is reopened
//!            streams that share all of its partitions ─▶ rows            once
//!  Sharded   the same on each of several devices ─▶ merged ─▶ rows       once
//!  Host      DataFusion's own join ─▶ rows                               again, as it allows
//! ```
//!
//! The streams of a join share its build side, which is freed with the last of them.

use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

use crate::error::Result;
use crate::join::build_side::side::BuildSide;
use crate::join::decision::{BuildId, HostMetrics, HostReason};
use crate::join::input::build_batches::empty_stream;
use crate::join::memory::ProbeMemory;
use crate::join::metrics::JoinMetrics;
use crate::join::probe::{ChunkQueue, Probe, ProbeSpec};

use super::host_join::{HostJoin, HostPartitioning, Reopen};
use super::oriented::OrientedJoin;
use super::shards::Shards;

/// A join with a build side, whose rows can be read.
pub enum PreparedJoin {
    /// A join whose table is on a device.
    Device {
        /// The facts that probe streams share.
        spec: Arc<ProbeSpec>,
        /// The build side.
        build: Arc<BuildSide>,
        /// The probe side's streams, each to be taken once.
        streams: Vec<Mutex<Option<SendableRecordBatchStream>>>,
        /// Says how a stream is read again.
        again: Reread,
        /// The join, turned so that the build side is its left one.
        oriented: OrientedJoin,
        /// The node's metrics.
        metrics: ExecutionPlanMetricsSet,
    },
    /// A join whose table is on several devices, a shard on each.
    Sharded {
        /// The joins of the shards.
        joins: Vec<PreparedJoin>,
        /// Merges their rows.
        shards: Shards,
    },
    /// DataFusion's own join over what was read.
    Host {
        /// DataFusion's own join.
        join: Box<HostJoin>,
        /// The reason why it is that.
        reason: HostReason,
        /// Number of this build.
        at: BuildId,
        /// Record in which its metrics are noted.
        on_host: Arc<HostMetrics>,
    },
}

/// How a stream of a join on a device is read again.
pub enum Reread {
    /// Its partition of the probe side is opened again.
    Reopen(Reopen),
    /// Another build is needed.
    Never,
    /// Not at all: the streams share the rows of all probe partitions, and these chunks.
    Shared(Arc<ChunkQueue>),
}

impl Reread {
    /// Returns that of streams with partitions of their own, which `reopen` opens again.
    pub fn of(reopen: Option<Reopen>) -> Self {
        reopen.map_or(Reread::Never, Reread::Reopen)
    }
}

impl PreparedJoin {
    /// Returns whether each stream can be read more than once, by any number of consumers.
    pub fn can_be_read_again(&self) -> bool {
        match self {
            PreparedJoin::Device { again, .. } => matches!(again, Reread::Reopen(_)),
            PreparedJoin::Host { join, .. } => join.can_be_read_again(),
            PreparedJoin::Sharded { .. } => false,
        }
    }

    /// Returns whether the streams share the rows of all probe partitions.
    pub fn is_shared(&self) -> bool {
        matches!(
            self,
            PreparedJoin::Device {
                again: Reread::Shared(_),
                ..
            }
        )
    }

    /// Returns how the host partitioned the rows by their keys, if it did, and why it was the host.
    pub fn partitioning(&self) -> Option<(HostPartitioning, HostReason)> {
        match self {
            PreparedJoin::Host { join, reason, .. }
                if join.partitioning() != HostPartitioning::Collect =>
            {
                Some((join.partitioning(), reason.clone()))
            }
            _ => None,
        }
    }

    /// Returns the rows of stream `at`; there are none if the probe side has fewer streams, or if
    /// they were read and cannot be read again.
    ///
    /// # Errors
    /// The errors of executing DataFusion's own join, and of opening a partition again.
    pub fn stream(&self, at: usize, partition: usize) -> Result<SendableRecordBatchStream> {
        match self {
            PreparedJoin::Sharded { joins, shards } => {
                let joined = joins.iter().map(|join| join.stream(at, partition));
                Ok(shards.stream(joined.collect::<Result<_>>()?, at))
            }
            PreparedJoin::Host {
                join,
                at: noted,
                on_host,
                ..
            } => {
                let stream = join.stream(at)?;
                on_host.note(*noted, join.join());
                Ok(stream)
            }
            PreparedJoin::Device {
                spec,
                build,
                streams,
                again,
                oriented,
                metrics,
            } => {
                let first = streams.get(at).map(|stream| {
                    let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                    stream.take()
                });
                let stream = match (first, again) {
                    (Some(Some(stream)), _) => stream,
                    (Some(None), Reread::Reopen(reopen)) => reopen(at)?,
                    _ => return Ok(empty_stream(&spec.output.schema)),
                };
                let metrics = JoinMetrics::new(metrics, partition);
                let pool = oriented.context().memory_pool();
                let memory = ProbeMemory::new(pool, partition);
                let queue = match again {
                    Reread::Shared(queue) => Arc::clone(queue),
                    Reread::Reopen(_) | Reread::Never => Arc::new(ChunkQueue::new(1)),
                };
                let join = (Arc::clone(spec), Arc::clone(build));
                Ok(Probe::new(join, (at, stream), queue, memory, metrics).into_stream())
            }
        }
    }
}
