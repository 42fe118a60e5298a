//! Hash joins for [Apache DataFusion](https://datafusion.apache.org) on OpenCL devices of any
//! vendor, with [Horton tables](table::horton).
//!
//! ```text
//!  SQL ─▶ DataFusion's plan ─▶ plan: HashJoinExec becomes HortonJoinExec
//!                                                  │ execute
//!  join   input           both sides read alternately; the smaller one is the build side
//!         dynamic_filter  scans of the probe side drop rows whose keys are not on the build side
//!         prepare         device, or the host: DataFusion's own join over what was read
//!         build_side      batches ─▶ normalized keys ─▶ table: a multimap on the device
//!         probe           batches ─▶ chunks ─▶ keys ─▶ lookup on the device ─▶ pairs of rows
//!         output          pairs ─▶ join type ─▶ columns ─▶ RecordBatch
//!         spill           where memory has no room: spill partitions, each joined like that
//! ```
//!
//! The *build side* of a join is the input that goes into the hash table. The *probe side* is the
//! input whose rows are looked up in it. The *host* is the CPU with DataFusion's own joins.
//!
//! Three calls make a session join on a device: [`install`], [`context`], and [`warm_up`] for
//! services. Workers of distributed engines have [`on_device`] and [`warm_up_for`] instead. Options
//! are in [`config`], errors in [`error`]. A join's decisions are read off the [`HortonJoinExec`]
//! of its plan.
//!
//! The tables are a crate of their own, `horton-tables`. [`device`] opens a device, and [`table`]
//! has what runs there.

#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![warn(clippy::match_bool)]

pub mod config;
mod device_health;
mod device_startup;
pub mod error;
mod join;
mod keys;
mod output_batches;
mod parallel;
mod plan;
mod plan_nodes;
mod sample;
mod scan;
mod session;

pub use device_health::Health;
pub use device_startup::warm_up_for;
pub use horton_tables::{DeviceReport, device, report_devices, self_test, table};
pub use join::decision::{Decision, HostReason, Place};
pub use join::exec::HortonJoinExec;
pub use join::side::Side;
pub use plan::worker::on_device;
pub use session::{context, install, warm_up};

/// Items that this crate's own tests use; no part of its interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::device_health::MEMORY_PAUSE;
    pub use crate::device_startup::{Readiness, finished};
    pub use crate::join::sides::can_swap;
    pub use crate::keys::verify::supported;
    pub use crate::plan::filters::{InsertFilterNodes, RemoveUnusedFilterNodes};
    pub use crate::plan::joins::{ReplaceJoins, ReplaceSwappableJoins};
    pub use crate::scan::exec::DynamicFilterExec;
}

/// Runs the examples of the README and of the book as doctests.
#[cfg(doctest)]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/clusters.md")]
    struct Clusters;
    #[doc = include_str!("../docs/operations.md")]
    struct Operations;
    #[doc = include_str!("../docs/tables.md")]
    struct Tables;
}
