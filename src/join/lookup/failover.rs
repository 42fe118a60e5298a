//! Going on without the device: when a join does so, and the keys that it keeps for that. What is
//! done then: [`fail_over`](crate::join::build_side::replicate::fail_over).
//!
//! ```text
//!  no room on the device ─▶ others give back enough, soon? ─▶ asked again
//!       │ no, nor is there room for less at once
//!       ▼
//!  OpenCL error ─▶ note ─┬ horton.on_device_error = 'error' ─▶ the query's error
//!                        └ 'fallback' ─▶ another device has the table, or gets it ─▶ its lookups
//!                                     └▶ none ─▶ this build's lookups are the host's from now on
//!  device lookups that noted visits ─▶ key log ─┬ checkpoint: bits brought back ─▶ forgotten
//!                                               └ not brought back ─▶ looked up again on the host
//! ```
//!
//! The host needs the build side, which it has, and the keys of chunks that the device did not
//! answer, which are encoded again. Only the bits of visited build rows live on the device alone.
//! These are kept for joins that emit build rows at their end and whose lookups alone decide.
//!
//! For those joins the key columns of answered chunks are kept, uncopied: the log of probe keys.
//! Once it has `LOG_ROWS_MIN` rows, or as many as the build side, the bits are brought back and the
//! columns are let go. So taking over costs nothing before it happens but that memory. Reading the
//! bits with every chunk would cost as much as the chunk itself.

use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow::array::ArrayRef;

use crate::config::{HortonConfig, OnDeviceError};
use crate::device::Device;
use crate::device_health::Health;
use crate::error::{Blame, Error, Result};

use crate::join::metrics::JoinMetrics;

/// Probe rows whose keys are kept at least before visited bits are brought back.
const LOG_ROWS_MIN: usize = 1 << 23;

/// The way in which a build side goes on without a device.
#[derive(Debug)]
pub struct Failover {
    on_error: OnDeviceError,
    health: Health,
    log: Mutex<ProbeKeyLog>,
}

/// Key columns by batch, of lookups whose visits are on the device only.
#[derive(Debug, Default)]
pub struct ProbeKeyLog {
    batches: Vec<Vec<ArrayRef>>,
    rows: usize,
}

/// A log that a stream has taken. It is put back unless its visits become known, as the stream may
/// be dropped.
pub struct DrainedLog<'a> {
    taken: ProbeKeyLog,
    kept: &'a Mutex<ProbeKeyLog>,
}

impl DrainedLog<'_> {
    /// Returns the key columns of each batch.
    pub fn batches(&self) -> &[Vec<ArrayRef>] {
        &self.taken.batches
    }

    /// Lets go of the log, as its visits are known.
    pub fn forget(mut self) {
        self.taken = ProbeKeyLog::default();
    }
}

impl Drop for DrainedLog<'_> {
    fn drop(&mut self) {
        let ProbeKeyLog { batches, rows } = std::mem::take(&mut self.taken);
        if rows > 0 {
            let mut log = lock(self.kept);
            log.batches.extend(batches);
            log.rows += rows;
        }
    }
}

impl Failover {
    /// Returns the failover of a build under the options `config`.
    pub fn new(config: &HortonConfig) -> Self {
        Self {
            on_error: config.on_device_error,
            health: config.health.clone(),
            log: Mutex::default(),
        }
    }

    /// Returns whether `device` failed before in this session: it is not asked at all.
    pub fn is_unhealthy(&self, device: &Device) -> bool {
        self.health.failure(device.info()).is_some()
    }

    /// Notes that lookups go on without `device`, because of its `error`. That it is full is no
    /// failure, which a session may want to see.
    ///
    /// # Errors
    /// The `error`, if it is not the device's or the session wants to see it.
    pub fn note(&self, device: &Device, error: Error, metrics: &JoinMetrics) -> Result<()> {
        let blame = error.blame();
        if matches!(blame, Blame::Query | Blame::Bug) {
            return Err(error);
        }
        metrics.device_errors.add(1);
        self.health.note(device.info(), &error);
        if self.on_error == OnDeviceError::Error && blame != Blame::Room {
            return Err(error);
        }
        log::debug!("{error}; the join goes on without the device");
        Ok(())
    }

    /// Keeps the key columns of an answered lookup. Returns whether it is time to bring the
    /// bits of `build_rows` rows back.
    pub fn record(&self, batches: impl Iterator<Item = Vec<ArrayRef>>, build_rows: usize) -> bool {
        let mut log = lock(&self.log);
        for columns in batches {
            log.rows += columns.first().map_or(0, |column| column.len());
            log.batches.push(columns);
        }
        log.rows >= LOG_ROWS_MIN.max(build_rows)
    }

    /// Takes what was kept. Bits that are read from now on include its visits.
    pub fn drain_log(&self) -> DrainedLog<'_> {
        take(&self.log)
    }
}

fn take(kept: &Mutex<ProbeKeyLog>) -> DrainedLog<'_> {
    DrainedLog {
        taken: std::mem::take(&mut *lock(kept)),
        kept,
    }
}

fn lock(log: &Mutex<ProbeKeyLog>) -> MutexGuard<'_, ProbeKeyLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_whose_visits_are_not_known_is_kept() {
        let log = |rows| ProbeKeyLog {
            batches: vec![Vec::new()],
            rows,
        };
        let kept = Mutex::new(log(3));
        let size = || {
            let log = lock(&kept);
            (log.batches.len(), log.rows)
        };
        let taken = take(&kept);
        assert_eq!((taken.batches().len(), size()), (1, (0, 0)));
        // Another stream's, meanwhile.
        *lock(&kept) = log(4);
        drop(taken);
        assert_eq!(size(), (2, 7));
        take(&kept).forget();
        assert_eq!(size(), (0, 0));
    }
}
