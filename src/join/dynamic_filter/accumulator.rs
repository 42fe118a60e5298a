//! The filters that a build side gives the scans of the probe side: a dynamic filter per key
//! column, and one over all of them.
//!
//! ```text
//!  build 0 ─ keys ─┐
//!  build 1 ─ keys ─┼─▶ FilterAccumulator ── all in ──▶ each filter is updated once ─▶ probes begin
//!  build n ─ gone ─┘
//!
//!  key >= min AND key <= max      for pruning files, row groups and pages
//!  AND key IN (…)                 likewise, of few values
//!  AND key IN bitmap | bloom      for rows, where somebody evaluates them
//!  (key, key) IN bloom            likewise, if there are several: no bounds
//! ```
//!
//! DataFusion's `SharedBuildAccumulator` makes one filter over all key columns, a hash table
//! lookup per partition. A filter that names columns of two scans reaches neither, and the lookup
//! is a second hash table that one core fills. Here each column has its own filter, which goes down
//! to the scan that has the column, and several builds have one [set](MembershipFilter) together.
//! Of returns, which have nearly all articles and many tickets, only the pairs leave sales out. So
//! a scan that has all key columns has a filter over them as well.
//!
//! A set that takes long to fill is not made if a sample of the scan's rows shows that most of them
//! pass ([`selectivity`](crate::keys::selectivity)). That is known of a table in memory right below
//! the join.
//!
//! A filter is never needed for right rows: it may be missing (a build was dropped, the memory
//! pool refused the set) or late.
//!
//! A set spares the work that lies between the scan and the join. If none does, and a device other
//! than a CPU looks the keys up, it spares nothing: the host would test each key in its own memory,
//! and copy rows that the join gathers once more. So no set is made if that is known before, and
//! the [sets go](FilterAccumulator::drop_sets) if not. Bounds stay.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use arrow::datatypes::DataType;
use datafusion::common::NullEquality;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, InListExpr, lit};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::Time;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::error::Result;

use super::predicates::{and, bounds, or_null};
use super::publisher::FilterPublisher;
use super::targets::{FEW_ROWS, KeyFilter, SideTargets, sampled_keys};
use crate::join::key_range::are_dense;
use crate::join::memory::{ROW_BYTES, filter_reservation};
use crate::keys::membership::{FilterHandle, InFilterExpr, MembershipFilter};
use crate::keys::selectivity::are_most_among;

/// The part of a scan's rows from which on a filter is not worth a set: a little more than the scan
/// copies rows for, as it is taken from a sample.
const MOST_PASSING: f64 = 0.75;

/// The keys of one build.
#[derive(Debug, Clone)]
pub struct BuildKeys {
    /// Rows of the build side.
    pub rows: usize,
    /// An upper bound of the number of different keys.
    pub distinct: usize,
    /// `keys[b][c]`: key column `c` of batch `b`.
    pub keys: Vec<Vec<ArrayRef>>,
    /// True if sets would spare nothing: a device other than a CPU looks up all rows of the scan.
    pub for_device: bool,
}

/// Collects the keys of all builds of a run, and updates its filters once.
pub struct FilterAccumulator {
    /// The join, its build side on the left.
    join: Arc<HashJoinExec>,
    /// The filters that some scan holds.
    filters: Vec<KeyFilter>,
    /// Build rows up to which sets are worth their time, if known (see
    /// [`targets`](super::targets)).
    most_rows: Option<usize>,
    /// The session's options: limits of value lists, and parts that are worked on at once.
    context: Arc<TaskContext>,
    publisher: Weak<FilterPublisher>,
    /// Reservation for the sets.
    memory: MemoryReservation,
    /// Reservation for the keys of builds that wait for others: DataFusion's own join copies its
    /// build side.
    waiting: MemoryReservation,
    /// Reports of all builds: `None` until one reports, `Some(None)` if it was dropped.
    reports: Mutex<Vec<Option<Option<BuildKeys>>>>,
    /// Filters whose sets may go, with what is left of them then.
    without_sets: Mutex<Vec<WithoutSet>>,
    /// True if each row that passes is probed next.
    is_next_to_scan: bool,
    /// Build rows below which the host joins.
    host_rows: usize,
    /// Number of builds.
    count: usize,
    /// Builds that a stream was asked for so far; `None` once all of them go on.
    builds: Mutex<Option<Vec<Driver>>>,
    complete: watch::Sender<bool>,
}

