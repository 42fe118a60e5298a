//! Permits to fill memory that a device copies from: how many chunks are on their way at once.
//!
//! ```text
//!  take ─ one left? ─┬─ yes ─▶ Permit ─ job done, dropped ─▶ one more left
//!                    └─ no ──▶ in line, asleep ◀─ woken: the first, as many as are left ─┘
//!                                               ◀─ woken: all, if no permit is out
//! ```
//!
//! A permit is never assigned to a sleeper, as tokio's `Semaphore` does. A join stops reading its
//! inputs in the middle of a poll, so a stream in line may never be polled again. A permit that it
//! was given would be lost to all. Whoever is polled first takes one. To wake all each time
//! instead, as a `watch` does, costs more than the copies once hundreds of streams wait.
//!
//! A stream that is not polled can swallow a wake-up. The permit then stays, and the next one that
//! comes back wakes two. If all have come back, nobody is left to do that, so all are woken.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The permits of one device.
#[derive(Debug)]
pub struct Permits(Mutex<State>);

#[derive(Debug)]
struct State {
    left: usize,
    all: usize,
    /// Waiters in line, by the number that they drew.
    waiting: BTreeMap<u64, Waker>,
    next: u64,
}

/// The permit to fill memory that the device copies from. It is dropped with the job that does so.
#[derive(Debug)]
pub struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

impl Permits {
    /// Returns `all` permits; at least one.
    pub(super) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            left: all.max(1),
            all: all.max(1),
            waiting: BTreeMap::new(),
            next: 0,
        })))
    }

    /// Waits for a permit.
    pub(super) async fn take(self: &Arc<Self>) -> Permit {
        let mut waiting = Waiting {
            permits: self,
            number: None,
        };
        poll_fn(|context| waiting.poll(context)).await;
        Permit(Arc::clone(self))
    }

    /// Takes `lost` permits as given back: their jobs hang.
    pub(super) fn renew(&self, lost: usize) {
        (0..lost).for_each(|_| self.give_back());
    }

    fn give_back(&self) {
        let mut state = self.lock();
        // One that was renewed may come back all the same.
        state.left = state.all.min(state.left + 1);
        let woken = if state.left == state.all {
            std::mem::take(&mut state.waiting)
        } else {
            let first = state.left;
            let behind = state.waiting.keys().nth(first).copied();
            let rest = behind.map(|number| state.waiting.split_off(&number));
            std::mem::replace(&mut state.waiting, rest.unwrap_or_default())
        };
        drop(state);
        woken.into_values().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in line.
struct Waiting<'a> {
    permits: &'a Permits,
    number: Option<u64>,
}

impl Waiting<'_> {
    fn poll(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.permits.lock();
        let number = self.number.take();
        let place = number.filter(|number| state.waiting.remove(number).is_some());
        if state.left > 0 {
            state.left -= 1;
            return Poll::Ready(());
        }
        let number = place.unwrap_or(state.next);
        state.next = state.next.max(number + 1);
        state.waiting.insert(number, context.waker().clone());
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.permits.lock().waiting.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;
    use futures::future::join_all;

    use super::*;

    #[test]
    fn sleepers_that_nobody_polls_keep_no_permit() {
        let permits = Permits::new(2);
        let held = [permits.take(), permits.take()].map(|take| take.now_or_never().unwrap());
        let mut parked: Vec<_> = (0..5).map(|_| Box::pin(permits.take())).collect();
        for take in &mut parked {
            assert!(take.now_or_never().is_none());
        }
        drop(held);
        // All five were woken, and none of them is polled.
        let both = [permits.take(), permits.take()].map(|take| take.now_or_never().unwrap());
        assert!(permits.take().now_or_never().is_none());
        drop((both, parked));
        assert!(permits.lock().waiting.is_empty());
        assert_eq!(permits.lock().left, 2);
    }

    #[test]
    fn a_wake_up_that_is_swallowed_is_made_up_for() {
        let permits = Permits::new(3);
        let [a, b, c] = [(), (), ()].map(|()| permits.take().now_or_never().unwrap());
        let mut parked = Box::pin(permits.take());
        assert!(parked.as_mut().now_or_never().is_none());
        let count = futures::task::noop_waker();
        let mut context = Context::from_waker(&count);
        let mut live = pin!(permits.take());
        assert!(live.as_mut().poll(&mut context).is_pending());
        drop(a);
        assert_eq!(permits.lock().waiting.len(), 1, "the first was woken");
        drop(b);
        assert!(permits.lock().waiting.is_empty(), "and the next");
        assert!(live.as_mut().poll(&mut context).is_ready());
        drop(c);
    }

    #[tokio::test(flavor = "multi_thread")]
    #[expect(clippy::await_holding_invalid_type, reason = "tasks hold them")]
    async fn all_who_wait_get_one() {
        let permits = Permits::new(3);
        let tasks = (0..500).map(|_| {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move {
                for _ in 0..20 {
                    let _permit = permits.take().await;
                    tokio::task::yield_now().await;
                }
            })
        });
        for task in join_all(tasks).await {
            task.unwrap();
        }
        assert_eq!(permits.lock().left, 3);
    }
}
