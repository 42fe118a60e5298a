//! DataFusion's own test suite, with every join on the device.
//!
//! ```text
//!  crate datafusion-sqllogictest ─ copy ─▶ scratch workspace + a few CSVs ─▶ each file three times
//!    1  partitions kept,         all records, plans too (our line as the stock one)
//!       scans without filters
//!    2  either side built        all records but EXPLAIN: the default, and other plans
//!    3  4 MiB of memory          as 2, in a limited memory pool
//! ```
//!
//! `cargo test -p horton-sqllogictest -- joins.slt subquery.slt:330` runs the files whose
//! path contains a name. With a line it runs the record there, and the statements before it.
//! Without names it runs every file that mentions JOIN and needs no data that the crate lacks.
//! `--pass 1`, `2` or `3` runs each file once; `HORTON_TEST_DEVICE` picks the device, as
//! `horton.device` does.
//!
//! Results are made into text and compared by DataFusion's own engine parts, so a query passes here
//! exactly when it would pass there; `plans.rs` says what is not compared of a plan. In the third
//! pass the pool may refuse DataFusion's own operators: such a record is left out if the stock
//! session is refused, too. Joins of most files are too small to go to disk there; those of
//! `tpch/tpch.slt` do. Behind each query its joins and scans are executed once more by themselves,
//! and what they promise is held against their rows (`promises.rs` of `tests/support`). The last
//! lines count records, the joins that launched kernels or went to disk, and promises.

mod data;
mod database;
mod plans;
mod suite;
mod tpch;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use datafusion::execution::context::SessionContext;
use datafusion_sqllogictest::{
    DFColumnType, TestContext, df_value_validator, setup_scratch_dir, should_skip_record,
};
use horton_join::device::Device;
use horton_test_support::promises::Promises;
use sqllogictest::{
    QueryExpect, Record, RecordOutput, Runner, parse_file, strict_column_validator,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use database::{Database, Tally};
use plans::Names;
use suite::{Suite, TestFile};

/// The way in which joins are planned while a file runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// Sides stay as DataFusion planned them, partitioned or not: the plans are the stock ones.
    Partitioned,
    /// Either side of a join may be built, as by default.
    Open,
    /// The same within a memory pool of 4 MiB, until a file sets a limit of its own.
    Limited,
}

impl Pass {
    const ALL: [Pass; 3] = [Pass::Partitioned, Pass::Open, Pass::Limited];

    fn name(self) -> &'static str {
        match self {
            Pass::Partitioned => "partitions kept",
            Pass::Open => "either side built",
            Pass::Limited => "4 MiB of memory",
        }
    }
}

#[derive(Parser)]
struct Options {
    /// Parts of file paths, each with an optional `:line`.
    names: Vec<String>,
    /// Files run at the same time.
    #[clap(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    test_threads: usize,
    /// The one pass to run.
    #[clap(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    pass: Option<u8>,
    /// List nothing and stop: files are no test cases to the built-in harness.
    #[clap(long)]
    list: bool,
    /// Options of the built-in harness that mean nothing here.
    #[clap(flatten)]
    ignored: Ignored,
}

impl Options {
    fn passes(&self) -> &'static [Pass] {
        match self.pass.map(usize::from) {
            Some(pass) => &Pass::ALL[pass - 1..pass],
            None => &Pass::ALL,
        }
    }
}

/// Arguments that `cargo test -- …` may hand to every test binary.
#[derive(Parser)]
struct Ignored {
    #[clap(long)]
    nocapture: bool,
    #[clap(long)]
    no_capture: bool,
    #[clap(long)]
    show_output: bool,
    #[clap(long)]
    ignored: bool,
    #[clap(long)]
    include_ignored: bool,
    #[clap(long)]
    exact: bool,
    #[clap(long, short)]
    quiet: bool,
    #[clap(long)]
    format: Option<String>,
    #[clap(long)]
    color: Option<String>,
    #[clap(long)]
    skip: Vec<String>,
}

