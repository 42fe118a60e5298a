//! Scans that keep filters: which rows leave them, and what a plan shows of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{ColumnarValue, Operator, Volatility, create_udf};
use datafusion::physical_expr::expressions::{BinaryExpr, Column, DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_join::Side;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::nodes;

use super::data::*;

/// Numbers `0..batches * rows` as one column, `rows` per batch, below a node that keeps `filters`.
fn numbers(
    (batches, rows): (i64, i64),
    filters: &[&Arc<DynamicFilterPhysicalExpr>],
) -> Arc<dyn ExecutionPlan> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    let batch = |b: i64| {
        let numbers = Int64Array::from_iter_values(b * rows..(b + 1) * rows);
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(numbers)]).unwrap()
    };
    let batches = (0..batches).map(batch).collect();
    let scan = MemorySourceConfig::try_new_exec(&[batches], Arc::clone(&schema), None).unwrap();
    let filters = filters.iter().map(|f| Arc::clone(*f) as _).collect();
    Arc::new(DynamicFilterExec::with(scan, filters))
}

fn n() -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new("n", 0))
}

fn filter() -> Arc<DynamicFilterPhysicalExpr> {
    Arc::new(DynamicFilterPhysicalExpr::new(vec![n()], lit(true)))
}

/// `n % modulus = rest`.
fn remainder(modulus: i64, rest: i64) -> Arc<dyn PhysicalExpr> {
    let left = Arc::new(BinaryExpr::new(n(), Operator::Modulo, lit(modulus)));
    Arc::new(BinaryExpr::new(left, Operator::Eq, lit(rest)))
}

fn at_least(least: i64) -> Arc<dyn PhysicalExpr> {
    Arc::new(BinaryExpr::new(n(), Operator::GtEq, lit(least)))
}

fn values(batches: &[RecordBatch]) -> Vec<i64> {
    let column = |batch: &RecordBatch| batch.column(0).clone();
    let columns = batches.iter().map(column);
    let values = columns.flat_map(|column| {
        let column = column.as_any().downcast_ref::<Int64Array>().unwrap();
        column.values().to_vec()
    });
    values.collect()
}

fn session(batch_size: usize) -> SessionContext {
    SessionContext::new_with_config(SessionConfig::new().with_batch_size(batch_size))
}

#[tokio::test]
async fn a_filter_that_comes_halfway_is_applied_from_then_on() {
    let halfway = filter();
    let plan = numbers((100, 100), &[&halfway]);
    let session = session(100);
    let mut stream = plan.execute(0, session.task_ctx()).unwrap();
    let mut batches = Vec::new();
    for _ in 0..40 {
        batches.push(stream.next().await.unwrap().unwrap());
    }
    halfway.update(remainder(10, 3)).unwrap();
    batches.extend(stream.try_collect::<Vec<_>>().await.unwrap());
    let found = values(&batches);
    assert_eq!(found[..4000], (0..4000).collect::<Vec<i64>>());
    // A batch may have been read before.
    let late: Vec<i64> = found.iter().copied().filter(|n| *n >= 4200).collect();
    let expected: Vec<i64> = (4200..10_000).filter(|n| n % 10 == 3).collect();
    assert_eq!(late, expected);
    // The first survivors come at once, later ones are gathered into ever larger batches.
    let sizes: Vec<usize> = batches[41..].iter().map(RecordBatch::num_rows).collect();
    assert!(sizes[0] < 50, "{sizes:?}");
    let later = &sizes[3..sizes.len() - 1];
    assert!(later.iter().all(|rows| *rows >= 50), "{sizes:?}");
}

#[tokio::test]
async fn several_filters_leave_the_rows_that_pass_all() {
    let (most, few, some) = (filter(), filter(), filter());
    most.update(at_least(1000)).unwrap();
    few.update(remainder(50, 0)).unwrap();
    some.update(remainder(3, 0)).unwrap();
    let plan = numbers((200, 100), &[&most, &few, &some]);
    let batches = collect(Arc::clone(&plan), session(100).task_ctx())
        .await
        .unwrap();
    let expected: Vec<i64> = (1000..20_000).filter(|n| n % 150 == 0).collect();
    // `most` rests once it lets all rows through: what it excludes comes before.
    assert_eq!(values(&batches), expected);
    assert_eq!(metric::<DynamicFilterExec>(&plan, "input_rows"), 20_000);
    assert_eq!(
        metric::<DynamicFilterExec>(&plan, "output_rows"),
        expected.len()
    );
}