/// A filter whose set may go.
struct WithoutSet {
    filter: Arc<DynamicFilterPhysicalExpr>,
    /// The bounds that are left then.
    rest: PhysicalExprRef,
    /// What holds the set, and its memory.
    slot: Arc<FilterHandle>,
}

/// What a filter tests.
struct Predicate {
    /// Bounds and a list of values, by which files are pruned.
    pruning: Option<PhysicalExprRef>,
    /// True if there is a list: then there are few values.
    has_list: bool,
    /// The set of the values, by which rows are tested. It excludes all that `pruning` does.
    set: Option<Arc<InFilterExpr>>,
}

/// A future that drives a build; `None` if the build is gone. Holds the build weakly, as that owns
/// its report.
pub type Driver = Box<dyn Fn() -> Option<BoxFuture<'static, ()>> + Send + Sync>;

impl std::fmt::Debug for FilterAccumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterAccumulator")
            .field("filters", &self.filters)
            .finish_non_exhaustive()
    }
}

/// The report that one build makes to an accumulator. If it is dropped first, it reports that no
/// keys will come.
#[derive(Debug)]
pub struct BuildReport {
    accumulator: Arc<FilterAccumulator>,
    partition: usize,
    reported: bool,
}

impl FilterAccumulator {
    /// Returns an accumulator for `builds` builds of one execution of `join`, whose build side is
    /// the left one. They make the filters of `targets`.
    pub fn new(
        join: Arc<HashJoinExec>,
        targets: &SideTargets,
        builds: usize,
        publisher: &Arc<FilterPublisher>,
        context: &Arc<TaskContext>,
    ) -> Arc<Self> {
        let memory = filter_reservation(context.memory_pool());
        Arc::new(Self {
            join,
            filters: targets.held.clone(),
            most_rows: targets.most_rows,
            context: Arc::clone(context),
            publisher: Arc::downgrade(publisher),
            waiting: memory.new_empty(),
            memory,
            reports: Mutex::new(vec![None; builds]),
            without_sets: Mutex::default(),
            is_next_to_scan: targets.is_next_to_scan,
            host_rows: targets.host_rows,
            count: builds,
            builds: Mutex::new(Some(Vec::new())),
            complete: watch::Sender::new(false),
        })
    }

    /// Returns the report that build `partition` is to make.
    pub fn report(self: &Arc<Self>, partition: usize) -> BuildReport {
        BuildReport {
            accumulator: Arc::clone(self),
            partition,
            reported: false,
        }
    }

    /// Notes a build that a stream drives.
    pub fn add(&self, build: Driver) {
        if let Some(builds) = &mut *lock(&self.builds) {
            builds.push(build);
        }
    }

    /// Waits until every build has reported. All go on meanwhile, as a consumer may poll one stream
    /// to its end before the next. Does not wait for builds that no stream was asked for.
    pub async fn complete(&self) {
        if !self.drive() {
            return;
        }
        let mut complete = self.complete.subscribe();
        // The sender lives in the accumulator, so waiting cannot fail.
        let _ = complete.wait_for(|complete| *complete).await;
    }

    /// Has all builds go on. Returns whether a stream was asked for each.
    fn drive(&self) -> bool {
        let mut builds = lock(&self.builds);
        let Some(asked) = &*builds else {
            return true;
        };
        if asked.len() < self.count {
            return false;
        }
        if let Some(publisher) = self.publisher.upgrade() {
            // A build that is gone has reported, or never will.
            publisher.drive(asked.iter().filter_map(|build| build()));
        }
        *builds = None;
        true
    }

