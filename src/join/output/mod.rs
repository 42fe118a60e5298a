//! The way from pairs of rows to output batches.
//!
//! ```text
//!  pairs ─▶ outcome: what the join type makes of them ─▶ shape: columns ─▶ RecordBatch
//! ```

pub mod columns;
pub mod join_type;
pub mod row_pairs;
