//! Drivers that are not as they should be: joins on them give right rows, and the user reads why.
//!
//! ```text
//!  test ─▶ itself in a child process
//!            HORTON_OPENCL_LIBRARY = the shim (tests/shim)
//!            HORTON_SHIM = the fault of its driver
//! ```
//!
//! The library is opened once in a process, so every driver has one of its own.

mod board;
mod cache;
pub mod child;
#[cfg(debug_assertions)]
mod exit;
mod filters;
mod queue_threads;
mod self_test;
mod several;
mod without_atomics;