    /// Returns the `build_keys`, if there is memory for keys that wait.
    fn kept(&self, build_keys: BuildKeys) -> Option<BuildKeys> {
        let keys = build_keys.keys.iter().flatten().filter(|_| self.count > 1);
        let bytes = keys.map(|key| key.get_array_memory_size()).sum();
        self.waiting.try_grow(bytes).ok().map(|()| build_keys)
    }

    /// Notes a build's report. Returns those of all builds, if it was the last.
    fn note(
        &self,
        partition: usize,
        build_keys: Option<BuildKeys>,
    ) -> Option<Vec<Option<BuildKeys>>> {
        let mut reports = lock(&self.reports);
        if let Some(report) = reports.get_mut(partition) {
            *report = Some(build_keys);
        }
        if reports.iter().all(Option::is_some) {
            std::mem::take(&mut *reports).into_iter().collect()
        } else {
            None
        }
    }

    async fn update(&self, build_keys: &BuildKeys) -> Result<()> {
        for filter in &self.filters {
            let Predicate {
                pruning,
                has_list,
                set,
            } = match filter.keys.as_slice() {
                [key] => self.predicate(filter, *key, build_keys).await?,
                _ => self.predicate_over_all(filter, build_keys).await?,
            };
            let slot = set.as_ref().map(|set| Arc::clone(set.slot()));
            let of_set = set.map(|set| set as PhysicalExprRef);
            if let Some(slot) = slot.as_ref().filter(|_| !has_list) {
                lock(&self.without_sets).push(WithoutSet {
                    filter: Arc::clone(&filter.filter),
                    rest: pruning.clone().unwrap_or_else(|| lit(true)),
                    slot: Arc::clone(slot),
                });
            }
            let predicate = [pruning, of_set].into_iter().flatten().reduce(and);
            let predicate = predicate.unwrap_or_else(|| lit(true));
            log::debug!("filter of {} build rows: {predicate}", build_keys.rows);
            // Not held over an await: the execution ends with its streams.
            let Some(publisher) = self.publisher.upgrade() else {
                break;
            };
            publisher.publish(&filter.filter, predicate, slot)?;
        }
        Ok(())
    }

    /// Takes the sets out of the filters, as the device looks up all keys that it is sent. A set
    /// stays where it spares work between the scan and the join, or where several builds have it
    /// together. So does one of few values, of which there is a list.
    ///
    /// # Errors
    /// If a filter cannot be set.
    pub fn drop_sets(&self) -> Result<()> {
        if !self.may_spare_sets() {
            return Ok(());
        }
        let Some(publisher) = self.publisher.upgrade() else {
            return Ok(());
        };
        for WithoutSet { filter, rest, slot } in std::mem::take(&mut *lock(&self.without_sets)) {
            publisher.publish(&filter, rest, None)?;
            // An update looks to others as if more were to come.
            filter.mark_complete();
            slot.clear();
        }
        Ok(())
    }

    /// Returns the predicate that key number `number` of a probe row must satisfy to meet a build
    /// row.
    async fn predicate(
        &self,
        filter: &KeyFilter,
        number: usize,
        build_keys: &BuildKeys,
    ) -> Result<Predicate> {
        let probe_schema = self.join.right().schema();
        let key = self.probe_key(number);
        let keys = columns_of(build_keys, &filter.keys);
        let nulls = count_nulls(&keys);
        let nulls_pass = self.nulls_pass(nulls) && key.nullable(&probe_schema)?;
        if nulls == build_keys.rows {
            return Ok(Predicate {
                pruning: Some(or_null(lit(false), &key, nulls_pass)),
                has_list: false,
                set: None,
            });
        }
        let of_key = key.data_type(&probe_schema)?;
        let bounds = bounds((&key, &of_key), &keys, self.width()).await?;
        let list = match &bounds {
            Some(_) => self.list(&key, &keys, build_keys)?,
            None => None,
        };
        let has_list = list.is_some();
        let pruning = [bounds, list].into_iter().flatten().reduce(and);
        let pruning = pruning.map(|pruning| or_null(pruning, &key, nulls_pass));
        let is_spared = !has_list && build_keys.for_device;
        let set = if self.makes_set(filter, build_keys) && !is_spared {
            self.set(filter, &keys, build_keys).await?
        } else {
            None
        };
        let set = set.map(|set| {
            let is_repeated = self.is_repeated(&set, &of_key, build_keys);
            Arc::new(InFilterExpr::new(vec![key], set, nulls_pass).repeated(is_repeated))
        });
        Ok(Predicate {
            pruning,
            has_list,
            set,
        })
    }

