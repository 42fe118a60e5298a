//! The tables that answer the lookups of one build side: one per device, at last the host's.
//!
//! ```text
//!  [table on 0:0] [table on 0:1] … ─ the one whose device has the fewest jobs ─▶ a chunk
//!       │ device failed               ▲
//!       │                             └─ added: no other table was left
//!       └─ all failed, and no device is left ─▶ the host's table
//! ```
//!
//! Every table has all rows, so any of them may answer any chunk. A further one costs about what
//! the first one did, so there is one only after a device failed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OnceCell;

use crate::device::Device;

use super::columns::DeviceColumn;
use super::failover::Failover;
use super::host::HostTable;
use super::table::JoinTable;
use crate::join::rows::Source;

/// The tables that answer lookups: the devices', or the host's after they failed.
#[derive(Debug)]
pub struct TableReplicas {
    /// The first one; `None` if no row can match.
    first: Option<Arc<JoinTable>>,
    others: Mutex<Vec<Arc<JoinTable>>>,
    /// The columns that all of them gather.
    gathered: BTreeSet<Source>,
    /// The devices that took no table.
    refused: Mutex<Vec<Device>>,
    /// Held while a table is added.
    pub adding: tokio::sync::Mutex<()>,
    /// The host's table, once it was needed.
    pub host: OnceCell<Arc<HostTable>>,
    failover: Failover,
}

impl TableReplicas {
    /// Answers from `first`, which is missing if no row can match.
    pub fn new(first: Option<Arc<JoinTable>>, failover: Failover) -> Self {
        if let Some(first) = &first
            && failover.is_unhealthy(&first.device)
        {
            first.mark_failed();
        }
        let columns = first.iter().flat_map(|first| &first.columns);
        Self {
            gathered: columns.map(|column| column.source).collect(),
            first,
            others: Mutex::default(),
            refused: Mutex::default(),
            adding: tokio::sync::Mutex::default(),
            host: OnceCell::new(),
            failover,
        }
    }

    /// Returns the first table. Its columns are those of all others.
    pub fn first(&self) -> Option<&Arc<JoinTable>> {
        self.first.as_ref()
    }

    /// Returns all tables on devices, lost ones too.
    pub fn all(&self) -> Vec<Arc<JoinTable>> {
        let others = lock(&self.others);
        self.first.iter().chain(others.iter()).cloned().collect()
    }

    /// Returns the table whose device has the fewest jobs; `None` if the host answers.
    pub fn answering(&self) -> Option<Arc<JoinTable>> {
        let sound = self.all().into_iter().filter(|table| !table.has_failed());
        sound.min_by_key(|table| table.device.jobs())
    }

    /// Returns whether a device failed.
    pub fn has_any_failed(&self) -> bool {
        self.all().iter().any(|table| table.has_failed())
    }

    /// Returns whether `device` has a table, or had one, or took none.
    pub fn has(&self, device: &Device) -> bool {
        let index = device.info().index;
        let mut all = self.all().into_iter();
        let mut refused = lock(&self.refused).clone().into_iter();
        all.any(|table| table.device.info().index == index)
            || refused.any(|device| device.info().index == index)
    }

    /// Notes that `device` took no table. It is not asked again.
    pub fn refuse(&self, device: &Device) {
        lock(&self.refused).push(device.clone());
    }

    /// Adds a table.
    pub fn add(&self, table: Arc<JoinTable>) {
        lock(&self.others).push(table);
    }

    /// Returns the state of the failover to the host.
    pub fn failover(&self) -> &Failover {
        &self.failover
    }

    /// Returns the columns that lookups bring.
    pub fn gathered(&self) -> &[DeviceColumn] {
        self.first.as_ref().map_or(&[], |table| &table.columns)
    }

    /// Returns whether lookups bring the values of `source`.
    pub fn gathers(&self, source: Source) -> bool {
        self.gathered.contains(&source)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
