//! Memory, on the device and in the pool: limits, reservations, and giving back.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{DataFusionError, JoinType};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ExecutionPlanProperties, ReplaceChildrenOptions,
    collect, execution_plan,
};
use datafusion::prelude::SessionConfig;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_join::table::multimap::IndexKind;
use horton_join::{HostReason, Place};

use horton_test_support::joins::*;

fn case(build_rows: i64, probe_rows: i64, parts: usize) -> Case {
    let left: Vec<Option<i64>> = (0..build_rows).map(Some).collect();
    let right: Vec<Option<i64>> = (0..probe_rows)
        .map(|k| Some(k % (build_rows + 1)))
        .collect();
    let build = Side::new(vec![("k", ints(&left))]);
    let probe = Side::new(vec![("k", ints(&right))]).in_partitions(parts, |row| row);
    Case::new(build, probe.in_batches_of(1000))
}

fn partitioned(mut case: Case) -> Case {
    let parts = case.probe.partitions.len();
    case.mode = PartitionMode::Partitioned;
    case.build = case.build.in_partitions(parts, |row| row);
    case
}

fn context_with(pool: Arc<dyn MemoryPool>) -> Arc<TaskContext> {
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc();
    context_in(SessionConfig::new(), runtime.unwrap())
}

/// The errors of all partitions, run side by side.
fn errors(plan: Arc<dyn ExecutionPlan>, context: Arc<TaskContext>) -> Vec<DataFusionError> {
    block_on(async move {
        let parts = plan.output_partitioning().partition_count();
        let streams = (0..parts).map(|p| plan.execute(p, Arc::clone(&context)));
        let all = streams.map(|stream| stream.unwrap().try_collect::<Vec<_>>());
        let results = futures::future::join_all(all).await;
        results.into_iter().filter_map(Result::err).collect()
    })
}

fn assert_exhausted(errors: &[DataFusionError], text: &str) {
    for error in errors {
        let root = error.find_root();
        assert!(
            matches!(root, DataFusionError::ResourcesExhausted(_)),
            "{error}"
        );
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_build_over_the_device_limit_is_joined_on_the_host() {
    let _guard = alone();
    for mut case in [case(1000, 4000, 4), partitioned(case(1000, 4000, 4))] {
        let expected = run(Arc::new(case.stock()), case.context()).unwrap();
        for index in [IndexKind::Horton, IndexKind::CacheLine] {
            if index == IndexKind::CacheLine && !device().info().has_int64_atomics() {
                continue;
            }
            case.config.knobs.index = index;
            case.config.device_memory_limit = 1000;
            let join = case.on_device();
            let found = run(join.clone(), case.context()).unwrap();
            assert!(found.sorted_rows() == expected.sorted_rows(), "{case}");
            let decisions = join.decisions();
            assert!(!decisions.is_empty());
            for decision in decisions {
                assert!(
                    matches!(decision.place, Place::Host(HostReason::DoesNotFit)),
                    "{decision:?}"
                );
            }
            eventually("device memory is given back", || {
                device().budget().used() == 0
            });
        }
    }
}

#[test]
fn a_memory_pool_too_small_for_the_build_side_is_resources_exhausted() {
    let _guard = alone();
    for mut case in [
        case(20_000, 40_000, 4),
        partitioned(case(20_000, 40_000, 4)),
    ] {
        case.config.spill = false;
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(10_000));
        let errors = errors(case.on_device(), context_with(Arc::clone(&pool)));
        assert_eq!(errors.len(), 4);
        assert_exhausted(&errors, "HortonJoinBuild");
        assert_eq!(pool.reserved(), 0);
        eventually("device memory is given back", || {
            device().budget().used() == 0
        });
    }
}

#[test]
fn a_memory_pool_without_room_for_the_device_table_is_resources_exhausted() {
    let _guard = alone();
    // 160,000 bytes of keys, and about as much again for normalized keys and the table.
    let mut case = case(20_000, 100, 1);
    case.config.spill = false;
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(200_000));
    let errors = errors(case.on_device(), context_with(Arc::clone(&pool)));
    assert_eq!(errors.len(), 1);
    assert_exhausted(&errors, "HortonJoinBuild");
    assert_eq!(pool.reserved(), 0);
    eventually("device memory is given back", || {
        device().budget().used() == 0
    });
}

