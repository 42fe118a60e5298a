//! The code that the tests, examples and benchmarks of horton-tables share. Nothing here is
//! published, and nothing names DataFusion or Arrow.
//!
//! ```text
//!  env      the device under test, sizes           ─┐
//!  tables   keys, kernel bodies, jobs on the device ├─▶ tables/tests
//!  lookups  keys and answers of lookups             ─▶ device_bench, paper_figures
//! ```

pub mod env;
pub mod lookups;
pub mod tables;
