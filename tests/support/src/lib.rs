//! The code that the tests, examples and benchmarks of horton-join share. Nothing here is
//! published. What concerns tables alone (`env`, `tables`, `lookups`) is in `tables/support`.
//!
//! ```text
//!  joins        cases, sides, a join beside the stock one    ─▶ tests/joins, tests/processes
//!  plans        rows as text, metrics of a plan's nodes      ─▶ all that run SQL
//!  promises     what nodes promise, held against their rows  ─▶ all that run plans
//!  turns        tests alone, tests side by side              ─▶ tests/joins
//!  child        a test again in a process of its own         ─▶ tests/processes, tests/fuzz
//!  tpch         tables as Parquet, texts of queries          ─▶ ballista, distributed
//!  internals    what no user of the crate can reach          ─▶ all of them, by this one list
//!  sql_bench    cases, tables and timing of SQL joins        ─▶ its example, benches/join.rs
//!  bars, plot   charts as SVG                                ─▶ sql_bench, evaluation
//!  csv, median  a line of figures, the middle one            ─▶ tpch_join, sql_bench, evaluation
//!  check        the same rows, floats closely                ─▶ tpch_join, robust
//!  folder       Parquet files as tables, texts of queries    ─▶ tpch_join, robust
//!  status       the exit status of programs               ─▶ tpch_join, sql_bench, robust
//!  duckdb       the same queries in DuckDB                   ─▶ evaluation, robust
//! ```

pub use horton_tables_test_support::{env, lookups, tables};

pub mod bars;
pub mod check;
pub mod child;
pub mod csv;
pub mod duckdb;
pub mod folder;

pub mod handed_out;
pub mod internals;
pub mod joins;

pub mod median;
pub mod patience;
pub mod plans;
pub mod plot;
pub mod promises;
pub mod sql_bench;
pub mod status;

pub mod text;
pub mod tpch;
pub mod turns;
pub mod warnings;

/// Any error, ready to be shown.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = Error> = std::result::Result<T, E>;
