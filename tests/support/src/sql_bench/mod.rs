//! SQL joins to be measured: their cases, tables, timing and reports.

pub mod cases;
pub mod measure;
pub mod report;
pub mod tables;

pub use crate::{Error, Result};
