//! The executions of a join: which partitions share a build, and whose filters are applied.
//!
//! ```text
//!  execute(0, context) ─┐                        ┌─ a prepared join: one build for all of them
//!  execute(1, context) ─┼─▶ Run ◀─ held by ──────┤
//!  execute(0, other)   ─┘     their streams      └─ sets that its filters point to
//!
//!   none ─ first partition asked for ─▶ open ─ all asked for as often as each other ─▶ whole
//!                                        ▲                                              │ │
//!                                        └───────── one is asked for again ─────────────┘ │
//!   none ◀──────────────────────── no stream is left ─────────────────────────────────────┘
//! ```
//!
//! As in `HashJoinExec`, there is one build per node until `reset_state`, whatever the contexts
//! are, and whenever a partition is asked for. Some consumers make a context for each partition,
//! and some drop one before they ask for the next. Several can execute a plan at the same time.
//! Nobody can tell their partitions apart. So all of them read the same build, and a partition that
//! is asked for again has the same rows again. `HashJoinExec` keeps its build for as long as the
//! node is there. Here it goes with its last stream, once all partitions were asked for as often as
//! each other. The next execution builds again.
//!
//! A first round whose streams are all dropped unread counts as not asked for: the next one begins
//! anew. But the build may have begun to read, and a scan of files gives its rows once. So a run
//! over files stays. In partitioned joins each stream has a build, which goes with it. They begin
//! nothing before they are polled.
//!
//! Two executions may each have one partition under way while both lack the other one. The first
//! may end before it asks for that. So a run also stays while there is a context under which some
//! partitions were asked for, and not all. Consumers with a context for each partition look much
//! the same, as a build keeps the context that it began under. Their run stays until the next one
//! asks, or with the node.
//!
//! A partition that is asked for again is of another *round*. Contexts say which one, as far as
//! they can. Some joins cannot be read twice: those in spill partitions, and those of the host that
//! count streams. Their rounds build again in the same way, and a partition has the same rows
//! again. One thing can differ, as it also does with `HashJoinExec`: which partition emits build
//! rows without a match. If memory has no room for a second build side, its round fails: on disk
//! its partitions would have other rows. A round goes with its last stream, although others may go
//! on.
//!
//! Streams that share the rows of all probe partitions had rows that no other build can tell. So a
//! second round is an error there. Below `HashJoinExec` a `RepartitionExec` would panic.
//!
//! Filters are objects of the plan, so those of one build must not meet another's rows
//! ([`publisher`](crate::join::dynamic_filter::publisher)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::join::dynamic_filter::accumulator::FilterAccumulator;
use crate::join::dynamic_filter::publisher::FilterPublisher;
use crate::join::input::choose_build_side::{Input, IsEmpty};
use crate::join::opened::{OpenedJoin, SharedJoin};
use crate::join::prepare::EarlierBuild;
use crate::join::side::Side;
use crate::scan::prefetch::PrefetchGuard;

/// The executions of a join.
#[derive(Debug, Default)]
pub struct Runs {
    current: Mutex<Current>,
    /// Number of executions, with those of other nodes that have the same filters.
    executions: Arc<Mutex<usize>>,
}

/// The execution that partitions are asked for of, if there is one.
#[derive(Debug, Default)]
struct Current {
    any: Weak<Run>,
    /// The same one, which stays without streams until it is whole.
    kept: Option<Arc<Run>>,
}

/// One execution of a join.
pub struct Run {
    runs: Weak<Runs>,
    publisher: Arc<FilterPublisher>,
    rounds: Mutex<Rounds>,
    /// The accumulators of the filters that are published if the left side is built, and if the
    /// right one is.
    accumulators: [Mutex<Option<Arc<FilterAccumulator>>>; 2],
    /// What this one began below.
    below: Mutex<Option<Begun>>,
    /// Scans that others read ahead for this one.
    scans: Mutex<Vec<PrefetchGuard>>,
    /// The publishers of rounds that build again.
    rebuilds: Publishers,
    /// Reads of the left and of the right input that have begun.
    reads: [Mutex<Option<BegunRead>>; 2],
}

/// What an execution begins below its join.
#[derive(Debug, Default)]
pub struct Begun {
    /// The executions of joins whose build sides it had opened, or whose filters scans hold that
    /// are read ahead.
    pub runs: Vec<Held>,
    /// Scans that it has read ahead.
    pub scans: Vec<PrefetchGuard>,
}

