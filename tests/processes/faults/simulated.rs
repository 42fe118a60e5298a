//! Joins on a simulated device that fails, loses its context, or hangs, by seeds.
//!
//! ```text
//!  seed ─▶ a case, a mode, one fault in so many calls ─▶ joins side by side
//!       ─▶ the stock join's rows, or the device's error ─▶ faults end ─▶ all memory is back
//! ```
//!
//! The device is that of `tests/driver`, whose commands are late. So a fault can strike long after
//! the call of the command that it strikes. Where no such device is, `scripts/amd.sh` is to be run.
//!
//! A seed draws what fails. When it does is a matter of threads as well, so a seed may have to be
//! repeated (`HORTON_TEST_TIMES`). Each is announced, as a mistake may end the whole process.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryPool;
use horton_join::Health;
use horton_join::config::OnDeviceError;
use horton_test_support::joins::{Case, device, run};
use horton_test_support::plans::launches;

use super::cases::{OnProbe, Size, all};
use super::outcome::{Expected, Outcome, context, eventually, execute, plan, pool};
use super::watch::one_at_a_time;

/// Begins to draw faults (`tests/driver/src/faults.rs`).
type Begin = extern "C" fn(u64, u64) -> u64;

/// One fault in so many calls and commands, by turns.
const ONE_IN: [u64; 4] = [10, 50, 200, 1000];

/// Seconds that a driver has to answer.
const TIMEOUT: u64 = 3;

/// Joins until one must use a device that does not fail any more. The context may be lost by a call
/// whose failure nobody needs to know of; the next join finds that out.
const TRIES: usize = 3;

/// Counts how often a device was left because its driver did not: the log says so.
struct Left(AtomicUsize);

static LEFT: Left = Left(AtomicUsize::new(0));

impl Left {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl log::Log for Left {
    fn enabled(&self, metadata: &log::Metadata) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record) {
        if record.args().to_string().contains("has not returned for") {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

/// Returns what has the simulated device draw faults; `None` where the device is another one.
fn begin() -> Option<Begin> {
    let library = CString::new(std::env::var("HORTON_OPENCL_LIBRARY").ok()?).ok()?;
    // SAFETY: the loader opens the same library.
    let library = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is open, and stays so.
    let symbol = unsafe { libc::dlsym(library, c"horton_driver_begin".as_ptr()) };
    // SAFETY: the function of that name has this type.
    (!symbol.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Begin>(symbol) })
}

/// Returns the variable `name` as a number, or `otherwise`.
fn number(name: &str, otherwise: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(otherwise, |value| value.parse().unwrap())
}

/// What came of all seeds.
#[derive(Debug, Default)]
struct Totals {
    seeds: u64,
    faults: u64,
    hangs: u64,
    /// Seeds in which nothing hung, but a thread got no core for so long that the device was left.
    late: u64,
    /// Joins that returned rows, of these without any failure of the device, and errors.
    rows: u64,
    on_device: u64,
    errors: u64,
    launches: usize,
}

#[test]
fn joins_survive_whatever_a_driver_does() {
    let Some(begin) = begin() else {
        println!("not run: the device is not that of tests/driver (make simulate)");
        return;
    };
    let _guard = one_at_a_time();
    log::set_logger(&LEFT).unwrap();
    log::set_max_level(log::LevelFilter::Warn);
    let first = number("HORTON_TEST_SEED", 1);
    let seeds = first..first + number("HORTON_TEST_SEEDS", 50);
    let until = Instant::now() + Duration::from_secs(number("HORTON_TEST_SECONDS", 3600));
    let cases = all(Size::Fifth).into_iter().map(|(name, case)| {
        // Its self-test is over before anything fails.
        run(case.on_device(), case.context()).unwrap();
        let stock = run(Arc::new(case.stock()), case.context()).unwrap();
        let expected = Expected::new(&case, &stock.batches);
        (name, case, expected)
    });
    let cases: Vec<_> = cases.collect();
    let mut totals = Totals::default();
    for seed in seeds.flat_map(|seed| (0..number("HORTON_TEST_TIMES", 1)).map(move |_| seed)) {
        let (name, case, expected) = &cases[seed as usize % cases.len()];
        // Each case in each mode, with many faults and with few.
        let turn = seed / cases.len() as u64;
        println!("simulated: make simulate SEED={seed} SEEDS=1");
        let what = format!("{name}: make simulate SEED={seed} SEEDS=1");
        survive((&what, seed, turn), case, expected, begin, &mut totals);
        if Instant::now() > until {
            break;
        }
    }
    println!("simulated: {totals:?}");
    // Few seeds may have no fault, or nothing but faults.
    let is_sample = totals.seeds < 50;
    assert!(is_sample || totals.launches > 0 && totals.faults > 0 && totals.on_device > 0);
}

/// What a seed does, and what must come of it.
struct Seed<'a> {
    what: &'a str,
    /// In the seed's mode.
    case: Case,
    expected: &'a Expected,
    pool: Arc<dyn MemoryPool>,
}

/// A join's outcome, and the launches of its plan.
struct Joined {
    outcome: Result<Outcome>,
    launches: usize,
}

impl Seed<'_> {
    /// Joins once, in a session of its own.
    fn join(&self) -> Joined {
        let mut case = self.case.clone();
        case.config.health = Health::default();
        let plan = plan(&case, &OnProbe::default());
        let outcome = execute(self.what, Arc::clone(&plan), context(&case, &self.pool));
        Joined {
            outcome,
            launches: launches(&(plan as _)),
        }
    }

