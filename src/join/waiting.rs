//! Streams that wait for what any of them may poll.
//!
//! ```text
//!  stream 0 ─ note ─┐                       ┌─▶ woken
//!  stream 1 ─ note ─┼─▶ Waiting ◀─ wake ─ a future that was polled with it as its waker
//!  stream 2 ─ note ─┘                       └─▶ all of them
//! ```
//!
//! A future remembers the waker of the last poll alone. If that is of a stream which is left in the
//! middle of a poll, nobody would come back to the future. So its waker wakes all who wait for it.
//! A stream notes itself before it looks: what happens afterwards wakes it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The streams that wait for something which one of them polls.
#[derive(Debug, Default)]
pub struct Waiting(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// Streams by number, each once. Several can be of one task.
    streams: Vec<(usize, Waker)>,
    /// Number of times that all were woken.
    wakes: usize,
}

impl Waiting {
    /// Has `stream` woken with the others from now on, by `waker`.
    pub fn note(&self, stream: usize, waker: &Waker) {
        let mut noted = self.noted();
        match noted.streams.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, last)) => last.clone_from(waker),
            None => noted.streams.push((stream, waker.clone())),
        }
    }

    /// Lets `stream` go: it has what it waited for.
    pub fn forget(&self, stream: usize) {
        self.noted().streams.retain(|(of, _)| *of != stream);
    }

    /// Returns how often all were woken.
    pub fn wakes(&self) -> usize {
        self.noted().wakes
    }

    /// Wakes all streams that wait.
    pub fn wake_all(&self) {
        let mut noted = self.noted();
        noted.wakes = noted.wakes.wrapping_add(1);
        let all = std::mem::take(&mut noted.streams);
        drop(noted);
        all.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}
