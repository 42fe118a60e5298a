//! The build side that all probe streams share.
//!
//! ```text
//!  BuildSide ─┬─ KeyedRows        rows, keys, encoder
//!             ├─ TableReplicas    the devices' tables; the host's, once the devices have failed
//!             ├─ Visited          which rows were matched, and who emits build rows at the end
//!             └─ NullAwareState   what null-aware anti joins must know of the probe side
//! ```

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::memory_pool::MemoryReservation;
use tracing::trace_span;

use crate::error::Result;
use crate::join::build_side::keyed::KeyedRows;
use crate::join::build_side::null_aware::NullAwareState;
use crate::join::build_side::spec::BuildSpec;
use crate::join::build_side::visited::Visited;
use crate::join::lookup::columns::DeviceColumn;
use crate::join::lookup::host::HostTable;
use crate::join::lookup::table::JoinTable;
use crate::join::lookup::tables::TableReplicas;
use crate::join::memory::BuildMemory;
use crate::join::rows::{BuildRow, BuildRows, Source};
use crate::keys::encoder::KeyEncoder;
use crate::keys::source::{encode_parts, encoded_bytes};
use crate::parallel::task_failed;

/// A collected build side and its tables.
#[derive(Debug)]
pub struct BuildSide {
    rows: KeyedRows,
    matchable: bool,
    tables: TableReplicas,
    visited: Option<Visited>,
    null_aware: NullAwareState,
    memory: BuildMemory,
    spec: BuildSpec,
}

impl BuildSide {
    /// Puts `rows` and what answers lookups together. Rows have no table if none can match.
    pub fn new(
        rows: KeyedRows,
        spec: BuildSpec,
        tables: TableReplicas,
        visited: Option<Visited>,
        memory: BuildMemory,
    ) -> Self {
        Self {
            rows,
            matchable: tables.first().is_some(),
            tables,
            visited,
            null_aware: NullAwareState::default(),
            memory,
            spec,
        }
    }

    /// Takes over what is reserved for the rows.
    pub fn hold(&self, rows: &MemoryReservation) {
        self.memory.batches.grow(rows.free());
    }

    /// Returns the rows.
    pub fn rows(&self) -> &BuildRows {
        self.rows.rows()
    }

    /// Returns the encoder of keys.
    pub fn encoder(&self) -> &KeyEncoder {
        self.rows.encoder()
    }

    /// Returns the column `source`: an array per batch, or one of all rows.
    pub fn column(&self, source: Source) -> &[ArrayRef] {
        self.rows.column(source)
    }

    /// Returns whether the first key of build row `row` is NULL.
    pub fn first_key_is_null(&self, row: BuildRow) -> bool {
        self.rows.first_key_is_null(row)
    }

    /// Returns whether any row can match.
    pub fn can_match(&self) -> bool {
        self.matchable
    }

    /// Returns the first table on a device; `None` if no row can match.
    pub fn table(&self) -> Option<&Arc<JoinTable>> {
        self.tables.first()
    }

    /// Returns the tables that answer lookups.
    pub fn tables(&self) -> &TableReplicas {
        &self.tables
    }

    /// Returns the columns that lookups bring.
    pub fn gathered(&self) -> &[DeviceColumn] {
        self.tables.gathered()
    }

    /// Returns whether lookups bring the values of `source`.
    pub fn is_gathered(&self, source: Source) -> bool {
        self.tables.gathers(source)
    }

    /// Returns the rows with their keys.
    pub(super) fn keyed_rows(&self) -> &KeyedRows {
        &self.rows
    }

    /// Returns what is reserved.
    pub(super) fn memory(&self) -> &BuildMemory {
        &self.memory
    }

    /// Returns the facts of the join that the build was given.
    pub(super) fn spec(&self) -> &BuildSpec {
        &self.spec
    }

    /// Returns which rows were matched, for join types that need to know.
    pub fn visited(&self) -> Option<&Visited> {
        self.visited.as_ref()
    }

    /// Returns whether the device alone knows which rows lookups found.
    pub fn visits_on_device(&self) -> bool {
        self.table().is_some_and(|table| table.visited.is_some())
    }

    /// Returns the record of what probe streams saw of the probe side.
    pub fn null_aware(&self) -> &NullAwareState {
        &self.null_aware
    }

    /// Returns the host's table, made when it is first needed. All streams of the join wait for the
    /// one that makes it, which may be left in the middle of a poll: so a task makes it.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool.
    #[expect(clippy::disallowed_methods, reason = "a task fills the cell")]
    pub async fn host_table(self: &Arc<Self>) -> Result<Arc<HostTable>> {
        if let Some(table) = self.tables.host.get() {
            return Ok(Arc::clone(table));
        }
        let side = Arc::clone(self);
        let made = SpawnedTask::spawn(async move {
            let table = side.tables.host.get_or_try_init(|| side.make_host_table());
            table.await.cloned()
        });
        made.join().await.map_err(|error| task_failed(&error))?
    }

    async fn make_host_table(&self) -> Result<Arc<HostTable>> {
        let (encoder, rows) = (self.rows.encoder(), self.rows.len());
        let words = encoder.words();
        let encoded = self.memory.keys.new_empty();
        encoded.try_grow(encoded_bytes(encoder, rows))?;
        let kept = self.memory.tables.new_empty();
        kept.try_grow(HostTable::bytes(rows, words))?;
        let parts = encode_parts(encoder, self.rows.keys(), self.spec.width).await?;
        // The reservations stay until the thread is done, even if the query is cancelled.
        let make = move || {
            let _work = trace_span!("build table on the host").entered();
            (HostTable::build(&parts, words), kept, encoded)
        };
        let made = SpawnedTask::spawn_blocking(make).join().await;
        let (table, kept, _) = made.map_err(|e| task_failed(&e))?;
        self.memory.tables.grow(kept.free());
        Ok(Arc::new(table))
    }
}
