//! The promises that a join makes of its rows, each with the reason why it holds.
//!
//! Planners rely on a node's properties: they leave out a sort, a repartition, a merge. So each is
//! derived here, from what a join does, and all who must keep one ask here which it is.
//!
//! | promise | sides as planned | sides open |
//! |---|---|---|
//! | orderings | DataFusion's: a stream keeps the order of its probe rows | none: either side may be probed |
//! | uniform constants | DataFusion's | those of a side whose rows are never padded with NULLs |
//! | constants of each partition | DataFusion's: a stream has the rows of its own probe partition | none: rows change places |
//! | equal expressions | DataFusion's | the same, but in padded rows of plain columns only |
//! | partitioning | DataFusion's | as many streams as the side that has more, in no known way |
//! | nullability | the schema is DataFusion's | the same: it knows which side is padded |
//! | statistics | estimates, none of them exact | the same |
//! | emission | DataFusion's: its side is built | of unmatched rows also at the end: they may be the build side's |
//! | boundedness | DataFusion's: of both inputs | the same; endless inputs keep their sides |
//!
//! Joins with sides as planned are planned as `HashJoinExec`, and replaced once sorts were left out
//! for what that promises. So they promise the same, and keep it wherever that node does:
//!
//! * A device, several devices, and DataFusion's own join on the host read probe partition `p` for
//!   stream `p`, in its order.
//! * Streams of a join that spilled share its spill partitions. They sort what comes of them
//!   ([`promised_ordering`]). Where the plan promises more of a partition than its order, each
//!   stream has spill partitions of its own ([`keeps_partitions`]).
//!
//! Source: `HashJoinExec::compute_properties`; `RepartitionExec` and `CoalescePartitionsExec`,
//! which move rows between partitions, clear the same constants.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, Result, Statistics};
use datafusion::physical_expr::equivalence::{
    AcrossPartitions, ConstExpr, EquivalenceClass, EquivalenceGroup,
};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{
    EquivalenceProperties, LexOrdering, Partitioning, PhysicalExprRef,
};
use datafusion::physical_plan::execution_plan::EmissionType;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, PlanProperties};

use super::output::columns::OutputColumns;

/// Returns whether either side of `join` may be built: DataFusion's word for "not decided yet".
pub fn is_open(join: &HashJoinExec) -> bool {
    *join.partition_mode() == PartitionMode::Auto
}

/// Returns the properties of a join of this crate in the place of `planned`.
pub fn properties(planned: &HashJoinExec) -> Arc<PlanProperties> {
    if !is_open(planned) {
        return Arc::clone(planned.properties());
    }
    let partitions = |side: &Arc<dyn ExecutionPlan>| side.output_partitioning().partition_count();
    let most = partitions(planned.left()).max(partitions(planned.right()));
    // What cannot be derived is not promised.
    let none = |_| EquivalenceProperties::new(planned.schema());
    Arc::new(PlanProperties::new(
        open_equivalences(planned).unwrap_or_else(none),
        Partitioning::UnknownPartitioning(most),
        open_emission(planned),
        planned.properties().boundedness,
    ))
}

/// Returns which inputs' orders the rows keep.
pub fn maintains_input_order(planned: &HashJoinExec) -> Vec<bool> {
    if is_open(planned) {
        vec![false, false]
    } else {
        planned.maintains_input_order()
    }
}

/// Returns DataFusion's estimate `of_join` without a claim to be exact. It hands on exact minima
/// and sums of the inputs' columns, and a join leaves out rows and repeats others.
pub fn statistics(of_join: &Statistics) -> Arc<Statistics> {
    Arc::new(of_join.clone().to_inexact())
}

/// Returns the order that each stream of `planned` follows; `None` if the join promises none.
///
/// It is all orderings that are promised, one after the other. Rows that follow two orders at once
/// are sorted by both one after the other, so rows in this order follow each of them.
pub fn promised_ordering(planned: &HashJoinExec) -> Option<LexOrdering> {
    if is_open(planned) {
        return None;
    }
    let equivalences = planned.properties().equivalence_properties();
    LexOrdering::new(equivalences.oeq_class().iter().flatten().cloned())
}

