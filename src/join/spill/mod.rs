//! Joins of which neither side fits into memory.
//!
//! ```text
//!  left side  ─▶ partitioner ─▶ spill partitions ┐ by a hash of the keys, in temporary files
//!  right side ─▶ partitioner ─▶ spill partitions ┘
//!
//!  streams: take a pair of them ─▶ its smaller side fits ─▶ joined as any join (prepare)
//!                                ├▶ too large            ─▶ partitioned again, by another hash
//!                                └▶ that did not help    ─▶ passes: the rows that fit at a time
//! ```
//!
//! A Grace hash join (Kitsuregawa, Tanaka and Moto-oka 1983). It begins only when DataFusion's
//! memory pool refuses what is read: a join that fits costs nothing more. Rows with equal keys are
//! in one pair. So each pair is a join of its own, on the device or on the host, and the join types
//! need no care. Both sides of a pair are known, so the smaller one is built, even if the plan said
//! otherwise. Each stream has its own pairs (`plan`). No stream waits for rows of another: a
//! consumer may read one to its end before the next. The plan may promise that a stream keeps its
//! partition's rows ([`keeps_partitions`](super::properties::keeps_partitions)). Only then each
//! partition of the right side is partitioned by itself.
//!
//! DataFusion's `SpillManager` writes the files and its `DiskManager` deletes them when they are
//! let go. A sort-merge join instead would need keys that sort, and has no NOT IN.

mod multi_pass;
mod order;
mod pairs;
mod partition;
mod partition_function;
mod partitioner;
pub mod plan;
mod queue;
mod spec;
pub mod spilled;
mod writer;
