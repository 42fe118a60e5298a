//! A dropped stream stops its work within a chunk and leaves nothing on the device.
//!
//! ```text
//!  polls ──▶ [build] [chunk] [chunk] [chunk] …          launches, counted by the fault layer
//!                       ▲ drop: what runs ends, what stands in line is skipped
//! ```
//!
//! Launches and bytes count for a whole process, and drivers that hung keep some. So each test is a
//! child process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use datafusion::common::JoinType;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};
use horton_test_support::internals::faults;

use super::cases::{OnProbe, feed};
use super::watch::{one_at_a_time, watched};
use horton_test_support::child::is_child;
use horton_test_support::joins::*;
use horton_test_support::test_name;

const CHUNK: usize = 512;
const CHUNKS: usize = 24;

/// A join whose probe side takes many chunks, with about as many output batches.
fn case(join_type: JoinType) -> Case {
    let left: Vec<Option<i64>> = (0..600).map(Some).collect();
    let right: Vec<Option<i64>> = (0..(CHUNK * CHUNKS) as i64)
        .map(|k| Some(k % 650))
        .collect();
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(600))]);
    let probe = Side::new(vec![("k", ints(&right))]).in_batches_of(CHUNK / 2);
    let mut case = Case {
        join_type,
        batch_size: 400,
        ..Case::new(build.in_batches_of(100), probe)
    };
    case.config.chunk_rows = CHUNK;
    case
}

fn launches(uses: &BTreeMap<String, u64>) -> u64 {
    let kernels = uses
        .iter()
        .filter(|(site, _)| site.starts_with("clEnqueueNDRangeKernel"));
    kernels.map(|(_, uses)| uses).sum()
}

/// Launches of the whole build, and at most of one chunk.
fn learn(case: &Case) -> (u64, u64) {
    let built = Arc::new(Mutex::new(0));
    let note = {
        let built = Arc::clone(&built);
        move || *built.lock().unwrap() = launches(&faults::report().uses)
    };
    let on_probe: OnProbe = Arc::new(Mutex::new(Some(Box::new(note))));
    // The device's self-test is over before launches are counted.
    run(case.on_device(), case.context()).unwrap();
    faults::begin(None);
    let (stream, _) = start(case, &on_probe);
    watched("learning", stream.try_collect::<Vec<_>>()).unwrap();
    let all = launches(&faults::end().uses);
    let built = *built.lock().unwrap();
    assert!(built > 0 && all >= built + CHUNKS as u64);
    (built, (all - built).div_ceil(CHUNKS as u64) + 1)
}

fn start(case: &Case, on_probe: &OnProbe) -> (SendableRecordBatchStream, Arc<dyn MemoryPool>) {
    let stock = case.stock_of(case.build.exec(), feed(&case.probe, on_probe));
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool));
    let config = SessionConfig::new().with_batch_size(case.batch_size);
    let context: Arc<TaskContext> = context_in(config, runtime.build_arc().unwrap());
    (case.put_on_device(stock).execute(0, context).unwrap(), pool)
}

/// Everything is given back; returns the launches made until the device's thread was idle.
fn launches_when_idle(what: &str, pool: &Arc<dyn MemoryPool>) -> u64 {
    let start = Instant::now();
    while device().budget().used() > 0 || pool.reserved() > 0 {
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "{what}: {} bytes on the device, {} reserved",
            device().budget().used(),
            pool.reserved()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    device().run_blocking(|_| Ok(())).unwrap();
    launches(&faults::end().uses)
}

#[test]
fn a_stream_dropped_after_any_batch_stops_within_a_chunk() {
    let _guard = one_at_a_time();
    if !is_child(
        &test_name!("a_stream_dropped_after_any_batch_stops_within_a_chunk"),
        &[],
    ) {
        return;
    }
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::RightSemi] {
        let case = case(join_type);
        let (_, of_chunk) = learn(&case);
        for batches in 1..20 {
            let what = format!("{join_type} dropped after batch {batches}");
            faults::begin(None);
            let (mut stream, pool) = start(&case, &OnProbe::default());
            let before = watched(&what, async move {
                for _ in 0..batches {
                    assert!(stream.try_next().await.unwrap().is_some());
                }
                assert!(device().budget().used() > 0);
                // The device's thread may have begun another job until then.
                drop(stream);
                launches(&faults::report().uses)
            });
            let after = launches_when_idle(&what, &pool);
            assert!(after - before <= of_chunk, "{what}: {before} → {after}");
        }
    }
}

#[test]
fn a_stream_dropped_at_any_poll_stops_within_a_job() {
    let _guard = one_at_a_time();
    if !is_child(
        &test_name!("a_stream_dropped_at_any_poll_stops_within_a_job"),
        &[],
    ) {
        return;
    }
    for join_type in [JoinType::Left, JoinType::LeftAnti] {
        let case = case(join_type);
        let (of_build, of_chunk) = learn(&case);
        for polls in 0..30u64 {
            let what = format!("{join_type} dropped after {polls} polls");
            faults::begin(None);
            let (mut stream, pool) = start(&case, &OnProbe::default());
            let before = watched(&what, async move {
                for _ in 0..polls {
                    // Time for the device's thread to get somewhere: not the same place each time.
                    let _ = futures::poll!(stream.next());
                    std::thread::sleep(Duration::from_micros(50 * polls));
                }
                // The device's thread may have begun another job until then.
                drop(stream);
                launches(&faults::report().uses)
            });
            let after = launches_when_idle(&what, &pool);
            let of_job = of_build.max(of_chunk);
            assert!(
                after - before <= of_job,
                "{what}: {before} → {after}, {of_build} and {of_chunk}"
            );
        }
    }
}
