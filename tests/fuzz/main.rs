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
//!                  ─▶ turn       who has the device alone, as its calls are to fail
//! ```
//!
//! The soak test measures the process's memory, so it has a process of its own.

mod consumer;
mod difference;
mod limited;
mod numbers;
mod queries;
mod random;
mod soak;
mod turn;
