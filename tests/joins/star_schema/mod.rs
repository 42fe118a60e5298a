//! Many-join queries over a star schema, checked against the stock joins.
//!
//! ```text
//!   date_dim  time_dim   item   promotion      customer ─▶ customer_address
//!       ▲         ▲       ▲        ▲            ▲    └───▶ …_demographics (2)
//!   store_sales  store_returns  catalog_sales  web_sales  inventory
//!       └──▶ store     └─(ticket, item)─▶ store_sales      └──▶ warehouse, ship_mode
//! ```
//!
//! Tables (`data.rs`) and queries (a file each in `queries/`) are modelled on those of TPC-DS,
//! whose numbers are in the first lines. They are small, and generated from a fixed seed. Foreign
//! keys are skewed, some NULL and some without a row to point at; keys are `Int32` in some tables
//! and `Int64` in others, strings `Utf8` or `Utf8View`. Every query runs in a plain session and in
//! three with device joins: one table for all partitions, of the side planned or of the one that
//! ends first, and partitions kept. Results are compared as multisets; there are no floating-point
//! numbers in them, so equal means equal. Then each join and scan runs by itself, and its
//! properties are held against its rows.

mod data;

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::HortonJoinExec;
use horton_join::config::{HortonConfig, Knobs};
use horton_join::{Decision, Side};
use horton_test_support::plans::keep_sides;
use horton_test_support::plans::sorted;
use horton_test_support::promises::{self, Promises};
use horton_test_support::turns::side_by_side;

use self::data::register_all;

// ---------------------------------------------------------------- queries

/// A file of the folder `queries`.
struct Query {
    /// The comment in its first line: what the query is.
    name: String,
    sql: String,
}

/// The queries, by the names of their files.
fn queries() -> Vec<Query> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/joins/star_schema/queries"
    );
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort_unstable();
    let query = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let (first, sql) = text.split_once('\n').unwrap();
        let name = first.strip_prefix("-- ");
        let name = name.unwrap_or_else(|| panic!("{file:?} does not say what it is"));
        Query {
            name: name.to_owned(),
            sql: sql.trim_end().to_owned(),
        }
    };
    files.into_iter().map(query).collect()
}

// ---------------------------------------------------------------- comparison

/// A session with device joins whose sides are read in reads of `sample_rows` rows. Where
/// partitions are kept, the thresholds below which DataFusion would collect the build side are
/// lowered, so that there are partitions to keep.
async fn device_session(keep_partitions: bool, sample_rows: usize) -> SessionContext {
    let mut config = SessionConfig::new();
    config.options_mut().extensions.insert(HortonConfig {
        knobs: Knobs {
            sample_rows,
            ..Knobs::default()
        },
        ..HortonConfig::default()
    });
    if keep_partitions {
        config = config
            .with_target_partitions(3)
            .set_usize(
                "datafusion.optimizer.hash_join_single_partition_threshold",
                0,
            )
            .set_usize(
                "datafusion.optimizer.hash_join_single_partition_threshold_rows",
                0,
            );
    }
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features();
    let mut builder = horton_join::install(builder);
    if keep_partitions {
        builder = keep_sides(builder);
    }
    let session = SessionContext::new_with_state(builder.build());
    let device = horton_test_support::env::asked();
    for (option, value) in [("enabled", "always"), ("device", &device)] {
        let set = format!("SET horton.{option} = '{value}'");
        session.sql(&set).await.unwrap();
    }
    session
}

/// Device joins of a plan or of several. Then those of them that kept partitions, those that built
/// the right side, joins elsewhere, kernels that were launched.
#[derive(Debug, Default, Clone, Copy)]
struct Joins {
    device: usize,
    partitioned: usize,
    swapped: usize,
    stock: usize,
    launches: usize,
    /// Promises of its nodes that were held against their rows.
    promises: usize,
}

impl Joins {
    fn add(&mut self, other: Self) {
        self.device += other.device;
        self.partitioned += other.partitioned;
        self.swapped += other.swapped;
        self.stock += other.stock;
        self.launches += other.launches;
        self.promises += other.promises;
    }
}

