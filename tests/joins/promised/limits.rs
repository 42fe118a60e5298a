//! Rows come when they are there: a LIMIT has a join read little more than DataFusion's own.
//!
//! ```text
//!  LIMIT 5 ◀─ join ◀─ filter node ◀─ 1600 batches     rows that the scans gave
//!                     lets three rows of five batches through
//! ```

use std::path::Path;
use std::sync::Arc;

use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::{metric, nodes};
use horton_test_support::turns::side_by_side;

use super::sessions::*;

/// Rows of the large table.
const ROWS: i64 = 800_000;

/// Rows that a join with a LIMIT may read more than DataFusion's: filter nodes and lookups take a
/// few batches at once.
const MORE: usize = 20_000;

/// Rows that a join below others may read more on a device: two chunks of a CPU's, of which the
/// first is a quarter, and as many that a filter leaves out.
const CHUNKS: usize = 2 * ((1 << 16) + (1 << 18));

/// Queries of which five rows are wanted, and whether a join without a LIMIT is below.
const QUERIES: [(&str, bool); 4] = [
    (
        "SELECT big.v FROM few JOIN big ON big.k = few.k LIMIT 5",
        false,
    ),
    (
        "SELECT big.v FROM big WHERE big.k IN (SELECT k FROM few) LIMIT 5",
        false,
    ),
    (
        "SELECT big.v FROM few RIGHT JOIN big ON big.k = few.k LIMIT 5",
        false,
    ),
    (
        "SELECT a.v FROM (SELECT big.v, big.k FROM half JOIN big ON big.k = half.k) a \
         JOIN half ON half.k = a.k LIMIT 5",
        true,
    ),
];

/// Writes the large table as a Parquet file: its scan counts rows.
async fn write(folder: &Path) {
    let session = SessionContext::new_with_config(in_one_partition());
    let keys = (0..ROWS).map(|row| row % 2500).collect();
    table(&session, "rows", &[("k", keys), ("v", (0..ROWS).collect())]);
    let file = folder.join("big.parquet");
    let copy = format!(
        "COPY (SELECT * FROM rows ORDER BY v) TO '{}'",
        file.display()
    );
    run_all(&session, &[&copy]).await;
}

/// Partitions of a scan run ahead of each other, as far as they come.
fn in_one_partition() -> SessionConfig {
    config().with_target_partitions(1)
}

async fn tables(session: &SessionContext, folder: &Path) {
    table(session, "few", &[("k", vec![3, 5, 7])]);
    table(session, "half", &[("k", (0..1250).collect())]);
    let create = format!(
        "CREATE EXTERNAL TABLE big STORED AS PARQUET LOCATION '{}/'",
        folder.display()
    );
    run_all(session, &[&create]).await;
}

/// Returns the rows that the scans of `sql` gave until there were 5, and whether filters tested
/// them.
async fn rows_read(session: &SessionContext, folder: &Path, sql: &str) -> (usize, bool) {
    tables(session, folder).await;
    let plan = plan(session, sql).await;
    let mut stream = execute_stream(Arc::clone(&plan), session.task_ctx()).unwrap();
    let mut rows = 0;
    while let Some(batch) = stream.next().await {
        rows += batch.unwrap().num_rows();
    }
    assert_eq!(rows, 5, "{sql}");
    let read = metric::<DataSourceExec>(&plan, "output_rows");
    (read, !nodes::<DynamicFilterExec>(&plan).is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_reads_little_more_than_the_stock_join() {
    side_by_side();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    let mut tested = 0;
    for (sql, has_join_below) in QUERIES {
        let stock = SessionContext::new_with_config(in_one_partition());
        let (stock, _) = rows_read(&stock, folder.path(), sql).await;
        for at in At::BOTH {
            let config = in_one_partition().with_option_extension(at.options());
            let session = horton_join::context(config);
            let (read, are_tested) = rows_read(&session, folder.path(), sql).await;
            let chunks = if has_join_below && at == At::Device {
                CHUNKS
            } else {
                0
            };
            let most = 2 * stock + MORE + chunks;
            println!("{read} of {stock} at {at:?}: {sql}");
            assert!(stock > 0, "scans count no rows");
            assert!(read <= most, "{read} rows, stock {stock}, at {at:?}: {sql}");
            tested += usize::from(are_tested);
        }
    }
    assert!(tested > 0, "no filter tested a row");
}
