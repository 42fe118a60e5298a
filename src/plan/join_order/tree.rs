//! A tree of inner joins as a list of tables and of conditions.
//!
//! ```text
//!        ⋈ a.x = c.x                     leaves      a  b  c
//!       / \                              columns     a: 0 1 2   b: 3 4   c: 5 6
//!      ⋈   c      a.y = b.y              keys        1 = 3,  0 = 5
//!     / \         residual a.z < b.z     residuals   2 < 4
//!    a   b                               shape       ((a b) c)
//! ```
//!
//! Columns of all leaves are numbered through, so that a condition is the same wherever it stands.
//! A join belongs to the tree if it is inner, NULL equals nothing in it, and its conditions never
//! fail. So do cross products, and projections in between that pick columns or widen their types.
//! DataFusion plans the latter for keys of two types. Whatever else stands below is a leaf. A leaf
//! that can fail is read when the written order reads it, which may be never
//! ([`has_infallible_rows`]). So there is no tree over it.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;

use crate::join::exec::HortonJoinExec;
use crate::scan::infallible::is_infallible;
use crate::scan::infallible_plan::has_infallible_rows;

/// Leaves of a tree that is reordered, at most: the search takes the cube of their number. Of a
/// larger tree its lower part is one.
const MOST_LEAVES: usize = 24;

/// A set of leaves, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeafSet(u32);

impl LeafSet {
    /// Returns the set of `leaf` alone.
    pub fn one(leaf: usize) -> Self {
        Self(1 << leaf)
    }

    /// Returns the leaves of either set.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether all leaves of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One side of an equality.
#[derive(Debug)]
pub struct KeySide {
    /// An expression over `column`, whose index is the one in all columns. Its name says nothing.
    pub expression: PhysicalExprRef,
    /// The one column in it.
    pub column: usize,
    /// The leaf that has it.
    pub leaf: usize,
}

/// An equality of two leaves.
#[derive(Debug)]
pub struct Key {
    /// Its two sides.
    pub sides: [KeySide; 2],
}

impl Key {
    /// Returns the side in `left` and the one in `right`, if the equality is between these sets.
    pub fn between(&self, left: LeafSet, right: LeafSet) -> Option<[&KeySide; 2]> {
        let [a, b] = &self.sides;
        let has = |set: LeafSet, side: &KeySide| set.contains(LeafSet::one(side.leaf));
        if has(left, a) && has(right, b) {
            Some([a, b])
        } else if has(left, b) && has(right, a) {
            Some([b, a])
        } else {
            None
        }
    }
}

/// A condition over two leaves or more, which is no equality.
#[derive(Debug)]
pub struct Residual {
    /// The condition. Indices of its columns are those in all columns. Their names say nothing.
    pub expression: PhysicalExprRef,
    /// The leaves in it.
    pub leaves: LeafSet,
}

/// The order in which leaves are joined.
#[derive(Debug)]
pub enum Shape {
    /// A leaf's number.
    Leaf(usize),
    /// A join of two.
    Join(Box<Shape>, Box<Shape>),
}

/// A tree of inner joins.
#[derive(Debug)]
pub struct JoinTree {
    /// The inputs, from left to right.
    pub leaves: Vec<Arc<dyn ExecutionPlan>>,
    /// Number of each leaf's first column.
    pub first_columns: Vec<usize>,
    /// The equalities.
    pub keys: Vec<Key>,
    /// All other conditions.
    pub residuals: Vec<Residual>,
    /// What comes out: expressions over all columns.
    pub output: Vec<PhysicalExprRef>,
    /// The order as written.
    pub shape: Shape,
    /// Mode of a hash join in it.
    pub mode: PartitionMode,
}

impl JoinTree {
    /// Returns the tree that `plan` is, if it has three leaves at least and few enough, none of
    /// which can fail.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        let leaves = count_leaves(plan, MOST_LEAVES)?;
        if leaves < 3 {
            return None;
        }
        let mut builder = Builder::default();
        let Part { columns, shape } = builder.add(plan)?;
        if !builder.leaves.iter().all(has_infallible_rows) {
            return None;
        }
        Some(Self {
            leaves: builder.leaves,
            first_columns: builder.first_columns,
            keys: builder.keys,
            residuals: builder.residuals,
            output: columns,
            shape,
            mode: builder.mode?,
        })
    }

    /// Returns the columns of leaf `leaf`.
    pub fn columns_of(&self, leaf: usize) -> std::ops::Range<usize> {
        let first = self.first_columns[leaf];
        first..first + self.leaves[leaf].schema().fields().len()
    }
}

