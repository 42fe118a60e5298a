//! What the build side tells the scans of the probe side.

pub mod filter;
pub mod pushdown;
pub mod reach;
pub mod telling;
