//! Build sides that one table has no room for, probe chunks that have none, and fan-out: the same
//! rows in the same order, within the limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, StringViewArray};
use arrow::datatypes::Int64Type;
use datafusion::common::{JoinType, Result, resources_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionConfig;
use futures::StreamExt;

use horton_join::{Decision, HostReason, Place};

use horton_test_support::env::small;
use horton_test_support::joins::*;

/// Both sides with NULLs, repeating keys and a row number.
fn repeating(build_rows: usize, probe_rows: usize, distinct: u32) -> Case {
    let (left, right) = (
        repeating_keys(7, build_rows, distinct),
        repeating_keys(8, probe_rows, distinct + distinct / 4),
    );
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(build_rows))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(probe_rows))]);
    Case::new(build.in_batches_of(100), probe.in_batches_of(130))
}

/// Every build key once.
fn unique(build_rows: i64, probe_rows: i64) -> Case {
    let left: Vec<Option<i64>> = (0..build_rows).rev().map(Some).collect();
    let right: Vec<Option<i64>> = (0..probe_rows)
        .map(|i| Some(i * 7 % (build_rows + build_rows / 8)))
        .collect();
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(left.len()))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(right.len()))]);
    Case::new(build.in_batches_of(100), probe.in_batches_of(130))
}

/// The same with keys so far apart that a normalized key has two words.
fn far_apart(mut case: Case) -> Case {
    let apart = |side: &Side| {
        let batch = side.batch();
        let keys = batch.column(0).as_primitive::<Int64Type>();
        let keys: Vec<Option<i64>> = keys.iter().map(|k| k.map(|k| k << 40)).collect();
        Side::new(vec![("k", ints(&keys)), ("v", Arc::clone(batch.column(1)))])
    };
    (case.build, case.probe) = (apart(&case.build), apart(&case.probe));
    case
}

/// The same with a build row that has no key, so that its normalized keys are made on the host.
fn with_a_null(mut case: Case) -> Case {
    let batch = case.build.batch();
    let keys = batch.column(0).as_primitive::<Int64Type>();
    let keys: Vec<Option<i64>> = [None].into_iter().chain(keys.iter().skip(1)).collect();
    let side = Side::new(vec![("k", ints(&keys)), ("v", Arc::clone(batch.column(1)))]);
    case.build = side.in_batches_of(100);
    case
}

/// Checks a join of which no device has room for a table: DataFusion's own has it, and says why.
fn check_on_host(case: &Case) {
    let mut collected = case.clone();
    if case.mode == PartitionMode::Auto {
        collected.mode = PartitionMode::CollectLeft;
        collected.build = case.build.clone().in_partitions(1, |row| row);
    }
    let expected = run(Arc::new(collected.stock()), case.context()).unwrap();
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
    let join = case.on_device();
    let found = run(join.clone(), context_with(&pool)).unwrap();
    assert!(expected.sorted_rows() == found.sorted_rows(), "{case}");
    assert_eq!(found.metric("output_rows"), found.count(), "{case}");
    assert_eq!(found.metric_or_none("spill_count"), 0, "{case}");
    let decisions = join.decisions();
    let is_full =
        |decision: &Decision| matches!(decision.place, Place::Host(HostReason::DoesNotFit));
    assert!(!decisions.is_empty(), "{case}");
    assert!(decisions.iter().all(is_full), "{decisions:?} {case}");
    let shown = displayable(join.as_ref()).one_line().to_string();
    assert!(
        shown.contains("on the host: no room on the device"),
        "{shown}"
    );
    drop(join);
    eventually("memory is given back", || pool.reserved() == 0);
}

#[test]
fn a_build_side_of_more_rows_than_a_table_numbers_is_joined_on_the_host() {
    side_by_side();
    for join_type in JOIN_TYPES {
        for null_equality in NULL_EQUALITIES {
            for (mode, parts) in [
                (PartitionMode::CollectLeft, 1),
                (PartitionMode::CollectLeft, 3),
                (PartitionMode::Auto, 3),
            ] {
                for (case, rows) in [(repeating(600, 700, 80), 50), (unique(600, 700), 599)] {
                    let mut case = Case {
                        join_type,
                        null_equality,
                        mode,
                        ..case
                    };
                    case.config.knobs.max_table_rows = rows;
                    case.probe = case.probe.in_partitions(parts, |row| row);
                    if mode == PartitionMode::Auto {
                        case.build = case.build.in_partitions(2, |row| row);
                    }
                    check_on_host(&case);
                    check_on_host(&case.with_filter(1, 1));
                }
            }
        }
    }
}

#[test]
fn builds_of_a_partitioned_join_that_are_too_large_are_joined_on_the_host() {
    side_by_side();
    for join_type in JOIN_TYPES {
        let mut case = repeating(500, 600, 60);
        case.join_type = join_type;
        case.config.knobs.max_table_rows = 100;
        let part = |side: &Side| {
            let keys = side.batch().column(0).clone();
            let keys = keys
                .as_primitive::<Int64Type>()
                .iter()
                .map(|key| key.unwrap_or(0) as usize)
                .collect::<Vec<_>>();
            side.clone().in_partitions(3, move |row| keys[row])
        };
        case.mode = PartitionMode::Partitioned;
        (case.build, case.probe) = (part(&case.build), part(&case.probe));
        check_on_host(&case);
    }
}

