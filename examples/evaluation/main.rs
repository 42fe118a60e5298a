//! Measures everything on the machine at hand, and writes a report with charts.
//!
//! ```text
//!   make evaluation            make evaluation SMALL=1            DIR/evaluation --scale 10
//!
//!   parts ─▶ data ─▶ programs beside this one, one at a time ─▶ OUT/raw/*.csv, *.log
//!                    DuckDB, where it is found                        │
//!   machine ──────────────────────────────────────────────────────────┴▶ OUT/report.md, *.svg
//!                                                                        OUT/losses.md
//! ```
//!
//! One program drives the others. Each runs in a process of its own, so that none finds the memory
//! or the device as another left it. One that fails does not keep the rest from running.
//!
//! A shell script could drive them as well. It would still need a program for the charts, the
//! medians and db-benchmark's tables, and its own parsing would have no tests. This one needs
//! neither cargo nor a source tree: copy it and the programs that it runs into one folder.
//!
//! Exit status: 0; 1 if a part failed, which the report says; 2 if there is no report.

mod data;
mod db_benchmark;
mod figures;
mod losses;
mod machine;
mod parts;
mod report;
mod run;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use horton_test_support::duckdb::{DuckDb, Task};

use crate::figures::Csv;
use crate::parts::{Part, Settings, Shows, Work};
use crate::report::{Done, Results};
use crate::run::{Finished, Programs};

/// Any error, ready to be shown.
type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Error> = std::result::Result<T, E>;

/// Measures everything on the machine at hand, and writes a report with charts.
#[derive(Parser)]
struct Args {
    /// TPC-H's scale factor [default: 1, small 0.01]
    #[arg(long, value_parser = scale)]
    scale: Option<f64>,

    /// Timed runs of each query and rate [default: 5, small 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    repeat: Option<u64>,

    /// Rows of db-benchmark's largest tables, such as 1e8 [default: 1e7, small 1e5]
    #[arg(long, value_name = "N", value_parser = rows)]
    rows: Option<u64>,

    /// Device: auto, PLATFORM:INDEX, or part of a device's name
    #[arg(long)]
    device: Option<String>,

    /// Everything as small as can be: shows that all runs, and measures nothing
    #[arg(long)]
    small: bool,

    /// Only parts whose name contains one of these: tpch, db-benchmark, joins, device, paper, …
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    parts: Vec<String>,

    /// The folder of the report
    #[arg(long, value_name = "DIR", default_value = "target/evaluation")]
    out: PathBuf,

    /// The folder of Parquet files, which are kept for the next run [default: OUT-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// A Python that may have the module duckdb
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,

    /// The commit that was built, where git does not know it
    #[arg(long)]
    commit: Option<String>,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (0.001..=100_000.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0.001 to 100000".to_string()),
    }
}

fn at_least_one(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("a number from 1".to_string()),
    }
}

/// A whole number, as 10000000 or as 1e7; keys have 32 bits.
fn rows(text: &str) -> Result<u64, String> {
    match text.parse::<f64>() {
        Ok(rows) if (10.0..=1e9).contains(&rows) && rows.fract() == 0.0 => Ok(rows as u64),
        _ => Err("a whole number from 10 to 1e9".to_string()),
    }
}

impl Args {
    fn settings(&self) -> Settings {
        let (scale, repeat, rows) = match self.small {
            true => (0.01, 1, 100_000),
            false => (1.0, 5, 10_000_000),
        };
        Settings {
            scale: self.scale.unwrap_or(scale),
            repeat: self.repeat.unwrap_or(repeat) as usize,
            rows: self.rows.unwrap_or(rows),
            device: self.device.clone(),
            small: self.small,
            out: self.out.clone(),
            data: self.data.clone().unwrap_or_else(|| beside(&self.out)),
        }
    }
}

/// `DIR-data` for `DIR`.
fn beside(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_os_string();
    name.push("-data");
    out.with_file_name(name)
}

