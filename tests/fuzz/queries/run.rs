//! Runs a query on both sides, and compares.
//!
//! ```text
//!  seed ─▶ query ─▶ DataFusion joins ─▶ no row of a tree? draw another
//!                   tables in memory └▶ outer query over them ─▶ truth
//!  ours, of options of the seed ─▶ rows ──────────── compare ────┤
//!                               ─▶ what nodes promise            │
//!                               ─▶ a consumer's ─ compare_kept ──┘
//!  at the end: nothing reserved, no file, no task
//! ```

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::JoinType;
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use futures::future::try_join_all;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, Filters, HortonConfig, Knobs};
use horton_test_support::plans::{keep_sides, nodes};
use horton_test_support::promises;
use tempfile::TempDir;

use super::super::consumer::{self, Allows};
use super::super::limited::Limited;
use super::super::numbers::Random;
use super::draw::{Outer, Query};
use super::pool::Pool;
use super::rows::Rows;
use super::tables::{Drawn, register};
use super::tally::{Outcome, scans_of_files};

/// Joined rows of a query that is worth its time.
const MOST_ROWS: usize = 20_000;

/// Draws of a tree after one that has no rows, as many joins have none.
const DRAWS: usize = 2;

/// Tries in which DataFusion may show that it is wrong at times.
const TRIES: usize = 40;

/// Time within which a query ends.
const LIMIT: Duration = Duration::from_secs(100);

/// The options under which a query runs.
#[derive(Debug, Clone)]
struct Options {
    partitions: usize,
    batch_size: usize,
    /// Every join is `Partitioned` where DataFusion chooses the mode.
    partitioned: bool,
    /// Sides stay as DataFusion planned them.
    keep_sides: bool,
    /// Joins run on the device; on the host if not.
    on_device: bool,
    sample_rows: usize,
    chunk_rows: usize,
    /// Inner joins begin with their last table.
    joins_from_last: bool,
    filters: Filters,
    pool: Option<usize>,
    /// Scans of files leave out rows that filters do not keep.
    pushdown_filters: bool,
    /// Each output partition is executed with a context of its own.
    own_contexts: bool,
    /// What nodes promise is held against their rows.
    looks_at_promises: bool,
    /// The seed of a consumer that misbehaves.
    consumer: Option<u64>,
}

impl Options {
    fn random(random: &mut Random, query: &Query) -> Self {
        let outer = query.outer;
        let sorts = matches!(
            outer,
            Outer::First(_) | Outer::Ordered | Outer::Windows | Outer::Falls
        );
        // A sort of the first rows alone asks for hundreds of kilobytes, and cannot go to disk.
        // Each join of a tree needs some.
        let (limits, least) = match (query.is_tree, sorts) {
            (true, false) => (2, 13),
            (false, false) => (3, 12),
            (_, true) => (3, 19),
        };
        let pool = random
            .one_in(limits)
            .then(|| 1 << (least + random.below(4)));
        let mut options = Self {
            partitions: random.pick(&[1, 2, 3, 4]),
            batch_size: random.pick(&[16, 64, 256, 8192]),
            partitioned: random.one_in(3),
            keep_sides: random.one_in(4),
            on_device: random.one_in(2),
            // A first read of 1000 rows has most tables whole, and 16 rows are many for it. So
            // sides that end second are built.
            sample_rows: random.pick(&[1, 20, 100, 1000, 1000, 1 << 20]),
            chunk_rows: random.pick(&[50, 1000, 1 << 16]),
            joins_from_last: random.one_in(2),
            filters: if random.one_in(6) {
                Filters::Off
            } else {
                Filters::Auto
            },
            pool,
            own_contexts: random.one_in(4),
            pushdown_filters: random.one_in(2),
            looks_at_promises: pool.is_none() && random.one_in(4),
            consumer: random.one_in(2).then(|| random.number()),
        };
        // Another order counts on joins whose sides are open: DataFusion's own lose constants.
        options.joins_from_last &= !options.keep_sides;
        options
    }

    /// The memory and files of runs.
    fn limited(&self) -> Result<Limited> {
        Limited::new(match self.pool {
            Some(bytes) => Arc::new(Pool::new(bytes)),
            None => Arc::new(UnboundedMemoryPool::default()),
        })
    }

