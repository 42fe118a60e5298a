//! What is known of DataFusion's plan nodes, in one place: a new version of DataFusion may bring
//! nodes that belong in a list here.
//!
//! ```text
//!  is_scan          a leaf that reads rows            filter nodes stand above it
//!  is_row_filter    rows come through once or not     sizes and filters of a scan below hold above
//!  passes_rows      rows come through as they are     nothing is spared by leaving some out
//!  has_filter       a filter or a LIMIT leaves rows out   how much a scan spares others
//!  executes_inputs  polls its inputs itself, once     joins below may begin to build early
//!  stops_early      the first rows may be enough      joins below should have some soon
//!  names_by_place   output columns are inputs' by place, whatever their names
//!  file_source      what a scan of files computes and tests
//!  any_expression   what a node evaluates, and over which columns
//! ```
//!
//! A node that is in no list gets the careful answer. `stops_early` alone trusts it: who stops at a
//! LIMIT says so.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{DynamicFilterTracking, PhysicalExprRef, split_conjunction};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, Partitioning};

/// Returns whether `node` is a scan of any kind: a leaf that reads rows. A recursive query's work
/// table is none. It has the rows of one step, for which a filter is published again in each step.
pub fn is_scan(node: &dyn ExecutionPlan) -> bool {
    let makes_none = node.is::<EmptyExec>() || node.is::<PlaceholderRowExec>();
    node.children().is_empty() && !makes_none && !node.is::<WorkTableExec>()
}

/// Returns whether each row of `node`'s one input comes through once or not at all, and nothing but
/// its values decides which. So a LIMIT is none.
pub fn is_row_filter(node: &dyn ExecutionPlan) -> bool {
    node.fetch().is_none()
        && (node.is::<FilterExec>()
            || node.is::<ProjectionExec>()
            || node.is::<RepartitionExec>()
            || node.is::<CoalescePartitionsExec>()
            || node.is::<CooperativeExec>()
            || node.is::<SortExec>())
}

/// Returns whether rows of `node`'s one input come through all of them, with no work for each of
/// them: a change of partitions without a hash, or of the order of columns.
pub fn passes_rows(node: &dyn ExecutionPlan) -> bool {
    let keeps_rows = node.downcast_ref::<RepartitionExec>().is_some_and(|node| {
        matches!(
            node.partitioning(),
            Partitioning::RoundRobinBatch(_) | Partitioning::UnknownPartitioning(_)
        )
    });
    let has_columns_alone = node
        .downcast_ref::<ProjectionExec>()
        .is_some_and(|node| node.expr().iter().all(|column| column.expr.is::<Column>()));
    node.fetch().is_none()
        && (keeps_rows
            || has_columns_alone
            || node.is::<CoalescePartitionsExec>()
            || node.is::<CooperativeExec>())
}

/// Returns whether some row of the tables below `plan` is left out by a filter or a LIMIT, which is
/// no dynamic filter.
pub fn has_filter(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut left = vec![plan];
    while let Some(node) = left.pop() {
        if node.is::<FilterExec>() || node.fetch().is_some() || tests_rows(node.as_ref()) {
            return true;
        }
        left.extend(node.children());
    }
    false
}

/// Returns whether `node` is a scan of files with a predicate of its own.
fn tests_rows(node: &dyn ExecutionPlan) -> bool {
    let scan = node.downcast_ref::<DataSourceExec>();
    let Some(predicate) = scan.and_then(file_source).and_then(|files| files.filter()) else {
        return false;
    };
    split_conjunction(&predicate)
        .into_iter()
        .any(|part| !DynamicFilterTracking::classify(part).contains_dynamic_filter())
}

/// Returns whether `node` executes its inputs itself, once. (A recursive query executes copies of
/// its second one, which read what the first left.)
pub fn executes_inputs(node: &dyn ExecutionPlan) -> bool {
    node.is::<HashJoinExec>()
        || node.is::<AggregateExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
}

/// Returns whether the first rows of `node`'s inputs may be enough: they satisfy a LIMIT, or the
/// first rows of a sort or the extremes of an aggregate exclude the rest. `may_stop` says so of its
/// own rows. A sort and an aggregate that collects groups need all rows for their first one.
pub fn stops_early(node: &dyn ExecutionPlan, may_stop: bool) -> bool {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
        return node.fetch().is_some() || (may_stop && !node.is::<SortExec>());
    };
    let is_limited = aggregate.limit_options().is_some();
    let is_filtered = !aggregate.dynamic_expressions_produced().is_empty();
    let collects = *aggregate.input_order_mode() == InputOrderMode::Linear;
    is_limited || is_filtered || (may_stop && !collects)
}

/// Returns whether the rows of `node`'s inputs come into groups of an aggregate, so that fewer are
/// left where rows with equal keys meet. `is_grouped` says so of its own rows.
pub fn groups_rows(node: &dyn ExecutionPlan, is_grouped: bool) -> bool {
    match node.downcast_ref::<AggregateExec>() {
        Some(aggregate) => !aggregate.group_expr().is_empty(),
        None => is_grouped,
    }
}

/// Returns whether an output column of `node` is the one at the same place of each input, whatever
/// its name there.
pub fn names_by_place(node: &dyn ExecutionPlan) -> bool {
    node.is::<UnionExec>() || node.is::<InterleaveExec>()
}

/// Returns whether `test` holds for an expression that `node` evaluates, over rows of the schema
/// beside it; or true if the expressions cannot be read. The predicate of a scan of files is tested
/// in parts: each is evaluated for the rows that others let pass.
pub fn any_expression(
    node: &dyn ExecutionPlan,
    test: impl Fn(&PhysicalExprRef, &Schema) -> bool,
) -> bool {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        return any_expression_of_scan(scan, test);
    }
    let aggregate = node.downcast_ref::<AggregateExec>();
    let schema = match (aggregate, node.children().as_slice()) {
        // The arguments of a final aggregate are those of the partial one below.
        (Some(aggregate), _) => aggregate.input_schema(),
        (None, [child]) => child.schema(),
        // The columns of a condition over two inputs have no known types here. So most conditions
        // count as ones that can fail.
        (None, _) => Arc::new(Schema::empty()),
    };
    let mut found = false;
    let read = node.apply_expressions(&mut |expression| {
        found |= test(expression, &schema);
        Ok(TreeNodeRecursion::Continue)
    });
    found || read.is_err()
}

fn any_expression_of_scan(
    scan: &DataSourceExec,
    test: impl Fn(&PhysicalExprRef, &Schema) -> bool,
) -> bool {
    let Some(source) = file_source(scan) else {
        return false;
    };
    let table = source.table_schema().table_schema();
    let computed = source.projection().map(|of| of.as_ref().iter());
    let mut computed = computed.into_iter().flatten().map(|column| &column.expr);
    let predicate = source.filter();
    let mut parts = predicate.iter().flat_map(split_conjunction);
    computed.any(|column| test(column, table)) || parts.any(|part| test(part, table))
}

/// Returns whether a scan of files is in `plan`.
pub fn has_scan_of_files(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let mut left = vec![plan];
    while let Some(node) = left.pop() {
        let scan = node.downcast_ref::<DataSourceExec>();
        if scan.and_then(file_source).is_some() {
            return true;
        }
        left.extend(node.children());
    }
    false
}

/// Returns what a scan of files computes its columns from, and which rows it leaves out.
pub fn file_source(scan: &DataSourceExec) -> Option<&Arc<dyn FileSource>> {
    let files = scan.data_source().downcast_ref::<FileScanConfig>()?;
    Some(files.file_source())
}
