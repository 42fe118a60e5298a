//! An execution of the node, from its first partition to a prepared join.
//!
//! ```text
//!  execute(p) ─▶ run ─▶ builds below that may begin ─▶ this join's build, begun once
//!                              CollectLeft, either side:  one build for all partitions
//!                              Partitioned:               build p for partition p
//!             stream p:  wait for the prepared join ─▶ its rows
//! ```
//!
//! The side that is read first is opened at once, unless a filter of another join reaches it. Then
//! it is opened when the stream is polled, as that filter is complete by then. Meanwhile its scan
//! is read ahead ([`prefetch`](crate::scan::prefetch)). The other side waits for this join's own
//! filter, if one of its scans holds it. So do both sides while it is not known which one is first.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryLimit;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use tracing::{Instrument, trace_span};

use crate::config::Filters;
use crate::device::DeviceKind;
use crate::error::Error;

use super::decision::HostReason;
use super::exec::HortonJoinExec;
use super::execution::{Again, Begun, Run, lock};
use super::memory::{self, ROW_BYTES};
use super::open_inputs::{OpeningBuild, open, open_builds};
use super::opened::{OpenedJoin, SharedJoin};
use super::prepare::host_join::{HostPartitioning, Reopen};
use super::prepare::{EarlierBuild, JoinContext, JoinPreparation, clone_for_stream};
use super::spill::plan::files;
use super::spill::spilled::Spilled;
use crate::join::concat::size::ARRAYS_MAX;
use crate::join::dynamic_filter::accumulator::{BuildReport, Driver, FilterAccumulator};
use crate::join::dynamic_filter::publisher::FilterPublisher;
use crate::join::dynamic_filter::targets::{FilterTargets, filter_node, rows_scanned};
use crate::join::input::buffered::BufferedInput;
use crate::join::input::choose_build_side::{Chosen, FirstRead, Input, IsEmpty, choose_build_side};
use crate::join::input::coalesce::coalesce;
use crate::join::prepare::oriented::OrientedJoin;
use crate::join::read_ahead::{FilteredInput, is_found_empty};
use crate::join::side::Side;
use crate::join::sides::{ReadOrder, Sides, rows_below};
use crate::join::steps::is_small_step;
use crate::join::stream::JoinStream;
use crate::scan::prefetch::PrefetchGuard;

/// Returns `batch` under the join's own `schema`: that of a swapped join can have other metadata.
fn with_schema(schema: &SchemaRef, batch: RecordBatch) -> Result<RecordBatch> {
    if Arc::ptr_eq(schema, batch.schema_ref()) {
        return Ok(batch);
    }
    let (_, columns, rows) = batch.into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
    Ok(batch)
}

/// Returns a future that drives `join` while somebody else holds it.
fn drive_weakly(join: &SharedJoin) -> Driver {
    let join = join.downgrade();
    Box::new(move || {
        let join = join.as_ref()?.upgrade()?;
        Some(join.map(|_| ()).boxed())
    })
}

/// A build for which a join is to be prepared.
struct Build {
    node: JoinContext,
    sides: Sides,
    /// The read of the side that is read first.
    first: BoxFuture<'static, Result<FirstRead, Error>>,
    /// The report of its keys if the left side is built, and if the right one is.
    reports: [Option<BuildReport>; 2],
    /// Whether the other side may be built once the left one has ended, and once the right one has.
    may_build_other: [bool; 2],
    /// Output partitions, if the host may repartition the inputs into so many.
    partitions: Option<usize>,
    /// Whether rows of the left and of the right side may change partitions, if that is probed.
    may_move_rows: [bool; 2],
    /// Whether rows come into groups of an aggregate.
    is_grouped: bool,
    /// What opens partitions of the left and of the right side again.
    reopen: Option<[Reopen; 2]>,
    /// The way in which an earlier build partitioned the rows on the host.
    partitioning: Option<(HostPartitioning, HostReason)>,
    /// True if an earlier build had its side in memory. Then this one must, too: the partitions of
    /// a join on disk have other rows.
    must_fit: bool,
}

impl Build {
    /// Prepares the join, as in [`prepare`](Self::prepare), in a span of its own.
    fn begin(self) -> impl Future<Output = Result<Arc<OpenedJoin>, Error>> {
        self.prepare().instrument(trace_span!("prepare join"))
    }

