//! The properties of a plan's nodes, held against the rows that they give out.
//!
//! ```text
//!  node ─ executed, all partitions ─▶ batches of each ─┐
//!       ─ properties, statistics ──────────────────────┴─▶ broken promises: texts
//!
//!  of a join of this crate: broken ─ by an input as well ─────────────▶ inherited
//!                                  ─ by DataFusion's own join as well ─▶ inherited
//!                                  ─ else ─────────────────────────────▶ broken
//! ```
//!
//! Planners leave out sorts and repartitions for what a node promises. Tests that compare whole
//! results never look at that. Held against the rows are: schema and NULLs, orderings, constants of
//! the plan and of each partition, equal expressions, partitioning, exact statistics.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::kernels::numeric::add;
use arrow::compute::{SortOptions, concat_batches};
use arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::hash_utils::create_hashes;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{ColumnStatistics, DataFusionError, Result, ScalarValue};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::equivalence::AcrossPartitions;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::{LexOrdering, PhysicalExprRef};
use datafusion::physical_expr_common::utils::evaluate_expressions_to_arrays;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::repartition::REPARTITION_RANDOM_STATE;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, collect_partitioned,
};
use horton_join::HortonJoinExec;

use crate::internals::DynamicFilterExec;

/// What was found of the nodes of one or more plans.
#[derive(Debug, Default)]
pub struct Promises {
    /// Nodes whose promises were held against their rows.
    pub nodes: usize,
    /// Promises that were held against rows.
    pub promises: usize,
    /// Promises that a node of this crate broke, and the node.
    pub broken: Vec<String>,
    /// Promises that an input or DataFusion's own join breaks as well.
    pub inherited: Vec<String>,
    /// The errors of nodes that cannot be executed by themselves: in a recursive query, of what the
    /// query would not have read to its end. Nodes are left out of which an input fails by itself,
    /// or that fail with DataFusion's own joins as well.
    pub failed: Vec<String>,
}

