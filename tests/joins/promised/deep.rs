//! Plans of many joins, one on top of the other: no stack overflows, as that ends the process.
//!
//! ```text
//!  t0 ⟕ t1 ⟕ t2 ⟕ … ⟕ t150     each join opens and polls the one below, on a stack of 2 MiB
//! ```

use std::fmt::Write;
use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use horton_test_support::turns::side_by_side;

use super::sessions::*;

/// Joins of a chain. Without stack of their own, release builds ended at 100.
const JOINS: usize = 150;

/// Bytes of stack for DataFusion's planner, which needs much in a debug build.
const FOR_PLANNER: usize = 256 << 20;

fn chain() -> String {
    let mut sql = "SELECT t0.k FROM t t0".to_owned();
    for join in 1..=JOINS {
        let before = join - 1;
        write!(sql, " LEFT JOIN t t{join} ON t{join}.k = t{before}.k").unwrap();
    }
    sql
}

fn planned(session: &SessionContext) -> Arc<dyn ExecutionPlan> {
    let session = session.clone();
    let on_thread = std::thread::Builder::new().stack_size(FOR_PLANNER);
    let planner = on_thread.spawn(move || futures::executor::block_on(plan(&session, &chain())));
    planner.unwrap().join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_many_joins_has_stack_enough() {
    side_by_side();
    for at in At::BOTH {
        let config = config()
            .with_target_partitions(1)
            .with_option_extension(at.options());
        let session = horton_join::context(config);
        table(&session, "t", &[("k", (0..10).collect())]);
        let plan = planned(&session);
        // On a worker, whose stack is no larger than users'.
        let rows = tokio::spawn(collect(Arc::clone(&plan), session.task_ctx()));
        let mut rows = first_column(&rows.await.unwrap().unwrap());
        rows.sort_unstable();
        assert_eq!(rows, (0..10).collect::<Vec<i64>>());
        at.assert_launched(&plan);
    }
}
