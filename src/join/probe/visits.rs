//! Which build rows lookups on a device found, brought back from there.
//!
//! ```text
//!  answered chunk ─▶ its key columns are logged ─ many by now ─┬▶ bits read ─▶ log forgotten
//!  probe ended ────────────────────────────────────────────────┘      │ device failed
//!                                               logged keys looked up again by the host
//! ```
//!
//! Where the device alone knows which rows were found, a failure would lose that. So the keys that
//! were looked up are kept until the bits are here.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::{Instrument, trace_span};

use crate::error::Result;
use crate::join::bitmap::Bitmap;
use crate::join::build_side::replicate::fail_over;
use crate::join::build_side::side::BuildSide;
use crate::join::metrics::JoinMetrics;

use super::chunk::ProbeBatch;
use super::host_lookup::visit_again;

/// Keeps the keys that the device looked up, where it alone knows which build rows were matched.
/// Once there are many of them, the visits are collected.
///
/// # Errors
/// Those of [`collect_visits`].
pub async fn record_visits(
    build: &Arc<BuildSide>,
    batches: &VecDeque<ProbeBatch>,
    metrics: &JoinMetrics,
) -> Result<()> {
    if !build.visits_on_device() {
        return Ok(());
    }
    let columns = batches.iter().map(|batch| batch.keys.clone());
    if build
        .tables()
        .failover()
        .record(columns, build.rows().len())
    {
        collect_visits(build, metrics).await
    } else {
        Ok(())
    }
}

/// Brings back which build rows the answered lookups found, or looks their keys up again.
///
/// # Errors
/// The device's, if the session wants to see them, and `ResourcesExhausted` from the memory pool.
pub async fn collect_visits(build: &Arc<BuildSide>, metrics: &JoinMetrics) -> Result<()> {
    let Some(visited) = build.visited().filter(|_| build.table().is_some()) else {
        return Ok(());
    };
    if !visited.by_lookups() {
        return Ok(());
    }
    let tables = build.tables();
    let log = tables.failover().drain_log();
    // The visits of a lost table are in the log of probe keys only.
    let are_lost = build.visits_on_device() && tables.has_any_failed();
    if are_lost || !mark_visited(build, visited.rows(), metrics).await? {
        visit_again(build, log.batches()).await?;
    }
    log.forget();
    Ok(())
}

/// Marks the rows that lookups found on any device. Returns `false` if one of them failed.
async fn mark_visited(
    build: &Arc<BuildSide>,
    visited: &Bitmap,
    metrics: &JoinMetrics,
) -> Result<bool> {
    for table in build.tables().all() {
        let marked = Arc::clone(&table).mark_visited(visited, build.rows().len());
        let wait = trace_span!("wait for visits", row = "waits");
        match marked.instrument(wait).await {
            Ok(cost) => metrics.add_cost(&cost),
            Err(error) => {
                fail_over(build, &table, error, metrics).await?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}