fn joins(plan: &Arc<dyn ExecutionPlan>) -> Joins {
    let mut joins = Joins::default();
    plan.apply(|node| {
        if let Some(join) = HortonJoinExec::downcast(node.as_ref()) {
            joins.device += usize::from(join.device_name().is_some());
            joins.stock += usize::from(join.device_name().is_none());
            let mode = join.stock().partition_mode();
            joins.partitioned += usize::from(*mode == PartitionMode::Partitioned);
            let is_swapped = |decision: &Decision| decision.build == Side::Right;
            joins.swapped += usize::from(join.decisions().iter().any(is_swapped));
            let launches = node
                .metrics()
                .and_then(|m| m.sum_by_name("kernel_launches"));
            joins.launches += launches.map_or(0, |launches| launches.as_usize());
        } else if node.name() == "HashJoinExec" {
            joins.stock += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    joins
}

async fn run(
    session: &SessionContext,
    query: &str,
) -> datafusion::error::Result<(Vec<String>, Arc<dyn ExecutionPlan>)> {
    let plan = session.sql(query).await?.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), session.task_ctx()).await?;
    Ok((sorted(&batches), plan))
}

/// Returns the place where two sorted results first differ.
fn difference(expected: &[String], actual: &[String]) -> String {
    let at = (expected.iter().zip(actual))
        .position(|(expected, actual)| expected != actual)
        .unwrap_or(expected.len().min(actual.len()));
    format!(
        "{} rows for {}; row {at} is {:?} for {:?}",
        actual.len(),
        expected.len(),
        actual.get(at),
        expected.get(at)
    )
}

/// Runs `query` with device joins, and its joins and scans once more by themselves.
///
/// # Errors
/// What is wrong with the result or the plan, or a promise that a node breaks.
async fn check(
    session: &SessionContext,
    query: &str,
    expected: &[String],
) -> Result<Joins, String> {
    let (actual, plan) = run(session, query).await.map_err(|e| e.to_string())?;
    if actual != expected {
        return Err(difference(expected, &actual));
    }
    let mut joins = joins(&plan);
    let Promises {
        promises,
        broken,
        failed,
        ..
    } = promises::check(&plan, &session.task_ctx()).await;
    if !broken.is_empty() || !failed.is_empty() {
        return Err(format!("broken promises: {broken:?}, errors: {failed:?}"));
    }
    joins.promises = promises;
    if joins.stock > 0 || !(3..=9).contains(&joins.device) || joins.launches == 0 {
        let plan = displayable(plan.as_ref()).indent(false);
        return Err(format!("{joins:?}\n{plan}"));
    }
    Ok(joins)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_join_queries_return_the_rows_of_the_stock_joins() {
    side_by_side();
    let queries = queries();
    let stock = SessionContext::new();
    let sessions = [
        stock,
        device_session(false, Knobs::default().sample_rows).await,
        device_session(false, 50).await,
        device_session(true, 50).await,
    ];
    register_all(&sessions);
    let [stock, planned, swappable, kept] = sessions;
    let (mut all, mut failures) = ([Joins::default(); 3], Vec::new());
    for Query { name, sql } in &queries {
        let (expected, _) = run(&stock, sql)
            .await
            .unwrap_or_else(|e| panic!("{name}, stock joins: {e}"));
        assert!(!expected.is_empty(), "{name}: no rows");
        for (session, all) in [&planned, &swappable, &kept].into_iter().zip(&mut all) {
            match check(session, sql, &expected).await {
                Ok(joins) => all.add(joins),
                Err(what) => failures.push(format!("{name}: {what}\n{sql}")),
            }
        }
    }
    let [planned, swappable, kept] = all;
    println!(
        "star schema: {} queries, {} joins on the device with one table each, \
         {} with swappable sides ({} built the right side), {} with partitions kept ({} have several)",
        queries.len(),
        planned.device,
        swappable.device,
        swappable.swapped,
        kept.device,
        kept.partitioned
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(queries.len() >= 43);
    for joins in [planned, swappable, kept] {
        assert!(joins.device >= 100, "{joins:?}");
        assert!(joins.promises >= 1000, "{joins:?}");
    }
    assert!(swappable.swapped >= 20, "{swappable:?}");
    assert_eq!(kept.swapped, 0, "{kept:?}");
    assert!(
        kept.partitioned > planned.partitioned,
        "{planned:?} {kept:?}"
    );
}
