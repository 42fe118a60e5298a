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
//! such as a file that is gone. A dynamic filter in a scan tests the values of its expressions, and
//! never fails if they do not.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::DynamicFilterPhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;

use crate::plan_nodes::any_expression;

use super::infallible::is_infallible;

/// Returns whether all expressions of `plan`, and of the nodes below, are known to be pure and
/// never to fail.
pub fn has_infallible_rows(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut left = vec![plan];
    while let Some(node) = left.pop() {
        if any_expression(node.as_ref(), may_fail) {
            return false;
        }
        left.extend(node.children());
    }
    true
}

fn may_fail(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    if expression.is::<DynamicFilterPhysicalExpr>() {
        let mut tested = expression.children().into_iter();
        return tested.any(|value| !is_infallible(value, schema));
    }
    !is_infallible(expression, schema)
}
