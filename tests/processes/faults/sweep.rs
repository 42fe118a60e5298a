//! The sweep: every site × phase × use × mode.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use datafusion::physical_plan::displayable;
use horton_join::Health;
use horton_join::config::OnDeviceError;
use horton_test_support::internals::faults::{self, Fault, Report};

use horton_test_support::{child, test_name};

use super::cases::{OnProbe, Size, all};
use super::outcome::{Expected, context, eventually, execute, plan, pool};
use super::sites::functions;
use super::watch::one_at_a_time;
use crate::drivers::child::{WITHOUT_CACHE, driver};
use horton_test_support::joins::{Case, device, run};

const STATUSES: [&str; 5] = [
    "CL_OUT_OF_RESOURCES",
    "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    "CL_INVALID_COMMAND_QUEUE",
    "CL_OUT_OF_HOST_MEMORY",
    "CL_DEVICE_NOT_AVAILABLE",
];

/// Calls that a join can do without, if only they fail: what they are for is done again in another
/// way, or was not needed for the rows.
const SPARE: [&str; 10] = [
    // A new buffer that gets no large pages is created again.
    "clEnqueueMapBuffer pages",
    "clEnqueueUnmapMemObject pages",
    "clFinish pages",
    "clEnqueueUnmapMemObject to release",
    "clReleaseMemObject",
    "clGetEventProfilingInfo",
    "clGetProgramInfo",
    FROM_CACHE,
    "clBuildProgram",
    "clCreateBuffer",
];

/// Returns whether a strike at one site stands for one at the other. Jobs side by side decide which
/// buffers are created, and which come from the pool.
fn are_alike(site: &str, other: &str) -> bool {
    const POOLED: &str = "clCreateBuffer";
    site == other || site.starts_with(POOLED) && other.starts_with(POOLED)
}

/// Loads a compiled program.
const FROM_CACHE: &str = "clCreateProgramWithBinary";

/// Functions that no case calls: those that list devices, which has its own test; those for memory
/// that is released, and not kept in a pool, which may fail; one for sub-groups, which PoCL has
/// not; and one for commands that end late.
const ELSEWHERE: [&str; 8] = [
    "clFlush",
    "clReleaseMemObject",
    "clGetKernelSubGroupInfo",
    "clGetPlatformIDs",
    "clGetPlatformInfo",
    "clGetDeviceIDs",
    "clGetDeviceInfo",
    "clWaitForEvents",
];

/// Runs of a strike that is not reached: where a buffer came from the pool this time.
const TRIES: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Build,
    Probe,
}

/// The place where a fault strikes.
#[derive(Debug, Clone)]
struct Strike {
    site: String,
    phase: Phase,
    nth: u64,
}

struct Sweep {
    cache: std::path::PathBuf,
    /// Strikes that hit, by site, phase and mode.
    hit: BTreeMap<(String, Phase, String), u64>,
    missed: u64,
    runs: u64,
}

#[test]
fn a_fault_at_any_call_loses_no_row() {
    if child::role().is_some() {
        let cache = std::env::var_os("HORTON_CACHE_DIR").unwrap();
        Sweep::new(Path::new(&cache)).all();
        return;
    }
    let _guard = one_at_a_time();
    let cache = tempfile::tempdir().unwrap();
    let status = child::command(&test_name!("a_fault_at_any_call_loses_no_row"), "sweep")
        .envs(driver(WITHOUT_CACHE))
        .env("HORTON_CACHE_DIR", cache.path())
        .status()
        .unwrap();
    assert!(status.success());
}

impl Sweep {
    fn new(cache: &Path) -> Self {
        Self {
            cache: cache.to_owned(),
            hit: BTreeMap::new(),
            missed: 0,
            runs: 0,
        }
    }