#[test]
fn a_build_side_over_the_device_limit_is_joined_on_the_host() {
    let _guard = alone();
    for case in [
        repeating(20_000, 6000, 4000),
        unique(20_000, 6000),
        far_apart(unique(20_000, 6000)),
    ] {
        for join_type in JOIN_TYPES {
            let mut case = Case {
                join_type,
                ..case.clone()
            };
            // 20,000 keys take 80 KB.
            case.config.device_memory_limit = 60_000;
            check_on_host(&case);
            eventually("device memory is given back", || {
                device().budget().used() == 0
            });
        }
    }
}

fn context_with(pool: &Arc<dyn MemoryPool>) -> Arc<TaskContext> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(pool));
    let runtime = runtime.build_arc().unwrap();
    context_in(SessionConfig::new(), runtime)
}

#[test]
fn a_probe_chunk_over_the_device_limit_is_split() {
    let _guard = alone();
    let left: Vec<Option<i64>> = (0..10).map(Some).collect();
    let right: Vec<Option<i64>> = (0..100_000).map(|i| Some(i % 11)).collect();
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(10))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(right.len()))]);
    // One batch of all rows, and small ones.
    for probe in [probe.clone(), probe.in_batches_of(10_000)] {
        for join_type in JOIN_TYPES {
            let mut case = Case {
                join_type,
                // Chunks begin with a few output batches.
                batch_size: right.len(),
                ..Case::new(build.clone(), probe.clone())
            };
            // Not `check`, which would take the lock again.
            let whole = case.clone();
            case.config.device_memory_limit = 400_000;
            let expected = run(whole.on_device(), whole.context()).unwrap();
            let found = run(case.on_device(), case.context()).unwrap();
            // In the same order: chunks that are put back come before those behind them.
            assert!(expected.rows() == found.rows(), "{case}");
            assert!(found.metric("kernel_launches") > expected.metric("kernel_launches"));
            eventually("device memory is given back", || {
                device().budget().used() == 0
            });
        }
    }
}

/// 1 key, `build` × `probe` rows.
fn one_key(build: usize, probe: usize) -> Case {
    let of = |rows: usize| {
        Side::new(vec![
            ("k", ints(&vec![Some(7); rows])),
            ("v", payload(rows)),
        ])
    };
    Case {
        fetch: Some(10),
        ..Case::new(of(build).in_batches_of(8192), of(probe).in_batches_of(8192))
    }
}

#[test]
fn a_key_whose_matches_explode_streams_in_bounded_memory() {
    let _guard = alone();
    let (build, probe) = match small() {
        true => (10_000, 5_000),
        false => (1_000_000, 100_000),
    };
    let input = (build + probe) * 13;
    let mut case = one_key(build, probe);
    // The build side, its normalized keys (8 bytes per row), groups and gathered columns;
    // meanwhile room for a table on the host.
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(8 * input));
    // Chunk, window and scratch of the build: far from 10^11 pairs of 8 bytes.
    case.config.device_memory_limit = 100 * build as u64;
    let (plan, context) = (case.on_device(), context_with(&pool));
    let rows = block_on(async move {
        let mut stream = plan.execute(0, context).unwrap();
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            rows += batch.unwrap().num_rows();
        }
        rows
    });
    assert_eq!(rows, 10);
    eventually("memory is given back", || {
        (pool.reserved(), device().budget().used()) == (0, 0)
    });
    // Without a limit, some windows of it: the stream goes on in the same memory.
    case.fetch = None;
    let (plan, context) = (case.on_device(), context_with(&pool));
    let most = block_on(async move {
        let mut stream = plan.execute(0, context).unwrap();
        let (mut rows, mut most) = (0, 0);
        while rows < 4 * build {
            rows += stream.next().await.unwrap().unwrap().num_rows();
            most = most.max(device().budget().used());
        }
        most
    });
    assert!(most > 0 && most <= 100 * build as u64);
}

#[test]
fn a_pool_with_room_for_the_rows_alone_has_them_joined_on_the_host() {
    let _guard = alone();
    let mut case = with_a_null(unique(50_000, 100));
    case.config.spill = false;
    // Errors, then the host, then the device.
    let mut ways = Vec::new();
    for limit in (50_000..8_000_000).step_by(150_000) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
        let join = case.on_device();
        match run(join.clone(), context_with(&pool)) {
            Ok(_) => ways.push(match join.decisions()[0].place {
                Place::Host(HostReason::NoMemory) => "host",
                Place::Host(_) => "host, for another reason",
                Place::Device(_) => "device",
            }),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("HortonJoinBuild[0]: left rows"), "{error}");
                assert!(error.contains("horton.spill"), "{error}");
                ways.push("error");
            }
        }
        drop(join);
        eventually("memory is given back", || {
            (pool.reserved(), device().budget().used()) == (0, 0)
        });
    }
    ways.dedup();
    assert_eq!(ways, ["error", "host", "device"]);
}

