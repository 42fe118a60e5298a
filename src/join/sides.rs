//! The sides of a join that may be built, read off its plan.
//!
//! ```text
//!  Fixed  a promise of order, NOT IN, a LIMIT in the join, an endless input, run-end encoded
//!         columns: the left one
//!  Open   the one that ends first when both are read alternately (input::choose_build_side)
//! ```

use arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::side::Side;

/// The sides that may be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// This one.
    Fixed(Side),
    /// The one that ends first.
    Open,
}

impl Sides {
    /// Returns the sides of `join` that may be built while it has no LIMIT and its sides are
    /// `open`.
    pub fn new(join: &HashJoinExec, open: bool) -> Self {
        if open && join.fetch().is_none() {
            Sides::Open
        } else {
            Sides::Fixed(Side::Left)
        }
    }

    /// Returns whether `side` may be built.
    pub fn may_be(self, side: Side) -> bool {
        match self {
            Sides::Fixed(fixed) => fixed == side,
            Sides::Open => true,
        }
    }
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