    /// Returns the predicate that the keys of `filter` together must satisfy. Bounds of each of
    /// them have filters of their own.
    async fn predicate_over_all(
        &self,
        filter: &KeyFilter,
        build_keys: &BuildKeys,
    ) -> Result<Predicate> {
        let keys = columns_of(build_keys, &filter.keys);
        let set = if self.makes_set(filter, build_keys) && !build_keys.for_device {
            self.set(filter, &keys, build_keys).await?
        } else {
            None
        };
        let nulls_pass = self.nulls_pass(count_nulls(&keys));
        let columns = filter.keys.iter().map(|number| self.probe_key(*number));
        let of_columns = |set| Arc::new(InFilterExpr::new(columns.collect(), set, nulls_pass));
        Ok(Predicate {
            pruning: None,
            has_list: false,
            set: set.map(of_columns),
        })
    }

    /// Returns the probe side's key `number`.
    fn probe_key(&self, number: usize) -> PhysicalExprRef {
        Arc::clone(&self.join.on()[number].1)
    }

    /// Returns whether a NULL of the probe side may meet one of the `nulls` that the build side
    /// has.
    fn nulls_pass(&self, nulls: usize) -> bool {
        let equal = self.join.null_equality() == NullEquality::NullEqualsNull && nulls > 0;
        self.join.null_aware || equal
    }

    /// Returns whether sets spare nothing once a device looks up all rows.
    fn may_spare_sets(&self) -> bool {
        self.is_next_to_scan && self.count == 1
    }

    fn makes_set(&self, filter: &KeyFilter, build_keys: &BuildKeys) -> bool {
        let is_worth = self.most_rows.is_none_or(|most| build_keys.rows <= most);
        filter.is_evaluated && is_worth
    }

    /// Returns whether the join on the host looks up the keys of a scan next, in an array of all
    /// values of their range: DataFusion's `ArrayMap`. The build side must be small. Otherwise the
    /// rows of the scan may be repartitioned before.
    fn is_repeated(&self, set: &MembershipFilter, key: &DataType, build_keys: &BuildKeys) -> bool {
        let options = self.context.session_config().options();
        let most = options.optimizer.hash_join_single_partition_threshold / ROW_BYTES;
        let has_array = |range| are_dense(&options.execution, build_keys.rows, range);
        self.is_next_to_scan
            && self.count == 1
            && self.join.on().len() == 1
            && self.join.null_equality() == NullEquality::NullEqualsNothing
            && key.is_integer()
            && build_keys.rows <= most
            && build_keys.rows < self.host_rows
            && set.range().is_some_and(has_array)
    }

    /// Returns how many parts of the keys are worked on at once.
    fn width(&self) -> usize {
        self.context.session_config().target_partitions()
    }