/// Checks the nodes of this crate in `plan`: executes each by itself, and looks at its rows.
pub async fn check(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Promises {
    let mut found = Promises::default();
    let mut left = vec![Arc::clone(plan)];
    while let Some(node) = left.pop() {
        left.extend(node.children().into_iter().cloned());
        let is_ours = HortonJoinExec::downcast(node.as_ref()).is_some();
        if (is_ours || node.is::<DynamicFilterExec>())
            && let Err(error) = found.check_node(&node, context).await
            && !fails_below(&node, context).await
            && !fails_in_stock(&node, &error, context).await
        {
            found.failed.push(format!("{}: {error}", node.name()));
        }
    }
    found
}

/// Returns whether one of DataFusion's own joins in `plan` breaks a promise, or would if it stood
/// where this crate's join does. Sorts are then left out that answers depend on.
///
/// # Errors
/// The errors of executing a join.
pub async fn stock_breaks_one(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<bool> {
    let mut left = vec![Arc::clone(plan)];
    while let Some(node) = left.pop() {
        left.extend(node.children().into_iter().cloned());
        let stock = match HortonJoinExec::downcast(node.as_ref()) {
            // An open join is never DataFusion's to execute.
            Some(_) if node.downcast_delegate().is_none() => continue,
            Some(join) => Arc::clone(join.stock()) as Arc<dyn ExecutionPlan>,
            None if node.is::<HashJoinExec>() => node,
            None => continue,
        };
        let rows = rows_of(&stock, context).await?;
        if !held(&stock, &rows)?.broken.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

impl Promises {
    async fn check_node(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        let rows = rows_of(node, context).await?;
        self.look_at(node, &rows, context).await
    }

    /// Holds the promises of `node` against its rows, `partitions`.
    ///
    /// # Errors
    /// The errors of executing its inputs, if one is broken.
    pub async fn look_at(
        &mut self,
        node: &Arc<dyn ExecutionPlan>,
        partitions: &[Vec<RecordBatch>],
        context: &Arc<TaskContext>,
    ) -> Result<()> {
        let held = held(node, partitions)?;
        self.nodes += 1;
        self.promises += held.promises;
        if held.broken.is_empty() {
            return Ok(());
        }
        let name = node.name();
        for input in node.children() {
            let rows = rows_of(input, context).await?;
            if !self::held(input, &rows)?.broken.is_empty() {
                let texts = held.broken.into_iter();
                self.inherited
                    .extend(texts.map(|text| format!("{name}: {text}")));
                return Ok(());
            }
        }
        let of_stock = match HortonJoinExec::downcast(node.as_ref()) {
            Some(join) if node.downcast_delegate().is_some() => {
                let stock: Arc<dyn ExecutionPlan> = Arc::clone(join.stock()) as _;
                // The first rows may be others, which break no promise.
                let stock = stock.with_fetch(None).unwrap_or(stock);
                let rows = rows_of(&stock, context).await?;
                self::held(&stock, &rows)?.broken
            }
            _ => HashSet::new(),
        };
        for text in held.broken {
            let list = if of_stock.contains(&text) {
                &mut self.inherited
            } else {
                &mut self.broken
            };
            list.push(format!("{name}: {text}"));
        }
        Ok(())
    }

    /// Adds what was found of another plan.
    pub fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.promises += other.promises;
        self.broken.extend(other.broken);
        self.inherited.extend(other.inherited);
        self.failed.extend(other.failed);
    }
}

/// Returns whether an input of `node` fails once it is read to its end. The query may not have read
/// it, as nothing is read beside an empty build side.
async fn fails_below(node: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> bool {
    for input in node.children() {
        if rows_of(input, context).await.is_err() {
            return true;
        }
    }
    false
}

/// Returns whether DataFusion's own joins in the place of ours, without our filters over scans,
/// fail with an error of the kind of `ours`. A query that reads such a part to its end fails. Ours
/// need not: a filter may have left out the rows of which an expression fails, if it was there in
/// time.
async fn fails_in_stock(
    node: &Arc<dyn ExecutionPlan>,
    ours: &DataFusionError,
    context: &Arc<TaskContext>,
) -> bool {
    let kind = |error: &DataFusionError| discriminant(error.find_root());
    let Ok(stock) = in_stock(node) else {
        return false;
    };
    let is_kind = |theirs: DataFusionError| kind(&theirs) == kind(ours);
    rows_of(&stock, context).await.is_err_and(is_kind)
}

/// Returns `plan` without our filter nodes, and with DataFusion's own joins, which collect their
/// left side.
///
/// # Errors
/// If DataFusion cannot make a join.
fn in_stock(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let replaced = Arc::clone(plan).transform_up(|node| {
        if node.is::<DynamicFilterExec>() {
            return Ok(Transformed::yes(Arc::clone(node.children()[0])));
        }
        let Some(join) = HortonJoinExec::downcast(node.as_ref()) else {
            return Ok(Transformed::no(node));
        };
        let children = node.children();
        let left = Arc::new(CoalescePartitionsExec::new(Arc::clone(children[0])));
        let join = join.stock().builder().reset_state();
        let join = join.with_partition_mode(PartitionMode::CollectLeft);
        let join = join.with_new_children(vec![left, Arc::clone(children[1])])?;
        Ok(Transformed::yes(Arc::new(join.build()?)))
    })?;
    Ok(replaced.data)
}

async fn rows_of(
    node: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<Vec<Vec<RecordBatch>>> {
    let fresh = reset_plan_states(Arc::clone(node))?;
    collect_partitioned(fresh, Arc::clone(context)).await
}

/// The promises of one node.
#[derive(Default)]
struct Held {
    promises: usize,
    /// Those that its rows break, without the rows.
    broken: HashSet<String>,
}

impl Held {
    fn note(&mut self, holds: bool, text: impl FnOnce() -> String) {
        self.promises += 1;
        if !holds {
            self.broken.insert(text());
        }
    }
}

/// Holds the promises of `node` against its rows.
fn held(node: &Arc<dyn ExecutionPlan>, partitions: &[Vec<RecordBatch>]) -> Result<Held> {
    let mut held = Held::default();
    let count = node.output_partitioning().partition_count();
    held.note(count == partitions.len(), || format!("{count} partitions"));
    let schema = node.schema();
    let batches = partitions.iter().flatten();
    let is_under = |batch: &RecordBatch| batch.schema().fields() == schema.fields();
    held.note(batches.into_iter().all(is_under), || "schema".to_owned());
    if !held.broken.is_empty() || schema.fields().is_empty() {
        return Ok(held);
    }
    let partitions: Vec<RecordBatch> = partitions
        .iter()
        .map(|batches| concat_batches(&schema, batches))
        .collect::<std::result::Result<_, _>>()?;
    for (index, field) in schema.fields().iter().enumerate() {
        let has_nulls = partitions.iter().any(|p| p.column(index).null_count() > 0);
        held.note(field.is_nullable() || !has_nulls, || {
            format!("{field} has no NULLs")
        });
    }
    let equivalences = node.equivalence_properties();
    for ordering in equivalences
        .oeq_class()
        .iter()
        .chain(node.output_ordering())
    {
        let mut sorted = true;
        for partition in &partitions {
            sorted &= is_sorted(ordering, partition)?;
        }
        held.note(sorted, || format!("order {ordering}"));
    }
    for class in equivalences.eq_group().iter() {
        let members: Vec<PhysicalExprRef> = class.iter().cloned().collect();
        let mut equal = true;
        for partition in &partitions {
            equal &= are_equal(&members, partition)?;
        }
        held.note(equal, || format!("equal expressions {class}"));
    }
    for constant in equivalences.constants() {
        let holds = is_constant(&constant.expr, &constant.across_partitions, &partitions)?;
        held.note(holds, || format!("constant {constant}"));
    }
    if let Partitioning::Hash(keys, count) = node.output_partitioning() {
        let holds = is_hashed(keys, *count, &partitions)?;
        held.note(holds, || format!("hashed by {keys:?}"));
    }
    hold_statistics(node, &partitions, &mut held)?;
    Ok(held)
}

/// Returns `array` with one zero where floats have two, as joins see them.
fn as_joined(array: ArrayRef) -> Result<ArrayRef> {
    if !array.data_type().is_floating() {
        return Ok(array);
    }
    let zero = ScalarValue::new_zero(array.data_type())?.to_scalar()?;
    Ok(add(&array, &zero)?)
}

/// Returns rows of `arrays` that compare as their values do; `None` for types without an order.
fn rows(arrays: &[ArrayRef], options: &[SortOptions]) -> Option<Rows> {
    let fields = arrays
        .iter()
        .zip(options)
        .map(|(array, options)| SortField::new_with_options(array.data_type().clone(), *options));
    let converter = RowConverter::new(fields.collect()).ok()?;
    converter.convert_columns(arrays).ok()
}

fn values(expressions: &[PhysicalExprRef], batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
    let arrays = evaluate_expressions_to_arrays(expressions, batch)?;
    arrays.into_iter().map(as_joined).collect()
}

fn is_sorted(ordering: &LexOrdering, batch: &RecordBatch) -> Result<bool> {
    let expressions: Vec<_> = ordering.iter().map(|s| Arc::clone(&s.expr)).collect();
    let options: Vec<_> = ordering.iter().map(|sort| sort.options).collect();
    let arrays = evaluate_expressions_to_arrays(&expressions, batch)?;
    Ok(rows(&arrays, &options).is_none_or(|rows| rows.iter().is_sorted()))
}

fn are_equal(members: &[PhysicalExprRef], batch: &RecordBatch) -> Result<bool> {
    let arrays = values(members, batch)?;
    let Some((first, others)) = arrays.split_first() else {
        return Ok(true);
    };
    let column = |array: &ArrayRef| rows(&[Arc::clone(array)], &[SortOptions::default()]);
    let Some(expected) = column(first) else {
        return Ok(true);
    };
    Ok(others.iter().all(|other| {
        // A key may equal one of another type, of which the rows differ.
        other.data_type() != first.data_type()
            || column(other).is_none_or(|rows| rows.iter().eq(expected.iter()))
    }))
}

fn is_constant(
    expression: &PhysicalExprRef,
    across: &AcrossPartitions,
    partitions: &[RecordBatch],
) -> Result<bool> {
    let mut seen: Option<ScalarValue> = match across {
        AcrossPartitions::Uniform(value) => value.clone(),
        AcrossPartitions::Heterogeneous => None,
    };
    for partition in partitions {
        if *across == AcrossPartitions::Heterogeneous {
            seen = None;
        }
        let [array] = values(std::slice::from_ref(expression), partition)?
            .try_into()
            .expect("one array of one expression");
        for row in 0..array.len() {
            let value = ScalarValue::try_from_array(&array, row)?;
            if *seen.get_or_insert_with(|| value.clone()) != value {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Returns whether rows are where `RepartitionExec` puts them.
fn is_hashed(keys: &[PhysicalExprRef], count: usize, partitions: &[RecordBatch]) -> Result<bool> {
    // Columns that a projection has left out stand for what nobody can look at.
    if keys.iter().any(|key| key.is::<UnKnownColumn>()) {
        return Ok(true);
    }
    for (index, partition) in partitions.iter().enumerate() {
        let keys = evaluate_expressions_to_arrays(keys, partition)?;
        let mut hashes = vec![0; partition.num_rows()];
        create_hashes(&keys, REPARTITION_RANDOM_STATE.random_state(), &mut hashes)?;
        let is_here = |hash: &u64| hash % count as u64 == index as u64;
        if !hashes.iter().all(is_here) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Holds statistics that are said to be exact against the rows: of each partition, and of all.
fn hold_statistics(
    node: &Arc<dyn ExecutionPlan>,
    partitions: &[RecordBatch],
    held: &mut Held,
) -> Result<()> {
    let all = concat_batches(&node.schema(), partitions)?;
    let of_partitions = partitions.iter().enumerate();
    let of_partitions = of_partitions.map(|(index, rows)| (Some(index), rows));
    for (partition, rows) in of_partitions.chain([(None, &all)]) {
        let args = StatisticsArgs::new().with_partition(partition);
        let statistics = StatisticsContext::new().compute(node.as_ref(), &args)?;
        let of = partition.map_or("the plan".to_owned(), |p| format!("partition {p}"));
        if let Precision::Exact(count) = statistics.num_rows {
            held.note(count == rows.num_rows(), || format!("{count} rows of {of}"));
        }
        let columns = statistics.column_statistics.iter().zip(rows.columns());
        for (index, (column, values)) in columns.enumerate() {
            let wrong = wrong_statistics(column, values)?;
            held.note(wrong.is_empty(), || {
                format!("exact {wrong:?} of column {index} of {of}")
            });
        }
    }
    Ok(())
}

/// Returns the names of exact statistics of a column that `values` do not have.
fn wrong_statistics(column: &ColumnStatistics, values: &ArrayRef) -> Result<Vec<&'static str>> {
    let mut wrong = Vec::new();
    if let Precision::Exact(nulls) = column.null_count
        && nulls != values.null_count()
    {
        wrong.push("null_count");
    }
    let mut counts: HashMap<ScalarValue, usize> = HashMap::new();
    for row in 0..values.len() {
        let value = ScalarValue::try_from_array(values, row)?;
        *counts.entry(value).or_default() += 1;
    }
    let some = || counts.keys().filter(|value| !value.is_null());
    if let Precision::Exact(distinct) = column.distinct_count
        && distinct != some().count()
    {
        wrong.push("distinct_count");
    }
    let order =
        |a: &&ScalarValue, b: &&ScalarValue| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
    for (name, said, seen) in [
        ("min", &column.min_value, some().min_by(order)),
        ("max", &column.max_value, some().max_by(order)),
    ] {
        if let Precision::Exact(said) = said
            && seen.is_some_and(|seen| seen != said)
        {
            wrong.push(name);
        }
    }
    Ok(wrong)
}
