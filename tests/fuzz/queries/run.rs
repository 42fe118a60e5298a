//! Runs a query on both sides, and compares.

use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::UnboundedMemoryPool;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use futures::future::try_join_all;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, Filters, HortonConfig, Knobs};
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::{keep_sides, nodes};
use horton_test_support::promises;
use tempfile::TempDir;

use super::super::consumer::{self, Allows};
use super::super::limited::Limited;
use super::super::numbers::Random;
use super::draw::{Outer, Query};
use super::pool::Pool;
use super::tables::{Drawn, register};

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
        Self {
            partitions: random.pick(&[1, 2, 3, 4]),
            batch_size: random.pick(&[16, 64, 256, 8192]),
            partitioned: random.one_in(3),
            keep_sides: random.one_in(4),
            on_device: random.one_in(2),
            sample_rows: random.pick(&[1, 20, 100, 1 << 20]),
            chunk_rows: random.pick(&[50, 1000, 1 << 16]),
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
        }
    }

    /// The memory and files of runs.
    fn limited(&self) -> Result<Limited> {
        Limited::of(match self.pool {
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

/// Runs queries beside a session of DataFusion.
pub struct Runner {
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

/// What became of a query.
#[derive(Debug, Default)]
pub struct Outcome {
    /// DataFusion fails, too.
    pub failed_in_both: bool,
    /// DataFusion evaluates a function more than once.
    pub drawn_twice: bool,
    /// More rows than are worth it.
    pub too_many: bool,
    /// DataFusion's answer to the whole query differs from its answer in two steps.
    pub stock_is_wrong: bool,
    /// The memory pool had too little.
    pub exhausted: bool,
    pub joins: usize,
    pub launches: usize,
    pub spilled: usize,
    pub filters: usize,
    /// Trees of joins.
    pub trees: usize,
    /// Plans of six joins or more.
    pub most_joins: usize,
    pub scans_of_files: usize,
    /// A consumer that misbehaves read it.
    pub misread: usize,
    /// Streams that the consumer dropped.
    pub dropped: usize,
    /// Plans that it executed twice without a reset in between, or beside a copy.
    pub read_twice: usize,
    pub promises: usize,
    pub inherited: Vec<String>,
}

/// Counts of an outcome.
pub const COUNTS: usize = 16;

/// What became of all queries.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [usize; COUNTS],
    promises: usize,
    inherited: usize,
    pub differences: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, outcome: Outcome) {
        for (sum, count) in self.counts.iter_mut().zip(outcome.counts()) {
            *sum += count;
        }
        self.promises += outcome.promises;
        self.inherited += outcome.inherited.len();
    }

    pub fn text(&self, seed: u64, took: Duration) -> String {
        let [
            all,
            failed,
            drawn,
            many,
            wrong,
            exhausted,
            joins,
            launches,
            spilled,
            filters,
            trees,
            most,
            files,
            misread,
            dropped,
            twice,
        ] = self.counts;
        let Self {
            promises,
            inherited,
            differences,
            ..
        } = self;
        let differences = differences.len();
        format!(
            "queries: {all}, seed {seed}, {differences} differences ({failed} fail in DataFusion, \
             {drawn} drawn twice by it, {many} of too many rows, {wrong} that DataFusion answers \
             wrong, {exhausted} out of memory; {joins} joins, {launches} kernel launches, \
             {spilled} joins on disk, {filters} scans with filters, \
             {trees} trees, {most} plans of six joins or more, {files} scans of files, {misread} \
             misread, {dropped} streams of them dropped, {twice} of them twice, {promises} promises held, \
             {inherited} broken by inputs as well, {took:.0?})"
        )
    }

    /// Checks that enough queries said something.
    pub fn assert_that_it_shows_something(&self) {
        let [
            all,
            failed,
            drawn,
            many,
            _,
            exhausted,
            joins,
            launches,
            spilled,
            filters,
            trees,
            most,
            files,
            misread,
            dropped,
            twice,
        ] = self.counts;
        let silent = failed + drawn + many + exhausted;
        assert!(2 * silent <= all, "{silent} of {all} queries say nothing");
        assert!(joins >= all && launches >= all && 200 * spilled >= all && filters >= all / 2);
        assert!(self.promises >= all);
        assert!(3 * trees >= all && 10 * most >= all && files >= all);
        assert!(4 * misread >= all && dropped >= misread / 4 && 10 * twice >= misread);
    }
}

impl Runner {
    pub async fn new() -> Result<Self> {
        let stock = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
        let folder = tempfile::tempdir()?;
        register(&stock, folder.path()).await?;
        Ok(Self {
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
                query = Query::of(&mut random, true);
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
                let found = Rows::of(&batches, is_merged).map_err(|e| e.to_string())?;
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
                    },
                )
            }
            false => {
                let again = runs_again(&plan);
                (
                    plan,
                    Allows {
                        again,
                        copies: true,
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
        let kept = kept.map_err(|how| shown(&how))?;
        outcome.misread = 1;
        outcome.dropped = kept.dropped();
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
            let found = Rows::of(&batches, true).map_err(|e| e.to_string())?;
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
        match drawn.again() {
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
    /// There is no end of them.
    async fn join(&self, query: &Query) -> std::result::Result<Joined, String> {
        let drawn = Drawn::of(&self.stock);
        let sql = format!("SELECT * FROM {} q", query.joined);
        let run = async {
            let plan = planned(&self.stock, &sql).await?;
            let rows = collect(Arc::clone(&plan), self.stock.task_ctx()).await?;
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
        self.stock.register_table("joined", Arc::new(joined))?;
        let outer = match query.outer {
            // Any rows will do, and as many as there are.
            Outer::Some(_) => Outer::All,
            outer => outer,
        };
        let rows = rows(&self.stock, &outer.sql("joined")).await;
        self.stock.deregister_table("joined")?;
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
    Rows::of(&collect(plan, session.task_ctx()).await?, false)
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

fn scans_of_files(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let scans = nodes::<DataSourceExec>(plan);
    let scans = scans
        .iter()
        .filter_map(|scan| scan.downcast_ref::<DataSourceExec>());
    let of_files = scans.filter(|scan| scan.data_source().is::<FileScanConfig>());
    of_files.count()
}

/// Returns whether partitions of `plan` may be asked for twice: by all of its nodes. A repartition
/// gives each out once, those of a scan share a queue of files, and DataFusion's joins count those
/// that ended.
fn runs_again(plan: &Arc<dyn ExecutionPlan>) -> bool {
    scans_of_files(plan) == 0
        && nodes::<RepartitionExec>(plan).is_empty()
        && nodes::<HashJoinExec>(plan).is_empty()
        && nodes::<NestedLoopJoinExec>(plan).is_empty()
        && nodes::<CrossJoinExec>(plan).is_empty()
}

/// Returns whether a sort of `plan` has told scans its first rows, which do not pass again.
fn keeps_first_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    nodes::<SortExec>(plan)
        .iter()
        .any(|sort| sort.fetch().is_some())
}

fn is_exhausted(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_))
}

impl Outcome {
    /// Counts what joins of an executed plan did.
    fn look_at(&mut self, plan: &Arc<dyn ExecutionPlan>) {
        let joins = HortonJoinExec::all_in(plan);
        let metrics = joins.iter().filter_map(|join| join.metrics());
        let launches = metrics.filter_map(|metrics| metrics.sum_by_name("kernel_launches"));
        self.launches = launches.map(|sum| sum.as_usize()).sum();
        let is_on_disk = |join: &&&HortonJoinExec| {
            let mut decisions = join.decisions().into_iter();
            decisions.any(|decision| decision.is_spilled)
        };
        self.spilled = joins.iter().filter(is_on_disk).count();
        self.joins = joins.len();
        self.most_joins = usize::from(self.joins >= 6);
        self.filters = nodes::<DynamicFilterExec>(plan).len();
        self.scans_of_files = scans_of_files(plan);
    }
}

/// Rows as text, in their order.
struct Rows {
    rows: Vec<String>,
    /// They come from several partitions, so that their order says nothing.
    is_merged: bool,
}

impl Rows {
    fn of(batches: &[RecordBatch], is_merged: bool) -> Result<Self> {
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in batches {
            let columns = batch.columns().iter();
            let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
            let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
            for row in 0..batch.num_rows() {
                let mut text = String::new();
                for column in &columns {
                    let _ = write!(text, "{} ", column.value(row));
                }
                rows.push(text);
            }
        }
        Ok(Self { rows, is_merged })
    }

    fn sorted(&self) -> Vec<&str> {
        let mut sorted: Vec<&str> = self.rows.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted
    }

    /// Compares with what was `found` for the `outer` query.
    fn compare(&self, outer: Outer, found: &Self) -> std::result::Result<(), String> {
        let (expected, actual) = (self.sorted(), found.sorted());
        if let Outer::Some(n) = outer {
            let wanted = n.min(expected.len());
            let mut left = expected.iter();
            let all_there = actual.iter().all(|row| left.any(|other| other == row));
            return match actual.len() == wanted && all_there {
                true => Ok(()),
                false => Err(format!("{} of {wanted} rows, or others", actual.len())),
            };
        }
        if expected != actual {
            let at = expected.iter().zip(&actual).position(|(a, b)| a != b);
            let at = at.unwrap_or(expected.len().min(actual.len()));
            return Err(format!(
                "{} rows for {}; row {at} is {:?} for {:?}",
                actual.len(),
                expected.len(),
                actual.get(at),
                expected.get(at)
            ));
        }
        let is_in_order = match outer {
            _ if found.is_merged => true,
            Outer::First(_) => self.rows == found.rows,
            // Equal rows may come in any order.
            Outer::Ordered => self.keys().eq(found.keys()),
            _ => true,
        };
        match is_in_order {
            true => Ok(()),
            false => Err("order of rows".to_owned()),
        }
    }

    /// Compares with what was `found` of some streams of as many `rounds`: of all, if it `is_whole`.
    fn compare_kept(
        &self,
        outer: Outer,
        (rounds, is_whole): (usize, bool),
        found: &Self,
    ) -> std::result::Result<(), String> {
        let all = self.rows.iter().map(String::as_str);
        let mut left: HashMap<&str, usize> = HashMap::new();
        all.for_each(|row| *left.entry(row).or_default() += rounds);
        for row in &found.rows {
            match left.get_mut(row.as_str()) {
                Some(times) if *times > 0 => *times -= 1,
                _ => return Err(format!("row {row:?}, or too often")),
            }
        }
        let wanted = rounds
            * match outer {
                Outer::Some(n) => n.min(self.rows.len()),
                _ => self.rows.len(),
            };
        let count = found.rows.len();
        match count == wanted || count < wanted && !is_whole {
            true => Ok(()),
            false => Err(format!("{count} of {wanted} rows")),
        }
    }

    /// Returns the first two columns of each row.
    fn keys(&self) -> impl Iterator<Item = Vec<&str>> {
        self.rows.iter().map(|row| row.split(' ').take(2).collect())
    }
}
