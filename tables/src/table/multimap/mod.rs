//! The tables that joins use: any keys, repeating or not, to the rows that have them.
//!
//! ```text
//!  keys ─▶ MultiMap::build                       map
//!            ├─▶ HashIndex: distinct keys        index
//!            │     a Horton table                horton
//!            │     a slot for every key          direct     dense numbers, on CPUs
//!            │     probing by cache lines        cacheline  keys of one or two words, on CPUs
//!            ├─▶ groups of rows, if keys repeat  primitives::group
//!            └─▶ runs, for longer keys           multiword
//!
//!  keys ─▶ MultiMap::lookup ─▶ Matches ─▶ pairs of rows, by windows     pairs
//! ```

pub mod cacheline;
pub mod direct;
mod index;
mod map;
pub mod multiword;
pub mod pairs;

pub use index::{HashIndex, IndexConfig, IndexInput, IndexKind};
pub use map::{KeyFormat, MultiMap, MultiMapInput};
