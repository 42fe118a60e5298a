//! The dynamic filters that go to each input of a join.
//!
//! ```text
//!        filter over output column 3            own filters, one per key column,
//!             │ column 3 is right's x                    │   and one over several
//!        ┌── Join ──┐                             left ──┴─▶ right
//!      left       right x
//! ```
//!
//! The rules are those of `HashJoinExec::gather_filters_for_pushdown`. A filter goes to a side
//! whose rows the join type preserves, and over a key of a semi join to both. Three things differ.
//! A filter per key column reaches scans that one filter over all of them cannot. The one over all
//! of them reaches a scan that has all, and leaves out what no single column can. DataFusion finds
//! a child's column by its name alone, which is wrong where two columns share it; such filters stay
//! where they are. And a key that can fail, or is drawn at random, has no filter
//! ([`infallible`](crate::scan::infallible)). (Elsewhere in a plan
//! [`pushdown_guard`](crate::scan::pushdown_guard) sees to that.)

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::expressions::{Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterPushdownPhase, PushedDown, PushedDownPredicate,
};
use datafusion::physical_plan::joins::utils::ColumnIndex;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use super::targets::KeyFilter;
use crate::join::side::Side;
use crate::scan::infallible::is_infallible;

/// Returns `filter` as a dynamic one, if it is.
fn dynamic(filter: Arc<dyn PhysicalExpr>) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    (filter as Arc<dyn Any + Send + Sync>).downcast().ok()
}

/// Returns the filters for the keys of each side that may be probed, which let everything through
/// for now. The right side may always be. The left one may only where `join` leaves sides open.
///
/// # Errors
/// The errors of DataFusion, which says whether filters of a join are allowed.
pub fn key_filters(
    join: &HashJoinExec,
    config: &ConfigOptions,
) -> Result<[Vec<PhysicalExprRef>; 2]> {
    // Asked for the filters of its own alone, DataFusion's join says whether they are allowed.
    let stock = join.gather_filters_for_pushdown(FilterPushdownPhase::Post, Vec::new(), config)?;
    let right = stock
        .self_filters()
        .get(1)
        .is_some_and(|own| !own.is_empty());
    let (left, _) = join.join_type().on_lr_is_preserved();
    let left = left
        && *join.partition_mode() == PartitionMode::Auto
        && config.optimizer.enable_join_dynamic_filter_pushdown;
    let filters = |side, wanted: bool| {
        let keys = filtered_keys(join, side).into_iter().filter(|_| wanted);
        keys.map(|keys| key_filter(keys.into_iter().map(|(_, key)| key)))
            .collect()
    };
    Ok([filters(Side::Left, left), filters(Side::Right, right)])
}

/// A key of a join, with its number among the join's.
type NumberedKey<'a> = (usize, &'a PhysicalExprRef);

/// Returns the keys of `side` that each filter is over: one of them, then all of them that are
/// columns if there are several. DataFusion hands a filter down by replacing its keys one after the
/// other, so that none of several may be part of another.
fn filtered_keys(join: &HashJoinExec, side: Side) -> Vec<Vec<NumberedKey<'_>>> {
    let all: Vec<NumberedKey<'_>> = testable_keys(join, side).collect();
    let columns = all.iter().filter(|(_, key)| key.is::<Column>());
    let columns: Vec<_> = columns.copied().collect();
    let mut keys: Vec<_> = all.into_iter().map(|key| vec![key]).collect();
    if columns.len() > 1 {
        keys.push(columns);
    }
    keys
}

/// Returns the keys of `side` that scans may test.
fn testable_keys(join: &HashJoinExec, side: Side) -> impl Iterator<Item = NumberedKey<'_>> {
    let schema = match side {
        Side::Left => join.left().schema(),
        Side::Right => join.right().schema(),
    };
    let keys = join.on().iter().map(move |(left, right)| match side {
        Side::Left => left,
        Side::Right => right,
    });
    let is_testable = move |(_, key): &NumberedKey<'_>| is_infallible(key, &schema);
    keys.enumerate().filter(is_testable)
}

fn key_filter<'a>(keys: impl Iterator<Item = &'a PhysicalExprRef>) -> PhysicalExprRef {
    let keys = keys.map(Arc::clone).collect();
    Arc::new(DynamicFilterPhysicalExpr::new(keys, lit(true)))
}

/// Returns the [`key_filters`] of `join` as `side` answered to them.
pub fn accepted(
    join: &HashJoinExec,
    side: Side,
    answers: &[PushedDownPredicate],
) -> Vec<KeyFilter> {
    let keys = filtered_keys(join, side).into_iter().zip(answers);
    let filter = |(keys, answer): (Vec<NumberedKey<'_>>, &PushedDownPredicate)| {
        Some(KeyFilter {
            keys: keys.into_iter().map(|(key, _)| key).collect(),
            filter: dynamic(Arc::clone(&answer.predicate))?,
            is_evaluated: matches!(answer.discriminant, PushedDown::Yes),
        })
    };
    keys.filter_map(filter).collect()
}

/// Returns whether a filter on output rows may be applied to the rows of each side.
pub fn preserves(join_type: JoinType) -> [bool; 2] {
    match join_type {
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi => [true, true],
        JoinType::Left | JoinType::LeftAnti | JoinType::LeftMark => [true, false],
        JoinType::Right | JoinType::RightAnti | JoinType::RightMark => [false, true],
        JoinType::Full => [false, false],
    }
}

/// Returns the part for each side of `filters` from above, over output columns that come from
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
    let describe = |preserved, child: &Arc<dyn ExecutionPlan>, side| {
        if preserved {
            let allowed = allowed(join, columns, side);
            ChildFilterDescription::from_child_with_allowed_indices(filters, allowed, child)
        } else {
            Ok(ChildFilterDescription::all_unsupported(filters))
        }
    };
    Ok([
        describe(left, join.left(), JoinSide::Left)?,
        describe(right, join.right(), JoinSide::Right)?,
    ])
}

/// Returns the output columns whose name means, in the schema of `side`, the column that they are
/// there.
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
        is_semi && partners(join, column).any(|partner| is_exact(column, partner))
    });
    allowed.map(|(i, _)| i).collect()
}

/// Returns the columns of the other side that equal `column`, which is a key.
fn partners<'a>(
    join: &'a HashJoinExec,
    column: &'a ColumnIndex,
) -> impl Iterator<Item = usize> + 'a {
    let index = |key: &PhysicalExprRef| key.downcast_ref::<Column>().map(Column::index);
    join.on().iter().filter_map(move |(left, right)| {
        let (mine, other) = match column.side {
            JoinSide::Left => (left, right),
            _ => (right, left),
        };
        (index(mine) == Some(column.index)).then(|| index(other))?
    })
}
