//! Whether anything below a node can fail on a row that is read.
//!
//! ```text
//!  Join ── left   no row: DataFusion's join reads nothing of the right
//!     └─── right  Filter  ok AND CAST(s AS INT) < 63    can fail once it is read
//! ```
//!
//! A query relies on what is not read. So a rule that has tables read in another order asks here
//! whether they can be read at any time. An expression of which nothing is known counts as one that
//! can fail. That goes for conditions over both inputs of a join, too. Functions of aggregates and
//! windows are not looked at, only their arguments. Nor is what can go wrong in a source itself,
//! such as a file that is gone. Dynamic filters in scans are made of what
//! [never fails](super::infallible).

use std::sync::Arc;

use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::plan_nodes::any_expression;

use super::infallible::is_infallible;

/// Returns whether all expressions of `plan`, and of the nodes below, are known to be pure and
/// never to fail.
pub fn has_infallible_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let may_fail = any_expression(plan.as_ref(), |expression, schema| {
        !expression.is::<DynamicFilterPhysicalExpr>() && !is_infallible(expression, schema)
    });
    !may_fail && plan.children().into_iter().all(has_infallible_rows)
}
