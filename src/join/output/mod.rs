//! The way from pairs of rows to output batches.
//!
//! ```text
//!  row_pairs ─▶ join_type: what it makes of them ─▶ columns ─▶ RecordBatch
//! ```

pub mod columns;
pub mod join_type;
pub mod row_pairs;
