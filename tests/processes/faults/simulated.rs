//! Joins on a simulated device that fails, loses its context, or hangs, by seeds.
//!
//! ```text
//!  seed ─▶ a case, a mode, one fault in so many calls ─▶ joins side by side
//!       ─▶ the stock join's rows, or the device's error ─▶ faults end ─▶ all memory is back
//! ```
//!
//! The device is that of `tests/driver`, whose commands are late. So a fault can strike long after
//! the call of the command that it strikes. Where no such device is, `scripts/amd.sh` is to be run.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::Result;
use horton_join::Health;
use horton_join::config::OnDeviceError;
use horton_test_support::joins::{Case, device, run};
use horton_test_support::plans::launches;

use super::cases::{OnProbe, all};
use super::outcome::{Outcome, comparable, context, eventually, execute, plan, pool};
use super::watch::one_at_a_time;

/// Begins to draw faults (`tests/driver/src/faults.rs`).
type Begin = extern "C" fn(u64, u64) -> u64;

/// One fault in so many calls and commands, by turns.
const ONE_IN: [u64; 4] = [10, 50, 200, 1000];

/// Time that a driver has to answer.
const TIMEOUT: u64 = 1;

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
    let (first, seeds) = (
        number("HORTON_TEST_SEED", 1),
        number("HORTON_TEST_SEEDS", 50),
    );
    let cases = all().into_iter().map(|(name, case)| {
        // Its self-test is over before anything fails.
        run(case.on_device(), case.context()).unwrap();
        let stock = run(Arc::new(case.stock()), case.context()).unwrap();
        (name, case, comparable(stock.rows()))
    });
    let cases: Vec<_> = cases.collect();
    let until = Instant::now() + Duration::from_secs(number("HORTON_TEST_SECONDS", 3600));
    let mut totals = Totals::default();
    for seed in first..first + seeds {
        let (name, case, expected) = &cases[seed as usize % cases.len()];
        // Each case in each mode, with many faults and with few.
        let turn = seed / cases.len() as u64;
        let what = format!("{name}: make simulate SEED={seed} SEEDS=1");
        survive((&what, seed, turn), case, expected, begin, &mut totals);
        if Instant::now() > until {
            break;
        }
    }
    println!("simulated: {totals:?}");
    assert!(totals.launches > 0 && totals.faults > 0);
    assert!(totals.on_device > 0 || totals.seeds < 50);
}

/// Runs two joins of `case` at once while the device fails, and another one when it does not.
fn survive(
    (what, seed, turn): (&str, u64, u64),
    case: &Case,
    expected: &[Vec<String>],
    begin: Begin,
    totals: &mut Totals,
) {
    let used = device().budget().used();
    let mode = match turn % 3 {
        0 => OnDeviceError::Error,
        _ => OnDeviceError::Fallback,
    };
    let pool = pool();
    let one = || {
        let mut case = case.clone();
        case.config.on_device_error = mode;
        case.config.device_timeout = TIMEOUT;
        case.config.health = Health::default();
        let plan = plan(&case, &OnProbe::default());
        let outcome = execute(what, Arc::clone(&plan), context(&case, &pool));
        (outcome, launches(&(plan as _)))
    };
    begin(seed, ONE_IN[(turn / 3 + seed) as usize % ONE_IN.len()]);
    let both: [(Result<Outcome>, usize); 2] = std::thread::scope(|scope| {
        let joins = [scope.spawn(one), scope.spawn(one)];
        joins.map(|join| join.join().unwrap())
    });
    let counts = begin(0, 0);
    let (faults, hangs) = (counts & 0xffff_ffff, counts >> 32);
    totals.seeds += 1;
    totals.faults += faults;
    totals.hangs += hangs;
    for (outcome, launches) in both {
        totals.launches += launches;
        match outcome {
            Ok(outcome) => {
                assert_eq!(outcome.rows, expected, "{what}");
                totals.rows += 1;
                totals.on_device += u64::from(outcome.device_errors == 0 && launches > 0);
            }
            Err(error) => {
                let text = error.to_string();
                let is_right = mode == OnDeviceError::Error && faults > 0;
                assert!(is_right && text.contains("OpenCL"), "{what}: {text}");
                totals.errors += 1;
            }
        }
    }
    // Memory of a driver that hangs is never used again.
    eventually(what, || {
        pool.reserved() == 0 && (hangs > 0 || device().budget().used() <= used)
    });
    // The context may be lost by a call whose failure nobody needs to know of. The next join finds
    // that out.
    let mut afterwards = (0..3).map(|_| {
        let (outcome, launches) = one();
        match outcome {
            Ok(outcome) => assert_eq!(outcome.rows, expected, "{what}, afterwards"),
            Err(error) => {
                assert_eq!(mode, OnDeviceError::Error, "{what}, afterwards: {error}");
                return 0;
            }
        }
        launches
    });
    // What hung in an earlier seed takes its bytes of a small limit for good.
    let may_lack_room = totals.hangs > 0 && case.config.device_memory_limit > 0;
    assert!(
        afterwards.any(|launches| launches > 0) || may_lack_room,
        "{what}: the device is not used again"
    );
}
