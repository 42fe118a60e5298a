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
//! it is opened when the stream is polled, as that filter is complete by then. The other side waits
//! for this join's own filter, if one of its scans holds it. So do both sides while it is not known
//! which one is first.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};

use crate::config::Filters;
use crate::error::Error;

use super::decision::HostReason;
use super::exec::HortonJoinExec;
use super::execution::{Again, Run, lock};
use super::memory;
use super::open_inputs::{OpeningBuild, open, open_builds};
use super::opened::{OpenedJoin, SharedJoin};
use super::prepare::host_join::{HostPartitioning, Reopen};
use super::prepare::{JoinContext, JoinPreparation, clone_for_stream};
use super::spill::plan::files;
use super::spill::spilled::Spilled;
use crate::join::dynamic_filter::accumulator::{BuildReport, Driver, FilterAccumulator};
use crate::join::dynamic_filter::publisher::FilterPublisher;
use crate::join::dynamic_filter::targets::FilterTargets;
use crate::join::input::buffered::BufferedInput;
use crate::join::input::choose_build_side::{Chosen, FirstRead, Input, IsEmpty, race};
use crate::join::prepare::oriented::OrientedJoin;
use crate::join::read_ahead::is_found_empty;
use crate::join::read_order::ReadOrder;
use crate::join::side::Side;
use crate::join::sides::Sides;
use crate::join::steps::is_small_step;
use crate::join::stream::JoinStream;

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
    /// Output partitions, if the host may repartition the inputs into so many.
    partitions: Option<usize>,
    /// What opens partitions of the left and of the right side anew.
    reopen: Option<[Reopen; 2]>,
    /// The way in which an earlier build partitioned the rows on the host.
    spread: Option<(HostPartitioning, HostReason)>,
}

impl Build {
    /// Reads until there is a build side, and prepares the join.
    async fn prepare(self) -> Result<Arc<OpenedJoin>, Error> {
        let Self {
            node, sides, first, ..
        } = self;
        let disk = |side: &BufferedInput| files(&node, side);
        let (pool, rows) = (node.context.memory_pool(), node.config.knobs.sample_rows);
        let raced = race(sides, first.await?, pool, rows, &disk).await?;
        node.shown.begin(node.partition);
        let (side, mut build, probe) = match raced {
            Chosen::Won { side, build, probe } => (side, build, probe),
            // The filters stay as they are: they let everything through.
            Chosen::Refused { readings, error } => {
                let spilled = Spilled::new(node, readings, error)?;
                return Ok(Arc::new(OpenedJoin::Spilled(spilled)));
            }
        };
        let [left, right] = self.reports;
        // The other direction's filters stay as they are.
        let report = if side == Side::Right { right } else { left };
        let preparation = JoinPreparation {
            oriented: node.oriented(side)?,
            build: side,
            at: node.at(None),
            partitions: self.partitions,
            reopen: self.reopen.map(|[left, right]| match side {
                Side::Left => right,
                Side::Right => left,
            }),
            partitioning: self.spread,
            report,
            shown: node.shown,
        };
        let join = preparation.prepare(build.collect(), probe).await?;
        Ok(Arc::new(OpenedJoin::Whole(join, side)))
    }
}

impl HortonJoinExec {
    /// Returns the rows of output partition `partition`.
    pub(super) fn start(
        &self,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let partitions = self.output_partitions();
        if partition >= partitions {
            return internal_err!("partition {partition} of a join that has {partitions}");
        }
        let filters = self.made_filters();
        let held = self.runs.ask(partition, partitions, context, &filters)?;
        let (run, round) = (held.run(), held.round());
        self.open_below(run, context)?;
        let (decision, at) = if self.is_partitioned() {
            (self.begin_partition(partition, run, round, context)?, 0)
        } else {
            let begin = |again| match again {
                Some(again) => self.begin_again(again, run, context),
                None => self.begin(0, run, context),
            };
            (run.decision(round, begin)?, partition)
        };
        let schema = self.schema();
        let of_output = Arc::clone(&schema);
        let opened = async move {
            let decided = decision.await.map_err(clone_for_stream)?;
            decided.stream(at, partition)
        };
        let stream = futures::stream::once(opened).try_flatten();
        let stream = stream.map(move |batch| with_schema(&of_output, batch?));
        let stream = RecordBatchStreamAdapter::new(schema, stream);
        Ok(JoinStream::of(held.holding(Box::pin(stream))))
    }

