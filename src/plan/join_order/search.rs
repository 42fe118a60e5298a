//! The rows that an order of inner joins makes beyond those of its tables.
//!
//! ```text
//!  rows of A ⋈ B   rows of A × rows of B / the larger number of distinct keys
//!  its excess      as many of them as are over the rows of its largest table
//!  a join expands  if it has an excess
//!  cost            rows of all tables, and the excess of all joins
//! ```
//!
//! Rows that are no excess count for nothing: filters of other joins reach the tables, and spare
//! most of them, whatever the order.
//!
//! The written order gets the benefit of each doubt. Where nothing is known of a key's values, they
//! are unique for the written order, and one value for another order. Where a key has several
//! columns, their combinations are counted in tables in memory. Elsewhere they are the most that
//! there can be for the written order, and the fewest for another one.
//!
//! An order begins with any table. Next comes the first table, as written, that has an equality to
//! what is there and makes no excess. If there is none, the one with the least comes next.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::distinct::{sampled_values, values_by_statistics};
use super::sampled_rows::{SampledRows, sampled_rows};
use super::tree::{JoinTree, KeySide, LeafSet, Shape};

/// The factor by which another order must be cheaper than the written one. Estimates know little of
/// filters, so a small difference says nothing.
const GAIN: f64 = 2.0;

/// Leaves that are joined, and the number of rows of their join.
#[derive(Debug, Clone, Copy)]
struct Joined {
    leaves: LeafSet,
    rows: f64,
    /// Rows of the largest of the leaves.
    largest: f64,
}

impl Joined {
    /// Returns the join of two, which share one in so many of their pairs.
    fn of(left: Self, right: Self, pairs_per_match: f64) -> Self {
        Self {
            leaves: left.leaves.union(right.leaves),
            rows: left.rows * right.rows / pairs_per_match,
            largest: left.largest.max(right.largest),
        }
    }

    /// Returns the rows over those of the largest table; infinitely many, if they are no number.
    fn excess(self) -> f64 {
        let excess = self.rows - self.largest;
        if excess.is_nan() {
            f64::INFINITY
        } else {
            excess.max(0.0)
        }
    }
}

/// What is known of a tree's leaves.
struct Estimates<'a> {
    tree: &'a JoinTree,
    /// By leaf.
    rows: Vec<f64>,
    doubt: Doubt,
    /// By leaf and its columns, once they were asked for.
    distinct: RefCell<HashMap<(usize, Vec<usize>), f64>>,
}

/// The assumption about keys of which not all is known.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Doubt {
    /// Many keys: unknown ones are unique, and each value of a column comes with each of another.
    FewRows,
    /// Few keys: unknown ones are all the same, and one column decides all others.
    ManyRows,
}

/// Returns an order of the leaves of `tree`, each joined to all before it, that costs at most half
/// of what the written order does; `None` if there is none.
pub fn better_order(tree: &JoinTree) -> Option<Vec<usize>> {
    let rows = rows_by_statistics(tree)?;
    // Samples take longer, and most trees need none.
    excess_of_written(tree, &rows)?;
    let (few, many) = with_samples(tree, &rows);
    let as_written = excess_of_written(tree, &few)?;
    let tables: f64 = few.iter().sum();
    let estimates = Estimates::new(tree, many, Doubt::ManyRows);
    let starts = 0..tree.leaves.len();
    let orders = starts.filter_map(|start| estimates.order_from(start));
    let (order, excess) = orders.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    log::debug!(
        "inner joins of {} tables with {tables:.0} rows: {as_written:.0} more as written, \
         {excess:.0} in the order {order:?}",
        tree.leaves.len(),
    );
    (GAIN * (tables + excess) <= tables + as_written).then_some(order)
}

/// Returns the order that begins with the last leaf, or with the one before it if that needs a
/// product, whatever it costs.
pub fn order_from_last(tree: &JoinTree) -> Option<Vec<usize>> {
    let estimates = Estimates::new(tree, rows_by_statistics(tree)?, Doubt::ManyRows);
    let mut starts = (0..tree.leaves.len()).rev();
    let (order, _) = starts.find_map(|start| estimates.order_from(start))?;
    Some(order)
}

/// Returns the rows of each leaf; `None` if those of one are not known.
fn rows_by_statistics(tree: &JoinTree) -> Option<Vec<f64>> {
    let context = StatisticsContext::new();
    let rows = tree.leaves.iter().map(|leaf| {
        let known = context.compute(leaf.as_ref(), &StatisticsArgs::new());
        let rows = *known.ok()?.num_rows.get_value()?;
        Some(rows as f64)
    });
    rows.collect()
}

/// Returns `rows` with better numbers for leaves that are sampled: those that are likely, and the
/// most that there may be.
fn with_samples(tree: &JoinTree, rows: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let leaves = tree.leaves.iter().zip(rows);
    let rows = leaves.map(|(leaf, rows)| match sampled_rows(leaf) {
        Some(SampledRows { about, most }) => (about, most),
        None => (*rows, *rows),
    });
    rows.unzip()
}

