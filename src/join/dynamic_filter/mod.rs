//! Filters of the probe side's scans, made of the build side's keys.
//!
//! ```text
//!  pushdown: filters go to the scans ─▶ targets: the scans that hold them
//!  keys of all builds ─▶ accumulator ─▶ publisher: sets the filters, for one execution alone
//! ```

pub mod accumulator;
mod predicates;
pub mod publisher;
pub mod pushdown;
pub mod targets;
