//! Finds out whether a tree of joins is empty, before the scan on the other side of a join is read.
//!
//! ```text
//!        Join            S and U are filtered, and have fewer rows than R: first the smaller one,
//!       /    \           then the other one is read until a row comes.
//!      K      R  scan      none came:  K has no rows, and is read first. R need not be read.
//!     / \                  one came:   R is read first. K reads on where this stopped.
//!    S   U
//! ```
//!
//! A filter that leaves no row of one table leaves no row of an inner join, whatever the other
//! tables have. A scan that is read first would be read for nothing. Reading ahead reads no row
//! more than K needs anyway. The tables together have fewer rows than the scan. So finding out
//! costs no more than a wrong guess (ski rental, Karlin et al., 1988).
//!
//! A join that has begun to read is left alone, and so is all below it: nodes there cannot be
//! executed again. The read that it has begun is waited for, be it of a scan or of a smaller tree.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_plan::ExecutionPlan;

use crate::plan_nodes::{has_filter, is_row_filter};
use crate::scan::infallible_plan::has_infallible_rows;

use super::dynamic_filter::pushdown::preserves;
use super::dynamic_filter::targets::rows_scanned;
use super::exec::HortonJoinExec;
use super::input::choose_build_side::IsEmpty;
use super::side::Side;
use super::sides::rows_below;
use super::stream::with_stack;

/// A filtered input without whose rows a tree of joins has none: a scan. Of a join that has begun,
/// its own inputs are among them, as one of them is being read.
pub struct FilteredInput {
    /// The joins from the top of the tree to the one that it is an input of.
    pub path: Vec<Arc<dyn ExecutionPlan>>,
    /// Its side of the last one.
    pub side: Side,
    /// True if one of the joins opened its inputs before. Then it is being read already, or must
    /// not be.
    pub is_begun: bool,
    rows: usize,
}

/// Returns whether a filter leaves no row of a table without which `tree` has none. Tables are read
/// that have fewer than `most` rows together. `read` begins to read one until a row comes, unless
/// that cannot be done.
///
/// # Errors
/// Those of `read`.
pub async fn is_found_empty(
    tree: &Arc<dyn ExecutionPlan>,
    most: usize,
    read: impl Fn(&FilteredInput) -> Result<Option<IsEmpty>>,
) -> Result<bool> {
    let mut inputs = Vec::new();
    find(tree, &mut Vec::new(), false, &mut inputs);
    inputs.sort_by_key(|input| input.rows);
    let mut rows: usize = 0;
    for input in inputs {
        if rows.saturating_add(input.rows) >= most {
            return Ok(false);
        }
        let Some(mut read) = read(&input)? else {
            continue;
        };
        rows += input.rows;
        // A read that is gone has found nothing.
        let is_empty = read.wait_for(Option::is_some).await;
        if is_empty.is_ok_and(|is_empty| *is_empty == Some(true)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds the filtered inputs without whose rows `plan` has none to `found`. It is below the joins of
/// `path`, one of which opened its inputs if `is_begun`.
fn find(
    plan: &Arc<dyn ExecutionPlan>,
    path: &mut Vec<Arc<dyn ExecutionPlan>>,
    is_begun: bool,
    found: &mut Vec<FilteredInput>,
) {
    let Some(join) = HortonJoinExec::downcast(plan.as_ref()) else {
        if let [child] = plan.children().as_slice()
            && is_row_filter(plan.as_ref())
        {
            with_stack(|| find(child, path, is_begun, found));
        }
        return;
    };
    let is_begun = is_begun || join.runs.has_begun();
    path.push(Arc::clone(plan));
    let preserved = preserves(*join.stock().join_type());
    for side in Side::BOTH {
        let input = join.input(side);
        if !preserved[side as usize] {
            continue;
        }
        let scanned = rows_scanned(input);
        let read = scanned.or_else(|| is_begun.then(|| rows_below(input))?);
        // What can fail is read in the planned order.
        let may_be_read = is_begun || has_infallible_rows(input);
        if let Some(rows) = read.filter(|_| has_filter(input) && may_be_read) {
            found.push(FilteredInput {
                path: path.clone(),
                side,
                is_begun,
                rows,
            });
        }
        if scanned.is_none() {
            with_stack(|| find(input, path, is_begun, found));
        }
    }
    path.pop();
}
