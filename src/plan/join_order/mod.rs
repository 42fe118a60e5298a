//! The rule that moves joins which multiply rows behind those which do not.
//!
//! ```text
//!  as written                                   rows        reordered                  rows
//!
//!  customer ⋈ supplier     same nation     60,000,000       customer ⋈ orders       230,000
//!           ⋈ lineitem     supplier            …                    ⋈ lineitem      910,000
//!           ⋈ orders       customer, order     …                    ⋈ supplier       36,000
//! ```
//!
//! DataFusion joins tables in the order in which the SQL names them. Dynamic filters make that
//! order matter little as long as no join brings more rows than its largest table has. They do not
//! help a join of two columns that both have repeated values: it *expands*. Its pairs are made,
//! whatever is read first.
//!
//! So a tree of inner joins is reordered only where one of them expands. The new order must make at
//! most half of the rows, those of the tables included. Every other tree stays as it is written.
//!
//! * `tree`: inner joins become a list of tables and of conditions
//! * `distinct`: how many values a key column has, by statistics or by a sample
//! * `sampled_rows`: how many rows a filter leaves of a table in memory
//! * `search`: rows that an order makes beyond those of its tables, and the order with the fewest
//! * `rebuild`: the list becomes joins again
//!
//! A tree stays as written, too, in three cases. A condition in it or in its tables may fail or
//! draws at random: another order evaluates that for other rows. Its rows have an order that
//! somebody may rely on. It has an endless input.
//!
//! Sources: the size of a join from distinct values is Selinger et al., "Access Path Selection in a
//! Relational Database Management System" (SIGMOD 1979). The search is greedy, from each table in
//! turn, which Swami, "Optimization of Large Join Queries" (SIGMOD 1989) calls augmentation.
//! Estimates go wrong with each join (Leis et al., "How Good Are Query Optimizers, Really?", VLDB
//! 2015). So the written order gets the benefit of each doubt.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::enabled::reorders_joins;

use rebuild::rebuild;
use search::{better_order, order_from_last};
use tree::{JoinTree, is_inner_join};

mod distinct;
mod rebuild;
mod sampled_rows;
mod search;
mod tree;

/// The rule: before `JoinSelection`, which looks at each join alone.
#[derive(Debug)]
pub struct ReorderJoins;

impl PhysicalOptimizerRule for ReorderJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(horton) = reorders_joins(config) else {
            return Ok(plan);
        };
        let choose = if horton.knobs.joins_from_last {
            order_from_last
        } else {
            better_order
        };
        reorder(plan, choose).data()
    }

    fn name(&self) -> &str {
        "horton_reorder_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Returns the order in which the leaves of a tree are to be joined; `None` for the written one.
type Choose = fn(&JoinTree) -> Option<Vec<usize>>;

/// Reorders each tree of inner joins in `plan`, outermost first.
fn reorder(
    plan: Arc<dyn ExecutionPlan>,
    choose: Choose,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    plan.transform_down(|node| {
        let Some(tree) = JoinTree::of(&node) else {
            return Ok(Transformed::no(node));
        };
        let leaves = tree
            .leaves
            .iter()
            .map(|leaf| reorder(Arc::clone(leaf), choose));
        let leaves = leaves.collect::<Result<Vec<_>>>()?;
        let is_changed = leaves.iter().any(|leaf| leaf.transformed);
        let new_leaves: Vec<_> = leaves.into_iter().map(|leaf| leaf.data).collect();
        if let Some(joined) = reordered(&node, &tree, &new_leaves, choose) {
            return Ok(jump(Transformed::yes(joined)));
        }
        let written = if is_changed {
            Transformed::yes(with_leaves(node, new_leaves)?)
        } else {
            Transformed::no(node)
        };
        Ok(jump(written))
    })
}

/// Leaves what is below a tree alone: its leaves were visited.
fn jump<T>(mut visited: Transformed<T>) -> Transformed<T> {
    visited.tnr = TreeNodeRecursion::Jump;
    visited
}

/// Returns the `tree` that `node` is, with `leaves` in its leaves' place, in a better order; `None`
/// if there is none.
fn reordered(
    node: &Arc<dyn ExecutionPlan>,
    tree: &JoinTree,
    leaves: &[Arc<dyn ExecutionPlan>],
    choose: Choose,
) -> Option<Arc<dyn ExecutionPlan>> {
    let may_be_moved = node.output_ordering().is_none() && !node.boundedness().is_unbounded();
    let order = may_be_moved.then(|| choose(tree)).flatten()?;
    let joined = rebuild(tree, leaves, &order, &node.schema()).unwrap_or_else(|error| {
        log::warn!("inner joins stay in the order as written: {error}");
        None
    });
    joined.filter(|joined| joined.schema() == node.schema())
}

/// Returns the tree `node` with other leaves, in the order in which they stand in it.
fn with_leaves(
    node: Arc<dyn ExecutionPlan>,
    leaves: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut leaves = leaves.into_iter();
    let replaced = node.transform_down(|node| {
        if is_inner_join(&node) {
            return Ok(Transformed::no(node));
        }
        Ok(jump(match leaves.next() {
            Some(leaf) => Transformed::yes(leaf),
            None => Transformed::no(node),
        }))
    });
    replaced.data()
}
