//! What joins do not need: the tables of other papers to compare with, Horton tables that change
//! after they were built, and how fast a lookup could be at best.
//!
//! ```text
//!  cuckoo   linear   slab        updates            gather_bound   bucket_reads
//!    │        └──┬────┘          insert, remove          │              │
//!    │         batch             of Horton tables        │              │
//!    └───────────│──────────────────┬────────────────────┴──────────────┘
//!                ▼                  ▼
//!            primitives ◀───────  horton
//! ```
//!
//! [`linear`], [`slab`] and [`cuckoo`] are tables in their own right. They share nothing with each
//! other beyond [`primitives`](super::primitives) and the operations of a [`batch`]. Nothing that
//! joins use imports this folder: `make modules` checks that.

pub mod batch;
pub(crate) mod bucket_reads;
pub mod cuckoo;
mod gather_bound;
pub mod linear;
pub mod slab;
pub(crate) mod updates;
