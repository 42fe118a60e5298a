//! Command queues: each has a thread that falls behind its callers by a seed.
//!
//! ```text
//!  clEnqueue… ─▶ Command { work, event, waits } ─▶ channel ─▶ thread: waits, dawdles, works
//!                              ▲                                 └─▶ event: ended, how and when
//!                              └── clFinish, blocking calls and clWaitForEvents wait for it
//! ```
//!
//! PoCL's commands are done when a caller waits for them, and mostly before. A GPU's are done much
//! later, and those of one queue say nothing of those of another. What the host may not touch until
//! then, it may touch by mistake for years. Here the thread of a queue draws how long it dawdles
//! before each command: not at all, for some turns of other threads, or for up to a millisecond.
//! Without a seed commands are done in the call.
//!
//! A queue goes on behind a command that failed, with whatever that has left. The emulated chip
//! stops a kernel that then touches what is none of its buffers. Nothing would stop a native one
//! (`native`), so there it does nothing instead, and says that it has done its work.
//!
//! Source: the OpenCL specification 3.0, sections 3.2.1 (queues) and 5.11 (events).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::faults;
use crate::objects::{Object, Ptr};
use crate::settings::settings;
use crate::status::{
    COMPLETE, Called, EXEC_STATUS_ERROR_FOR_EVENTS, INVALID_COMMAND_QUEUE, INVALID_EVENT,
    OUT_OF_RESOURCES, QUEUED, RUNNING,
};

/// A command's work; its status if it fails.
pub type Work = Box<dyn FnOnce() -> Called<()> + Send>;

/// What becomes of a command.
pub struct Event {
    pub queue: Ptr,
    pub kind: u32,
    state: Mutex<State>,
    ended: Condvar,
}

/// ```text
///  QUEUED ─▶ RUNNING ─▶ COMPLETE, or an error below 0
/// ```
#[derive(Clone, Copy)]
struct State {
    status: i32,
    /// Nanoseconds of a clock of this process.
    started: u64,
    ended: u64,
}

// SAFETY: `queue` is a number that stands for an object; nobody follows it.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Object for Event {
    const INVALID: i32 = INVALID_EVENT;
}

impl Event {
    fn new(queue: Ptr, kind: u32) -> Arc<Self> {
        let state = State {
            status: QUEUED,
            started: 0,
            ended: 0,
        };
        Arc::new(Self {
            queue,
            kind,
            state: Mutex::new(state),
            ended: Condvar::new(),
        })
    }

    /// Returns the command's status.
    pub fn status(&self) -> i32 {
        self.state().status
    }

    /// Returns when it was started and when it ended, in nanoseconds.
    pub fn times(&self) -> (u64, u64) {
        let state = self.state();
        (state.started, state.ended)
    }

    /// Waits until the command has ended. Returns how.
    pub fn wait(&self) -> i32 {
        let state = self.state();
        let state = self.ended.wait_while(state, |state| state.status > 0);
        state.unwrap_or_else(PoisonError::into_inner).status
    }

    fn run(&self, work: Work) {
        let mut state = self.state();
        state.status = RUNNING;
        state.started = now();
        drop(state);
        let status = work().err().unwrap_or(COMPLETE);
        self.end(status);
    }

