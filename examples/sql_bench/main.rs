//! SQL joins of in-memory tables: stock DataFusion, this crate's joins on the host, and on an
//! OpenCL device.
//!
//! ```text
//!   cargo run --release --example sql_bench                      all cases for this machine
//!   cargo run --release --example sql_bench -- --cases '100Mx,text' --repeat 5 --csv some.csv
//!   cargo run --release --example sql_bench -- --preset wide     rows of 6 and 12 columns
//!   cargo run --release --example sql_bench -- --study build --csv study-build.csv
//!
//!   cases ─▶ tables (a pair at a time) ─▶ three sessions ─▶ by turns, checked ─▶ a line each
//! ```
//!
//! The kernels' rates (`device_bench`) say what a device can do and TPC-H (`tpch_join`) what whole
//! queries gain; this says what one join gains by its size, keys, hit rate and type, and
//! where its milliseconds go. Everything is a ratio measured in one run: all plans, the same
//! process, the same tables, all cores. The largest tables take 5 GB with the list `host`, 0.7
//! with `small`, the default below 8 cores, and 4 with `wide`; what a join allocates comes on top.
//!
//! Exit status: 0; 1 if an answer was wrong or a device idle against the settings; 2 for errors.
//! Figures go to standard output, progress and errors to standard error.

mod study;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Parser;

use crate::study::Study;
use horton_test_support::sql_bench::cases::{Case, Preset};
use horton_test_support::sql_bench::measure::{Outcome, Settings, Sides, measure};
use horton_test_support::sql_bench::tables::Tables;
use horton_test_support::sql_bench::{Result, cases, report};
use horton_test_support::status::status;
use horton_trace::with_trace;

/// SQL joins of in-memory tables: DataFusion's own, this crate's on the host and on a device
#[derive(Parser)]
struct Args {
    /// Device: auto, PLATFORM:INDEX, or part of a device's name
    #[arg(long, default_value = "auto")]
    device: String,

    /// Multiplies the rows of all tables
    #[arg(long, default_value = "1", value_parser = scale)]
    scale: f64,

    /// Run only cases whose name one of these is found in, as a regular expression
    #[arg(long, value_name = "REGEX,…", value_delimiter = ',')]
    cases: Vec<String>,

    /// The list of cases [default: host from 8 cores on, else small]
    #[arg(long)]
    preset: Option<Preset>,

    /// Time the best of N runs, after one to warm up
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    repeat: usize,

    /// Joins that run on the device
    #[arg(long, default_value = "always", value_parser = ["auto", "always"])]
    enabled: String,

    /// An option: horton's, as in --set chunk_rows=65536, or datafusion.…, which all plans
    /// get; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    set: Vec<(String, String)>,

    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Partitions of the tables and plans [default: all cores]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    partitions: Option<usize>,

    /// Write a timeline of all runs to this file, for ui.perfetto.dev (docs/debugging.md)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print each Horton join's line of EXPLAIN ANALYZE
    #[arg(long)]
    explain: bool,

    /// Instead of cases: grow one side, and plot into SVG files beside the CSV file
    /// [its default: study-build.csv, study-probe.csv]
    #[arg(long)]
    study: Option<Study>,

    /// List the names of the cases and stop
    #[arg(long)]
    list: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (1e-6..=100.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0.000001 to 100".to_string()),
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("a number from 1".to_string()),
    }
}

/// Splits `key=value`; a key without the prefix `horton.` or `datafusion.` gets the first.
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE")?;
    let key = key.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if key.is_empty() || !key.chars().all(is_name) {
        return Err("the key is not an option's name".to_string());
    }
    let is_full = ["horton.", "datafusion."]
        .iter()
        .any(|prefix| key.starts_with(prefix));
    let key = if is_full {
        key.to_string()
    } else {
        format!("horton.{key}")
    };
    Ok((key, value.trim().to_string()))
}

impl Args {
    fn cores() -> usize {
        thread::available_parallelism().map_or(1, usize::from)
    }

    fn preset(&self) -> Preset {
        self.preset
            .unwrap_or_else(|| Preset::for_cores(Self::cores()))
    }

    /// Returns the cases asked for, and the scale they are run at.
    fn selected(&self) -> Result<(Vec<Case>, f64)> {
        let (cases, scale) = match self.study {
            Some(study) => (study.cases(self.preset(), self.scale), 1.0),
            None => (self.preset().cases(), self.scale),
        };
        Ok((cases::select(cases, &self.cases)?, scale))
    }

    fn settings(&self) -> Settings {
        Settings {
            device: self.device.clone(),
            enabled: self.enabled.clone(),
            partitions: self.partitions.unwrap_or_else(Self::cores),
            reorder: self.study.is_none(),
            options: self.set.clone(),
        }
    }

