//! Reading the inputs until a build side is there.
//!
//! ```text
//!  reading ─ turns of its parts ─┐
//!  reading ─ turns of its parts ─┴─▶ race: the one that ends first ─▶ collected ─▶ coalesce
//! ```

pub mod buffered;
pub mod build_batches;
pub mod choose_build_side;
pub mod coalesce;
pub mod files;
mod partition;
