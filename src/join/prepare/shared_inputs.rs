//! The partitions of the probe side, whose batches any probe stream may take.
//!
//! ```text
//!  partition 0  [ ]                      stream 0 ─ its own has ended ──┐
//!  partition 1  [ ][ ][ ][ ][ ]  ◀────── stream 1                       │
//!       ▲                                                               │
//!       └───────────────────────────────────────────────────────────────┘
//! ```
//!
//! The partitions of a scan can differ much: statistics and filters may leave the row groups of a
//! few partitions only. If each stream probed one partition, a few streams would also aggregate and
//! sort whatever the join returns, while the other cores wait. `HashJoinExec` avoids that as it
//! repartitions both sides by the keys. A table that all streams look up needs no such partitions.
//! So a stream reads its own partition, and then those of others (work stealing).
//!
//! A stream may be left in the middle of a poll. So none holds a partition for longer than a call
//! of `poll_next`, and all that wait for a partition are woken when it has something. A
//! `RepartitionExec` with round robin, or a channel, hands each batch from task to task. That costs
//! where partitions are even, and here nothing is handed over then.
//!
//! Source: Leis et al., "Morsel-driven parallelism", SIGMOD 2014, section 3, for the stealing.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::{Context, Poll, Waker};

use arrow::array::RecordBatch;
use datafusion::common::exec_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use futures::stream::poll_fn;

use crate::join::waiting::Waiting;

/// Returns `streams` streams that share the batches of `partitions`: each is in one of them. An
/// error of a partition is one of all streams that come to read it.
pub fn share(
    partitions: Vec<SendableRecordBatchStream>,
    streams: usize,
) -> Vec<SendableRecordBatchStream> {
    let Some(schema) = partitions.first().map(|partition| partition.schema()) else {
        return Vec::new();
    };
    let inputs: Vec<SharedInput> = partitions.into_iter().map(SharedInput::new).collect();
    let inputs = Arc::new(inputs);
    let stream = |own| {
        let inputs = Arc::clone(&inputs);
        let batches = poll_fn(move |cx| poll_any(&inputs, own, cx));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches)) as _
    };
    (0..streams).map(stream).collect()
}