    /// Returns where the figures go; a study's always go to a file.
    fn csv_path(&self) -> Option<PathBuf> {
        let of_study = |study: Study| PathBuf::from(format!("study-{}.csv", study.name()));
        self.csv.clone().or(self.study.map(of_study))
    }
}

fn main() -> ExitCode {
    let log = env_logger::Env::default().default_filter_or("warn");
    env_logger::Builder::from_env(log).init();
    let args = Args::parse();
    status(with_trace(args.trace.as_deref(), || run(&args)))
}

/// Does what the arguments ask for; returns the number of differences found.
fn run(args: &Args) -> Result<usize> {
    let (cases, scale) = args.selected()?;
    if args.list {
        let mut out = io::stdout().lock();
        for case in cases {
            writeln!(out, "{case}")?;
        }
        return Ok(0);
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let outcomes = runtime.block_on(run_cases(args, &cases, scale))?;
    let mut out = io::stdout();
    report::closing_line(&mut out, &outcomes)?;
    if let (Some(study), Some(csv)) = (args.study, args.csv_path()) {
        for plot in study.draw(&csv, &outcomes)? {
            writeln!(out, "drawn: {}", plot.display())?;
        }
    }
    Ok(outcomes.iter().map(|outcome| outcome.differences).sum())
}

async fn run_cases(args: &Args, cases: &[Case], scale: f64) -> Result<Vec<Outcome>> {
    let mut out = io::stdout();
    let settings = args.settings();
    let sides = Sides::new(&settings).await?;
    let mut csv = args.csv_path().map(|path| report::csv(&path)).transpose()?;
    match sides.device() {
        Some(device) => writeln!(out, "device: {}", device.info())?,
        None => writeln!(out, "device: none")?,
    }
    writeln!(
        out,
        "scale {}, {} cores, {} partitions, best of {}, horton.enabled = {}, options {:?}",
        args.scale,
        Args::cores(),
        settings.partitions,
        args.repeat,
        settings.enabled,
        settings.options,
    )?;
    report::header(&mut out)?;
    let mut tables = Tables::default();
    let mut outcomes = vec![];
    for case in cases {
        let shape = case.shape(scale);
        // The sessions let go first, so that the old tables are gone before new ones are made.
        sides.clear()?;
        let pair = tables.make(&shape, settings.partitions)?;
        sides.register(&pair)?;
        let asked = case.query.ask(&shape, &pair.answers);
        drop(pair);
        let outcome = Outcome::new(case.to_string(), shape, asked);
        let outcome = measure(&sides, outcome, args.repeat).await?;
        report::line(&mut out, &outcome, args.explain)?;
        if let Some(csv) = &mut csv {
            report::add(csv, &outcome)?;
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use horton_test_support::sql_bench::keys::Keys;

    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        Args::try_parse_from(["sql_bench"].into_iter().chain(words))
    }

    #[test]
    fn arguments() {
        let args = parse("").unwrap();
        assert_eq!(
            (args.scale, args.repeat, args.enabled.as_str()),
            (1.0, 3, "always")
        );
        assert!(args.settings().reorder && args.csv_path().is_none());
        let args = parse("--cases 100Mx,text --preset host --partitions 3 --explain").unwrap();
        assert_eq!((args.cases.len(), args.preset()), (2, Preset::Host));
        assert_eq!(args.settings().partitions, 3);
        let (cases, scale) = args.selected().unwrap();
        assert!(
            scale == 1.0
                && cases
                    .iter()
                    .all(|case| { case.build == 100_000_000 || case.keys == Keys::Text })
        );
        for wrong in [
            "--scale 0",
            "--scale nan",
            "--repeat 0",
            "--partitions 0",
            "--enabled never",
            "--set chunk_rows",
            "--preset tiny",
            "--study both",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("--cases nothing").unwrap().selected().is_err());
    }

    #[test]
    fn studies_write_files_and_swap_no_sides() {
        let args = parse("--study build --scale 0.01").unwrap();
        assert_eq!(args.csv_path(), Some(PathBuf::from("study-build.csv")));
        assert!(!args.settings().reorder);
        let (cases, scale) = args.selected().unwrap();
        assert_eq!(scale, 1.0);
        assert_eq!(cases.iter().map(|case| case.build).max(), Some(1_000_000));
    }

    #[test]
    fn options_get_their_prefix() {
        let pair = |key: &str, value: &str| Ok((key.to_string(), value.to_string()));
        assert_eq!(
            key_value("chunk_rows=65536"),
            pair("horton.chunk_rows", "65536")
        );
        assert_eq!(
            key_value("horton.device = a=b"),
            pair("horton.device", "a=b")
        );
        let batch_size = "datafusion.execution.batch_size";
        assert_eq!(key_value(&format!("{batch_size}=1")), pair(batch_size, "1"));
        assert!(key_value("a;drop=1").is_err());
    }
}
