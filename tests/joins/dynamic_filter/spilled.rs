//! Build sides that go to disk: no filter is made of a part of their keys.

use std::sync::Arc;

use datafusion::execution::SessionStateBuilder;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionContext;
use horton_join::HortonJoinExec;
use horton_join::config::{Enabled, HortonConfig};

use super::data::*;

/// Bytes of the sessions' memory pools: enough for `small` alone.
const POOL_BYTES: usize = 48 << 10;

/// Joins of `big` and `wide`, and such below another join, whose filter would make them fit.
const QUERIES: [&str; 6] = [
    "SELECT big.v, wide.v FROM big JOIN wide ON big.k = wide.k",
    "SELECT big.v, wide.v FROM wide LEFT JOIN big ON big.s = wide.s",
    "SELECT big.v FROM big WHERE k IN (SELECT k FROM wide WHERE v % 3 > 0)",
    "SELECT v FROM wide WHERE k NOT IN (SELECT k FROM big WHERE k IS NOT NULL)",
    "SELECT small.v, x.b, x.w FROM small RIGHT JOIN \
     (SELECT big.k, big.v b, wide.v w FROM big JOIN wide ON big.w = wide.w) x ON small.k = x.k",
    "SELECT x.b, other.v FROM other RIGHT JOIN \
     (SELECT wide.k, big.v b FROM wide JOIN big ON big.k = wide.k) x ON other.k = x.k",
];

/// A session with little memory; its scans take filters.
async fn limited(tables: &Tables, place: Place) -> SessionContext {
    let horton = HortonConfig {
        enabled: Enabled::Always,
        device: horton_test_support::env::asked(),
        ..HortonConfig::default()
    };
    let config = config()
        .with_option_extension(horton)
        .set_bool("datafusion.execution.parquet.pushdown_filters", true)
        // Their channels want memory, too.
        .set_bool("datafusion.optimizer.enable_round_robin_repartition", false);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(POOL_BYTES)))
        .build_arc()
        .unwrap();
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features();
    let session = SessionContext::new_with_state(horton_join::install(state).build());
    tables.register(&session, place).await;
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_side_on_disk_leaves_out_no_row() {
    let tables = Tables::new().await;
    for place in PLACES {
        let stock = tables.stock(place).await;
        let session = limited(&tables, place).await;
        for query in QUERIES {
            let expected = run(&stock, query).await.rows;
            let found = run(&session, query).await;
            assert!(found.rows == expected, "{place:?} {query}");
            let spilled = metric::<HortonJoinExec>(&found.plan, "spill_count");
            assert!(spilled > 0, "nothing spilled: {place:?} {query}");
        }
    }
}
