//! SQL joins to be measured: their cases, tables, timing and reports.

pub mod cases;
pub mod columns;
pub mod keys;
pub mod measure;
pub mod query;
pub mod random;
pub mod report;
pub mod tables;
pub mod tally;

pub use crate::{Error, Result};
