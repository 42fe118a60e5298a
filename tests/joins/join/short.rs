//! Device memory that others take: joins wait for it, and make do without it.
//!
//! ```text
//!  build side ──▶ table ──▶ batch ──▶ batch ──▶ end ──▶ unmatched build rows
//!            ▲         ▲         ▲             ▲
//!            └─────────┴── a hog takes all ────┘     ─▶ the stock join's rows
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::RecordBatch;
use datafusion::common::JoinType;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::PartitionMode;
use futures::{StreamExt, stream};
use horton_join::HortonJoinExec;
use horton_join::config::OnDeviceError;
use horton_join::device::{Buffer, DeviceKind};
use horton_join::{HostReason, Place};

use crate::feed::{partition, plan};
use horton_test_support::joins::*;

/// The joins' limit: more than they need.
const LIMIT: u64 = 8 << 20;

/// When the hog comes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Moment {
    /// When the build side has been read.
    Build,
    /// The join ends before a batch of the probe side, or at the end of its first partition.
    Probe(usize),
}

/// Takes as much as the joins may.
#[derive(Clone, Default)]
struct Hog(Arc<Mutex<Option<Buffer<u32>>>>);

impl Hog {
    fn come(&self) {
        let job = device().run_blocking(|queue| queue.allocate::<u32>("a hog", LIMIT as usize / 4));
        *self.0.lock().unwrap() = Some(job.unwrap().value);
    }

    fn leave(&self) {
        drop(self.0.lock().unwrap().take());
    }
}

/// A side that calls `call` before batch `at` of its first partition, or at the end of that.
fn calling(
    side: &Side,
    at: Option<usize>,
    call: impl Fn() + Clone + Send + Sync + 'static,
) -> Arc<dyn ExecutionPlan> {
    let parts = side.partitions.iter().enumerate();
    let parts = parts.map(|(p, batches)| {
        let (batches, call, at) = (batches.clone(), call.clone(), at.filter(|_| p == 0));
        partition(&side.schema, move || {
            let call = call.clone();
            let end = batches.iter().cloned().map(Some).chain([None]).enumerate();
            let items: Vec<(usize, Option<RecordBatch>)> = end.collect();
            let items = stream::iter(items).filter_map(move |(i, batch)| {
                if Some(i) == at {
                    if batch.is_none() {
                        // The device has answered what it was asked before.
                        std::thread::sleep(Duration::from_millis(100));
                    }
                    call();
                }
                std::future::ready(batch.map(Ok))
            });
            items.boxed()
        })
    });
    plan(parts.collect(), false)
}

/// A join of 900 × 6,000 rows in chunks of a batch.
fn case(join_type: JoinType, distinct: u32) -> Case {
    let left: Vec<Option<i64>> = match distinct {
        0 => (0..900).map(Some).collect(),
        _ => repeating_keys(11, 900, distinct),
    };
    let right = repeating_keys(12, 6000, distinct.max(600));
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(900))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(6000))]);
    let mut case = Case {
        join_type,
        ..Case::new(build.in_batches_of(300), probe.in_batches_of(1000))
    };
    case.config.chunk_rows = 1000;
    case.config.device_memory_limit = LIMIT;
    case
}

/// The join of `case`, with a `call` at `moment`.
fn beside(
    case: &Case,
    moment: Moment,
    call: impl Fn() + Clone + Send + Sync + 'static,
) -> Arc<HortonJoinExec> {
    let (build_at, probe_at) = match moment {
        Moment::Build => (Some(case.build.partitions[0].len()), None),
        Moment::Probe(at) => (None, Some(at)),
    };
    let build = calling(&case.build, build_at, call.clone());
    let probe = calling(&case.probe, probe_at, call);
    case.put_on_device(case.stock_of(build, probe))
}

fn nothing_is_left() {
    eventually("device memory is given back", || {
        device().budget().used() == 0
    });
}

/// The join of `case` beside a hog that comes at `moment` and stays.
fn check(case: &Case, moment: Moment) -> (Run, Arc<HortonJoinExec>) {
    let expected = run(Arc::new(case.stock()), case.context())
        .unwrap()
        .sorted_rows();
    let hog = Hog::default();
    let comes = hog.clone();
    let join = beside(case, moment, move || comes.come());
    let run = run(join.clone(), case.context()).unwrap();
    assert!(run.sorted_rows() == expected, "{case}, {moment:?}");
    assert!(hog.0.lock().unwrap().is_some());
    hog.leave();
    nothing_is_left();
    // It is nobody's failure.
    let device = device();
    assert_eq!(case.config.health.failure(device.info()), None);
    (run, join)
}

