//! Inputs made of streams: batches, and what comes behind them.

use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::{DataFusionError, Result, exec_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use horton_test_support::joins::Side;

/// The way in which a partition goes on behind its batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Then {
    End,
    Error(&'static str),
    /// An operator below was refused memory.
    Exhausted(&'static str),
    Wait,
}

pub type Batches = BoxStream<'static, Result<RecordBatch>>;

/// One partition of an input.
struct Feed<F> {
    schema: SchemaRef,
    batches: F,
}

impl<F> fmt::Debug for Feed<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a feed of {:?}", self.schema)
    }
}

impl<F: Fn() -> Batches + Send + Sync> PartitionStream for Feed<F> {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        Box::pin(RecordBatchStreamAdapter::new(schema, (self.batches)()))
    }
}

/// One partition, of the batches of a stream.
pub fn partition<F>(schema: &SchemaRef, batches: F) -> Arc<dyn PartitionStream>
where
    F: Fn() -> Batches + Send + Sync + 'static,
{
    let schema = Arc::clone(schema);
    Arc::new(Feed { schema, batches })
}

/// A plan of such partitions.
pub fn plan(partitions: Vec<Arc<dyn PartitionStream>>, endless: bool) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::clone(partitions[0].schema());
    Arc::new(StreamingTableExec::try_new(schema, partitions, None, [], endless, None).unwrap())
}

/// The batches of `batches`, then what `then` says.
pub fn going_on(batches: Vec<RecordBatch>, then: Then) -> Batches {
    let batches = stream::iter(batches).map(Ok);
    let end = match then {
        Then::End => stream::empty().boxed(),
        Then::Error(text) => stream::iter([Err(exec_datafusion_err!("{text}"))]).boxed(),
        Then::Exhausted(text) => {
            let error = DataFusionError::ResourcesExhausted(text.to_owned());
            stream::iter([Err(error)]).boxed()
        }
        Then::Wait => stream::pending().boxed(),
    };
    batches.chain(end).boxed()
}

/// The partitions of `side`, going on as `then` says.
pub fn feed(side: &Side, then: &[Then]) -> Arc<dyn ExecutionPlan> {
    let partition = |(batches, then): (&Vec<RecordBatch>, &Then)| {
        let (batches, then) = (batches.clone(), *then);
        partition(&side.schema, move || going_on(batches.clone(), then))
    };
    let partitions = side.partitions.iter().zip(then).map(partition).collect();
    plan(partitions, then.contains(&Then::Wait))
}