    /// All cases; the first one also with nothing in the cache of compiled programs.
    fn all(&mut self) {
        let start = Instant::now();
        let only = std::env::var("HORTON_TEST_FAULTS_CASE").unwrap_or_default();
        let cases = all(Size::Full)
            .into_iter()
            .filter(|(name, _)| name.contains(&only));
        for (i, (name, case)) in cases.enumerate() {
            if i == 0 {
                // The device's self-test is over before calls are counted.
                run(case.on_device(), case.context()).unwrap();
                self.case(name, &case, true);
            }
            self.case(name, &case, false);
        }
        let sites: BTreeSet<&String> = self.hit.keys().map(|(site, ..)| site).collect();
        // One case alone may miss a site in each of its tries.
        for (site, phase, _) in self.hit.keys().filter(|_| only.is_empty()) {
            for mode in ["fallback", "error"] {
                let mut hits = self.hit.keys();
                let hit = hits.any(|(other, in_phase, of_mode)| {
                    are_alike(site, other) && in_phase == phase && of_mode == mode
                });
                assert!(hit, "{site} in {phase:?}, {mode}: never hit");
            }
        }
        let reached: BTreeSet<&str> = sites.iter().flat_map(|s| s.split(' ').next()).collect();
        for function in functions().iter().filter(|_| only.is_empty()) {
            let tested =
                reached.contains(function.as_str()) || ELSEWHERE.contains(&function.as_str());
            assert!(tested, "{function}: no case makes it fail");
        }
        println!(
            "faults: {n} sites, {n} x 2 modes, 0 wrong ({} runs in {:.0?}, {} strikes not reached)",
            self.runs,
            start.elapsed(),
            self.missed,
            n = sites.len(),
        );
    }

    /// Learns where `case` calls OpenCL, and makes it fail there.
    fn case(&mut self, name: &str, case: &Case, cold: bool) {
        let stock = run(Arc::new(case.stock()), case.context()).unwrap();
        let expected = Expected::new(case, &stock.batches);
        let strikes = self.learn(name, case, &expected, cold);
        assert!(!strikes.is_empty(), "{name}");
        let (runs, start) = (self.runs, Instant::now());
        // Of what other cases have shown, a sample.
        let sample = strikes.len().div_ceil(12);
        for (i, strike) in strikes.into_iter().enumerate() {
            for mode in [OnDeviceError::Fallback, OnDeviceError::Error] {
                let known = (strike.site.clone(), strike.phase, mode.to_string());
                // Compiling takes its time: only what is special to it. Else programs come from the
                // cache.
                let of_program = strike.site.contains("Program");
                let of_program = of_program && !strike.site.starts_with(FROM_CACHE);
                let enough = self.hit.get(&known).is_some_and(|hits| *hits >= 4);
                if enough && i % sample != 0 || cold != of_program {
                    continue;
                }
                let mut tries = 0..TRIES;
                match tries.any(|_| self.strike(name, (case, mode), &expected, (&strike, cold))) {
                    true => *self.hit.entry(known).or_default() += 1,
                    false => self.missed += 1,
                }
            }
        }
        println!(
            "{name}: {} runs in {:.1?}",
            self.runs - runs,
            start.elapsed()
        );
    }

    /// Strikes at the first, middle and last use of every site in each phase.
    fn learn(&self, name: &str, case: &Case, expected: &Expected, cold: bool) -> Vec<Strike> {
        self.prepare(cold);
        let built = Arc::new(Mutex::new(BTreeMap::new()));
        let on_probe = {
            let built = Arc::clone(&built);
            let note = move || *built.lock().unwrap() = faults::report().uses;
            Arc::new(Mutex::new(Some(Box::new(note) as Box<dyn FnOnce() + Send>)))
        };
        faults::begin(None);
        let (plan, pool) = (plan(case, &on_probe), pool());
        let outcome = execute(name, plan, context(case, &pool)).unwrap();
        let uses = faults::end().uses;
        expected.check(name, &outcome.partitions);
        assert_eq!(outcome.device_errors, 0, "{name}");
        assert!(uses.keys().any(|site| site.starts_with("clEnqueueNDRange")));
        let built = built.lock().unwrap();
        let mut strikes = Vec::new();
        for (site, total) in uses {
            let of_build = built.get(&site).copied().unwrap_or(0);
            for (phase, first, last) in [
                (Phase::Build, 1, of_build),
                (Phase::Probe, of_build + 1, total),
            ] {
                let nth = BTreeSet::from([first, (first + last) / 2, last]);
                let within = nth.into_iter().filter(|nth| (first..=last).contains(nth));
                strikes.extend(within.map(|nth| Strike {
                    site: site.clone(),
                    phase,
                    nth,
                }));
            }
        }
        strikes
    }

