//! What a probe stream reads while its build side comes, and when it must not.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::{StreamExt, stream};
use tokio::sync::watch;

use super::feed::{Then, feed, going_on, partition, plan};
use super::harness::*;

/// Batches of a probe side, and how many of them were taken.
#[derive(Clone)]
struct Watched {
    side: Side,
    then: Then,
    taken: watch::Sender<usize>,
}

impl Watched {
    fn new(side: Side, then: Then) -> Self {
        let (taken, _) = watch::channel(0);
        Self { side, then, taken }
    }

    /// It as a plan: each result is counted when it is taken.
    fn exec(&self, endless: bool) -> Arc<dyn ExecutionPlan> {
        let partitions = self.side.partitions.iter().map(|batches| {
            let (batches, this) = (batches.clone(), self.clone());
            partition(&self.side.schema, move || {
                let taken = this.taken.clone();
                let batches = going_on(batches.clone(), this.then);
                let note = move |_: &Result<_>| taken.send_modify(|count| *count += 1);
                batches.inspect(note).boxed()
            })
        });
        plan(partitions.collect(), endless)
    }

    fn count(&self) -> usize {
        *self.taken.borrow()
    }
}

/// `build`, whose batches come once so many results of `probe` were taken.
fn after(build: &Side, probe: &Watched, count: usize) -> Arc<dyn ExecutionPlan> {
    let partitions = build.partitions.iter().map(|batches| {
        let (batches, taken) = (batches.clone(), probe.taken.clone());
        partition(&build.schema, move || {
            let (batches, mut taken) = (batches.clone(), taken.subscribe());
            let wait = async move {
                taken.wait_for(|taken| *taken >= count).await.unwrap();
                going_on(batches, Then::End)
            };
            stream::once(wait).flatten().boxed()
        })
    });
    plan(partitions.collect(), false)
}

const ROWS: usize = 200;
const BATCH: usize = 10;

/// A case of 100 rows and of 20 batches of 10, in `parts` partitions; chunks of 80 rows, so that the first has 20.
fn case(parts: usize) -> Case {
    let (left, right) = (repeating_keys(51, 100, 40), repeating_keys(52, ROWS, 40));
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(100))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(ROWS))]);
    let probe = probe.in_partitions(parts, |row| row).in_batches_of(BATCH);
    let mut case = Case::new(build, probe);
    case.config.chunk_rows = 8 * BATCH;
    case
}

/// Polls partition 0 of a join of `case` a few times while its build side waits forever; how many batches of the
/// probe side, which is `wrapped`, were taken.
fn taken_while_waiting(
    case: &Case,
    endless: bool,
    wrapped: impl Fn(Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan>,
) -> usize {
    let probe = Watched::new(case.probe.clone(), Then::End);
    let build = feed(&case.build, &[Then::Wait]);
    let join = case.put_on_device(case.stock_of(build, wrapped(probe.exec(endless))));
    let context = case.context();
    block_on(async move {
        let mut stream = join.execute(0, context).unwrap();
        for _ in 0..50 {
            assert!(futures::poll!(stream.next()).is_pending());
            tokio::task::yield_now().await;
        }
    });
    probe.count()
}

#[test]
fn the_probe_side_is_read_while_the_build_side_comes() {
    for join_type in JOIN_TYPES {
        for mode in [PartitionMode::CollectLeft, PartitionMode::Partitioned] {
            let case = Case {
                join_type,
                mode,
                ..case(1)
            };
            let _guard = side_by_side();
            let expected = run(case.on_device(), case.context()).unwrap();
            let probe = Watched::new(case.probe.clone(), Then::End);
            // The stock join would wait forever.
            let build = after(&case.build, &probe, 2);
            let join = case.put_on_device(case.stock_of(build, probe.exec(false)));
            let found = run(join, case.context()).unwrap();
            assert_eq!(found.rows(), expected.rows(), "{case}");
            assert!(found.metric("kernel_launches") > 0);
            for name in ["input_rows", "input_batches", "output_rows"] {
                assert_eq!(found.metric(name), expected.metric(name), "{name}: {case}");
            }
        }
    }
}

#[test]
fn no_more_than_the_first_chunk_is_read_ahead() {
    // An empty batch stands after the first.
    assert_eq!(taken_while_waiting(&case(1), false, |probe| probe), 3);
    assert_eq!(taken_while_waiting(&case(2), false, |probe| probe), 3);
}

#[test]
fn nothing_is_read_ahead_that_may_not_be_wanted_or_that_some_node_would_keep() {
    let limited = Case {
        fetch: Some(5),
        ..case(1)
    };
    assert_eq!(taken_while_waiting(&limited, false, |probe| probe), 0);
    assert_eq!(taken_while_waiting(&case(1), true, |probe| probe), 0);
    let sorted = |probe: Arc<dyn ExecutionPlan>| {
        let key = PhysicalSortExpr::new_default(case(1).probe.column(1));
        let order = LexOrdering::new([key]).unwrap();
        Arc::new(SortExec::new(order, probe)) as Arc<dyn ExecutionPlan>
    };
    assert_eq!(taken_while_waiting(&case(1), false, sorted), 0);
    let repartitioned = |by: Partitioning| {
        move |probe: Arc<dyn ExecutionPlan>| {
            Arc::new(RepartitionExec::try_new(probe, by.clone()).unwrap()) as Arc<dyn ExecutionPlan>
        }
    };
    let by_hash = Partitioning::Hash(vec![case(1).probe.column(0)], 2);
    assert_eq!(
        taken_while_waiting(&case(1), false, repartitioned(by_hash)),
        0
    );
    let evenly = repartitioned(Partitioning::RoundRobinBatch(2));
    assert!(taken_while_waiting(&case(1), false, evenly) > 0);
    let joined = |probe: Arc<dyn ExecutionPlan>| {
        let inner = case(1);
        inner.put_on_device(inner.stock_of(inner.build.exec(), probe)) as Arc<dyn ExecutionPlan>
    };
    assert_eq!(taken_while_waiting(&case(1), false, joined), 0);
}

#[test]
fn an_error_read_ahead_is_met_when_it_is_reached() {
    let broken = Then::Error("the probe side broke");
    for (rows, fails) in [(0, false), (100, true)] {
        let mut case = case(1);
        case.build.partitions[0][0] = case.build.partitions[0][0].slice(0, rows);
        case.probe.partitions[0].truncate(1);
        let probe = Watched::new(case.probe.clone(), broken);
        // One batch and the error were read before the build side came.
        let build = after(&case.build, &probe, 2);
        let join = case.put_on_device(case.stock_of(build, probe.exec(false)));
        match run(join, case.context()) {
            Ok(run) => {
                assert!(!fails);
                assert_eq!((run.count(), run.metric("input_rows")), (0, 0));
            }
            Err(error) => {
                assert!(fails);
                assert!(
                    error.to_string().contains("the probe side broke"),
                    "{error}"
                );
            }
        }
    }
}
