//! Keys, kinds of tables and checked answers of lookups, for the examples that measure them; and
//! what the Horton paper expects of them.

pub mod equations;
pub mod keys;
pub mod tables;
pub mod workload;
