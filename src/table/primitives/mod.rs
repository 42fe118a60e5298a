//! Kernels that tables and joins are made of.
//!
//! * [`hash`]: the hash functions that tables share; `mix`: the hash of keys of several words
//! * [`bucket`]: the words of a bucket, and what programs over buckets depend on
//! * `word`: a key and its value in 64 bits
//! * `scan`: prefix sums
//! * `split`: items by ranges of buckets
//! * [`group`]: rows by key, for keys that repeat; `distinct`: the last item of every key
//! * [`rows`]: bits and columns by row number

pub mod bucket;
pub(crate) mod distinct;
pub mod group;
pub mod hash;
pub(crate) mod mix;
pub mod rows;
pub(crate) mod scan;
pub(crate) mod split;
pub(crate) mod word;
