//! The chunks of the streams of a join: sent, answered, and put out.
//!
//! ```text
//!  stream 0 ─ send ─┐                                  ┌─ piece ─▶ stream 0
//!  stream 1 ─ send ─┼▶ [in flight] [in flight] ─ split ┼─ piece ─▶ stream 2
//!  stream 2 ─ send ─┘     any stream polls the first   └─ piece ─▶ stream 1
//! ```
//!
//! A device wants many keys at once, and a chunk's rows can take long to come out: an aggregate
//! above the join may need a microsecond for each. If all rows of a chunk came out of the stream
//! that sent it, a few streams would still work when all others have ended. So where streams share
//! the rows of the probe side, they share the chunks as well. An answered one is split into pieces
//! of about a batch, and each stream takes the next piece.
//!
//! Streams send in turn: while some gather and encode chunks, others emit. A chunk that is being
//! sent counts like one in flight. Else all streams would gather as soon as one chunk was answered,
//! and the device would wait.
//!
//! No stream waits for another, as any may be left in the middle of a poll. Who polls a chunk in
//! flight puts it back before the poll ends. The answer wakes all who wait.
//!
//! A stream with a probe partition of its own has a queue of its own, from which chunks come in
//! order and whole.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::device::Answer;
use crate::error::Result;
use crate::join::lookup::result::LookupResult;
use crate::join::waiting::Waiting;

use super::chunk::Chunk;
use super::send::LookupInFlight;

/// The chunks of one stream, or of all streams that share a probe side.
pub struct ChunkQueue {
    streams: usize,
    chunks: Mutex<Chunks>,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Chunks {
    /// Chunks that are not answered, first to last.
    in_flight: VecDeque<LookupInFlight>,
    /// True while a stream polls the first of them, which is not among them then.
    is_polled: bool,
    /// Chunks that streams gather and encode.
    being_sent: usize,
    /// Pieces of answered chunks.
    pieces: VecDeque<Chunk>,
}

impl Chunks {
    fn in_flight(&self) -> usize {
        self.in_flight.len() + usize::from(self.is_polled)
    }
}

/// The place of a chunk that a stream gathers and encodes, until it is dropped.
pub struct BeingSent(Arc<ChunkQueue>);

impl Drop for BeingSent {
    fn drop(&mut self) {
        // Nobody waits for a place. A stream that gets none waits for an answer, or takes a piece.
        self.0.chunks().being_sent -= 1;
    }
}

/// What comes next of a queue.
pub enum Queued {
    /// A piece of a chunk that was answered before.
    Piece(Chunk),
    /// A chunk in flight, and its answer. The others that wait are to be woken: see
    /// [`ChunkQueue::wake_all`].
    Answered(LookupInFlight, Result<Answer<LookupResult>>),
    /// Nothing is on its way.
    Nothing,
}

impl ChunkQueue {
    /// Returns the queue of so many streams.
    pub fn new(streams: usize) -> Self {
        Self {
            streams,
            chunks: Mutex::default(),
            waiting: Arc::default(),
        }
    }

    /// Returns the number of streams.
    pub fn streams(&self) -> usize {
        self.streams
    }

    /// Returns whether several streams take from it.
    pub fn is_shared(&self) -> bool {
        self.streams > 1
    }

    /// Returns whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        let chunks = self.chunks();
        chunks.in_flight() == 0 && chunks.pieces.is_empty()
    }

    /// Returns the place of a chunk that is to be sent. With it, at most `most` chunks are being
    /// sent or in flight, else there is `None`. One stream is left for pieces, as the input may be
    /// slow. If nothing is on its way, there is a place in any case, as streams that gather may be
    /// left in the middle of it.
    pub fn begin(self: &Arc<Self>, most: usize) -> Option<BeingSent> {
        let mut chunks = self.chunks();
        let (in_flight, being_sent) = (chunks.in_flight(), chunks.being_sent);
        let is_full = in_flight > 0 && in_flight + being_sent >= most;
        let leaves_pieces = !chunks.pieces.is_empty() && being_sent + 1 >= self.streams;
        if is_full || leaves_pieces {
            return None;
        }
        chunks.being_sent += 1;
        Some(BeingSent(Arc::clone(self)))
    }

