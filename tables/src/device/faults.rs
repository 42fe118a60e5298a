//! OpenCL calls that fail on demand; for tests, and in debug builds only.
//!
//! ```text
//!  begin(None)         count the uses of every site          ─┐
//!  begin(Some(fault))  … and fail its site at its n-th use    ├─▶ end() ─▶ Report
//! ```
//!
//! A site is an OpenCL function and what it is called for: `clCreateBuffer build keys`,
//! `clEnqueueNDRangeKernel lookup_chunk`. A fault that [lasts](Fault::lasts) makes every later call
//! of any site fail, too, as after a driver has lost its device. A call may also [hang](HANGS). The
//! layer is one for the process: tests that use it run one at a time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::exit::TEST_TIMEOUT;
use super::status::Failed;

/// A call that is to fail.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The site, as [`Report::uses`] names it.
    pub site: String,
    /// Number of the use that fails, from 1.
    pub nth: u64,
    /// The status code's name, or [`HANGS`].
    pub status: &'static str,
    /// True if every call of any site fails from then on.
    pub lasts: bool,
}

/// The status of a call that does not return before [`end`] or another [`begin`].
pub const HANGS: &str = "hangs";

/// The calls that were made.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Number of uses of each site.
    pub uses: BTreeMap<String, u64>,
    /// Number of calls that were made to fail.
    pub failed: u64,
    /// The call that was made last.
    pub last: String,
}

#[derive(Default)]
struct Layer {
    on: bool,
    fault: Option<Fault>,
    uses: BTreeMap<(&'static str, &'static str), u64>,
    failed: u64,
    last: (&'static str, &'static str),
    /// Number of times that it was begun or ended.
    changes: u64,
}

/// Notified when the layer is begun or ended.
static CHANGED: Condvar = Condvar::new();

static LAYER: Mutex<Layer> = Mutex::new(Layer {
    on: false,
    fault: None,
    uses: BTreeMap::new(),
    failed: 0,
    last: ("", ""),
    changes: 0,
});

fn layer() -> MutexGuard<'static, Layer> {
    LAYER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to count calls, and to let them fail as `fault` says.
pub fn begin(fault: Option<Fault>) {
    change(Layer {
        on: true,
        fault,
        ..Layer::default()
    });
}

/// Puts `new` in the place of the layer, and lets calls return that hang.
fn change(new: Layer) -> Layer {
    let mut layer = layer();
    let changes = layer.changes + 1;
    CHANGED.notify_all();
    std::mem::replace(&mut *layer, Layer { changes, ..new })
}

/// Threads that may still be started; `None` without limit.
static THREADS: Mutex<Option<usize>> = Mutex::new(None);

/// Lets so many more threads of devices be started, as a system does that has no more; `None` sets
/// no limit.
pub fn allow_threads(most: Option<usize>) {
    *THREADS.lock().unwrap_or_else(PoisonError::into_inner) = most;
}

/// Counts a thread that is about to be started, or refuses it.
pub(super) fn pass_thread() -> Result<(), Failed> {
    let mut most = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *most {
        Some(0) => Err(Failed::Status("no thread is left".to_owned())),
        Some(most) => {
            *most -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

/// Makes an exit of this process wait for at most `milliseconds` until calls have ended.
pub fn set_exit_timeout(milliseconds: u64) {
    TEST_TIMEOUT.store(milliseconds, Ordering::Relaxed);
}

/// Returns the report on calls since [`begin`].
pub fn report() -> Report {
    layer().report()
}

/// Ends counting and failing.
pub fn end() -> Report {
    change(Layer::default()).report()
}

impl Layer {
    fn report(&self) -> Report {
        let named = |((function, what), uses): (&(&'static str, &'static str), &u64)| {
            (site(function, what), *uses)
        };
        Report {
            uses: self.uses.iter().map(named).collect(),
            failed: self.failed,
            last: site(self.last.0, self.last.1),
        }
    }
}

fn site(function: &str, what: &str) -> String {
    format!("{function} {what}").trim_end().to_owned()
}

/// Counts a call that is about to be made, or fails it.
pub(super) fn pass(function: &'static str, what: &'static str) -> Result<(), Failed> {
    let mut layer = layer();
    if !layer.on {
        return Ok(());
    }
    layer.last = (function, what);
    let uses = layer.uses.entry((function, what)).or_default();
    *uses += 1;
    let uses = *uses;
    let fails = layer.fault.as_ref().filter(|fault| {
        (fault.lasts && layer.failed > 0)
            || (uses == fault.nth && fault.site == site(function, what))
    });
    match fails.map(|fault| fault.status) {
        Some(HANGS) => {
            layer.failed += 1;
            let changes = layer.changes;
            drop(CHANGED.wait_while(layer, |layer| layer.changes == changes));
            Ok(())
        }
        Some(status) => {
            layer.failed += 1;
            Err(Failed::Status(status.to_owned()))
        }
        None => Ok(()),
    }
}
