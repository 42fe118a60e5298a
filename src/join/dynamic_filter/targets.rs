//! The targets of dynamic filters, read off the plan: the scans that hold them, and how many rows
//! they see.
//!
//! ```text
//!        Join ─ own filter f           left: holds g of a join above   → opened when first polled
//!       /    \                         right: holds f                  → opened after the build
//!    left    right                     right: holds nothing            → opened at once
//!     │g      │f
//!    scan    scan
//! ```
//!
//! A join opens an input no earlier than the filters that reach it can be complete. Filters of
//! joins above are, once somebody polls this one. Its own is after its build. Inputs that no filter
//! reaches are opened at once, so that independent builds run side by side.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::plan_nodes::{is_row_filter, passes_rows};
use crate::sample::sampled_columns;
use crate::scan::cached_statistics::rows_in_memory;
use crate::scan::exec::DynamicFilterExec;
use crate::scan::table_columns::columns_of_table;

use crate::join::side::Side;

/// The filter of a key column, or of several.
#[derive(Debug, Clone)]
pub struct KeyFilter {
    /// Numbers of the keys among the join's.
    pub keys: Vec<usize>,
    /// The expression that the scans hold.
    pub filter: Arc<DynamicFilterPhysicalExpr>,
    /// True if rows are tested by it, not only files pruned.
    pub is_evaluated: bool,
}

/// The scans that a join's filters go to, and the other filters that reach its inputs.
#[derive(Debug, Default)]
pub struct FilterTargets([SideTargets; 2]);

/// The scans of one input, as far as filters reach them.
#[derive(Debug, Default)]
pub struct SideTargets {
    /// The join's own filters that some scan holds, to be published once the other input is built.
    pub held: Vec<KeyFilter>,
    /// True if a filter of another join reaches it.
    pub is_reached: bool,
    /// True if a scan prunes or tests by a filter made above.
    pub is_pruned: bool,
    /// Build rows up to which sets are worth their time; `None` if unknown.
    pub most_rows: Option<usize>,
    /// True if nothing is done with a row that a scan lets through before it is probed.
    pub is_next_to_scan: bool,
    /// Build rows below which the host joins, whatever devices are available; 0 if unknown.
    pub host_rows: usize,
}

impl FilterTargets {
    /// Returns the targets of filters of the join over `inputs`, left and right. The scans of these
    /// hold `filters` of the join's own, with sets if it `makes_sets`.
    ///
    /// # Errors
    /// The errors of visiting a plan's expressions.
    pub fn new(
        inputs: [&Arc<dyn ExecutionPlan>; 2],
        filters: [&[KeyFilter]; 2],
        makes_sets: bool,
    ) -> Result<Self> {
        let of_side = |probe: usize| -> Result<SideTargets> {
            let (build, probe, own) = (inputs[1 - probe], inputs[probe], filters[probe]);
            let inside = FiltersInside::in_plan(probe)?;
            let id = |filter: &KeyFilter| filter.filter.expression_id();
            let is_held = |filter: &&KeyFilter| id(filter).is_some_and(|id| inside.holds(id));
            let held: Vec<_> = own.iter().filter(is_held).cloned().collect();
            let own: HashSet<u64> = own.iter().filter_map(id).collect();
            Ok(SideTargets {
                is_reached: inside.is_any_from_above(&inside.held_by_filter_nodes, &own),
                is_pruned: inside.is_any_from_above(&inside.held, &own),
                most_rows: match makes_sets {
                    true if held.is_empty() => None,
                    true => most_rows(build, probe, &held)?,
                    false => Some(0),
                },
                is_next_to_scan: is_next_to_scan(probe),
                host_rows: 0,
                held,
            })
        };
        Ok(Self([of_side(0)?, of_side(1)?]))
    }

    /// Returns the same for a join that the host joins below so many build rows, whatever devices
    /// are available.
    #[must_use]
    pub fn with_host_rows(mut self, rows: usize) -> Self {
        for side in &mut self.0 {
            side.host_rows = rows;
        }
        self
    }