/// The outcome of a file's records in one pass, or of all files' in all passes.
#[derive(Debug, Default)]
struct Outcome {
    passed: usize,
    failures: Vec<String>,
    /// EXPLAIN records that passed.
    plans: usize,
    /// EXPLAIN records that were left out because the plans are meant to differ.
    other_plans: usize,
    /// EXPLAIN records that show a dynamic filter over all key columns, where ours has one each.
    other_filters: usize,
    /// EXPLAIN records in tree form, where our node's box has another size.
    trees: usize,
    /// Records that a limited pool refuses to the stock session, too.
    refused: usize,
    joins: usize,
    /// Joins that went to disk.
    spilled: usize,
    promises: Promises,
}

impl Outcome {
    fn failure(text: String) -> Self {
        Self {
            failures: vec![text],
            ..Self::default()
        }
    }

    fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.plans += other.plans;
        self.other_plans += other.other_plans;
        self.other_filters += other.other_filters;
        self.trees += other.trees;
        self.refused += other.refused;
        self.joins += other.joins;
        self.spilled += other.spilled;
        self.promises.add(other.promises);
    }
}

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    if options.list {
        return ExitCode::SUCCESS;
    }
    match run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sqllogictest: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the files that the options name; whether all their records passed.
fn run(options: Options) -> Result<bool, Box<dyn Error>> {
    let suite = Suite::unpack()?;
    let files = suite.files(&options.names)?;
    if files.is_empty() {
        println!("no test file has such a name");
        return Ok(true);
    }
    let asked = horton_test_support::env::asked();
    let names = Names {
        paths: suite.paths(),
    };
    let device = Device::open(&asked)?;
    println!("{} files on {}", files.len(), device.info().name);
    let shared = Arc::new(Shared {
        asked,
        names,
        passes: options.passes(),
        turns: Semaphore::new(options.test_threads.max(1)),
    });
    let total = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run_files(files, shared));
    Ok(report(&total))
}

/// Prints what became of all records; whether they passed.
fn report(total: &Outcome) -> bool {
    for failure in &total.failures {
        println!("\n{failure}");
    }
    println!(
        "\nEXPLAIN records compared with partitions kept: {}; in tree form, not compared: {}",
        total.plans, total.trees
    );
    println!(
        "EXPLAIN records left out with either side built, with and without a limit: {}",
        total.other_plans
    );
    println!(
        "EXPLAIN records left out as they show a filter over all key columns: {}",
        total.other_filters
    );
    println!(
        "records left out as 4 MiB are too few for the stock session, too: {}",
        total.refused
    );
    println!(
        "records: {} passed, {} failed; joins on device: {}, on disk: {}",
        total.passed,
        total.failures.len(),
        total.joins,
        total.spilled
    );
    println!(
        "promises held against rows: {}, of {} nodes; broken by DataFusion, too: {}; nodes that do \
         not run by themselves: {}",
        total.promises.promises,
        total.promises.nodes,
        total.promises.inherited.len(),
        total.promises.failed.len()
    );
    total.failures.is_empty()
}

/// The state that all files need.
struct Shared {
    asked: String,
    names: Names,
    passes: &'static [Pass],
    turns: Semaphore,
}

async fn run_files(files: Vec<TestFile>, shared: Arc<Shared>) -> Outcome {
    let mut tasks = JoinSet::new();
    for file in files {
        let shared = Arc::clone(&shared);
        #[expect(
            clippy::await_holding_invalid_type,
            reason = "it is a task, and the turn is what it is for"
        )]
        tasks.spawn(async move {
            let Ok(_turn) = shared.turns.acquire().await else {
                return Outcome::default();
            };
            let start = Instant::now();
            let mut outcome = Outcome::default();
            // One after the other: all use the file's scratch folder.
            for pass in shared.passes {
                let work = run_file(file.clone(), *pass, Arc::clone(&shared));
                outcome.add(match tokio::spawn(work).await {
                    Ok(done) => done,
                    Err(panic) => Outcome::failure(format!("{}: {panic}", file.name())),
                });
            }
            announce(&file, &outcome, start.elapsed());
            outcome
        });
    }
    let mut total = Outcome::default();
    while let Some(outcome) = tasks.join_next().await {
        total.add(outcome.unwrap_or_else(|panic| Outcome::failure(panic.to_string())));
    }
    total
}