    /// Returns the set of the `keys`, those of `filter`; `None` if a sample shows that most rows of
    /// the scan would pass, or if the memory pool has no room for it.
    async fn set(
        &self,
        filter: &KeyFilter,
        keys: &[Vec<ArrayRef>],
        build_keys: &BuildKeys,
    ) -> Result<Option<Arc<MembershipFilter>>> {
        let build_schema = self.join.left().schema();
        let types = filter.keys.iter().map(|number| {
            let (of_build, _) = &self.join.on()[*number];
            of_build.data_type(&build_schema)
        });
        let types: Vec<DataType> = types.collect::<datafusion::common::Result<_>>()?;
        let set = match MembershipFilter::empty(keys, &types, self.width(), &self.memory).await {
            Ok(set) => set,
            Err(error) if error.is_pool_memory() => {
                log::debug!("no room for the set of a filter: {error}");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let is_cheap = build_keys.rows <= FEW_ROWS || set.is_filled_fast();
        if !is_cheap && self.most_pass(filter, keys, &types).await {
            log::debug!("no set of {} build rows: most rows pass", build_keys.rows);
            return Ok(None);
        }
        set.with(keys, self.width()).await.map(Some)
    }

    /// Returns whether most rows of the scan would pass `filter`, by a sample. With work between
    /// the scan and the join a set spares more than lookups. A `WHERE` there may leave out the rows
    /// that would pass, too.
    async fn most_pass(
        &self,
        filter: &KeyFilter,
        keys: &[Vec<ArrayRef>],
        types: &[DataType],
    ) -> bool {
        if !self.is_next_to_scan {
            return false;
        }
        let Some(sample) = sampled_keys(self.join.right(), filter) else {
            return false;
        };
        let most = (MOST_PASSING, self.width());
        match are_most_among(&sample, keys, types, most).await {
            Ok(most_pass) => most_pass,
            Err(error) => {
                // Without the sample there is a set.
                log::debug!("a sample of a scan's keys: {error}");
                false
            }
        }
    }

    /// Returns `key IN (…)` of a few values, for pruning.
    fn list(
        &self,
        key: &PhysicalExprRef,
        keys: &[Vec<ArrayRef>],
        build_keys: &BuildKeys,
    ) -> Result<Option<PhysicalExprRef>> {
        let options = &self.context.session_config().options().optimizer;
        let keys: Vec<&dyn Array> = keys.iter().flatten().map(AsRef::as_ref).collect();
        let bytes: usize = keys.iter().map(|key| key.get_array_memory_size()).sum();
        let is_small = bytes <= options.hash_join_inlist_pushdown_max_size
            && build_keys.distinct <= options.hash_join_inlist_pushdown_max_distinct_values;
        if !is_small {
            return Ok(None);
        }
        let values = concat(&keys)?;
        let schema = self.join.right().schema();
        let list = InListExpr::try_new_from_array(Arc::clone(key), values, false, &schema)?;
        Ok(Some(Arc::new(list)))
    }
}

/// Completes the filters of an accumulator when it is dropped, whether they were updated or not.
struct CompletionGuard(Arc<FilterAccumulator>);

impl CompletionGuard {
    /// Updates the filters by the keys of all builds. Should nobody even poll this, they end
    /// without.
    async fn publish(self, all: Vec<Option<BuildKeys>>) -> Result<()> {
        let known: Option<Vec<BuildKeys>> = all.into_iter().collect();
        match known.as_deref().and_then(merge) {
            Some(build_keys) => self.0.update(&build_keys).await,
            None => Ok(()),
        }
    }
}

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        let accumulator = &self.0;
        accumulator.waiting.free();
        for filter in &accumulator.filters {
            filter.filter.mark_complete();
        }
        accumulator.complete.send_replace(true);
    }
}

/// Returns the keys of all builds as those of one; `None` without rows.
fn merge(all: &[BuildKeys]) -> Option<BuildKeys> {
    let build_keys = BuildKeys {
        rows: all.iter().map(|build_keys| build_keys.rows).sum(),
        distinct: all.iter().map(|build_keys| build_keys.distinct).sum(),
        keys: all
            .iter()
            .flat_map(|build_keys| build_keys.keys.clone())
            .collect(),
        for_device: all.iter().all(|build_keys| build_keys.for_device),
    };
    (build_keys.rows > 0).then_some(build_keys)
}

impl BuildReport {
    /// Returns whether sets would spare nothing if a device looked up all rows.
    pub fn may_spare_sets(&self) -> bool {
        self.accumulator.may_spare_sets()
    }

