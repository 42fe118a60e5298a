//! The join operator.
//!
//! ```text
//!  HortonJoinExec::execute(p)
//!    build  ─ once a plan (CollectLeft) or once a partition (Partitioned), shared
//!       collect batches ─▶ keys ─▶ surrogates ─▶ device table
//!    probe  ─ one stream a partition
//!       chunk of batches ─▶ surrogates ─▶ device lookup ─▶ candidate pairs
//!       ─▶ verify ─▶ residual filter ─▶ join type ─▶ emit
//! ```
//!
//! * [`exec`]: the plan node
//! * [`keys`]: key columns to u32 surrogates
//! * [`build`]: the collected build side
//! * [`table`]: its table
//! * [`filter`]: what the build side tells the probe side's scans
//! * [`probe`]: the stream of one probe partition
//! * [`pairs`]: candidate pairs of one probe batch, and what each join type makes of them
//! * [`emit`]: output columns from pairs of rows
//! * [`metrics`]: what EXPLAIN ANALYZE shows

pub mod build;
pub mod emit;
pub mod exec;
pub mod filter;
pub mod keys;
pub mod metrics;
pub mod pairs;
pub mod probe;
pub mod table;

pub use exec::HortonJoinExec;
