//! SQL joins under criterion: stock DataFusion and joins on the device, as two functions of a
//! group.
//!
//! ```text
//!   cargo bench -p horton-benches --bench join           15 K x 150 K to 1 M x 3 M rows
//!   HORTON_BENCH_SCALE=10 cargo bench -p horton-benches --bench join -- sparse    ten times that
//!
//!   cases, tables and checks of examples/sql_bench ─▶ criterion: samples, change since last time
//!                                                  └▶ at the end sql_bench's table of best runs
//! ```
//!
//! The question here is "did this change make it faster?", for which criterion keeps the last
//! run's samples; `sql_bench` asks how fast a join is beside stock, at full size. So the sizes
//! suit any machine, and the cases are the few that go different ways through the operator:
//! exact and hashed keys, few hits, fan-out, strings, an outer and a semi join. Every run's answer
//! is checked, and a run that launches no kernel counts as wrong: exit status 1.
//!
//! Criterion samples one side and then the other. The example's turns are fairer where a machine's
//! clock drifts, so ratios to publish come from there. `HORTON_BENCH_DEVICE` names a device.

use std::env;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use tokio::runtime::Runtime;

use horton_test_support::sql_bench::cases::Case;
use horton_test_support::sql_bench::keys::Keys;
use horton_test_support::sql_bench::measure::{Outcome, Pass, Settings, Side, Sides};
use horton_test_support::sql_bench::query::{Outer, Query};
use horton_test_support::sql_bench::tables::Tables;
use horton_test_support::sql_bench::{Result, report};

const K: u64 = 1000;

/// Joins that go different ways through the operator, equal tables beside each other.
const CASES: [Case; 9] = [
    Case::new(1000 * K, 3000 * K, Keys::Dense, Query::Sum, 100),
    Case::new(1000 * K, 3000 * K, Keys::Sparse, Query::Count, 100),
    Case::new(1000 * K, 3000 * K, Keys::Sparse, Query::Sum, 100),
    Case::new(150 * K, 1500 * K, Keys::Sparse, Query::Sum, 1),
    Case::new(
        150 * K,
        1500 * K,
        Keys::Sparse,
        Query::Outer(Outer::Full),
        10,
    ),
    Case::new(150 * K, 1500 * K, Keys::Sparse, Query::ProbeSemi, 10),
    Case {
        copies: 4,
        ..Case::new(200 * K, 600 * K, Keys::Sparse, Query::Sum, 100)
    },
    Case::new(100 * K, 1000 * K, Keys::Text, Query::Sum, 100),
    Case::new(15 * K, 150 * K, Keys::Dense, Query::Sum, 100),
];

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(differences) => {
            eprintln!("error: {differences} differences");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Measures all cases and prints their table; returns the number of differences.
fn run() -> Result<usize> {
    let scale: f64 = match env::var("HORTON_BENCH_SCALE") {
        Ok(text) => text
            .parse()
            .ok()
            .filter(|scale| (1e-6..=100.0).contains(scale))
            .ok_or("HORTON_BENCH_SCALE is a number from 0.000001 to 100")?,
        Err(_) => 1.0,
    };
    let settings = Settings {
        device: env::var("HORTON_BENCH_DEVICE").unwrap_or_else(|_| "auto".to_string()),
        enabled: "always".to_string(),
        partitions: std::thread::available_parallelism().map_or(1, usize::from),
        reorder: true,
        options: vec![],
    };
    let runtime = Runtime::new()?;
    let sides = runtime.block_on(Sides::new(&settings))?;
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let mut tables = Tables::default();
    let mut outcomes = vec![];
    for case in CASES {
        let shape = case.shape(scale);
        sides.clear()?;
        let pair = tables.make(&shape, settings.partitions)?;
        sides.register(&pair)?;
        let asked = case.query.ask(&shape, &pair.answers);
        let mut outcome = Outcome::new(case.to_string(), shape, asked);
        drop(pair);
        bench(&mut criterion, &runtime, &sides, &mut outcome)?;
        outcomes.push(outcome);
    }
    criterion.final_summary();
    // None is measured where criterion only lists the names.
    outcomes.retain(|outcome| report::Figures::from_outcome(outcome).is_some());
    if outcomes.is_empty() {
        return Ok(0);
    }
    let mut out = io::stdout();
    report::header(&mut out)?;
    for outcome in &outcomes {
        report::line(&mut out, outcome, false)?;
    }
    report::closing_line(&mut out, &outcomes)?;
    Ok(outcomes.iter().map(|outcome| outcome.differences).sum())
}

/// One group: the case on both sides.
fn bench(
    criterion: &mut Criterion,
    runtime: &Runtime,
    sides: &Sides,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut failed = None;
    let mut group = criterion.benchmark_group(&outcome.name);
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(
        outcome.shape.build_rows() + outcome.shape.probe_rows,
    ));
    for (side, name) in [(Side::Stock, "stock"), (Side::Horton, "horton")] {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    match runtime.block_on(sides.run(side, &outcome.asked, Pass::Timed)) {
                        Ok(run) => {
                            total += run.time;
                            outcome.add(sides, side, run);
                        }
                        Err(error) => {
                            failed.get_or_insert(error);
                            // Criterion divides by it.
                            total += Duration::from_nanos(1);
                        }
                    }
                }
                total
            });
        });
    }
    group.finish();
    match failed {
        Some(error) => Err(format!("{}, {error}", outcome.name).into()),
        None => Ok(()),
    }
}
