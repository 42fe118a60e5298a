//! The executions of a join: which partitions share a build, and whose filters are applied.
//!
//! ```text
//!  execute(0, context) ─┐                        ┌─ decision: one build for all of them
//!  execute(1, context) ─┼─▶ Run ◀─ held by ──────┤
//!  execute(0, other)   ─┘     their streams      └─ sets that its filters point to
//!
//!   none ─ first partition asked for ─▶ open ─ all asked for as often as each other ─▶ whole
//!                                        ▲                                              │ │
//!                                        └───────── one is asked for again ─────────────┘ │
//!   none ◀──────────────────────── no stream is left ─────────────────────────────────────┘
//! ```
//!
//! As in `HashJoinExec`, there is one build a node until `reset_state`, whatever the contexts are,
//! and whenever a partition is asked for. Some consumers make a context for each partition, and
//! some drop one before they ask for the next. Several can execute a plan at the same time. Nobody
//! can tell their partitions apart. So all of them read the same build, and a partition that is
//! asked for again has the same rows again. `HashJoinExec` keeps its build for as long as the node
//! is there. Here it goes with its last stream, once all partitions were asked for as often as each
//! other. The next execution builds anew.
//!
//! Some joins cannot be read twice: those in buckets, and those of the host that count streams. A
//! partition that is asked for again then is of another *round*, which builds anew. Contexts say
//! which round, as far as they can.
//!
//! Filters are objects of the plan, so those of one build must not meet another's rows
//! ([`telling`](crate::join::tell::telling)).

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
    current: Mutex<Current>,
    /// Number of executions, with those of other nodes that have the same filters.
    executions: Arc<Executions>,
}

/// The execution that partitions are asked for of, if there is one.
#[derive(Debug, Default)]
struct Current {
    any: Weak<Run>,
    /// The same one, which stays without streams until it is whole.
    _kept: Option<Arc<Run>>,
}

/// One execution of a join.
pub struct Run {
    runs: Weak<Runs>,
    telling: Arc<Telling>,
    rounds: Mutex<Vec<Round>>,
    /// The boards of the filters that are told if the left side is built, and if the right one is.
    boards: [Mutex<Option<Arc<Board>>>; 2],
    /// The executions of joins below whose build sides this one had opened.
    below: Mutex<Option<Vec<Held>>>,
    /// What rounds that build anew tell the scans: nothing.
    again: Tellings,
}

/// Records of rounds that build anew, each of which lets all rows through the filters.
pub type Tellings = Arc<Mutex<Vec<Arc<Telling>>>>;

/// Partitions that were asked for, each once.
#[derive(Default)]
struct Round {
    /// By partition.
    is_asked: Vec<bool>,
    contexts: Vec<Arc<TaskContext>>,
    /// True once a stream was dropped before its end.
    is_cut: bool,
    /// The decision that all partitions share.
    decision: Option<SharedJoin>,
}

impl Round {
    fn of(partitions: usize) -> Self {
        Self {
            is_asked: vec![false; partitions],
            ..Self::default()
        }
    }

    fn has(&self, context: &Arc<TaskContext>) -> bool {
        let mut contexts = self.contexts.iter();
        contexts.any(|known| Arc::ptr_eq(known, context))
    }
}

/// A partition that was asked for: the execution that it is of, and the round.
pub struct Asked {
    /// The execution.
    pub run: Arc<Run>,
    /// Number of the round: 0 if the partition was not asked for before.
    pub round: usize,
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("rounds", &lock(&self.rounds).len())
            .finish_non_exhaustive()
    }
}

impl Runs {
    /// Returns the executions of another node with the same filters: none yet.
    pub fn of_copy(&self) -> Self {
        Self {
            current: Mutex::default(),
            executions: Arc::clone(&self.executions),
        }
    }

    /// Returns the number of executions.
    pub fn executions(&self) -> &Arc<Executions> {
        &self.executions
    }

    /// Asks for partition `partition` of `partitions` under `context`. An execution that begins
    /// sets `filters` back.
    ///
    /// # Errors
    /// If a filter cannot be set back.
    pub fn ask(
        self: &Arc<Self>,
        partition: usize,
        partitions: usize,
        context: &Arc<TaskContext>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
    ) -> Result<Asked> {
        let mut current = lock(&self.current);
        let run = match current.any.upgrade() {
            Some(run) => run,
            None => self.begin_in(filters)?,
        };
        let (round, is_whole) = run.ask(partition, partitions, context);
        *current = Current {
            any: Arc::downgrade(&run),
            _kept: (!is_whole).then(|| Arc::clone(&run)),
        };
        Ok(Asked { run, round })
    }

