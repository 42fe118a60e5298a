//! The optimizer rules, in the order in which they change a plan.
//!
//! ```text
//!  statistics   scans of tables in memory cache their statistics
//!  join_order   inner joins that multiply rows move behind others
//!  joins        HashJoinExec becomes HortonJoinExec: sides open, then all others
//!  filters      filters of joins reach scans, around DataFusion's own rule
//! ```
//!
//! `worker` has the joins alone, for plans that other processes made. `enabled` says which of them
//! a session's options leave on.

mod enabled;
pub mod filters;
pub mod join_order;
pub mod joins;
pub mod statistics;
pub mod worker;
