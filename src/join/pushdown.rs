//! Which dynamic filters go to which input of a join.
//!
//! ```text
//!        filter over output column 3            own filters, one a key column
//!             │ column 3 is right's x                    │
//!        ┌── Join ──┐                             left ──┴─▶ right
//!      left       right x
//! ```
//!
//! The rules are those of `HashJoinExec::gather_filters_for_pushdown`: a filter goes to a side
//! whose rows the join type preserves, and over a key of a semi join to both. Two things differ. A
//! filter a key column reaches scans that one filter over all of them cannot. And DataFusion finds
//! a child's column by its name alone, which is wrong where two columns share it; such filters
//! stay where they are. (Elsewhere in a plan [`exact`](crate::scan::exact) sees to that.)

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, PushedDown, PushedDownPredicate,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::joins::utils::ColumnIndex;

use super::filter::KeyFilter;

/// The key columns of both sides.
type On = [(PhysicalExprRef, PhysicalExprRef)];

/// `filter` as a dynamic one, if it is.
fn dynamic(filter: Arc<dyn PhysicalExpr>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    (filter as Arc<dyn Any + Send + Sync>).downcast().ok()
}

/// A filter for each key of the probe side, which lets everything through for now.
pub fn key_filters(on: &On) -> Vec<PhysicalExprRef> {
    let filter = |(_, key): &(_, PhysicalExprRef)| {
        Arc::new(DynamicFilterPhysicalExpr::new(
            vec![Arc::clone(key)],
            lit(true),
        )) as _
    };
    on.iter().map(filter).collect()
}

/// The [`key_filters`] as the probe side answered to them.
pub fn accepted(answers: &[PushedDownPredicate]) -> Vec<KeyFilter> {
    let filter = |(key, answer): (usize, &PushedDownPredicate)| {
        Some(KeyFilter {
            key,
            filter: dynamic(Arc::clone(&answer.predicate))?,
            is_evaluated: matches!(answer.discriminant, PushedDown::Yes),
        })
    };
    answers.iter().enumerate().filter_map(filter).collect()
}

/// Whether a filter on output rows may be applied to the rows of each side.
fn preserves(join_type: JoinType) -> [bool; 2] {
    match join_type {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => [true, true],
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => [true, false],
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => [false, true],
        JoinType::Full => [false, false],
    }
}

/// What goes to the two sides of `filters` from above, over output columns that come from
/// `columns`.
///
/// # Errors
/// If a filter cannot be rewritten.
pub fn parents(
    join: &HashJoinExec,
    columns: &[ColumnIndex],
    filters: &[PhysicalExprRef],
) -> Result<[ChildFilterDescription; 2]> {
    let [left, right] = match join.fetch() {
        None => preserves(*join.join_type()),
        // Rows that a filter takes away would make others the first.
        Some(_) => [false, false],
    };
    let describe = |preserved, child: &Arc<dyn ExecutionPlan>, side| match preserved {
        true => {
            let allowed = allowed(join, columns, side);
            ChildFilterDescription::from_child_with_allowed_indices(filters, allowed, child)
        }
        false => Ok(ChildFilterDescription::all_unsupported(filters)),
    };
    Ok([
        describe(left, join.left(), JoinSide::Left)?,
        describe(right, join.right(), JoinSide::Right)?,
    ])
}

/// Output columns whose name means, in the schema of `side`, the column that they are there.
fn allowed(join: &HashJoinExec, columns: &[ColumnIndex], side: JoinSide) -> HashSet<usize> {
    let schemas = [join.left().schema(), join.right().schema()];
    let schema = |side| match side {
        JoinSide::Left => &schemas[0],
        _ => &schemas[1],
    };
    let is_exact = |from: &ColumnIndex, to: usize| {
        let name = schema(from.side).field(from.index).name();
        let mut named =
            (0..schema(side).fields().len()).filter(|i| schema(side).field(*i).name() == name);
        named.next() == Some(to) && named.next().is_none()
    };
    let allowed = columns.iter().enumerate().filter(|(_, column)| {
        if column.side == side {
            return is_exact(column, column.index);
        }
        // A row of a semi join has equal keys on the other side.
        let is_semi = match column.side {
            JoinSide::Left => *join.join_type() == JoinType::LeftSemi,
            JoinSide::Right => *join.join_type() == JoinType::RightSemi,
            JoinSide::None => false,
        };
        is_semi && partners(join.on(), column).any(|partner| is_exact(column, partner))
    });
    allowed.map(|(i, _)| i).collect()
}

/// Columns of the other side that equal `column`, which is a key.
fn partners<'a>(on: &'a On, column: &'a ColumnIndex) -> impl Iterator<Item = usize> + 'a {
    let index = |key: &PhysicalExprRef| key.downcast_ref::<Column>().map(Column::index);
    on.iter().filter_map(move |(left, right)| {
        let (mine, other) = match column.side {
            JoinSide::Left => (left, right),
            _ => (right, left),
        };
        (index(mine) == Some(column.index)).then(|| index(other))?
    })
}