/// A read of an input that has begun.
struct BegunRead {
    /// The input, if a join above began to read it and the join itself did not take it yet.
    input: Option<Input>,
    is_empty: IsEmpty,
}

/// Publishers of rounds that build again. Each lets all rows through the filters.
pub type Publishers = Arc<Mutex<Vec<Arc<FilterPublisher>>>>;

/// The rounds of a run. One goes with its last stream, once all of its partitions were asked for:
/// builds of executions that follow each other closely must not pile up. The first one stays while
/// somebody lacks a partition that can be read from its build.
#[derive(Default)]
struct Rounds {
    /// By number.
    alive: BTreeMap<usize, Round>,
    /// The partitions that were asked for under each context that is alive.
    askers: Vec<Asker>,
    /// True once two partitions were asked for under one context.
    has_shared_context: bool,
    /// Number of the next one.
    next: usize,
    /// True once a partition was asked for.
    is_any_asked: bool,
    /// What a later build must keep to, once its round is gone.
    earlier: Option<EarlierBuild>,
}

/// What a round that is not the first follows.
pub enum Again {
    /// The first build, which is alive.
    Build(SharedJoin),
    /// A build that is gone, and what others must keep to.
    Gone(Option<EarlierBuild>),
}

/// A context, and how often each partition was asked for under it.
struct Asker {
    context: Weak<TaskContext>,
    asked: Vec<usize>,
}

impl Asker {
    fn is_gone(&self) -> bool {
        self.context.strong_count() == 0
    }

    /// Returns whether all partitions were asked for as often as each other.
    fn has_all(&self) -> bool {
        self.asked.iter().all(|times| *times == self.asked[0])
    }
}

/// A partition, and the context under which it was asked for.
struct Ask {
    partition: usize,
    context: Weak<TaskContext>,
}

/// Partitions that were asked for, each once.
#[derive(Default)]
struct Round {
    partitions: usize,
    asks: Vec<Ask>,
    /// Number of streams that are alive.
    streams: usize,
    /// True once a stream was polled.
    is_read: bool,
    /// True once a stream was dropped before its end.
    is_cut: bool,
    /// The prepared join that all partitions share.
    decision: Option<SharedJoin>,
}

impl Round {
    fn of(partitions: usize) -> Self {
        Self {
            partitions,
            ..Self::default()
        }
    }

    fn has(&self, context: &Arc<TaskContext>) -> bool {
        let mut asks = self.asks.iter();
        asks.any(|ask| is_of(&ask.context, context))
    }

    fn is_asked(&self, partition: usize) -> bool {
        self.asks.iter().any(|ask| ask.partition == partition)
    }

    fn is_whole(&self) -> bool {
        self.asks.len() == self.partitions
    }

    /// Returns its join, if that is prepared.
    fn opened(&self) -> Option<Arc<OpenedJoin>> {
        self.decision.as_ref()?.peek()?.as_ref().ok().cloned()
    }
}

impl Rounds {
    /// Returns the number of the oldest round of those that fit best to a stream of `partition`.
    fn fitting(&self, partition: usize, context: &Arc<TaskContext>) -> Option<usize> {
        let lacking = self.alive.iter();
        let lacking = lacking.filter(|(_, round)| !round.is_asked(partition));
        let fits = lacking.min_by_key(|(_, round)| (!round.has(context), round.is_cut));
        fits.map(|(number, _)| *number)
    }

    /// Adds a round of `partitions` partitions. Returns its number.
    fn add(&mut self, partitions: usize) -> usize {
        let number = self.next;
        self.next += 1;
        self.alive.insert(number, Round::of(partitions));
        number
    }

    /// Notes that `partition` of `partitions` is asked for under `context`.
    fn note(&mut self, partition: usize, partitions: usize, context: &Arc<TaskContext>) {
        self.askers.retain(|asker| !asker.is_gone());
        let mut known = self.askers.iter_mut();
        match known.find(|asker| is_of(&asker.context, context)) {
            Some(asker) => {
                asker.asked[partition] += 1;
                self.has_shared_context = true;
            }
            None => {
                let mut asked = vec![0; partitions];
                asked[partition] = 1;
                let context = Arc::downgrade(context);
                self.askers.push(Asker { context, asked });
            }
        }
    }

