//! The tables that change, linear probing (both deletions) and the slab hash (both allocators),
//! under one suite: {built on the host, on the device} × {looked up on the host, on the device},
//! random operations beside a `HashMap`, and concurrent histories within one launch.
//!
//! ```text
//!  suite     what every table must do
//!  history   is there an order in which these answers are right?
//!  linear, slab, alloc   what only one of them does
//! ```
//!
//! `HORTON_TEST_SMALL=1` keeps the sizes fit for oclgrind, `HORTON_TEST_OPERATIONS` sets the number
//! of random operations a table (a million by default).

mod alloc;
mod harness;
mod history;
mod linear;
mod slab;
mod suite;
