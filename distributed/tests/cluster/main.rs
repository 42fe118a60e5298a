//! Queries over worker processes on this machine, compared with DataFusion's own session.
//!
//! ```text
//!  test ─▶ workers: processes of horton-distributed-worker, on free ports of 127.0.0.1
//!       ─▶ coordinator: a session in this process ─ stages ─▶ workers ─ rows ─┐
//!       ─▶ stock: DataFusion's session, same Parquet files ───────── rows ────┴─▶ equal?
//! ```
//!
//! Processes, not tasks of one process: only so can a worker lack OpenCL, be killed, or keep its
//! options to itself. Distribution is forced by a budget of one byte per partition, as tables are
//! small. A query counts only if its plan has network boundaries, more than one task, and kernels.
//!
//! - `workers`: the processes
//! - `coordinator`: sessions, plans, rows
//! - `tables`: small tables with NULLs and duplicates
//! - the others: tests

mod coordinator;
mod failures;
mod joins;
mod options;
mod queries;
mod stages;
mod tables;
mod workers;