    /// Returns whether nobody is known to lack a partition. If each has a context of its own, the
    /// one that the build began under is there as long as the build.
    fn are_whole(&self) -> bool {
        let lacking = |asker: &&Asker| !asker.is_gone() && !asker.has_all();
        let lacking = self.askers.iter().filter(lacking).count();
        let most = if self.has_shared_context { 0 } else { 1 };
        self.alive.values().all(Round::is_whole) && lacking <= most
    }

    /// Returns whether all that was asked for has ended, and nobody is known to lack a partition:
    /// neither others nor who asks under `context` now.
    fn are_over(&self, context: &Arc<TaskContext>) -> bool {
        let mut askers = self.askers.iter();
        let lacks = askers.any(|asker| is_of(&asker.context, context) && !asker.has_all());
        let have_ended = self.alive.values().all(|round| round.streams == 0);
        self.is_any_asked && have_ended && !lacks && self.are_whole()
    }

    /// Notes that a stream of round `number` is gone. Returns the round, if that was the last.
    fn leave(&mut self, number: usize, has_ended: bool) -> Option<Round> {
        let round = self.alive.get_mut(&number)?;
        round.streams -= 1;
        round.is_cut |= !has_ended;
        if round.streams > 0 || !round.is_whole() {
            return None;
        }
        if number == 0 {
            let opened = round.opened();
            let stays = |join: &Arc<OpenedJoin>| join.can_be_read_again();
            if !self.are_whole() && opened.as_ref().is_some_and(stays) {
                return None;
            }
            self.earlier = opened.map(|join| join.earlier());
        }
        self.alive.remove(&number)
    }

    /// Notes that a stream of round `number` is gone, if it was the last one and none was read.
    /// Then nothing was asked of the round. Returns whether that is so. Another round may have
    /// driven the build, so there must be none.
    fn take_back(&mut self, number: usize) -> bool {
        let is_only = self.next == 1;
        let round = self.alive.get_mut(&number);
        let Some(round) = round.filter(|round| is_only && round.streams == 1 && !round.is_read)
        else {
            return false;
        };
        round.streams = 0;
        for ask in round.asks.drain(..) {
            let mut known = self.askers.iter_mut();
            if let Some(asker) = known.find(|asker| asker.context.ptr_eq(&ask.context)) {
                asker.asked[ask.partition] -= 1;
            }
        }
        true
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Run")
            .field("rounds", &lock(&self.rounds).alive.len())
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
    pub fn executions(&self) -> &Arc<Mutex<usize>> {
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
    ) -> Result<Held> {
        // It ends before the next one begins, so that filters are those of one execution.
        let over = {
            let mut current = lock(&self.current);
            current
                .kept
                .take_if(|run| lock(&run.rounds).are_over(context))
        };
        drop(over);
        let mut current = lock(&self.current);
        let run = match current.any.upgrade() {
            Some(run) => run,
            None => self.begin_in(filters)?,
        };
        let (round, is_whole) = run.ask(partition, partitions, context);
        *current = Current {
            any: Arc::downgrade(&run),
            kept: (!is_whole).then(|| Arc::clone(&run)),
        };
        Ok(Held {
            run,
            round: Some(round),
            is_read: false,
            stays_unread: false,
            ended: false,
        })
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
            kept: Some(Arc::clone(&run)),
        };
        Ok(Some(run))
    }

    /// Returns the execution that partitions are asked for of, if there is one.
    pub fn current(&self) -> Option<Arc<Run>> {
        lock(&self.current).any.upgrade()
    }

    /// Returns the current execution, for the execution `above` of a join above. It begins if there
    /// is none, and then ends with that of the join above.
    ///
    /// # Errors
    /// The errors of [`ask`](Self::ask).
    pub fn begin_below(
        self: &Arc<Self>,
        filters: &[Arc<DynamicFilterPhysicalExpr>],
        above: &Run,
    ) -> Result<Option<Arc<Run>>> {
        let begun = self.begin(filters)?;
        if let Some(run) = &begun {
            above.hold(Arc::clone(run).held());
        }
        Ok(begun.or_else(|| self.current()))
    }

    /// Returns whether there is an execution that opened its inputs.
    pub fn has_begun(&self) -> bool {
        self.current().is_some_and(|run| run.has_begun())
    }

