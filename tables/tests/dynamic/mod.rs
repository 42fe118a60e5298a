//! The operations that only linear probing (both deletions) and the slab hash (both allocators)
//! have: mixed batches in one launch, whose answers must be those of some order and, for keys named
//! once, a `HashMap`'s; and what each does by itself. (The suite over all kinds of tables is in
//! `tables/tests/table_ops/`.)
//!
//! ```text
//!  suite     mixed batches
//!  history   is there an order in which these answers are right?
//!  linear, slab, alloc   what only one of them does
//! ```
//!
//! `HORTON_TEST_SMALL=1` keeps the sizes fit for oclgrind, `HORTON_TEST_OPERATIONS` sets the number
//! of random operations per table (a million by default).

mod alloc;
mod harness;
mod history;
mod linear;
mod slab;
mod suite;
