//! Joins drawn at random, run as `HortonJoinExec` on a device and as `HashJoinExec`.
//!
//! ```text
//!  seed ─▶ Case (plain data) ─▶ inputs ─┬─▶ HashJoinExec        ─┐
//!                                       ├─▶ HortonJoinExec      ─┼─▶ equal?  no ─▶ shrink ─▶ test
//!                                       └─▶ NestedLoopJoinExec  ─┘           to be pasted
//! ```
//!
//! `cargo test --test fuzz` runs a fixed set of cases. `make fuzz DURATION=600 SEED=7` runs
//! others for that many seconds (`HORTON_FUZZ_DURATION`, `HORTON_FUZZ_SEED`); a failure
//! prints its case's own seed, for `HORTON_FUZZ_CASE`, and the shrunk case as a test.
//! The device is `auto`, or what `HORTON_TEST_DEVICE` names.

mod case;
mod checks;
mod data;
mod fault;
mod gather;
mod kept;
mod neighbour;
mod output;
mod plan;
mod regressions;
mod run;
mod shrink;

use std::collections::VecDeque;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use horton_test_support::env::device;
use tokio::runtime::Runtime;

use self::case::Case;
use self::run::{Report, Worker};
use super::difference::Difference;
use super::numbers::mix;

/// Cases of a plain `cargo test`.
const CASES: u64 = 300;

/// Time that shrinking may take.
const SHRINKING: Duration = Duration::from_secs(60);

/// Cases that are named when a later one finds what one of them left.
const REMEMBERED: usize = 32;

/// A case that takes longer hangs.
const STUCK: Duration = Duration::from_secs(300);

#[test]
fn random_joins_are_what_the_stock_join_makes_of_them() {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty());
        text.map(|text| {
            text.parse::<u64>()
                .unwrap_or_else(|e| panic!("{name}: {e}"))
        })
    };
    if let Some(seed) = number("HORTON_FUZZ_CASE") {
        let case = Case::random(seed);
        // Before it runs, as it may hang.
        print(&format!("{case:?}"));
        match quietly(|| try_check(&worker(), &case)) {
            Ok(report) => return print(&format!("{report:?}")),
            Err(first) => fail(seed, &first),
        }
    }
    let duration = number("HORTON_FUZZ_DURATION").map(Duration::from_secs);
    let seed = number("HORTON_FUZZ_SEED").unwrap_or(1);
    let fuzz = Fuzz::new(seed, duration);
    let failed = fuzz.run();
    fuzz.say(if failed.is_some() {
        "stopped"
    } else {
        "0 differences"
    });
    match failed {
        // It would fail in any case, as that memory stays.
        Some((_, left)) if left.what == fault::LEFT_BEFORE => panic!("{left}"),
        Some((seed, difference)) => fail(seed, &difference),
        None => {}
    }
    let [cases, refused] = [&fuzz.cases, &fuzz.refused].map(|n| n.load(Ordering::Relaxed));
    assert!(10 * refused <= cases, "{refused} of {cases} cases refused");
    let [swapped, on_host] = [&fuzz.swapped, &fuzz.on_host].map(|n| n.load(Ordering::Relaxed));
    assert!(
        20 * swapped >= cases && 10 * on_host >= cases,
        "of {cases} cases {swapped} built the right side, and {on_host} ran on the host"
    );
    let exhausted = fuzz.exhausted.load(Ordering::Relaxed);
    assert!(
        5 * exhausted <= cases,
        "{exhausted} of {cases} cases ran out of memory"
    );
    let [limited, spilled, exhausted] =
        [&fuzz.limited, &fuzz.spilled, &fuzz.limited_exhausted].map(|n| n.load(Ordering::Relaxed));
    assert!(
        6 * limited >= cases && 3 * spilled >= limited,
        "of {cases} cases {limited} had a limited pool, of which {spilled} spilled"
    );
    assert!(
        exhausted <= limited.div_ceil(100),
        "{exhausted} of {limited} cases with a limited pool ran out of memory"
    );
}

/// Panics with the difference, if there is one.
fn check(case: &Case) {
    if let Err(difference) = try_check(&worker(), case) {
        panic!("{difference}");
    }
}

