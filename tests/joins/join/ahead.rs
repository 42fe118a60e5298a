//! Times at which a join must not read its probe side yet, and errors that it read early.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::joins::PartitionMode;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use futures::StreamExt;
use tokio::sync::watch;

use crate::feed::{Then, feed, going_on, partition, plan};
use horton_test_support::joins::*;

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

const ROWS: usize = 200;
const BATCH: usize = 10;

/// A case of 100 rows and of 20 batches of 10, in `parts` partitions; chunks of 80 rows, so that
/// the first has 20.
fn case(parts: usize) -> Case {
    let (left, right) = (repeating_keys(51, 100, 40), repeating_keys(52, ROWS, 40));
    let build = Side::new(vec![("k", ints(&left)), ("v", payload(100))]);
    let probe = Side::new(vec![("k", ints(&right)), ("w", payload(ROWS))]);
    let probe = probe.in_partitions(parts, |row| row).in_batches_of(BATCH);
    let mut case = Case::new(build, probe);
    case.config.chunk_rows = 8 * BATCH;
    case
}

/// Polls partition 0 of a join of `case` a few times while its build side waits forever; how many
/// batches of the probe side, which is `wrapped`, were taken.
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
fn the_probe_side_is_not_read_while_the_build_side_comes() {
    let limited = Case {
        fetch: Some(5),
        ..case(1)
    };
    let open = Case {
        mode: PartitionMode::Auto,
        ..case(1)
    };
    let sorted = |probe: Arc<dyn ExecutionPlan>| {
        let key = PhysicalSortExpr::new_default(case(1).probe.column(1));
        let order = LexOrdering::new([key]).unwrap();
        Arc::new(SortExec::new(order, probe)) as Arc<dyn ExecutionPlan>
    };
    let repartitioned = |by: Partitioning| {
        move |probe: Arc<dyn ExecutionPlan>| {
            Arc::new(RepartitionExec::try_new(probe, by.clone()).unwrap()) as Arc<dyn ExecutionPlan>
        }
    };
    let by_hash = Partitioning::Hash(vec![case(1).probe.column(0)], 2);
    let (by_hash, evenly) = (
        repartitioned(by_hash),
        repartitioned(Partitioning::RoundRobinBatch(2)),
    );
    let joined = |probe: Arc<dyn ExecutionPlan>| {
        let inner = case(1);
        inner.put_on_device(inner.stock_of(inner.build.exec(), probe)) as Arc<dyn ExecutionPlan>
    };
    for case in [case(1), limited, open] {
        assert_eq!(taken_while_waiting(&case, false, |probe| probe), 0);
        assert_eq!(taken_while_waiting(&case, true, |probe| probe), 0);
        assert_eq!(taken_while_waiting(&case, false, sorted), 0);
        assert_eq!(taken_while_waiting(&case, false, &by_hash), 0);
        assert_eq!(taken_while_waiting(&case, false, &evenly), 0);
        assert_eq!(taken_while_waiting(&case, false, joined), 0);
    }
}

#[test]
fn an_error_read_early_is_met_when_it_is_reached() {
    let broken = Then::Error("the probe side broke");
    side_by_side();
    for (can_match, fails) in [(false, false), (true, true)] {
        let mut case = case(1);
        case.mode = PartitionMode::Auto;
        // The build side has 100 rows: its first read ends before it does.
        case.config.knobs.sample_rows = 50;
        case.build = case.build.in_batches_of(BATCH);
        if !can_match {
            let keys = vec![None; 100];
            case.build = Side::new(vec![("k", ints(&keys)), ("v", payload(100))]);
            case.build = case.build.in_batches_of(BATCH);
        }
        case.probe.partitions[0].truncate(1);
        let probe = Watched::new(case.probe.clone(), broken);
        let join = case.put_on_device(case.stock_of(case.build.exec(), probe.exec(false)));
        let run = run(join, case.context());
        // One batch and the error.
        assert_eq!(probe.count(), 2);
        match run {
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
