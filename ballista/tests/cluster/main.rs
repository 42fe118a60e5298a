//! A scheduler and executors as processes of their own, beside DataFusion in this one.
//!
//! ```text
//!  setup     programs on 127.0.0.1, killed when a test ends  ─▶ all tests
//!  process   one of them, its log                            ─▶ setup
//!  answers   rows as text, beside those of a local session   ─▶ all tests
//!  data      Parquet files                                   ─▶ all tests
//!
//!  joins     ten types × three plans, NOT IN
//!  options   SET horton.…, with either scheduler
//!  client    a client with our rules
//!  faults    no OpenCL, SIGKILL, wrong names
//!  tpch      the 22 queries
//! ```
//!
//! Threads in one process would be simpler, but devices, options and death are per process. Each
//! test has a cluster of its own: it starts in two seconds, and no test finds what another left.

mod answers;
mod client;
mod data;
mod faults;
mod joins;
mod options;
mod process;
mod setup;
mod tpch;