#[test]
fn a_memory_pool_with_room_for_the_build_side_alone_is_probed_batch_by_batch() {
    let _guard = alone();
    let mut case = case(20_000, 40_000, 2);
    for join_type in JOIN_TYPES {
        case.join_type = join_type;
        let expected = run(Arc::new(case.stock()), case.context()).unwrap();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(4_000_000));
        let held = MemoryConsumer::new("others").register(&pool);
        // Half of a pool is others': chunks are refused, the build side is not.
        held.grow(2_000_000);
        let found = run(case.on_device(), context_with(Arc::clone(&pool))).unwrap();
        let (mut found_rows, mut rows) = (found.rows(), expected.rows());
        if matches!(join_type, JoinType::Right | JoinType::Full) {
            // Probe rows without a match stand where they are, or behind the others.
            let parts = found_rows.iter_mut().chain(&mut rows);
            parts.for_each(|part| part.sort_unstable());
        }
        assert!(found_rows == rows, "{case}");
        assert!(found.metric("kernel_launches") > 0, "{case}");
        drop(held);
        eventually("the reservation is given back", || pool.reserved() == 0);
    }
}

#[test]
fn a_small_join_needs_little_device_memory() {
    let _guard = alone();
    let mut case = case(7, 1000, 1);
    case.build = Side::new(vec![("k", ints(&[1, 1, 2, 2, 3, 9, 9].map(Some)))]);
    case.config.device_memory_limit = 1 << 20;
    for join_type in [JoinType::Left, JoinType::LeftSemi, JoinType::LeftAnti] {
        case.join_type = join_type;
        let expected = run(Arc::new(case.stock()), case.context()).unwrap();
        let join = case.on_device();
        let found = run(join.clone(), case.context()).unwrap();
        assert!(found.rows() == expected.rows(), "{case}");
        let decisions = join.decisions();
        assert!(
            matches!(decisions[0].place, Place::Device(_)),
            "{decisions:?}"
        );
        assert!(found.metric("kernel_launches") > 0, "{case}");
    }
}

#[test]
fn a_stream_dropped_midway_returns_its_memory() {
    let _guard = alone();
    for case in [
        case(50_000, 200_000, 1),
        partitioned(case(50_000, 200_000, 1)),
    ] {
        let device = device();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let (plan, context) = (case.on_device(), context_with(Arc::clone(&pool)));
        assert_eq!(device.budget().used(), 0);
        let stream = block_on(async move {
            let mut stream = plan.execute(0, context).unwrap();
            assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
            stream
        });
        assert!(device.budget().used() > 50_000 * 8);
        assert!(pool.reserved() > 50_000 * 16, "{}", pool.reserved());
        drop(stream);
        eventually("device memory is given back", || {
            device.budget().used() == 0
        });
        eventually("the reservation is given back", || pool.reserved() == 0);
    }
}

#[test]
fn a_stream_dropped_at_any_point_returns_its_memory() {
    let _guard = alone();
    let case = case(3000, 20_000, 1);
    for polls in 0..12 {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let (plan, context) = (case.on_device(), context_with(Arc::clone(&pool)));
        block_on(async move {
            let mut stream = plan.execute(0, context).unwrap();
            for _ in 0..polls {
                // Time for the device's thread to get somewhere: not the same place each time.
                let _ = futures::poll!(stream.next());
                std::thread::sleep(Duration::from_micros(300 * polls));
            }
        });
        eventually("device memory is given back", || {
            device().budget().used() == 0
        });
        eventually("the reservation is given back", || pool.reserved() == 0);
    }
}