    fn begin_in(self: &Arc<Self>, filters: &[Arc<DynamicFilterPhysicalExpr>]) -> Result<Arc<Run>> {
        Ok(Arc::new(Run {
            runs: Arc::downgrade(self),
            publisher: FilterPublisher::begin(&self.executions, filters)?,
            rounds: Mutex::default(),
            accumulators: Default::default(),
            below: Mutex::default(),
            scans: Mutex::default(),
            rebuilds: Arc::default(),
            reads: Default::default(),
        }))
    }
}

impl Run {
    /// Notes that `partition` is asked for. Returns its round, and whether all partitions are asked
    /// for as often as each other, under each context.
    fn ask(
        &self,
        partition: usize,
        partitions: usize,
        context: &Arc<TaskContext>,
    ) -> (usize, bool) {
        let mut rounds = lock(&self.rounds);
        let fitting = rounds.fitting(partition, context);
        let number = fitting.unwrap_or_else(|| rounds.add(partitions));
        rounds.is_any_asked = true;
        rounds.note(partition, partitions, context);
        if let Some(round) = rounds.alive.get_mut(&number) {
            let context = Arc::downgrade(context);
            round.asks.push(Ask { partition, context });
            round.streams += 1;
        }
        (number, rounds.are_whole())
    }

    /// Returns the prepared join of a round, begun by `begin` if it was not. `begin` gets what came
    /// before, if that is not the first round.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn decision(
        &self,
        round: usize,
        begin: impl FnOnce(Option<Again>) -> Result<SharedJoin>,
    ) -> Result<SharedJoin> {
        let mut rounds = lock(&self.rounds);
        let prepared = |number| {
            let round: Option<&Round> = rounds.alive.get(&number);
            round.and_then(|round| round.decision.clone())
        };
        if let Some(decision) = prepared(round) {
            return Ok(decision);
        }
        let again = (round > 0).then(|| match prepared(0) {
            Some(first) => Again::Build(first),
            None => Again::Gone(rounds.earlier.clone()),
        });
        let decision = begin(again)?;
        if let Some(round) = rounds.alive.get_mut(&round) {
            round.decision = Some(decision.clone());
        }
        Ok(decision)
    }

    /// Begins to prepare the join of the first round of `partitions` partitions, before one is
    /// asked for.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn begin_decision(
        &self,
        partitions: usize,
        begin: impl FnOnce() -> Result<SharedJoin>,
    ) -> Result<()> {
        let mut rounds = lock(&self.rounds);
        if rounds.next == 0 {
            let decision = begin()?;
            let number = rounds.add(partitions);
            if let Some(round) = rounds.alive.get_mut(&number) {
                round.decision = Some(decision);
            }
        }
        Ok(())
    }

    /// Returns the accumulator of this run for the case that `build` is the build side, made by
    /// `make` if no other stream did.
    pub fn accumulator(
        &self,
        build: Side,
        make: impl FnOnce() -> Arc<FilterAccumulator>,
    ) -> Arc<FilterAccumulator> {
        Arc::clone(lock(&self.accumulators[build as usize]).get_or_insert_with(make))
    }

    /// Opens build sides of joins below by `open`, if no other stream did.
    ///
    /// # Errors
    /// The errors of `open`.
    pub fn open_below(&self, open: impl FnOnce() -> Result<Begun>) -> Result<()> {
        let mut below = lock(&self.below);
        if below.is_none() {
            *below = Some(open()?);
        }
        Ok(())
    }

    /// Holds the execution of a join below.
    pub fn hold(&self, below: Held) {
        let mut begun = lock(&self.below);
        begun.get_or_insert_default().runs.push(below);
    }

    /// Holds a scan that is read ahead, for as long as the join may take rows of it.
    pub fn hold_scan(&self, scan: Option<PrefetchGuard>) {
        lock(&self.scans).extend(scan);
    }

    /// Returns whether the join has begun to open its inputs.
    pub fn has_begun(&self) -> bool {
        lock(&self.rounds).next > 0
    }

    /// Begins to read `side` by `begin`, for a join above and before this join opens its inputs.
    /// Returns what says whether it is empty; `None` if the join has begun and does not read it.
    ///
    /// # Errors
    /// The errors of `begin`.
    pub fn read_ahead(
        &self,
        side: Side,
        begin: impl FnOnce() -> Result<(Input, IsEmpty)>,
    ) -> Result<Option<IsEmpty>> {
        let rounds = lock(&self.rounds);
        let mut read = lock(&self.reads[side as usize]);
        if let Some(read) = &*read {
            return Ok(Some(read.is_empty.clone()));
        }
        if rounds.next > 0 {
            return Ok(None);
        }
        let (input, is_empty) = begin()?;
        *read = Some(BegunRead {
            input: Some(input),
            is_empty: is_empty.clone(),
        });
        Ok(Some(is_empty))
    }

    /// Returns what says whether `side` is empty, if a read of it has begun.
    pub fn begun_read(&self, side: Side) -> Option<IsEmpty> {
        let read = lock(&self.reads[side as usize]);
        read.as_ref().map(|read| read.is_empty.clone())
    }

    /// Takes the input of `side`, if a join above began to read it.
    pub fn take_ahead(&self, side: Side) -> Option<Input> {
        lock(&self.reads[side as usize]).as_mut()?.input.take()
    }

    /// Notes that the join itself began to read `side`.
    pub fn note_read(&self, side: Side, is_empty: IsEmpty) {
        let input = None;
        *lock(&self.reads[side as usize]) = Some(BegunRead { input, is_empty });
    }

    /// Returns a hold on this run, of a join above.
    pub fn held(self: Arc<Self>) -> Held {
        Held {
            run: self,
            round: None,
            is_read: false,
            stays_unread: false,
            ended: false,
        }
    }

    /// Returns the publisher of this run's filters.
    pub fn publisher(&self) -> &Arc<FilterPublisher> {
        &self.publisher
    }

    /// Returns the publishers of rounds that build again, which go with this run.
    pub fn rebuilds(&self) -> &Publishers {
        &self.rebuilds
    }
}

