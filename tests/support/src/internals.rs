//! What tests use of horton-join beyond its public items, in one list.
//!
//! Tests and examples name these by this module only: a move inside the crate is one line here.

#[cfg(debug_assertions)]
pub use horton_join::device::faults;
pub use horton_join::device::host::{ask_for_large_pages, prefetch};
pub use horton_join::device::program::ProgramText;
pub use horton_join::device::verdict;
pub use horton_join::health;
pub use horton_join::join::decide::{Decision, Declined, Home, Place};
pub use horton_join::join::keys;
pub use horton_join::join::sides::{Side, can_swap};
pub use horton_join::ready::{self, Readiness};
pub use horton_join::rule::{OpenSides, WrapJoins};
pub use horton_join::scan::DynamicFilterExec;
pub use horton_join::scan::rules::{Settle, TakeFilters};
pub use horton_join::self_test;
