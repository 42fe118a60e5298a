//! What joins use: any keys, repeating or not, to the rows that have them.

pub mod codes;
pub mod direct;
mod index;
mod map;
pub mod pairs;
pub mod wide;

pub use index::{HashIndex, IndexConfig, IndexInput, IndexKind};
pub use map::{KeyFormat, MultiMap, MultiMapInput};