#[test]
fn a_join_without_device_memory_gives_the_stock_joins_rows() {
    let _guard = alone();
    for join_type in JOIN_TYPES {
        let (unique, repeating) = (case(join_type, 0), case(join_type, 300));
        for case in [unique, repeating.clone().with_filter(1, 1), repeating] {
            let (_, join) = check(&case, Moment::Build);
            let place = &join.decisions()[0].place;
            assert!(
                matches!(place, Place::Host(HostReason::DoesNotFit)),
                "{case}"
            );
            let end = case.probe.partitions[0].len();
            for at in [0, end - 1, end] {
                let (run, join) = check(&case, Moment::Probe(at));
                let place = &join.decisions()[0].place;
                assert!(matches!(place, Place::Device(_)), "{case}");
                assert!(run.metric("kernel_launches") > 0);
                if at == 0 {
                    // No chunk was answered before.
                    assert_eq!(run.metric("device_errors"), 1, "{case}");
                }
                if at == end && device().info().kind == DeviceKind::Cpu {
                    // All chunks were, and which build rows they met takes none of the device's.
                    assert_eq!(run.metric("device_errors"), 0, "{case}");
                }
            }
        }
    }
}

#[test]
fn streams_of_one_build_make_do_together() {
    let _guard = alone();
    let join_types = [
        JoinType::Left,
        JoinType::LeftAnti,
        JoinType::LeftSemi,
        JoinType::Full,
    ];
    for join_type in join_types {
        for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
            let mut case = case(join_type, 300);
            case.mode = mode;
            case.probe = case.probe.in_partitions(3, |row| row).in_batches_of(500);
            if mode == PartitionMode::Partitioned {
                case.build = case.build.in_partitions(3, |row| row);
            }
            for at in [0, 3, 4] {
                check(&case, Moment::Probe(at));
            }
        }
    }
}

#[test]
fn a_full_device_is_no_failure_that_ends_a_query() {
    let _guard = alone();
    let mut case = case(JoinType::Left, 300);
    case.config.on_device_error = OnDeviceError::Error;
    for moment in [Moment::Build, Moment::Probe(2)] {
        check(&case, moment);
    }
}

#[test]
fn a_join_waits_for_memory_that_is_given_back_soon() {
    let _guard = alone();
    for join_type in [JoinType::Inner, JoinType::Left] {
        let case = case(join_type, 300);
        let calm = run(case.on_device(), case.context()).unwrap();
        for moment in [Moment::Build, Moment::Probe(0), Moment::Probe(2)] {
            let hog = Hog::default();
            let join = beside(&case, moment, move || {
                hog.come();
                let hog = hog.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(20));
                    hog.leave();
                });
            });
            let run = run(join.clone(), case.context()).unwrap();
            assert!(
                run.sorted_rows() == calm.sorted_rows(),
                "{case}, {moment:?}"
            );
            assert!(
                matches!(join.decisions()[0].place, Place::Device(_)),
                "{moment:?}"
            );
            assert_eq!(run.metric("device_errors"), 0, "{moment:?}");
            // One table, and chunks that are not split.
            let launches = |run: &Run| run.metric("kernel_launches");
            assert_eq!(launches(&run), launches(&calm), "{moment:?}");
            nothing_is_left();
        }
    }
}

#[test]
fn idle_memory_counts_and_is_given_back_when_others_ask() {
    let _guard = alone();
    let mut case = case(JoinType::Full, 300);
    case.config.device_memory_limit = 0;
    let whole = run(case.on_device(), case.context()).unwrap();
    nothing_is_left();
    let device = device();
    let idle = device.budget().idle();
    assert!(idle > 0);
    // All of it must go.
    let limit = idle.next_power_of_two();
    let job = device.run_blocking(move |queue| {
        queue.limit_memory(limit);
        queue.allocate::<u32>("all", limit as usize / 4)
    });
    let all = job.unwrap().value;
    assert_eq!(device.budget().used(), limit);
    assert_eq!(device.budget().idle(), 0);
    drop(all);
    // A join within a limit never takes more of it, idle memory included.
    case.config.device_memory_limit = LIMIT;
    for _ in 0..3 {
        let limited = run(case.on_device(), case.context()).unwrap();
        assert!(limited.metric("kernel_launches") > 0);
        assert!(limited.sorted_rows() == whole.sorted_rows());
        nothing_is_left();
        assert!((1..=LIMIT).contains(&device.budget().idle()));
    }
}