/// Fails with the case of `seed` made small.
fn fail(seed: u64, first: &Difference) -> ! {
    let worker = worker();
    let case = Case::random(seed);
    // What depends on the order in which threads run needs more than one try.
    let tries = if case.side_by_side { 50 } else { 2 };
    let same = |smaller: &Case| {
        (0..tries).any(|_| try_check(&worker, smaller).is_err_and(|d| d.what == first.what))
    };
    if !quietly(|| same(&case)) {
        panic!("HORTON_FUZZ_CASE={seed} failed, but not again: {first}\n{case:?}");
    }
    let small = quietly(|| shrink::shrink(&case, SHRINKING, same));
    let last = quietly(|| (0..tries).find_map(|_| try_check(&worker, &small).err()));
    panic!(
        "HORTON_FUZZ_CASE={seed}\n{}\n\n{}",
        last.as_ref().unwrap_or(first),
        small.as_test(seed)
    );
}

/// [`Worker::check`], with a panic as a difference.
fn try_check(worker: &Worker, case: &Case) -> Result<Report, Difference> {
    let _turn = fault::turn(worker, case)?;
    catch_unwind(AssertUnwindSafe(|| worker.check(case))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(Difference {
            what: "panic",
            how: text.unwrap_or_default(),
        })
    })
}

/// Runs `f` without the messages of panics that are caught.
fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let value = f();
    set_hook(hook);
    value
}

/// A worker on the one device and runtime of the process.
fn worker() -> Worker {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
    Worker::new(RUNTIME.handle().clone(), device())
}

/// A run over many cases.
struct Fuzz {
    seed: u64,
    duration: Option<Duration>,
    start: Instant,
    next: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<(u64, Difference)>>,
    /// The last cases that ended.
    ended: Mutex<VecDeque<u64>>,
    cases: AtomicUsize,
    joins: AtomicUsize,
    launches: AtomicUsize,
    rows: AtomicUsize,
    in_order: AtomicUsize,
    swapped: AtomicUsize,
    on_host: AtomicUsize,
    filtered: AtomicUsize,
    nested_loops: AtomicUsize,
    refused: AtomicUsize,
    exhausted: AtomicUsize,
    limited: AtomicUsize,
    spilled: AtomicUsize,
    limited_exhausted: AtomicUsize,
    cancelled: AtomicUsize,
    struck: AtomicUsize,
    misread: AtomicUsize,
    promises: AtomicUsize,
    inherited: AtomicUsize,
}

impl Fuzz {
    fn new(seed: u64, duration: Option<Duration>) -> Self {
        Self {
            seed,
            duration,
            start: Instant::now(),
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failed: Mutex::default(),
            ended: Mutex::default(),
            cases: AtomicUsize::new(0),
            joins: AtomicUsize::new(0),
            launches: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
            in_order: AtomicUsize::new(0),
            swapped: AtomicUsize::new(0),
            on_host: AtomicUsize::new(0),
            filtered: AtomicUsize::new(0),
            nested_loops: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            exhausted: AtomicUsize::new(0),
            limited: AtomicUsize::new(0),
            spilled: AtomicUsize::new(0),
            limited_exhausted: AtomicUsize::new(0),
            cancelled: AtomicUsize::new(0),
            struck: AtomicUsize::new(0),
            misread: AtomicUsize::new(0),
            promises: AtomicUsize::new(0),
            inherited: AtomicUsize::new(0),
        }
    }

