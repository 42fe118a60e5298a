//! The sides of a join that may be built, and the one that is read first, read off its plan.
//!
//! ```text
//!  Fixed  a promise of order, NOT IN, a LIMIT in the join, an endless input, run-end encoded
//!         columns: the left one
//!  Open   one of them, found out by reading both alternately (input::choose_build_side)
//! ```
//!
//! Of open sides one is read first:
//!
//! ```text
//!        Join          is one side a LIMIT, or a filter over an aggregate?   that one
//!       /    \         else the side that costs less: the rows of all of its tables,
//!      T      R        five times them if no filter leaves some out (of two such sides: R's)
//!     / \              between two trees, and between two scans that wait for
//!    …   S             no filter of another join: the left one
//! ```
//!
//! The keys of the side that ends first filter the scans of the other one. So what is read first is
//! read whole, and spares the rest. A scan has a known cost. A tree of joins has not:
//! rows can multiply in it until a filter of the other side would have excluded nearly all. So no
//! tree is read before a scan that costs less than the tree's tables do, however small it may turn
//! out. A table without a filter excludes few rows of others, as foreign keys go. Keys of a join
//! above are a filter, if they are there in time
//! ([`note_above`](super::exec::HortonJoinExec::note_above)).
//!
//! DataFusion's join reads nothing of the right side if the left one is empty and its type then has
//! no rows. So a right side is not read first if one of its expressions [can
//! fail](crate::scan::infallible_plan).
//!
//! One thing about a tree can be found out for little: that it has no rows, because a filter leaves
//! none of one of its tables ([`read_ahead`](super::read_ahead)). Then it is first. That is found
//! out of a tree on the left alone, which DataFusion's join would read first, too. A tree on the
//! right is not read at all if a left scan has no rows.
//!
//! Sources: Yang et al., "Predicate Transfer: Efficient Pre-Filtering on Multi-Join Queries" (CIDR
//! 2024), which passes filters on from small tables to large ones. DataFusion's own default: a
//! filter leaves a fifth of the rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::plan_nodes::{has_filter, is_row_filter};
use crate::scan::infallible_plan::has_infallible_rows;
use crate::scan::pushdown_guard::PushdownGuard;

use super::dynamic_filter::targets::rows_scanned;
use super::side::Side;

/// Rows of a filtered table that cost as much as one row of a table without a filter.
const UNFILTERED: usize = 5;

/// The sides that may be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sides {
    /// This one.
    Fixed(Side),
    /// The one that ends first, or the other if it is much smaller then.
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

/// The order in which the sides are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadOrder {
    /// This side is read first.
    Known(Side),
    /// The right side, a scan of so many rows, is read first unless the left one, a tree of joins,
    /// is found to be empty.
    RightUnlessEmpty(usize),
}

impl ReadOrder {
    /// Returns the order for `join`, either of whose sides may be built. Filters of joins above
    /// reach the sides that are `reached`, left and right.
    pub fn of(join: &HashJoinExec, reached: [bool; 2]) -> Self {
        let inputs = [join.left(), join.right()];
        let (_, filters_left) = join.join_type().swap().on_lr_is_preserved();
        if !filters_left {
            return ReadOrder::Known(Side::Left);
        }
        match Self::by_cost(inputs, reached) {
            order if order.planned() == Side::Right && relies_on_left(join) => {
                ReadOrder::Known(Side::Left)
            }
            order => order,
        }
    }

    /// Returns the order that costs least for `inputs`.
    fn by_cost(inputs: [&Arc<dyn ExecutionPlan>; 2], reached: [bool; 2]) -> Self {
        match inputs.map(|input| is_small(input, false)) {
            [false, false] => {}
            [false, true] if !has_filter(inputs[0]) => return ReadOrder::Known(Side::Right),
            _ => return ReadOrder::Known(Side::Left),
        }
        let [left, right] = [0, 1].map(|i| Shape::of(inputs[i], reached[i]));
        let Some((left, right)) = left.zip(right) else {
            return ReadOrder::Known(Side::Left);
        };
        let cheaper = if right.cost() < left.cost_before(&right) {
            Side::Right
        } else {
            Side::Left
        };
        match (left.scan, right.scan) {
            (None, None) => ReadOrder::Known(Side::Left),
            // DataFusion's estimates know as much of scans that no other filter reaches.
            (Some(_), Some(_)) if reached[0] == reached[1] => ReadOrder::Known(Side::Left),
            (None, Some(rows)) if cheaper == Side::Right => ReadOrder::RightUnlessEmpty(rows),
            _ => ReadOrder::Known(cheaper),
        }
    }

    /// Returns the side that is read first by what the plan shows.
    pub fn planned(self) -> Side {
        match self {
            ReadOrder::Known(side) => side,
            ReadOrder::RightUnlessEmpty(_) => Side::Right,
        }
    }
}

/// Returns whether reading the right side can show although the left one is empty, where
/// DataFusion's join would not read it: it can fail, or draws at random.
fn relies_on_left(join: &HashJoinExec) -> bool {
    let reads_no_right = join.join_type().empty_build_side_produces_empty_result();
    reads_no_right && !has_infallible_rows(join.right())
}

/// What a plan shows of an input.
#[derive(Debug, Clone, Copy)]
struct Shape {
    /// The rows of its one scan, no row of which comes through twice.
    scan: Option<usize>,
    /// The rows of all of its tables.
    rows: usize,
    /// True if a filter leaves some of them out.
    is_filtered: bool,
}

impl Shape {
    /// Returns the shape of `plan`, if the rows of its tables are known.
    fn of(plan: &Arc<dyn ExecutionPlan>, is_reached: bool) -> Option<Self> {
        let scan = rows_scanned(plan);
        let rows = scan.or_else(|| rows_below(plan))?;
        Some(Self {
            scan,
            rows,
            is_filtered: is_reached || has_filter(plan),
        })
    }

    /// Returns what it costs to read it first, in rows of a filtered table.
    fn cost(&self) -> usize {
        let factor = if self.is_filtered { 1 } else { UNFILTERED };
        self.rows.saturating_mul(factor)
    }

    /// Returns the same for the left side of a join with the side `right`. If no filter leaves rows
    /// out of either, nothing but a right side that is small speaks against the planned order.
    fn cost_before(&self, right: &Self) -> usize {
        if right.is_filtered {
            self.cost()
        } else {
            self.rows
        }
    }
}

/// Returns the rows of all tables below `plan`, if they are known.
pub fn rows_below(plan: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    let mut rows: usize = 0;
    let mut left = vec![plan];
    while let Some(node) = left.pop() {
        let children = node.children();
        if children.is_empty() {
            rows = rows.saturating_add(rows_scanned(node)?);
        }
        left.extend(children);
    }
    Some(rows)
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
