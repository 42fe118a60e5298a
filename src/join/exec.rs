//! The plan node: what it keeps of the `HashJoinExec` in whose place it stands.
//!
//! ```text
//!  HortonJoinExec { stock: Arc<HashJoinExec> }        the node's answers:  execution_plan.rs
//!     config, filters   what the planner set          its execution:       execute.rs
//!     runs, shown       what executions left
//!     targets, read_order   what is found out once
//!
//!  partition mode     sides         build                          output partitions
//!    Auto             either        all partitions of a side       as the side that has more
//!    CollectLeft      as planned    the left input                 the right input's
//!    Partitioned      as planned    one per partition              the right input's
//! ```
//!
//! DataFusion's `PartitionMode::Auto` is its word for "not decided yet": it asks for no
//! distribution of either input and promises none. So no repartition is planned below, and what
//! nodes above need is planned there.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};

use crate::config::{Enabled, HortonConfig};
use crate::plan_nodes::{groups_rows, has_scan_of_files, stops_early};

use super::decision::{Decision, JoinReport, Place};
use super::dynamic_filter::targets::{FilterTargets, KeyFilter, holds_any};
use super::execution::Runs;
use super::properties;
use super::side::Side;
use super::sides::{ReadOrder, Sides};
use super::stream::with_stack;

/// An equi-join on an OpenCL device or the host, in the place of a `HashJoinExec`.
///
/// ```text
///  HashJoinExec ─ rules of install ─▶ HortonJoinExec ─ execute ─▶ rows
///                                          └─ decisions: build side, device or why not
/// ```
///
/// Plans have it once [`install`](crate::install) has put the rules into a session. After a run it
/// says what was decided:
///
/// ```
/// use datafusion::physical_plan::collect;
/// use datafusion::prelude::SessionConfig;
/// use horton_join::{HortonJoinExec, Place};
///
/// # #[tokio::main]
/// # async fn main() -> datafusion::error::Result<()> {
/// let session = horton_join::context(SessionConfig::new());
/// let join = "SELECT a.value FROM range(0, 9) a JOIN range(4, 20) b ON a.value = b.value";
/// let plan = session.sql(join).await?.create_physical_plan().await?;
/// collect(plan.clone(), session.task_ctx()).await?;
/// for join in HortonJoinExec::all_in(&plan) {
///     let decision = &join.decisions()[0];
///     // Nine rows are not worth a device's time.
///     assert!(matches!(decision.place, Place::Host(_)));
/// }
/// # Ok(())
/// # }
/// ```
///
/// See also: [`Decision`], and the metrics of `EXPLAIN ANALYZE`.
pub struct HortonJoinExec {
    pub(super) stock: Arc<HashJoinExec>,
    planned_mode: PartitionMode,
    pub(super) config: HortonConfig,
    /// Metrics, and what was decided.
    pub(super) shown: JoinReport,
    /// The join's own filters, of the other input's keys: those for scans of the left input, and
    /// those for scans of the right one.
    pub(super) filters: [Vec<KeyFilter>; 2],
    /// The executions. Those of nodes made of this one count with them, as they share the filters.
    pub(super) runs: Arc<Runs>,
    pub(super) targets: OnceLock<FilterTargets>,
    pub(super) read_order: OnceLock<ReadOrder>,
    reads_files: OnceLock<bool>,
    /// Unknown until the rules have seen the whole plan.
    above: OnceLock<Above>,
    pub(super) properties: Arc<PlanProperties>,
}

/// What stands above a join.
#[derive(Debug, Clone)]
struct Above {
    /// Whether a filter of another join leaves rows out of the left and of the right side when they
    /// are read.
    reached: [bool; 2],
    /// Whether the first of its rows may be enough.
    stops_early: Arc<AtomicBool>,
    /// Whether its rows come into groups.
    is_grouped: Arc<AtomicBool>,
}

