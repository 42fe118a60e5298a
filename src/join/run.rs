//! One execution of a join, and why filters of another are never applied.
//!
//! ```text
//!  execute(0, context) ─┐                       ┌─ decision, shared by the partitions
//!  execute(1, context) ─┼─▶ Run ─ held by ──────┤
//!  execute(2, context) ─┘     their streams     └─ sets that its filters point to
//!
//!  begins:  filters let everything through again      last stream gone:  sets are emptied
//!  two runs at once:  filters let everything through, as neither can tell whose scan asks
//! ```
//!
//! A plan can be executed more than once: a cached plan, a recursive query, two sessions at the
//! same time. Its dynamic filters are objects of the plan, not of an execution, so a join counts
//! its executions. Partitions belong together if they were asked for with the same context, each
//! once. A consumer may read one to its end before it asks for the next. So a run stays open until
//! all were asked for, unless a stream was dropped before its end. One that a join above began to
//! open its build side ends with that join.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::join::opened::SharedJoin;
use crate::join::side::Side;
use crate::join::tell::filter::Board;
use crate::join::tell::telling::{Executions, Telling};

/// The executions of a join.
#[derive(Debug, Default)]
pub struct Runs {
    /// The executions that more partitions may join.
    open: Mutex<Vec<Arc<Run>>>,
    /// Number of executions, open or not.
    executions: Arc<Executions>,
}

/// One execution of a join.
pub struct Run {
    runs: Weak<Runs>,
    telling: Arc<Telling>,
    context: Arc<TaskContext>,
    /// Partitions that were asked for.
    taken: Mutex<HashSet<usize>>,
    /// The decision that all partitions share, and how many of them have yet to take it.
    decision: Mutex<Option<(SharedJoin, usize)>>,
    /// The boards of the filters that are told if the left side is built, and if the right one is.
    boards: [Mutex<Option<Arc<Board>>>; 2],
    /// The executions of joins below whose build sides this one had opened.
    below: Mutex<Option<Vec<Held>>>,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Runs {
    /// Returns the run of partition `partition` of `partitions` under `context`. A run that begins
    /// sets `filters` back.
    ///
    /// # Errors
    /// If a filter cannot be set back.
    pub fn join(
        self: &Arc<Self>,
        partition: usize,
        partitions: usize,
        context: &Arc<TaskContext>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
    ) -> Result<Arc<Run>> {
        let mut open = lock(&self.open);
        let mine = open.iter().position(|run| {
            Arc::ptr_eq(&run.context, context) && !lock(&run.taken).contains(&partition)
        });
        let at = match mine {
            Some(at) => at,
            None => self.begin_in(&mut open, context, filters)?,
        };
        let all_taken = {
            let mut taken = lock(&open[at].taken);
            taken.insert(partition);
            taken.len() == partitions
        };
        Ok(if all_taken {
            open.swap_remove(at)
        } else {
            Arc::clone(&open[at])
        })
    }

    /// Begins a run under `context` before any partition of it is asked for, unless there is one
    /// that partitions can join. A run that begins sets `filters` back.
    ///
    /// # Errors
    /// The errors of [`join`](Self::join).
    pub fn begin(
        self: &Arc<Self>,
        context: &Arc<TaskContext>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
    ) -> Result<Option<Arc<Run>>> {
        let mut open = lock(&self.open);
        if open.iter().any(|run| Arc::ptr_eq(&run.context, context)) {
            return Ok(None);
        }
        let at = self.begin_in(&mut open, context, filters)?;
        Ok(Some(Arc::clone(&open[at])))
    }

    /// Adds a run to those that are `open`; its place there.
    fn begin_in(
        self: &Arc<Self>,
        open: &mut Vec<Arc<Run>>,
        context: &Arc<TaskContext>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
    ) -> Result<usize> {
        // What no stream holds was given up.
        open.retain(|run| Arc::strong_count(run) > 1);
        let telling = self.executions.begin(filters)?;
        open.push(Arc::new(Run {
            runs: Arc::downgrade(self),
            telling,
            context: Arc::clone(context),
            taken: Mutex::default(),
            decision: Mutex::default(),
            boards: Default::default(),
            below: Mutex::default(),
        }));
        Ok(open.len() - 1)
    }
}

impl Run {
    /// Returns the decision that `takers` streams share, begun by `begin` if it was not. It is kept
    /// no longer than until the last stream has it, so that its memory is theirs to give back.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn decision(
        &self,
        takers: usize,
        begin: impl FnOnce() -> Result<SharedJoin>,
    ) -> Result<SharedJoin> {
        let mut place = lock(&self.decision);
        let (decision, takers) = match place.take() {
            Some(waiting) => waiting,
            None => (begin()?, takers),
        };
        if takers > 1 {
            *place = Some((decision.clone(), takers - 1));
        }
        Ok(decision)
    }

    /// Begins the decision that `takers` streams will share, before one asks for it.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn begin_decision(
        &self,
        takers: usize,
        begin: impl FnOnce() -> Result<SharedJoin>,
    ) -> Result<()> {
        let mut place = lock(&self.decision);
        if place.is_none() {
            *place = Some((begin()?, takers));
        }
        Ok(())
    }

    /// Returns the board of this run for the case that `build` is the build side, made by `make` if
    /// no other stream did.
    pub fn board(&self, build: Side, make: impl FnOnce() -> Arc<Board>) -> Arc<Board> {
        Arc::clone(lock(&self.boards[build as usize]).get_or_insert_with(make))
    }

    /// Opens build sides of joins below by `open`, if no other stream did.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open_below(&self, open: impl FnOnce() -> Result<Vec<Held>>) -> Result<()> {
        let mut below = lock(&self.below);
        if below.is_none() {
            *below = Some(open()?);
        }
        Ok(())
    }

    /// Returns a hold on this run that is let go before the run has ended.
    pub fn held(self: Arc<Self>) -> Held {
        Held {
            runs: self.runs.upgrade(),
            run: self,
            ended: false,
        }
    }

    /// Returns the record of what this run tells the scans.
    pub fn telling(&self) -> &Arc<Telling> {
        &self.telling
    }

    /// Returns `stream` as one of this run's, which it keeps alive.
    pub fn holding(
        self: Arc<Self>,
        stream: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let schema = stream.schema();
        let stream =
            futures::stream::unfold((stream, self.held()), |(mut stream, mut held)| async {
                let next = stream.next().await;
                held.ended = next.is_none();
                Some((next?, (stream, held)))
            });
        Box::pin(RecordBatchStreamAdapter::new(schema, stream))
    }
}

/// A hold on a run: a stream's, or that of a join above.
#[derive(Debug)]
pub struct Held {
    run: Arc<Run>,
    /// Outlives the plan's node, which a consumer may drop before its streams.
    runs: Option<Arc<Runs>>,
    ended: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(runs) = self.runs.as_ref().filter(|_| !self.ended) {
            let mut open = lock(&runs.open);
            open.retain(|run| !Arc::ptr_eq(run, &self.run));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
