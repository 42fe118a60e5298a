//! Joins in one process, each beside DataFusion's own join or its rows.
//!
//! ```text
//!  join            HortonJoinExec and HashJoinExec over the same sides  ─▶ same rows
//!  placement       which side is built, and where                       ─▶ decisions, memory
//!  promised        orders, guards, executions, streams                  ─▶ what others rely on
//!  dynamic_filter  filters handed to scans, in memory and over Parquet  ─▶ fewer rows scanned
//!  long_strings    a build side of more than 2^31 bytes
//!  star_schema     queries of many joins
//! ```
//!
//! They share the process as each has sessions, pools and health of its own. What they share beyond
//! is the device: tests that measure its memory run alone (`horton_test_support::turns`), the
//! others in their turn beside each other. A test that must be the first to ask for the device
//! runs itself again in a child process.

mod dynamic_filter;
mod feed;
mod join;
mod long_strings;
mod placement;
mod promised;
mod star_schema;
