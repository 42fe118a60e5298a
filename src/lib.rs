//! Hash joins for [Apache DataFusion](https://datafusion.apache.org) on OpenCL devices of any
//! vendor, with [Horton tables](table::horton).
//!
//! The flow:
//!
//! ```text
//!  SQL ─▶ DataFusion plan ─▶ 1 rule: HashJoinExec ─▶ HortonJoinExec
//!       both sides, by turns ─▶ 7 the one that ends first is built ─▶ on the device, or the host
//!       build side: batches ─▶ 2 keys (surrogates) ─▶ 3 groups ─▶ 4 device table
//!       probe side: batches ─▶ chunks of ≥64 K rows ─▶ 2 keys ─▶ 4 device lookup
//!                           ─▶ 5 (probe row, build row) pairs ─▶ verify ─▶ residual filter
//!                           ─▶ join type ─▶ 6 gather columns ─▶ RecordBatch
//! ```
//!
//! 1. [`rule`], installed by [`session`], switched by [`config`]
//! 2. [`join::keys`] (`join` is the operator)
//! 3. [`table::primitives::group`], for keys that repeat
//! 4. [`table::multimap`], built and looked up by the kernels in `cl/`
//! 5. [`join::pairs`], driven by [`join::probe`] over a [`join::build`]
//! 6. [`join::emit`]
//! 7. [`join::sides`], then [`join::decide`], with a device that is [`ready`]
//!
//! What a build side knows goes to the scans of the probe side, whose rows become fewer ([`scan`]).
//!
//! [`device`] is the one home of OpenCL and of `unsafe`. Before a join uses one, its kernels have
//! passed a [`self_test`]. Should it fail, the host finishes the query ([`join::fallback`]) and
//! later joins stay there ([`health`]). Joins on the host are DataFusion's own ([`join::host_join`]).

#![deny(missing_docs, unsafe_op_in_unsafe_fn)]

pub mod config;
pub mod device;
pub mod error;
pub mod health;
pub mod join;
mod one_child;
pub mod ready;
pub mod rule;
pub mod scan;
pub mod self_test;
pub mod session;
mod sources;
pub mod table;

pub use join::HortonJoinExec;
pub use ready::warm_up;
pub use session::{context, install};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