#[test]
fn streams_that_ended_return_their_memory_though_their_plan_lives_on() {
    let _guard = alone();
    for case in [case(5000, 20_000, 3), partitioned(case(5000, 20_000, 3))] {
        let device = device();
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1 << 30));
        let plan: Arc<dyn ExecutionPlan> = case.on_device();
        let context = context_with(Arc::clone(&pool));
        block_on(collect(Arc::clone(&plan), context)).unwrap();
        eventually("device memory is given back", || {
            device.budget().used() == 0
        });
        eventually("the reservation is given back", || pool.reserved() == 0);
        drop(plan);
    }
}

#[test]
fn joins_side_by_side_share_the_device() {
    let _guard = alone();
    let case = case(20_000, 50_000, 4);
    let expected = run(case.on_device(), case.context()).unwrap().count();
    let runs = (0..6).map(|_| collect(case.on_device(), case.context()));
    let all = block_on(futures::future::join_all(runs.collect::<Vec<_>>()));
    for batches in all {
        assert_eq!(text(&batches.unwrap()).len(), expected);
    }
    eventually("device memory is given back", || {
        device().budget().used() == 0
    });
}

#[test]
fn a_plan_that_was_reset_runs_again() {
    let _guard = alone();
    for join_type in JOIN_TYPES {
        for mut case in [case(300, 1000, 2), partitioned(case(300, 1000, 2))] {
            case.join_type = join_type;
            let plan: Arc<dyn ExecutionPlan> = case.on_device();
            let rows = |plan: &Arc<dyn ExecutionPlan>| {
                let plan = Arc::clone(plan);
                let batches = block_on(collect(plan, case.context())).unwrap();
                let mut rows = text(&batches);
                rows.sort_unstable();
                rows
            };
            let first = rows(&plan);
            let again = execution_plan::reset_plan_states(Arc::clone(&plan)).unwrap();
            assert_eq!(rows(&again), first, "{case}");
            assert!(metric(&again.metrics().unwrap(), "kernel_launches") > 0);
        }
    }
}

#[test]
fn a_plan_that_is_simply_executed_twice_returns_the_same_rows() {
    let _guard = alone();
    for join_type in [JoinType::Inner, JoinType::Full, JoinType::LeftAnti] {
        let case = Case {
            join_type,
            ..case(300, 250, 2)
        };
        let plan = case.on_device();
        let first = run(plan.clone(), case.context()).unwrap().rows();
        let second = run(plan, case.context()).unwrap().rows();
        assert_eq!(first, second, "{case}");
    }
}

#[test]
fn rewrites_of_the_plan_keep_the_join_on_the_device_and_its_promises() {
    let _guard = alone();
    let mut case = case(300, 1000, 2);
    case.build.sorted_by = Some(0);
    for join_type in JOIN_TYPES {
        case.join_type = join_type;
        let stock: Arc<dyn ExecutionPlan> = Arc::new(case.stock());
        let plan: Arc<dyn ExecutionPlan> = case.on_device();
        assert_eq!(plan.schema(), stock.schema());
        assert_eq!(plan.maintains_input_order(), stock.maintains_input_order());
        assert_eq!(
            plan.output_partitioning().to_string(),
            stock.output_partitioning().to_string()
        );
        assert_eq!(plan.output_ordering(), stock.output_ordering());
        assert_eq!(
            plan.supports_limit_pushdown(),
            stock.supports_limit_pushdown()
        );
        let children = plan.children().into_iter().map(Arc::clone).collect();
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        let rewritten = Arc::clone(&plan)
            .replace_children(children, options)
            .unwrap();
        let limited = rewritten.with_fetch(Some(3)).unwrap();
        assert_eq!(limited.fetch(), Some(3));
        let reset = limited.reset_state().unwrap();
        let rows = run(Arc::clone(&reset), case.context()).unwrap();
        assert!(rows.batches.iter().all(|batches| text(batches).len() <= 3));
        // The nodes stand for one join: each knows where it ran.
        for plan in [plan, reset] {
            let join = HortonJoinExec::downcast(plan.as_ref()).unwrap();
            assert_eq!(join.device_name().as_ref(), Some(&device().info().name));
        }
    }
}