/// Returns the leaves of the tree that `plan` is; `None` if there are over `most`.
fn count_leaves(plan: &Arc<dyn ExecutionPlan>, most: usize) -> Option<usize> {
    let (mut left, mut leaves) = (vec![plan], 0);
    while let Some(node) = left.pop() {
        if is_inner_join(node) {
            left.extend(node.children());
        } else {
            leaves += 1;
        }
        if left.len() + leaves > most {
            return None;
        }
    }
    Some(leaves)
}

/// Returns whether `node` belongs to a tree of inner joins, and is no leaf of it.
pub fn is_inner_join(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut below = node;
    while let Some(projection) = below.downcast_ref::<ProjectionExec>() {
        let schema = projection.input().schema();
        if !(projection.expr().iter()).all(|e| is_picked(&e.expr, &schema)) {
            return false;
        }
        below = projection.input();
    }
    // A join that was replaced is seen as the one it stands for.
    let is_replaced = HortonJoinExec::downcast(below.as_ref()).is_some();
    below.is::<CrossJoinExec>()
        || !is_replaced && below.downcast_ref::<HashJoinExec>().is_some_and(is_movable)
}

/// Returns whether `join` is the same at any place among other inner joins.
fn is_movable(join: &HashJoinExec) -> bool {
    *join.join_type() == JoinType::Inner
        && join.null_equality() == NullEquality::NullEqualsNothing
        && join.fetch().is_none()
        && join.dynamic_expressions_produced().is_empty()
        && join.on().iter().all(|(left, right)| {
            is_key(left, &join.left().schema()) && is_key(right, &join.right().schema())
        })
        && join
            .filter()
            .is_none_or(|residual| is_infallible(residual.expression(), residual.schema()))
}

/// Returns whether `expression` is a column, or one of a wider type.
fn is_picked(expression: &PhysicalExprRef, schema: &Schema) -> bool {
    expression.is::<Column>()
        || expression
            .downcast_ref::<CastExpr>()
            .is_some_and(|cast| cast.expr().is::<Column>() && is_infallible(expression, schema))
}

/// Returns whether `side` of an equality is over one column, and never fails.
fn is_key(side: &PhysicalExprRef, schema: &Schema) -> bool {
    collect_columns(side).len() == 1 && is_infallible(side, schema)
}

/// What a node of the tree brings.
struct Part {
    /// Its columns, as expressions over those of all leaves.
    columns: Vec<PhysicalExprRef>,
    shape: Shape,
}

/// The lists of a tree, as far as it was walked.
#[derive(Default)]
struct Builder {
    leaves: Vec<Arc<dyn ExecutionPlan>>,
    first_columns: Vec<usize>,
    /// The leaf of each column.
    leaf_of: Vec<usize>,
    keys: Vec<Key>,
    residuals: Vec<Residual>,
    mode: Option<PartitionMode>,
}

impl Builder {
    /// Adds what `node` is made of. Returns `None` if a condition cannot be read.
    fn add(&mut self, node: &Arc<dyn ExecutionPlan>) -> Option<Part> {
        if !is_inner_join(node) {
            return Some(self.add_leaf(node));
        }
        if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
            let Part { columns, shape } = self.add(projection.input())?;
            let picked = projection.expr().iter();
            let picked = picked.map(|e| over_leaves(&e.expr, &columns));
            let columns = picked.collect::<Option<Vec<_>>>()?;
            return Some(Part { columns, shape });
        }
        let [left, right] = node.children()[..] else {
            return None;
        };
        let (left, right) = (self.add(left)?, self.add(right)?);
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            self.add_conditions(join, &left.columns, &right.columns)?;
        }
        let mut columns = left.columns;
        columns.extend(right.columns);
        if let Some(join) = node.downcast_ref::<HashJoinExec>()
            && let Some(projection) = &join.projection
        {
            let picked = projection.iter().map(|at| columns.get(*at).cloned());
            columns = picked.collect::<Option<Vec<_>>>()?;
        }
        let shape = Shape::Join(Box::new(left.shape), Box::new(right.shape));
        Some(Part { columns, shape })
    }

    fn add_leaf(&mut self, leaf: &Arc<dyn ExecutionPlan>) -> Part {
        let number = self.leaves.len();
        let first = self.leaf_of.len();
        let columns = leaf.schema().fields().len();
        self.leaf_of.extend(std::iter::repeat_n(number, columns));
        self.first_columns.push(first);
        self.leaves.push(Arc::clone(leaf));
        let fields = leaf.schema();
        let numbered = fields.fields().iter().zip(first..);
        let numbered = numbered.map(|(field, at)| Arc::new(Column::new(field.name(), at)) as _);
        Part {
            columns: numbered.collect(),
            shape: Shape::Leaf(number),
        }
    }

    /// Adds the conditions of `join`, whose inputs have these columns.
    fn add_conditions(
        &mut self,
        join: &HashJoinExec,
        left: &[PhysicalExprRef],
        right: &[PhysicalExprRef],
    ) -> Option<()> {
        for (a, b) in join.on() {
            let sides = [self.key_side(a, left)?, self.key_side(b, right)?];
            self.keys.push(Key { sides });
        }
        if let Some(residual) = join.filter() {
            let expression = residual_over_all(residual, left, right)?;
            let columns = collect_columns(&expression);
            let leaves: HashSet<usize> = columns.iter().map(|c| self.leaf_of[c.index()]).collect();
            // One over fewer leaves would be complete nowhere.
            if leaves.len() < 2 {
                return None;
            }
            let leaves = leaves.into_iter().map(LeafSet::one);
            self.residuals.push(Residual {
                expression,
                leaves: leaves.fold(LeafSet::default(), LeafSet::union),
            });
        }
        self.mode.get_or_insert(*join.partition_mode());
        Some(())
    }

    fn key_side(&self, side: &PhysicalExprRef, columns: &[PhysicalExprRef]) -> Option<KeySide> {
        let expression = over_leaves(side, columns)?;
        let column = collect_columns(&expression).into_iter().next()?.index();
        Some(KeySide {
            expression,
            column,
            leaf: self.leaf_of[column],
        })
    }
}

