//! Building the device table of a build side, or finding out that the host must join its rows.
//!
//! ```text
//!  keys ─▶ few enough? ─▶ table ─▶ columns to gather, while there is room ─▶ JoinTable
//!              │ no         │ no room: once more, if others give some back
//!              └────────────┴─ no room ─▶ a reason: the host joins
//! ```
//!
//! The rows are all in host memory when this is tried, so nothing is lost if the device refuses.
//!
//! A device in the host's memory, such as a CPU, takes what the pool is there for. So all that a
//! build takes is reserved before it begins, and what the table does not keep is given back after.
//! A GPU's memory is none of the pool's: there the pool is told what a table keeps.

use std::sync::Arc;

use crate::error::{DeviceError, Error, Result};
use crate::join::bitmap::Bitmap;
use crate::join::build_side::keyed::KeyedRows;
use crate::join::build_side::spec::BuildSpec;
use crate::join::decision::HostReason;
use crate::join::lookup::failover::Failover;
use crate::join::lookup::table::JoinTable;
use crate::join::lookup::upload::{build_table, memory_limit, send_column};
use crate::join::memory::BuildMemory;
use crate::join::metrics::JoinMetrics;
use crate::keys::source::KeysToSend;

/// Device bytes per key while a table is built: key, table, and what its groups take meanwhile.
pub const KEY_BYTES: u64 = 48;

/// Device bytes of a key while one table is built, at least (a slot of a direct table): more keys
/// are not even tried.
const KEY_BYTES_MIN: u64 = 8;

/// The build of a table.
#[derive(Clone, Copy)]
pub struct TableBuild<'a> {
    /// The facts of the join.
    pub spec: &'a BuildSpec,
    /// True if lookups note which rows they found.
    pub notes_visits: bool,
    /// Memory that is reserved for the build side.
    pub memory: &'a BuildMemory,
    /// Notes the failures of the device.
    pub failover: &'a Failover,
    /// The build's metrics.
    pub metrics: &'a JoinMetrics,
}

impl TableBuild<'_> {
    /// Builds the table of `keys`, those of `rows`, or none if no row can match. Returns the reason
    /// if the host is to join the rows.
    ///
    /// # Errors
    /// `ResourcesExhausted` from the memory pool; the device's, if the session wants to see them.
    pub async fn build(
        self,
        rows: &KeyedRows,
        keys: &KeysToSend,
    ) -> Result<Result<Option<Arc<JoinTable>>, HostReason>> {
        let reason = match self.try_twice(rows, keys).await {
            Ok(table) => return Ok(Ok(table)),
            Err(Error::Device(DeviceError::DeviceMemory { .. }) | Error::TooManyRows { .. }) => {
                HostReason::DoesNotFit
            }
            Err(error) => {
                let reason = error.brief();
                self.failover.note(&self.spec.device, error, self.metrics)?;
                HostReason::Failed(reason)
            }
        };
        self.forget(rows);
        Ok(Err(reason))
    }

    /// Gives back what was reserved for a table that is not there.
    pub fn forget(&self, rows: &KeyedRows) {
        let visited = if self.spec.visited { rows.len() } else { 0 };
        self.memory.forget_tables(Bitmap::bytes(visited));
    }

    /// Builds the table, once more if others gave back what it was short of.
    async fn try_twice(
        self,
        rows: &KeyedRows,
        keys: &KeysToSend,
    ) -> Result<Option<Arc<JoinTable>>> {
        let (spec, n) = (self.spec, rows.len());
        let count = keys.count();
        if count == 0 {
            return Ok(None);
        }
        let bytes = memory_limit(&spec.device, &spec.config);
        let has_room = usize::try_from(bytes / KEY_BYTES_MIN).unwrap_or(usize::MAX);
        let limit = spec.config.knobs.max_table_rows.min(has_room);
        if n > spec.config.knobs.max_table_rows || count > has_room {
            return Err(Error::TooManyRows { rows: n, limit });
        }
        let mut built = self.try_once(rows, keys).await;
        if let Err(Error::Device(error)) = &built
            && spec.device.has_room_after(error, 0).await
        {
            built = self.try_once(rows, keys).await;
        }
        Ok(Some(Arc::new(built?)))
    }

    /// Builds the table, with the columns that it is to gather.
    async fn try_once(self, rows: &KeyedRows, keys: &KeysToSend) -> Result<JoinTable> {
        let (spec, metrics) = (self.spec, self.metrics);
        if spec.device.info().shares_host_memory() {
            let most = KEY_BYTES * keys.count() as u64;
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            self.memory.device.try_resize(most)?;
        }
        let (device, config) = (&spec.device, &spec.config);
        let mut table = build_table(device, config, keys, self.notes_visits, metrics).await?;
        for source in rows.probed(&spec.columns) {
            let arrays = rows.column(source);
            match send_column(&table, source, arrays, spec.width, metrics).await {
                Ok(column) => table.columns.extend(column),
                // The host gathers what the device has no room for.
                Err(error) if error.is_device_memory() => break,
                Err(error) => return Err(error),
            }
        }
        self.memory.device.try_resize(table.bytes())?;
        Ok(table)
    }
}
