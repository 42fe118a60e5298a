//! The execution engine of an executor: the stock one, after its joins changed places.
//!
//! ```text
//!  task ─▶ options: for_task ─▶ on_device ─▶ DefaultExecutionEngine ─▶ shuffle writer
//!                                  │
//!                          one Health for the process
//! ```
//!
//! Ballista gives an engine each decoded stage just before it runs, with push and with pull
//! scheduling. A codec that decodes joins as ours would be the alternative. It would need a codec
//! on the scheduler, too, and a scheduler would have to be changed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ballista_core::JobId;
use ballista_executor::execution_engine::{
    DefaultExecutionEngine, ExecutionEngine, QueryStageExecutor,
};
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use horton_join::config::HortonConfig;
use horton_join::{Health, on_device};

use crate::options::{OfMachine, for_task};
use crate::pool::Pool;

/// An execution engine whose hash joins run on the device of this machine.
///
/// ```text
///  HashJoinExec ─▶ HortonJoinExec, all other nodes as the scheduler planned them
/// ```
///
/// One engine serves all tasks of an executor. A device that fails is not asked again: joins of
/// later tasks run on the host.
pub struct HortonEngine {
    options: HortonConfig,
    health: Health,
    stock: DefaultExecutionEngine,
    said: Mutex<BTreeSet<String>>,
}

impl HortonEngine {
    /// Returns an engine with the executor's own options. `client_ttl` is that of
    /// `ExecutorProcessConfig`: seconds for which idle connections to other executors are kept, or
    /// 0 for none.
    pub fn new(options: HortonConfig, client_ttl: u64) -> Self {
        Self {
            options,
            health: Health::default(),
            stock: stock(client_ttl),
            said: Mutex::default(),
        }
    }

    /// Returns the options of a task with ours in them.
    fn options_of(&self, config: &SessionConfig) -> Result<ConfigOptions> {
        let mut options = ConfigOptions::clone(config.options());
        let task = options.extensions.get::<HortonConfig>().cloned();
        let (joins, ignored) = for_task(&self.options, &task.unwrap_or_default())?;
        self.say(&ignored);
        options.extensions.insert(joins);
        Ok(options)
    }

    /// Warns of options that are not obeyed, of each once.
    fn say(&self, ignored: &[OfMachine]) {
        for OfMachine { name, value } in ignored {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.insert(name.clone()) {
                log::warn!(
                    "a client set horton.{name} = '{value}', which has no effect: it belongs to \
                     this machine; start the executor with --horton {name}={value}"
                );
            }
        }
    }
}

impl ExecutionEngine for HortonEngine {
    fn create_query_stage_exec(
        &self,
        job_id: JobId,
        stage_id: usize,
        task_id: usize,
        global_output_partition_ids: Vec<usize>,
        plan: Arc<dyn ExecutionPlan>,
        work_dir: &str,
        config: &SessionConfig,
    ) -> Result<Arc<dyn QueryStageExecutor>> {
        let plan = on_device(plan, &self.options_of(config)?, &self.health)?;
        self.stock.create_query_stage_exec(
            job_id,
            stage_id,
            task_id,
            global_output_partition_ids,
            plan,
            work_dir,
            config,
        )
    }
}

/// Returns the engine that Ballista's own executor would have.
fn stock(client_ttl: u64) -> DefaultExecutionEngine {
    if client_ttl == 0 {
        return DefaultExecutionEngine::new();
    }
    let pool = Pool::new(Duration::from_secs(client_ttl));
    DefaultExecutionEngine::with_client_pool(Arc::new(pool))
}

#[cfg(test)]
mod tests {
    use ballista_core::error::BallistaError;
    use ballista_core::execution_plans::ShuffleWriterExec;
    use ballista_core::serde::protobuf::FailedTask;
    use ballista_core::serde::protobuf::failed_task::FailedReason;
    use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::catalog::streaming::StreamingTable;
    use datafusion::execution::{SendableRecordBatchStream, TaskContext};
    use datafusion::physical_plan::common::collect;
    use datafusion::physical_plan::execute_stream_partitioned;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use datafusion::physical_plan::streaming::PartitionStream;
    use datafusion::prelude::SessionContext;
    use horton_join::config::Enabled;

