//! Plans as coordinators see them: the nodes of stages, filters of scans, `install`.

use datafusion::prelude::SessionContext;
use datafusion_distributed::DistributedExt;
use horton_join::config::HortonConfig;
use horton_join::install;
use tempfile::TempDir;

use crate::coordinator::{
    Addresses, analyzed, coordinator, distribute, is_distributed, launches, metric, plain, plan,
    rows, run, stock,
};
use crate::tables::{register, small, write};
use crate::workers::Cluster;

const JOIN: &str = "SELECT a, b FROM few JOIN many ON few.k = many.k";

/// Returns the lines of `analyzed` that have a node, without its metrics and the lines that frame
/// stages.
fn nodes(analyzed: &str) -> Vec<String> {
    let lines = analyzed
        .lines()
        .filter(|line| line.contains("Exec: ") || line.contains("Exec,"));
    let name = |line: &str| {
        line.split(", metrics=")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    lines.map(name).collect()
}

/// Returns the lines of `analyzed` whose node is `name`.
fn of_node<'a>(analyzed: &'a str, name: &str) -> Vec<&'a str> {
    analyzed
        .lines()
        .filter(|line| line.contains(name))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_keep_their_nodes_and_metrics_their_places() {
    let folder = small().await;
    let cluster = Cluster::pair();
    let session = coordinator(&Addresses::new(&cluster.urls));
    register(&session, folder.path()).await;
    let sql = "SELECT a, count(*), max(c) FROM few JOIN many ON few.k = many.k \
               LEFT JOIN sparse ON many.k = sparse.k GROUP BY a ORDER BY a";
    run(&session, "SET horton.enabled = 'never'").await;
    let stock = analyzed(&session, sql).await;
    run(&session, "SET horton.enabled = 'always'").await;
    let ours = analyzed(&session, sql).await;

    assert_eq!(nodes(&ours), nodes(&stock));
    let joins = of_node(&ours, "HashJoinExec");
    assert_eq!(joins.len(), 2, "{ours}");
    for join in joins {
        assert!(launches(join) > 0, "{ours}");
    }
    let elsewhere = ours.lines().filter(|line| !line.contains("HashJoinExec"));
    assert_eq!(elsewhere.map(launches).sum::<u64>(), 0, "{ours}");
    // Three tables; their scans are shown task by task below these lines.
    let scans = of_node(&ours, "DistributedLeafExec");
    assert_eq!(scans.len(), 3, "{ours}");
    for scan in scans {
        assert!(scan.contains("bytes_scanned="), "{ours}");
    }
    // Rows of other nodes depend on which task has which of them.
    let total = |plan: &str| metric(of_node(plan, "mode=FinalPartitioned")[0], "output_rows");
    assert_eq!(total(&ours), total(&stock), "{ours}");
}

/// Returns a probe side of three files whose keys are apart, and a build side with keys of one of
/// them.
async fn apart() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(
        folder.path(),
        "facts",
        9000,
        "value AS k, 'fact ' || value AS f",
    )
    .await;
    write(folder.path(), "keys", 90, "value + 100 AS k, value AS v").await;
    folder
}

/// Returns the rows in thousands that the probe side's scan read of nine.
async fn scanned(enabled: &str) -> u64 {
    let folder = apart().await;
    let cluster = Cluster::pair();
    let session = coordinator(&Addresses::new(&cluster.urls));
    let stock = stock();
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    let sql = "SELECT v, f FROM keys JOIN facts ON keys.k = facts.k";
    run(&session, &format!("SET horton.enabled = '{enabled}'")).await;
    let plan = plan(&session, sql).await;
    assert!(
        is_distributed(&plan) && plan.contains("NetworkBroadcastExec"),
        "{plan}"
    );
    assert_eq!(rows(&session, sql).await, rows(&stock, sql).await);
    let analyzed = analyzed(&session, sql).await;
    assert_eq!(launches(&analyzed) > 0, enabled == "always", "{analyzed}");
    // The scan of the probe side is the first one.
    let scan = of_node(&analyzed, "DistributedLeafExec")[0];
    metric(scan, "output_rows")[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_pruned_for_stock_joins() {
    assert_eq!(scanned("never").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn joins_on_devices_agree_over_scans_in_their_stage() {
    let thousands = scanned("always").await;
    assert!((3..=9).contains(&thousands), "{thousands}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_pruned_for_joins_on_devices() {
    assert_eq!(scanned("always").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn install_on_a_coordinator_changes_nothing() {
    let folder = small().await;
    let cluster = Cluster::pair();
    let addresses = Addresses::new(&cluster.urls);
    let stock = stock();
    register(&stock, folder.path()).await;
    let expected = rows(&stock, JOIN).await;
    let options = HortonConfig::default;
    for (builder, travels) in [
        (
            install(distribute(plain(), &addresses)).with_distributed_option_extension(options()),
            true,
        ),
        (
            distribute(install(plain()), &addresses).with_distributed_option_extension(options()),
            true,
        ),
        // What is set stays on the coordinator, and workers leave joins of few rows to the host.
        (distribute(install(plain()), &addresses), false),
    ] {
        let session = SessionContext::new_with_state(builder.build());
        register(&session, folder.path()).await;
        run(&session, "SET horton.enabled = 'always'").await;
        let plan = plan(&session, JOIN).await;
        assert!(
            is_distributed(&plan) && plan.contains(" HashJoinExec: mode=CollectLeft"),
            "{plan}"
        );
        assert!(!plan.contains("HortonJoinExec"), "{plan}");
        assert_eq!(rows(&session, JOIN).await, expected);
        assert_eq!(launches(&analyzed(&session, JOIN).await) > 0, travels);
    }
}
