//! Whether anything below a node can fail on a row that is read.
//!
//! ```text
//!  Join ── left   no row: DataFusion's join reads nothing of the right
//!     └─── right  Filter  ok AND CAST(s AS INT) < 63    can fail once it is read
//! ```
//!
//! A query relies on what is not read. So a rule that has tables read in another order asks here
//! whether they can be read at any time. What is not known counts as one that can fail.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::HashJoinExec;

use crate::plan_nodes::file_source;

use super::infallible::is_infallible;

/// Returns whether all expressions of `plan`, and of the nodes below, are known to be pure and
/// never to fail.
pub fn has_infallible_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    is_infallible_plan_node(plan.as_ref()) && plan.children().into_iter().all(has_infallible_rows)
}

/// Returns the same of one node's own expressions.
fn is_infallible_plan_node(node: &dyn ExecutionPlan) -> bool {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return is_infallible_scan(scan);
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return is_infallible_join(join);
    }
    let aggregate = node.downcast_ref::<AggregateExec>();
    let schema = match (aggregate, node.children().as_slice()) {
        // The arguments of a final aggregate are those of the partial one below.
        (Some(aggregate), _) => aggregate.input_schema(),
        (None, [child]) => child.schema(),
        // Columns of two inputs have no known types here, and most conditions over them count as
        // ones that can fail.
        (None, _) => Arc::new(Schema::empty()),
    };
    let mut never_fails = true;
    let visited = node.apply_expressions(&mut |expression| {
        never_fails &= is_infallible(expression, &schema);
        Ok(TreeNodeRecursion::Continue)
    });
    never_fails && visited.is_ok()
}

/// A scan of files can compute columns, and test a predicate.
fn is_infallible_scan(scan: &DataSourceExec) -> bool {
    let Some(source) = file_source(scan) else {
        return true;
    };
    let table = source.table_schema().table_schema();
    let computed = source.projection().map(|of| of.as_ref().iter());
    let mut computed = computed.into_iter().flatten();
    let predicate = source.filter();
    computed.all(|column| is_infallible(&column.expr, table))
        && predicate.is_none_or(|predicate| is_infallible(&predicate, table))
}

fn is_infallible_join(join: &HashJoinExec) -> bool {
    let (left, right) = (join.left().schema(), join.right().schema());
    let mut keys = join.on().iter();
    keys.all(|(l, r)| is_infallible(l, &left) && is_infallible(r, &right))
        && join
            .filter()
            .is_none_or(|residual| is_infallible(residual.expression(), residual.schema()))
}