fn main() -> ExitCode {
    env_logger::init();
    let args = Args::parse();
    let programs = Programs::beside_this();
    match programs.and_then(|programs| evaluate(&args, programs, &mut io::stdout())) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs all parts, writes the report, and tells `out` how it goes. Returns how many parts failed.
fn evaluate(args: &Args, programs: Programs, out: &mut impl Write) -> Result<usize> {
    let settings = args.settings();
    let parts = parts::select(parts::parts(&settings), &args.parts);
    if parts.is_empty() {
        return Err(format!("no part's name contains any of {:?}", args.parts).into());
    }
    let runner = Runner {
        programs,
        duckdb: DuckDb::find(&args.python),
        settings,
    };
    data::create_folder(&runner.settings.raw())?;
    data::create_folder(&runner.settings.data)?;
    let mut facts = machine::describe(args.commit.as_deref(), runner.duckdb.as_ref());
    facts.push(("form", runner.settings.form()));
    let mut done = vec![];
    for part in parts {
        let is_duckdb = matches!(part.work, Work::DuckDb { .. });
        if is_duckdb && runner.duckdb.is_none() {
            writeln!(out, "{} … left out: DuckDB was not found", part.name)?;
            continue;
        }
        done.push(runner.done(part, out)?);
        // What is there already can be read while the rest runs.
        report::write(&args.out, &facts, &done)?;
        losses::write(&args.out, &done)?;
    }
    let failed = done
        .iter()
        .filter(|done| done.finished.failure.is_some())
        .count();
    let report = args.out.join("report.md");
    writeln!(
        out,
        "{}: {failed} of {} parts failed",
        report.display(),
        done.len()
    )?;
    Ok(failed)
}

/// The programs and settings that parts are run with.
struct Runner {
    settings: Settings,
    programs: Programs,
    duckdb: Option<DuckDb>,
}

impl Runner {
    /// Runs one part, and says so.
    fn done(&self, part: Part, out: &mut impl Write) -> Result<Done> {
        write!(out, "{} … ", part.name)?;
        out.flush()?;
        let (finished, results) = self.run(&part).unwrap_or_else(|error| {
            let finished = Finished {
                command: "-".to_string(),
                took: Duration::ZERO,
                failure: Some(error.to_string()),
            };
            (finished, Results::None)
        });
        match &finished.failure {
            Some(why) => writeln!(out, "FAILED: {why}")?,
            None => writeln!(out, "{:.1} s", finished.took.as_secs_f64())?,
        }
        Ok(Done {
            part,
            finished,
            results,
        })
    }

    fn run(&self, part: &Part) -> Result<(Finished, Results)> {
        self.forget(part)?;
        match &part.work {
            Work::Example {
                program,
                arguments,
                shows,
            } => self.example(&part.name, program, arguments, shows),
            Work::Data => Ok((self.files(part)?, Results::None)),
            Work::DuckDb { in_memory } => self.duckdb(part, *in_memory),
        }
    }

    fn files(&self, part: &Part) -> Result<Finished> {
        let data = part.data.ok_or("there is nothing to make")?;
        let log = self.raw(&part.name, "log");
        data.make(&self.settings.data, &self.programs, &log)
    }

    fn example(
        &self,
        name: &str,
        program: &str,
        arguments: &[String],
        shows: &Shows,
    ) -> Result<(Finished, Results)> {
        let mut command = self.programs.command(program)?;
        command.args(arguments);
        let mut finished = run::run(command, None, &self.raw(name, "log"));
        let read = match shows {
            Shows::Queries(_) => self
                .csv(name)
                .and_then(|csv| Ok(Results::Lines(csv.lines()?))),
            Shows::Times => self
                .csv(name)
                .and_then(|csv| Ok(Results::Times(csv.times()?))),
            Shows::Rates => self.csv(name).map(Results::Table),
            Shows::Figures(_) | Shows::Text => Ok(Results::None),
        };
        // The program's own failure says more than the file that it did not write.
        let results = read.unwrap_or_else(|error| {
            finished.failure.get_or_insert(error.to_string());
            Results::None
        });
        Ok((finished, results))
    }

    fn csv(&self, name: &str) -> Result<Csv> {
        Csv::read(&self.raw(name, "csv"))
    }

    fn duckdb(&self, part: &Part, in_memory: bool) -> Result<(Finished, Results)> {
        let found = self.duckdb.as_ref().ok_or("DuckDB is not there")?;
        let data = part.data.ok_or("DuckDB has nothing to read")?;
        let task = Task {
            folder: &data.folder(&self.settings.data),
            in_memory,
            threads: machine::cores(),
            repeat: self.settings.query_runs(),
        };
        let (script, names) = task.script()?;
        let (input, log) = (self.raw(&part.name, "sql"), self.raw(&part.name, "log"));
        let describe = |e| format!("cannot write {}: {e}", input.display());
        fs::write(&input, script).map_err(describe)?;
        let command = found.command(&self.settings.raw())?;
        let mut finished = run::run(command, Some(&input), &log);
        let printed = fs::read(&log).unwrap_or_default();
        let times = task.times(&String::from_utf8_lossy(&printed));
        if let Some(missing) = names.iter().find(|name| !times.contains_key(*name)) {
            let why = format!("DuckDB printed not all times of {missing}");
            finished.failure.get_or_insert(why);
        }
        Ok((finished, Results::Times(times)))
    }

    /// Removes what an earlier run of a part left, so that it is not taken for this one's.
    fn forget(&self, part: &Part) -> Result<()> {
        let mut files: Vec<PathBuf> = ["log", "csv", "sql"]
            .map(|e| self.raw(&part.name, e))
            .into();
        files.push(self.settings.out.join(format!("{}.svg", part.name)));
        for file in files.iter().filter(|file| file.exists()) {
            let describe = |e| format!("cannot remove {}: {e}", file.display());
            fs::remove_file(file).map_err(describe)?;
        }
        if let Work::Example {
            shows: Shows::Figures(folder),
            ..
        } = &part.work
            && folder.exists()
        {
            let describe = |e| format!("cannot remove {}: {e}", folder.display());
            fs::remove_dir_all(folder).map_err(describe)?;
        }
        Ok(())
    }

    fn raw(&self, name: &str, extension: &str) -> PathBuf {
        self.settings.raw().join(format!("{name}.{extension}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Args, clap::Error> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        Args::try_parse_from(["evaluation"].into_iter().chain(words))
    }

    #[test]
    fn the_small_form_changes_only_what_is_not_said() {
        let settings = parse("").unwrap().settings();
        assert_eq!(
            (settings.scale, settings.repeat, settings.rows),
            (1.0, 5, 10_000_000)
        );
        assert_eq!(settings.data, Path::new("target/evaluation-data"));
        let settings = parse("--small --rows 1e6 --out some").unwrap().settings();
        assert_eq!(
            (settings.scale, settings.repeat, settings.rows),
            (0.01, 1, 1_000_000)
        );
        assert_eq!(settings.data, Path::new("some-data"));
    }

    #[test]
    fn wrong_arguments() {
        for wrong in [
            "--scale 0",
            "--repeat 0",
            "--rows 1.5",
            "--rows 2e9",
            "--rows x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let nowhere = Programs::in_folder(Path::new(""));
        let nothing = parse("--parts nothing").unwrap();
        assert!(evaluate(&nothing, nowhere, &mut vec![]).is_err());
    }

    #[test]
    fn parts_whose_programs_are_missing_fail_in_the_report() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let args = format!(
            "--small --parts tpch-memory-auto,device --out {}",
            out.display()
        );
        let nowhere = Programs::in_folder(folder.path());
        let mut printed = vec![];
        let failed = evaluate(&parse(&args).unwrap(), nowhere, &mut printed).unwrap();
        let printed = String::from_utf8(printed).unwrap();
        assert_eq!(failed, 4);
        assert!(
            printed.ends_with("report.md: 4 of 4 parts failed\n"),
            "{printed}"
        );
        let text = fs::read_to_string(out.join("report.md")).unwrap();
        assert!(
            text.contains("**FAILED: devices**: devices is not in "),
            "{text}"
        );
        assert!(text.contains("**FAILED: tpch-data**: tpch_join is not in "));
        assert_eq!(text.matches("**FAILED").count(), 4);
    }
}
