//! The table of a build side once more, on another device, after one has failed.
//!
//! ```text
//!                                                                  ┌─ it answers
//!  a device failed, no table left ─▶ place ─▶ rows, keys ─▶ table ─┤
//!                                                                  └─ no room: the host answers
//! ```
//!
//! The rows are in host memory for as long as the join runs, so a table is built as the first one
//! was. It gathers the same columns, as streams rely on them. A device without room for these gets
//! no table.
//!
//! The build is a task of its own. A stream that nobody polls any more must not keep other streams
//! of the join from the lock.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use tracing::{Instrument, trace_span};

use crate::device::Placed;
use crate::error::{Error, Result};
use crate::join::lookup::table::JoinTable;
use crate::join::lookup::tables::TableReplicas;
use crate::join::lookup::upload::{build_table, send_column};
use crate::join::metrics::JoinMetrics;
use crate::keys::source::KeysToSend;
use crate::parallel::task_failed;

use super::side::BuildSide;

/// Goes on after the device of `table`, one of those of `side`, failed with `error`: with other
/// tables, with one on another device, or with the host's.
///
/// # Errors
/// The `error`, if it is not the device's or the session wants to see it.
#[expect(
    clippy::await_holding_invalid_type,
    reason = "a task adds the table, whoever is polled"
)]
pub async fn fail_over(
    side: &Arc<BuildSide>,
    table: &JoinTable,
    error: Error,
    metrics: &JoinMetrics,
) -> Result<()> {
    let failover = side.tables().failover();
    failover.note(&table.device, error, metrics)?;
    table.mark_failed();
    let (side, metrics) = (Arc::clone(side), metrics.clone());
    let add = async move {
        let _one = side.tables().adding.lock().await;
        if side.tables().answering().is_none() {
            add_table(&side, &metrics).await;
        }
    };
    let added = SpawnedTask::spawn(add.instrument(trace_span!("fail over")));
    added.join().await.map_err(|error| task_failed(&error))
}

/// Adds a table on a device that has none, if one takes it.
async fn add_table(side: &BuildSide, metrics: &JoinMetrics) {
    let Some((first, placed)) = place_another(side.tables()) else {
        return;
    };
    let label = placed.info().label();
    match table_on(side, &placed, &first, metrics).await {
        Ok(table) => {
            log::debug!("the table is on {label}, too");
            side.tables().add(Arc::new(table));
            metrics.add_further_table();
        }
        Err(error) => {
            side.tables().refuse(placed.device());
            // The query goes on with the tables that it has, even if the session wants to see
            // failures.
            if let Err(error) = side.tables().failover().note(&placed, error, metrics) {
                log::debug!("{label} gets no table: {error}");
            }
        }
    }
}

/// Places a table on a device of the first one's kind. Returns that table, too.
fn place_another(tables: &TableReplicas) -> Option<(Arc<JoinTable>, Placed)> {
    let first = Arc::clone(tables.first()?);
    let (at, limit) = (&first.device, first.memory_limit);
    let placed = at.among().place(first.bytes() as u64, limit, |device| {
        let is_alike = device.info().kind == at.info().kind;
        is_alike && !tables.has(device) && !tables.failover().is_unhealthy(device)
    });
    Some((first, placed?))
}

/// Builds the table of `side` on the device of `placed`, as the `first` one is.
async fn table_on(
    side: &BuildSide,
    placed: &Placed,
    first: &JoinTable,
    metrics: &JoinMetrics,
) -> Result<JoinTable> {
    let (rows, memory, spec) = (side.keyed_rows(), side.memory(), side.spec());
    let held = memory.device.new_empty();
    held.try_grow(first.bytes())?;
    let keys = KeysToSend::new(rows.encoder(), rows.keys(), spec.width, &memory.keys).await?;
    let notes_visits = first.visited.is_some();
    let mut table = build_table(placed, &spec.config, &keys, notes_visits, metrics).await?;
    for column in &first.columns {
        let arrays = rows.column(column.source);
        let sent = send_column(&table, column.source, arrays, spec.width, metrics).await?;
        let refused = || Error::Internal("a column is not gathered any more".to_owned());
        table.columns.push(sent.ok_or_else(refused)?);
    }
    memory.device.grow(held.free());
    Ok(table)
}
