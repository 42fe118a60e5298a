//! Faults by a seed: what a driver may do to whoever calls it.
//!
//! ```text
//!  horton_driver_begin(seed, one_in) ─▶ one of so many calls and commands, on average:
//!
//!  a call      fails at once; or loses its context, of which all fails from then on; or hangs
//!  a command   ends with an error, its work done or not done; or hangs, until the next begin
//! ```
//!
//! Faults that strike before a call are the easy ones, as nothing has happened yet. A driver also
//! says that a call succeeded, and that its command failed much later. Both are drawn here.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::objects::Ptr;
use crate::queue::{Random, Work};
use crate::status::{Called, DEVICE_NOT_AVAILABLE, MEM_OBJECT_ALLOCATION_FAILURE};
use crate::status::{OUT_OF_HOST_MEMORY, OUT_OF_RESOURCES};

/// What may become of a call at once.
const STATUSES: [i32; 4] = [
    OUT_OF_RESOURCES,
    MEM_OBJECT_ALLOCATION_FAILURE,
    OUT_OF_HOST_MEMORY,
    DEVICE_NOT_AVAILABLE,
];

/// Of so many faults one hangs, where it may. Whoever waits for it does so for some seconds.
const HANGS: u64 = 64;

struct Faults {
    random: Random,
    /// One of so many calls and commands fails; none if 0.
    one_in: u64,
    /// Contexts that are lost.
    lost: BTreeSet<usize>,
    /// Faults since it began, and how many of them hung.
    count: u64,
    hangs: u64,
    /// Number of times that it was begun.
    begun: u64,
}

/// Notified when it is begun again.
static BEGUN: Condvar = Condvar::new();

static FAULTS: Mutex<Option<Faults>> = Mutex::new(None);

fn faults() -> MutexGuard<'static, Option<Faults>> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to draw faults from `seed`: one of `one_in` calls and commands fails, or none if that is
/// 0. What hangs goes on. Returns how many faults there were since the last time. The upper half of
/// its bits counts those among them that hung.
#[unsafe(no_mangle)]
pub extern "C" fn horton_driver_begin(seed: u64, one_in: u64) -> u64 {
    let mut faults = faults();
    let before = faults.take();
    let begun = before.as_ref().map_or(0, |faults| faults.begun);
    let counts = before
        .as_ref()
        .map_or(0, |faults| faults.count | faults.hangs << 32);
    *faults = Some(Faults {
        random: Random::new(seed),
        one_in,
        lost: before.map(|faults| faults.lost).unwrap_or_default(),
        count: 0,
        hangs: 0,
        begun: begun + 1,
    });
    BEGUN.notify_all();
    counts
}

impl Faults {
    fn strikes(&mut self) -> bool {
        let strikes = self.one_in > 0 && self.random.below(self.one_in) == 0;
        self.count += u64::from(strikes);
        strikes
    }
}

/// Passes a call to the context of that handle, or lets it fail or hang.
///
/// # Errors
/// The status of a fault, and of each call to a context that is lost.
pub fn pass(context: Ptr) -> Called<()> {
    of_call(context, true)
}

/// The same for a compiler's call. It does not hang, as compilers have ten times as long.
///
/// # Errors
/// Those of [`pass`].
pub fn pass_compiler(context: Ptr) -> Called<()> {
    of_call(context, false)
}

/// Passes a call that releases memory, which may hang and never fails.
pub fn pass_release() {
    let mut guard = faults();
    let hangs = |faults: &mut Faults| faults.strikes() && faults.random.below(HANGS) == 0;
    if let Some(faults) = guard.as_mut().filter(|faults| faults.one_in > 0)
        && hangs(faults)
    {
        faults.hangs += 1;
        let begun = faults.begun;
        drop(guard);
        hang(begun);
    }
}

fn of_call(context: Ptr, may_hang: bool) -> Called<()> {
    let mut guard = faults();
    let Some(faults) = guard.as_mut() else {
        return Ok(());
    };
    if faults.lost.contains(&(context as usize)) {
        return Err(DEVICE_NOT_AVAILABLE);
    }
    if !faults.strikes() {
        return Ok(());
    }
    if may_hang && faults.random.below(HANGS) == 0 {
        faults.hangs += 1;
        let begun = faults.begun;
        drop(guard);
        hang(begun);
        return Err(OUT_OF_RESOURCES);
    }
    // A call that makes a context has none yet.
    if !context.is_null() && faults.random.below(8) == 0 {
        faults.lost.insert(context as usize);
    }
    let drawn = faults.random.below(STATUSES.len() as u64);
    Err(STATUSES[drawn as usize])
}

enum Fault {
    /// It does nothing, and fails.
    Before,
    /// It does its work, and fails.
    After,
    /// It does nothing until faults begin again, and fails.
    Hang,
}

/// Returns `work`, or what becomes of it instead.
pub fn of_command(work: Work) -> Work {
    let mut faults = faults();
    let Some(drawn) = faults.as_mut() else {
        return work;
    };
    if !drawn.strikes() {
        return work;
    }
    let fault = match drawn.random.below(HANGS) {
        0 => Fault::Hang,
        n if n % 2 == 0 => Fault::Before,
        _ => Fault::After,
    };
    drawn.hangs += u64::from(matches!(fault, Fault::Hang));
    let begun = drawn.begun;
    Box::new(move || {
        match fault {
            Fault::Before => {}
            Fault::After => work()?,
            Fault::Hang => hang(begun),
        }
        Err(OUT_OF_RESOURCES)
    })
}

/// Returns once faults have begun again.
fn hang(begun: u64) {
    let still = |faults: &mut Option<Faults>| faults.as_ref().is_some_and(|f| f.begun == begun);
    drop(BEGUN.wait_while(faults(), still));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_strike_as_often_as_asked_and_a_lost_context_stays_lost() {
        let contexts = 100..1100;
        let call = |n: usize| pass(n as Ptr);
        horton_driver_begin(1, 0);
        assert!(contexts.clone().all(|n| call(n).is_ok()));
        horton_driver_begin(1, 10);
        let failed: Vec<usize> = contexts.filter(|n| call(*n).is_err()).collect();
        assert!((50..200).contains(&failed.len()), "{}", failed.len());
        assert_eq!(horton_driver_begin(1, 0) as usize, failed.len());
        let lost = failed.iter().filter(|n| call(**n).is_err()).count();
        assert!(lost > 0 && lost < failed.len(), "{lost}");
    }
}
