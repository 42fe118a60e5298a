//! Reading the inputs until a build side is there.
//!
//! ```text
//!  reading ─ turns of its parts ─┐
//!  reading ─ turns of its parts ─┴─▶ race: the one that ends first ─▶ collected ─▶ coalesce
//! ```

pub mod coalesce;
pub mod collected;
pub mod files;
mod part;
pub mod race;
pub mod reading;