    fn end(&self, status: i32) {
        let mut state = self.state();
        state.ended = now();
        state.started = state.started.min(state.ended);
        state.status = status;
        drop(state);
        self.ended.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for all of `events`.
///
/// # Errors
/// The status that says that one of them has failed.
pub fn wait_for(events: &[Arc<Event>]) -> Called<()> {
    let failed = events.iter().filter(|event| event.wait() < 0).count();
    match failed {
        0 => Ok(()),
        _ => Err(EXEC_STATUS_ERROR_FOR_EVENTS),
    }
}

struct Command {
    work: Work,
    waits: Vec<Arc<Event>>,
    event: Arc<Event>,
}

impl Command {
    /// Runs it, and notes if it `has_failed`.
    fn run(self, has_failed: &AtomicBool) {
        match wait_for(&self.waits) {
            Ok(()) => self.event.run(self.work),
            Err(status) => self.event.end(status),
        }
        if self.event.status() < 0 {
            has_failed.store(true, Ordering::SeqCst);
        }
    }
}

/// A command queue.
pub struct Queue {
    pub context: Ptr,
    pub properties: u64,
    /// To its thread; `None` if commands are done in the call.
    commands: Option<Mutex<Sender<Command>>>,
    /// Whether one of its commands has failed.
    has_failed: Arc<AtomicBool>,
}

// SAFETY: `context` is a number that stands for an object; nobody follows it.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Object for Queue {
    const INVALID: i32 = INVALID_COMMAND_QUEUE;
}

/// The type of a command that only marks a place in line.
const MARKER: u32 = 0x11fe;

/// Types of commands that map memory and unmap it.
pub const MAP: u32 = 0x11fb;
pub const UNMAP: u32 = 0x11fd;

impl Queue {
    /// Returns a queue. Its thread ends with the last command, once the queue is released.
    ///
    /// # Errors
    /// The status of a machine that has no more threads.
    pub fn new(context: Ptr, properties: u64) -> Called<Arc<Self>> {
        let has_failed = Arc::<AtomicBool>::default();
        let commands = match settings().seed {
            None => None,
            Some(seed) => {
                static QUEUES: AtomicU64 = AtomicU64::new(0);
                let (sender, receiver) = channel();
                let queue = QUEUES.fetch_add(1, Ordering::SeqCst);
                let random = Random::new(seed ^ queue.rotate_left(32));
                let thread = std::thread::Builder::new().name("horton-driver queue".to_owned());
                let failed = Arc::clone(&has_failed);
                let started = thread.spawn(move || work_off(&receiver, &failed, random));
                started.map_err(|_| OUT_OF_RESOURCES)?;
                Some(Mutex::new(sender))
            }
        };
        Ok(Arc::new(Self {
            context,
            properties,
            commands,
            has_failed,
        }))
    }

    /// Returns what becomes of a native kernel's `work` here: none is done once a command before
    /// has failed.
    pub fn unless_failed(&self, work: Work) -> Work {
        let has_failed = Arc::clone(&self.has_failed);
        Box::new(move || match has_failed.load(Ordering::SeqCst) {
            true => Ok(()),
            false => work(),
        })
    }

    /// Puts a command of type `kind` in line, which waits for `waits`. `queue` is its own handle.
    ///
    /// # Errors
    /// The status of a queue whose thread is gone.
    pub fn send(
        &self,
        (queue, kind): (Ptr, u32),
        waits: Vec<Arc<Event>>,
        work: Work,
    ) -> Called<Arc<Event>> {
        let event = Event::new(queue, kind);
        // What only marks a place does nothing that could fail.
        let work = match kind {
            MARKER => work,
            _ => faults::of_command(work),
        };
        let command = Command {
            work,
            waits,
            event: Arc::clone(&event),
        };
        match &self.commands {
            None => command.run(&self.has_failed),
            Some(commands) => {
                let commands = commands.lock().unwrap_or_else(PoisonError::into_inner);
                commands.send(command).map_err(|_| OUT_OF_RESOURCES)?;
            }
        }
        Ok(event)
    }

    /// Waits until all commands have ended. That some failed is no error of this call.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn finish(&self, queue: Ptr) -> Called<()> {
        let nothing = Box::new(|| Ok(()));
        self.send((queue, MARKER), Vec::new(), nothing)?.wait();
        Ok(())
    }
}

fn work_off(commands: &Receiver<Command>, has_failed: &AtomicBool, mut random: Random) {
    while let Ok(command) = commands.recv() {
        random.dawdle();
        command.run(has_failed);
    }
}

/// Numbers drawn from a seed by xorshift (Marsaglia, 2003).
pub struct Random(u64);

impl Random {
    /// Returns the numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }

    /// Lets others go on for a time that is drawn.
    fn dawdle(&mut self) {
        match self.below(8) {
            0..4 => {}
            4..7 => (0..self.below(16)).for_each(|_| std::thread::yield_now()),
            _ => std::thread::sleep(Duration::from_micros(self.below(1000))),
        }
    }
}

fn now() -> u64 {
    static BEGUN: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    // A time of 0 would look like none.
    BEGUN.elapsed().as_nanos() as u64 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_waits_for_a_failed_one_fails() {
        let failed = Event::new(std::ptr::null_mut(), 0);
        failed.run(Box::new(|| Err(OUT_OF_RESOURCES)));
        let event = Event::new(std::ptr::null_mut(), 0);
        let command = Command {
            work: Box::new(|| panic!("it runs")),
            waits: vec![failed],
            event: Arc::clone(&event),
        };
        let has_failed = AtomicBool::new(false);
        command.run(&has_failed);
        assert_eq!(event.wait(), EXEC_STATUS_ERROR_FOR_EVENTS);
        assert!(has_failed.into_inner());
    }

    #[test]
    fn a_seed_draws_the_same_again() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [(); 20].map(|()| random.below(1000))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