    fn config(&self) -> SessionConfig {
        let config = SessionConfig::new()
            .with_target_partitions(self.partitions)
            .with_batch_size(self.batch_size)
            // The tables of the other session stay.
            .with_create_default_catalog_and_schema(false);
        let pushdown_filters = "datafusion.execution.parquet.pushdown_filters";
        let config = config.set_bool(pushdown_filters, self.pushdown_filters);
        if !self.partitioned {
            return config;
        }
        let threshold = "datafusion.optimizer.hash_join_single_partition_threshold";
        config
            .set_usize(threshold, 0)
            .set_usize(&format!("{threshold}_rows"), 0)
    }
}

/// Runs queries beside two sessions of DataFusion.
pub struct Runner {
    /// Tells what is right: all tables are in memory, and joins filter no scan.
    truth: SessionContext,
    stock: SessionContext,
    /// The folder of the tables' files.
    _folder: TempDir,
}

/// The rows of DataFusion's joins.
struct Joined {
    rows: Result<(SchemaRef, Vec<RecordBatch>)>,
    /// It evaluated a function more than once.
    is_drawn_twice: bool,
}

impl Joined {
    fn is_empty(&self) -> bool {
        let rows = self.rows.as_ref();
        rows.is_ok_and(|(_, batches)| count(batches) == 0)
    }
}

/// A query, and what is known of it.
#[derive(Clone, Copy)]
struct Asked<'a> {
    query: &'a Query,
    whole: &'a str,
    truth: &'a Rows,
    options: &'a Options,
}

impl Runner {
    pub async fn new() -> Result<Self> {
        let config = SessionConfig::new().with_target_partitions(2);
        let filters = "datafusion.optimizer.enable_dynamic_filter_pushdown";
        let truth = SessionContext::new_with_config(config.clone().set_bool(filters, false));
        register(&truth, None).await?;
        let stock = SessionContext::new_with_config(config);
        let folder = tempfile::tempdir()?;
        register(&stock, Some(folder.path())).await?;
        Ok(Self {
            truth,
            stock,
            _folder: folder,
        })
    }

