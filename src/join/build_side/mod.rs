//! The build side: collected once, kept as it came, its keys in a device table.
//!
//! ```text
//!  stream ─▶ batches, reserved ─▶ key columns ─▶ KeyEncoder ─▶ normalized keys ┐ by parts,
//!         └▶ wanted columns ───────────────────────────────────────────────────┤ side by side
//!                    BuildSide, shared by all probe partitions ◀── JoinTable ◀─┘
//! ```
//!
//! The counterpart of DataFusion's `collect_left_input`, except that the batches stay as they are.
//! Only columns that the host gathers, and that fit one array, become one ([`concat_columns`]). A
//! device that fails leaves a build side whose lookups the host answers
//! ([`failover`](crate::join::lookup::failover)). Rows with a NULL key that equals nothing are kept
//! for outer joins but have no place in the table.
//!
//! * [`spec`]: what a build must know of its join
//! * [`builder`]: from collected rows to a [`side`], with its [`table`]
//! * [`concat_columns`]: the columns that become one array each
//! * [`replicate`]: the table once more, after a device has failed
//! * [`keyed`], [`visited`], [`build_output`], [`null_aware`]: what a side consists of

pub mod build_output;
pub mod builder;
pub mod concat_columns;
pub mod keyed;
pub mod null_aware;
pub mod replicate;
pub mod side;
pub mod spec;
pub mod table;
pub mod visited;