    /// Reports the keys of a build; the time for that is added to `time`. The last one to report
    /// updates the filters. Returns what has them.
    ///
    /// # Errors
    /// If the filter's expressions cannot be made.
    pub async fn report(
        mut self,
        build_keys: BuildKeys,
        time: &Time,
    ) -> Result<Arc<FilterAccumulator>> {
        let _timer = time.timer();
        // If this is dropped, the guard ends the filters. If it is left in the middle of a poll,
        // whoever waits for the filters has this build go on.
        self.reported = true;
        let accumulator = Arc::clone(&self.accumulator);
        let build_keys = accumulator.kept(build_keys);
        if let Some(all) = accumulator.note(self.partition, build_keys) {
            let guard = CompletionGuard(Arc::clone(&accumulator));
            guard.publish(all).await?;
        }
        Ok(accumulator)
    }
}

impl Drop for BuildReport {
    fn drop(&mut self) {
        // Without this build's keys the filters let everything through.
        if !self.reported && self.accumulator.note(self.partition, None).is_some() {
            drop(CompletionGuard(Arc::clone(&self.accumulator)));
        }
    }
}

/// Returns the columns of `build_keys` with these `numbers`, batch by batch.
fn columns_of(build_keys: &BuildKeys, numbers: &[usize]) -> Vec<Vec<ArrayRef>> {
    let batches = build_keys.keys.iter();
    let columns = batches.map(|keys| numbers.iter().map(|number| Arc::clone(&keys[*number])));
    columns.map(Iterator::collect).collect()
}

fn count_nulls(keys: &[Vec<ArrayRef>]) -> usize {
    let columns = keys.iter().flatten();
    columns.map(|key| key.logical_null_count()).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arrow::array::Int64Array;
    use arrow::datatypes::{Field, Schema};
    use datafusion::common::JoinType;
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::HashJoinExecBuilder;

    use super::*;

    fn key() -> PhysicalExprRef {
        Arc::new(Column::new("k", 0))
    }

    fn join() -> Arc<HashJoinExec> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        let input = || Arc::new(EmptyExec::new(Arc::clone(&schema)));
        let on = vec![(key(), key())];
        let join = HashJoinExecBuilder::new(input(), input(), on, JoinType::Inner);
        Arc::new(join.build().unwrap())
    }

    fn targets() -> SideTargets {
        let filter = DynamicFilterPhysicalExpr::new(vec![key()], lit(true));
        SideTargets {
            held: vec![KeyFilter {
                keys: vec![0],
                filter: Arc::new(filter),
                is_evaluated: true,
            }],
            ..SideTargets::default()
        }
    }

    /// So many keys that their set is made off the runtime.
    fn build_keys() -> BuildKeys {
        let rows = 20_000;
        BuildKeys {
            rows,
            distinct: rows,
            keys: vec![vec![Arc::new(Int64Array::from_iter_values(0..rows as i64))]],
            for_device: false,
        }
    }

    #[tokio::test]
    async fn a_report_that_is_dropped_at_any_await_keeps_no_other_build() {
        let context = Arc::new(TaskContext::default());
        for polls in 0..6 {
            let publisher = FilterPublisher::begin(&Arc::default(), &[]).unwrap();
            let accumulator = FilterAccumulator::new(join(), &targets(), 2, &publisher, &context);
            let [first, last] = [0, 1].map(|partition| accumulator.report(partition));
            for _ in 0..2 {
                accumulator.add(Box::new(|| None));
            }
            let time = Time::new();
            first.report(build_keys(), &time).await.unwrap();
            let mut last = Box::pin(last.report(build_keys(), &time));
            for _ in 0..polls {
                if futures::poll!(last.as_mut()).is_ready() {
                    break;
                }
            }
            drop(last);
            let complete = tokio::time::timeout(Duration::from_secs(20), accumulator.complete());
            assert!(complete.await.is_ok(), "dropped after {polls} polls");
        }
    }
}
