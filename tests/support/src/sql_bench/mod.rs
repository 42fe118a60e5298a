//! SQL joins to be measured: their cases, tables, timing and reports.

pub mod cases;
pub mod measure;
pub mod report;
pub mod tables;

/// Any error, ready to be shown.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T, E = Error> = std::result::Result<T, E>;
