//! `robust orders`: the queries of a folder, with their tables in random orders.
//!
//! ```text
//!   q05.sql ─▶ as written       ┐
//!           ─▶ shuffled by seed ├ stock, ours, bloom by turns ─▶ min, median, max, max/min
//!           ─▶ …                ┘
//! ```
//!
//! Only queries with a list of at least `--least-tables` tables are run: of fewer, planners know
//! enough. Rows are compared with those of the first engine for the text as written. A LIMIT may
//! cut through rows that its ORDER BY ties; then the first engine differs from itself as well.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use horton_test_support::Result;
use horton_test_support::folder::of_folder;

use crate::at_least_one;
use crate::engines::{self, Options};
use crate::report::Report;
use crate::shuffle::shuffle;
use crate::turns::{Rounds, Turns};

/// The options of the subcommand.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Parquet files: DIR/lineitem.parquet or DIR/lineitem/, …
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// Queries: the .sql files of this folder
    #[arg(long, value_name = "DIR")]
    queries: PathBuf,

    /// Read the files into memory first
    #[arg(long)]
    in_memory: bool,

    /// Orders of each query, the first as written
    #[arg(long, value_name = "N", default_value = "20", value_parser = at_least_one)]
    orders: usize,

    /// Timed rounds of each order, whose median counts
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    repeat: usize,

    /// Run only queries whose longest list of tables has as many
    #[arg(long, value_name = "N", default_value = "4")]
    least_tables: usize,

    /// Run only queries whose name contains one of these
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Also write the text of each order into this folder, as q05-3.sql
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,

    /// Also write the figures to this file, a line for each order and engine
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    #[command(flatten)]
    pub options: Options,
}

/// Runs the subcommand; returns the number of answers that differ.
///
/// # Errors
/// Files that cannot be read or written. That an engine fails is none.
pub fn run(args: &Args, turns: &Turns) -> Result<usize> {
    let mut out = io::stdout();
    let opened = engines::open(&turns.sessions, &args.data, args.in_memory);
    writeln!(out, "{}", turns.runtime.block_on(opened)?)?;
    let mut report = Report::new(turns.limit, args.csv.as_deref())?;
    for query in of_folder(&args.queries)? {
        let is_asked_for = |name: &String| query.label.contains(name.as_str());
        if !args.only.is_empty() && !args.only.iter().any(is_asked_for) {
            continue;
        }
        let tables = match shuffle(&query.sql, args.options.seed, 0) {
            Ok(shuffled) => shuffled.tables,
            Err(error) => {
                writeln!(out, "{} left out: {error}", query.label)?;
                continue;
            }
        };
        if tables < args.least_tables {
            continue;
        }
        writeln!(out, "{:10} {tables} tables", query.label)?;
        let mut expected = None;
        for order in 0..args.orders {
            let rounds = Rounds {
                warm_up: order == 0,
                timed: args.repeat,
                // No engine always comes after the same one.
                first: order,
            };
            let text = shuffle(&query.sql, args.options.seed, order)?.sql;
            if let Some(folder) = &args.write {
                keep(&text, folder, &format!("{}-{order}.sql", query.label))?;
            }
            let measured = turns.run(&text, rounds, &mut expected)?;
            report.add(&query.label, order, measured)?;
        }
        report.orders(&query.label)?;
    }
    report.summary()?;
    Ok(report.differences())
}

/// Writes `text` to the file `name` of `folder`, which is made if it is not there.
fn keep(text: &str, folder: &Path, name: &str) -> Result<()> {
    let file = folder.join(name);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, text));
    Ok(written.map_err(|error| format!("{}: {error}", file.display()))?)
}
