//! The decisions of a session's last query.
//!
//! ```text
//!  a query is planned ─▶ forget      a join starts ─▶ live ─ dropped ─▶ noted
//!                                    all: of those live, and those noted
//! ```
//!
//! Hosts drop a plan once its streams are there, or keep it for as long as Python has it. So a join
//! goes with the last of its node and its streams, and is asked before that as well.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::physical_plan::ExecutionPlan;

use crate::decision::JoinDecision;

#[derive(Debug, Default)]
struct Known {
    live: Vec<Weak<dyn ExecutionPlan>>,
    noted: Vec<JoinDecision>,
}

/// The decisions; shared by an extension and its sessions.
#[derive(Debug, Clone, Default)]
pub struct Decisions(Arc<Mutex<Known>>);

impl Decisions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all, as a query comes that makes new ones.
    pub fn forget(&self) {
        *self.known() = Known::default();
    }

    /// Looks at `join`, which starts, until what is returned goes.
    pub fn watch(&self, join: &Arc<dyn ExecutionPlan>) -> Watched {
        self.known().live.push(Arc::downgrade(join));
        Watched {
            join: Arc::clone(join),
            decisions: self.clone(),
        }
    }

    /// Returns the decisions.
    pub fn all(&self) -> Vec<JoinDecision> {
        let known = self.known();
        let live: Vec<_> = known.live.iter().filter_map(Weak::upgrade).collect();
        let mut all = known.noted.clone();
        drop(known);
        all.extend(live.iter().flat_map(JoinDecision::all_in));
        all
    }
}

/// A join that runs, or may do so again.
#[derive(Debug)]
pub struct Watched {
    join: Arc<dyn ExecutionPlan>,
    decisions: Decisions,
}

impl Drop for Watched {
    /// Keeps the join's decisions, unless a query came after its own.
    fn drop(&mut self) {
        let join = Arc::as_ptr(&self.join);
        let mut known = self.decisions.known();
        let before = known.live.len();
        known.live.retain(|live| !ptr::addr_eq(live.as_ptr(), join));
        if known.live.len() < before {
            known.noted.extend(JoinDecision::all_in(&self.join));
        }
    }
}