    /// Reads until there is a build side, and prepares the join.
    async fn prepare(self) -> Result<Arc<OpenedJoin>, Error> {
        let Self {
            node, sides, first, ..
        } = self;
        let disk = |side: &BufferedInput| files(&node, side);
        let (pool, rows) = (node.context.memory_pool(), node.config.knobs.sample_rows);
        let chosen = choose_build_side(sides, first.await?, pool, rows, &disk).await?;
        node.shown.begin(node.partition);
        let mut chosen = match chosen {
            Chosen::Side(chosen) => chosen,
            Chosen::Refused { error, .. } if self.must_fit => return Err(error),
            // The filters stay as they are: they let everything through.
            Chosen::Refused { inputs, error } => {
                let spilled = Spilled::after_refusal(node, inputs, error)?;
                return Ok(Arc::new(OpenedJoin::Spilled(spilled)));
            }
        };
        let [left, right] = self.reports;
        // The other direction's filters stay as they are.
        let report = match chosen.side {
            Side::Left => left,
            Side::Right => right,
        };
        let ended = chosen.side;
        let mut oriented = node.oriented(ended)?;
        let filters;
        let (side, build, probe);
        if self.may_build_other[ended as usize] && chosen.build.batches().len() <= ARRAYS_MAX {
            let batches = chosen.build.batches();
            filters = node
                .publish_filters(report, &oriented, (&batches, false))
                .await?;
            // Kept no longer than the side itself.
            drop(batches);
            let mut smaller = chosen.or_smaller(rows).await?;
            build = coalesce(smaller.build.collect(), oriented.width()).await?;
            (side, probe) = (smaller.side, smaller.probe);
        } else {
            // A filter of many small batches takes longer.
            build = coalesce(chosen.build.collect(), oriented.width()).await?;
            filters = node
                .publish_filters(report, &oriented, (&build.batches, true))
                .await?;
            (side, probe) = (ended, chosen.probe);
        }
        if side != ended {
            oriented = node.oriented(side)?;
        }
        let preparation = JoinPreparation {
            oriented,
            build: side,
            at: node.at(None),
            partitions: self.partitions,
            may_move_rows: self.may_move_rows[side.other() as usize],
            is_grouped: self.is_grouped,
            // The rows of a side that ended second are partners of one read of the first. Another
            // read may have rows whose partners were left out.
            reopen: self
                .reopen
                .filter(|_| side == ended)
                .map(|[left, right]| match side {
                    Side::Left => right,
                    Side::Right => left,
                }),
            partitioning: self.partitioning,
            filters,
            shown: node.shown,
        };
        let join = preparation.prepare(build, probe).await?;
        Ok(Arc::new(OpenedJoin::Whole(join, side)))
    }
}

/// A node that is executed under a context.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    join: &'a HortonJoinExec,
    context: &'a Arc<TaskContext>,
}

impl<'a> Execution<'a> {
    /// Returns the execution of `join` under `context`. Nothing begins yet.
    pub fn new(join: &'a HortonJoinExec, context: &'a Arc<TaskContext>) -> Self {
        Self { join, context }
    }

    /// Returns the rows of output partition `partition`.
    pub fn start(self, partition: usize) -> Result<SendableRecordBatchStream> {
        let _work = trace_span!("start join").entered();
        let partitions = self.join.output_partitions();
        if partition >= partitions {
            return internal_err!("partition {partition} of a join that has {partitions}");
        }
        let filters = self.join.made_filters();
        let held = self
            .join
            .runs
            .ask(partition, partitions, self.context, &filters)?;
        let (run, round) = (held.run(), held.round());
        let (decision, at) = if self.join.is_partitioned() {
            (self.begin_partition(partition, run, round)?, 0)
        } else {
            self.open_below(run)?;
            let begin = |again| match again {
                Some(again) => self.begin_again(again, run),
                None => self.begin(0, run),
            };
            (run.decision(round, begin)?, partition)
        };
        let schema = self.join.schema();
        let of_output = Arc::clone(&schema);
        let opened = async move {
            let opened = decision.await.map_err(clone_for_stream)?;
            opened.stream(at, partition)
        };
        let stream = futures::stream::once(opened).try_flatten();
        let stream = stream.map(move |batch| with_schema(&of_output, batch?));
        let stream = RecordBatchStreamAdapter::new(schema, stream);
        let stays_unread = !self.join.is_partitioned() && self.is_unlimited();
        let stays_unread = stays_unread && self.join.reads_files();
        Ok(JoinStream::boxed(
            held.holding(Box::pin(stream), stays_unread),
        ))
    }