#[test]
fn strings_that_are_joined_meanwhile_take_no_room_from_the_table() {
    let _guard = alone();
    const ROWS: usize = 20_000;
    let mut case = unique(ROWS as i64, 100);
    let keys = Arc::clone(case.build.batch().column(0));
    let texts = StringViewArray::from_iter_values((0..ROWS).map(|i| format!("row {i}")));
    case.build = Side::new(vec![("k", keys), ("s", Arc::new(texts))]).in_batches_of(100);
    // From too little for the table to enough for both.
    let mut kept = Vec::new();
    case.config.spill = false;
    for limit in (500_000..4_000_000).step_by(50_000) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
        match run(case.on_device(), context_with(&pool)) {
            // With room for the rows alone, the host joins them.
            Ok(run) if run.metric_or_none("kernel_launches") == 0 => assert!(kept.is_empty()),
            Ok(run) => kept.push(run.metric("build_mem_used")),
            Err(error) => {
                assert!(kept.is_empty(), "less than {limit} was enough: {error}");
                assert!(error.to_string().contains("HortonJoinBuild"), "{error}");
            }
        }
        eventually("memory is given back", || {
            (pool.reserved(), device().budget().used()) == (0, 0)
        });
    }
    // First perhaps without the joined column, then with it: 16 bytes per row, as none is NULL. A
    // CPU's table takes more while it is built, which the column has afterwards.
    let last = kept.last().unwrap();
    let expected = [last - 16 * ROWS, *last];
    assert!(
        kept.iter().all(|bytes| expected.contains(bytes)),
        "{kept:?}"
    );
}

/// A pool of so many bytes that notes the most of each name.
#[derive(Debug)]
struct Noting {
    limit: usize,
    /// Bytes now and at most.
    bytes: Mutex<BTreeMap<String, (usize, usize)>>,
}

impl Noting {
    fn add(&self, reservation: &MemoryReservation, bytes: usize) {
        let mut all = self.bytes.lock().unwrap();
        let name = reservation.consumer().name().to_owned();
        let (now, most) = all.entry(name).or_default();
        *now += bytes;
        *most = (*most).max(*now);
    }
}

impl std::fmt::Display for Noting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl MemoryPool for Noting {
    fn name(&self) -> &str {
        "noting"
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.add(reservation, additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let mut all = self.bytes.lock().unwrap();
        if let Some((now, _)) = all.get_mut(reservation.consumer().name()) {
            *now -= shrink;
        }
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        if self.reserved() + additional > self.limit {
            return resources_err!("{} bytes more for {reservation:?}", additional);
        }
        self.add(reservation, additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.bytes
            .lock()
            .unwrap()
            .values()
            .map(|(now, _)| now)
            .sum()
    }
}

#[test]
fn all_that_a_join_keeps_is_reserved_under_its_name() {
    let _guard = alone();
    const ROWS: usize = 20_000;
    let mut case = repeating(ROWS, 6000, 4000);
    case.join_type = JoinType::Full;
    case.config.chunk_rows = 2000;
    for limit in [1 << 30, 300_000] {
        let noting = Arc::new(Noting {
            limit,
            bytes: Mutex::default(),
        });
        let pool: Arc<dyn MemoryPool> = Arc::clone(&noting) as _;
        let run = run(case.on_device(), context_with(&pool)).unwrap();
        assert!(run.metric("kernel_launches") > 0);
        eventually("memory is given back", || pool.reserved() == 0);
        let most = noting.bytes.lock().unwrap().clone();
        let least = |name: &str, bytes: usize| {
            let (_, most) = most.get(name).copied().unwrap_or_default();
            assert!(most >= bytes, "{limit}: {name}: {most} bytes, not {bytes}");
        };
        if limit == 1 << 30 {
            least("HortonJoinBuild[0]: batches", 12 * ROWS);
            least("HortonJoinBuild[0]: keys", 8 * ROWS);
            least("HortonJoinBuild[0]: visited rows", ROWS / 8);
            // Of a key 10 bytes; and with groups on the device, 4 per row.
            least("HortonJoinBuild[0]: device", 10 * 4000);
        } else {
            least("HortonJoinBuild[0]: left spill partitions", 12 * 1000);
            least("HortonJoinBuild[0]: right spill partitions", 12 * 1000);
            // One pair of spill partitions at a time, built of its smaller side.
            least("HortonJoinBuild[0]: keys", 1000);
            least("HortonJoinBuild[0]: device", 1000);
            continue;
        }
        // A chunk, with a word of key per row; and its pairs.
        least("HortonJoinProbe[0]: probe rows", 12 * 2000);
        least("HortonJoinProbe[0]: pairs", 8 * 2000);
    }
}