    /// Returns the targets below `side`.
    pub fn side(&self, side: Side) -> &SideTargets {
        &self.0[side as usize]
    }
}

/// Build rows of which a set takes less than a millisecond, even if it excludes no row.
pub const FEW_ROWS: usize = 1 << 16;

/// Rows of a scan for each key of a set that takes a small part of the scan's time: making it takes
/// less per key than reading does per row.
const MUCH: usize = 8;

/// The node that keeps filters above a scan, by its name.
const FILTER_NODE: &str = "DynamicFilterExec";

/// Returns the identities of the dynamic filters in `node`'s own expressions.
fn held_by(node: &dyn ExecutionPlan) -> Result<Vec<u64>> {
    let mut held = Vec::new();
    node.apply_expressions(&mut |root| {
        root.apply(|expression| {
            if expression
                .downcast_ref::<DynamicFilterPhysicalExpr>()
                .is_some()
            {
                held.extend(expression.expression_id());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    // A producer may show its own filter: it does not test rows by it.
    let made = node.dynamic_expressions_produced();
    let made: HashSet<u64> = made.iter().filter_map(|f| f.expression_id()).collect();
    held.retain(|id| !made.contains(id));
    Ok(held)
}

/// The dynamic filters in a plan, by their identities.
#[derive(Default)]
struct FiltersInside {
    /// Those by which some node tests rows, or prunes.
    held: HashSet<u64>,
    /// Those that filter nodes hold. Joins wait for them. Those that only prune may be of sorts,
    /// and are never complete.
    held_by_filter_nodes: HashSet<u64>,
    /// Those that the plan's own nodes make.
    made: HashSet<u64>,
}

impl FiltersInside {
    fn in_plan(plan: &Arc<dyn ExecutionPlan>) -> Result<Self> {
        let mut inside = Self::default();
        plan.apply(|node| {
            let made = node.dynamic_expressions_produced();
            let made = made.iter().filter_map(|filter| filter.expression_id());
            inside.made.extend(made);
            let held = held_by(node.as_ref())?;
            if node.name() == FILTER_NODE {
                inside.held_by_filter_nodes.extend(&held);
            }
            inside.held.extend(held);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(inside)
    }

    fn holds(&self, id: u64) -> bool {
        self.held.contains(&id)
    }

    /// Returns whether one of `held` is neither made in the plan nor one of `own`.
    fn is_any_from_above(&self, held: &HashSet<u64>, own: &HashSet<u64>) -> bool {
        let mut held = held.iter();
        held.any(|id| !self.made.contains(id) && !own.contains(id))
    }
}

/// Returns whether a filter node of `plan` holds one of the filters `ids`.
///
/// # Errors
/// The errors of visiting a plan's expressions.
pub fn holds_any(plan: &Arc<dyn ExecutionPlan>, ids: &HashSet<u64>) -> Result<bool> {
    if ids.is_empty() {
        return Ok(false);
    }
    plan.exists(|node| {
        let is_filter_node = node.name() == FILTER_NODE;
        Ok(is_filter_node && held_by(node.as_ref())?.iter().any(|id| ids.contains(id)))
    })
}

/// Returns the build rows up to which the sets of filters can save what they cost; `None` if
/// unknown.
///
/// Two cases are known. The build side is a table of which no row was left out: its keys exclude
/// hardly anything, as foreign keys go. Or the scans that `filters` reach have fewer rows than the
/// build side. Not every key is foreign. So a whole table has a set if these scans are much larger,
/// as the set takes a small part of their time then.
fn most_rows(
    build: &Arc<dyn ExecutionPlan>,
    probe: &Arc<dyn ExecutionPlan>,
    filters: &[KeyFilter],
) -> Result<Option<usize>> {
    let ids = filters.iter().filter_map(|f| f.filter.expression_id());
    let ids: HashSet<u64> = ids.collect();
    let reached = rows_reached(probe, &ids)?;
    let is_much_smaller = |rows: usize| reached.is_some_and(|reached| reached / rows >= MUCH);
    let whole = rows_scanned(build).filter(|rows| !is_much_smaller((*rows).max(1)));
    let whole = whole.map(|rows| rows.saturating_sub(1).max(FEW_ROWS));
    let reached = reached.map(|rows| rows.max(FEW_ROWS));
    Ok(whole.into_iter().chain(reached).min())
}

/// Returns the rows of the one scan below `plan`, if each of its rows comes through once or not at
/// all.
pub fn rows_scanned(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    rows_of(only_leaf(plan)?.as_ref())
}

/// Returns the rows of the one table in memory below `plan`, on the same condition.
pub fn rows_scanned_in_memory(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    rows_in_memory(only_leaf(plan)?.as_ref())
}

/// Returns the filter node over the one scan below `plan`, on the same condition.
pub fn filter_node(plan: &Arc<dyn ExecutionPlan>) -> Option<&DynamicFilterExec> {
    let node = plan.downcast_ref::<DynamicFilterExec>();
    match plan.children().as_slice() {
        [child] if node.is_none() && is_row_filter(plan.as_ref()) => filter_node(child),
        _ => node,
    }
}

/// Returns the one leaf below `plan`, if each of its rows comes through once or not at all.
fn only_leaf(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if plan.children().is_empty() {
        return Some(plan);
    }
    let is_filter_node = plan.name() == FILTER_NODE && plan.fetch().is_none();
    let passes = is_row_filter(plan.as_ref()) || is_filter_node;
    match plan.children().as_slice() {
        [child] if passes => only_leaf(child),
        _ => None,
    }
}

/// Returns whether rows of a filter node of `plan` come to its output as they are, where they are.
fn is_next_to_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.name() == FILTER_NODE {
        return true;
    }
    match plan.children().as_slice() {
        [child] if passes_rows(plan.as_ref()) => is_next_to_scan(child),
        _ => false,
    }
}

/// Returns the rows of all scans that hold one of the filters `ids`; `None` if they are unknown.
fn rows_reached(plan: &Arc<dyn ExecutionPlan>, ids: &HashSet<u64>) -> Result<Option<usize>> {
    let mut rows = Some(0);
    plan.apply(|node| {
        if !held_by(node.as_ref())?.iter().any(|id| ids.contains(id)) {
            return Ok(TreeNodeRecursion::Continue);
        }
        node.apply(|below| {
            if below.children().is_empty() {
                let of_leaf = rows_of(below.as_ref());
                rows = rows.zip(of_leaf).map(|(a, b)| a + b);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Jump)
    })?;
    Ok(rows)
}

/// Rows of a sample. The part of them that passes has a standard deviation of 0.016 at most.
const SAMPLE_ROWS: usize = 1 << 10;

/// Returns the keys that `filter` tests in a sample of the rows of `probe`'s scan, by key column;
/// `None` if that is not one table in memory, or if types are not sampled.
pub fn sampled_keys(probe: &Arc<dyn ExecutionPlan>, filter: &KeyFilter) -> Option<Vec<ArrayRef>> {
    let id = filter.filter.expression_id()?;
    let node = filter_node(probe)?;
    let mut held = node.filters().iter();
    let held = held.find(|held| held.expression_id() == Some(id))?;
    let columns = held.children().into_iter();
    let columns = columns.map(|key| key.downcast_ref::<Column>().map(Column::index));
    let columns = columns.collect::<Option<Vec<_>>>()?;
    let (table, columns) = columns_of_table(node.input(), &columns)?;
    let batches: Vec<&RecordBatch> = table.partitions().iter().flatten().collect();
    sampled_columns(&batches, &columns, SAMPLE_ROWS)
}

/// Returns the rows of a scan before any filter, by its statistics.
fn rows_of(leaf: &dyn ExecutionPlan) -> Option<usize> {
    if leaf.boundedness().is_unbounded() {
        return None;
    }
    rows_in_memory(leaf).or_else(|| {
        let statistics = StatisticsContext::new().compute(leaf, &StatisticsArgs::new());
        statistics.ok()?.num_rows.get_value().copied()
    })
}