    /// Begins the build before the join is executed. All partitions must share it, and no filter of
    /// another join may reach the side that is read first.
    ///
    /// # Errors
    /// The errors of opening it.
    pub(super) fn open_build(&self, context: &Arc<TaskContext>) -> Result<OpeningBuild> {
        let targets = self.targets(context)?;
        let ReadOrder::Known(first) = self.read_order()? else {
            return Ok(OpeningBuild::Waits);
        };
        if self.is_partitioned() || targets.side(first).is_pruned {
            return Ok(OpeningBuild::Waits);
        }
        let begun = self.runs.begin(&self.made_filters())?;
        // A join above may have begun it, to read ahead.
        let unopened = || self.runs.current().filter(|run| !run.has_begun());
        let Some(run) = begun.or_else(unopened) else {
            return Ok(OpeningBuild::AlreadyOpen);
        };
        // Ends the execution if the build side cannot be opened.
        let held = Arc::clone(&run).held();
        run.begin_decision(self.output_partitions(), || self.begin(0, &run, context))?;
        self.open_below(&run, context)?;
        Ok(OpeningBuild::Opened(held))
    }

    /// Returns whether the join has an execution that opened its inputs.
    pub(super) fn has_begun(&self) -> bool {
        self.runs.current().is_some_and(|run| run.has_begun())
    }

    /// Returns the execution of this join. It begins for the execution `above` of a join above, if
    /// there is none.
    ///
    /// # Errors
    /// If a filter cannot be set back.
    pub(super) fn begin_below(&self, above: &Run) -> Result<Option<Arc<Run>>> {
        let begun = self.runs.begin(&self.made_filters())?;
        if let Some(run) = &begun {
            above.hold(Arc::clone(run).held());
        }
        Ok(begun.or_else(|| self.runs.current()))
    }

    /// Reads `side` until a row comes, before `run` of the join opens its inputs. Returns what says
    /// whether it is empty; `None` if that cannot be found out.
    ///
    /// # Errors
    /// The errors of opening the input.
    pub(super) fn read_ahead(
        &self,
        side: Side,
        run: &Run,
        context: &Arc<TaskContext>,
    ) -> Result<Option<IsEmpty>> {
        if self.is_partitioned() || !self.sides().may_be(side) {
            return Ok(None);
        }
        run.read_ahead(side, || {
            let input = self.reading_opened(side, 0, context, false)?;
            Ok(Input::begin(input, 1))
        })
    }

    /// Returns where filters go, found out once.
    fn targets(&self, context: &TaskContext) -> Result<&FilterTargets> {
        if let Some(targets) = self.targets.get() {
            return Ok(targets);
        }
        let options = &context.session_config().options().optimizer;
        let filters = if options.enable_join_dynamic_filter_pushdown {
            [self.filters[0].as_slice(), self.filters[1].as_slice()]
        } else {
            [&[][..], &[][..]]
        };
        let inputs = [self.stock.left(), self.stock.right()];
        let targets = FilterTargets::new(inputs, filters, self.config.filters == Filters::Auto)?;
        Ok(self.targets.get_or_init(|| targets))
    }

    /// Opens build sides of joins below inputs that are opened late.
    fn open_below(&self, run: &Run, context: &Arc<TaskContext>) -> Result<()> {
        run.open_below(|| {
            let mut held = Vec::new();
            for side in Side::BOTH {
                if self.is_opened_late(side, context)? {
                    held.extend(open_builds(self.input(side), context)?);
                }
            }
            Ok(held)
        })
    }

    /// Returns whether `side` waits for a filter.
    fn is_opened_late(&self, side: Side, context: &TaskContext) -> Result<bool> {
        let targets = self.targets(context)?.side(side);
        let is_first = self.read_order()? == ReadOrder::Known(side);
        Ok(targets.is_reached || (!is_first && !targets.held.is_empty()))
    }

