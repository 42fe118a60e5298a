//! The build side: collected once, kept as it came, its keys in a device table.
//!
//! ```text
//!  stream ─▶ batches (memory reserved) ─▶ key columns ─▶ KeyEncoder ─▶ surrogates ┐ by parts,
//!         └▶ wanted columns ─────────────────────────────────────────────────────┤ side by side
//!                      BuildSide, shared by all probe partitions ◀── JoinTable ◀─┘
//! ```
//!
//! The counterpart of DataFusion's `collect_left_input`, except that the batches stay as they are.
//! Only columns that the host gathers, and that fit one array, become one ([`joined`]). A device
//! that fails leaves a build side whose lookups the host answers
//! ([`fallback`](crate::join::lookup::fallback)). Rows with a NULL key that equals nothing are kept
//! for outer joins but have no place in the table.
//!
//! * [`spec`]: what a build must know of its join
//! * [`builder`]: from collected rows to a [`side`], with its [`table`] and its [`joined`] columns
//! * [`keyed`], [`visited`], [`owed`], [`probe_seen`]: what a side consists of

mod again;
pub mod builder;
pub mod joined;
pub mod keyed;
pub mod owed;
pub mod probe_seen;
pub mod side;
pub mod spec;
pub mod table;
pub mod visited;
