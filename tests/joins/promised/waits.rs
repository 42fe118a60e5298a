//! Streams that are left in the middle of a poll. What others wait for goes on without them.
//!
//! ```text
//!  stream 0 ─ poll, poll, left ···································· polled again
//!  stream 1 ─────────────────────── to its end, whatever 0 was about
//! ```

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use datafusion::common::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use horton_join::HortonJoinExec;
use horton_join::config::HortonConfig;
use horton_test_support::env::device;
use horton_test_support::internals::DynamicFilterExec;
use horton_test_support::plans::{metric, nodes};
use horton_test_support::turns::alone;

use super::sessions::*;

/// Time within which a stream ends that has all it needs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn rows(stream: SendableRecordBatchStream) -> Result<usize> {
    let batches: Vec<_> = stream.try_collect().await?;
    Ok(batches.iter().map(|batch| batch.num_rows()).sum())
}

/// Polls `stream` until it was pending `times` times since its last batch. Returns its rows.
async fn poll_and_leave(stream: &mut SendableRecordBatchStream, times: usize) -> usize {
    let (mut rows, mut quiet) = (0, 0);
    while quiet < times {
        match futures::poll!(stream.next()) {
            Poll::Ready(Some(batch)) => (rows, quiet) = (rows + batch.unwrap().num_rows(), 0),
            Poll::Ready(None) => break,
            Poll::Pending => {
                quiet += 1;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    }
    rows
}

/// The streams of all partitions of `plan`.
fn streams(
    plan: &Arc<dyn ExecutionPlan>,
    session: &SessionContext,
) -> Vec<SendableRecordBatchStream> {
    let context = session.task_ctx();
    let partitions = 0..plan.output_partitioning().partition_count();
    let streams = partitions.map(|p| plan.execute(p, Arc::clone(&context)).unwrap());
    streams.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_left_at_any_poll_keeps_no_other_from_its_end() {
    let queries = [
        "SELECT l.k, r.v FROM l LEFT JOIN r ON l.k = r.k",
        "SELECT l.k, r.v FROM l JOIN r ON l.k = r.k",
        "SELECT l.k FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k)",
    ];
    for at in At::BOTH {
        let session = session(at.options());
        table(&session, "l", &[("k", (0..70_000).collect())]);
        let far = (0..150_000).map(|k| k * 5).collect();
        table(&session, "r", &[("k", far), ("v", (0..150_000).collect())]);
        for sql in queries {
            let expected = query(&session, sql).await.unwrap().1;
            let expected: usize = expected.iter().map(|batch| batch.num_rows()).sum();
            for polls in [1, 2, 4, 8, 12, 16, 20, 24, 32, 48] {
                let plan = plan(&session, sql).await;
                let mut all = streams(&plan, &session);
                let about = format!("left after {polls} polls, {at:?}: {sql}");
                let mut found = poll_and_leave(&mut all[0], polls).await;
                let left = all.remove(0);
                for stream in all {
                    let ended = tokio::time::timeout(PATIENCE, rows(stream)).await;
                    found += ended.unwrap_or_else(|_| panic!("no end: {about}")).unwrap();
                }
                let ended = tokio::time::timeout(PATIENCE, rows(left)).await;
                found += ended
                    .unwrap_or_else(|_| panic!("no end of it: {about}"))
                    .unwrap();
                assert_eq!(found, expected, "{about}");
            }
        }
    }
}

/// Builds of one join tell its filters together. Sets of so many keys are made off the runtime, so
/// that a stream can be left or dropped meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_left_or_dropped_while_filters_are_made_keeps_no_other() {
    for at in At::BOTH {
        let session = partitioned(at.options());
        table(
            &session,
            "l",
            &[("k", (0..60_000).map(|k| k * 5).collect())],
        );
        table(&session, "r", &[("k", (0..150_000).collect())]);
        let sql = "SELECT l.k FROM l JOIN r ON l.k = r.k";
        for polls in 1..24 {
            for is_dropped in [false, true] {
                let plan = plan(&session, sql).await;
                assert!(!nodes::<DynamicFilterExec>(&plan).is_empty());
                let mut all = streams(&plan, &session);
                assert_eq!(all.len(), 4);
                let mut first = all.remove(polls % 4);
                let about = format!("{polls} polls, dropped: {is_dropped}, {at:?}");
                let began: Vec<_> = all
                    .into_iter()
                    .map(|rest| tokio::spawn(rows(rest)))
                    .collect();
                let mut found = poll_and_leave(&mut first, polls).await;
                let left = (!is_dropped).then_some(first);
                for stream in began {
                    let ended = tokio::time::timeout(PATIENCE, stream).await;
                    let ended = ended.unwrap_or_else(|_| panic!("no end: {about}"));
                    found += ended.unwrap().unwrap();
                }
                if let Some(left) = left {
                    found += rows(left).await.unwrap();
                    assert_eq!(found, 30_000, "{about}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_dropped_takes_no_rows_of_others_on_disk_with_it() {
    for at in At::BOTH {
        let session = with_memory(at.options(), 300 << 10);
        table(&session, "l", &[("k", (0..20_000).collect())]);
        table(&session, "r", &[("k", (0..20_000).rev().collect())]);
        let sql = "SELECT l.k FROM l JOIN r ON l.k = r.k";
        let mut whole = Vec::new();
        for stream in streams(&plan(&session, sql).await, &session) {
            whole.push(rows(stream).await.unwrap());
        }
        assert_eq!(whole.iter().sum::<usize>(), 20_000);
        for polls in [1, 3, 9, 27] {
            let plan = plan(&session, sql).await;
            let mut all = streams(&plan, &session);
            let about = format!("dropped after {polls} polls, {at:?}");
            poll_and_leave(&mut all[0], polls).await;
            drop(all.remove(0));
            for (stream, whole) in all.into_iter().zip(&whole[1..]) {
                let ended = tokio::time::timeout(PATIENCE, rows(stream)).await;
                let found = ended.unwrap_or_else(|_| panic!("no end: {about}")).unwrap();
                assert_eq!(found, *whole, "{about}");
            }
            assert!(
                metric::<HortonJoinExec>(&plan, "spill_count") > 0,
                "{about}"
            );
        }
    }
}

/// Bytes of the device that sessions may use, and what a neighbour leaves of them.
const LIMIT: u64 = 64 << 20;
const FREE: u64 = 128 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_waits_for_device_memory_and_is_left_stops_no_other_session() {
    let options = || HortonConfig {
        device_memory_limit: LIMIT,
        ..At::Device.options()
    };
    let (one, other) = (session(options()), session(options()));
    let _alone = alone();
    let far = |k: i64| k * 7919 * 104_729;
    table(&one, "b", &[("k", (0..50_000).map(far).collect())]);
    let probe = (0..4_000_000).map(|k| far(k % 100_000)).collect();
    table(&one, "p", &[("k", probe)]);
    for name in ["x", "y"] {
        table(&other, name, &[("k", (0..30_000).map(far).collect())]);
    }
    let answers = || async {
        let answer = query(&other, "SELECT count(*) FROM x JOIN y ON x.k = y.k");
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        let (_, batches) = answer.expect("the other session's query ends").unwrap();
        assert_eq!(first_column(&batches), [30_000]);
    };
    answers().await;
    let plan = plan(&one, "SELECT p.k FROM p JOIN b ON p.k = b.k").await;
    let mut left = streams(&plan, &one);
    for stream in &mut left {
        drop(stream.next().await.transpose().unwrap());
    }
    let device = device();
    let mut taken = Vec::new();
    // Each is left somewhere on its way, some of them while they wait for memory.
    for _ in 0..12 {
        let free = LIMIT.saturating_sub(device.budget().used());
        let words = free.saturating_sub(FREE) as usize / 4;
        let most = device.run(move |queue| queue.allocate::<u32>("a neighbour's", words.max(1)));
        taken.push(most.await.unwrap());
        for stream in &mut left {
            poll_and_leave(stream, 1).await;
        }
        answers().await;
    }
    drop(taken);
    answers().await;
}
