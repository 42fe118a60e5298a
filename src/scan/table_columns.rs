//! The column of a table that a column of a plan is.
//!
//! ```text
//!  FilterExec: projection=[b, a]      column 0 here …
//!  ProjectionExec: CAST(x AS INT) b   … is column 1 here, perhaps of another type …
//!  DataSourceExec: projection=[3, 7]  … column 1 of the scan, and column 7 of the table
//! ```
//!
//! What is read off the table holds for the plan if each row comes through once or not at all.

use std::sync::Arc;

use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::plan_nodes::is_row_filter;

use super::cached_statistics::memory_source;

/// Returns the one table in memory below `plan`, and the columns of it that `columns` are, perhaps
/// of other types. Returns `None` if they come from elsewhere, if a LIMIT takes the table's first
/// rows, or if there are no columns.
pub fn columns_of_table<'a>(
    plan: &'a Arc<dyn ExecutionPlan>,
    columns: &[usize],
) -> Option<(&'a MemorySourceConfig, Vec<usize>)> {
    let mut of_table = Vec::with_capacity(columns.len());
    let mut table = None;
    for column in columns {
        let (scan, column) = column_of_scan(plan, *column)?;
        if scan.fetch().is_some() {
            return None;
        }
        let source = memory_source(scan.as_ref())?;
        of_table.push(match source.projection() {
            Some(projection) => *projection.get(column)?,
            None => column,
        });
        table = Some(source);
    }
    Some((table?, of_table))
}

/// Returns the one scan below `plan`, and the column of it that `column` is, perhaps of another
/// type. Each row of the scan must come through once or not at all.
pub fn column_of_scan(
    mut plan: &Arc<dyn ExecutionPlan>,
    mut column: usize,
) -> Option<(&Arc<dyn ExecutionPlan>, usize)> {
    while !plan.children().is_empty() {
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let picked = projection.expr().get(column)?;
            let cast = picked.expr.downcast_ref::<CastExpr>();
            let of = cast.map_or(&picked.expr, |cast| cast.expr());
            column = of.downcast_ref::<Column>()?.index();
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>()
            && let Some(projection) = filter.projection()
        {
            column = *projection.get(column)?;
        }
        if !is_row_filter(plan.as_ref()) {
            return None;
        }
        plan = plan.children().into_iter().next()?;
    }
    Some((plan, column))
}