fn announce(file: &TestFile, outcome: &Outcome, took: Duration) {
    println!(
        "{:5} passed {:3} failed {:5} joins {:6.1} s  {}",
        outcome.passed,
        outcome.failures.len(),
        outcome.joins,
        took.as_secs_f64(),
        file.name()
    );
}

async fn run_file(file: TestFile, pass: Pass, shared: Arc<Shared>) -> Outcome {
    let fail = |text: String| {
        let text = format!("{} ({}): {text}", file.name(), pass.name());
        Outcome::failure(text)
    };
    if let Err(error) = setup_scratch_dir(&file.relative) {
        return fail(error.to_string());
    }
    // Dropping the context deletes its tables' files.
    let Some(context) = TestContext::try_new_for_test_file(&file.relative).await else {
        return fail("cannot run here".to_owned());
    };
    let session = match database::session(context.session_ctx(), pass, &shared.asked) {
        Ok(session) => session,
        Err(error) => return fail(error.to_string()),
    };
    match parse_file(&file.path) {
        Ok(records) => run_records(records, &file, (pass, session), &shared).await,
        Err(error) => fail(error.to_string()),
    }
}

async fn run_records(
    records: Vec<Record<DFColumnType>>,
    file: &TestFile,
    (pass, session): (Pass, SessionContext),
    shared: &Shared,
) -> Outcome {
    let tally = Arc::new(Tally::default());
    let mut runner = Runner::new(|| async {
        let (session, tally) = (session.clone(), Arc::clone(&tally));
        let names = shared.names.clone();
        Ok(Database::new(session, file.relative.clone(), names, tally))
    });
    runner.add_label("Datafusion");
    runner.with_column_validator(strict_column_validator);
    runner.with_normalizer(plans::common_line);
    runner.with_validator(df_value_validator);
    let mut outcome = Outcome::default();
    for record in records {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        if should_skip_record::<Database>(&record, &file.records) {
            continue;
        }
        let explain = compares_plan(&record);
        if explain && pass != Pass::Partitioned {
            outcome.other_plans += 1;
            continue;
        }
        if explain && shows_one_filter(&record) {
            outcome.other_filters += 1;
            continue;
        }
        match runner.run_async(record).await {
            // A comment or a control line, or a record for another engine.
            Ok(RecordOutput::Nothing) => {}
            Ok(_) => {
                outcome.passed += 1;
                outcome.plans += usize::from(explain);
            }
            Err(_) if tally.last_was_tree() => outcome.trees += 1,
            Err(_) if tally.last_was_refused() => outcome.refused += 1,
            Err(error) => outcome.failures.push(format!(
                "{} with {}",
                error.to_string().trim_end(),
                pass.name()
            )),
        }
    }
    (outcome.joins, outcome.spilled) = (tally.joins(), tally.spilled());
    outcome.promises = tally.promises();
    let broken = std::mem::take(&mut outcome.promises.broken).into_iter();
    let name = |broken| format!("{} ({}): promises {broken}", file.name(), pass.name());
    outcome.failures.extend(broken.map(name));
    outcome
}

/// Returns whether a record expects the dynamic filter of a join over all its key columns, or of
/// each of its partitions.
fn shows_one_filter(record: &Record<DFColumnType>) -> bool {
    let Record::Query {
        expected: QueryExpect::Results { results, .. },
        ..
    } = record
    else {
        return false;
    };
    let marks = [
        "hash_lookup",
        "struct(",
        "CASE range_partition",
        "CASE hash_repartition",
    ];
    let shows = |line: &String| {
        line.contains("DynamicFilter [ ") && marks.iter().any(|mark| line.contains(mark))
    };
    results.iter().any(shows)
}

/// Returns whether a record expects the text of a plan.
fn compares_plan(record: &Record<DFColumnType>) -> bool {
    match record {
        Record::Query {
            sql,
            expected: QueryExpect::Results { .. },
            ..
        } => plans::is_explain(sql),
        _ => false,
    }
}