    /// Begins the build before the join is executed. All partitions must share it, and no filter of
    /// another join may reach the side that is read first.
    ///
    /// # Errors
    /// The errors of opening it.
    fn open_build(self) -> Result<OpeningBuild> {
        let targets = self.targets()?;
        let ReadOrder::Known(first) = self.join.read_order()? else {
            return self.wait(None);
        };
        if self.join.is_partitioned() {
            return self.wait(None);
        }
        if targets.side(first).is_pruned {
            return self.wait(Some(first));
        }
        let begun = self.join.runs.begin(&self.join.made_filters())?;
        // A join above may have begun it, to read ahead.
        let unopened = || self.join.runs.current().filter(|run| !run.has_begun());
        let Some(run) = begun.or_else(unopened) else {
            return Ok(OpeningBuild::AlreadyOpen);
        };
        // Ends the execution if the build side cannot be opened.
        let held = Arc::clone(&run).held();
        run.begin_decision(self.join.output_partitions(), || self.begin(0, &run))?;
        self.open_below(&run)?;
        Ok(OpeningBuild::Opened(held))
    }

    /// Reads `side` until a row comes, before `run` of the join opens its inputs. Returns what says
    /// whether it is empty; `None` if that cannot be found out.
    ///
    /// # Errors
    /// The errors of opening the input.
    fn read_ahead(self, side: Side, run: &Run) -> Result<Option<IsEmpty>> {
        if self.join.is_partitioned() || !self.join.sides().may_be(side) {
            return Ok(None);
        }
        run.read_ahead(side, || {
            let input = self.input(side, 0, false)?;
            Ok(Input::begin(input, 1))
        })
    }

    /// Returns whether the session has no limit on memory.
    fn is_unlimited(self) -> bool {
        let pool = self.context.memory_pool();
        matches!(pool.memory_limit(), MemoryLimit::Infinite)
    }

    /// Begins the execution of the join, which waits for filters, if scans below may be read ahead:
    /// they may hold its filters, which that sets back. Reads the scan of `side` ahead.
    fn wait(self, side: Option<Side>) -> Result<OpeningBuild> {
        let mut begun = Begun::default();
        // A join that has begun opened its inputs itself.
        if self.is_unlimited() && !self.join.runs.has_begun() {
            let run = self.join.runs.begin(&self.join.made_filters())?;
            begun.runs.extend(run.map(Run::held));
            begun
                .scans
                .extend(side.and_then(|side| self.prefetch(side)));
        }
        Ok(OpeningBuild::Waits(begun))
    }

    /// Begins to read the scan of `side` ahead, if it has no more rows than a first read. Returns a
    /// hold on that.
    fn prefetch(self, side: Side) -> Option<PrefetchGuard> {
        let input = self.join.input(side);
        let most = self.join.config.knobs.sample_rows;
        let scan = filter_node(input)?;
        let is_small = rows_scanned(input)? <= most;
        let most = (most, most.saturating_mul(ROW_BYTES));
        is_small.then(|| scan.prefetch(most, self.context))?
    }