/// Returns whether output partitions of `planned` must have the rows of one probe partition alone,
/// although one table is built for all of them. The plan promises what rows of several partitions
/// together need not keep: where rows are, a value that is the same in all rows of a partition, or
/// two orders at once.
pub fn keeps_partitions(planned: &HashJoinExec) -> bool {
    let properties = planned.properties();
    let by_keys = matches!(
        properties.output_partitioning(),
        Partitioning::Hash(..) | Partitioning::Range(..)
    );
    let has_two_orders = properties.equivalence_properties().oeq_class().len() > 1;
    *planned.partition_mode() == PartitionMode::CollectLeft
        && (by_keys || has_two_orders || has_constants_of_partitions(planned))
}

/// Returns whether a value of the probe side is promised to be the same in all rows of a partition.
/// The build side has one partition, so that its values are the same in all of them.
fn has_constants_of_partitions(planned: &HashJoinExec) -> bool {
    let columns = OutputColumns::of_output(planned).columns;
    let is_of_probe = |column: Column| {
        let from = columns.get(column.index());
        from.is_some_and(|from| from.side == JoinSide::Right)
    };
    let constants = planned.properties().equivalence_properties().constants();
    constants.iter().any(|constant| {
        constant.across_partitions == AcrossPartitions::Heterogeneous
            && collect_columns(&constant.expr).into_iter().any(is_of_probe)
    })
}

/// Returns the expressions with equal or constant values in the rows of `planned`, whichever side
/// is built.
fn open_equivalences(planned: &HashJoinExec) -> Result<EquivalenceProperties> {
    let mut of_planned = planned.properties().equivalence_properties().clone();
    of_planned.clear_orderings();
    of_planned.clear_per_partition_constants();
    let padded = padded_columns(planned);
    if padded.is_empty() {
        return Ok(of_planned);
    }
    let is_padded = |expression: &PhysicalExprRef| {
        let mut columns = collect_columns(expression).into_iter();
        columns.any(|column| padded.contains(&column.index()))
    };
    // NULLs of a padded row are equal in plain columns, but not to what an expression makes of
    // them.
    let is_null_when_padded = |expression: &PhysicalExprRef| {
        is_padded(expression) && expression.downcast_ref::<Column>().is_some()
    };
    let classes = of_planned.eq_group().iter().flat_map(|class| {
        let members = |keep: &dyn Fn(&PhysicalExprRef) -> bool| {
            EquivalenceClass::new(class.iter().filter(|member| keep(member)).cloned())
        };
        [
            members(&|member| !is_padded(member)),
            members(&is_null_when_padded),
        ]
    });
    let constants = of_planned.constants().into_iter();
    let constants: Vec<ConstExpr> = constants.filter(|c| !is_padded(&c.expr)).collect();
    let mut open = EquivalenceProperties::new(planned.schema());
    open.add_equivalence_group(EquivalenceGroup::new(
        classes.filter(|class| !class.is_trivial()),
    ))?;
    open.add_constants(constants)?;
    Ok(open)
}

/// Returns the output columns that are NULL in the rows of the other side without a match.
fn padded_columns(planned: &HashJoinExec) -> Vec<usize> {
    let (left_is_padded, right_is_padded) = match planned.join_type() {
        JoinType::Left => (false, true),
        JoinType::Right => (true, false),
        JoinType::Full => (true, true),
        _ => (false, false),
    };
    let columns = OutputColumns::of_output(planned)
        .columns
        .into_iter()
        .enumerate();
    let padded = columns.filter(|(_, column)| match column.side {
        JoinSide::Left => left_is_padded,
        JoinSide::Right => right_is_padded,
        JoinSide::None => false,
    });
    padded.map(|(index, _)| index).collect()
}

/// Returns when rows come of a join of which either side may be built. They come with the probe
/// rows, and unless the join is an inner one also once these have ended. Of two inputs that give no
/// row before their end, none comes earlier.
fn open_emission(planned: &HashJoinExec) -> EmissionType {
    let inputs = [planned.left(), planned.right()];
    if inputs
        .iter()
        .all(|input| input.pipeline_behavior() == EmissionType::Final)
    {
        return EmissionType::Final;
    }
    match planned.join_type() {
        JoinType::Inner => EmissionType::Incremental,
        _ => EmissionType::Both,
    }
}
