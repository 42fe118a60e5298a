//! What became of queries: how many say something, and what they made joins do.
//!
//! ```text
//!  query ─▶ Outcome ─┐
//!  query ─▶ Outcome ─┴▶ Tally ─▶ one line; too many that say nothing fail the run
//! ```

use std::sync::Arc;
use std::time::Duration;

use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use horton_join::HortonJoinExec;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::nodes;

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
const COUNTS: usize = 16;

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
        assert!(5 * misread >= all && 8 * dropped >= misread && 20 * twice >= misread);
    }
}

impl Outcome {
    /// Counts what joins of an executed plan did.
    pub fn look_at(&mut self, plan: &Arc<dyn ExecutionPlan>) {
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

    fn counts(&self) -> [usize; COUNTS] {
        [
            1,
            self.failed_in_both.into(),
            self.drawn_twice.into(),
            self.too_many.into(),
            self.stock_is_wrong.into(),
            self.exhausted.into(),
            self.joins,
            self.launches,
            self.spilled,
            self.filters,
            self.trees,
            self.most_joins,
            self.scans_of_files,
            self.misread,
            self.dropped,
            self.read_twice,
        ]
    }
}

/// Scans of `plan` whose partitions share a queue of files.
pub fn scans_of_files(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let scans = nodes::<DataSourceExec>(plan);
    let scans = scans
        .iter()
        .filter_map(|scan| scan.downcast_ref::<DataSourceExec>());
    let of_files = scans.filter(|scan| scan.data_source().is::<FileScanConfig>());
    of_files.count()
}
