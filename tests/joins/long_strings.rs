//! A build side with more than 2^31 bytes of strings.
//!
//! ```text
//!  batch 0   k 0..1024       s ─┐
//!  batch 1   k 1024..2048    s ─┼─▶ one array of 40 MiB, shared by all 64 batches
//!  …                            │
//!  batch 63  k 64512..65536  s ─┘   2.5 GiB of strings to the join
//! ```
//!
//! One `Utf8` array has 32-bit offsets, so a join that concatenates its build side, as the
//! stock join does, fails here. The device join keeps the batches as they came: only the
//! strings of an output batch have to fit one array. The memory pool is far smaller than all
//! strings together, because a buffer that batches share is counted once.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use horton_join::HortonJoinExec;
use horton_join::config::{HortonConfig, Knobs};

const BATCHES: usize = 64;
const BATCH_ROWS: usize = 1024;
/// Bytes of one string: 40 MiB per batch.
const LENGTH: usize = 40 << 10;
/// More than the shared array, its keys and the table; far less than 2^31.
const POOL_BYTES: usize = 256 << 20;

/// The string of row `row` of every batch.
fn string(row: usize) -> String {
    let mut string = format!("{row:06}");
    // Lengths differ, so that a wrong row shows in them.
    let letter = char::from(b'a' + (row % 26) as u8);
    string.extend(std::iter::repeat_n(letter, LENGTH - 6 + row % 7));
    string
}

/// `big(k, s)`: as in the picture above.
fn big() -> MemTable {
    let strings: ArrayRef = Arc::new(StringArray::from_iter_values((0..BATCH_ROWS).map(string)));
    let batch = |batch: usize| {
        let first = (batch * BATCH_ROWS) as i64;
        let keys = Int64Array::from_iter_values(first..first + BATCH_ROWS as i64);
        let keys: ArrayRef = Arc::new(keys);
        RecordBatch::try_from_iter([("k", keys), ("s", Arc::clone(&strings))]).unwrap()
    };
    let batches: Vec<RecordBatch> = (0..BATCHES).map(batch).collect();
    MemTable::try_new(batches[0].schema(), vec![batches]).unwrap()
}

/// Keys of `small`: first, last and middle rows, repeated ones, and two that `big` lacks.
const KEYS: [i64; 9] = [0, 1023, 1024, 40_000, 40_000, 65_535, 65_536, -1, 64_512];

/// `small(k, n)`: [`KEYS`] numbered through.
fn small() -> MemTable {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(KEYS));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..KEYS.len() as i64));
    let batch = RecordBatch::try_from_iter([("k", keys), ("n", numbers)]).unwrap();
    MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap()
}

/// A session that builds from the left table as written, with little memory.
fn session() -> SessionContext {
    let horton = HortonConfig {
        knobs: Knobs {
            // The side that ends first is built, though the other one is smaller.
            sample_rows: usize::MAX,
            ..Knobs::default()
        },
        ..HortonConfig::default()
    };
    let config = SessionConfig::new()
        .with_option_extension(horton)
        .with_target_partitions(1)
        .with_batch_size(512)
        .set_bool("datafusion.optimizer.join_reordering", false);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(POOL_BYTES, 1.0)
        .build_arc()
        .unwrap();
    let builder = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features();
    let session = SessionContext::new_with_state(horton_join::install(builder).build());
    session.register_table("big", Arc::new(big())).unwrap();
    session.register_table("small", Arc::new(small())).unwrap();
    session
}

/// Checks that `plan` is one device join that built from `big` with its strings.
fn check_join(plan: &Arc<dyn ExecutionPlan>) {
    let mut joins = 0;
    plan.apply(|node| {
        if let Some(join) = HortonJoinExec::downcast(node.as_ref()) {
            joins += 1;
            assert!(join.device_name().is_some());
            assert!(join.stock().left().schema().index_of("s").is_ok());
            let metrics = join.metrics().unwrap();
            let metric = |name| metrics.sum_by_name(name).unwrap().as_usize();
            assert!(metric("kernel_launches") > 0);
            assert_eq!(metric("build_input_rows"), BATCHES * BATCH_ROWS);
            let bytes = metric("build_mem_used");
            assert!(
                (LENGTH * BATCH_ROWS..POOL_BYTES).contains(&bytes),
                "{bytes}"
            );
        }
        Ok(TreeNodeRecursion::Continue)
    })
    .unwrap();
    assert_eq!(joins, 1);
}