/// The use that is made of the rows of a plan, as the nodes above it show.
#[derive(Debug, Clone, Copy, Default)]
pub struct RowUse {
    /// The first of them may be enough.
    may_stop: bool,
    /// They come into groups of an aggregate.
    is_grouped: bool,
}

impl RowUse {
    /// Returns the use that `node` makes of its inputs' rows.
    fn of_inputs(self, node: &dyn ExecutionPlan) -> Self {
        Self {
            may_stop: stops_early(node, self.may_stop),
            is_grouped: groups_rows(node, self.is_grouped),
        }
    }
}

impl fmt::Debug for HortonJoinExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Serialisers show it with their refusal.
        let note = "HortonJoinExec cannot be sent to other processes. Do not call \
                    horton_join::install where queries are planned; call horton_join::on_device \
                    where plans run.";
        f.debug_struct("HortonJoinExec")
            .field("note", &note)
            .field("stock", &self.stock)
            .finish_non_exhaustive()
    }
}

impl HortonJoinExec {
    /// Returns the join of `stock`. In [`PartitionMode::Auto`] either side may be built.
    pub fn new(stock: Arc<HashJoinExec>, config: HortonConfig) -> Self {
        Self {
            properties: properties::properties(&stock),
            planned_mode: *stock.partition_mode(),
            stock,
            config,
            filters: Default::default(),
            runs: Arc::default(),
            shown: JoinReport::default(),
            targets: OnceLock::new(),
            read_order: OnceLock::new(),
            reads_files: OnceLock::new(),
            above: OnceLock::new(),
        }
    }

    /// Returns the join of `planned`, of which either side may be built.
    ///
    /// # Errors
    /// If DataFusion cannot make the join in that mode.
    pub fn open(planned: &HashJoinExec, config: HortonConfig) -> Result<Self> {
        let stock = planned
            .builder()
            .with_partition_mode(PartitionMode::Auto)
            .build()?;
        Ok(Self {
            planned_mode: *planned.partition_mode(),
            ..Self::new(Arc::new(stock), config)
        })
    }

    /// Returns `node` as a join of this crate, if it is one; `None` for any other node.
    ///
    /// `downcast_ref` does not find all of them: a join whose sides are as planned is seen as the
    /// `HashJoinExec` that it stands for, by planners and serialisers.
    pub fn downcast(node: &dyn ExecutionPlan) -> Option<&Self> {
        let mut node = node;
        loop {
            if let Some(join) = (node as &dyn Any).downcast_ref() {
                return Some(join);
            }
            // A node of another crate may stand around it.
            node = node.downcast_delegate()?;
        }
    }

    /// Returns the joins of this crate in `plan`, those above before those below.
    pub fn all_in(plan: &Arc<dyn ExecutionPlan>) -> Vec<&Self> {
        let children = plan.children().into_iter().flat_map(Self::all_in);
        Self::downcast(plan.as_ref())
            .into_iter()
            .chain(children)
            .collect()
    }

    /// Returns the `HashJoinExec` that this join stands for.
    pub fn stock(&self) -> &Arc<HashJoinExec> {
        &self.stock
    }

    /// Returns the mode in which DataFusion planned the join, before its sides were opened.
    pub fn planned_mode(&self) -> PartitionMode {
        self.planned_mode
    }

    /// Returns what was decided of its builds when it ran last; nothing before it was executed.
    pub fn decisions(&self) -> Vec<Decision> {
        self.shown.decisions.all()
    }

    /// Returns the device that it ran on; `None` if it was not executed, or ran on the host.
    pub fn device_name(&self) -> Option<String> {
        let mut decisions = self.decisions().into_iter();
        decisions.find_map(|decision| match decision.place {
            Place::Device(device) => Some(device.info().name.clone()),
            Place::Host(_) => None,
        })
    }

