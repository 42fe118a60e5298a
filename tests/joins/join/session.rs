//! SQL: options, EXPLAIN, which joins are taken, and queries as users write them.

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use horton_join::HortonJoinExec;
use horton_join::config::HortonConfig;
use horton_join::table::multimap::IndexKind;

use horton_test_support::joins::*;

/// Runs one statement.
fn sql(session: &SessionContext, statement: &str) -> Result<Vec<RecordBatch>> {
    let (session, statement) = (session.clone(), statement.to_owned());
    block_on(async move { session.sql(&statement).await?.collect().await })
}

fn ok(session: &SessionContext, statement: &str) -> Vec<String> {
    side_by_side();
    let batches = sql(session, statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
    text(&batches)
}

fn error(session: &SessionContext, statement: &str) -> String {
    side_by_side();
    sql(session, statement).unwrap_err().to_string()
}

/// A table of `rows` rows `(k, name)`: keys below `distinct`, one in eight NULL.
fn table(session: &SessionContext, table: &str, rows: usize, distinct: u32) {
    let keys = repeating_keys(rows as u32, rows, distinct);
    let side = Side::new(vec![
        ("k", ints(&keys)),
        ("v", payload(rows)),
        ("s", strings(&keys)),
    ]);
    let side = side.in_partitions(2, |row| row).in_batches_of(50);
    let provider = MemTable::try_new(side.schema, side.partitions).unwrap();
    session.register_table(table, Arc::new(provider)).unwrap();
}

fn tables(session: &SessionContext) {
    table(session, "a", 120, 40);
    table(session, "b", 300, 50);
    table(session, "c", 70, 10);
}

fn config() -> SessionConfig {
    SessionConfig::new()
        .with_target_partitions(3)
        .with_information_schema(true)
}

fn session(enabled: &str) -> SessionContext {
    let session = horton_join::context(config());
    tables(&session);
    ok(&session, &format!("SET horton.enabled = '{enabled}'"));
    let device = horton_test_support::env::asked();
    ok(&session, &format!("SET horton.device = '{device}'"));
    session
}

fn plan_of(session: &SessionContext, query: &str) -> Arc<dyn ExecutionPlan> {
    side_by_side();
    let (session, query) = (session.clone(), query.to_owned());
    block_on(async move { session.sql(&query).await?.create_physical_plan().await }).unwrap()
}

/// The physical plan that EXPLAIN prints.
fn explain(session: &SessionContext, query: &str) -> String {
    ok(session, &format!("EXPLAIN {query}")).join("\n")
}

/// Waits until joins of `session` can use their device.
fn warm_up(session: &SessionContext) {
    let session = session.clone();
    block_on(async move { horton_join::warm_up(&session).await }).unwrap();
}

/// The line of EXPLAIN ANALYZE that shows the one join of a query.
fn analysed(session: &SessionContext, query: &str) -> String {
    let plan = ok(session, &format!("EXPLAIN ANALYZE {query}")).join("\n");
    let line = plan.lines().find(|line| line.contains("HortonJoinExec:"));
    line.unwrap_or_else(|| panic!("no join in {plan}"))
        .to_owned()
}

/// Joins of a plan on the device, joins elsewhere, kernels that they launched.
fn joins(plan: &Arc<dyn ExecutionPlan>) -> (usize, usize, usize) {
    let mut counts = (0, 0, 0);
    plan.apply(|node| {
        if let Some(join) = HortonJoinExec::downcast(node.as_ref()) {
            counts.0 += usize::from(join.device_name().is_some());
            counts.1 += usize::from(join.device_name().is_none());
            // A join inside a recursion is run as copies, each with metrics of its own.
            let launches = node
                .metrics()
                .and_then(|set| set.sum_by_name("kernel_launches"));
            counts.2 += launches.map_or(0, |launches| launches.as_usize());
        } else if node.name().contains("Join") {
            counts.1 += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    counts
}

/// Sorted rows of a query, and [`joins`] of its plan.
fn query(session: &SessionContext, query: &str) -> (Vec<String>, (usize, usize, usize)) {
    side_by_side();
    let (session, query) = (session.clone(), query.to_owned());
    block_on(async move {
        let plan = session.sql(&query).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let batches = collect(Arc::clone(&plan), session.task_ctx())
            .await
            .unwrap();
        let mut rows = text(&batches);
        rows.sort_unstable();
        (rows, joins(&plan))
    })
}

const EQUI_JOIN: &str = "SELECT a.v, b.s FROM a JOIN b ON a.k = b.k AND a.v < b.v";

// ---------------------------------------------------------------- queries

#[test]
fn queries_return_the_rows_of_the_stock_session() {
    let queries = [
        EQUI_JOIN,
        "SELECT * FROM a LEFT JOIN b ON a.s = b.s",
        "SELECT * FROM a RIGHT JOIN b ON a.k = b.k AND a.s = b.s",
        "SELECT * FROM a FULL JOIN b ON a.k + 1 = b.k AND a.v + b.v > 100",
        "SELECT * FROM a WHERE k IN (SELECT k FROM b)",
        "SELECT * FROM a WHERE k NOT IN (SELECT k FROM b)",
        "SELECT * FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL)",
        "SELECT * FROM a WHERE EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND a.v <> b.v)",
        "SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.s = b.s)",
        "SELECT * FROM a WHERE v > 100 OR k IN (SELECT k FROM c)",
        "SELECT * FROM a JOIN b ON a.k IS NOT DISTINCT FROM b.k",
        "SELECT count(*) FROM a JOIN b USING (k) JOIN c USING (k)",
        "SELECT a.k, sum(b.v), count(*) FROM a JOIN b USING (k) GROUP BY a.k",
        "SELECT x.v, y.v FROM b x JOIN b y ON x.k = y.v",
        "SELECT s, (SELECT max(v) FROM b WHERE b.k = a.k) FROM a",
        "SELECT k FROM a INTERSECT SELECT k FROM b",
        "SELECT k FROM a EXCEPT SELECT k FROM c",
        "SELECT a.v, b.v FROM a JOIN b USING (k) ORDER BY b.v, a.v LIMIT 7",
    ];
    let stock = SessionContext::new_with_config(config());
    tables(&stock);
    let device = session("always");
    for device in [device, as_planned(&session("always"))] {
        for text in queries {
            let (expected, _) = query(&stock, text);
            let (rows, (joins, others, launches)) = query(&device, text);
            assert_eq!(rows, expected, "{text}");
            assert!(
                joins > 0 && launches > 0,
                "{text}: {joins} joins, {launches} launches"
            );
            assert_eq!(others, 0, "{text}");
        }
    }
}

#[test]
fn a_recursive_query_with_a_join_inside_ends_and_is_right() {
    let session = session("always");
    ok(
        &session,
        "CREATE TABLE edges AS VALUES (1, 2), (2, 3), (3, 4), (4, 2), (7, 8)",
    );
    let text = "WITH RECURSIVE reached AS ( \
                  SELECT CAST(1 AS BIGINT) AS node, CAST(0 AS BIGINT) AS steps \
                  UNION ALL \
                  SELECT column2, steps + 1 FROM reached JOIN edges ON node = column1 \
                  WHERE steps < 6) \
                SELECT node, steps FROM reached";
    let (rows, (joins, _, _)) = query(&session, text);
    assert_eq!(
        rows,
        [
            "1 | 0", "2 | 1", "2 | 4", "3 | 2", "3 | 5", "4 | 3", "4 | 6"
        ]
    );
    assert_eq!(joins, 1);
}

/// What a recursive query does for each step. DataFusion derives the properties of all nodes above
/// a join again if the join's own are another object.
#[test]
fn a_join_that_is_set_back_keeps_its_properties() {
    let session = session("always");
    ok(
        &session,
        "CREATE TABLE low AS SELECT value v FROM range(0, 20000)",
    );
    ok(
        &session,
        "CREATE TABLE high AS SELECT value v FROM range(0, 30000)",
    );
    let texts = [
        "SELECT low.v FROM low JOIN high ON low.v = high.v",
        "SELECT low.v FROM (SELECT * FROM low ORDER BY v) low RIGHT JOIN high ON low.v = high.v \
         WHERE high.v NOT IN (SELECT v FROM low)",
    ];
    for text in texts {
        let plan = plan_of(&session, text);
        let again = reset_plan_states(Arc::clone(&plan)).unwrap();
        assert!(!HortonJoinExec::all_in(&again).is_empty());
        assert!(Arc::ptr_eq(plan.properties(), again.properties()), "{text}");
        let joins = HortonJoinExec::all_in(&plan).into_iter();
        for (before, after) in joins.zip(HortonJoinExec::all_in(&again)) {
            assert!(
                Arc::ptr_eq(before.properties(), after.properties()),
                "{text}"
            );
        }
    }
}

#[test]
fn a_step_of_a_recursive_query_builds_a_small_table_as_planned() {
    let session = session("always");
    ok(
        &session,
        "CREATE TABLE few AS SELECT value k FROM range(0, 500)",
    );
    ok(
        &session,
        "CREATE TABLE many AS SELECT value k FROM range(0, 50000)",
    );
    for (table, mode) in [("few", "CollectLeft"), ("many", "Auto")] {
        let text = format!(
            "WITH RECURSIVE r(n) AS (SELECT CAST(0 AS BIGINT) UNION ALL \
             SELECT x.k + 1 FROM r JOIN {table} x ON x.k = r.n WHERE r.n < 40) \
             SELECT count(*) FROM r"
        );
        let shown = explain(&session, &text);
        assert!(
            shown.contains(&format!("HortonJoinExec: mode={mode}")),
            "{shown}"
        );
        let (rows, (joins, others, _)) = query(&session, &text);
        assert_eq!(
            (rows, joins, others),
            (vec!["41".to_owned()], 1, 0),
            "{table}"
        );
    }
}

#[test]
fn a_limit_above_a_join_returns_so_many_rows() {
    let session = session("always");
    for limit in [0, 1, 5] {
        let (rows, _) = query(&session, &format!("{EQUI_JOIN} LIMIT {limit}"));
        assert_eq!(rows.len(), limit);
    }
}

/// `session` with joins as DataFusion planned them: without the rule that leaves sides open.
fn as_planned(session: &SessionContext) -> SessionContext {
    let mut builder = SessionStateBuilder::new_from_existing(session.state());
    if let Some(optimizer) = builder.physical_optimizers() {
        optimizer
            .rules
            .retain(|rule| rule.name() != "horton_replace_swappable_joins");
    }
    SessionContext::new_with_state(builder.build())
}

// ---------------------------------------------------------------- options

#[test]
fn an_unknown_device_is_an_error_that_lists_the_devices() {
    let session = session("always");
    ok(&session, "SET horton.device = 'nonsense'");
    let error = error(&session, EQUI_JOIN);
    assert!(error.contains("'nonsense'"), "{error}");
    for device in horton_join::device::list().unwrap() {
        assert!(error.contains(&device.label()), "{error}");
    }
    // A query without a join does not ask for a device.
    assert_eq!(ok(&session, "SELECT count(*) FROM a"), ["120"]);
}

#[test]
fn values_outside_their_range_are_errors_and_change_nothing() {
    let session = session("always");
    for (option, value, says) in [
        ("chunk_rows", "-1", "chunk_rows"),
        ("enabled", "'sometimes'", "'auto', 'always' or 'never'"),
        ("device_memory_limit", "-1", "device_memory_limit"),
        ("colour", "'red'", "chunk_rows"),
        ("table", "'horton'", "there is no option horton.table"),
    ] {
        let show = "SELECT name, value FROM information_schema.df_settings \
                    WHERE name LIKE 'horton.%'";
        let before = ok(&session, show);
        let error = error(&session, &format!("SET horton.{option} = {value}"));
        assert!(error.contains(says), "{option} = {value}: {error}");
        assert_eq!(ok(&session, show), before);
    }
}

#[test]
fn every_option_is_shown_under_its_name() {
    let session = session("always");
    for (option, value) in [
        ("enabled", "never"),
        ("device", "auto"),
        ("chunk_rows", "1000"),
        ("device_memory_limit", "1000000"),
        ("min_build_rows", "17"),
        ("filters", "off"),
        ("on_device_error", "error"),
        ("spill", "false"),
    ] {
        ok(&session, &format!("SET horton.{option} = '{value}'"));
        let shown = ok(&session, &format!("SHOW horton.{option}"));
        assert_eq!(shown, [format!("horton.{option} | {value}")]);
    }
}

// ---------------------------------------------------------------- which joins are taken

#[test]
fn auto_leaves_a_join_of_few_rows_on_the_host_and_says_so() {
    let session = session("auto");
    warm_up(&session);
    let plan = explain(&session, EQUI_JOIN);
    for part in [
        "HortonJoinExec",
        "build=the smaller side",
        &format!("device='{}' from the device's default of rows", asked()),
    ] {
        assert!(plan.contains(part), "{part} in {plan}");
    }
    let default = HortonConfig::default().min_build_rows(device().info().kind);
    let few = |limit| {
        format!(
            "horton=[build=left, 120 rows, on the host: fewer than horton.min_build_rows = {limit}]"
        )
    };
    let line = analysed(&session, EQUI_JOIN);
    assert!(line.contains(&few(default)), "{line}");
    ok(&session, "SET horton.min_build_rows = 121");
    let plan = explain(&session, EQUI_JOIN);
    assert!(plan.contains("from 121 rows"), "{plan}");
    let line = analysed(&session, EQUI_JOIN);
    assert!(line.contains(&few(121)), "{line}");
    // From so many rows on it runs on the device.
    ok(&session, "SET horton.min_build_rows = 120");
    let line = analysed(&session, EQUI_JOIN);
    let on = format!("horton=[build=left, 120 rows, on {}]", device().info().name);
    assert!(line.contains(&on), "{line}");
}

#[test]
fn never_leaves_the_plan_as_it_was() {
    let device = session("never");
    let stock = SessionContext::new_with_config(config());
    tables(&stock);
    let plan = explain(&device, EQUI_JOIN);
    assert_eq!(plan, explain(&stock, EQUI_JOIN));
    assert!(!plan.to_lowercase().contains("horton"), "{plan}");
}

#[test]
fn partitioned_joins_have_one_build_side_where_the_rule_opens_sides() {
    let session = session("always");
    ok(
        &session,
        "SET datafusion.optimizer.hash_join_single_partition_threshold = 0",
    );
    ok(
        &session,
        "SET datafusion.optimizer.hash_join_single_partition_threshold_rows = 0",
    );
    let (expected, _) = query(&session, EQUI_JOIN);
    let plan = explain(&session, EQUI_JOIN);
    assert!(plan.contains("HortonJoinExec: mode=Auto"), "{plan}");
    assert!(!plan.contains("Hash(["), "{plan}");
    let session = as_planned(&session);
    let plan = explain(&session, EQUI_JOIN);
    assert!(plan.contains("HortonJoinExec: mode=Partitioned"), "{plan}");
    assert_eq!(query(&session, EQUI_JOIN).0, expected);
}

#[test]
fn install_works_on_an_existing_state_and_keeps_its_tables_and_options() {
    let before = SessionContext::new_with_config(config());
    tables(&before);
    let builder = SessionStateBuilder::new_from_existing(before.state());
    let after = SessionContext::new_with_state(horton_join::install(builder).build());
    ok(&after, "SET horton.enabled = 'always'");
    let (rows, (joins, _, launches)) = query(&after, EQUI_JOIN);
    assert!(joins == 1 && launches > 0);
    assert_eq!(rows, query(&before, EQUI_JOIN).0);
    // Installed twice is installed.
    let builder = SessionStateBuilder::new_from_existing(after.state());
    let twice = SessionContext::new_with_state(horton_join::install(builder).build());
    let (again, (joins, _, _)) = query(&twice, EQUI_JOIN);
    assert_eq!((again, joins), (rows, 1));
}

#[test]
fn a_join_left_on_the_host_returns_the_rows_of_the_stock_join_and_its_metrics() {
    let stock = SessionContext::new_with_config(config());
    tables(&stock);
    let session = session("auto");
    let (expected, _) = query(&stock, EQUI_JOIN);
    assert_eq!(query(&session, EQUI_JOIN).0, expected);
    let line = analysed(&session, EQUI_JOIN);
    assert!(line.contains(", on the host: "), "{line}");
    assert!(shown(&line, "build_time").ends_with('s'), "{line}");
    for (name, value) in [("output_rows", expected.len()), ("build_input_rows", 120)] {
        assert_eq!(shown(&line, name), value.to_string(), "{name} in {line}");
    }
    assert!(!line.contains("kernel_time"), "{line}");
}

// ---------------------------------------------------------------- EXPLAIN

#[test]
fn explain_shows_mode_join_type_keys_filter_and_device() {
    let session = session("always");
    let plan = explain(&session, EQUI_JOIN);
    let line = plan
        .lines()
        .find(|line| line.contains("HortonJoinExec:"))
        .unwrap();
    let parts = [
        "mode=Auto",
        "join_type=Inner",
        "on=[(k@0, k@0)]",
        "filter=v@0 < v@1",
        "projection=[v@1, s@4]",
    ];
    for part in parts.into_iter().chain([
        "horton=[build=the smaller side, left read first",
        &format!("device='{}' from any rows]", asked()),
    ]) {
        assert!(line.contains(part), "{part} in {line}");
    }
    // Decisions are known once the join has run.
    let line = analysed(&session, EQUI_JOIN);
    let name = device().info().name.clone();
    let shown = format!("horton=[build=left, 120 rows, on {name}]");
    for part in parts.into_iter().chain([shown.as_str()]) {
        assert!(line.contains(part), "{part} in {line}");
    }
    let left = explain(
        &session,
        "SELECT * FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k",
    );
    assert!(left.contains("NullsEqual: true"), "{left}");
}

#[test]
fn explain_as_a_tree_names_the_device() {
    let session = session("always");
    ok(&session, "SET datafusion.explain.format = 'tree'");
    let plan = explain(&session, EQUI_JOIN);
    assert!(plan.contains("HortonJoinExec"), "{plan}");
    assert!(plan.contains("device"), "{plan}");
}

/// `name=value` in a line of EXPLAIN ANALYZE; `value` ends at a comma outside parentheses.
fn shown(line: &str, name: &str) -> String {
    let from = line
        .find(&format!("{name}="))
        .unwrap_or_else(|| panic!("no {name} in {line}"));
    let value = &line[from + name.len() + 1..];
    value[..value.find([',', ']']).unwrap()].to_owned()
}

#[test]
fn explain_analyze_shows_where_time_and_memory_went() {
    let session = session("always");
    let rows = query(&session, EQUI_JOIN).0.len();
    let line = &analysed(&session, EQUI_JOIN);
    assert_eq!(shown(line, "output_rows"), rows.to_string());
    for name in [
        "elapsed_compute",
        "build_time",
        "upload_time",
        "kernel_time",
        "download_time",
    ] {
        let time = shown(line, name);
        assert!(time.ends_with('s'), "{name}={time}");
        assert_ne!(time, "0ns", "{name}");
    }
    assert_ne!(shown(line, "table_bytes"), "0.0 B");
    for name in [
        "load_factor",
        "type_b_buckets",
        "buckets_per_lookup",
        "output_bytes",
        "kernel_launches",
    ] {
        shown(line, name);
    }
}

#[test]
fn metrics_of_buckets_have_no_value_where_a_table_has_none() {
    let keys: Vec<Option<i64>> = (0..3000).map(Some).collect();
    let side = || Side::new(vec![("k", ints(&keys))]);
    let mut case = Case::new(side(), side());
    set_engine(&mut case.config, IndexKind::Direct);
    let run = case.check();
    assert_eq!(run.metric("direct_tables"), 1);
    for name in ["type_b_buckets", "buckets_per_lookup"] {
        assert_eq!(run.ratio(name), (0, 0), "{name}");
    }
}

#[test]
fn metrics_of_a_join_are_plausible() {
    let (left, right): (Vec<_>, Vec<_>) =
        ((0..3000).map(Some).collect(), (0..9000).map(Some).collect());
    let probe = Side::new(vec![("k", ints(&right))]).in_batches_of(1000);
    let mut case = Case::new(
        Side::new(vec![("k", ints(&left))]).in_batches_of(500),
        probe,
    );
    // Other tables have no buckets.
    set_engine(&mut case.config, IndexKind::Horton);
    let run = case.check();
    for (name, value) in [
        ("output_rows", 3000),
        ("output_batches", run.batches[0].len()),
        ("build_input_rows", 3000),
        ("build_input_batches", 6 + 1),
        ("input_rows", 9000),
    ] {
        assert_eq!(run.metric(name), value, "{name}");
    }
    assert!(run.metric("output_bytes") >= 3000 * 8);
    assert!(run.metric("build_mem_used") >= 3000 * 16);
    let (items, slots) = run.ratio("load_factor");
    assert_eq!((items, slots * 8), (3000, run.metric("table_bytes")));
    let (type_b, buckets) = run.ratio("type_b_buckets");
    assert!(
        type_b < buckets && buckets * 8 == slots,
        "{type_b} of {buckets}"
    );
    // Batches of which no row is in the build side's range are not looked up.
    let (read, lookups) = run.ratio("buckets_per_lookup");
    assert_eq!(lookups, 3000);
    assert!((3000..4500).contains(&read), "{read}");
    assert_eq!(run.ratio("probe_hit_rate"), (3000, 9000));
    assert_eq!(run.ratio("avg_fanout"), (3000, 3000));
    assert!(run.metric("uploaded_bytes") >= (3000 + 3000) * 4);
    assert!(run.metric("downloaded_bytes") >= 3000 * 4);
    let busy = run.metric("build_time") + run.metric("join_time");
    assert_eq!(run.metric("elapsed_compute"), busy);
}

#[test]
fn a_table_of_unknown_size_is_joined_by_the_rows_that_it_has() {
    let session = session("auto");
    warm_up(&session);
    // DataFusion builds a table that it knows to be small.
    for option in ["threshold", "threshold_rows"] {
        let option = format!("datafusion.optimizer.hash_join_single_partition_{option}");
        ok(&session, &format!("SET {option} = 0"));
    }
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
    let column = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
    let provider = MemTable::try_new(schema, vec![vec![batch]]).unwrap();
    session.register_table("t", Arc::new(provider)).unwrap();
    let unnested = "SELECT * FROM (SELECT unnest([k, k + 1]) AS u FROM t) JOIN a ON a.k = u";
    for (min_build_rows, place) in [(7, "the host: fewer than"), (6, &device().info().name)] {
        let set = format!("SET horton.min_build_rows = {min_build_rows}");
        ok(&session, &set);
        let line = analysed(&session, unnested);
        assert!(
            line.contains(&format!("build=left, 6 rows, on {place}")),
            "{line}"
        );
    }
}

#[test]
fn a_scan_that_prunes_by_the_dynamic_filter_is_not_read_before_that_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("probe.parquet");
    let file = file.to_str().unwrap().to_owned();
    let session = session("always");
    ok(
        &session,
        "SET datafusion.execution.parquet.pushdown_filters = true",
    );
    let keys: Vec<Option<i64>> = (0..10_000).map(Some).collect();
    let probe = Side::new(vec![("k", ints(&keys))]).batch();
    let few = Side::new(vec![("k", ints(&keys[70..75]))]).batch();
    session.register_batch("few", few).unwrap();
    let context = session.clone();
    let rows = block_on(async move {
        let frame = context.read_batch(probe)?;
        let options = DataFrameWriteOptions::new();
        frame.write_parquet(&file, options, None).await?;
        context
            .register_parquet("probe", &file, ParquetReadOptions::default())
            .await?;
        let query = "SELECT probe.k FROM few JOIN probe ON few.k = probe.k";
        let plan = context.sql(query).await?.create_physical_plan().await?;
        collect(Arc::clone(&plan), context.task_ctx()).await?;
        let mut rows = Vec::new();
        plan.apply(|node| {
            if let Some(join) = HortonJoinExec::downcast(node.as_ref()) {
                rows.push(metric(&join.metrics().unwrap(), "input_rows"));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok::<_, DataFusionError>(rows)
    });
    assert_eq!(rows.unwrap(), [5]);
}
