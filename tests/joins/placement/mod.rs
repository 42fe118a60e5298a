//! The decisions of joins with the rows at hand: which side is built, and where.
//!
//! ```text
//!  left, right ─▶ HortonJoinExec ─┬─▶ rows         those of DataFusion's join, CollectLeft
//!                                 ├─▶ decisions()  the side, its rows, the device or the host
//!                                 └─▶ memory pool  empty once all streams are gone
//! ```
//!
//! A read takes 16 rows here (`Knobs::sample_rows`), so that sides of a few dozen rows are read
//! in several reads.

mod arrays;
mod consumers;
mod ends;
mod filters;
mod fixed;
mod join_order;
mod memory;
mod plans;
mod read_order;
mod readiness;
mod reasons;
mod session;
mod shown;
mod sides;
mod worker;
