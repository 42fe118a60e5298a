//! What the runs of a case must have in common.
//!
//! * rows: as a sequence per partition, where the order of `HashJoinExec` does not depend on how it
//!   steps through its hash table ([`Order`]); else as a multiset; with a limit, a part of the
//!   unlimited rows that is as large; where rows went to disk, as the plan promises
//! * the plan's properties and schema; the declared ordering, where the stock join's rows have it
//! * metrics: output rows; input rows and batches as the stock join that builds the same side; a
//!   kernel ran if and only if some build row can match
//! * where either side may be built, or the host is to join: the same rows, as a multiset; why the
//!   host joins; that metrics count no row twice
//! * no batch of the device's is empty or larger than asked for; a second run gives the same rows;
//!   the memory pool is empty at the end
//! * under a limit on the memory pool: the same rows, some by way of files, or rarely
//!   `ResourcesExhausted`; no file is left; metrics count what was written
//! * under a limit on the device: the same rows; after a run that was dropped midway, all of the
//!   above
//! * with filters handed to scans, in memory or of Parquet files: the same rows
//! * with an OpenCL call that fails: the same rows, or the call's error where it is asked for
//! * what the node promises, held against the rows that it gave out
//!   (`horton_test_support::promises`)
//! * read by a consumer that misbehaves: the rows that it kept, and an end
//!   ([`consumer`](super::super::consumer))
//! * small inputs: `NestedLoopJoinExec`, which shares no code with either

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::row::{RowConverter, Rows};
use datafusion::common::{JoinType, NullEquality};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use horton_join::{Decision, HortonJoinExec, HostReason, Place, Side};

use super::super::difference::{Checked, differ};
use super::case::{Case, Mode};
use super::output::{Declared, Order, Output, Shown};
use super::plan::{Input, Inputs};
use super::run::Worker;

/// The places where a join ran, build by build.
pub struct Places {
    decisions: Vec<Decision>,
    /// Builds that wrote files, or may have. Those in spill partitions have a decision for each.
    spilled: usize,
}

impl Places {
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let join = HortonJoinExec::downcast(plan.as_ref());
        let metrics = plan.metrics().unwrap_or_default();
        let spilled = metrics.iter().filter(|m| m.value().name() == "spill_count");
        Self {
            decisions: join.map_or(Vec::new(), HortonJoinExec::decisions),
            spilled: spilled.count(),
        }
    }

    pub fn has_spilled(&self) -> bool {
        self.spilled > 0
    }

    /// Builds that the host joined, and why.
    pub fn on_host(&self) -> impl Iterator<Item = &HostReason> {
        let decisions = self.decisions.iter();
        decisions.filter_map(|decision| match &decision.place {
            Place::Host(reason) => Some(reason),
            Place::Device(_) => None,
        })
    }

    pub fn all_on_device(&self) -> bool {
        self.on_host().next().is_none()
    }

    pub fn all_on_host(&self) -> bool {
        self.on_host().count() == self.decisions.len()
    }

    pub fn swapped(&self) -> bool {
        let mut decisions = self.decisions.iter();
        decisions.any(|decision| decision.build == Side::Right)
    }
}

/// A case's joins, over their own copies of the inputs.
pub struct Joins {
    pub stock: Arc<dyn ExecutionPlan>,
    pub device: Arc<dyn ExecutionPlan>,
    pub probe_ordered: bool,
    /// True if a device can compare the keys.
    pub supported: bool,
}

/// The rows that a run of the device join must have found.
pub struct Found<'a> {
    pub case: &'a Case,
    pub inputs: &'a Inputs,
    pub converter: &'a RowConverter,
    pub order: Order,
    pub declared: Option<Declared>,
    pub expected: &'a Output,
}

