//! How little the time of a query depends on the order in which its tables were written.
//!
//! ```text
//!   robust orders --data DIR --queries DIR   FROM a, b, c, d ─▶ FROM c, a, d, b   ┐ by turns:
//!   robust graphs --count 100                random tables, joins and filters     ┘ stock, ours,
//!                                                                                   bloom
//! ```
//!
//! A planner guesses sizes of joins, and a wrong guess costs most where a query has many tables.
//! What cannot be planned well must be repaired while it runs. This measures how far each engine
//! does so: stock DataFusion, DataFusion with Horton joins, and with datafusion-bloom.
//!
//! Exit status: 0; 1 if rows differ from those of the first engine; 2 for errors.

mod duck;
mod engines;
mod graph;
mod graphs;
mod orders;
mod random;
mod report;
mod shuffle;
mod table;
mod tables;
mod turns;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use horton_test_support::Result;
use horton_test_support::status::status;

use crate::engines::Options;
use crate::turns::Turns;

/// Measures how little the time of a query depends on the order in which its tables were written.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the queries of a folder with their tables in random orders
    Orders(orders::Args),
    /// Run random join graphs
    Graphs(graphs::Args),
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("a number from 1".to_string()),
    }
}

fn main() -> ExitCode {
    let log = env_logger::Env::default().default_filter_or("error");
    env_logger::Builder::from_env(log).init();
    let result = match &Args::parse().command {
        Command::Orders(args) => turns(&args.options).and_then(|turns| orders::run(args, &turns)),
        Command::Graphs(args) => turns(&args.options).and_then(|turns| graphs::run(args, &turns)),
    };
    status(result)
}

fn turns(options: &Options) -> Result<Turns> {
    let runtime = tokio::runtime::Runtime::new()?;
    // A session may want a runtime from its first moment.
    let _guard = runtime.enter();
    let sessions = options.sessions()?;
    Ok(Turns {
        sessions,
        limit: options.limit(),
        runtime,
    })
}
