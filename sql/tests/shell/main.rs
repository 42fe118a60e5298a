//! The program itself: its flags, what it prints where, its exit status, its prompt.
//!
//! ```text
//!  run      the program in a folder of its own       ─▶ all tests
//!
//!  files    Parquet, CSV, JSON, COPY; joins on the device
//!  formats  rows as csv, json, tables
//!  scripts  -f, pipes, errors, exit codes, signals
//!  devices  --device, --set, `horton-sql devices`, no OpenCL
//!  stores   http://, s3://: a server in the test
//!  trace    --trace, and what does not get into its file
//!  record   --record and replay: one join, run again
//!  prompt   a pseudo-terminal: history, completion, Ctrl-C
//! ```

mod devices;
mod files;
mod formats;
#[cfg(unix)]
mod prompt;
mod record;
mod run;
mod scripts;
mod stores;
mod trace;
