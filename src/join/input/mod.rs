//! Reading the inputs until a build side is complete.
//!
//! ```text
//!  buffered: partitions side by side ─┐
//!  buffered: partitions side by side ─┴─▶ choose_build_side ─▶ build_batches ─▶ coalesce
//! ```

pub mod buffered;
pub mod build_batches;
pub mod choose_build_side;
pub mod coalesce;
pub mod files;
mod partition;
