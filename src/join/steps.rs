//! Joins in the steps of a recursive query.
//!
//! ```text
//!  RecursiveQueryExec ─▶ step 1: reset_state, execute ─▶ step 2: reset_state, execute ─▶ …
//!                          Join(table, WorkTableExec)
//! ```
//!
//! A query can have thousands of steps of a few rows each. Open sides cost each of them another
//! repartition and another task. So a join keeps DataFusion's sides if they cannot be better.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::work_table::WorkTableExec;

use super::dynamic_filter::targets::rows_scanned_in_memory;

/// Rows of a table in memory that are built in about the time in which sides are opened.
const BUILD_ROWS_MAX: usize = 8192;

/// Returns whether `join` is executed in every step, and builds a small table in memory. That is
/// there at once, so no other side can end earlier.
pub fn is_small_step(join: &HashJoinExec) -> bool {
    *join.partition_mode() == PartitionMode::CollectLeft
        && rows_scanned_in_memory(join.left()).is_some_and(|rows| rows <= BUILD_ROWS_MAX)
        && (has_work_table(join.left()) || has_work_table(join.right()))
}

/// Returns whether `plan` reads what a step of a recursive query left for the next one.
fn has_work_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<WorkTableExec>() || plan.children().into_iter().any(has_work_table)
}
