//! What an evaluation consists of, one program per part.
//!
//! ```text
//!   devices                                                        what is there
//!   tpch-data, db-benchmark-data                                   Parquet files that others read
//!   tpch-{memory,parquet}-{always,auto}    tpch_join   ┐           tpch-{memory,parquet}-duckdb
//!   db-benchmark-{always,auto}             tpch_join   ├ beside    db-benchmark-duckdb
//!   joins                                  sql_bench   ┘ DataFusion
//!   {tpch-memory,tpch-parquet,db-benchmark}-bloom      robust      datafusion-bloom
//!   device-rates, paper-figures            tables by themselves
//! ```
//!
//! The small form has the same parts over little data. Its times say nothing; it shows that all
//! programs run.

use std::path::{Path, PathBuf};

use crate::data::Data;

/// The extent of the evaluation, and where it goes.
#[derive(Debug, Clone)]
pub struct Settings {
    /// TPC-H's scale factor.
    pub scale: f64,
    /// Timed runs of a query.
    pub repeat: usize,
    /// Rows of db-benchmark's largest tables.
    pub rows: u64,
    /// The value of `horton.device`; `None` for the default.
    pub device: Option<String>,
    /// True if all is as small as it can be.
    pub small: bool,
    /// The folder of results.
    pub out: PathBuf,
    /// The folder of Parquet files.
    pub data: PathBuf,
}

impl Settings {
    /// The folder of what the programs wrote.
    pub fn raw(&self) -> PathBuf {
        self.out.join("raw")
    }

    /// The file of figures of the part `name`.
    fn csv(&self, name: &str) -> PathBuf {
        self.raw().join(format!("{name}.csv"))
    }

    /// Returns in words how much is measured.
    pub fn form(&self) -> String {
        match self.small {
            true => "small, whose times say nothing".to_string(),
            false => format!(
                "whole, {} timed runs, of queries {}",
                self.repeat,
                self.query_runs()
            ),
        }
    }

    /// Timed runs of each query: `tpch_join` makes them even, so that either side is as often the
    /// first.
    pub fn query_runs(&self) -> usize {
        self.repeat.next_multiple_of(2)
    }
}

/// One program to run.
#[derive(Debug)]
pub struct Part {
    /// Its name in files.
    pub name: String,
    /// Title of what it shows.
    pub title: String,
    /// Data that it reads.
    pub data: Option<Data>,
    /// Work that it does.
    pub work: Work,
}

/// The work of a part.
#[derive(Debug)]
pub enum Work {
    /// One of the project's examples.
    Example {
        /// Its name.
        program: &'static str,
        /// Its arguments.
        arguments: Vec<String>,
        /// Use of its output.
        shows: Shows,
    },
    /// Makes the files of `data`.
    Data,
    /// The queries of `data` in DuckDB.
    DuckDb {
        /// True if it reads the tables into memory first.
        in_memory: bool,
    },
}

/// The kind of an example's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Shows {
    /// Queries beside plain DataFusion, as CSV, and the rivals that they stand beside.
    Queries(Option<Rivals>),
    /// Times of a rival, as CSV.
    Times,
    /// Rates of tables, as CSV.
    Rates,
    /// A folder of figures with a report of its own.
    Figures(PathBuf),
    /// A text.
    Text,
}

/// The parts with the same queries in other engines.
#[derive(Debug, Clone, PartialEq)]
pub struct Rivals {
    /// That of DuckDB.
    pub duckdb: String,
    /// That of datafusion-bloom.
    pub bloom: String,
}

impl Rivals {
    fn of(suite: &str) -> Self {
        Self {
            duckdb: format!("{suite}-duckdb"),
            bloom: format!("{suite}-bloom"),
        }
    }
}

/// All parts, in the order in which they run.
pub fn parts(settings: &Settings) -> Vec<Part> {
    let tpch = Data::Tpch(settings.scale);
    let db_benchmark = Data::DbBenchmark(settings.rows);
    let scale = settings.scale;
    let mut parts = vec![devices(), files("tpch-data", tpch)];
    parts.push(files("db-benchmark-data", db_benchmark));
    for (name, title, data, in_memory) in [
        (
            "tpch-memory",
            format!("TPC-H at scale {scale}, in memory"),
            tpch,
            true,
        ),
        (
            "tpch-parquet",
            format!("TPC-H at scale {scale}, from Parquet"),
            tpch,
            false,
        ),
        (
            "db-benchmark",
            format!("db-benchmark's joins of {} rows, in memory", settings.rows),
            db_benchmark,
            true,
        ),
    ] {
        for enabled in ["always", "auto"] {
            parts.push(queries(
                settings,
                (name, &title),
                (data, in_memory),
                enabled,
            ));
        }
        parts.push(Part {
            name: Rivals::of(name).duckdb,
            title: format!("{title}: DuckDB"),
            data: Some(data),
            work: Work::DuckDb { in_memory },
        });
        parts.push(bloom(settings, (name, &title), (data, in_memory)));
    }
    parts.extend([
        joins(settings),
        device_rates(settings),
        paper_figures(settings),
    ]);
    parts
}

