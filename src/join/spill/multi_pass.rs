//! The join of one pair of spill partitions, whose build side fits, or comes in parts.
//!
//! ```text
//!  fits    build side, all of it ─▶ probe side ─▶ rows
//!  parts   rows that fit ─▶ the whole probe side ─▶ rows     pass after pass
//! ```
//!
//! A pass decides on the rows that it builds, as it sees all of the other side. So the side whose
//! unmatched rows the join type emits is the one that comes in parts:
//!
//! | join type | built in parts |
//! |---|---|
//! | Inner | the smaller side |
//! | Left, LeftSemi, LeftAnti, LeftMark | the left side |
//! | Right, RightSemi, RightAnti, RightMark | the right side |
//! | Full | as Left; then the right side as RightAnti, its rows with NULLs |

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use datafusion::common::{JoinSide, JoinType};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

use crate::error::Result;
use crate::join::input::buffered::{BufferedInput, ReadOutcome};
use crate::join::input::build_batches::BuildBatches;
use crate::join::input::coalesce::coalesce;
use crate::join::output::columns::OutputColumns;
use crate::join::prepare::oriented::OrientedJoin;
use crate::join::prepare::{JoinPreparation, PreparedJoin};
use crate::join::side::Side;

use super::pairs::PairJoin;
use super::partition::PartitionPair;

/// Returns the rows of `pair`, of which `build` has those of `side`.
pub async fn single_pass(
    pairs: &PairJoin,
    pair: &PartitionPair,
    side: Side,
    build: BuildBatches,
) -> Result<SendableRecordBatchStream> {
    let phase = Phase::new(Arc::clone(&pairs.node.planned), side);
    phase.join(pairs, pair, build).await
}

/// Returns the rows of a pair of which no side fits; `smaller` has fewer bytes.
pub fn multi_pass(
    pairs: &Arc<PairJoin>,
    pair: PartitionPair,
    smaller: Side,
) -> SendableRecordBatchStream {
    let schema = pairs.planned.schema();
    let phases = match phases(&pairs.node.planned, smaller) {
        Ok(phases) => phases,
        Err(error) => {
            let failed = futures::stream::once(async { Err(error) });
            return Box::pin(RecordBatchStreamAdapter::new(schema, failed));
        }
    };
    let passes = MultiPassJoin {
        pairs: Arc::clone(pairs),
        pair,
        phases,
        input: None,
    };
    let streams = futures::stream::try_unfold(passes, |mut passes| async {
        let stream = passes.next().await?;
        Ok::<_, DataFusionError>(stream.map(|stream| (stream, passes)))
    });
    Box::pin(RecordBatchStreamAdapter::new(
        schema,
        streams.try_flatten().boxed(),
    ))
}

/// One way through a pair.
struct Phase {
    join: Arc<HashJoinExec>,
    build: Side,
    /// The join whose rows these are, if they come without their left side.
    padded: Option<Arc<HashJoinExec>>,
}

impl Phase {
    fn new(join: Arc<HashJoinExec>, build: Side) -> Self {
        Self {
            join,
            build,
            padded: None,
        }
    }

    async fn prepare(
        &self,
        pairs: &PairJoin,
        build: BuildBatches,
        probe: BufferedInput,
    ) -> Result<PreparedJoin> {
        let (node, swapped) = (&pairs.node, self.build == Side::Right);
        let preparation = JoinPreparation {
            oriented: OrientedJoin::new(&self.join, swapped, &node.config, &node.context)?,
            build: self.build,
            at: pairs.next_id(),
            partitions: None,
            may_move_rows: false,
            is_grouped: true,
            reopen: None,
            partitioning: None,
            filters: None,
            shown: node.shown.for_spill_partitions(),
        };
        let build = coalesce(build, preparation.oriented.width()).await?;
        Box::pin(preparation.prepare(build, probe)).await
    }

    async fn join(
        &self,
        pairs: &PairJoin,
        pair: &PartitionPair,
        build: BuildBatches,
    ) -> Result<SendableRecordBatchStream> {
        let probe = pairs.input(pair, self.build.other())?;
        let prepared = self.prepare(pairs, build, probe).await?;
        let rows = prepared.stream(0, pairs.node.partition)?;
        let schema = pairs.planned.schema();
        let padded = self.padded.clone();
        let rows = rows.map(move |batch| match &padded {
            Some(full) => pad(full, &batch?),
            None => batch,
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Returns the ways through a pair of which no side fits.
fn phases(join: &Arc<HashJoinExec>, smaller: Side) -> Result<Vec<Phase>, DataFusionError> {
    use JoinType::{Full, Inner, Left, LeftAnti, LeftMark, LeftSemi, RightAnti};
    let build = match join.join_type() {
        Inner => smaller,
        Left | LeftSemi | LeftAnti | LeftMark => Side::Left,
        Full => {
            let left = join.builder().with_type(Left).build()?;
            let right = join.builder().with_projection(None).with_type(RightAnti);
            return Ok(vec![
                // The last is taken first.
                Phase {
                    join: Arc::new(right.build()?),
                    build: Side::Right,
                    padded: Some(Arc::clone(join)),
                },
                Phase::new(Arc::new(left), Side::Left),
            ]);
        }
        _ => Side::Right,
    };
    Ok(vec![Phase::new(Arc::clone(join), build)])
}

/// Returns the rows of the right side as rows of the `full` join.
fn pad(full: &HashJoinExec, right: &RecordBatch) -> Result<RecordBatch, DataFusionError> {
    let output = OutputColumns::of_output(full);
    let rows = right.num_rows();
    let columns = output.columns.iter().zip(output.schema.fields());
    let column = |(source, field): (&datafusion::physical_plan::joins::utils::ColumnIndex, _)| {
        let field: &arrow::datatypes::FieldRef = field;
        match source.side {
            JoinSide::Right => Arc::clone(right.column(source.index)),
            _ => new_null_array(field.data_type(), rows),
        }
    };
    let columns: Vec<ArrayRef> = columns.map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(output.schema, columns, &options)?;
    Ok(batch)
}

/// Passes that are still to be made.
struct MultiPassJoin {
    pairs: Arc<PairJoin>,
    pair: PartitionPair,
    phases: Vec<Phase>,
    /// The rest of the phase's build side.
    input: Option<BufferedInput>,
}

impl MultiPassJoin {
    /// Returns the rows of the next pass.
    async fn next(&mut self) -> Result<Option<SendableRecordBatchStream>> {
        while let Some(phase) = self.phases.last() {
            let input = match self.input.take() {
                Some(input) => input,
                None => self.pairs.input(&self.pair, phase.build)?,
            };
            let mut input = input;
            let outcome = input.read(usize::MAX).await?;
            if matches!(outcome, ReadOutcome::Failed) {
                return Err(input.failure());
            }
            if matches!(outcome, ReadOutcome::Refused(_)) && input.rows() == 0 {
                // Without one batch nothing goes on.
                input.keep_refused();
            }
            let build = input.collect();
            if build.rows == 0 {
                self.phases.pop();
                continue;
            }
            let rows = phase.join(&self.pairs, &self.pair, build).await?;
            match outcome {
                ReadOutcome::Ended => drop(self.phases.pop()),
                _ => self.input = Some(input),
            }
            return Ok(Some(rows));
        }
        Ok(None)
    }
}
