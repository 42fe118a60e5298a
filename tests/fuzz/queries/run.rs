//! Runs a query on both sides, and compares.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use futures::future::try_join_all;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, Filters, HortonConfig, Knobs};
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::{keep_sides, nodes};
use horton_test_support::promises;

use super::super::numbers::Random;
use super::draw::{Outer, Query};
use super::pool::Pool;
use super::tables::{Drawn, register};

/// Joined rows of a query that is worth its time.
const MOST_ROWS: usize = 20_000;

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
    /// Each output partition is executed with a context of its own.
    own_contexts: bool,
    /// What nodes promise is held against their rows.
    looks_at_promises: bool,
}

impl Options {
    fn random(random: &mut Random, outer: Outer) -> Self {
        let sorts = matches!(
            outer,
            Outer::First(_) | Outer::Ordered | Outer::Windows | Outer::Falls
        );
        // A sort of the first rows alone asks for hundreds of kilobytes, and cannot go to disk.
        let least = if sorts { 19 } else { 12 };
        let pool = random.one_in(3).then(|| 1 << (least + random.below(4)));
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
            looks_at_promises: pool.is_none() && random.one_in(4),
        }
    }

    fn config(&self) -> SessionConfig {
        let config = SessionConfig::new()
            .with_target_partitions(self.partitions)
            .with_batch_size(self.batch_size)
            // The tables of the other session stay.
            .with_create_default_catalog_and_schema(false);
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
    pub promises: usize,
    pub inherited: Vec<String>,
}

/// What became of all queries.
#[derive(Debug, Default)]
pub struct Tally {
    counts: [usize; 10],
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
             {spilled} joins on disk, {filters} scans with filters, {promises} promises held, \
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
        ] = self.counts;
        let silent = failed + drawn + many + exhausted;
        assert!(2 * silent <= all, "{silent} of {all} queries say nothing");
        assert!(joins >= all && launches >= all && 200 * spilled >= all && filters >= all / 2);
        assert!(self.promises >= all);
    }
}

impl Runner {
    pub fn new() -> Result<Self> {
        let stock = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
        register(&stock)?;
        Ok(Self { stock })
    }

    /// Runs the query of `seed` on both sides.
    ///
    /// # Errors
    /// What differs.
    pub async fn check(&self, seed: u64) -> std::result::Result<Outcome, String> {
        let mut random = Random::new(seed);
        let query = Query::random(&mut random);
        let options = Options::random(&mut random, query.outer);
        let about = || format!("{}\n{options:?}", query.outer.sql(&query.joined));
        let checked = self.check_query(&query, &options);
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
        options: &Options,
    ) -> std::result::Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let whole = query.outer.sql(&query.joined);
        let drawn = Drawn::of(&self.stock);
        let truth = match self.in_two_steps(query).await {
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
        outcome.drawn_twice = drawn.again() > 0;
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
        let session = self.session(options).map_err(|e| e.to_string())?;
        let drawn = Drawn::of(&session);
        let plan = match planned(&session, &whole).await {
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
                if let Err(how) = truth.compare(query.outer, &found) {
                    // Of as much memory as DataFusion's own joins take.
                    let context = self.stock_session(options).task_ctx();
                    // Joins whose sides are as planned promise what DataFusion's own does.
                    let breaks = promises::stock_breaks_one(&plan, &context).await;
                    let is_theirs = breaks.map_err(|e| format!("{how}; {e}"))?
                        || self
                            .errs_at_times(&truth, query.outer, (&whole, options))
                            .await;
                    if !is_theirs {
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
        if options.looks_at_promises && !query.joined.contains("once(") {
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
        Ok(outcome)
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

    /// Returns the rows of DataFusion's joins, and of the outer query over a table of them; `None`
    /// if the joined rows are too many.
    async fn in_two_steps(&self, query: &Query) -> Result<Option<Rows>> {
        let plan = planned(&self.stock, &format!("SELECT * FROM {} q", query.joined)).await?;
        let batches = collect(Arc::clone(&plan), self.stock.task_ctx()).await?;
        let count: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if count > MOST_ROWS {
            return Ok(None);
        }
        let joined = MemTable::try_new(plan.schema(), vec![batches])?;
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

    fn session(&self, options: &Options) -> Result<SessionContext> {
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
        if let Some(bytes) = options.pool {
            let pool = Arc::new(Pool::new(bytes));
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool);
            builder = builder.with_runtime_env(runtime.build_arc()?);
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
        Ok(SessionContext::new_with_state(builder.build()))
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
        self.filters = nodes::<DynamicFilterExec>(plan).len();
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

    /// Returns the first two columns of each row.
    fn keys(&self) -> impl Iterator<Item = Vec<&str>> {
        self.rows.iter().map(|row| row.split(' ').take(2).collect())
    }
}
