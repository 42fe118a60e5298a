//! Filters of joins on a GPU: the shim makes one of PoCL's device.

use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::SessionContext;
use horton_join::{HortonJoinExec, warm_up};

use super::child::{is_child, session, sql};

/// Runs `query`. Returns its one row, and the lines of filter nodes in its plan as they are then.
async fn ran(session: &SessionContext, query: &str) -> (String, Vec<String>) {
    let plan = session.sql(query).await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let rows = collect(plan.clone(), session.task_ctx()).await.unwrap();
    let joins = HortonJoinExec::all_in(&plan);
    assert!(joins.iter().all(|join| join.device_name().is_some()));
    let shown = displayable(plan.as_ref()).indent(false).to_string();
    let nodes = shown.lines().filter(|line| line.contains("DynamicFilter"));
    (format!("{rows:?}"), nodes.map(str::to_owned).collect())
}

/// A GPU looks all keys of a scan up. The set of a join further above spares the join below.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_goes_where_the_device_looks_all_rows_of_the_scan_up() {
    if !is_child(
        "filters::a_set_goes_where_the_device_looks_all_rows_of_the_scan_up",
        "gpu",
    ) {
        return;
    }
    let session = session().await;
    warm_up(&session).await.unwrap();
    for (name, step, rows) in [("a", 70, 1000), ("b", 7, 10_000), ("c", 1, 70_000)] {
        let rows = format!("SELECT value * {step} AS k FROM range({rows})");
        sql(&session, &format!("CREATE TABLE {name} AS {rows}")).await;
    }
    // It is not made, or, with a residual filter, made and dropped.
    for residual in ["", " AND a.k + c.k >= 0"] {
        let query = format!("SELECT count(*), sum(c.k) FROM a JOIN c ON a.k = c.k{residual}");
        let (rows, filters) = ran(&session, &query).await;
        assert!(rows.contains("1000") && rows.contains("34965000"), "{rows}");
        let all = filters.join("\n");
        assert!(
            all.contains("<= 69930") && !all.contains("IN bitmap"),
            "{all}"
        );
    }

    let (rows, filters) = ran(
        &session,
        "SELECT count(*), sum(c.k) FROM a JOIN (b JOIN c ON b.k = c.k) ON a.k = c.k",
    )
    .await;
    assert!(rows.contains("1000") && rows.contains("34965000"), "{rows}");
    let all = filters.join("\n");
    assert!(all.contains("IN bitmap"), "{all}");
}