/// The parts whose names contain one of `names`, and the files that they read; all without names.
/// Files alone are made if one of `names` is their whole name.
pub fn select(parts: Vec<Part>, names: &[String]) -> Vec<Part> {
    let is_asked = |part: &Part| {
        let is_named = names.iter().any(|name| part.name.contains(name));
        let is_named = is_named && !matches!(part.work, Work::Data);
        names.is_empty() || is_named || names.contains(&part.name)
    };
    let read: Vec<Data> = parts
        .iter()
        .filter(|p| is_asked(p))
        .filter_map(|p| p.data)
        .collect();
    let is_read = |part: &Part| {
        let is_data = matches!(part.work, Work::Data);
        is_data && part.data.is_some_and(|data| read.contains(&data))
    };
    let kept = |part: &Part| is_asked(part) || is_read(part);
    parts.into_iter().filter(kept).collect()
}

fn devices() -> Part {
    Part {
        name: "devices".to_string(),
        title: "OpenCL devices".to_string(),
        data: None,
        work: Work::Example {
            program: "devices",
            arguments: vec![],
            shows: Shows::Text,
        },
    }
}

fn files(name: &str, data: Data) -> Part {
    Part {
        name: name.to_string(),
        title: "Parquet files".to_string(),
        data: Some(data),
        work: Work::Data,
    }
}

fn queries(
    settings: &Settings,
    (suite, title): (&str, &str),
    (data, in_memory): (Data, bool),
    enabled: &str,
) -> Part {
    let name = format!("{suite}-{enabled}");
    let mut arguments = words(&["--rows", "0", "--enabled", enabled]);
    arguments.extend(reading(settings, data, in_memory));
    arguments.extend(common(settings, Some(&name)));
    Part {
        title: format!("{title}, horton.enabled = {enabled}"),
        data: Some(data),
        work: Work::Example {
            program: "tpch_join",
            arguments,
            shows: Shows::Queries(Some(Rivals::of(suite))),
        },
        name,
    }
}

/// The queries as they stand, in datafusion-bloom. Its reader has filters, as where its authors
/// measure.
fn bloom(
    settings: &Settings,
    (suite, title): (&str, &str),
    (data, in_memory): (Data, bool),
) -> Part {
    let name = Rivals::of(suite).bloom;
    let orders = "orders --orders 1 --least-tables 0 --engines bloom --pushdown bloom";
    let mut arguments: Vec<String> = orders.split(' ').map(str::to_string).collect();
    arguments.extend(reading(settings, data, in_memory));
    arguments.extend(words(&["--repeat", &settings.query_runs().to_string()]));
    arguments.extend(["--csv".to_string(), path(&settings.csv(&name))]);
    Part {
        title: format!("{title}: datafusion-bloom"),
        data: Some(data),
        work: Work::Example {
            program: "robust",
            arguments,
            shows: Shows::Times,
        },
        name,
    }
}

/// Arguments that name the tables and queries of `data`.
fn reading(settings: &Settings, data: Data, in_memory: bool) -> Vec<String> {
    let folder = data.folder(&settings.data);
    let mut arguments = vec!["--data".to_string(), path(&folder.join("tables"))];
    arguments.extend(["--queries".to_string(), path(&folder.join("queries"))]);
    arguments.extend(in_memory.then(|| "--in-memory".to_string()));
    arguments
}

fn joins(settings: &Settings) -> Part {
    let mut arguments = match settings.small {
        true => words(&["--scale", "0.001"]),
        false => vec![],
    };
    arguments.extend(common(settings, Some("joins")));
    Part {
        name: "joins".to_string(),
        title: "Single joins in memory, horton.enabled = always".to_string(),
        data: None,
        work: Work::Example {
            program: "sql_bench",
            arguments,
            shows: Shows::Queries(None),
        },
    }
}