    /// Runs cases until time is up or one fails; returns that one's seed and how.
    fn run(&self) -> Option<(u64, Difference)> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let running: Vec<Mutex<Option<(u64, Instant)>>> =
            (0..threads).map(|_| Mutex::new(None)).collect();
        std::thread::scope(|scope| {
            let workers: Vec<_> = running
                .iter()
                .map(|slot| scope.spawn(move || self.work(slot)))
                .collect();
            let mut said = Instant::now();
            while !workers.iter().all(|worker| worker.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                self.stop_if_stuck(&running);
                if said.elapsed() > Duration::from_secs(5) && self.duration.is_some() {
                    self.say("so far");
                    said = Instant::now();
                }
            }
        });
        self.failed.lock().unwrap().take()
    }

    fn work(&self, running: &Mutex<Option<(u64, Instant)>>) {
        let worker = worker();
        while let Some(seed) = self.next_seed() {
            *running.lock().unwrap() = Some((seed, Instant::now()));
            match try_check(&worker, &Case::random(seed)) {
                Ok(report) => {
                    if let Some(error) = report.exhausted.as_ref().filter(|_| report.limited) {
                        print(&format!(
                            "HORTON_FUZZ_CASE={seed} ran out of memory: {error}"
                        ));
                    }
                    self.count(&report);
                }
                Err(difference) => {
                    // Making it small takes a while, and may not succeed.
                    print(&format!("HORTON_FUZZ_CASE={seed} failed: {difference}"));
                    print(&format!("ended before: {:?}", self.ended.lock().unwrap()));
                    let mut failed = self.failed.lock().unwrap();
                    failed.get_or_insert((seed, difference));
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
            *running.lock().unwrap() = None;
            let mut ended = self.ended.lock().unwrap();
            ended.push_back(seed);
            if ended.len() > REMEMBERED {
                ended.pop_front();
            }
        }
    }

    fn next_seed(&self) -> Option<u64> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let over = match self.duration {
            Some(duration) => self.start.elapsed() > duration,
            None => index >= CASES,
        };
        let stop = over || self.stop.load(Ordering::Relaxed);
        (!stop).then(|| mix(self.seed, index))
    }

    fn count(&self, report: &Report) {
        let add = |counter: &AtomicUsize, n| counter.fetch_add(n, Ordering::Relaxed);
        add(&self.cases, 1);
        add(&self.joins, report.joins);
        add(&self.launches, report.launches);
        add(&self.rows, report.rows);
        add(&self.in_order, report.in_order.into());
        add(&self.swapped, report.swapped.into());
        add(&self.on_host, report.on_host.into());
        add(&self.filtered, report.filtered.into());
        add(&self.nested_loops, report.nested_loop.into());
        add(&self.refused, report.refused.into());
        add(&self.limited, report.limited.into());
        add(&self.spilled, report.spilled.into());
        let exhausted = match report.limited {
            true => &self.limited_exhausted,
            false => &self.exhausted,
        };
        add(exhausted, report.exhausted.is_some().into());
        add(&self.cancelled, report.cancelled.into());
        add(&self.struck, report.struck.into());
        add(&self.misread, report.misread.into());
        add(&self.promises, report.promises);
        add(&self.inherited, report.inherited);
    }

    /// A case that hangs cannot be stopped, only named.
    fn stop_if_stuck(&self, running: &[Mutex<Option<(u64, Instant)>>]) {
        for slot in running {
            let slot = *slot.lock().unwrap();
            if let Some((seed, _)) = slot.filter(|(_, since)| since.elapsed() > STUCK) {
                print(&format!(
                    "still running after {STUCK:?}: HORTON_FUZZ_CASE={seed}"
                ));
                std::process::exit(1);
            }
        }
    }

    fn say(&self, end: &str) {
        let get = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        print(&format!(
            "fuzz: {} cases, seed {}, {} joins, {end} \
             ({} kernel launches, {} rows, {} in order, {} with the right side built, {} on the host, {} with filters, {} nested loop joins, {} refused, {} with a limited pool: {} spilled, {} out of memory, {} others out of memory, {} cancelled, {} struck by a fault, {} read by a consumer that misbehaves, {} promises held, {} broken by DataFusion's own join as well, {:.0?})",
            get(&self.cases),
            self.seed,
            get(&self.joins),
            get(&self.launches),
            get(&self.rows),
            get(&self.in_order),
            get(&self.swapped),
            get(&self.on_host),
            get(&self.filtered),
            get(&self.nested_loops),
            get(&self.refused),
            get(&self.limited),
            get(&self.spilled),
            get(&self.limited_exhausted),
            get(&self.exhausted),
            get(&self.cancelled),
            get(&self.struck),
            get(&self.misread),
            get(&self.promises),
            get(&self.inherited),
            self.start.elapsed(),
        ));
    }
}

/// Prints past the test harness, which keeps what a passing test says to itself.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