    /// Returns where filters go, found out once.
    fn targets(self) -> Result<&'a FilterTargets> {
        if let Some(targets) = self.join.targets.get() {
            return Ok(targets);
        }
        let options = &self.context.session_config().options().optimizer;
        let filters = if options.enable_join_dynamic_filter_pushdown {
            [
                self.join.filters[0].as_slice(),
                self.join.filters[1].as_slice(),
            ]
        } else {
            [&[][..], &[][..]]
        };
        let inputs = [self.join.stock.left(), self.join.stock.right()];
        let config = &self.join.config;
        let targets = FilterTargets::new(inputs, filters, config.filters == Filters::Auto)?
            .with_host_rows(config.min_build_rows(DeviceKind::Gpu));
        Ok(self.join.targets.get_or_init(|| targets))
    }

    /// Opens the build sides of joins below each input that is opened late.
    fn open_below(self, run: &Run) -> Result<()> {
        let open = |join: &HortonJoinExec| Execution::new(join, self.context).open_build();
        run.open_below(|| {
            let mut begun = Begun::default();
            for side in Side::BOTH {
                if self.is_opened_late(side)? {
                    open_builds(self.join.input(side), &open, &mut begun)?;
                }
            }
            Ok(begun)
        })
    }

    /// Returns whether `side` waits for a filter.
    fn is_opened_late(self, side: Side) -> Result<bool> {
        let targets = self.targets()?.side(side);
        let is_first = self.join.read_order()? == ReadOrder::Known(side);
        Ok(targets.is_reached || (!is_first && !targets.held.is_empty()))
    }

    /// Begins build `partition`, which publishes its keys to the scans of the other side.
    fn begin(self, partition: usize, run: &Arc<Run>) -> Result<SharedJoin> {
        self.check_partitions()?;
        let sides = self.join.sides();
        let inputs = Side::BOTH.map(|side| self.begin_input(side, partition, run));
        let [left, right] = inputs;
        let first = FirstRead::read(
            [left?, right?],
            self.first_side(run)?,
            self.join.config.knobs.sample_rows,
        );
        let [left, right] = Side::BOTH.map(|ended| self.may_build_other(ended));
        let may_build_other = [left?, right?];
        // Made here, not in the future: a build that is never polled reports when dropped.
        let mut reports = [None, None];
        for side in Side::BOTH {
            if sides.may_be(side) {
                let accumulator = self.accumulator(side, run)?;
                reports[side as usize] =
                    accumulator.map(|accumulator| (accumulator.report(partition), accumulator));
            }
        }
        let accumulator = match &reports[Side::Left as usize] {
            Some((_, accumulator)) if self.join.is_partitioned() => Some(Arc::clone(accumulator)),
            _ => None,
        };
        let build = Build {
            node: self.node(partition),
            sides,
            first: first.boxed(),
            reports: reports.map(|report| report.map(|(report, _)| report)),
            may_build_other,
            partitions: self.join.host_partitions(),
            may_move_rows: Side::BOTH.map(|side| self.join.may_move_probe_rows(side)),
            is_grouped: self.join.is_grouped(),
            reopen: self.reopen(),
            partitioning: None,
            must_fit: false,
        };
        let prepared = build.begin().map_err(Arc::new).boxed().shared();
        Ok(match accumulator {
            // The filters are complete once all builds are.
            Some(accumulator) => {
                accumulator.add(drive_weakly(&prepared));
                let prepared = async move {
                    let opened = prepared.await?;
                    accumulator.complete().await;
                    Ok(opened)
                };
                prepared.boxed().shared()
            }
            None => prepared,
        })
    }

    /// Returns whether the other side may be read, and built, once `ended` has ended: the keys of
    /// `ended` filter its tables, whose rows are known. Where the first rows of the join may be
    /// enough, those tables have no more rows than a first read. Builds of single partitions
    /// cannot, as filters wait for the last of them. Nor do they under a limit on memory: a later
    /// execution would build that side unfiltered, and might not find the room.
    fn may_build_other(self, ended: Side) -> Result<bool> {
        if !self.is_unlimited() || self.join.is_partitioned() || self.join.sides() != Sides::Open {
            return Ok(false);
        }
        let other = ended.other();
        let most = if self.join.stops_early() {
            self.join.config.knobs.sample_rows
        } else {
            usize::MAX
        };
        let mut filters = self.targets()?.side(other).held.iter();
        Ok(filters.any(|filter| filter.is_evaluated)
            && rows_below(self.join.input(other)).is_some_and(|rows| rows <= most))
    }

    /// Returns the input of build `partition` on `side`. Its read begins if it is first and waits
    /// for no filter.
    fn begin_input(self, side: Side, partition: usize, run: &Run) -> Result<Input> {
        if let Some(input) = run.take_ahead(side) {
            return Ok(input);
        }
        let late = self.is_opened_late(side)?;
        let input = self.input(side, partition, late)?;
        run.hold_scan(filter_node(self.join.input(side)).and_then(|scan| scan.hold_prefetch()));
        // In a recursive query, reading a small table takes less time than beginning a task for it.
        let waits = self.join.read_order()? != ReadOrder::Known(side)
            || is_small_step(&self.join.stock)
            // Its streams have builds of their own. One that is dropped unread must not take rows.
            || self.join.is_partitioned()
            || late;
        if waits {
            return Ok(Input::Unread(input));
        }
        let (input, is_empty) = Input::begin(input, self.join.config.knobs.sample_rows);
        run.note_read(side, is_empty);
        Ok(input)
    }

    /// Returns what finds out the side that is read first.
    fn first_side(
        self,
        run: &Arc<Run>,
    ) -> Result<impl Future<Output = Result<Side, Error>> + Send + 'static> {
        let order = self.join.read_order()?;
        let left = Arc::clone(self.join.stock.left());
        let (run, context) = (Arc::downgrade(run), Arc::clone(self.context));
        let read = move |input: &FilteredInput| match run.upgrade() {
            Some(run) => read_below(input, &run, &context),
            None => Ok(None),
        };
        Ok(async move {
            Ok(match order {
                ReadOrder::RightUnlessEmpty(rows) if is_found_empty(&left, rows, read).await? => {
                    Side::Left
                }
                order => order.planned(),
            })
        })
    }

    /// Begins build `partition` of a partitioned join. One that was begun before in this run is
    /// begun again, and filters let all rows through from then on.
    fn begin_partition(self, partition: usize, run: &Arc<Run>, round: usize) -> Result<SharedJoin> {
        if round == 0 {
            return self.begin(partition, run);
        }
        let executions = self.join.runs.executions();
        let publisher = FilterPublisher::begin(executions, &self.join.made_filters())?;
        lock(run.rebuilds()).push(publisher);
        let build = self.rebuild(partition, self.join.sides())?;
        Ok(build.begin().map_err(Arc::new).boxed().shared())
    }

    /// Begins to prepare the join of a round of partitions that were asked for before. It is the
    /// first round's, if that is there and its streams can be read again. Else it is built again in
    /// the same way, and filters let all rows through from then on.
    ///
    /// The join fails if streams of the first round share the rows of the probe side.
    fn begin_again(self, before: Again, run: &Arc<Run>) -> Result<SharedJoin> {
        let builds = Side::BOTH.map(|side| self.rebuild(0, Sides::Fixed(side)));
        let [left, right] = builds;
        let (left, right) = (left?, right?);
        let node = self.node(0);
        let inputs = Side::BOTH.map(|side| self.input(side, 0, true));
        let [left_input, right_input] = inputs;
        let inputs = [left_input?, right_input?];
        let (executions, filters) = (
            Arc::clone(self.join.runs.executions()),
            self.join.made_filters(),
        );
        let again = Arc::clone(run.rebuilds());
        let prepared = async move {
            let earlier = match before {
                Again::Build(first) => {
                    let first = first.await?;
                    if first.can_be_read_again() {
                        return Ok(first);
                    }
                    Some(first.earlier())
                }
                Again::Gone(earlier) => earlier,
            };
            let publisher = FilterPublisher::begin(&executions, &filters);
            let publisher = publisher.map_err(Error::DataFusion)?;
            lock(&again).push(publisher);
            let (mut build, partitioning) = match earlier {
                Some(EarlierBuild::Spilled) => {
                    node.shown.begin(node.partition);
                    return Ok(Arc::new(OpenedJoin::Spilled(Spilled::new(node, inputs)?)));
                }
                Some(EarlierBuild::Shared) => {
                    let reason = "a partition of a join was executed twice, and not all partitions \
                                  of the first execution were read to their ends: do that, or \
                                  execute what reset_plan_states makes of the plan";
                    return Err(Arc::new(Error::Invalid(reason.to_owned())));
                }
                Some(EarlierBuild::Whole {
                    build: Side::Right,
                    partitioning,
                }) => (right, Some(partitioning)),
                Some(EarlierBuild::Whole { partitioning, .. }) => (left, Some(partitioning)),
                None => (left, None),
            };
            if let Some(partitioning) = partitioning {
                build.must_fit = true;
                // Where the first build did not repartition by the keys, this one must not.
                build.partitions = build.partitions.filter(|_| partitioning.is_some());
                build.partitioning = partitioning;
            }
            Ok(build.begin().await?)
        };
        Ok(prepared.boxed().shared())
    }

    /// Returns a build that publishes nothing, of inputs that are opened when it is polled.
    fn rebuild(self, partition: usize, sides: Sides) -> Result<Build> {
        let input = |side| self.input(side, partition, true);
        let first = match sides {
            Sides::Fixed(side) => side,
            Sides::Open => self.join.read_order()?.planned(),
        };
        Ok(Build {
            node: self.node(partition),
            sides,
            first: FirstRead::read(
                [input(Side::Left)?, input(Side::Right)?].map(Input::Unread),
                std::future::ready(Ok(first)),
                self.join.config.knobs.sample_rows,
            )
            .boxed(),
            reports: [None, None],
            may_build_other: [false; 2],
            partitions: self.join.host_partitions(),
            // Nobody knows which rows a partition had the first time.
            may_move_rows: [false; 2],
            is_grouped: self.join.is_grouped(),
            reopen: self.reopen(),
            partitioning: None,
            must_fit: false,
        })
    }

    /// Returns what opens partitions of either input again; nothing if each partition is a build of
    /// its own.
    fn reopen(self) -> Option<[Reopen; 2]> {
        let open_again = |side: Side| -> Reopen {
            let (input, context) = (Arc::clone(self.join.input(side)), Arc::clone(self.context));
            Arc::new(move |partition| open(&input, partition, &context, true))
        };
        (!self.join.is_partitioned()).then(|| Side::BOTH.map(open_again))
    }

    /// Returns what an execution of build `partition` must know of this node.
    fn node(self, partition: usize) -> JoinContext {
        JoinContext {
            planned: Arc::clone(&self.join.stock),
            config: self.join.config.clone(),
            context: Arc::clone(self.context),
            shown: self.join.shown.clone(),
            partition,
        }
    }

    /// Returns the rows of `side` that build `partition` joins, not read yet. They are opened when
    /// they are polled if `late`.
    fn input(self, side: Side, partition: usize, late: bool) -> Result<BufferedInput> {
        let input = self.join.input(side);
        let partitions = if self.join.is_partitioned() {
            partition..partition + 1
        } else {
            0..input.output_partitioning().partition_count()
        };
        let streams = partitions.map(|p| open(input, p, self.context, late));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let memory = memory::rows_reservation(self.context.memory_pool(), partition, side);
        Ok(BufferedInput::new(input.schema(), streams, memory))
    }

    /// Returns the accumulator of the filters that are published if `build` is the build side;
    /// `None` if no scan holds one.
    fn accumulator(self, build: Side, run: &Arc<Run>) -> Result<Option<Arc<FilterAccumulator>>> {
        let targets = self.targets()?.side(build.other());
        if targets.held.is_empty() {
            return Ok(None);
        }
        let builds = if self.join.is_partitioned() {
            self.join.output_partitions()
        } else {
            1
        };
        let (join, is_swapped) = (self.join, build == Side::Right);
        let oriented = OrientedJoin::new(&join.stock, is_swapped, &join.config, self.context)?;
        let join = Arc::clone(oriented.join());
        let make = || FilterAccumulator::new(join, targets, builds, run.publisher(), self.context);
        Ok(Some(run.accumulator(build, make)))
    }

    fn check_partitions(self) -> Result<()> {
        let left = self
            .join
            .stock
            .left()
            .output_partitioning()
            .partition_count();
        let right = self
            .join
            .stock
            .right()
            .output_partitioning()
            .partition_count();
        match self.join.stock.partition_mode() {
            PartitionMode::Partitioned if left != right => internal_err!(
                "a partitioned join has {left} build and {right} probe partitions; \
                 repartition one side"
            ),
            PartitionMode::CollectLeft if left != 1 => {
                internal_err!("a CollectLeft join has {left} build partitions; coalesce them")
            }
            _ => Ok(()),
        }
    }
}

/// Reads an input in a tree of joins until a row comes, for the execution `above` of the join over
/// it. Returns what says whether none does; `None` if that cannot be found out. Executions of joins
/// on the path begin with that, as they set back the filters that its scan may hold. An input that
/// is being read is left to that read.
fn read_below(
    input: &FilteredInput,
    above: &Run,
    context: &Arc<TaskContext>,
) -> Result<Option<IsEmpty>> {
    let path = input.path.iter();
    let mut joins = path.filter_map(|node| HortonJoinExec::downcast(node.as_ref()));
    if input.is_begun {
        // Of a partitioned join, the read of one partition says nothing of the others.
        let join = joins.next_back().filter(|join| !join.is_partitioned());
        let run = join.and_then(|join| join.runs.current());
        return Ok(run.and_then(|run| run.begun_read(input.side)));
    }
    let mut last = None;
    for join in joins {
        let run = join.runs.begin_below(&join.made_filters(), above)?;
        last = run.map(|run| (join, run));
    }
    match last {
        Some((join, run)) => Execution::new(join, context).read_ahead(input.side, &run),
        None => Ok(None),
    }
}
