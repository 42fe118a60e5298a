//! The rules around the one that hands dynamic filters out.
//!
//! ```text
//!  InsertFilterNodes         a guard above each node that would mislead a filter, a filter node
//!                            above each scan, guards around each HashJoinExec that stays
//!  DataFusion's rule         hands filters out
//!  RemoveUnusedFilterNodes   guards go, filter nodes without filters go, scans are DataFusion's
//!                            own again; comparisons of a WHERE above go to the filter node
//! ```
//!
//! DataFusion's rule asks nodes for their answers and changes nothing else, so the three leave a
//! plan with the properties that it had. Where no rows are to be tested (`horton.filters = off`),
//! there are guards alone: files are still pruned.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
};

use crate::join::exec::{HortonJoinExec, RowUse};
use crate::plan_nodes::is_scan;

use crate::scan::pushdown_guard::PushdownGuard;

use super::enabled::{filters_reach_scans, makes_filters};
use crate::scan::cached_statistics::CachedStatistics;
use crate::scan::comparisons::comparisons;
use crate::scan::even_partitions::with_even_partitions;
use crate::scan::exec::DynamicFilterExec;

/// DataFusion's rule that hands dynamic filters out.
pub const FILTER_PUSHDOWN: &str = "FilterPushdown(Post)";

/// The rule before DataFusion's `FilterPushdown(Post)`: it puts guards and filter nodes in.
#[derive(Debug)]
pub struct InsertFilterNodes;

/// The rule after it: guards, and filter nodes without filters, go again.
#[derive(Debug)]
pub struct RemoveUnusedFilterNodes;

/// Returns whether `node` is one of this crate's joins.
fn is_join(node: &dyn ExecutionPlan) -> bool {
    HortonJoinExec::downcast(node).is_some()
}

/// Returns `join`, which stays DataFusion's, behind guards on all sides. It would hand filters on
/// by the names of columns. It also makes one. If a scan kept that, its partitions would wait for
/// each other, and a second execution would be tested by the keys of the first.
///
/// # Errors
/// If it does not take its new inputs.
fn closed(join: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = join
        .children()
        .into_iter()
        .cloned()
        .map(PushdownGuard::closed);
    let inputs = inputs.collect();
    let join = join.replace_children(
        inputs,
        ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep),
    )?;
    Ok(PushdownGuard::closed(join))
}

fn has_joins(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| Ok(is_join(node.as_ref())))
}

impl PhysicalOptimizerRule for InsertFilterNodes {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if makes_filters(config) && has_joins(&plan)? {
            guarded(plan, filters_reach_scans(config))
        } else {
            Ok(plan)
        }
    }

    fn name(&self) -> &str {
        "horton_insert_filter_nodes"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PhysicalOptimizerRule for RemoveUnusedFilterNodes {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !makes_filters(config) {
            return Ok(plan);
        }
        // Filters of sorts and aggregates are true of one execution only, and those nodes drop
        // rows as cheaply themselves. Joins set theirs back.
        let mut of_joins = HashSet::new();
        plan.apply(|node| {
            if is_join(node.as_ref()) {
                let made = node.dynamic_expressions_produced();
                of_joins.extend(made.iter().filter_map(|filter| filter.expression_id()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let plan = remove_unused(plan, &of_joins)?;
        HortonJoinExec::note_above(&plan, &mut HashSet::new(), RowUse::default())?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "horton_remove_unused_filter_nodes"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns `plan` with a guard above each node that would mislead a filter, and a filter node above
/// each scan if rows `are_tested`.
///
/// # Errors
/// If a node does not take its new inputs.
pub fn guarded(plan: Arc<dyn ExecutionPlan>, are_tested: bool) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let guarded = if is_join(node.as_ref()) {
            // Joins hand filters on by their columns themselves.
            Arc::clone(&node)
        } else if node.is::<HashJoinExec>() {
            closed(Arc::clone(&node))?
        } else if are_tested && is_scan(node.as_ref()) {
            Arc::new(DynamicFilterExec::new(PushdownGuard::around(Arc::clone(
                &node,
            )))) as _
        } else {
            PushdownGuard::around(Arc::clone(&node))
        };
        Ok(if Arc::ptr_eq(&guarded, &node) {
            Transformed::no(node)
        } else {
            Transformed::yes(guarded)
        })
    })
    .data()
}

/// Returns the plan without guards, and without scans' filters but those in `of_joins`.
///
/// # Errors
/// If a node does not take its new inputs.
pub fn remove_unused(
    plan: Arc<dyn ExecutionPlan>,
    of_joins: &HashSet<u64>,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(guard) = plan.downcast_ref::<PushdownGuard>() {
        return remove_unused(Arc::clone(guard.node()), of_joins);
    }
    if let Some(scan) = plan.downcast_ref::<DynamicFilterExec>() {
        let scan = scan.retain(of_joins);
        let input = remove_unused(Arc::clone(scan.input()), of_joins)?;
        // An endless scan would wait for a batch to be full.
        let is_endless = input.boundedness().is_unbounded();
        return Ok(if scan.filters().is_empty() || is_endless {
            input
        } else {
            let input = dealt_out(input)?;
            Arc::new(DynamicFilterExec::with(input, scan.filters().to_vec()))
        });
    }
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        return Ok(CachedStatistics::without(scan).map_or(plan, |scan| Arc::new(scan) as _));
    }
    let before = plan.children().into_iter().cloned().collect::<Vec<_>>();
    let after = before
        .iter()
        .map(|child| remove_unused(Arc::clone(child), of_joins))
        .collect::<Result<Vec<_>>>()?;
    let after = match plan.downcast_ref::<FilterExec>() {
        Some(filter) => with_comparisons(filter, after)?,
        None => after,
    };
    let is_same = before.iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b));
    if is_same {
        Ok(plan)
    } else {
        // What goes had its child's properties.
        plan.replace_children(
            after,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep),
        )
    }
}

/// Returns `scan`, with even partitions if it is one of a table in memory. Its rows go to a join,
/// and no LIMIT lies between, as filters pass none.
///
/// # Errors
/// DataFusion's errors of making a scan.
fn dealt_out(scan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let even = match scan.downcast_ref::<DataSourceExec>() {
        Some(table) => with_even_partitions(table)?,
        None => None,
    };
    Ok(even.map_or(scan, |even| Arc::new(even) as _))
}

/// Returns the `inputs` of `filter`. A filter node there has the comparisons of the predicate.
fn with_comparisons(
    filter: &FilterExec,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    match comparisons(filter.predicate(), &filter.input().schema()) {
        Some(predicate) => {
            let inputs = inputs.into_iter();
            inputs
                .map(|node| with_predicate(node, &predicate))
                .collect()
        }
        None => Ok(inputs),
    }
}

/// Returns `node`, where the filter node of the scan below it, if it has one, tests by `predicate`.
///
/// # Errors
/// If a node does not take its new input.
fn with_predicate(
    node: Arc<dyn ExecutionPlan>,
    predicate: &PhysicalExprRef,
) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = node.downcast_ref::<DynamicFilterExec>() {
        return Ok(Arc::new(scan.with_predicate(Arc::clone(predicate))));
    }
    let children = node.children();
    match children.as_slice() {
        [child] if node.is::<RepartitionExec>() => {
            let before = *child;
            let child = with_predicate(Arc::clone(before), predicate)?;
            if Arc::ptr_eq(&child, before) {
                return Ok(node);
            }
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
            Arc::clone(&node).replace_children(vec![child], options)
        }
        _ => Ok(node),
    }
}
