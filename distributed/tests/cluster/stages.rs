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

/// The lines of `analyzed` that have a node, without its metrics and the lines that frame stages.
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

/// The lines of `analyzed` whose node is `name`.
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
    for scan in of_node(&ours, "DataSourceExec") {
        assert!(scan.contains("bytes_scanned="), "{ours}");
    }
    for (ours, stock) in of_node(&ours, "AggregateExec")
        .iter()
        .zip(of_node(&stock, "AggregateExec"))
    {
        assert_eq!(metric(ours, "output_rows"), metric(stock, "output_rows"));
    }
}

/// A probe side of three files whose keys are apart, and a build side with keys of one of them.
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

#[tokio::test(flavor = "multi_thread")]
async fn scans_prune_files_by_the_keys_of_a_broadcast_side() {
    let folder = apart().await;
    let cluster = Cluster::pair();
    let session = coordinator(&Addresses::new(&cluster.urls));
    let stock = stock();
    for session in [&stock, &session] {
        register(session, folder.path()).await;
    }
    let sql = "SELECT v, f FROM keys JOIN facts ON keys.k = facts.k";
    let expected = rows(&stock, sql).await;
    for enabled in ["never", "always"] {
        run(&session, &format!("SET horton.enabled = '{enabled}'")).await;
        let plan = plan(&session, sql).await;
        assert!(
            is_distributed(&plan) && plan.contains("NetworkBroadcastExec"),
            "{plan}"
        );
        assert_eq!(rows(&session, sql).await, expected);
        let analyzed = analyzed(&session, sql).await;
        println!("{enabled}:\n{analyzed}");
    }
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
    for builder in [
        install(distribute(plain(), &addresses)).with_distributed_option_extension(options()),
        distribute(install(plain()), &addresses).with_distributed_option_extension(options()),
        distribute(install(plain()), &addresses),
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
    }
}
