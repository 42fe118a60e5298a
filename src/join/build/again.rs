//! The table of a build side once more, on another device.
//!
//! ```text
//!  chunks wait for their device ─┐                                     ┌─ it answers, too
//!  a device failed, no table left ┴─▶ place ─▶ rows ─▶ keys ─▶ table ──┤
//!                                                                      └─ no room, failed: without
//! ```
//!
//! The rows are in host memory for as long as the join runs, so a table is built as the first one
//! was. It gathers the same columns, as streams rely on them; a device without room for these gets
//! no table.

use std::sync::Arc;

use crate::device::Placed;
use crate::error::{Error, Result};
use crate::join::lookup::columns::{DeviceColumn, Upload};
use crate::join::lookup::table::{JoinTable, TableSpec};
use crate::join::metrics::JoinMetrics;
use crate::keys::source::{EncodedKeys, KeysToSend, PlainKeys, has_nulls};

use super::side::BuildSide;

impl BuildSide {
    /// Goes on after the device of `table` failed with `error`: with other tables, with one on
    /// another device, or with the host's.
    ///
    /// # Errors
    /// The `error`, if it is not the device's or the session wants to see it.
    pub async fn go_on_without(
        &self,
        table: &JoinTable,
        error: Error,
        metrics: &JoinMetrics,
    ) -> Result<()> {
        let tables = self.tables();
        tables
            .fallback()
            .note(&table.access.device, error, metrics)?;
        table.lose();
        let _one = tables.adding.lock().await;
        if tables.answering().is_none() {
            self.add_table(metrics).await;
        }
        Ok(())
    }

    /// Builds the table on another device as well, unless that is being done.
    pub async fn share(&self, metrics: &JoinMetrics) {
        if let Ok(_one) = self.tables().adding.try_lock() {
            self.add_table(metrics).await;
        }
    }

    /// Adds a table on a device that has none, if one takes it.
    async fn add_table(&self, metrics: &JoinMetrics) {
        let Some((first, placed)) = self.place_another() else {
            return;
        };
        let label = placed.info().label();
        match self.table_on(&placed, &first, metrics).await {
            Ok(table) => {
                log::debug!("the table is on {label}, too");
                self.tables().add(Arc::new(table));
                metrics.tables_added.add(1);
            }
            Err(error) => {
                self.tables().refuse(placed.device());
                // The query goes on with the tables that are there, whatever the session wants to
                // see of failures.
                if let Err(error) = self.tables().fallback().note(&placed, error, metrics) {
                    log::debug!("{label} gets no table: {error}");
                }
            }
        }
    }

    /// Places the table on a device of the first one's kind.
    fn place_another(&self) -> Option<(Arc<JoinTable>, Placed)> {
        let tables = self.tables();
        let first = Arc::clone(tables.first()?);
        let (at, limit) = (&first.access.device, first.access.memory_limit);
        let placed = at.among().place(first.bytes() as u64, limit, |device| {
            let is_alike = device.info().kind == at.info().kind;
            is_alike && !tables.has(device) && !tables.fallback().distrusts(device)
        });
        Some((first, placed?))
    }

    async fn table_on(
        &self,
        placed: &Placed,
        first: &JoinTable,
        metrics: &JoinMetrics,
    ) -> Result<JoinTable> {
        let (rows, memory) = (self.keyed_rows(), self.memory());
        let upload = Upload {
            device: placed,
            memory_limit: first.access.memory_limit,
            width: self.width(),
            metrics,
        };
        let columns = Upload {
            // As for the first one, what is left is for chunks.
            memory_limit: upload.limit() / 8 * 7,
            ..upload
        };
        let spec = TableSpec {
            config: self.index_config(),
            format: rows.encoder().format(),
            rows: rows.len(),
            notes_visits: first.visited.is_some(),
        };
        let held = memory.device.new_empty();
        held.try_grow(first.bytes())?;
        let keys = if has_nulls(rows.keys()) {
            let (encoder, keys) = (rows.encoder(), rows.keys());
            let keys = EncodedKeys::new(encoder, keys, rows.len(), self.width(), &memory.keys);
            KeysToSend::Encoded(keys.await?)
        } else {
            KeysToSend::Plain
        };
        let mut table = match keys {
            KeysToSend::Plain => {
                let keys = PlainKeys::of(rows.encoder(), rows.keys());
                JoinTable::build(upload, spec, keys).await?
            }
            KeysToSend::Encoded(keys) => JoinTable::build(upload, spec, keys.ranges).await?,
        };
        for column in &first.columns {
            let sent = DeviceColumn::send(columns, column.source, rows.column(column.source));
            let refused = || Error::Internal("a column is not gathered any more".to_owned());
            table.columns.push(sent.await?.ok_or_else(refused)?);
        }
        memory.device.grow(held.free());
        table.access.memory_limit = first.access.memory_limit;
        Ok(table)
    }
}