    /// Begins an execution before any partition of it is asked for, unless there is one. It sets
    /// `filters` back.
    ///
    /// # Errors
    /// The errors of [`ask`](Self::ask).
    pub fn begin(
        self: &Arc<Self>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
    ) -> Result<Option<Arc<Run>>> {
        let mut current = lock(&self.current);
        if current.any.upgrade().is_some() {
            return Ok(None);
        }
        let run = self.begin_in(filters)?;
        *current = Current {
            any: Arc::downgrade(&run),
            _kept: Some(Arc::clone(&run)),
        };
        Ok(Some(run))
    }

    fn begin_in(self: &Arc<Self>, filters: &[Arc<DynamicFilterPhysicalExpr>]) -> Result<Arc<Run>> {
        Ok(Arc::new(Run {
            runs: Arc::downgrade(self),
            telling: self.executions.begin(filters)?,
            rounds: Mutex::default(),
            boards: Default::default(),
            below: Mutex::default(),
            again: Arc::default(),
        }))
    }
}

impl Run {
    /// Notes that `partition` is asked for. Returns its round, and whether all partitions are asked
    /// for as often as each other.
    fn ask(
        &self,
        partition: usize,
        partitions: usize,
        context: &Arc<TaskContext>,
    ) -> (usize, bool) {
        let mut rounds = lock(&self.rounds);
        let lacking = rounds.iter().enumerate();
        let lacking = lacking.filter(|(_, round)| !round.is_asked[partition]);
        // The oldest of those that fit best.
        let fits = lacking.min_by_key(|(_, round)| (!round.has(context), round.is_cut));
        let at = match fits {
            Some((at, _)) => at,
            None => {
                rounds.push(Round::of(partitions));
                rounds.len() - 1
            }
        };
        let round = &mut rounds[at];
        round.is_asked[partition] = true;
        if !round.has(context) {
            round.contexts.push(Arc::clone(context));
        }
        let mut asked = rounds.iter().flat_map(|round| &round.is_asked);
        (at, asked.all(|is_asked| *is_asked))
    }

    /// Returns the decision of a round, begun by `begin` if it was not.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn decision(
        &self,
        round: usize,
        begin: impl FnOnce(Option<SharedJoin>) -> Result<SharedJoin>,
    ) -> Result<SharedJoin> {
        let mut rounds = lock(&self.rounds);
        if let Some(decision) = rounds.get(round).and_then(|round| round.decision.clone()) {
            return Ok(decision);
        }
        let first = match round {
            0 => None,
            _ => rounds.first().and_then(|round| round.decision.clone()),
        };
        let decision = begin(first)?;
        if let Some(round) = rounds.get_mut(round) {
            round.decision = Some(decision.clone());
        }
        Ok(decision)
    }

    /// Begins the decision of the first round of `partitions` partitions, before one is asked for.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn begin_decision(
        &self,
        partitions: usize,
        begin: impl FnOnce() -> Result<SharedJoin>,
    ) -> Result<()> {
        let mut rounds = lock(&self.rounds);
        if rounds.is_empty() {
            let mut round = Round::of(partitions);
            round.decision = Some(begin()?);
            rounds.push(round);
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

    /// Returns a hold on this run, of a stream of `round`, or of a join above.
    pub fn held(self: Arc<Self>, round: usize) -> Held {
        Held {
            run: self,
            round,
            ended: false,
        }
    }

    /// Returns the record of what this run tells the scans.
    pub fn telling(&self) -> &Arc<Telling> {
        &self.telling
    }

    /// Returns the records of rounds that build anew, which go with this run.
    pub fn again(&self) -> &Tellings {
        &self.again
    }

    /// Returns `stream`, of `round`, as one of this run's, which it keeps alive.
    pub fn holding(
        self: Arc<Self>,
        round: usize,
        stream: SendableRecordBatchStream,
    ) -> SendableRecordBatchStream {
        let schema = stream.schema();
        let state = (stream, self.held(round));
        let stream = futures::stream::unfold(state, |(mut stream, mut held)| async {
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
    round: usize,
    ended: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without its node no partition can be asked for.
        let Some(runs) = self.run.runs.upgrade().filter(|_| !self.ended) else {
            return;
        };
        let mut current = lock(&runs.current);
        let mut rounds = lock(&self.run.rounds);
        if let Some(round) = rounds.get_mut(self.round) {
            round.is_cut = true;
        }
        let mut asked = rounds.iter().flat_map(|round| &round.is_asked);
        let is_unasked = !asked.any(|is_asked| *is_asked);
        drop(rounds);
        if is_unasked && current.any.ptr_eq(&Arc::downgrade(&self.run)) {
            *current = Current::default();
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
