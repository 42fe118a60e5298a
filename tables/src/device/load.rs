//! The load of a device: the joins that were placed there, and the jobs in its line.
//!
//! ```text
//!  placement ───── joins ─┐
//!  handle ──────── jobs ──┴─▶ Load ─▶ placement: which device has the least
//! ```

use std::sync::atomic::AtomicUsize;

/// The joins and jobs of one device.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Joins that were placed there.
    pub(super) joins: AtomicUsize,
    /// Jobs in line, and those that run.
    pub(super) jobs: AtomicUsize,
}
