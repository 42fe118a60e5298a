//! Filters of the probe side's scans, made of the build side's keys.
//!
//! ```text
//!  pushdown: filters go to the scans ─▶ reach: who holds them ─▶ filter: set once a side is built
//!                                                                telling: by one execution alone
//! ```

pub mod accumulator;
mod predicates;
pub mod publisher;
pub mod pushdown;
pub mod targets;