    /// Begins build `partition`, which publishes its keys to the scans of the other side.
    fn begin(
        &self,
        partition: usize,
        run: &Arc<Run>,
        context: &Arc<TaskContext>,
    ) -> Result<SharedJoin> {
        self.check_partitions()?;
        let sides = self.sides();
        let inputs = Side::BOTH.map(|side| self.begin_input(side, partition, run, context));
        let [left, right] = inputs;
        let first = FirstRead::read(
            [left?, right?],
            self.first_side(run, context)?,
            self.config.knobs.sample_rows,
        );
        // Made here, not in the future: a build that is never polled reports when dropped.
        let mut reports = [None, None];
        for side in Side::BOTH {
            if sides.may_be(side) {
                let accumulator = self.accumulator(side, run, context)?;
                reports[side as usize] =
                    accumulator.map(|accumulator| (accumulator.report(partition), accumulator));
            }
        }
        let accumulator = match &reports[Side::Left as usize] {
            Some((_, accumulator)) if self.is_partitioned() => Some(Arc::clone(accumulator)),
            _ => None,
        };
        let build = Build {
            node: self.node(partition, context),
            sides,
            first: first.boxed(),
            reports: reports.map(|report| report.map(|(report, _)| report)),
            partitions: self.host_partitions(),
            reopen: self.reopen(context),
            spread: None,
        };
        let decided = build.prepare().map_err(Arc::new).boxed().shared();
        Ok(match accumulator {
            // The filters are complete once all builds are.
            Some(accumulator) => {
                accumulator.add(drive_weakly(&decided));
                let decided = async move {
                    let decided = decided.await?;
                    accumulator.complete().await;
                    Ok(decided)
                };
                decided.boxed().shared()
            }
            None => decided,
        })
    }

    /// Returns the input of build `partition` on `side`. Its read begins if it is first and waits
    /// for no filter.
    fn begin_input(
        &self,
        side: Side,
        partition: usize,
        run: &Run,
        context: &Arc<TaskContext>,
    ) -> Result<Input> {
        if let Some(input) = run.take_ahead(side) {
            return Ok(input);
        }
        let input = self.reading(side, partition, context)?;
        // In a recursive query, reading a small table takes less time than beginning a task for it.
        let waits = self.read_order()? != ReadOrder::Known(side)
            || is_small_step(&self.stock)
            || self.is_opened_late(side, context)?;
        if waits {
            return Ok(Input::Unread(input));
        }
        let (input, is_empty) = Input::begin(input, self.config.knobs.sample_rows);
        run.note_read(side, is_empty);
        Ok(input)
    }

