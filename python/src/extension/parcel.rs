//! Plans that another library hands back to us, as numbers in bytes.
//!
//! ```text
//!  Parcel::new(plan) ─▶ number ─▶ codec writes it ┄ datafusion ┄ codec reads it ─▶ plan(number)
//!    └ dropped: the number is unknown
//! ```
//!
//! Whoever sends a plan keeps its parcel for as long as the bytes are under way. So no plan stays
//! behind, read or not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_plan::ExecutionPlan;

type Plans = HashMap<u64, Arc<dyn ExecutionPlan>>;

fn plans() -> MutexGuard<'static, Plans> {
    static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(Mutex::default);
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan that has a number until this is dropped.
#[derive(Debug)]
pub struct Parcel(u64);

impl Parcel {
    /// Gives `plan` a number that none had before.
    pub fn new(plan: Arc<dyn ExecutionPlan>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        plans().insert(number, plan);
        Self(number)
    }

    /// Returns the number.
    pub fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // A plan may have parcels of its own: it is dropped after the lock.
        let plan = plans().remove(&self.0);
        drop(plan);
    }
}

/// Returns the plan that has `number`.
///
/// # Errors
/// If none has, as its query was planned already.
pub fn plan(number: u64) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plans().get(&number).cloned();
    plan.ok_or_else(|| internal_datafusion_err!("horton_join has no plan {number} any more"))
}

/// Returns how many plans have numbers.
pub fn count() -> usize {
    plans().len()
}
