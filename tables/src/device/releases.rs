//! Memory that a driver is to release.
//!
//! ```text
//!  release ─┬─ on a watched thread ────────────────────────────▶ leaving ─▶ its bytes are free
//!           ├─ else ─▶ waiting ─▶ a memory thread, or whoever ──▶   │
//!           │                     needs its bytes first             │
//!           └─ the driver is given up: stranded ◀── abandon ────────┘
//! ```
//!
//! The last owner of memory may be a thread of a runtime, or that of a program that drops a plan.
//! Neither may wait for a driver, which can take long to release memory, or hang. So the driver is
//! asked on threads that the watchdog looks after, without a lock. Where it hangs, what waits can
//! still be let go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::budget::Grant;
use super::memory::Memory;
use super::memory_threads::MemoryThreads;
use super::watchdog;

/// Memory that nobody uses, and its bytes of the budget if that counts it.
pub(super) type Unused = (Memory, Option<Grant>);

/// The bytes of memory that a driver is asked to release, until it has, or is given up.
type Leaving = Arc<Mutex<Option<Grant>>>;

/// What the driver of one context is to release.
#[derive(Debug)]
pub(super) struct Releases {
    state: Mutex<State>,
    threads: MemoryThreads,
}

#[derive(Debug, Default)]
struct State {
    /// Not given out any more, and not yet released.
    waiting: Vec<Unused>,
    leaving: Vec<Leaving>,
    /// True if the driver hangs: it is not called any more, so nothing is released, either.
    is_abandoned: bool,
}

impl Releases {
    /// Returns the releases of a context. Memory that is let go on a thread that nobody looks after
    /// is released by `threads`.
    pub(super) fn new(threads: &MemoryThreads) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            threads: threads.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases memory, on this thread if the watchdog looks after it. No lock may be held.
    pub(super) fn release(self: &Arc<Self>, memory: Vec<Unused>) {
        if memory.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.is_abandoned {
            drop(state);
            memory.into_iter().for_each(strand);
            return;
        }
        if watchdog::looks_after_this_thread() {
            self.release_all(state, memory);
            return;
        }
        state.waiting.extend(memory);
        drop(state);
        let all = Arc::clone(self);
        let is_heard = self.threads.release(Box::new(move || {
            all.release_waiting();
        }));
        if !is_heard {
            log::debug!("no thread is left that releases memory");
        }
    }

    /// Releases what waits for that. Returns whether there was any. To be called on threads that
    /// the watchdog looks after.
    pub(super) fn release_waiting(&self) -> bool {
        let mut any = false;
        loop {
            let mut state = self.state();
            let Some(one) = state.waiting.pop() else {
                return any;
            };
            self.release_all(state, vec![one]);
            any = true;
        }
    }

    /// Releases memory. Its bytes of the budget are free after it is.
    fn release_all(&self, mut state: MutexGuard<'_, State>, memory: Vec<Unused>) {
        let leave = |(memory, grant)| {
            let grant = Arc::new(Mutex::new(grant));
            state.leaving.push(Arc::clone(&grant));
            (memory, grant)
        };
        let all: Vec<(Memory, Leaving)> = memory.into_iter().map(leave).collect();
        drop(state);
        for (memory, grant) in all {
            if self.state().is_abandoned {
                std::mem::forget(memory);
                continue;
            }
            drop(memory);
            let mut state = self.state();
            state.leaving.retain(|other| !Arc::ptr_eq(other, &grant));
            drop(state);
            drop(taken_out(&grant));
        }
    }

    /// Lets go of all memory for good, now and from now on: the driver hangs, and may still write
    /// to it. Its bytes of the budget stay taken.
    pub(super) fn abandon(&self) {
        let mut state = self.state();
        state.is_abandoned = true;
        let waiting = std::mem::take(&mut state.waiting);
        let leaving = std::mem::take(&mut state.leaving);
        drop(state);
        // One of them may be what hangs.
        let grants = leaving.iter().filter_map(taken_out);
        grants.for_each(Grant::strand);
        waiting.into_iter().for_each(strand);
    }
}

fn taken_out(leaving: &Leaving) -> Option<Grant> {
    let mut grant = leaving.lock().unwrap_or_else(PoisonError::into_inner);
    grant.take()
}

/// Lets go of memory for good, without a call of the driver.
fn strand((memory, grant): Unused) {
    std::mem::forget(memory);
    if let Some(grant) = grant {
        grant.strand();
    }
}