    /// Returns the same join around another `HashJoinExec`.
    pub(super) fn rewrap(&self, stock: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let stock: Arc<dyn Any + Send + Sync> = stock;
        match stock.downcast() {
            Ok(stock) => Ok(Arc::new(self.rewrapped(stock))),
            Err(_) => internal_err!("a HashJoinExec became another node"),
        }
    }

    pub(super) fn rewrapped(&self, stock: Arc<HashJoinExec>) -> Self {
        // A recursive query sets its plan back for each step. DataFusion derives the properties of
        // nodes above again if those of their inputs are other objects.
        let is_same = Arc::ptr_eq(stock.properties(), self.stock.properties());
        Self {
            properties: if is_same {
                Arc::clone(&self.properties)
            } else {
                properties::properties(&stock)
            },
            planned_mode: self.planned_mode,
            stock,
            config: self.config.clone(),
            filters: self.filters.clone(),
            runs: Arc::new(self.runs.of_copy()),
            // The plan that is shown may never be executed: a recursive query executes copies.
            shown: JoinReport {
                decisions: Arc::clone(&self.shown.decisions),
                ..JoinReport::default()
            },
            targets: OnceLock::new(),
            read_order: OnceLock::new(),
            reads_files: OnceLock::new(),
            above: self.above.clone(),
        }
    }

    /// Notes for the joins of `plan` what stands above them: which of their sides filters of other
    /// joins leave rows out of, and what its rows are used for. A filter comes in time for the side
    /// that its join reads second. The scans of the first one hold it too, but it comes too late
    /// for them. `in_time` has the filters of joins above `plan` that come in time for it. `used`
    /// says what its rows are used for.
    ///
    /// # Errors
    /// The errors of visiting a plan's expressions.
    pub fn note_above(
        plan: &Arc<dyn ExecutionPlan>,
        in_time: &mut HashSet<u64>,
        used: RowUse,
    ) -> Result<()> {
        let used = used.of_inputs(plan.as_ref());
        let Some(join) = Self::downcast(plan.as_ref()) else {
            let mut children = plan.children().into_iter();
            return children.try_for_each(|child| Self::note_above(child, in_time, used));
        };
        let [left, right] = Side::BOTH.map(|side| holds_any(join.input(side), in_time));
        let reached = [left?, right?];
        // A plan that was seen before keeps its filters. It may be below a LIMIT by now.
        let above = join.above.get_or_init(|| Above {
            reached,
            stops_early: Arc::default(),
            is_grouped: Arc::default(),
        });
        above.stops_early.fetch_or(used.may_stop, Ordering::Relaxed);
        above
            .is_grouped
            .fetch_or(used.is_grouped, Ordering::Relaxed);
        let first = join.read_order()?.planned();
        // The one side that may be built is read to its end.
        let of_first = RowUse {
            may_stop: used.may_stop && join.sides() != Sides::Fixed(first),
            ..used
        };
        with_stack(|| Self::note_above(join.input(first), in_time, of_first))?;
        let second = first.other();
        let own = join.filters[second as usize].iter();
        let own: Vec<u64> = own.filter_map(|f| f.filter.expression_id()).collect();
        in_time.extend(&own);
        with_stack(|| Self::note_above(join.input(second), in_time, used))?;
        own.iter().for_each(|id| _ = in_time.remove(id));
        Ok(())
    }

    /// Returns whether the first of its rows may be enough. They may if nobody has said.
    pub(super) fn stops_early(&self) -> bool {
        let above = self.above.get();
        above.is_none_or(|above| above.stops_early.load(Ordering::Relaxed))
    }

    /// Returns whether its rows come into groups of an aggregate. They do if nobody has said.
    pub(super) fn is_grouped(&self) -> bool {
        let above = self.above.get();
        above.is_none_or(|above| above.is_grouped.load(Ordering::Relaxed))
    }

