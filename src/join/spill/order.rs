//! The order that a join promises, restored.
//!
//! `HashJoinExec` keeps the order of its right side for some join types, and the optimizer may have
//! left out a sort for that. Spill partitions come in another order. A promised order is static, so
//! a stream of a join that spilled is sorted by the plan's promise ([`promised_ordering`]). A LIMIT
//! comes after the sort, as DataFusion's sort of the first rows alone cannot go to disk. Rows in
//! the files could have numbers instead; that would be another column in all of them.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};

use crate::join::memory::order_reservation;
use crate::join::prepare::host_join::OneShotExec;
use crate::join::prepare::reserved_pool::ReservedPool;
use crate::join::properties::promised_ordering;

/// Returns `stream` of the join of `partition` in the order that `planned` promises, and with as
/// many rows as it may have.
///
/// # Errors
/// The errors of DataFusion's sort.
pub fn restore_order(
    planned: &Arc<HashJoinExec>,
    stream: SendableRecordBatchStream,
    context: &Arc<TaskContext>,
    partition: usize,
) -> Result<SendableRecordBatchStream> {
    let stream = match promised_ordering(planned) {
        Some(ordering) => {
            let rows = OneShotExec::unordered(planned.schema(), stream);
            let held = order_reservation(context.memory_pool(), partition);
            let context = ReservedPool::sort_context(context, held)?;
            SortExec::new(ordering, rows).execute(0, context)?
        }
        None => stream,
    };
    Ok(limited(stream, planned.fetch()))
}

/// Returns the first `fetch` rows.
fn limited(stream: SendableRecordBatchStream, fetch: Option<usize>) -> SendableRecordBatchStream {
    let Some(fetch) = fetch else {
        return stream;
    };
    let schema = stream.schema();
    let rows = futures::stream::try_unfold((stream, fetch), |(mut stream, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(batch) = stream.try_next().await? else {
            return Ok(None);
        };
        let batch = batch.slice(0, left.min(batch.num_rows()));
        let left = left - batch.num_rows();
        Ok(Some((batch, (stream, left))))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows.boxed()))
}