    /// Runs the query of `seed` on both sides.
    ///
    /// # Errors
    /// What differs.
    pub async fn check(&self, seed: u64) -> std::result::Result<Outcome, String> {
        let mut random = Random::new(seed);
        let mut query = Query::random(&mut random);
        let mut joined = self.join(&query).await?;
        for _ in 0..DRAWS {
            if query.is_tree && joined.is_empty() {
                query = Query::draw(&mut random, true);
                joined = self.join(&query).await?;
            }
        }
        let options = Options::random(&mut random, &query);
        let about = || format!("{}\n{options:?}", query.outer.sql(&query.joined));
        let checked = self.check_query(&query, joined, &options);
        let checked = tokio::time::timeout(3 * LIMIT, checked).await;
        match checked {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(difference)) => Err(format!("{difference}\n{}", about())),
            Err(_) => Err(format!("no end of DataFusion's\n{}", about())),
        }
    }

    async fn check_query(
        &self,
        query: &Query,
        joined: Joined,
        options: &Options,
    ) -> std::result::Result<Outcome, String> {
        let mut outcome = Outcome {
            trees: query.is_tree.into(),
            drawn_twice: joined.is_drawn_twice,
            ..Outcome::default()
        };
        let whole = query.outer.sql(&query.joined);
        let truth = match self.outer_of(query, joined).await {
            Ok(Some(truth)) => truth,
            Ok(None) => {
                outcome.too_many = true;
                return Ok(outcome);
            }
            Err(_) => {
                outcome.failed_in_both = true;
                return Ok(outcome);
            }
        };
        // Under the same options, which its planner goes by.
        let stock = self.stock_session(options);
        let drawn = Drawn::of(&stock);
        let stock = rows(&stock, &whole).await;
        outcome.drawn_twice |= drawn.again() > 0;
        match stock {
            Ok(_) if outcome.drawn_twice => return Ok(outcome),
            Ok(stock) => outcome.stock_is_wrong = truth.compare(query.outer, &stock).is_err(),
            Err(_) => {
                outcome.failed_in_both = true;
                return Ok(outcome);
            }
        }
        let limited = options.limited().map_err(|e| e.to_string())?;
        let query = Asked {
            query,
            whole: &whole,
            truth: &truth,
            options,
        };
        self.check_ours(&query, &limited, &mut outcome).await?;
        limited.check_left().map_err(|left| left.to_string())?;
        Ok(outcome)
    }

    /// Runs a query by our joins, and compares.
    async fn check_ours(
        &self,
        asked: &Asked<'_>,
        limited: &Limited,
        outcome: &mut Outcome,
    ) -> std::result::Result<(), String> {
        let Asked { query, options, .. } = *asked;
        let session = self.session(options, limited);
        let drawn = Drawn::of(&session);
        let plan = match planned(&session, asked.whole).await {
            Ok(plan) => plan,
            Err(error) => return Err(format!("error of planning: {error}")),
        };
        let shown = || displayable(plan.as_ref()).indent(false).to_string();
        let read = async {
            match options.own_contexts {
                true => read_with_contexts(&session, &plan).await,
                false => collect(Arc::clone(&plan), session.task_ctx()).await,
            }
        };
        let Ok(read) = tokio::time::timeout(LIMIT, read).await else {
            let shown = DisplayableExecutionPlan::with_metrics(plan.as_ref());
            return Err(format!("no end\n{}", shown.indent(false)));
        };
        let again = drawn.again();
        match read {
            Err(error) if options.pool.is_some() && is_exhausted(&error) => {
                outcome.exhausted = true
            }
            Err(error) => return Err(format!("error: {error}\n{}", shown())),
            Ok(batches) => {
                let is_merged =
                    options.own_contexts && plan.output_partitioning().partition_count() > 1;
                let found = Rows::from_batches(&batches, is_merged).map_err(|e| e.to_string())?;
                if let Err(how) = asked.truth.compare(query.outer, &found) {
                    if !self
                        .is_theirs(asked, &plan)
                        .await
                        .map_err(|e| format!("{how}; {e}"))?
                    {
                        return Err(format!("{how}\n{}", shown()));
                    }
                    outcome.stock_is_wrong = true;
                }
            }
        }
        if again > 0 {
            return Err(format!("{again} values drawn again\n{}", shown()));
        }
        outcome.look_at(&plan);
        // Drawn again, volatile keys show nothing of what inputs and DataFusion's joins promise.
        if options.looks_at_promises && !query.is_volatile() {
            let context = session.task_ctx();
            let found = promises::check(&plan, &context).await;
            if let Some(error) = found.failed.first() {
                return Err(format!("error of a part: {error}\n{}", shown()));
            }
            if let Some(broken) = found.broken.first() {
                return Err(format!("broken promise: {broken}\n{}", shown()));
            }
            outcome.promises = found.promises;
            outcome.inherited = found.inherited;
        }
        match options.consumer {
            Some(seed) => self.misread(asked, (&session, plan), seed, outcome).await,
            None => Ok(()),
        }
    }

    /// Has a consumer that misbehaves read what was `asked`: `plan` once more, or a new one if that
    /// has drawn values, or filters that know its first rows.
    async fn misread(
        &self,
        asked: &Asked<'_>,
        (session, plan): (&SessionContext, Arc<dyn ExecutionPlan>),
        seed: u64,
        outcome: &mut Outcome,
    ) -> std::result::Result<(), String> {
        let Asked {
            query,
            truth,
            options,
            ..
        } = *asked;
        let drawn = Drawn::of(session);
        let unread = !query.is_volatile() && can_be_left_unread(&plan, options);
        let (plan, allows) = match query.is_volatile() || keeps_first_rows(&plan) {
            true => {
                let plan = planned(session, asked.whole)
                    .await
                    .map_err(|e| e.to_string())?;
                (
                    plan,
                    Allows {
                        again: false,
                        copies: false,
                        unread,
                    },
                )
            }
            false => {
                let again = runs_again(&plan, options);
                (
                    plan,
                    Allows {
                        again,
                        copies: true,
                        unread,
                    },
                )
            }
        };
        let shown = |how: &dyn Display| {
            let plan = displayable(plan.as_ref());
            format!(
                "read by a consumer, {allows:?}: {how}\n{}",
                plan.indent(false)
            )
        };
        let kept = consumer::read(&plan, allows, || session.task_ctx(), seed).await;
        // The plan may be run once more below.
        let again = drawn.again();
        let kept = kept.map_err(|how| shown(&how))?;
        outcome.misread = 1;
        outcome.dropped = kept.dropped();
        outcome.left_unread = usize::from(kept.unread > 0);
        outcome.read_twice = usize::from(kept.rounds > 1 || kept.nodes.len() > 1);
        for node in 0..kept.nodes.len() {
            if let Some(error) = kept.of(node).find_map(|asked| asked.error.as_ref()) {
                match options.pool.is_some() && is_exhausted(error) {
                    true => continue,
                    false => return Err(shown(error)),
                }
            }
            let batches = kept.of(node).filter(|asked| !asked.is_dropped);
            let batches: Vec<_> = batches.flat_map(|asked| asked.batches.clone()).collect();
            let found = Rows::from_batches(&batches, true).map_err(|e| e.to_string())?;
            let times = (kept.rounds, kept.is_whole(node));
            if let Err(how) = truth.compare_kept(query.outer, times, &found)
                && !self
                    .is_theirs(asked, &plan)
                    .await
                    .map_err(|e| format!("{how}; {e}"))?
            {
                return Err(shown(&how));
            }
        }
        match again {
            0 => Ok(()),
            again => Err(shown(&format!("{again} values drawn again"))),
        }
    }

    /// Returns whether rows of `plan` differ by a mistake of DataFusion's.
    async fn is_theirs(&self, asked: &Asked<'_>, plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
        let Asked {
            query,
            whole,
            truth,
            options,
        } = *asked;
        // Of as much memory as DataFusion's own joins take.
        let context = self.stock_session(options).task_ctx();
        // Joins whose sides are as planned promise what DataFusion's own does.
        Ok(promises::stock_breaks_one(plan, &context).await?
            || self
                .errs_at_times(truth, query.outer, (whole, options))
                .await)
    }

    /// Returns whether DataFusion answers the `whole` query wrong in one of some tries: what its
    /// tasks share can make that depend on time.
    async fn errs_at_times(
        &self,
        truth: &Rows,
        outer: Outer,
        (whole, options): (&str, &Options),
    ) -> bool {
        for _ in 0..TRIES {
            let stock = self.stock_session(options);
            let _drawn = Drawn::of(&stock);
            let found = rows(&stock, whole).await;
            if found.is_ok_and(|found| truth.compare(outer, &found).is_err()) {
                return true;
            }
        }
        false
    }

    /// Returns the rows of DataFusion's joins.
    ///
    /// # Errors
    /// The rows have no end.
    async fn join(&self, query: &Query) -> std::result::Result<Joined, String> {
        let drawn = Drawn::of(&self.truth);
        let sql = format!("SELECT * FROM {} q", query.joined);
        let run = async {
            let plan = planned(&self.truth, &sql).await?;
            let rows = collect(Arc::clone(&plan), self.truth.task_ctx()).await?;
            Ok((plan.schema(), rows))
        };
        let run = tokio::time::timeout(LIMIT, run).await;
        Ok(Joined {
            rows: run.map_err(|_| format!("no end of DataFusion's\n{sql}"))?,
            is_drawn_twice: drawn.again() > 0,
        })
    }

    /// Returns the rows of the outer query over a table of what is joined; `None` if those are too
    /// many.
    async fn outer_of(&self, query: &Query, joined: Joined) -> Result<Option<Rows>> {
        let (schema, batches) = joined.rows?;
        if count(&batches) > MOST_ROWS {
            return Ok(None);
        }
        let joined = MemTable::try_new(schema, vec![batches])?;
        self.truth.register_table("joined", Arc::new(joined))?;
        let outer = match query.outer {
            // Any rows will do, and as many as there are.
            Outer::Some(_) => Outer::All,
            outer => outer,
        };
        let rows = rows(&self.truth, &outer.sql("joined")).await;
        self.truth.deregister_table("joined")?;
        rows.map(Some)
    }

    /// Returns a session with joins of DataFusion, under `options` without their limit on memory.
    fn stock_session(&self, options: &Options) -> SessionContext {
        let state = self.stock.state();
        let builder = SessionStateBuilder::new_from_existing(state);
        SessionContext::new_with_state(builder.with_config(options.config()).build())
    }

    fn session(&self, options: &Options, limited: &Limited) -> SessionContext {
        let mut config = options.config();
        config.options_mut().extensions.insert(HortonConfig {
            enabled: match options.on_device {
                true => Enabled::Always,
                false => Enabled::Auto,
            },
            min_build_rows: if options.on_device { 0 } else { usize::MAX },
            device: horton_test_support::env::asked(),
            chunk_rows: options.chunk_rows,
            filters: options.filters,
            knobs: Knobs {
                sample_rows: options.sample_rows,
                joins_from_last: options.joins_from_last,
                ..Knobs::default()
            },
            ..HortonConfig::default()
        });
        let state = self.stock.state();
        let mut builder = SessionStateBuilder::new_from_existing(state).with_config(config);
        builder = builder.with_runtime_env(Arc::clone(&limited.runtime));
        if let Some(bytes) = options.pool {
            let execution = &mut builder
                .config()
                .get_or_insert_default()
                .options_mut()
                .execution;
            // By default a sort asks for 10 MB before its first row.
            execution.sort_spill_reservation_bytes = bytes / 64;
        }
        let mut builder = horton_join::install(builder);
        if options.keep_sides {
            builder = keep_sides(builder);
        }
        SessionContext::new_with_state(builder.build())
    }
}

