//! The probe side of a null-aware anti join (`NOT IN`), as its streams saw it.
//!
//! ```text
//!  the probe side had   no row     every build row is emitted, those with a NULL key too
//!                       a row      build rows with a NULL key are not emitted
//!                       a NULL     nothing is emitted
//! ```

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Array, ArrayRef};

/// The record of what probe streams saw of the probe side.
#[derive(Debug, Default)]
pub struct NullAwareState {
    row: AtomicBool,
    null: AtomicBool,
}

impl NullAwareState {
    /// Notes rows with the key columns `columns`.
    pub fn note(&self, columns: &[ArrayRef]) {
        self.row.store(true, Ordering::Relaxed);
        if columns.iter().any(|key| key.logical_null_count() > 0) {
            self.null.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether any stream saw a row.
    pub fn row(&self) -> bool {
        self.row.load(Ordering::Relaxed)
    }

    /// Returns whether any stream saw a NULL key.
    pub fn null(&self) -> bool {
        self.null.load(Ordering::Relaxed)
    }
}