    /// The device as it is when a process starts: no context, no pooled memory.
    fn prepare(&self, cold: bool) {
        faults::begin(Some(Fault {
            site: "clFinish".to_owned(),
            nth: 1,
            status: "CL_OUT_OF_RESOURCES",
            lasts: false,
        }));
        device().run_blocking(|_| Ok(())).unwrap_err();
        faults::end();
        if cold {
            for entry in std::fs::read_dir(&self.cache).unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
    }

    /// Runs `case` with one fault. Returns whether it came to that.
    fn strike(
        &mut self,
        name: &str,
        (case, mode): (&Case, OnDeviceError),
        expected: &Expected,
        (strike, cold): (&Strike, bool),
    ) -> bool {
        self.prepare(cold);
        self.runs += 1;
        let mut case = case.clone();
        case.config.on_device_error = mode;
        case.config.health = Health::default();
        let fault = Fault {
            site: strike.site.clone(),
            nth: strike.nth,
            status: STATUSES[self.runs as usize % STATUSES.len()],
            lasts: self.runs.is_multiple_of(2),
        };
        let what = format!("{name}, {mode}, {:?} {fault:?}", strike.phase);
        let pool = pool();
        faults::begin(Some(fault.clone()));
        let on_probe = OnProbe::default();
        let first = plan(&case, &on_probe);
        let outcome = execute(&what, first.clone(), context(&case, &pool));
        let report = faults::report();
        let failed = case.config.health.failure(device().info());
        match (outcome, mode) {
            (Ok(outcome), _) => {
                expected.check(&what, &outcome.partitions);
                assert_eq!(outcome.device_errors > 0, failed.is_some(), "{what}");
                let spared = SPARE.iter().any(|spare| fault.site.starts_with(spare));
                let noticed = mode == OnDeviceError::Fallback && failed.is_some();
                assert!(report.failed == 0 || noticed || spared, "{what}: no notice");
            }
            (Err(error), OnDeviceError::Error) => {
                let text = error.to_string();
                assert!(
                    text.contains(fault.status) && report.failed > 0,
                    "{what}: {text}"
                );
                assert!(failed.is_some(), "{what}");
            }
            (Err(error), OnDeviceError::Fallback) => panic!("{what}: {error}"),
        }
        drop(first);
        // What was in flight has ended.
        let _ = device().run_blocking(|_| Ok(()));
        eventually(&what, || {
            device().budget().used() == 0 && pool.reserved() == 0
        });
        if failed.is_some() {
            untouched(&what, &case, expected);
        }
        faults::end();
        report.failed > 0
    }
}

/// Checks that the next join of the session runs on the host after a failure, and says so.
fn untouched(what: &str, case: &Case, expected: &Expected) {
    let before = faults::report();
    let plan = plan(case, &OnProbe::default());
    let outcome = execute(what, plan.clone(), context(case, &pool())).unwrap();
    expected.check(&format!("{what}, again"), &outcome.partitions);
    let after = faults::report();
    let before_and_after = [before, after].map(asked);
    assert_eq!(
        before_and_after[0], before_and_after[1],
        "{what}: the device was asked again"
    );
    let shown = displayable(plan.as_ref()).one_line().to_string();
    assert!(
        shown.contains("rows, on the host: device failed: "),
        "{what}: {shown}"
    );
}

/// The uses of sites, but for those where memory of an earlier join is released: a memory thread
/// may still be about to do that.
fn asked(report: Report) -> BTreeMap<String, u64> {
    let releases = [
        "clReleaseMemObject",
        "clEnqueueUnmapMemObject to release",
        "clFlush",
    ];
    let mut uses = report.uses;
    uses.retain(|site, _| !releases.contains(&site.as_str()));
    uses
}