#[tokio::test]
async fn a_filter_that_lets_too_much_through_rests_and_is_tried_again() {
    let useless = filter();
    useless.update(at_least(10)).unwrap();
    let plan = numbers((600, 10), &[&useless]);
    collect(Arc::clone(&plan), session(10).task_ctx())
        .await
        .unwrap();
    let rests = metric::<DynamicFilterExec>(&plan, "filter_pauses");
    // After 1, 2, 4, … 128, 128 batches.
    assert!((8..=12).contains(&rests), "{rests}");

    // One that excludes nothing at first and much later on.
    let changing = filter();
    let below = BinaryExpr::new(n(), Operator::Lt, lit(2000_i64));
    changing.update(Arc::new(below)).unwrap();
    let plan = numbers((1000, 10), &[&changing]);
    let batches = collect(Arc::clone(&plan), session(10).task_ctx())
        .await
        .unwrap();
    let rows = values(&batches).len();
    assert!((2000..4000).contains(&rows), "{rows}");
}

/// Whether `n` is a multiple of 50, which takes a while. `rows` counts those that are asked.
fn slow_multiple_of_50(rows: &Arc<AtomicUsize>) -> Arc<dyn PhysicalExpr> {
    let rows = Arc::clone(rows);
    let work = move |arguments: &[ColumnarValue]| {
        let numbers = ColumnarValue::values_to_arrays(arguments)?;
        rows.fetch_add(numbers[0].len(), Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
        let numbers = numbers[0].as_primitive::<Int64Type>();
        let are_multiples = BooleanArray::from_unary(numbers, |n| n % 50 == 0);
        Ok(ColumnarValue::Array(Arc::new(are_multiples)))
    };
    let of = vec![DataType::Int64];
    let function = create_udf(
        "f",
        of,
        DataType::Boolean,
        Volatility::Immutable,
        Arc::new(work),
    );
    let schema = Schema::new(vec![Field::new("n", DataType::Int64, false)]);
    let function =
        ScalarFunctionExpr::try_new(Arc::new(function), vec![n()], &schema, Default::default());
    Arc::new(function.unwrap())
}

/// Values that come in order: the comparison lets all rows of the first batches through.
#[tokio::test]
async fn a_comparison_is_tried_first_once_it_excludes_what_the_keys_would() {
    let asked = Arc::default();
    let keys = filter();
    keys.update(slow_multiple_of_50(&asked)).unwrap();
    let plan = numbers((64, 100), &[&keys]);
    let scan = plan.downcast_ref::<DynamicFilterExec>().unwrap();
    let below: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(n(), Operator::Lt, lit(400_i64)));
    let plan: Arc<dyn ExecutionPlan> = Arc::new(scan.with_predicate(below));
    let batches = collect(plan, session(100).task_ctx()).await.unwrap();
    assert_eq!(values(&batches), (0..400).step_by(50).collect::<Vec<_>>());
    // Those of the batches until the comparison is tried again, and of a few trials.
    let asked = asked.load(Ordering::Relaxed);
    assert!((100..=1500).contains(&asked), "{asked}");
}

/// The first node of `plan` that is a `T`.
fn find<T: ExecutionPlan>(plan: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    if plan.is::<T>() {
        return Some(plan);
    }
    plan.children().into_iter().find_map(find::<T>)
}

