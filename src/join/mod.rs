//! The join operator.
//!
//! ```text
//!  HortonJoinExec::execute(p) ─▶ start: once a plan, or once a partition (Partitioned), shared
//!    sides     both inputs read by turns; the one that ends first is the build side
//!    decide    on the device │ on the host: DataFusion's own join over what was read
//!    build     keys ─▶ surrogates ─▶ device table
//!    probe     one stream a partition
//!       chunk of batches ─▶ surrogates ─▶ device lookup ─▶ candidate pairs
//!       ─▶ verify ─▶ residual filter ─▶ join type ─▶ emit
//! ```
//!
//! * [`exec`]: the plan node; [`start`]: its executions; [`run`]: which partitions belong together
//! * [`sides`]: which side is built, of two [`reading`]s; [`oriented`]: the join as it is then
//! * [`decide`]: where it runs; [`host_join`]: on the host, in memory that is [`granted`]
//! * [`spill`]: on disk, as neither side fits into memory; in buckets, as the device has no room
//! * [`keys`]: key columns to surrogates, numbers that a device can look up
//! * [`coalesce`]: tiny batches of a build side; [`joined`]: columns of many batches as one array
//! * [`build`]: the build side; [`build_keys`]: its keys, encoded in [`parts`]
//! * [`table`]: its table, and its [`columns`], on the device
//! * [`memory`]: what is reserved in the memory pool
//! * [`filter`]: what the build side tells the probe side's scans: [`key_set`]s; [`pushdown`]: on
//!   which ways; [`reach`]: how far; [`early`]: when inputs are opened for that
//! * [`probe`]: the stream of one probe partition; [`owed`]: what all emit at the end
//! * [`lookup`]: the device's part of a chunk; [`host`]: the host's part, once the device failed
//! * [`fallback`]: when that is, and what is kept for it
//! * [`chunk`]: looked-up batches, and the candidate pairs of each
//! * [`pairs`]: what each join type makes of them
//! * [`emit`]: output columns from pairs of rows
//! * `weight`: what the batches of a chunk, or of a turn, weigh
//! * [`metrics`]: what EXPLAIN ANALYZE shows

pub mod arrays;
pub mod bitmap;
pub mod build;
pub mod collect;
pub mod decide;
pub mod decision;
pub mod early;
pub mod emit;
pub mod exec;
pub mod lookup;
pub mod memory;
pub mod metrics;
pub mod opened;
pub mod probe;
pub mod rows;
pub mod run;
pub mod side;
pub mod sides;
pub mod spill;
pub mod start;
pub mod tell;
mod weight;

pub use exec::HortonJoinExec;
