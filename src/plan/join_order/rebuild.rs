//! A list of tables and of conditions becomes joins again.
//!
//! ```text
//!  order a, c, b        ((a ⋈ c) ⋈ b)
//!  a ⋈ c                all equalities between a and c, and the residuals over both
//!  … ⋈ b                all equalities between b and either, and the residuals that are left
//!  each join's output   the columns that come out at the end, or that a later join needs
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExecBuilder;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use super::tree::{JoinTree, LeafSet, Residual, with_columns};

/// Leaves that are joined already.
struct Joined {
    plan: Arc<dyn ExecutionPlan>,
    leaves: LeafSet,
    /// Numbers of its columns, among those of all leaves.
    columns: Vec<usize>,
}

impl Joined {
    fn place_of(&self, column: usize) -> Option<usize> {
        self.columns.iter().position(|c| *c == column)
    }

    /// Returns the column of its plan that has this number among those of all leaves.
    fn column(&self, number: usize) -> Option<PhysicalExprRef> {
        let at = self.place_of(number)?;
        Some(Arc::new(Column::new(
            self.plan.schema().field(at).name(),
            at,
        )))
    }

    /// Returns `expression`, which is over the columns of all leaves, over those of its plan.
    fn over_plan(&self, expression: &PhysicalExprRef) -> Option<PhysicalExprRef> {
        with_columns(expression, |of| self.column(of.index()))
    }
}

/// Returns the joins of `tree` over `leaves` in this `order`, with the columns of `schema`; `None`
/// if they cannot be made, as where a condition has no place.
///
/// # Errors
/// DataFusion's, if it does not take such a join.
pub fn rebuild(
    tree: &JoinTree,
    leaves: &[Arc<dyn ExecutionPlan>],
    order: &[usize],
    schema: &SchemaRef,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let leaf = |number: usize| Joined {
        plan: Arc::clone(&leaves[number]),
        leaves: LeafSet::one(number),
        columns: tree.columns_of(number).collect(),
    };
    let [first, rest @ ..] = order else {
        return Ok(None);
    };
    let mut joined = leaf(*first);
    for next in rest {
        let Some(both) = join(tree, joined, leaf(*next))? else {
            return Ok(None);
        };
        joined = both;
    }
    with_output(tree, &joined, schema)
}

/// Returns the join of two sets of leaves, with all conditions that they complete.
fn join(tree: &JoinTree, left: Joined, right: Joined) -> Result<Option<Joined>> {
    let leaves = left.leaves.union(right.leaves);
    let on = tree.keys.iter().filter_map(|key| {
        let [a, b] = key.between(left.leaves, right.leaves)?;
        Some(
            left.over_plan(&a.expression)
                .zip(right.over_plan(&b.expression)),
        )
    });
    let Some(on) = on.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let is_complete = |residual: &&Residual| {
        leaves.contains(residual.leaves)
            && !left.leaves.contains(residual.leaves)
            && !right.leaves.contains(residual.leaves)
    };
    let residuals = tree.residuals.iter().filter(is_complete);
    let residuals: Vec<_> = residuals.map(|residual| &residual.expression).collect();
    let filter = match residual_filter(&residuals, &left, &right) {
        Some(filter) => filter,
        None => return Ok(None),
    };
    let needed = needed_after(tree, leaves);
    let all: Vec<usize> = left.columns.iter().chain(&right.columns).copied().collect();
    let kept: Vec<usize> = (0..all.len())
        .filter(|at| needed.contains(&all[*at]))
        .collect();
    let columns = kept.iter().map(|at| all[*at]).collect();
    let projection = (kept.len() < all.len()).then_some(kept);
    let join = HashJoinExecBuilder::new(left.plan, right.plan, on, JoinType::Inner)
        .with_filter(filter)
        .with_partition_mode(tree.mode)
        .with_projection(projection)
        .build_exec()?;
    Ok(Some(Joined {
        plan: join,
        leaves,
        columns,
    }))
}

/// Returns the columns that come out at the end, or that conditions need which `joined` leaves do
/// not complete.
fn needed_after(tree: &JoinTree, joined: LeafSet) -> HashSet<usize> {
    let output = tree.output.iter().flat_map(collect_columns);
    let mut needed: HashSet<usize> = output.map(|column| column.index()).collect();
    for key in &tree.keys {
        let leaves = key.sides.iter().map(|side| LeafSet::one(side.leaf));
        if !joined.contains(leaves.fold(LeafSet::default(), LeafSet::union)) {
            needed.extend(key.sides.iter().map(|side| side.column));
        }
    }
    for residual in &tree.residuals {
        if !joined.contains(residual.leaves) {
            let columns = collect_columns(&residual.expression);
            needed.extend(columns.iter().map(Column::index));
        }
    }
    needed
}

/// Returns a join's filter that is all of `residuals`, or an empty one for none. Returns `None` if
/// a column is missing.
fn residual_filter(
    residuals: &[&PhysicalExprRef],
    left: &Joined,
    right: &Joined,
) -> Option<Option<JoinFilter>> {
    if residuals.is_empty() {
        return Some(None);
    }
    let all = datafusion::physical_expr::conjunction(residuals.iter().map(|r| Arc::clone(r)));
    let mut columns: Vec<usize> = collect_columns(&all).iter().map(Column::index).collect();
    columns.sort_unstable();
    columns.dedup();
    let places = columns.iter().map(|column| {
        let left = left.place_of(*column).map(|at| (JoinSide::Left, left, at));
        let right = || Some((JoinSide::Right, right, right.place_of(*column)?));
        left.or_else(right)
    });
    let places = places.collect::<Option<Vec<_>>>()?;
    let fields: Vec<_> = (places.iter())
        .map(|(_, joined, at)| joined.plan.schema().field(*at).clone())
        .collect();
    let indices = (places.iter()).map(|(side, _, index)| ColumnIndex {
        index: *index,
        side: *side,
    });
    let expression = with_columns(&all, |of| {
        let at = columns.binary_search(&of.index()).ok()?;
        Some(Arc::new(Column::new(fields[at].name(), at)) as PhysicalExprRef)
    })?;
    let filter = JoinFilter::new(expression, indices.collect(), Arc::new(Schema::new(fields)));
    Some(Some(filter))
}

/// Returns the rows of `joined` with the tree's columns, in their order and by their names.
fn with_output(
    tree: &JoinTree,
    joined: &Joined,
    schema: &SchemaRef,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let columns = tree.output.iter().zip(schema.fields());
    let columns = columns.map(|(expression, field)| {
        Some(ProjectionExpr {
            expr: joined.over_plan(expression)?,
            alias: field.name().clone(),
        })
    });
    let Some(columns) = columns.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let projection = ProjectionExec::try_new(columns, Arc::clone(&joined.plan))?;
    Ok(Some(Arc::new(projection)))
}
