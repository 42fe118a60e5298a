//! Joins and queries drawn at random, and many queries at once.
//!
//! ```text
//!  random  cases drawn from seeds, beside the stock join  ─▶ here
//!  queries whole queries drawn from seeds                 ─▶ here
//!  soak    32 queries at once, some dropped midway        ─▶ a child process
//! ```
//!
//! Some random cases make OpenCL calls fail, which the process's fault layer does to all its joins;
//! the soak test measures the process's memory. So the latter has a process of its own.

mod queries;
mod random;
mod soak;