    /// Adds a chunk that was sent.
    pub fn send(&self, lookup: LookupInFlight) {
        // Who waits does so for the first one in flight.
        self.chunks().in_flight.push_back(lookup);
    }

    /// Adds pieces of an answered chunk.
    pub fn put(&self, pieces: impl Iterator<Item = Chunk>) {
        self.chunks().pieces.extend(pieces);
        self.waiting.wake_all();
    }

    /// Returns the chunks in flight, which the caller sends again. Those that streams share stay:
    /// the order does not matter for them.
    pub fn take_in_flight(&self) -> VecDeque<LookupInFlight> {
        if self.is_shared() {
            return VecDeque::new();
        }
        std::mem::take(&mut self.chunks().in_flight)
    }

    /// Lets go of all chunks of a stream with a queue of its own.
    pub fn clear(&self) {
        if !self.is_shared() {
            let mut chunks = self.chunks();
            let all = (
                std::mem::take(&mut chunks.in_flight),
                std::mem::take(&mut chunks.pieces),
            );
            drop(chunks);
            drop(all);
        }
    }

    /// Returns what comes next, for stream `stream`: a piece, or the first chunk in flight. That
    /// chunk is looked at first while there are fewer pieces than streams. Else streams would wait
    /// for pieces of a chunk that was answered long ago.
    pub fn poll_next(&self, stream: usize, cx: &mut Context<'_>) -> Poll<Queued> {
        // Before the look: whatever changes then wakes those that are noted.
        self.waiting.note(stream, cx.waker());
        let mut chunks = self.chunks();
        if chunks.pieces.len() < self.streams
            && !chunks.is_polled
            && let Some(lookup) = chunks.in_flight.pop_front()
        {
            chunks.is_polled = true;
            drop(chunks);
            if let Poll::Ready(answered) = self.poll_first(stream, lookup) {
                return Poll::Ready(answered);
            }
            chunks = self.chunks();
            // Whoever took that chunk in the meantime wakes this stream for its pieces.
            if chunks.pieces.is_empty() {
                return Poll::Pending;
            }
        }
        if let Some(mut piece) = chunks.pieces.pop_front() {
            drop(chunks);
            self.waiting.forget(stream);
            piece.began = Instant::now();
            return Poll::Ready(Queued::Piece(piece));
        }
        if chunks.in_flight() > 0 {
            return Poll::Pending;
        }
        drop(chunks);
        self.waiting.forget(stream);
        Poll::Ready(Queued::Nothing)
    }

    /// Polls the chunk that was the first one in flight, without the lock: a host that looks keys
    /// up in the device's place may take its time.
    fn poll_first(&self, stream: usize, mut lookup: LookupInFlight) -> Poll<Queued> {
        let wakes = self.waiting.wakes();
        let waker = Waker::from(Arc::clone(&self.waiting));
        let poll = || {
            lookup
                .answer
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
        };
        let answer = catch_unwind(AssertUnwindSafe(poll));
        let mut chunks = self.chunks();
        chunks.is_polled = false;
        if let Ok(Poll::Pending) = answer {
            chunks.in_flight.push_front(lookup);
            drop(chunks);
            // A wake in the meantime did not reach those that were noted after it.
            if self.waiting.wakes() != wakes {
                self.waiting.wake_all();
            }
            return Poll::Pending;
        }
        drop(chunks);
        self.waiting.forget(stream);
        match answer {
            Ok(answer) => answer.map(|answer| Queued::Answered(lookup, answer)),
            Err(panic) => {
                self.wake_all();
                resume_unwind(panic)
            }
        }
    }

    /// Wakes the streams that wait. Whoever got an answer does so once its pieces are here, or
    /// before it waits for anything: others would find nothing, and end.
    pub fn wake_all(&self) {
        self.waiting.wake_all();
    }

