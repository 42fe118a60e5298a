//! What the threads of one device share: the context that they use now.
//!
//! ```text
//!  none ─ the first job ─▶ opened ─ lost, or its driver hangs ─▶ none, and why
//!                            ▲──────────── the next job ──────────┘
//! ```

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::error::{Error, Result};

use super::budget::Budget;
use super::context::Opened;
use super::info::DeviceInfo;
use super::memory_threads::MemoryThreads;
use super::watchdog::{self, COMPILER_PATIENCE, Late, Watch};

/// What the threads of a device share.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) watch: Watch,
    pub(super) memory: MemoryThreads,
    /// True if no thread of some role is left, and none could be started.
    pub(super) is_stopped: AtomicBool,
    /// The last loss of a driver that hung, if any. All jobs that were under way then have failed.
    pub(super) hangs: watch::Sender<Option<Late>>,
    /// The process that has the threads: one that was forked from it has none.
    pub(super) process: u32,
}

#[derive(Default)]
struct State {
    /// The opened device, once the first queue thread has had a job.
    opened: Option<Arc<Opened>>,
    /// Held by the thread that opens it. Another takes its place if that hangs.
    opening: Arc<Mutex<()>>,
    /// All contexts that may still have memory.
    all: Vec<Weak<Opened>>,
    /// The error by which the last context was lost.
    loss: Option<String>,
}

impl Shared {
    pub(super) fn new(memory: MemoryThreads) -> Self {
        Self {
            state: Mutex::default(),
            watch: Watch::default(),
            memory,
            is_stopped: AtomicBool::new(false),
            hangs: watch::Sender::new(None),
            process: std::process::id(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the device unless that was done and its context still stands.
    pub(super) fn open(&self, info: &Arc<DeviceInfo>, budget: &Arc<Budget>) -> Result<Arc<Opened>> {
        let turn = Arc::clone(&self.state().opening);
        // Another thread may hold it while it opens the device.
        let waits = watchdog::call("clCreateContext", COMPILER_PATIENCE);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waits);
        if let Some(opened) = self.opened() {
            return Ok(opened);
        }
        let loss = {
            let mut state = self.state();
            if let Some(loss) = state.opened.as_ref().and_then(|opened| opened.loss()) {
                state.loss = Some(loss);
            }
            state.loss.clone()
        };
        // Without the lock of the state: a driver takes its time.
        let (info_of, budget) = (Arc::clone(info), Arc::clone(budget));
        let new = Arc::new(Opened::new(info_of, budget, &self.memory, loss)?);
        let mut state = self.state();
        if !Arc::ptr_eq(&state.opening, &turn) {
            return Err(stopped(info, "it was opened too late"));
        }
        state.all.retain(|context| context.strong_count() > 0);
        state.all.push(Arc::downgrade(&new));
        let lost = state.opened.replace(Arc::clone(&new));
        drop(state);
        drop(lost);
        Ok(new)
    }

    pub(super) fn opened(&self) -> Option<Arc<Opened>> {
        let opened = self.state().opened.clone();
        opened.filter(|opened| !opened.is_lost())
    }

    /// Takes the context as lost, and all that were lost before: a call of the driver hangs.
    pub(super) fn abandon(&self, reason: &str) {
        let mut state = self.state();
        state.opening = Arc::default();
        state.loss = Some(reason.to_owned());
        let all: Vec<_> = state.all.drain(..).filter_map(|of| of.upgrade()).collect();
        let opened = state.opened.take();
        drop(state);
        all.iter().for_each(|context| context.abandon(reason));
        drop((all, opened));
    }
}

/// Returns the error of a job that no thread does, for `reason`.
pub(super) fn stopped(info: &DeviceInfo, reason: impl Into<String>) -> Error {
    Error::QueueStopped {
        device: info.label(),
        reason: reason.into(),
    }
}
