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
    /// Plans whose streams it dropped unread, and asked for again.
    pub left_unread: usize,
    /// Plans that it executed twice without a reset in between, or beside a copy.
    pub read_twice: usize,
    pub promises: usize,
    pub inherited: Vec<String>,
}

/// Counts of an outcome, or of many.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    failed: usize,
    drawn: usize,
    many: usize,
    wrong: usize,
    exhausted: usize,
    joins: usize,
    launches: usize,
    spilled: usize,
    filters: usize,
    trees: usize,
    most: usize,
    files: usize,
    misread: usize,
    dropped: usize,
    unread: usize,
    twice: usize,
}

/// What became of all queries.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Counts,
    promises: usize,
    inherited: usize,
    pub differences: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, outcome: Outcome) {
        self.counts.add(&outcome.counts());
        self.promises += outcome.promises;
        self.inherited += outcome.inherited.len();
    }

    pub fn text(&self, seed: u64, took: Duration) -> String {
        let Counts {
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
            unread,
            twice,
        } = self.counts;
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
             misread, {dropped} streams of them dropped, {unread} of them first left unread, \
             {twice} of them twice, \
             {promises} promises held, {inherited} broken by inputs as well, {took:.0?})"
        )
    }

    /// Checks that enough queries said something.
    pub fn assert_that_it_shows_something(&self) {
        let Counts { all, .. } = self.counts;
        let of = &self.counts;
        let silent = of.failed + of.drawn + of.many + of.exhausted;
        assert!(2 * silent <= all, "{silent} of {all} queries say nothing");
        assert!(of.joins >= all && of.launches >= all);
        assert!(200 * of.spilled >= all && of.filters >= all / 2);
        assert!(self.promises >= all);
        assert!(3 * of.trees >= all && 10 * of.most >= all && of.files >= all);
        let misread = of.misread;
        assert!(5 * misread >= all && 8 * of.dropped >= misread && 20 * of.twice >= misread);
        assert!(of.unread > 0 || misread < 100);
    }
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.all += other.all;
        self.failed += other.failed;
        self.drawn += other.drawn;
        self.many += other.many;
        self.wrong += other.wrong;
        self.exhausted += other.exhausted;
        self.joins += other.joins;
        self.launches += other.launches;
        self.spilled += other.spilled;
        self.filters += other.filters;
        self.trees += other.trees;
        self.most += other.most;
        self.files += other.files;
        self.misread += other.misread;
        self.dropped += other.dropped;
        self.unread += other.unread;
        self.twice += other.twice;
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

    fn counts(&self) -> Counts {
        Counts {
            all: 1,
            failed: self.failed_in_both.into(),
            drawn: self.drawn_twice.into(),
            many: self.too_many.into(),
            wrong: self.stock_is_wrong.into(),
            exhausted: self.exhausted.into(),
            joins: self.joins,
            launches: self.launches,
            spilled: self.spilled,
            filters: self.filters,
            trees: self.trees,
            most: self.most_joins,
            files: self.scans_of_files,
            misread: self.misread,
            dropped: self.dropped,
            unread: self.left_unread,
            twice: self.read_twice,
        }
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
