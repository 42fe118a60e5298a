//! The optimizer rules.

pub mod filters;
pub mod joins;