/// The lines of an executed plan, with metrics.
fn shown(plan: &Arc<dyn ExecutionPlan>) -> String {
    let lines =
        datafusion::physical_plan::display::DisplayableExecutionPlan::with_metrics(plan.as_ref());
    lines.indent(false).to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_analyze_shows_kind_bytes_and_rows() {
    let tables = Tables::new().await;
    for place in PLACES {
        let session = tables.horton(place, &[]).await;
        let on = |key: &str| {
            format!(
                "SELECT big.v FROM (SELECT * FROM small WHERE v < 20) small JOIN big ON small.{key} = big.{key}"
            )
        };
        for (key, kind) in [("k", "bitmap("), ("s", "bloom("), ("w", "bloom(")] {
            let ran = run(&session, &on(key)).await;
            let text = shown(&ran.plan);
            assert!(
                text.contains(&format!("{key}@0 IN {kind}")),
                "{place:?} {text}"
            );
            assert!(text.contains(" bytes)"), "{text}");
            let join = Arc::clone(find::<HortonJoinExec>(&ran.plan).unwrap());
            let decisions = HortonJoinExec::downcast(join.as_ref()).unwrap().decisions();
            assert_eq!(decisions[0].build, Side::Left);
            // The scans of the side that was probed.
            let (seen, passed) = scanned(join.children()[1]);
            assert!(
                seen > 0 && passed * 5 < seen,
                "{place:?} {key}: {passed} of {seen}"
            );
            let probed = metric::<HortonJoinExec>(&ran.plan, "input_rows");
            assert_eq!(probed, passed);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_set_is_made_of_a_whole_large_table_for_a_scan_of_about_its_size() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Memory, &[]).await;
    let many = rows(9, 70_000, 1_000_000);
    in_memory(&session, "many", &many);
    in_memory(&session, "facts", &rows(10, 150_000, 1_000_000));
    let whole = run(
        &session,
        "SELECT count(*) FROM many JOIN facts ON many.k = facts.k",
    )
    .await;
    let text = shown(&whole.plan);
    assert!(!text.contains("bitmap("), "{text}");
    let part = run(
        &session,
        "SELECT count(*) FROM many JOIN facts ON many.k = facts.k WHERE many.v % 7 > 0",
    )
    .await;
    let text = shown(&part.plan);
    assert!(text.contains("bitmap("), "{text}");
    // Making one takes little of the time of a scan that is much larger.
    in_memory(&session, "more", &rows(11, 600_000, 1_000_000));
    let whole = run(
        &session,
        "SELECT count(*) FROM many JOIN more ON many.k = more.k",
    )
    .await;
    let text = shown(&whole.plan);
    assert!(text.contains("bitmap("), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_set_is_made_if_a_sample_of_the_scan_passes() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Memory, &[]).await;
    in_memory(&session, "facts", &rows(10, 200_000, 20_000));
    in_memory(&session, "others", &rows(11, 200_000, 1_000_000));
    in_memory(&session, "many", &rows(9, 100_000, 20_000));
    // `many` has nearly each key of `facts`, and one in ten of `others`.
    for (table, probed, has_set, built) in [
        ("facts", "", false, Side::Left),
        // Few rows are left, so they are built in the end.
        ("others", "", true, Side::Right),
        // With a condition between the scan and the join a set may spare more.
        ("facts", "AND t.v % 7 > 0", true, Side::Left),
    ] {
        for key in ["w", "s"] {
            let query = format!(
                "SELECT count(*) FROM many JOIN {table} t ON many.{key} = t.{key} \
                 WHERE many.v % 7 > 0 {probed}"
            );
            let ran = run(&session, &query).await;
            let text = shown(&ran.plan);
            assert_eq!(text.contains("bloom("), has_set, "{query} {text}");
            let join = Arc::clone(find::<HortonJoinExec>(&ran.plan).unwrap());
            let decisions = HortonJoinExec::downcast(join.as_ref()).unwrap().decisions();
            assert_eq!(decisions[0].build, built, "{query} {text}");
            let has_bounds = text.contains(&format!("{key}@0 >= "));
            assert!(has_bounds, "{query} {text}");
        }
    }
    // A bitmap that is filled faster than keys are hashed is made without a sample.
    let query = "SELECT count(*) FROM many JOIN facts t ON many.k = t.k WHERE many.v % 7 > 0";
    let text = shown(&run(&session, query).await.plan);
    assert!(text.contains("bitmap("), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_pool_without_room_for_a_set_leaves_bounds() {
    let tables = Tables::new().await;
    let runtime = datafusion::execution::runtime_env::RuntimeEnvBuilder::new()
        .with_memory_limit(900_000, 1.0)
        .build_arc()
        .unwrap();
    let state = SessionStateBuilder::new()
        .with_config(config())
        .with_runtime_env(runtime)
        .with_default_features();
    let session = SessionContext::new_with_state(horton_join::install(state).build());
    tables.register(&session, Place::Memory).await;
    for statement in [
        "SET horton.enabled = 'always'",
        "SET horton.filters = 'auto'",
    ] {
        session
            .sql(statement)
            .await
            .unwrap()
            .collect()
            .await
            .unwrap();
    }
    // A bitmap over this range takes 1 MB.
    let query = "SELECT big.v FROM (SELECT k * 40000 AS k FROM small WHERE v < 200) small \
                 JOIN (SELECT k * 40000 AS k, v FROM big) big ON small.k = big.k";
    let expected = run(&tables.stock(Place::Memory).await, query).await.rows;
    let ran = run(&session, query).await;
    assert_eq!(ran.rows, expected);
    let text = shown(&ran.plan);
    assert!(!text.contains("bitmap(") && text.contains(">= "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_query_planned_with_is_gone_from_its_plan() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Memory, &[]).await;
    let query = "SELECT big.v FROM small JOIN big ON small.k = big.k";
    let plan = plan(&session, query).await.unwrap();
    plan.apply(|node| {
        let line = displayable(node.as_ref()).one_line().to_string();
        assert!(!format!("{node:?}").contains("Known {"), "{line}");
        assert_ne!(node.name(), "PushdownGuard");
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_installation_changes_nothing() {
    let tables = Tables::new().await;
    let session = tables.horton(Place::Memory, &[]).await;
    let builder = SessionStateBuilder::new_from_existing(session.state());
    let again = SessionContext::new_with_state(horton_join::install(builder).build());
    let query = "SELECT big.v FROM small JOIN big ON small.k = big.k";
    let lines = |plan: Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
    let once = lines(plan(&session, query).await.unwrap());
    assert_eq!(lines(plan(&again, query).await.unwrap()), once);
    // One above each scan.
    assert_eq!(once.matches("DynamicFilterExec").count(), 2, "{once}");
}

/// Rows that leave the scan of `big`, of its 6000.
async fn left_of_big(tables: &Tables, query: &str) -> usize {
    let expected = run(&tables.stock(Place::Memory).await, query).await.rows;
    let on_host = [("horton.enabled", "auto")];
    let session = tables.horton(Place::Memory, &on_host).await;
    let found = run(&session, query).await;
    assert_eq!(found.rows, expected, "{query}");
    let scans = nodes::<DynamicFilterExec>(&found.plan);
    let mut scans = scans.iter().map(scanned);
    let (_, left) = scans.find(|(read, _)| *read == 6000).unwrap();
    left
}

/// DataFusion's join looks dense integers up in an array.
#[tokio::test]
async fn a_filter_that_its_join_repeats_as_fast_must_leave_few_rows() {
    let tables = Tables::new().await;
    let few = "SELECT b.v, o.s FROM (SELECT * FROM other WHERE v < 80) o JOIN big b ON o.v = b.k";
    assert!(left_of_big(&tables, few).await < 600);
    let many = few.replace("v < 80", "v < 380");
    assert_eq!(left_of_big(&tables, &many).await, 6000);
    // Its join hashes such keys.
    let hashed = "SELECT b.v, o.s FROM (SELECT DISTINCT w, s FROM wide WHERE k < 380) o \
                  JOIN big b ON o.w = b.w";
    assert!(left_of_big(&tables, hashed).await < 2000);
    // Another filter has rows copied anyway.
    let two = format!("SELECT x.v FROM small s JOIN ({many}) x ON s.v = x.v");
    assert!(left_of_big(&tables, &two).await < 600);
}
