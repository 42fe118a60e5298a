use std::sync::Arc;
use std::time::Duration;
use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::test::TestMemoryExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning, collect_partitioned};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;

#[test]
fn stock_repartition() {
    let rt = tokio::runtime::Runtime::new().unwrap();
    for pool in [100usize, 600, 2000, 16384] { for at_once in [false, true] {
        let mut hung = 0;
        for _ in 0..100 {
            let parts: Vec<Vec<RecordBatch>> = (0..3i64).map(|p| (0..400i64).map(|b| {
                let col: ArrayRef = Arc::new(Int64Array::from_iter_values((0..20).map(|i| i * 7919 + b * 31 + p)));
                RecordBatch::try_from_iter([("k", col)]).unwrap()
            }).collect()).collect();
            let exec = TestMemoryExec::try_new_exec(&parts, parts[0][0].schema(), None).unwrap();
            let plan: Arc<dyn ExecutionPlan> = Arc::new(RepartitionExec::try_new(exec,
                Partitioning::Hash(vec![Arc::new(Column::new("k", 0))], 3)).unwrap());
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(pool))).build_arc().unwrap();
            let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), runtime).task_ctx();
            let work = async move {
                let mut n = 0;
                if at_once {
                    for p in collect_partitioned(plan, ctx).await.unwrap() { n += p.iter().map(|b| b.num_rows()).sum::<usize>(); }
                } else {
                    for p in 0..3 {
                        let b: Vec<RecordBatch> = plan.execute(p, Arc::clone(&ctx)).unwrap().try_collect().await.unwrap();
                        n += b.iter().map(|b| b.num_rows()).sum::<usize>();
                    }
                }
                n
            };
            match rt.block_on(async { tokio::time::timeout(Duration::from_secs(2), work).await }) {
                Ok(n) => assert_eq!(n, 24000),
                Err(_) => hung += 1,
            }
        }
        println!("pool {pool}, at once {at_once}: {hung} of 100 hung");
    } }
}