/// Returns the excess of the joins of `tree` as it is written, where leaves have so many `rows`;
/// `None` if no other order can cost half of that: none costs less than the tables.
fn excess_of_written(tree: &JoinTree, rows: &[f64]) -> Option<f64> {
    let tables: f64 = rows.iter().sum();
    let written = Estimates::new(tree, rows.to_vec(), Doubt::FewRows);
    let (_, excess) = written.walk(&tree.shape);
    (excess.is_finite() && tables + excess > GAIN * tables).then_some(excess)
}

impl<'a> Estimates<'a> {
    fn new(tree: &'a JoinTree, rows: Vec<f64>, doubt: Doubt) -> Self {
        Self {
            tree,
            rows,
            doubt,
            distinct: RefCell::default(),
        }
    }

    fn leaf(&self, leaf: usize) -> Joined {
        Joined {
            leaves: LeafSet::one(leaf),
            rows: self.rows[leaf],
            largest: self.rows[leaf],
        }
    }

    /// Returns how many keys of `columns` a leaf has.
    fn distinct(&self, leaf: usize, columns: Vec<usize>) -> f64 {
        let mut known = self.distinct.borrow_mut();
        *known
            .entry((leaf, columns))
            .or_insert_with_key(|(leaf, columns)| {
                let plan = &self.tree.leaves[*leaf];
                let first = self.tree.first_columns[*leaf];
                let columns: Vec<usize> = columns.iter().map(|column| column - first).collect();
                let values = sampled_values(plan, &columns).unwrap_or_else(|| {
                    self.together(columns.iter().map(|column| self.values(plan, *column)))
                });
                values.min(self.rows[*leaf])
            })
    }

    /// Returns how many values one column of `leaf` has.
    fn values(&self, leaf: &Arc<dyn ExecutionPlan>, column: usize) -> f64 {
        let known = sampled_values(leaf, &[column]);
        let known = known.or_else(|| values_by_statistics(leaf, column));
        known.unwrap_or(match self.doubt {
            Doubt::FewRows => f64::INFINITY,
            Doubt::ManyRows => 1.0,
        })
    }

    /// Returns how many keys there are of parts that have so many values each.
    fn together(&self, values: impl Iterator<Item = f64>) -> f64 {
        match self.doubt {
            Doubt::FewRows => values.product(),
            Doubt::ManyRows => values.fold(1.0, f64::max),
        }
    }

    /// Returns the join of two sets; `None` if no equality is between them.
    fn join(&self, left: Joined, right: Joined) -> Option<Joined> {
        let (small, large) = if left.rows < right.rows {
            (left, right)
        } else {
            (right, left)
        };
        let keys = self.tree.keys.iter();
        let keys = keys.filter_map(|key| key.between(small.leaves, large.leaves));
        let keys: Vec<[&KeySide; 2]> = keys.collect();
        if keys.is_empty() {
            return None;
        }
        let mut distinct = self.distinct_keys(small, keys.iter().map(|key| key[0]));
        // Unique keys of one side leave no excess. Then a large table is not looked at.
        if distinct < small.rows {
            distinct = distinct.max(self.distinct_keys(large, keys.iter().map(|key| key[1])));
        }
        Some(Joined::of(left, right, distinct.max(1.0)))
    }

    /// Returns how many different keys a set has, over one column or more.
    fn distinct_keys<'k>(&self, of: Joined, sides: impl Iterator<Item = &'k KeySide>) -> f64 {
        let mut columns: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for side in sides {
            columns.entry(side.leaf).or_default().push(side.column);
        }
        let of_leaves = columns.into_iter();
        let of_leaves = of_leaves.map(|(leaf, columns)| self.distinct(leaf, columns));
        self.together(of_leaves).min(of.rows)
    }

    /// Returns what comes of `shape`, and the excess of its joins. A join without an equality is a
    /// product.
    fn walk(&self, shape: &Shape) -> (Joined, f64) {
        match shape {
            Shape::Leaf(leaf) => (self.leaf(*leaf), 0.0),
            Shape::Join(left, right) => {
                let ((left, of_left), (right, of_right)) = (self.walk(left), self.walk(right));
                let joined = self.join(left, right);
                let joined = joined.unwrap_or_else(|| Joined::of(left, right, 1.0));
                (joined, of_left + of_right + joined.excess())
            }
        }
    }

    /// Returns the order that begins with `start`, and the excess of its joins. Returns `None` if
    /// it would need a product of tables.
    fn order_from(&self, start: usize) -> Option<(Vec<usize>, f64)> {
        let mut order = vec![start];
        let mut joined = self.leaf(start);
        let mut excess = 0.0;
        while order.len() < self.tree.leaves.len() {
            let leaves = 0..self.tree.leaves.len();
            let left = leaves.filter(|leaf| !joined.leaves.contains(LeafSet::one(*leaf)));
            let next = left.filter_map(|leaf| Some((leaf, self.join(joined, self.leaf(leaf))?)));
            let (leaf, next) = next.min_by(|(_, a), (_, b)| a.excess().total_cmp(&b.excess()))?;
            order.push(leaf);
            excess += next.excess();
            joined = next;
        }
        Some((order, excess))
    }
}
