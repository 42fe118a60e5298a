//! No OpenCL call is under way while the process exits.
//!
//! ```text
//!  call::at ─▶ enter ─▶ OpenCL call ─▶ leave
//!                 ▲
//!  exit ─▶ wait for the calls that are under way ─▶ no other begins ─▶ the driver's own clean-up
//! ```
//!
//! Devices are made ready in the background, and queries can be dropped while a kernel is compiled.
//! A process that ends then runs the driver's clean-up beside the compiler's thread: NVIDIA's driver
//! crashes. Functions given to `atexit` run in reverse order, so this one must be given after those
//! of the driver's libraries. The last of them, its compiler, is loaded by the first program that is
//! built, which takes a moment itself: meanwhile it is given again and again. An exit waits no longer
//! than `PATIENCE`, as a hanging device must not keep a process alive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

/// Read by calls, written by the exit, which keeps it.
static UNDER_WAY: RwLock<()> = RwLock::new(());

/// How long an exit waits for calls to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the function is given while the driver may be loading libraries.
const PAUSE: Duration = Duration::from_millis(5);

/// Lets a call begin, until what is returned is dropped; forever if the process exits.
pub(super) fn enter() -> RwLockReadGuard<'static, ()> {
    UNDER_WAY.read().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a `call` that may load libraries of the driver, if it is the first of its kind.
pub(super) fn loading<T>(seen: &AtomicBool, call: impl FnOnce() -> T) -> T {
    if seen.swap(true, Ordering::AcqRel) {
        return call();
    }
    let (loading, loaded) = channel::<()>();
    let watcher = std::thread::Builder::new()
        .name("horton exit".to_owned())
        .spawn(move || {
            while loaded.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                watch();
            }
        });
    let answer = call();
    drop(loading);
    if let Ok(watcher) = watcher {
        drop(watcher.join());
    }
    watch();
    answer
}

/// Has an exit wait for calls before it does what was registered so far.
fn watch() {
    // SAFETY: the function takes nothing, returns nothing and does not unwind.
    let refused = unsafe { libc::atexit(wait) };
    if refused != 0 {
        log::debug!("an exit does not wait for OpenCL calls");
    }
}

extern "C" fn wait() {
    static WAITED: AtomicBool = AtomicBool::new(false);
    if WAITED.swap(true, Ordering::AcqRel) {
        return;
    }
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let alone = match UNDER_WAY.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        // Never let go: no call begins any more.
        return std::mem::forget(alone);
    }
}