async fn planned(session: &SessionContext, sql: &str) -> Result<Arc<dyn ExecutionPlan>> {
    session.sql(sql).await?.create_physical_plan().await
}

async fn rows(session: &SessionContext, sql: &str) -> Result<Rows> {
    let plan = planned(session, sql).await?;
    Rows::from_batches(&collect(plan, session.task_ctx()).await?, false)
}

/// Reads all partitions at once, each with a context of its own.
async fn read_with_contexts(
    session: &SessionContext,
    plan: &Arc<dyn ExecutionPlan>,
) -> Result<Vec<RecordBatch>> {
    let partitions = 0..plan.output_partitioning().partition_count();
    let streams = partitions.map(|partition| plan.execute(partition, session.task_ctx()));
    let streams = streams.collect::<Result<Vec<_>>>()?.into_iter();
    let batches = try_join_all(streams.map(|stream| stream.try_collect::<Vec<_>>())).await?;
    Ok(batches.concat())
}

fn count(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Returns whether partitions of `plan` may be asked for twice: by all of its nodes. A repartition
/// gives each out once, and so does a join on a device in the place of one. Those of a scan share a
/// queue of files. A LIMIT may have other rows each time.
///
/// Tasks of two readers mix their calls. DataFusion's joins count the streams that ended, and so do
/// ours on the host, and those that build the side that ended second. Which partition has build
/// rows then depends on time. Inner joins have no build rows without a match.
fn runs_again(plan: &Arc<dyn ExecutionPlan>, options: &Options) -> bool {
    let joins = HortonJoinExec::all_in(plan);
    let shares = |join: &&HortonJoinExec| join.planned_mode() == PartitionMode::Partitioned;
    let is_inner = |join: &&HortonJoinExec| *join.stock().join_type() == JoinType::Inner;
    let is_limited = |join: &&HortonJoinExec| join.children().into_iter().any(has_limit);
    let emits_alike = options.on_device && options.keep_sides && options.pool.is_none();
    (emits_alike || joins.iter().all(is_inner))
        && !(options.on_device && joins.iter().any(shares))
        && !joins.iter().any(is_limited)
        && scans_of_files(plan) == 0
        && nodes::<RepartitionExec>(plan).is_empty()
        && nodes::<HashJoinExec>(plan).is_empty()
        && nodes::<NestedLoopJoinExec>(plan).is_empty()
        && nodes::<CrossJoinExec>(plan).is_empty()
}

/// Returns whether streams of `plan` can be dropped unread, and asked for again. A
/// `RepartitionExec` gives each partition out once, and so does a join on a device in the place of
/// one. A sort that keeps first rows counts those that end. Two others of DataFusion's nodes read
/// before they are polled. So a plan with them must be one that [`runs_again`]. Under a limit on
/// memory, what was read of files is not kept.
fn can_be_left_unread(plan: &Arc<dyn ExecutionPlan>, options: &Options) -> bool {
    let joins = HortonJoinExec::all_in(plan);
    let shares = |join: &&HortonJoinExec| join.planned_mode() == PartitionMode::Partitioned;
    let reads_early = !nodes::<CoalescePartitionsExec>(plan).is_empty()
        || !nodes::<SortPreservingMergeExec>(plan).is_empty();
    nodes::<RepartitionExec>(plan).is_empty()
        && !(options.on_device && joins.iter().any(shares))
        && !keeps_first_rows(plan)
        && (!reads_early || runs_again(plan, options))
        && (options.pool.is_none() || scans_of_files(plan) == 0)
}

fn has_limit(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.fetch().is_some() || plan.children().into_iter().any(has_limit)
}

/// Returns whether a sort of `plan` has given scans its first rows, which do not pass again.
fn keeps_first_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    nodes::<SortExec>(plan)
        .iter()
        .any(|sort| sort.fetch().is_some())
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}
