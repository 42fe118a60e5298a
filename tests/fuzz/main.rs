//! Joins and queries drawn at random, and many queries at once.
//!
//! ```text
//!  random  cases drawn from seeds, beside the stock join  ─▶ here
//!  queries whole queries drawn from seeds                 ─▶ here
//!  soak    32 queries at once, some dropped midway        ─▶ a child process
//!
//!  random, queries ─▶ consumer   reads a plan out of order, drops and leaves streams
//!                  ─▶ limited    memory and files that runs give back
//!                  ─▶ numbers    what is drawn;  difference  what a check says
//! ```
//!
//! Some random cases make OpenCL calls fail, which the process's fault layer does to all its joins;
//! the soak test measures the process's memory. So the latter has a process of its own.

mod consumer;
mod difference;
mod limited;
mod numbers;
mod queries;
mod random;
mod soak;
