//! `robust graphs`: random join graphs on all engines.
//!
//! ```text
//!   seed, number ─▶ graph ─▶ tables: in memory | files ─▶ engines by turns ─▶ a line ─▶ summary
//!                                       └─ --write ─▶ DIR/g007/tables, DIR/g007/queries
//! ```
//!
//! The tables of a query come in random order, and there is no better one to fall back to. So one
//! run shows how engines do on graphs that nobody tuned them for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use horton_test_support::Result;
use horton_test_support::duckdb::{DuckDb, Task};

use crate::engines::{self, Options};
use crate::graph::Graph;
use crate::report::Report;
use crate::turns::{Rounds, Turns};
use crate::{at_least_one, duck, tables};

/// The options of the subcommand.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Graphs to draw
    #[arg(long, value_name = "N", default_value = "100", value_parser = at_least_one)]
    count: usize,

    /// The number of the first graph: a graph does not depend on those before it
    #[arg(long, value_name = "N", default_value = "0")]
    from: usize,

    /// Rows of the largest tables
    #[arg(long, value_name = "N", default_value = "100000", value_parser = at_least_one)]
    rows: usize,

    /// Read the tables from Parquet files instead of from memory
    #[arg(long)]
    parquet: bool,

    /// Write tables and queries into this folder, and keep them
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,

    /// Timed rounds of each query, whose median counts
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    repeat: usize,

    /// Also write the figures to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Run DuckDB, too, if it is there
    #[arg(long)]
    duckdb: bool,

    /// The Python that may have the module duckdb
    #[arg(long, default_value = "python3")]
    python: String,

    #[command(flatten)]
    pub options: Options,
}

/// Runs the subcommand; returns the number of answers that differ.
///
/// # Errors
/// Files that cannot be written, and options that are wrong. That an engine fails is none.
pub fn run(args: &Args, turns: &Turns) -> Result<usize> {
    let duckdb = args.duckdb.then(|| duck::find(&args.python)).transpose()?;
    let mut report = Report::new(turns.limit, args.csv.as_deref())?;
    for number in args.from..args.from + args.count {
        let graph = Graph::draw(args.options.seed, number, args.rows);
        let name = format!("g{number:03}");
        let scratch = tempfile::tempdir()?;
        let folder = args.write.as_deref().unwrap_or(scratch.path()).join(&name);
        measure(
            args,
            turns,
            duckdb.as_ref(),
            (&name, &graph, &folder),
            &mut report,
        )?;
        let filters = graph.tables.iter().filter(|table| table.filter.is_some());
        writeln!(
            io::stdout(),
            "{name} {:9} {:2} tables {:2} joins {} filters, at most {:8.0} rows {}",
            format!("{:?}", graph.shape).to_lowercase(),
            graph.tables.len(),
            graph.joins.len(),
            filters.count(),
            graph.tree_rows(true).0,
            report.line(&name),
        )?;
    }
    report.summary()?;
    Ok(report.differences())
}

/// Measures one graph: its name, the graph, and the folder of its files.
fn measure(
    args: &Args,
    turns: &Turns,
    duckdb: Option<&DuckDb>,
    (name, graph, folder): (&str, &Graph, &Path),
    report: &mut Report,
) -> Result<()> {
    let partitions = args.options.partitions();
    let data = tables::in_memory(graph, partitions)?;
    if args.parquet || args.write.is_some() || duckdb.is_some() {
        turns
            .runtime
            .block_on(tables::write(&data, name, &graph.sql, folder))?;
    }
    if args.parquet {
        let files = folder.join("tables");
        turns
            .runtime
            .block_on(engines::open(&turns.sessions, &files, false))?;
    } else {
        for (_, session) in &turns.sessions {
            data.register(session)?;
        }
    }
    let rounds = Rounds {
        warm_up: true,
        timed: args.repeat,
        first: 0,
    };
    let mut expected = None;
    let mut measured = turns.run(&graph.sql, rounds, &mut expected)?;
    if let Some(duckdb) = duckdb {
        let task = Task {
            folder,
            in_memory: !args.parquet,
            threads: partitions,
            repeat: args.repeat,
        };
        measured.push(duck::run(duckdb, &task, turns, expected.as_ref())?);
    }
    report.add(name, 0, measured)?;
    for (_, session) in &turns.sessions {
        for (table, _) in &data.tables {
            session.deregister_table(table.as_str())?;
        }
    }
    Ok(())
}
