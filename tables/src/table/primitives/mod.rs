//! The parts of tables and joins: hashes, words, and kernels over arrays.
//!
//! ```text
//!  hash, mix        a key, or several words, to a number
//!  bucket, word     a key and its value in 64 bits: in buckets, and in tables that change
//!  scan             prefix sums
//!  radix_partition  items by ranges of buckets
//!  radix_sort       keys in order, and the rows beside them
//!  group            rows by key, for keys that repeat
//!  distinct         the last item of every key
//!  rows             bits and columns by row number
//! ```
//!
//! Nothing here knows a table. Each file is the host side of the kernels of `cl/primitives` that
//! have its name; those of `radix_partition` are in `split.cl`.

pub mod bucket;
pub(crate) mod distinct;
pub mod group;
pub mod hash;
pub(crate) mod mix;
pub(crate) mod radix_partition;
mod radix_sort;
pub mod rows;
pub(crate) mod scan;
pub(crate) mod word;
