//! All kinds of tables, linear probing (both deletions), the slab hash (both allocators), Horton and cuckoo tables,
//! under one suite: {built on the host, on the device} × {looked up on the host, on the device},
//! random operations beside a `HashMap`, and, where operations of all kinds share a launch, concurrent histories within
//! it. (What only Horton and cuckoo tables do is in `tests/table_ops/`.)
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
