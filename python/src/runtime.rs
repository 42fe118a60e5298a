//! The threads that run queries: one runtime for the module, and tasks on it that end with their
//! owner.
//!
//! ```text
//!  Python thread ─ spawn ─▶ Task ┄┄▶ tokio's threads run it
//!        └ wait: until it is done, or a signal handler raises; dropping the task stops it
//! ```

use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use std::{process, thread};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// Time that Ctrl-C may wait.
pub const SIGNALS: Duration = Duration::from_millis(50);

/// Deep plans recurse deeply.
const STACK_BYTES: usize = 16 << 20;

struct Own {
    process: u32,
    runtime: Runtime,
}

/// Returns the runtime.
///
/// # Errors
/// In a process that was forked off another one that had it: threads and devices stayed there.
fn runtime() -> Result<&'static Runtime, Failure> {
    static OWN: OnceLock<Result<Own, String>> = OnceLock::new();
    let made = OWN.get_or_init(|| {
        let runtime = Builder::new_multi_thread()
            .enable_all()
            .thread_name("horton")
            .thread_stack_size(STACK_BYTES)
            .build();
        let process = process::id();
        let own = runtime.map(|runtime| Own { process, runtime });
        own.map_err(|error| format!("no threads to run queries: {error}"))
    });
    match made {
        Ok(own) if own.process == process::id() => Ok(&own.runtime),
        Ok(_) => Err(Failure::Query(
            "this process was forked from one that had used horton_join, whose threads and \
             devices do not come along; start processes by multiprocessing's 'spawn' method"
                .to_owned(),
        )),
        Err(reason) => Err(Failure::Query(reason.clone())),
    }
}

/// Returns a handle to the runtime, for joins in plans of another library.
///
/// # Errors
/// In a process that was forked off another one that had it.
pub fn handle() -> Result<Handle, Failure> {
    Ok(runtime()?.handle().clone())
}

/// Work on the runtime, stopped when this is dropped.
pub struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Starts `work`.
    pub fn spawn(work: impl Future<Output = T> + Send + 'static) -> Result<Self, Failure> {
        Ok(Self(runtime()?.spawn(work)))
    }

    /// Returns its result. A panic in it is a failure.
    pub async fn done(&mut self) -> Result<T, Failure> {
        (&mut self.0).await.map_err(|error| {
            let panic = error.try_into_panic();
            panic.map_or_else(
                |error| Failure::Query(format!("the query ended: {error}")),
                |panic| Failure::from_panic(panic.as_ref()),
            )
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `work` while other Python threads go on. Ctrl-C stops it.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> PyResult<T> {
    let mut task = Task::spawn(work)?;
    let done = task.done();
    Ok(until(py, pin!(done))??)
}

/// Waits for `future` without the GIL, and asks for signals now and then.
pub fn until<T: Send>(
    py: Python<'_>,
    mut future: Pin<&mut (impl Future<Output = Result<T, Failure>> + Send)>,
) -> Result<T, Failure> {
    loop {
        let next = future.as_mut();
        if let Some(result) = py.detach(|| within(SIGNALS, next)) {
            return result;
        }
        let signals = py.check_signals();
        signals.map_err(|error| Failure::raised(py, error))?;
    }
}

/// Waits for `future`, at most `patience`; `None` if it takes longer. The clock is this thread's
/// own: those of the runtime stand still while all of its threads compute.
pub fn within<T>(patience: Duration, mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let end = Instant::now() + patience;
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return Some(done);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}
