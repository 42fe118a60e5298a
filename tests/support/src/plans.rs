//! The facts that plans show of themselves after they ran.

use std::any::Any;
use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use horton_join::HortonJoinExec;

use crate::text::text;

/// Returns one string per row, sorted.
pub fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let mut rows = text(batches);
    rows.sort_unstable();
    rows
}

/// Returns the nodes of `plan` that are a `T`, from its top to its leaves.
pub fn nodes<T: ExecutionPlan>(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn ExecutionPlan>> {
    let mut nodes = Vec::new();
    let visit = |node: &Arc<dyn ExecutionPlan>| {
        // As they are, not as what they stand for.
        if (node.as_ref() as &dyn Any).is::<T>() {
            nodes.push(Arc::clone(node));
        }
        Ok(TreeNodeRecursion::Continue)
    };
    plan.apply(visit).unwrap();
    nodes
}

/// Returns the sum of metric `name` over the nodes of `plan` that are a `T`.
pub fn metric<T: ExecutionPlan>(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let nodes = nodes::<T>(plan).into_iter();
    let of = |node: Arc<dyn ExecutionPlan>| {
        let value = node.metrics()?.sum(|metric| metric.value().name() == name);
        value.map(|value| value.as_usize())
    };
    nodes.filter_map(of).sum()
}

/// Kernels that the joins of a plan launched.
pub fn launches(plan: &Arc<dyn ExecutionPlan>) -> usize {
    metric::<HortonJoinExec>(plan, "kernel_launches")
}

/// Makes the joins of a session whose rules are installed keep their sides as DataFusion planned
/// them, partitioned or not.
pub fn keep_sides(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    if let Some(optimizer) = builder.physical_optimizers() {
        let keeps = |name: &str| name != "horton_replace_swappable_joins";
        optimizer.rules.retain(|rule| keeps(rule.name()));
    }
    builder
}
