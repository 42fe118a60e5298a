//! Dynamic filters: rows equal with and without, and fewer of them leave the scans.
//!
//! ```text
//!  stock session          ─┐
//!  Horton, filters = off  ─┼─▶ each query over tables in memory and over Parquet ─▶ same rows
//!  Horton, filters = auto ─┘                        └─▶ metrics: rows into and out of scans
//! ```

mod again;
mod data;
mod early;
mod names;
mod prefetch;
mod queries;
mod scans;
mod spilled;
