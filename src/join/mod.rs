//! The join operator.
//!
//! ```text
//!  exec: HortonJoinExec::execute(p) ─▶ start: once a plan, or once a partition (Partitioned); run
//!    collect   reading ─▶ race: both inputs by turns; the one that ends first is the build side
//!    tell      filter: its keys, to the scans of the probe side
//!    decide    on the device │ on the host: DataFusion's own join over what was read
//!    build     keys ─▶ surrogates ─▶ lookup::table, on the device
//!    probe     one stream a partition
//!       chunk of batches ─▶ surrogates ─▶ lookup::device ─▶ candidate pairs
//!       ─▶ verified ─▶ residual filter ─▶ emit: join type, columns ─▶ RecordBatch
//!    spill     sides in buckets, each decided like that
//! ```
//!
//! * [`exec`]: the plan node; [`sides`]: which side of it may be built; [`properties`]: what it
//!   promises of its rows
//! * [`start`]: its executions, of [`run`]s; [`early`]: when inputs are opened; [`steps`]
//!   of recursive queries
//! * [`opened`]: a join whose rows can be read; `stream`: how they are polled
//! * [`decision`]: what was decided, and what EXPLAIN shows of it
//!
//! What all of these use: [`side`], [`rows`] of the build side, [`arrays`] of many batches as one,
//! [`bitmap`]s of rows, what batches weigh (`weight`), the [`memory`] pool, [`metrics`].

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
pub mod properties;
pub mod rows;
pub mod run;
pub mod side;
pub mod sides;
pub mod spill;
pub mod start;
pub mod steps;
mod stream;
pub mod tell;
mod weight;