    use crate::session_config;

    use super::*;

    /// Returns the text of a stage with a join, as `engine` would run it for a client with `task`.
    async fn stage(engine: &HortonEngine, task: HortonConfig) -> Result<String> {
        let join = "SELECT a.value FROM range(0, 9) a JOIN range(4, 20) b ON a.value = b.value";
        let plan = SessionContext::new().sql(join).await?;
        let plan = plan.create_physical_plan().await?;
        let job = JobId::from("job".to_owned());
        let writer = ShuffleWriterExec::try_new(job.clone(), 1, plan, String::new())?;
        let config = session_config().with_option_extension(task);
        let writer = Arc::new(writer);
        let stage = engine.create_query_stage_exec(job, 1, 1, vec![0], writer, "", &config)?;
        Ok(format!("{stage:?}"))
    }

    #[tokio::test]
    async fn joins_change_unless_a_client_says_never() {
        let engine = HortonEngine::new(HortonConfig::default(), 30);
        let changed = stage(&engine, HortonConfig::default()).await.unwrap();
        assert!(changed.contains("HortonJoinExec"), "{changed}");
        let never = HortonConfig {
            enabled: Enabled::Never,
            ..HortonConfig::default()
        };
        let kept = stage(&engine, never).await.unwrap();
        assert!(!kept.contains("HortonJoinExec"), "{kept}");
        assert!(kept.contains("HashJoinExec"), "{kept}");
    }

    #[tokio::test]
    async fn a_clients_device_is_refused_once_in_words() {
        let engine = HortonEngine::new(HortonConfig::default(), 0);
        for _ in 0..2 {
            let task = HortonConfig {
                device: "amd".to_owned(),
                ..HortonConfig::default()
            };
            stage(&engine, task).await.unwrap();
        }
        assert_eq!(engine.said.lock().unwrap().len(), 1);
    }

    /// Rows of another executor that cannot be fetched.
    #[derive(Debug)]
    struct Lost(SchemaRef);

    impl PartitionStream for Lost {
        fn schema(&self) -> &SchemaRef {
            &self.0
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let lost = BallistaError::FetchFailed("executor".to_owned(), 3, 7, String::new());
            let rows = futures::stream::iter([Err(lost.into_datafusion())]);
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), rows))
        }
    }

    /// A scheduler runs a stage again if a task says that its rows are lost, and ends the query
    /// for any other error.
    #[tokio::test]
    async fn a_join_hands_on_that_rows_are_lost() {
        // One table for four streams, which all meet its error.
        let config = SessionConfig::new()
            .with_target_partitions(4)
            .with_repartition_joins(false);
        let session = SessionContext::new_with_config(config);
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        for (name, partitions) in [("build", 1), ("probe", 4)] {
            let lost: Arc<dyn PartitionStream> = Arc::new(Lost(Arc::clone(&schema)));
            let table = StreamingTable::try_new(Arc::clone(&schema), vec![lost; partitions]);
            let table = Arc::new(table.unwrap());
            session.register_table(name, table).unwrap();
        }
        for join_type in ["JOIN", "RIGHT JOIN"] {
            let join = format!("SELECT * FROM build {join_type} probe ON build.k = probe.k");
            let plan = session.sql(&join).await.unwrap();
            let plan = plan.create_physical_plan().await.unwrap();
            let mut options = ConfigOptions::new();
            let horton = HortonConfig {
                enabled: Enabled::Always,
                ..HortonConfig::default()
            };
            options.extensions.insert(horton);
            let plan = on_device(plan, &options, &Health::default()).unwrap();
            let streams = execute_stream_partitioned(plan, session.task_ctx()).unwrap();
            assert_eq!(streams.len(), 4);
            let results = streams.into_iter().map(collect);
            let results = futures::future::join_all(results).await;
            let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
            assert!(!errors.is_empty(), "{join}");
            for error in errors {
                let task = FailedTask::from(BallistaError::from(error));
                let Some(FailedReason::FetchPartitionError(reason)) = task.failed_reason else {
                    panic!("{join}: {task:?}");
                };
                assert_eq!((reason.map_stage_id, reason.map_partition_id), (3, 7));
            }
        }
    }
}
