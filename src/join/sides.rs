//! The sides of a join that may be built, read off its plan.
//!
//! ```text
//!  Fixed        a promise of order, NOT IN, a LIMIT in the join, an endless input, run-end encoded
//!               columns: the left one
//!  Open(first)  the one that ends first when both are read by turns (input::choose_build_side)
//! ```

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::plan_nodes::is_row_filter;
use crate::scan::pushdown_guard::PushdownGuard;

use super::side::Side;

/// The sides that may be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// This one.
    Fixed(Side),
    /// The one that ends first; this one is read first.
    Open(Side),
}

impl Sides {
    /// Returns the sides of `join` that may be built while it has no LIMIT and its sides are
    /// `open`.
    pub fn of(join: &HashJoinExec, open: bool) -> Self {
        if open && join.fetch().is_none() {
            Sides::Open(first(join))
        } else {
            Sides::Fixed(Side::Left)
        }
    }

    /// Returns the side that is read first.
    pub fn first(self) -> Side {
        match self {
            Sides::Fixed(side) | Sides::Open(side) => side,
        }
    }

    /// Returns whether `side` may be built.
    pub fn may_be(self, side: Side) -> bool {
        match self {
            Sides::Fixed(fixed) => fixed == side,
            Sides::Open(_) => true,
        }
    }
}

/// Returns the side of `join` to read first. That is the right one on two conditions. The plan
/// shows why the right one is small. And the left one has no filter whose keys would make the right
/// one cheaper still.
fn first(join: &HashJoinExec) -> Side {
    let (_, filters_probe) = join.join_type().swap().on_lr_is_preserved();
    let right_first = filters_probe
        && is_small(join.right(), false)
        && !is_small(join.left(), false)
        && !has_filter(join.left());
    if right_first { Side::Right } else { Side::Left }
}

/// Returns whether `plan` has few rows: a LIMIT, or a filter over an aggregate. An aggregate keeps
/// its groups until its last row came, and a filter over it is there to leave few.
fn is_small(plan: &Arc<dyn ExecutionPlan>, filtered: bool) -> bool {
    // Guards stand above limits while filters are handed out.
    let plan = plan
        .downcast_ref::<PushdownGuard>()
        .map_or(plan, PushdownGuard::node);
    if plan.fetch().is_some() {
        return true;
    }
    if plan.is::<AggregateExec>() {
        return filtered;
    }
    match plan.children().as_slice() {
        [child] if is_row_filter(plan.as_ref()) => {
            is_small(child, filtered || plan.is::<FilterExec>())
        }
        _ => false,
    }
}

/// Returns whether some row of the tables below `plan` is left out by a filter or a LIMIT.
fn has_filter(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<FilterExec>() || plan.fetch().is_some() || plan.children().into_iter().any(has_filter)
}

/// Returns whether `join` gives the same rows with either side built, in an order that nobody
/// relies on.
pub fn can_swap(join: &HashJoinExec) -> bool {
    let [left, right] = [join.left(), join.right()];
    let swaps = join.join_type().supports_swap()
        || matches!(join.join_type(), JoinType::LeftMark | JoinType::RightMark);
    let is_endless = left.boundedness().is_unbounded() || right.boundedness().is_unbounded();
    swaps
        && !join.null_aware
        && right.output_ordering().is_none()
        && !is_endless
        && !has_run_ends(join)
}

/// Returns whether an input of `join` has run-end encoded columns. Arrow does not make their
/// values NULL in rows without a match if their side is built (apache/arrow-rs#10908). If it is
/// probed, the rows are right. So such a join builds the side that DataFusion builds.
pub fn has_run_ends(join: &HashJoinExec) -> bool {
    let schemas = [join.left().schema(), join.right().schema()];
    let mut fields = schemas.iter().flat_map(|schema| schema.fields());
    fields.any(|field| is_run_end_encoded(field.data_type()))
}

/// Returns whether `data_type` is run-end encoded, or contains such a type.
fn is_run_end_encoded(data_type: &DataType) -> bool {
    match data_type {
        DataType::RunEndEncoded(_, _) => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => is_run_end_encoded(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| is_run_end_encoded(f.data_type())),
        DataType::Union(fields, _) => fields
            .iter()
            .any(|(_, field)| is_run_end_encoded(field.data_type())),
        DataType::Dictionary(_, values) => is_run_end_encoded(values),
        _ => false,
    }
}
