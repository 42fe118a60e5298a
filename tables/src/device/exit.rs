//! A process that exits while OpenCL calls are under way ends with its status, not with a crash.
//!
//! ```text
//!  opencl::at ─▶ enter ─▶ OpenCL call ─▶ leave
//!                   ▲
//!  exit(status) ─▶ wait ─┬─ all calls have ended: no other begins ─▶ the driver's own clean-up
//!    │  in a destructor  └─ EXIT_TIMEOUT is over ─▶ _exit(status), without any clean-up
//!    └─ or in a handler
//! ```
//!
//! Devices are made ready in the background, and a query can be dropped while a kernel is compiled.
//! A process that ends then runs the driver's clean-up beside the compiler's thread, and NVIDIA's
//! driver and PoCL crash. Exit handlers run in reverse order, so ours must be registered after
//! those of the driver's libraries. The last of these is the compiler. It is loaded when the first
//! program is built. That takes a moment, so our handler is registered again and again meanwhile.
//!
//! A library that is being loaded registers its handlers one by one, and those that are newer than
//! ours run first. Destructors of the main thread's variables run before all handlers. So the main
//! thread has one that waits, from the first [`guard_this_thread`] on it. The handlers are for
//! devices that other threads open.
//!
//! An exit waits no longer than `EXIT_TIMEOUT`, as a hanging device must not keep a process alive.
//! Then the clean-up would crash, so the process ends without it. That skips the handlers which the
//! program registered before it used a device; what they would have done is lost in the crash, too.
//! C streams are flushed before, which waits for a thread that holds one locked.
//! `on_exit` tells a handler the status. Unlike `atexit`, it does not know when a shared library is
//! unloaded: a library that contains this crate must stay loaded. Where only `atexit` is, the
//! status is not known, and the exit goes on as if the calls had ended.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::ffi::{c_int, c_void};
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::ptr::null_mut;
#[cfg(debug_assertions)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError};
use std::time::{Duration, Instant};

/// Read by calls, written by the exit, which keeps it.
static UNDER_WAY: RwLock<()> = RwLock::new(());

/// The time for which an exit waits for calls to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The first pause between registrations of the handler while the driver may be loading libraries.
/// Each is a quarter longer than the one before, as the driver may hang.
const PAUSE: Duration = Duration::from_millis(5);

/// The milliseconds that a test puts in the place of [`EXIT_TIMEOUT`].
#[cfg(debug_assertions)]
pub(super) static TEST_TIMEOUT: AtomicU64 = AtomicU64::new(u64::MAX);

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
            let mut pause = PAUSE;
            while loaded.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                register();
                pause += pause / 4;
            }
        });
    let answer = call();
    drop(loading);
    if let Ok(watcher) = watcher {
        drop(watcher.join());
    }
    register();
    answer
}

/// Waits for calls when it is dropped on the main thread, which ends with the process.
struct MainThread;

impl Drop for MainThread {
    fn drop(&mut self) {
        if is_main_thread() {
            wait();
        }
    }
}

thread_local! {
    static MAIN_THREAD: MainThread = const { MainThread };
}

/// Makes an exit by this thread wait for calls before any handler runs, if it is the main thread.
pub fn guard_this_thread() {
    // At the thread's end there is none to wait for.
    let _ = MAIN_THREAD.try_with(|_| ());
}

/// Returns whether this is the main thread; false where the system does not say.
#[cfg(target_os = "linux")]
fn is_main_thread() -> bool {
    // glibc has `gettid` since 2.30, and releases run on 2.28.
    // SAFETY: both only return a number.
    unsafe { libc::c_long::from(libc::getpid()) == libc::syscall(libc::SYS_gettid) }
}

/// Returns false: the system does not say.
#[cfg(not(target_os = "linux"))]
fn is_main_thread() -> bool {
    false
}

/// Makes an exit wait for calls before it runs the handlers that are registered so far.
fn register() {
    if !register_handler() {
        log::debug!("an exit does not wait for OpenCL calls");
    }
}

/// Waits until no call is under way, and lets no other begin. Returns whether all have ended. Only
/// the first call of an exit waits.
fn wait() -> bool {
    static ALL_ENDED: OnceLock<bool> = OnceLock::new();
    *ALL_ENDED.get_or_init(all_end)
}

fn all_end() -> bool {
    let began = Instant::now();
    while began.elapsed() < timeout() {
        let alone = match UNDER_WAY.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(alone)) => alone.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        // Never let go: no call begins any more.
        std::mem::forget(alone);
        return true;
    }
    false
}

#[cfg(debug_assertions)]
fn timeout() -> Duration {
    EXIT_TIMEOUT.min(Duration::from_millis(TEST_TIMEOUT.load(Ordering::Relaxed)))
}

#[cfg(not(debug_assertions))]
fn timeout() -> Duration {
    EXIT_TIMEOUT
}

// With glibc, handlers are told the status. The `libc` crate does not declare this.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), data: *mut c_void) -> c_int;
}

/// Registers [`end`] as a handler. Returns whether the system took it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn register_handler() -> bool {
    // SAFETY: the handler has the type that glibc calls, does not unwind and ignores its data.
    unsafe { on_exit(end, null_mut()) == 0 }
}

/// Lets the exit go on, or ends the process if a call is still under way.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
extern "C" fn end(status: c_int, _: *mut c_void) {
    if wait() {
        return;
    }
    // SAFETY: a null pointer means all output streams; `_exit` ends the process at once, so
    // nothing runs beside the call that is under way.
    unsafe {
        libc::fflush(null_mut());
        libc::_exit(status);
    }
}

/// Registers [`end`] as a handler. Returns whether the system took it.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn register_handler() -> bool {
    // SAFETY: the handler takes nothing, returns nothing and does not unwind.
    unsafe { libc::atexit(end) == 0 }
}

/// Lets the exit go on, in any case: it does not know the status.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
extern "C" fn end() {
    wait();
}
