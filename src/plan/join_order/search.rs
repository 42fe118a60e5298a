//! The rows that an order of inner joins makes, and the order that makes the fewest.
//!
//! ```text
//!  rows of A ⋈ B  =  rows of A × rows of B / the larger number of distinct keys
//!  it expands        if that is more than the rows of A, and more than those of B
//!  cost              rows of all tables and of all joins
//! ```
//!
//! The search begins with each leaf in turn and adds the one whose join has the fewest rows, among
//! those with an equality to what is there. Of the orders so found the cheapest counts.
//! Where a number of distinct keys is not known, keys count as unique: such a join never expands.

use std::cell::OnceCell;
use std::sync::Arc;

use datafusion::common::Statistics;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::distinct::distinct_values;
use super::tree::{JoinTree, LeafSet, Shape};

/// How many times the cost of another order the written one must have. Estimates know little of
/// filters, so a small difference says nothing.
const GAIN: f64 = 2.0;

/// Leaves that are joined, and how many rows that brings.
#[derive(Debug, Clone, Copy)]
struct Joined {
    leaves: LeafSet,
    rows: f64,
}

/// What is known of a tree's leaves.
struct Estimates<'a> {
    tree: &'a JoinTree,
    /// By leaf.
    rows: Vec<f64>,
    statistics: Vec<Arc<Statistics>>,
    /// By column, once they were asked for.
    distinct: Vec<OnceCell<f64>>,
}

/// What the joins of a shape bring and cost.
struct Walked {
    joined: Joined,
    /// Rows of all joins.
    cost: f64,
    expands: bool,
}

/// Returns an order of the leaves of `tree`, each joined to all before it, that makes at most half
/// of the rows; `None` if no join of the tree expands, or no order is that much better.
pub fn better_order(tree: &JoinTree) -> Option<Vec<usize>> {
    let estimates = Estimates::new(tree)?;
    let written = estimates.walk(&tree.shape);
    if !written.expands {
        return None;
    }
    let tables: f64 = estimates.rows.iter().sum();
    let starts = 0..tree.leaves.len();
    let orders = starts.filter_map(|start| estimates.order_from(start));
    let (order, cost) = orders.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let is_better = GAIN * (tables + cost) <= tables + written.cost;
    log::debug!(
        "inner joins of {} tables: {:.0} rows as written, {cost:.0} in the order {order:?}",
        tree.leaves.len(),
        written.cost
    );
    is_better.then_some(order)
}

impl<'a> Estimates<'a> {
    /// Returns `None` if a leaf's rows are not known.
    fn new(tree: &'a JoinTree) -> Option<Self> {
        let context = StatisticsContext::new();
        let known = |leaf: &Arc<_>| context.compute(Arc::as_ref(leaf), &StatisticsArgs::new());
        let statistics: Vec<_> = (tree.leaves.iter().map(known))
            .collect::<Result<_, _>>()
            .ok()?;
        let rows = statistics.iter().map(|known| {
            let rows = known.num_rows.get_value()?;
            Some(*rows as f64)
        });
        let last = tree.leaves.len() - 1;
        Some(Self {
            tree,
            rows: rows.collect::<Option<_>>()?,
            statistics,
            distinct: vec![OnceCell::new(); tree.columns_of(last).end],
        })
    }

    fn leaf(&self, leaf: usize) -> Joined {
        Joined {
            leaves: LeafSet::one(leaf),
            rows: self.rows[leaf],
        }
    }

    /// Returns how many values a column of `leaf` has: as many as it has rows, if nothing is known.
    fn distinct(&self, leaf: usize, column: usize) -> f64 {
        *self.distinct[column].get_or_init(|| {
            let at = column - self.tree.first_columns[leaf];
            let known = distinct_values(&self.tree.leaves[leaf], at, &self.statistics[leaf]);
            known.unwrap_or(f64::INFINITY).min(self.rows[leaf])
        })
    }

    /// Returns the join of two sets; `None` if no equality is between them.
    fn join(&self, left: Joined, right: Joined) -> Option<Joined> {
        let (mut of_left, mut of_right) = (1.0, 1.0);
        let mut has_key = false;
        for key in &self.tree.keys {
            if let Some([a, b]) = key.between(left.leaves, right.leaves) {
                of_left *= self.distinct(a.leaf, a.column);
                of_right *= self.distinct(b.leaf, b.column);
                has_key = true;
            }
        }
        let distinct = of_left.min(left.rows).max(of_right.min(right.rows));
        has_key.then(|| Joined {
            leaves: left.leaves.union(right.leaves),
            rows: left.rows * right.rows / distinct.max(1.0),
        })
    }

    /// Returns the product of two sets.
    fn product(left: Joined, right: Joined) -> Joined {
        Joined {
            leaves: left.leaves.union(right.leaves),
            rows: left.rows * right.rows,
        }
    }

    /// Returns what the joins of `shape` bring.
    fn walk(&self, shape: &Shape) -> Walked {
        match shape {
            Shape::Leaf(leaf) => Walked {
                joined: self.leaf(*leaf),
                cost: 0.0,
                expands: false,
            },
            Shape::Join(left, right) => {
                let (left, right) = (self.walk(left), self.walk(right));
                let [a, b] = [left.joined, right.joined];
                let joined = self.join(a, b).unwrap_or_else(|| Self::product(a, b));
                Walked {
                    joined,
                    cost: left.cost + right.cost + joined.rows,
                    expands: left.expands || right.expands || joined.rows > a.rows.max(b.rows),
                }
            }
        }
    }

    /// Returns the order that begins with `start`, and its cost. Returns `None` if it would need a
    /// product of tables.
    fn order_from(&self, start: usize) -> Option<(Vec<usize>, f64)> {
        let mut order = vec![start];
        let mut joined = self.leaf(start);
        let mut cost = 0.0;
        while order.len() < self.tree.leaves.len() {
            let leaves = 0..self.tree.leaves.len();
            let left = leaves.filter(|leaf| !joined.leaves.contains(LeafSet::one(*leaf)));
            let next = left.filter_map(|leaf| Some((leaf, self.join(joined, self.leaf(leaf))?)));
            let (leaf, next) = next.min_by(|(_, a), (_, b)| a.rows.total_cmp(&b.rows))?;
            order.push(leaf);
            cost += next.rows;
            joined = next;
        }
        Some((order, cost))
    }
}