    /// Returns the order in which the sides are read, found out once.
    ///
    /// # Errors
    /// The errors of visiting a plan's expressions.
    pub(super) fn read_order(&self) -> Result<ReadOrder> {
        if let Some(order) = self.read_order.get() {
            return Ok(*order);
        }
        let order = match self.sides() {
            Sides::Fixed(side) => ReadOrder::Known(side),
            Sides::Open => {
                let reached = match self.above.get() {
                    Some(above) => above.reached,
                    None => self.held_from_above()?,
                };
                ReadOrder::of(&self.stock, reached)
            }
        };
        Ok(*self.read_order.get_or_init(|| order))
    }

    /// Returns whether scans of the left and of the right side hold a filter of a join above.
    fn held_from_above(&self) -> Result<[bool; 2]> {
        let found;
        let targets = match self.targets.get() {
            Some(targets) => targets,
            // EXPLAIN asks before the join is executed.
            None => {
                let inputs = [self.stock.left(), self.stock.right()];
                let filters = [self.filters[0].as_slice(), self.filters[1].as_slice()];
                found = FilterTargets::new(inputs, filters, false)?;
                &found
            }
        };
        Ok(Side::BOTH.map(|side| targets.side(side).is_reached))
    }

    /// Returns which sides may be built.
    pub(super) fn sides(&self) -> Sides {
        Sides::new(&self.stock, self.is_open())
    }

    pub(super) fn is_open(&self) -> bool {
        properties::is_open(&self.stock)
    }

    pub(super) fn is_partitioned(&self) -> bool {
        *self.stock.partition_mode() == PartitionMode::Partitioned
    }

    /// Returns whether a scan of files is below. DataFusion reads each file once per plan.
    pub(super) fn reads_files(&self) -> bool {
        *self.reads_files.get_or_init(|| {
            Side::BOTH
                .iter()
                .any(|side| has_scan_of_files(self.input(*side)))
        })
    }

    pub(super) fn output_partitions(&self) -> usize {
        self.properties.output_partitioning().partition_count()
    }

    /// Returns the output partitions, if the host may repartition the inputs into so many.
    pub(super) fn host_partitions(&self) -> Option<usize> {
        self.is_open().then(|| self.output_partitions())
    }

    /// Returns whether rows of one probe partition may come out of another output partition. They
    /// may where DataFusion planned to repartition both sides: nobody can know the rows of a
    /// partition then, or read them twice. Where `probe` is partitioned by some keys already, it
    /// may repartition nothing.
    pub(super) fn may_move_probe_rows(&self, probe: Side) -> bool {
        let is_by_keys = matches!(
            self.input(probe).output_partitioning(),
            Partitioning::Hash(..) | Partitioning::Range(..)
        );
        self.is_open() && self.planned_mode == PartitionMode::Partitioned && !is_by_keys
    }

    pub(super) fn input(&self, side: Side) -> &Arc<dyn ExecutionPlan> {
        match side {
            Side::Left => self.stock.left(),
            Side::Right => self.stock.right(),
        }
    }

    /// Returns the filters of the join's keys.
    pub(super) fn made_filters(&self) -> Vec<Arc<DynamicFilterPhysicalExpr>> {
        let filters = self.filters.iter().flatten();
        filters.map(|own| Arc::clone(&own.filter)).collect()
    }

    /// Names the rules by which sides and device will be decided.
    pub(super) fn rules(&self) -> String {
        let sides = match (self.sides(), self.read_order()) {
            (Sides::Open, Ok(order)) => {
                format!("the smaller side, {} read first", order.planned())
            }
            (Sides::Open, Err(_)) => "the smaller side".to_owned(),
            (Sides::Fixed(side), _) => side.to_string(),
        };
        let rows = match (self.config.enabled, self.config.min_build_rows) {
            (Enabled::Always, _) => "any rows".to_owned(),
            (_, 0) => "the device's default of rows".to_owned(),
            (_, rows) => format!("{rows} rows"),
        };
        let each = if self.is_partitioned() {
            " a partition"
        } else {
            ""
        };
        let device = &self.config.device;
        format!("build={sides}, device='{device}' from {rows}{each}")
    }
}
