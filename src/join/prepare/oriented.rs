//! A join with the side that is built on its left, as `HashJoinExec` has it.
//!
//! ```text
//!   planned          LeftSemi(a, b)     ─ a ends first ─▶  LeftSemi(a, b)     builds a, probes b
//!                    a.x < b.y          ─ b ends first ─▶  RightSemi(b, a)    builds b, probes a
//! ```
//!
//! DataFusion swaps a join's type, keys, residual filter and projection
//! (`HashJoinExec::swap_inputs`); the output keeps its columns. The facts that builds and probes
//! need are read off the join as it is then.

use std::any::Any;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use datafusion::common::{JoinSide, JoinType, Result, internal_datafusion_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::config::HortonConfig;
use crate::device::Placed;

use crate::join::build_side::spec::BuildSpec;
use crate::join::input::build_batches::BuildBatches;
use crate::join::output::columns::OutputColumns;
use crate::join::output::join_type::Outcome;
use crate::join::probe::ProbeSpec;
use crate::keys::verify::supported;
use crate::sample::values_of_sample;
use crate::scan::short_circuit::{by_row, depends_on_batch};

/// Rows of a sample per square root of the build side's rows. If eight rows share each key, that
/// makes 64 equal pairs.
const ROWS_PER_ROOT: usize = 4;

/// A join whose left input is the build side.
#[derive(Debug, Clone)]
pub struct OrientedJoin {
    join: Arc<HashJoinExec>,
    config: HortonConfig,
    context: Arc<TaskContext>,
}

impl OrientedJoin {
    /// Returns `planned` with its left input as the build side, or its right one if it is
    /// `swapped`.
    ///
    /// # Errors
    /// If the join type has no counterpart with its sides swapped.
    pub fn new(
        planned: &Arc<HashJoinExec>,
        swapped: bool,
        config: &HortonConfig,
        context: &Arc<TaskContext>,
    ) -> Result<Self> {
        let join = if swapped {
            swap(planned)?
        } else {
            Arc::clone(planned)
        };
        Ok(Self {
            join: with_residual_by_row(join)?,
            config: config.clone(),
            context: Arc::clone(context),
        })
    }

    /// Returns the join.
    pub fn join(&self) -> &Arc<HashJoinExec> {
        &self.join
    }

    /// Returns the session's options.
    pub fn config(&self) -> &HortonConfig {
        &self.config
    }

    /// Returns the query's context.
    pub fn context(&self) -> &Arc<TaskContext> {
        &self.context
    }

    /// Returns how many parts of a side are worked on at once.
    pub fn width(&self) -> usize {
        self.context.session_config().target_partitions()
    }

    /// Returns why no device can compare the keys, if that is so.
    ///
    /// # Errors
    /// If a key expression has no type.
    pub fn unsupported_keys(&self) -> Result<Option<String>> {
        let (left, right) = (self.join.left().schema(), self.join.right().schema());
        let types = self.join.on().iter();
        let types = types.map(|(l, r)| Ok((l.data_type(&left)?, r.data_type(&right)?)));
        let types = types.collect::<Result<Vec<_>>>()?;
        Ok(supported(&types).err())
    }

    fn key_types(&self) -> Result<Vec<DataType>> {
        let schema = self.join.left().schema();
        let keys = self.join.on().iter();
        keys.map(|(build, _)| build.data_type(&schema)).collect()
    }

    /// Returns the output schema and where its columns come from, after the embedded projection.
    pub fn output(&self) -> OutputColumns {
        OutputColumns::of_output(&self.join)
    }

    /// Returns the columns of the build side that pairs bring to the output or the residual filter,
    /// each once. Join types that emit build rows only once the probe has ended take them in order
    /// then.
    fn build_columns(&self) -> Vec<usize> {
        let filter = self.join.filter();
        let of_filter = filter.iter().flat_map(|filter| filter.column_indices());
        let output = self.output();
        let of_pairs = match Outcome::for_join_type(*self.join.join_type(), false) {
            Outcome::Later => &[][..],
            _ => &output.columns,
        };
        left_columns(of_pairs.iter().chain(of_filter))
    }

    /// Returns how many rows of `build` share a key, if the join is a semi or anti join with a
    /// residual filter; 0 for others, and where the keys are no columns or are not sampled.
    pub fn rows_per_filtered_key(&self, build: &BuildBatches) -> f64 {
        use JoinType::{LeftAnti, LeftMark, LeftSemi, RightAnti, RightMark, RightSemi};
        let join = &self.join;
        let emits_rows_once = matches!(
            join.join_type(),
            LeftSemi | LeftAnti | LeftMark | RightSemi | RightAnti | RightMark
        );
        if !emits_rows_once || join.filter().is_none() {
            return 0.0;
        }
        let columns =
            (join.on().iter()).map(|(left, _)| left.downcast_ref::<Column>().map(Column::index));
        let batches: Vec<&RecordBatch> = build.batches.iter().collect();
        let values = columns
            .collect::<Option<Vec<usize>>>()
            .and_then(|columns| values_of_sample(&batches, &columns, ROWS_PER_ROOT));
        values.map_or(0.0, |values| build.rows as f64 / values)
    }

    /// Returns what a build on `device` must know, the table of which `probes` streams look up.
    ///
    /// # Errors
    /// If a key expression has no type.
    pub fn build_spec(&self, device: &Placed, probes: usize) -> Result<BuildSpec> {
        let join = &self.join;
        Ok(BuildSpec {
            on: join.on().iter().map(|(l, _)| Arc::clone(l)).collect(),
            key_types: self.key_types()?,
            null_equality: join.null_equality(),
            visited: emits_build_rows(*join.join_type()),
            filtered: join.filter().is_some(),
            columns: self.build_columns(),
            output_columns: left_columns(&self.output().columns),
            width: self.width(),
            probes,
            device: device.clone(),
            config: self.config.clone(),
        })
    }

    /// Returns what probe streams on `device` must know.
    pub fn probe_spec(&self, device: &Placed) -> ProbeSpec {
        let join = &self.join;
        let right = join.right();
        let ordered = right.output_ordering().is_some();
        ProbeSpec {
            on: join.on().iter().map(|(_, r)| Arc::clone(r)).collect(),
            null_equality: join.null_equality(),
            join_type: *join.join_type(),
            outcome: Outcome::for_join_type(*join.join_type(), ordered),
            null_aware: join.null_aware,
            filter: join.filter().map(|filter| {
                let input = OutputColumns {
                    schema: Arc::clone(filter.schema()),
                    columns: filter.column_indices().to_vec(),
                };
                (Arc::clone(filter.expression()), input)
            }),
            output: self.output(),
            batch_size: self.context.session_config().batch_size().max(1),
            fetch: join.fetch(),
            chunk_rows: self.config.chunk_rows(device.info().kind),
            whole_chunks: !right.boundedness().is_unbounded(),
        }
    }
}

/// Returns the build side's columns among these, each once.
fn left_columns<'a>(columns: impl IntoIterator<Item = &'a ColumnIndex>) -> Vec<usize> {
    let columns = columns.into_iter();
    let left = columns.filter(|column| column.side == JoinSide::Left);
    let mut columns: Vec<usize> = left.map(|column| column.index).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// Returns the join with its sides swapped and its columns as they were.
fn swap(planned: &HashJoinExec) -> Result<Arc<HashJoinExec>> {
    let swapped = if planned.contains_projection() {
        planned.swap_inputs(PartitionMode::CollectLeft)?
    } else {
        // Without a projection, a node above the join would put the columns into their order.
        let columns = (0..planned.schema().fields().len()).collect();
        let projected = planned.with_projection(Some(columns))?;
        projected.swap_inputs(PartitionMode::CollectLeft)?
    };
    let swapped: Arc<dyn Any + Send + Sync> = swapped;
    let join = swapped.downcast().ok();
    join.ok_or_else(|| internal_datafusion_err!("a swapped join is no join"))
}

/// Returns the join. If its residual filter may fail depending on the batch, it is evaluated row by
/// row: this crate's batches are not those of `HashJoinExec`.
fn with_residual_by_row(join: Arc<HashJoinExec>) -> Result<Arc<HashJoinExec>> {
    let Some(filter) = join.filter() else {
        return Ok(join);
    };
    let (condition, schema) = (filter.expression(), filter.schema());
    if !depends_on_batch(condition, schema) {
        return Ok(join);
    }
    let condition = by_row(condition, schema)?;
    let columns = filter.column_indices().to_vec();
    let filter = JoinFilter::new(condition, columns, Arc::clone(schema));
    Ok(Arc::new(join.builder().with_filter(Some(filter)).build()?))
}

/// Returns whether a join type emits build rows once the probe has ended.
pub fn emits_build_rows(join_type: JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Left
            | JoinType::LeftAnti
            | JoinType::LeftSemi
            | JoinType::LeftMark
            | JoinType::Full
    )
}