/// Returns the residual filter over the columns of all leaves.
fn residual_over_all(
    residual: &JoinFilter,
    left: &[PhysicalExprRef],
    right: &[PhysicalExprRef],
) -> Option<PhysicalExprRef> {
    with_columns(residual.expression(), |of| {
        let column = residual.column_indices().get(of.index())?;
        let of_side = match column.side {
            JoinSide::Left => left,
            JoinSide::Right => right,
            JoinSide::None => return None,
        };
        of_side.get(column.index).cloned()
    })
}

/// Returns `expression` over the columns of all leaves, of which its own `columns` are made.
fn over_leaves(
    expression: &PhysicalExprRef,
    columns: &[PhysicalExprRef],
) -> Option<PhysicalExprRef> {
    with_columns(expression, |of| columns.get(of.index()).cloned())
}

/// Returns `expression` with each of its columns replaced by what `column` returns for it. Returns
/// `None` if that is none.
pub fn with_columns(
    expression: &PhysicalExprRef,
    column: impl Fn(&Column) -> Option<PhysicalExprRef>,
) -> Option<PhysicalExprRef> {
    let mut is_lost = false;
    let replaced = Arc::clone(expression).transform_up(|part| {
        let Some(old) = part.downcast_ref::<Column>() else {
            return Ok(Transformed::no(part));
        };
        let Some(new) = column(old) else {
            is_lost = true;
            return Ok(Transformed::no(part));
        };
        Ok(Transformed::yes(new))
    });
    let replaced: Result<PhysicalExprRef> = replaced.data();
    replaced.ok().filter(|_| !is_lost)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{binary, col, lit};
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::HashJoinExecBuilder;

    use super::*;

    /// A join of `left` and a new table on their first columns, with a condition over `left`.
    fn joined(
        left: Arc<dyn ExecutionPlan>,
        condition: Option<PhysicalExprRef>,
    ) -> Arc<dyn ExecutionPlan> {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
        let right = Arc::new(EmptyExec::new(Arc::clone(&schema)));
        let key = col("k", &schema).unwrap();
        let columns = JoinFilter::build_column_indices(vec![0], vec![]);
        let filter = condition.map(|condition| JoinFilter::new(condition, columns, schema));
        HashJoinExecBuilder::new(left, right, vec![(Arc::clone(&key), key)], JoinType::Inner)
            .with_filter(filter)
            .build_exec()
            .unwrap()
    }

    /// A residual filter that no join of two sets completes would be lost.
    #[test]
    fn a_residual_over_one_table_keeps_the_order() {
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
        let positive = binary(
            col("k", &schema).unwrap(),
            Operator::Gt,
            lit(0_i64),
            &schema,
        );
        let table: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(schema)));
        let two = joined(table, None);
        let tree = |condition| JoinTree::of(&joined(Arc::clone(&two), condition));
        assert!(tree(None).is_some());
        assert!(tree(Some(positive.unwrap())).is_none());
        assert!(tree(Some(lit(true))).is_none());
    }
}