    fn chunks(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use datafusion::execution::memory_pool::{MemoryPool, UnboundedMemoryPool};
    use futures::FutureExt;
    use futures::channel::oneshot;
    use futures::future::BoxFuture;

    use crate::join::lookup::result::LookupKind;
    use crate::join::memory::ProbeMemory;

    use super::*;

    type Found = Result<Answer<LookupResult>>;

    /// A stream that counts how often it is woken.
    #[derive(Default)]
    struct Stream(AtomicUsize);

    impl Wake for Stream {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Stream {
        fn poll(self: &Arc<Self>, queue: &ChunkQueue, at: usize) -> Poll<Queued> {
            let waker = Waker::from(Arc::clone(self));
            queue.poll_next(at, &mut Context::from_waker(&waker))
        }

        fn woken(&self) -> usize {
            self.0.swap(0, Ordering::SeqCst)
        }
    }

    fn memory() -> ProbeMemory {
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        ProbeMemory::new(&pool, 0)
    }

    fn lookup(answer: BoxFuture<'static, Found>) -> LookupInFlight {
        LookupInFlight {
            batches: VecDeque::new(),
            memory: memory(),
            wanted: LookupKind::Count,
            table: None,
            answer,
        }
    }

    /// A lookup that is answered with so many pairs once the sender has sent them.
    fn open() -> (oneshot::Sender<u64>, LookupInFlight) {
        let (sender, receiver) = oneshot::channel();
        let answer = receiver.map(|total| Ok(answer(total.unwrap())));
        (sender, lookup(answer.boxed()))
    }

    fn answer(total: u64) -> Answer<LookupResult> {
        Answer {
            value: LookupResult {
                total,
                ..LookupResult::default()
            },
            cost: Default::default(),
        }
    }

    fn piece(total: u64) -> Chunk {
        let found = answer(total).value;
        Chunk::new(VecDeque::new(), memory(), found, LookupKind::Count, None)
    }

    /// The pairs of what comes next; `None` if nothing does.
    fn pairs(next: Poll<Queued>) -> Option<u64> {
        match next {
            Poll::Ready(Queued::Piece(piece)) => Some(piece.found.total),
            Poll::Ready(Queued::Answered(_, answer)) => Some(answer.unwrap().value.total),
            Poll::Ready(Queued::Nothing) => None,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_stream_that_is_left_keeps_no_answer_from_others() {
        let queue = Arc::new(ChunkQueue::new(3));
        let (sender, lookup) = open();
        queue.send(lookup);
        let [first, second, third] = [(); 3].map(|()| Arc::<Stream>::default());
        for (at, stream) in [&first, &second].into_iter().enumerate() {
            assert!(stream.poll(&queue, at).is_pending());
        }
        assert!(queue.begin(1).is_none(), "it is in flight while they wait");
        sender.send(5).unwrap();
        // The one that polled last is left.
        assert_eq!(first.woken(), 1);
        assert_eq!(pairs(first.poll(&queue, 0)), Some(5));
        assert!(queue.is_empty());
        assert_eq!(pairs(third.poll(&queue, 2)), None);
    }

    #[test]
    fn streams_that_wait_are_woken_for_pieces_and_for_the_next_chunk() {
        let queue = ChunkQueue::new(2);
        let ((first, lookup_1), (second, lookup_2)) = (open(), open());
        queue.send(lookup_1);
        queue.send(lookup_2);
        let [one, other] = [(); 2].map(|()| Arc::<Stream>::default());
        assert!(other.poll(&queue, 1).is_pending());
        first.send(1).unwrap();
        assert_eq!(other.woken(), 1);
        assert!(one.poll(&queue, 0).is_ready());
        // Nobody has polled the second one yet.
        assert!(other.poll(&queue, 1).is_pending());
        second.send(2).unwrap();
        assert_eq!(other.woken(), 1);
        queue.put([piece(3), piece(4)].into_iter());
        let all: Vec<_> = (0..4).map(|_| pairs(other.poll(&queue, 1))).collect();
        // An answered chunk comes before the last piece: there are fewer than streams.
        assert_eq!(all, [Some(3), Some(2), Some(4), None]);
        assert!(one.poll(&queue, 0).is_ready());
    }

    #[test]
    fn a_stream_that_comes_while_another_polls_is_woken_afterwards() {
        let queue = Arc::new(ChunkQueue::new(2));
        let other = Arc::<Stream>::default();
        let (inner, waits) = (Arc::clone(&queue), Arc::clone(&other));
        let answers = poll_twice(move |cx| {
            // It is on its way as long as it is polled, and wakes all before the other has come.
            assert!(inner.begin(1).is_none());
            cx.waker().wake_by_ref();
            assert!(waits.poll(&inner, 1).is_pending());
        });
        queue.send(lookup(answers));
        let one = Arc::<Stream>::default();
        assert!(one.poll(&queue, 0).is_pending());
        assert_eq!(other.woken(), 1);
        assert_eq!(pairs(one.poll(&queue, 0)), Some(0));
        assert_eq!(other.woken(), 0, "it would end");
        queue.put([piece(1)].into_iter());
        assert_eq!(other.woken(), 1);
    }

    #[test]
    fn pieces_come_while_the_next_chunk_is_not_answered() {
        let queue = ChunkQueue::new(3);
        let (sender, lookup) = open();
        queue.send(lookup);
        queue.put([piece(1), piece(2)].into_iter());
        let [one, other] = [(); 2].map(|()| Arc::<Stream>::default());
        assert_eq!(pairs(one.poll(&queue, 0)), Some(1));
        assert_eq!(pairs(other.poll(&queue, 1)), Some(2));
        assert!(other.poll(&queue, 1).is_pending());
        sender.send(3).unwrap();
        assert_eq!((one.woken(), other.woken()), (0, 1));
        assert_eq!(pairs(one.poll(&queue, 0)), Some(3));
    }

    #[test]
    fn chunks_that_are_being_sent_count_while_one_is_in_flight() {
        let queue = Arc::new(ChunkQueue::new(2));
        let left: Vec<_> = (0..5).map(|_| queue.begin(2)).collect();
        assert!(
            left.iter().all(Option::is_some),
            "nothing else is on its way"
        );
        let (_sender, lookup) = open();
        queue.send(lookup);
        assert!(queue.begin(6).is_none());
        drop(left);
        let second = queue.begin(2);
        assert!(second.is_some() && queue.begin(2).is_none());
        drop(second);
        assert!(queue.begin(2).is_some());
    }

    #[test]
    fn one_stream_is_left_for_pieces_while_the_others_gather() {
        let queue = Arc::new(ChunkQueue::new(3));
        queue.put([piece(1)].into_iter());
        let others = [queue.begin(4), queue.begin(4)];
        assert!(others.iter().all(Option::is_some));
        assert!(queue.begin(4).is_none(), "the input may be slow");
        let one = Arc::<Stream>::default();
        assert_eq!(pairs(one.poll(&queue, 0)), Some(1));
        assert!(queue.begin(4).is_some(), "nothing is left to put out");
    }

    #[test]
    fn a_panic_wakes_those_that_wait() {
        let queue = Arc::new(ChunkQueue::new(2));
        let other = Arc::<Stream>::default();
        let (inner, waits) = (Arc::clone(&queue), Arc::clone(&other));
        let panics = async move {
            assert!(waits.poll(&inner, 1).is_pending());
            panic!("of a lookup")
        };
        queue.send(lookup(panics.boxed()));
        let one = Arc::<Stream>::default();
        let polled = catch_unwind(AssertUnwindSafe(|| one.poll(&queue, 0)));
        assert!(polled.is_err());
        assert_eq!(other.woken(), 1);
        assert_eq!(pairs(other.poll(&queue, 1)), None);
    }

    #[test]
    fn chunks_of_one_stream_come_in_order_and_go_back_together() {
        let queue = ChunkQueue::new(1);
        let ready = |total| lookup(futures::future::ready(Ok(answer(total))).boxed());
        (1..5).for_each(|total| queue.send(ready(total)));
        let one = Arc::<Stream>::default();
        assert_eq!(pairs(one.poll(&queue, 0)), Some(1));
        assert_eq!(pairs(one.poll(&queue, 0)), Some(2));
        assert_eq!(queue.take_in_flight().len(), 2);
        assert_eq!(pairs(one.poll(&queue, 0)), None);
        queue.send(ready(6));
        queue.clear();
        assert!(queue.is_empty());
        let shared = ChunkQueue::new(2);
        shared.send(ready(7));
        shared.clear();
        assert!(shared.take_in_flight().is_empty() && !shared.is_empty());
    }

    /// A future that `does` something in each poll, and is ready in the second one.
    fn poll_twice(
        mut does: impl FnMut(&mut Context<'_>) + Send + 'static,
    ) -> BoxFuture<'static, Found> {
        let mut is_first = true;
        let poll = move |cx: &mut Context<'_>| {
            does(cx);
            if std::mem::take(&mut is_first) {
                Poll::Pending
            } else {
                Poll::Ready(Ok(answer(0)))
            }
        };
        futures::future::poll_fn(poll).boxed()
    }
}
