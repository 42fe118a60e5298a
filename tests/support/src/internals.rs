//! The items of horton-join that tests use beyond its public ones, in one list.
//!
//! Tests and examples name these by this module only: a move inside the crate is one line here.

pub use horton_join::device::ProgramText;
#[cfg(debug_assertions)]
pub use horton_join::device::faults;
pub use horton_join::device::host::{ask_for_large_pages, prefetch};
pub use horton_join::device::self_test_cache;
pub use horton_join::internals::*;
