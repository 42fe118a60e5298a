//! What joins use: any keys, repeating or not, to the rows that have them.

pub mod codes;
pub mod direct;
pub mod index;
pub mod map;
pub mod pairs;
pub mod wide;
