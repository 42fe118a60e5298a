//! A join of `datafusion`, copied into this library.
//!
//! ```text
//!  HashJoinExec over there   ─▶ over two ParcelExecs ─▶ a ParcelTable scans it
//!    └ two inputs, parcels                                │ datafusion's planner plans the scan
//!  HashJoinExec in here      ◀─ read from bytes ◀───────── and writes the plan as bytes
//!    └ the inputs over there, out of their parcels
//! ```
//!
//! `datafusion-ffi` shows the name of a foreign node, and neither its join type nor its filter.
//! Only a query planner returns bytes, which have all. So the host's planner plans a query whose
//! one table is the join. An input that goes through the codec comes back with the host's runtime,
//! which its tasks need when our threads ask it for rows.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::provider_as_source;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr,
    PlanProperties, ReplaceChildrenOptions,
};
use futures::executor::block_on;

use super::parcel::{self, Parcel};

/// Returns `join`, a node of the library that `planner` plans for, as a node of this one. Its
/// inputs stay there. `state` needs the functions that filters have, and no rules.
///
/// # Errors
/// If the host cannot write the join, as where a function is known by its name alone.
pub fn transcript(
    join: &Arc<dyn ExecutionPlan>,
    planner: &dyn QueryPlanner,
    state: &SessionState,
) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = join.children().into_iter().map(Arc::clone);
    let inputs: Vec<_> = inputs.map(ParcelExec::new).collect();
    let nodes = inputs
        .iter()
        .map(|input| Arc::clone(input) as Arc<dyn ExecutionPlan>);
    let nodes = nodes.collect();
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let parcel = Parcel::new(Arc::clone(join).replace_children(nodes, options)?);
    let table = provider_as_source(Arc::new(ParcelTable(parcel.number())));
    let query = LogicalPlanBuilder::scan("join", table, None)?.build()?;
    // Nothing in there waits: the plan is made already.
    block_on(planner.create_physical_plan(&query, state))
}

/// A table whose scan is the plan of a parcel. It tells no columns: those of a join may have equal
/// names, which a table's may not.
#[derive(Debug)]
pub struct ParcelTable(pub u64);

#[async_trait]
impl TableProvider for ParcelTable {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::empty())
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        _projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        parcel::plan(self.0)
    }
}

/// Stands for the plan of a parcel, and has its properties.
#[derive(Debug)]
pub struct ParcelExec {
    parcel: Parcel,
    properties: Arc<PlanProperties>,
}

impl ParcelExec {
    fn new(plan: Arc<dyn ExecutionPlan>) -> Arc<Self> {
        let properties = Arc::clone(plan.properties());
        let parcel = Parcel::new(plan);
        Arc::new(Self { parcel, properties })
    }

    /// Returns the parcel's number.
    pub fn number(&self) -> u64 {
        self.parcel.number()
    }
}

impl DisplayAs for ParcelExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ParcelExec: {}", self.number())
    }
}

impl ExecutionPlan for ParcelExec {
    fn name(&self) -> &str {
        "ParcelExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a parcel is a plan under way, not one to run")
    }
}