    /// Joins twice at once.
    fn join_twice(&self) -> [Joined; 2] {
        std::thread::scope(|scope| {
            let joins = [(); 2].map(|()| scope.spawn(|| self.join()));
            joins.map(|join| join.join().unwrap())
        })
    }

    fn ends_with_errors(&self) -> bool {
        self.case.config.on_device_error == OnDeviceError::Error
    }

    /// Checks a join on a device that has failed, or not if it must not.
    fn check(&self, joined: Joined, may_fail: bool, totals: &mut Totals) {
        totals.launches += joined.launches;
        match joined.outcome {
            Ok(outcome) => {
                self.expected.check(self.what, &outcome.partitions);
                totals.rows += 1;
                totals.on_device += u64::from(outcome.device_errors == 0 && joined.launches > 0);
            }
            Err(error) => {
                let text = error.to_string();
                let is_right = self.ends_with_errors() && may_fail && text.contains("OpenCL");
                assert!(is_right, "{}: {text}", self.what);
                totals.errors += 1;
            }
        }
    }

    /// Checks joins on a device that does not fail any more. Returns whether one of three used it.
    /// Those do not count during which it was left.
    fn uses_device_again(&self) -> bool {
        let mut tries = 0;
        while tries < TRIES {
            let left = LEFT.count();
            if self.uses_device() {
                return true;
            }
            tries += usize::from(LEFT.count() == left);
        }
        false
    }

    fn uses_device(&self) -> bool {
        let joined = self.join();
        let what = format!("{}, afterwards", self.what);
        match joined.outcome {
            Ok(outcome) => {
                self.expected.check(&what, &outcome.partitions);
                joined.launches > 0
            }
            Err(error) => {
                assert!(self.ends_with_errors(), "{what}: {error}");
                false
            }
        }
    }
}

/// Runs two joins of `case` at once while the device fails, and others when it does not.
fn survive(
    (what, number, turn): (&str, u64, u64),
    case: &Case,
    expected: &Expected,
    begin: Begin,
    totals: &mut Totals,
) {
    let (used, left) = (device().budget().used(), LEFT.count());
    let mut case = case.clone();
    case.config.device_timeout = TIMEOUT;
    // Each case has each mode by turns, and so have the first seeds.
    case.config.on_device_error = match (turn + number) % 3 {
        0 => OnDeviceError::Error,
        _ => OnDeviceError::Fallback,
    };
    let seed = Seed {
        what,
        case,
        expected,
        pool: pool(),
    };
    begin(number, ONE_IN[(turn / 3 + number) as usize % ONE_IN.len()]);
    let both = seed.join_twice();
    let counts = begin(0, 0);
    let (faults, hangs) = (counts & 0xffff_ffff, counts >> 32);
    totals.seeds += 1;
    totals.faults += faults;
    totals.hangs += hangs;
    let was_left = || LEFT.count() > left;
    for joined in both {
        seed.check(joined, faults > 0 || was_left(), totals);
    }
    // Memory of a driver that hangs is never used again.
    eventually(what, || {
        let is_back = hangs > 0 || was_left() || device().budget().used() <= used;
        seed.pool.reserved() == 0 && is_back
    });
    let is_used = seed.uses_device_again();
    totals.late += u64::from(hangs == 0 && was_left());
    // What hung in an earlier seed takes its bytes of a small limit for good.
    let may_lack_room = LEFT.count() > 0 && seed.case.config.device_memory_limit > 0;
    assert!(
        is_used || may_lack_room,
        "{what}: the device is not used again"
    );
}
