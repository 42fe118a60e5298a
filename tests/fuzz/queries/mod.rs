//! Queries drawn at random, beside a session without this crate's joins.
//!
//! ```text
//!  seed ─▶ Query ─┬─ DataFusion: what is joined, kept as a table ─▶ outer query ─▶ expected
//!          │      ├─ ours, under options of the seed ─────────────────────────────▶ equal?
//!          │      └─ ours again, by a consumer that misbehaves ───────────────────▶ a part, or
//!          └─ expected, which no plan's promises have part in                       all of them?
//! ```
//!
//! Joins drawn as plans ([`random`](super::random)) are the roots of theirs. Here other operators
//! stand above and below: unions with tags, windows, sorts, limits, correlated subqueries. Some
//! keys can fail, behind what keeps them from it, and some are drawn at random. A planner relies on
//! what joins promise, and filters go through all that is below.
//!
//! Half of the queries are trees of three to eight joins (`trees.rs`). Which input of a join is
//! read first, and how far ahead of a join above, is all the same to their rows. That must hold for
//! a [`consumer`](super::consumer) as well that stops early, asks again, or leaves streams alone.
//! After each query memory, files and tasks must be gone.
//!
//! The outer query is answered from a table of the joined rows. So DataFusion's own mistakes about
//! its joins' properties do not count as expected. Nor do those of its joins' filters, which can
//! take one of two columns of one name for the other: the rows are joined in memory, without
//! filters. Where its own answer differs, that is counted.
//!
//! `cargo test --test fuzz queries::` runs a fixed set; `make fuzz DURATION=600 SEED=7` others, and
//! `HORTON_FUZZ_QUERY` one by its seed.

mod draw;
mod pool;
mod relations;
mod rows;
mod run;
mod tables;
mod tally;
mod trees;

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use tokio::runtime::{self, Runtime};

use self::run::Runner;
use self::tally::{Outcome, Tally};
use super::limited::check_tasks;
use super::numbers::mix;
use super::turn;

/// Stack of a thread that plans, which debug builds of the planner take for trees of joins.
const STACK: usize = 64 << 20;

/// Queries of a plain `cargo test`.
const QUERIES: u64 = 200;

#[test]
fn random_queries_are_answered_as_without_our_joins() {
    let number = |name: &str| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty());
        text.map(|text| {
            text.parse::<u64>()
                .unwrap_or_else(|e| panic!("{name}: {e}"))
        })
    };
    if let Some(seed) = number("HORTON_FUZZ_QUERY") {
        let check = move || Worker::new().check(seed);
        let checked = Builder::new().stack_size(STACK).spawn(check).unwrap();
        return match checked.join().unwrap() {
            Ok(outcome) => print(&format!("{outcome:#?}")),
            Err(difference) => panic!("{difference}"),
        };
    }
    let duration = number("HORTON_FUZZ_DURATION").map(Duration::from_secs);
    let seed = number("HORTON_FUZZ_SEED").unwrap_or(1);
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let all = Mutex::new(Tally::default());
    let start = Instant::now();
    let work = || {
        let worker = Worker::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let is_over = match duration {
                Some(duration) => start.elapsed() > duration,
                None => index >= QUERIES,
            };
            if is_over || stop.load(Ordering::Relaxed) {
                return;
            }
            let seed = mix(seed, index);
            let turn = turn::beside();
            let outcome = worker.check(seed);
            drop(turn);
            if let Err(difference) = &outcome {
                // At once, as the end may never come.
                print(&format!("HORTON_FUZZ_QUERY={seed}\n{difference}"));
            }
            let mut all = all.lock().unwrap();
            match outcome {
                Ok(outcome) => all.add(outcome),
                Err(difference) => {
                    all.differences
                        .push(format!("HORTON_FUZZ_QUERY={seed}\n{difference}"));
                    stop.store(duration.is_none(), Ordering::Relaxed);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let spawn = |_| {
            let thread = Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, work).unwrap()
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        let mut said = Instant::now();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed() > Duration::from_secs(20) && duration.is_some() {
                print(&all.lock().unwrap().text(seed, start.elapsed()));
                said = Instant::now();
            }
        }
    });
    let all = all.into_inner().unwrap();
    print(&all.text(seed, start.elapsed()));
    assert!(
        all.differences.is_empty(),
        "{}",
        all.differences.join("\n\n")
    );
    all.assert_that_it_shows_something();
}

/// A runner, and a runtime whose tasks are all of its queries.
struct Worker {
    runner: Runner,
    runtime: Runtime,
}

impl Worker {
    fn new() -> Self {
        let mut builder = runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let runner = runtime.block_on(Runner::new()).unwrap();
        Self { runner, runtime }
    }

    /// [`Runner::check`], and that no task is left.
    fn check(&self, seed: u64) -> Result<Outcome, String> {
        let outcome = self.runtime.block_on(self.runner.check(seed))?;
        let left = check_tasks(self.runtime.handle());
        left.map_err(|left| left.to_string())?;
        Ok(outcome)
    }
}

/// Prints past the test harness, which keeps what a passing test says to itself.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
