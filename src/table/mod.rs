//! Hash tables in device memory.
//!
//! * [`hash`]: the hash functions they share
//! * [`horton`]: the Horton table, distinct 32-bit keys to 31-bit values
//! * [`group`]: rows by key, for keys that repeat
//! * [`grouped`]: both together: any keys to their rows, what a join builds

pub mod group;
pub mod grouped;
pub mod hash;
pub mod horton;
