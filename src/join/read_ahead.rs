//! Whether a tree of joins is empty, found out before the scan on the other side of a join is read.
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
//! tables have. A scan that is read first would be read in vain. What is read ahead is no row more
//! than K needs anyway. The tables together have fewer rows than the scan. So finding out costs no
//! more than a wrong guess (ski rental, Karlin et al., 1988).
//!
//! A join that has begun to read is left alone: nodes below it cannot be executed again. If one of
//! the scans is what it reads, the end of that read is waited for.

use std::sync::{Arc, Weak};

use datafusion::common::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;

use crate::plan_nodes::{has_filter, is_row_filter};

use super::dynamic_filter::pushdown::preserves;
use super::dynamic_filter::targets::rows_scanned;
use super::exec::HortonJoinExec;
use super::execution::Run;
use super::input::choose_build_side::IsEmpty;
use super::side::Side;
use super::stream::with_stack;

/// A filtered scan without whose rows a tree of joins has none.
struct FilteredScan {
    /// The joins from the top of the tree to the one that it is an input of.
    path: Vec<Arc<dyn ExecutionPlan>>,
    /// Its side of the last one.
    side: Side,
    rows: usize,
}

impl FilteredScan {
    /// Reads until a row comes. Returns what says whether none does. Executions of the path begin
    /// with that, as they set back the filters that the scan may hold.
    fn read(&self, above: &Run, context: &Arc<TaskContext>) -> Result<Option<IsEmpty>> {
        let mut read = None;
        for join in &self.path {
            if let Some(join) = HortonJoinExec::downcast(join.as_ref()) {
                read = join.begin_below(above)?.map(|run| (join, run));
            }
        }
        match read {
            Some((join, run)) => join.read_ahead(self.side, &run, context),
            None => Ok(None),
        }
    }
}

/// Returns whether a filter leaves no row of a table without which `tree` has none. Tables are read
/// that have fewer than `most` rows together. Executions of joins in the tree end with `above`.
///
/// # Errors
/// The errors of opening the scans.
pub async fn is_found_empty(
    tree: &Arc<dyn ExecutionPlan>,
    most: usize,
    above: &Weak<Run>,
    context: &Arc<TaskContext>,
) -> Result<bool> {
    let mut scans = Vec::new();
    find(tree, &mut Vec::new(), &mut scans);
    scans.sort_by_key(|scan| scan.rows);
    let mut rows: usize = 0;
    for scan in scans {
        rows = rows.saturating_add(scan.rows);
        let Some(above) = above.upgrade().filter(|_| rows < most) else {
            return Ok(false);
        };
        let read = scan.read(&above, context)?;
        drop(above);
        let Some(mut read) = read else { continue };
        // A read that is gone has found nothing.
        let is_empty = read.wait_for(Option::is_some).await;
        if is_empty.is_ok_and(|is_empty| *is_empty == Some(true)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Adds the filtered scans without whose rows `plan` has none to `found`. It is below the joins of
/// `path`.
fn find(
    plan: &Arc<dyn ExecutionPlan>,
    path: &mut Vec<Arc<dyn ExecutionPlan>>,
    found: &mut Vec<FilteredScan>,
) {
    let Some(join) = HortonJoinExec::downcast(plan.as_ref()) else {
        if let [child] = plan.children().as_slice()
            && is_row_filter(plan.as_ref())
        {
            with_stack(|| find(child, path, found));
        }
        return;
    };
    path.push(Arc::clone(plan));
    let preserved = preserves(*join.stock().join_type());
    for side in Side::BOTH {
        let input = join.input(side);
        match rows_scanned(input) {
            _ if !preserved[side as usize] => {}
            Some(rows) if has_filter(input) => found.push(FilteredScan {
                path: path.clone(),
                side,
                rows,
            }),
            None if !join.has_begun() => with_stack(|| find(input, path, found)),
            _ => {}
        }
    }
    path.pop();
}
