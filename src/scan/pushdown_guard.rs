//! Keeps filters from columns that only share a name with theirs, and from what can fail.
//!
//! ```text
//!   filter id@2                        filter id@2
//!       │                                  │
//!  CoalescePartitions               PushdownGuard  ── refuses it
//!       │  finds "id": column 0 ✗          │
//!      Join  [id, x, id]              CoalescePartitions
//! ```
//!
//! Most of DataFusion's nodes hand a filter to their child by the name of its column
//! (`ChildFilterDescription::from_child`). In a schema with two columns of that name it ends at the
//! first, and in a union at any column with the name. Pruning by such a filter loses rows, and
//! testing rows by it loses more. Neither may a filter go below a LIMIT, which some nodes have as
//! `fetch`. A projection or a scan may compute a column by an expression that can fail, and a
//! filter over that column stays above it ([`infallible`](super::infallible)). None goes below a
//! condition that may fail once rows are left out ([`short_circuit`](super::short_circuit)).
//!
//! A [`PushdownGuard`] stands above each such node while filters are handed out. It lets through
//! those whose columns are the same below.
//!
//! UPSTREAM(not reported): this file goes once nodes hand filters on by the index of a column.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};

use crate::plan_nodes::{any_expression, file_source, names_by_place};

use crate::scan::infallible::is_infallible;
use crate::scan::one_child::with_properties_of;
use crate::scan::short_circuit::depends_on_batch;

/// A node that is asked for filters over `columns` alone.
#[derive(Debug)]
pub struct PushdownGuard {
    node: Arc<dyn ExecutionPlan>,
    columns: HashSet<usize>,
}

impl PushdownGuard {
    /// Returns `node`, behind a guard if it needs one.
    pub fn around(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let all = node.schema().fields().len();
        // Of a node with a LIMIT the first rows are wanted, whichever pass.
        let is_closed = node.fetch().is_some() || any_expression(node.as_ref(), depends_on_batch);
        let exact = (0..all).filter(|i| !is_closed && is_exact(node.as_ref(), *i));
        let columns: HashSet<usize> = exact.collect();
        if columns.len() == all {
            node
        } else {
            Arc::new(Self { node, columns })
        }
    }

    /// Returns `node` behind a guard that lets no filter through.
    pub fn closed(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        let columns = HashSet::new();
        Arc::new(Self { node, columns })
    }

    fn over(&self, node: Arc<dyn ExecutionPlan>) -> Self {
        let columns = self.columns.clone();
        Self { node, columns }
    }

    /// Returns the node behind the guard.
    pub fn node(&self) -> &Arc<dyn ExecutionPlan> {
        &self.node
    }
}

/// Returns whether a filter over column `i` of `node`'s rows reaches the same column of its
/// children's.
fn is_exact(node: &dyn ExecutionPlan, i: usize) -> bool {
    let schema = node.schema();
    let name = schema.field(i).name();
    // Its own schema is searched by name, too.
    if only(node, name) != Some(i) {
        return false;
    }
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return reads_infallibly(scan, i);
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let of_column = projection.expr().get(i);
        let schema = projection.input().schema();
        return of_column.is_some_and(|computed| is_infallible(&computed.expr, &schema));
    }
    let children = node.children();
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        // Filters over other columns than groups are not handed on.
        return aggregate.group_expr().expr().get(i).is_none_or(|(key, _)| {
            let column = key.downcast_ref::<Column>().map(Column::index);
            column.is_some() && only(children[0].as_ref(), name) == column
        });
    }
    let by_place = names_by_place(node);
    children.iter().all(|child| {
        let found = only(child.as_ref(), name);
        found.is_some() && (!by_place || found == Some(i))
    })
}

/// Returns whether `scan` may test its column `i` before it has made it. A scan of files can
/// compute columns, and tests what they are computed of.
fn reads_infallibly(scan: &DataSourceExec, i: usize) -> bool {
    let computed = file_source(scan).and_then(|source| Some((source, source.projection()?)));
    let Some((source, computed)) = computed else {
        return true;
    };
    let table = source.table_schema().table_schema();
    let of_column = computed.as_ref().get(i);
    of_column.is_some_and(|computed| is_infallible(&computed.expr, table))
}

/// Returns the one column of `plan`'s rows that has this name.
fn only(plan: &dyn ExecutionPlan, name: &str) -> Option<usize> {
    let schema = plan.schema();
    let mut named = (0..schema.fields().len()).filter(|i| schema.field(*i).name() == name);
    let first = named.next()?;
    named.next().is_none().then_some(first)
}

impl DisplayAs for PushdownGuard {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt_as(t, f)
    }
}

impl ExecutionPlan for PushdownGuard {
    fn name(&self) -> &str {
        "PushdownGuard"
    }

    with_properties_of!(node);

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.node.execute(partition, context)
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let child = ChildFilterDescription::from_child_with_allowed_indices(
            &parent_filters,
            self.columns.clone(),
            &self.node,
        )?;
        Ok(FilterDescription::new().with_child(child))
    }
}