/// Returns the next batch of `inputs` for the stream that reads input `own` first. There may be
/// fewer inputs.
fn poll_any(
    inputs: &[SharedInput],
    own: usize,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<RecordBatch>>> {
    if let Some(input) = inputs.get(own) {
        match input.poll_next(own, cx) {
            Poll::Ready(None) => {}
            next => return next,
        }
    }
    let after = own.min(inputs.len());
    let mut is_any_pending = false;
    for input in inputs[after..].iter().chain(&inputs[..after]) {
        match input.poll_next(own, cx) {
            Poll::Ready(None) => {}
            Poll::Pending => is_any_pending = true,
            batch => return batch,
        }
    }
    if is_any_pending {
        Poll::Pending
    } else {
        Poll::Ready(None)
    }
}

/// One partition of the probe side.
struct SharedInput {
    state: Mutex<InputState>,
    waiting: Arc<Waiting>,
    /// True once it has ended. Idle streams ask all partitions for each batch of the last one.
    has_ended: AtomicBool,
}

/// ```text
///  Open ── ended ──▶ Ended
///    └── error, panic ──▶ Failed
/// ```
enum InputState {
    Open(SendableRecordBatchStream),
    Ended,
    Failed(Arc<DataFusionError>),
}

impl SharedInput {
    fn new(partition: SendableRecordBatchStream) -> Self {
        Self {
            state: Mutex::new(InputState::Open(partition)),
            waiting: Arc::default(),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Returns the next batch for stream `stream`. It is pending, too, while another stream polls
    /// the partition. A stream that is told so is woken.
    fn poll_next(&self, stream: usize, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if self.has_ended.load(Ordering::Acquire) {
            return Poll::Ready(None);
        }
        // Before the attempt: whoever holds the partition wakes those that are noted by its end.
        self.waiting.note(stream, cx.waker());
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => return Poll::Pending,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
        };
        let wakes = self.waiting.wakes();
        let next = catch_unwind(AssertUnwindSafe(|| state.poll_next(&self.waiting)));
        if next.is_err() {
            let error = exec_datafusion_err!("a partition of the probe side panicked");
            *state = InputState::Failed(Arc::new(error));
        }
        self.has_ended
            .store(matches!(*state, InputState::Ended), Ordering::Release);
        drop(state);
        let is_pending = matches!(next, Ok(Poll::Pending));
        if !is_pending {
            self.waiting.forget(stream);
        }
        // A wake in the meantime did not reach those that were noted after it.
        if !is_pending || self.waiting.wakes() != wakes {
            self.waiting.wake_all();
        }
        next.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl InputState {
    fn poll_next(&mut self, waiting: &Arc<Waiting>) -> Poll<Option<Result<RecordBatch>>> {
        let partition = match self {
            InputState::Open(partition) => partition,
            InputState::Ended => return Poll::Ready(None),
            InputState::Failed(error) => {
                let error = DataFusionError::Shared(Arc::clone(error));
                return Poll::Ready(Some(Err(error)));
            }
        };
        let waker = Waker::from(Arc::clone(waiting));
        match partition.poll_next_unpin(&mut Context::from_waker(&waker)) {
            Poll::Ready(Some(Err(error))) => {
                let error = Arc::new(error);
                *self = InputState::Failed(Arc::clone(&error));
                Poll::Ready(Some(Err(DataFusionError::Shared(error))))
            }
            Poll::Ready(None) => {
                *self = InputState::Ended;
                Poll::Ready(None)
            }
            next => next,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use arrow::datatypes::Schema;
    use datafusion::common::exec_err;

    use super::*;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Task {
        fn poll(
            self: &Arc<Self>,
            stream: &mut SendableRecordBatchStream,
        ) -> Poll<Option<Result<RecordBatch>>> {
            let waker = Waker::from(Arc::clone(self));
            stream.poll_next_unpin(&mut Context::from_waker(&waker))
        }

        fn woken(&self) -> usize {
            self.0.swap(0, Ordering::SeqCst)
        }
    }

    fn batch() -> RecordBatch {
        RecordBatch::new_empty(Arc::new(Schema::empty()))
    }

    fn stream(
        poll: impl FnMut(&mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> + Send + 'static,
    ) -> SendableRecordBatchStream {
        let schema = Arc::new(Schema::empty());
        Box::pin(RecordBatchStreamAdapter::new(schema, poll_fn(poll)))
    }

    /// A partition that waits until its waker is taken and woken, and then has a batch.
    fn waiting() -> (Arc<Mutex<Option<Waker>>>, SendableRecordBatchStream) {
        let waits: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (noted, mut is_first) = (Arc::clone(&waits), true);
        let partition = stream(move |cx| {
            if std::mem::take(&mut is_first) || noted.lock().unwrap().is_some() {
                *noted.lock().unwrap() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            is_first = true;
            Poll::Ready(Some(Ok(batch())))
        });
        (waits, partition)
    }

    #[test]
    fn all_that_wait_for_a_partition_are_woken_whoever_polled_last() {
        let (waits, partition) = waiting();
        let mut streams = share(vec![partition], 3);
        let tasks = [(); 3].map(|()| Arc::<Task>::default());
        for (task, stream) in tasks.iter().zip(&mut streams) {
            assert!(task.poll(stream).is_pending());
        }
        waits.lock().unwrap().take().unwrap().wake();
        assert!(tasks.iter().all(|task| task.woken() == 1));
        // The last one is left. The first one finds the batch, and all others hear of it.
        assert!(tasks[1].poll(&mut streams[1]).is_ready());
        assert!(tasks[0].poll(&mut streams[0]).is_pending());
        waits.lock().unwrap().take().unwrap().wake();
        assert_eq!(tasks[0].woken(), 1);
    }

    #[test]
    fn a_stream_that_finds_a_partition_in_use_is_woken_when_it_is_not() {
        let other: Arc<Mutex<Option<SendableRecordBatchStream>>> = Arc::default();
        let task = Arc::<Task>::default();
        let (inner, waits) = (Arc::clone(&other), Arc::clone(&task));
        let partition = stream(move |_| {
            let mut stream = inner.lock().unwrap();
            assert!(waits.poll(stream.as_mut().unwrap()).is_pending());
            Poll::Ready(Some(Ok(batch())))
        });
        let mut streams = share(vec![partition], 2);
        *other.lock().unwrap() = streams.pop();
        assert!(Arc::<Task>::default().poll(&mut streams[0]).is_ready());
        assert_eq!(task.woken(), 1);
    }

    /// The partition wakes while it is polled, before another stream finds it in use.
    #[test]
    fn a_stream_that_comes_after_a_wake_is_woken_with_the_others() {
        let other: Arc<Mutex<Option<SendableRecordBatchStream>>> = Arc::default();
        let task = Arc::<Task>::default();
        let (inner, waits) = (Arc::clone(&other), Arc::clone(&task));
        let partition = stream(move |cx| {
            cx.waker().wake_by_ref();
            let mut stream = inner.lock().unwrap();
            assert!(waits.poll(stream.as_mut().unwrap()).is_pending());
            Poll::Pending
        });
        let mut streams = share(vec![partition], 2);
        *other.lock().unwrap() = streams.pop();
        assert!(Arc::<Task>::default().poll(&mut streams[0]).is_pending());
        assert_eq!(task.woken(), 1);
    }

    #[test]
    fn two_streams_of_one_task_wait_for_themselves() {
        let (waits, partition) = waiting();
        let mut streams = share(vec![partition], 2);
        let task = Arc::<Task>::default();
        assert!(task.poll(&mut streams[0]).is_pending());
        // The value is there, and its wake is still to come.
        let waker = waits.lock().unwrap().take().unwrap();
        assert!(task.poll(&mut streams[1]).is_ready());
        assert_eq!(task.woken(), 1);
        waker.wake();
    }

    #[test]
    fn a_panic_wakes_those_that_wait() {
        let other: Arc<Mutex<Option<SendableRecordBatchStream>>> = Arc::default();
        let task = Arc::<Task>::default();
        let (inner, waits) = (Arc::clone(&other), Arc::clone(&task));
        let partition = stream(move |_| {
            let mut stream = inner.lock().unwrap().take().unwrap();
            assert!(waits.poll(&mut stream).is_pending());
            panic!("of a partition")
        });
        let mut streams = share(vec![partition], 2);
        *other.lock().unwrap() = streams.pop();
        let first = Arc::<Task>::default();
        assert!(catch_unwind(AssertUnwindSafe(|| first.poll(&mut streams[0]))).is_err());
        assert_eq!(task.woken(), 1);
    }

    #[test]
    fn a_stream_waits_for_its_own_partition_before_it_takes_from_others() {
        let (waits, own) = waiting();
        let other = stream(|_| Poll::Ready(Some(Ok(batch()))));
        let mut streams = share(vec![own, other], 2);
        let task = Arc::<Task>::default();
        assert!(task.poll(&mut streams[0]).is_pending());
        waits.lock().unwrap().take().unwrap().wake();
        assert!(task.poll(&mut streams[0]).is_ready());
        assert!(task.poll(&mut streams[1]).is_ready());
    }

    #[test]
    fn an_error_and_a_panic_of_a_partition_reach_all_streams() {
        let task = Arc::<Task>::default();
        let mut once = Some(());
        let failing = stream(move |_| {
            once.take().expect("not polled after its error");
            Poll::Ready(Some(exec_err!("no such file")))
        });
        for mut stream in share(vec![failing], 3) {
            let Poll::Ready(Some(Err(error))) = task.poll(&mut stream) else {
                panic!("no error");
            };
            assert!(error.to_string().contains("no such file"), "{error}");
        }
        let mut streams = share(vec![stream(|_| panic!("of a partition"))], 2);
        assert!(catch_unwind(AssertUnwindSafe(|| task.poll(&mut streams[0]))).is_err());
        let Poll::Ready(Some(Err(error))) = task.poll(&mut streams[1]) else {
            panic!("no error");
        };
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}