async fn query(query: &str) -> Vec<RecordBatch> {
    horton_test_support::turns::side_by_side();
    let session = session();
    let device = horton_test_support::env::asked();
    for statement in [
        "SET horton.enabled = 'always'".to_owned(),
        format!("SET horton.device = '{device}'"),
    ] {
        session.sql(&statement).await.unwrap();
    }
    let plan = session.sql(query).await.unwrap();
    let plan = plan.create_physical_plan().await.unwrap();
    let batches = collect(Arc::clone(&plan), session.task_ctx())
        .await
        .unwrap();
    check_join(&plan);
    batches
}

/// Values of a row of integers.
async fn integers(sql: &str) -> Vec<i64> {
    let batches = query(sql).await;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 1, "{}", pretty_format_batches(&batches).unwrap());
    let row = batches.iter().find(|batch| batch.num_rows() == 1).unwrap();
    let value = |column: &ArrayRef| {
        column
            .as_any()
            .downcast_ref::<Int64Array>()
            .unwrap()
            .value(0)
    };
    row.columns().iter().map(value).collect()
}

#[test]
fn the_strings_exceed_the_offsets_of_one_array() {
    assert!(BATCHES * BATCH_ROWS * LENGTH > i32::MAX as usize);
}

#[tokio::test(flavor = "multi_thread")]
async fn strings_of_a_few_keys_are_the_right_ones() {
    let batches = query("SELECT n, s FROM big JOIN small ON big.k = small.k").await;
    let mut found = Vec::new();
    for batch in &batches {
        let numbers = batch.column(0).as_any().downcast_ref::<Int64Array>();
        let strings = batch.column(1).as_any().downcast_ref::<StringArray>();
        let pairs = numbers.unwrap().values().iter().zip(strings.unwrap());
        found.extend(pairs.map(|(n, s)| (*n as usize, s.unwrap().to_owned())));
    }
    found.sort_unstable();
    let known = |key: &i64| (0..(BATCHES * BATCH_ROWS) as i64).contains(key);
    let expected: Vec<(usize, String)> = KEYS
        .iter()
        .enumerate()
        .filter(|(_, key)| known(key))
        .map(|(n, key)| (n, string(*key as usize % BATCH_ROWS)))
        .collect();
    assert_eq!(found.len(), 7);
    assert!(found == expected, "strings of other rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn unmatched_build_rows_are_counted() {
    // The residual filter looks at the strings of candidate pairs: every seventh is too short.
    let counts = integers(&format!(
        "SELECT count(*), count(n), count(*) FILTER (WHERE n IS NULL) \
         FROM big LEFT JOIN small ON big.k = small.k AND octet_length(s) > {LENGTH}"
    ))
    .await;
    // The first rows of batches 0, 1 and 63 have exactly LENGTH bytes.
    let rows = (BATCHES * BATCH_ROWS) as i64;
    let kept = KEYS
        .iter()
        .filter(|key| (0..rows).contains(*key))
        .filter(|key| !(**key as usize % BATCH_ROWS).is_multiple_of(7));
    let matched: Vec<i64> = kept.copied().collect();
    assert_eq!(matched, [1023, 40_000, 40_000, 65_535]);
    // Key 40000 is one row with two matches.
    assert_eq!(counts, [rows + 1, 4, rows - 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_strings_can_be_emitted_a_batch_at_a_time() {
    // 20 MiB of strings to an output batch, 2.5 GiB in all.
    let counts = integers(
        "SELECT count(*), sum(octet_length(s)) \
         FROM big LEFT JOIN small ON big.k = small.k AND small.n < 3",
    )
    .await;
    let batch: usize = (0..BATCH_ROWS).map(|row| string(row).len()).sum();
    let bytes = (BATCHES * batch) as i64;
    assert!(bytes > i64::from(i32::MAX));
    assert_eq!(counts, [(BATCHES * BATCH_ROWS) as i64, bytes]);
}
