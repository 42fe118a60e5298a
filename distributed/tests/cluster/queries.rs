//! TPC-H's 22 queries.

use datafusion::prelude::SessionContext;
use tempfile::TempDir;

use crate::coordinator::{
    Addresses, analyzed, coordinator, is_distributed, launches, plan, rows, run, stock,
};
use crate::tables::register;
use crate::workers::Cluster;
use horton_test_support::tpch::{self, write_tables};

const SCALE: f64 = 0.01;

fn query(number: usize) -> String {
    tpch::query(number, SCALE).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch() {
    let folder = TempDir::new().unwrap();
    write_tables(folder.path(), SCALE).await.unwrap();
    let cluster = Cluster::pair();
    let stock = stock();
    let session = coordinator(&Addresses::new(&cluster.urls));
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    run(&session, "SET horton.enabled = 'always'").await;
    let (mut total, mut with_joins, mut with_kernels) = (0, 0, 0);
    for number in 1..=22 {
        let sql = query(number);
        let expected = rows(&stock, &sql).await;
        let actual = rows(&session, &sql).await;
        let plan = plan(&session, &sql).await;
        assert_eq!(actual, expected, "Q{number}\n{plan}");
        assert!(is_distributed(&plan), "Q{number}\n{plan}");
        if plan.contains("HashJoinExec") {
            let launches = launches(&analyzed(&session, &sql).await);
            total += launches;
            // A build side without rows needs no kernel.
            with_kernels += usize::from(launches > 0);
            with_joins += 1;
        }
    }
    println!("{with_joins} queries with hash joins, {with_kernels} with kernels: {total}");
    assert!(with_joins >= 18, "{with_joins} queries have hash joins");
    assert!(
        with_kernels + 2 >= with_joins,
        "{with_kernels} of {with_joins} launched kernels"
    );
    adaptive_and_at_once(&session, &stock).await;
}

/// Queries whose stages get their tasks while they run, all at the same time.
async fn adaptive_and_at_once(session: &SessionContext, stock: &SessionContext) {
    run(session, "SET distributed.dynamic_task_count = true").await;
    let numbers = [2, 3, 5, 7, 9, 10, 18, 21];
    let running = numbers.map(|number| {
        let session = session.clone();
        tokio::spawn(async move { rows(&session, &query(number)).await })
    });
    for (number, query_rows) in numbers.into_iter().zip(running) {
        let expected = rows(stock, &query(number)).await;
        assert_eq!(query_rows.await.unwrap(), expected, "Q{number}");
    }
    let analyzed = analyzed(session, &query(5)).await;
    assert!(
        is_distributed(&analyzed) && launches(&analyzed) > 0,
        "{analyzed}"
    );
}