    /// Returns what finds out the side that is read first.
    fn first_side(
        &self,
        run: &Arc<Run>,
        context: &Arc<TaskContext>,
    ) -> Result<impl Future<Output = Result<Side, Error>> + Send + 'static> {
        let order = self.read_order()?;
        let left = Arc::clone(self.stock.left());
        let (run, context) = (Arc::downgrade(run), Arc::clone(context));
        Ok(async move {
            Ok(match order {
                ReadOrder::RightUnlessEmpty(rows)
                    if is_found_empty(&left, rows, &run, &context).await? =>
                {
                    Side::Left
                }
                order => order.planned(),
            })
        })
    }

    /// Begins build `partition` of a partitioned join. One that was begun before in this run is
    /// begun anew, and filters let all rows through from then on.
    fn begin_partition(
        &self,
        partition: usize,
        run: &Arc<Run>,
        round: usize,
        context: &Arc<TaskContext>,
    ) -> Result<SharedJoin> {
        if round == 0 {
            return self.begin(partition, run, context);
        }
        let publisher = FilterPublisher::begin(self.runs.executions(), &self.made_filters())?;
        lock(run.again()).push(publisher);
        let build = self.anew(partition, self.sides(), context)?;
        Ok(build.prepare().map_err(Arc::new).boxed().shared())
    }

    /// Begins to prepare the join of a round of partitions that were asked for before. It is the
    /// first round's, if that is there and its streams can be read again. Else it is built anew, in
    /// the same way, and filters let all rows through from then on.
    fn begin_again(
        &self,
        before: Again,
        run: &Arc<Run>,
        context: &Arc<TaskContext>,
    ) -> Result<SharedJoin> {
        let builds = Side::BOTH.map(|side| self.anew(0, Sides::Fixed(side), context));
        let [left, right] = builds;
        let (left, right) = (left?, right?);
        let (executions, filters) = (Arc::clone(self.runs.executions()), self.made_filters());
        let again = Arc::clone(run.again());
        let decided = async move {
            let earlier = match before {
                Again::Build(first) => {
                    let first = first.await?;
                    if first.can_be_read_again() {
                        return Ok(first);
                    }
                    first.earlier()
                }
                Again::Gone(earlier) => earlier,
            };
            let publisher = FilterPublisher::begin(&executions, &filters);
            let publisher = publisher.map_err(Error::DataFusion)?;
            lock(&again).push(publisher);
            let mut build = match &earlier {
                Some(earlier) if earlier.build == Side::Right => right,
                _ => left,
            };
            build.spread = earlier.and_then(|earlier| earlier.partitioning);
            Ok(build.prepare().await?)
        };
        Ok(decided.boxed().shared())
    }

    /// Returns a build that publishes nothing, of inputs that are opened when it is polled.
    fn anew(&self, partition: usize, sides: Sides, context: &Arc<TaskContext>) -> Result<Build> {
        let reading = |side| self.reading_opened(side, partition, context, true);
        let first = match sides {
            Sides::Fixed(side) => side,
            Sides::Open => self.read_order()?.planned(),
        };
        Ok(Build {
            node: self.node(partition, context),
            sides,
            first: FirstRead::read(
                [reading(Side::Left)?, reading(Side::Right)?].map(Input::Unread),
                std::future::ready(Ok(first)),
                self.config.knobs.sample_rows,
            )
            .boxed(),
            reports: [None, None],
            partitions: self.host_partitions(),
            reopen: self.reopen(context),
            spread: None,
        })
    }

    /// Returns what opens partitions of either input anew; nothing if each partition is a build of
    /// its own.
    fn reopen(&self, context: &Arc<TaskContext>) -> Option<[Reopen; 2]> {
        let open_anew = |side: Side| -> Reopen {
            let (input, context) = (Arc::clone(self.input(side)), Arc::clone(context));
            Arc::new(move |partition| open(&input, partition, &context, true))
        };
        (!self.is_partitioned()).then(|| Side::BOTH.map(open_anew))
    }

    /// Returns what an execution of build `partition` must know of this node.
    fn node(&self, partition: usize, context: &Arc<TaskContext>) -> JoinContext {
        JoinContext {
            planned: Arc::clone(&self.stock),
            config: self.config.clone(),
            context: Arc::clone(context),
            shown: self.shown.clone(),
            partition,
        }
    }

    /// Returns the rows of `side` that build `partition` joins, not read yet.
    fn reading(
        &self,
        side: Side,
        partition: usize,
        context: &Arc<TaskContext>,
    ) -> Result<BufferedInput> {
        let late = self.is_opened_late(side, context)?;
        self.reading_opened(side, partition, context, late)
    }

    /// Returns the same, opened when it is polled if `late`.
    fn reading_opened(
        &self,
        side: Side,
        partition: usize,
        context: &Arc<TaskContext>,
        late: bool,
    ) -> Result<BufferedInput> {
        let input = self.input(side);
        let partitions = if self.is_partitioned() {
            partition..partition + 1
        } else {
            0..input.output_partitioning().partition_count()
        };
        let streams = partitions.map(|p| open(input, p, context, late));
        let streams = streams.collect::<Result<Vec<_>>>()?;
        let memory = memory::of_rows(context.memory_pool(), partition, side);
        Ok(BufferedInput::new(input.schema(), streams, memory))
    }

    /// Returns the accumulator of the filters that are published if `build` is the build side;
    /// `None` if no scan holds one.
    fn accumulator(
        &self,
        build: Side,
        run: &Arc<Run>,
        context: &Arc<TaskContext>,
    ) -> Result<Option<Arc<FilterAccumulator>>> {
        let targets = self.targets(context)?.side(build.other());
        if targets.held.is_empty() {
            return Ok(None);
        }
        let builds = if self.is_partitioned() {
            self.output_partitions()
        } else {
            1
        };
        let oriented = OrientedJoin::new(&self.stock, build == Side::Right, &self.config, context)?;
        let join = Arc::clone(oriented.join());
        let make = || FilterAccumulator::new(join, targets, builds, run.publisher(), context);
        Ok(Some(run.accumulator(build, make)))
    }

    fn check_partitions(&self) -> Result<()> {
        let left = self.stock.left().output_partitioning().partition_count();
        let right = self.stock.right().output_partitioning().partition_count();
        match self.stock.partition_mode() {
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