impl Found<'_> {
    /// Checks that `batches` are those rows, in batches as large as asked for where the device
    /// joined.
    pub fn check(
        &self,
        worker: &Worker,
        places: &Places,
        batches: Vec<Vec<RecordBatch>>,
    ) -> Checked<Output> {
        let found = Output::new(self.converter, batches)?;
        if places.all_on_device() {
            check_batches(self.case, &found)?;
        }
        let order = match places.has_spilled() {
            true => Order::promised(self.case, self.inputs),
            false => self.order,
        };
        match self.case.fetch.filter(|_| order != Order::Sequences) {
            Some(fetch) => {
                let all: Arc<dyn ExecutionPlan> = Arc::new(self.inputs.stock(self.case, false)?);
                let all = Output::new(self.converter, worker.run(&all, self.case)?)?;
                check_limited(fetch, &all, self.expected, &found)?;
                self.check_first(fetch, &all, &found)?;
            }
            None => check_rows(order, self.expected, &found)?,
        }
        self.check_order(&found)?;
        Ok(found)
    }

    /// The stock join declares some orderings that its own rows do not have: an ordered probe
    /// column that repeats, then an ordered build column.
    fn check_order(&self, found: &Output) -> Checked<()> {
        match &self.declared {
            Some(declared) if declared.holds(self.expected)? && !declared.holds(found)? => {
                differ("declared ordering", Shown(self.expected, found))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the rows of a limit in a declared order are the first of all.
    fn check_first(&self, fetch: usize, all: &Output, found: &Output) -> Checked<()> {
        match &self.declared {
            Some(declared)
                if declared.holds(all)?
                    && declared.first(fetch, all)? != declared.first(fetch, found)? =>
            {
                differ("first rows", Shown(all, found))
            }
            _ => Ok(()),
        }
    }
}

pub fn check_rows(order: Order, expected: &Output, found: &Output) -> Checked<()> {
    match order {
        Order::Sequences => {
            let pairs = expected.rows.iter().zip(&found.rows);
            let same = |(a, b): (&Rows, &Rows)| a.iter().eq(b.iter());
            if expected.counts() == found.counts() && pairs.into_iter().all(same) {
                return Ok(());
            }
            let what = match expected.multiset() == found.multiset() {
                true => "order of rows",
                false => "rows",
            };
            differ(what, Shown(expected, found))
        }
        Order::Partitions => {
            let of_each = |output: &Output| -> Vec<_> {
                let rows = output.rows.iter();
                let sorted = rows.map(|rows| {
                    let mut rows: Vec<_> = rows.iter().map(|row| row.data().to_vec()).collect();
                    rows.sort_unstable();
                    rows
                });
                sorted.collect()
            };
            let same = expected.counts() == found.counts() && of_each(expected) == of_each(found);
            let what = match expected.multiset() == found.multiset() {
                true => "rows of partitions",
                false => "rows",
            };
            match same {
                true => Ok(()),
                false => differ(what, Shown(expected, found)),
            }
        }
        Order::Multiset => {
            let same = expected.count() == found.count() && expected.multiset() == found.multiset();
            match same {
                true => Ok(()),
                false => differ("rows", Shown(expected, found)),
            }
        }
    }
}

/// Checks that there are as many rows as `expected`, each of them one of `all`.
pub fn check_limited(fetch: usize, all: &Output, expected: &Output, found: &Output) -> Checked<()> {
    // A partition at its limit may keep the last one from emitting build rows; then the limit
    // is reached for all of them together.
    let enough = |output: &Output| output.count().min(fetch);
    let over = found.counts().iter().any(|rows| *rows > fetch);
    if over || enough(expected) != enough(found) {
        return differ("limited rows", Shown(expected, found));
    }
    let mut left = all.multiset();
    for (row, times) in found.multiset() {
        let left = left.entry(row).or_default();
        *left -= times;
        if *left < 0 {
            return differ("a limited row", Shown(all, found));
        }
    }
    Ok(())
}

pub fn check_plan(case: &Case, joins: &Joins, found: &Output) -> Checked<()> {
    let Joins { stock, device, .. } = joins;
    let declared =
        |plan: &Arc<dyn ExecutionPlan>, promised: String| format!("{:?} {promised}", plan.schema());
    let promised = |plan: &Arc<dyn ExecutionPlan>| {
        let properties = plan.properties();
        format!(
            "{:?} {:?} {:?} {:?}",
            properties.output_partitioning(),
            properties.output_ordering(),
            plan.maintains_input_order(),
            properties.emission_type,
        )
    };
    let theirs = match case.mode {
        // Either side may be probed: as many partitions as that one has, in no order.
        Mode::Open { build } => {
            let partitions = Partitioning::UnknownPartitioning(build.max(case.partitions));
            // The planned build side's unmatched rows can be those of the probe side.
            let emission = match case.join_type {
                JoinType::Inner => EmissionType::Incremental,
                _ => EmissionType::Both,
            };
            let order = [false, false];
            format!("{partitions:?} {:?} {order:?} {emission:?}", None::<()>)
        }
        _ => promised(stock),
    };
    let (theirs, ours) = (declared(stock, theirs), declared(device, promised(device)));
    if theirs != ours {
        return differ("properties", format!("{theirs}\n{ours}"));
    }
    let batches = found.batches.iter().flatten();
    if batches
        .into_iter()
        .any(|batch| batch.schema() != device.schema())
    {
        return differ("schema", device.schema());
    }
    Ok(())
}

pub fn check_batches(case: &Case, found: &Output) -> Checked<()> {
    let batches = found.batches.iter().flatten();
    let sizes: Vec<usize> = batches.map(RecordBatch::num_rows).collect();
    let limit = case.batch_size;
    match sizes.iter().all(|rows| (1..=limit).contains(rows)) {
        true => Ok(()),
        false => differ("batch size", format!("{sizes:?} over {limit}")),
    }
}

/// Checks that each build was placed as the case says.
pub fn check_places(case: &Case, joins: &Joins, places: &Places) -> Checked<()> {
    for decision in &places.decisions {
        let few = case.min_build_rows.is_some_and(|rows| decision.rows < rows);
        let as_said = match &decision.place {
            Place::Host(HostReason::KeyType(_)) => !joins.supported,
            Place::Host(HostReason::FewRows { min_build_rows }) => {
                few && case.min_build_rows == Some(*min_build_rows)
            }
            Place::Host(HostReason::DoesNotFit) => {
                let is_limited = case.table.device_limit > 0 || case.min_build_rows.is_some();
                !few && (is_limited || decision.rows > case.table.max_rows)
            }
            Place::Host(HostReason::NoMemory) => !few && case.pool_limit > 0,
            Place::Host(_) => false,
            Place::Device(_) => joins.supported && !few,
        };
        // Of a spill partition both sides are known, so that the plan's choice does not matter.
        let open = matches!(case.mode, Mode::Open { .. }) && case.fetch.is_none();
        let open = open || decision.is_spilled;
        if !as_said || decision.build == Side::Right && !open {
            return differ("decision", format!("{decision:?}"));
        }
    }
    let builds = match case.mode {
        Mode::Split | Mode::Repartitioned => case.partitions,
        Mode::Collected | Mode::Kept | Mode::Open { .. } => 1,
    };
    let decisions = &places.decisions;
    let whole = decisions.iter().filter(|decision| !decision.is_spilled);
    let whole = whole.count();
    let has_spill_partitions = decisions.len() > whole;
    // A build in spill partitions without rows has no decision.
    match whole == builds && !has_spill_partitions || whole < builds && places.has_spilled() {
        true => Ok(()),
        false => differ(
            "decisions",
            format!(
                "{decisions:?} of {builds} builds, {} spilled",
                places.spilled
            ),
        ),
    }
}

/// Checks that a join counted what went to disk. Returns the kernels launched.
pub fn check_spilled(
    case: &Case,
    inputs: &Inputs,
    places: &Places,
    metrics: &MetricsSet,
) -> Checked<usize> {
    let [files, rows, bytes] =
        ["spill_count", "spilled_rows", "spilled_bytes"].map(|name| metric(metrics, name));
    // Rows of no file are rows that nothing comes of.
    let wanted = |input: &Input| match case.null_equality {
        NullEquality::NullEqualsNull => input.rows.num_rows(),
        NullEquality::NullEqualsNothing => matchable(case, input),
    };
    let [build, probe] = [&inputs.build, &inputs.probe].map(wanted);
    let join_type = case.join_type;
    let of_none = |join: JoinType| join.empty_map_produces_empty_result();
    let has_no_rows = |rows: usize, join: JoinType| rows == 0 && of_none(join);
    // One partition may have the rows of one side alone, and the other side's may be elsewhere.
    let are_apart = matches!(case.mode, Mode::Split | Mode::Repartitioned) && case.partitions > 1;
    let has_parts = are_apart && (of_none(join_type) || of_none(join_type.swap()));
    let is_empty = has_no_rows(build, join_type) || has_no_rows(probe, join_type.swap());
    let wanted = if has_parts || is_empty {
        0
    } else {
        build + probe
    };
    // A limit of no rows reads none.
    let all = places.decisions.iter().all(|decision| decision.is_spilled);
    let all = all && case.fetch != Some(0);
    let counted = (files > 0) == (rows > 0) && (files > 0) == (bytes > 0) && files <= rows;
    if case.pool_limit == 0 || !counted || all && rows < wanted {
        let how = format!("{rows} rows and {bytes} bytes in {files} files, of {wanted} rows");
        return differ("spilled", how);
    }
    let launches = metric(metrics, "kernel_launches");
    if places.decisions.is_empty() && launches > 0 {
        return differ(
            "kernel launches",
            format!("{launches} for no spill partition"),
        );
    }
    Ok(launches)
}

pub fn metric(metrics: &MetricsSet, name: &str) -> usize {
    let sum = metrics.sum(|metric| metric.value().name() == name);
    sum.map_or(0, |value| value.as_usize())
}

/// Rows of a side that can match.
pub fn matchable(case: &Case, build: &Input) -> usize {
    let Ok(keys) = build.keys() else {
        return 0;
    };
    let rows = build.rows.num_rows();
    if case.null_equality == NullEquality::NullEqualsNull {
        return rows;
    }
    let nulls: Vec<_> = keys.iter().map(Array::logical_nulls).collect();
    let nulls = NullBuffer::union_many(nulls.iter().map(Option::as_ref));
    rows - nulls.map_or(0, |nulls| nulls.null_count())
}