fn device_rates(settings: &Settings) -> Part {
    let small = "--probes-log2 16 --sizes 1 --loads 0.8 --hot-rows 100000";
    let mut arguments: Vec<String> = match settings.small {
        true => small.split(' ').map(str::to_string).collect(),
        false => vec![],
    };
    arguments.extend(common(settings, Some("device-rates")));
    Part {
        name: "device-rates".to_string(),
        title: "Rates of Horton tables, operations a second".to_string(),
        data: None,
        work: Work::Example {
            program: "device_bench",
            arguments,
            shows: Shows::Rates,
        },
    }
}

fn paper_figures(settings: &Settings) -> Part {
    let small = "--probe-bytes 65536 --sizes 16,64 --model-slots-log2 12 --buckets-log2 12";
    let mut arguments: Vec<String> = match settings.small {
        true => small.split(' ').map(str::to_string).collect(),
        false => vec![],
    };
    let folder = settings.out.join("paper-figures");
    arguments.extend(["--out".to_string(), path(&folder)]);
    arguments.extend(common(settings, None));
    Part {
        name: "paper-figures".to_string(),
        title: "Figures of the Horton paper".to_string(),
        data: None,
        work: Work::Example {
            program: "paper_figures",
            arguments,
            shows: Shows::Figures(folder),
        },
    }
}

/// Runs, device, and the file that figures of the part `csv` go to.
fn common(settings: &Settings, csv: Option<&str>) -> Vec<String> {
    let mut arguments = words(&["--repeat", &settings.repeat.to_string()]);
    if let Some(device) = &settings.device {
        arguments.extend(words(&["--device", device]));
    }
    if let Some(name) = csv {
        arguments.extend(["--csv".to_string(), path(&settings.csv(name))]);
    }
    arguments
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn settings(small: bool) -> Settings {
        Settings {
            scale: 0.01,
            repeat: 3,
            rows: 1000,
            device: Some("NVIDIA H100".to_string()),
            small,
            out: PathBuf::from("out"),
            data: PathBuf::from("data"),
        }
    }

    fn line(part: &Part) -> String {
        match &part.work {
            Work::Example { arguments, .. } => arguments.join(" "),
            Work::DuckDb { .. } | Work::Data => String::new(),
        }
    }

    #[test]
    fn every_part_has_a_name_of_its_own_and_rivals_that_exist() {
        let parts = parts(&settings(false));
        let names: BTreeSet<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names.len(), parts.len());
        for part in &parts {
            if let Work::Example {
                shows: Shows::Queries(Some(rivals)),
                ..
            } = &part.work
            {
                for rival in [&rivals.duckdb, &rivals.bloom] {
                    assert!(names.contains(rival.as_str()), "{rival}");
                }
            }
        }
    }

    #[test]
    fn arguments_say_what_is_measured() {
        let parts = parts(&settings(false));
        let of = |name: &str| line(parts.iter().find(|part| part.name == name).unwrap());
        assert_eq!(
            of("tpch-memory-auto"),
            "--rows 0 --enabled auto --data data/tpch-0.01/tables \
             --queries data/tpch-0.01/queries --in-memory --repeat 3 --device NVIDIA H100 \
             --csv out/raw/tpch-memory-auto.csv"
        );
        assert!(!of("tpch-parquet-always").contains("--in-memory"));
        assert_eq!(
            of("db-benchmark-bloom"),
            "orders --orders 1 --least-tables 0 --engines bloom --pushdown bloom \
             --data data/db-benchmark-1000/tables --queries data/db-benchmark-1000/queries \
             --in-memory --repeat 4 --csv out/raw/db-benchmark-bloom.csv"
        );
        assert_eq!(settings(false).query_runs(), 4);
        assert_eq!(
            of("joins"),
            "--repeat 3 --device NVIDIA H100 --csv out/raw/joins.csv"
        );
    }

    #[test]
    fn the_small_form_has_the_same_parts() {
        let names = |small| parts(&settings(small)).into_iter().map(|part| part.name);
        assert!(names(false).eq(names(true)));
        let small = parts(&settings(true));
        assert!(
            small
                .iter()
                .any(|part| line(part).starts_with("--scale 0.001"))
        );
    }

    #[test]
    fn parts_are_selected_by_name() {
        let names = |asked: &[&str]| {
            let parts = select(parts(&settings(false)), &words(asked));
            parts.into_iter().map(|part| part.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["device-rates", "joins"]), ["joins", "device-rates"]);
        let with_files = ["tpch-data", "tpch-parquet-auto"];
        assert_eq!(names(&["parquet-auto"]), with_files);
        assert_eq!(names(&["tpch"]).len(), 9);
        assert_eq!(names(&[]).len(), 18);
        assert_eq!(names(&["tpch-data"]), ["tpch-data"]);
        assert!(names(&["nothing"]).is_empty());
    }
}
