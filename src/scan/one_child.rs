//! Methods that plan nodes with one child have in common.
//!
//! ```text
//!  parent ─▶ PushdownGuard | DynamicFilterExec ─▶ child      with the child's properties
//! ```
//!
//! `ExecutionPlan` has a dozen methods whose defaults suit a node that changes its rows' order or
//! partitions. A macro writes those of a node that does not; a wrapper type would put one more
//! node into plans.

/// Writes the methods of `ExecutionPlan` of a node that has the properties of its child, in field
/// `$child`. Writes a method `over` that makes the same node over another child.
macro_rules! with_properties_of {
    ($child:ident) => {
        fn properties(&self) -> &Arc<PlanProperties> {
            self.$child.properties()
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.$child]
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            vec![true]
        }

        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }

        fn replace_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
            _: ReplaceChildrenOptions,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let Ok([child]) = <[_; 1]>::try_from(children) else {
                return internal_err!("{} has one child", self.name());
            };
            Ok(Arc::new(self.over(child)))
        }

        fn with_new_children(
            self: Arc<Self>,
            children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            self.replace_children(children, options)
        }
    };
}

pub(crate) use with_properties_of;