/// A hold on a run: a stream's, or that of a join above.
#[derive(Debug)]
pub struct Held {
    run: Arc<Run>,
    /// Number of the stream's round.
    round: Option<usize>,
    /// True once the stream was polled.
    is_read: bool,
    /// True if the run is kept if no stream was polled.
    stays_unread: bool,
    ended: bool,
}

impl Held {
    /// Returns the run.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Returns the number of the stream's round: 0 if its partition was not asked for before.
    pub fn round(&self) -> usize {
        self.round.unwrap_or_default()
    }

    /// Returns `stream`, whose hold this is, as one that keeps the run alive. If nobody polls it or
    /// another one, the run stays for the next ones if it `stays_unread`, or else ends.
    pub fn holding(
        mut self,
        stream: SendableRecordBatchStream,
        stays_unread: bool,
    ) -> SendableRecordBatchStream {
        self.stays_unread = stays_unread;
        let schema = stream.schema();
        let stream = futures::stream::unfold((stream, self), |(mut stream, mut held)| {
            if !held.is_read {
                held.note_read();
            }
            async {
                let next = stream.next().await;
                held.ended = next.is_none();
                Some((next?, (stream, held)))
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, stream))
    }

    /// Notes that the stream is polled for the first time.
    fn note_read(&mut self) {
        self.is_read = true;
        let mut rounds = lock(&self.run.rounds);
        let round = self.round.and_then(|number| rounds.alive.get_mut(&number));
        if let Some(round) = round {
            round.is_read = true;
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without its node no partition can be asked for.
        let runs = self.run.runs.upgrade();
        let current = runs.as_ref().map(|runs| lock(&runs.current));
        let mut current = current.filter(|current| current.any.ptr_eq(&Arc::downgrade(&self.run)));
        let mut rounds = lock(&self.run.rounds);
        let gone = match (self.round, &mut current) {
            (Some(round), Some(current)) if rounds.take_back(round) => {
                if self.stays_unread {
                    current.kept = Some(Arc::clone(&self.run));
                } else {
                    **current = Current::default();
                }
                None
            }
            (Some(round), _) => rounds.leave(round, self.ended),
            (None, _) => None,
        };
        if let Some(current) = &mut current
            && !rounds.is_any_asked
        {
            **current = Current::default();
        }
        drop(rounds);
        drop(current);
        // Its build, with what that holds, outside of the locks.
        drop(gone);
    }
}

fn is_of(known: &Weak<TaskContext>, context: &Arc<TaskContext>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(context))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
