//! The optimizer rules.

pub mod filters;
pub mod joins;
pub mod statistics;
mod switch;
