//! Tables on the device by themselves, without DataFusion: against models, a `HashMap`, each other.
//!
//! ```text
//!  table         Horton tables, built and looked up on host and device
//!  multimap      grouped and direct tables, as joins have them
//!  table_ops     bulk operations of every kind of table
//!  wide          keys of several words
//!  dynamic       mixed batches: linear probing, the slab hash
//!  device        picking devices, programs that do not compile
//!  how_it_works  the drawings of docs/how-it-works.md
//! ```
//!
//! They share the process and its one device. None asks how much memory others use.
//! `HORTON_TEST_SMALL=1` keeps the sizes fit for oclgrind, valgrind and `make check`.

mod device;
mod dynamic;
mod how_it_works;
mod multimap;
mod table;
mod table_ops;
mod wide;
