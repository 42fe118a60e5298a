//! The build side: collected once, kept as it came, its keys in a device table.
//!
//! ```text
//!  stream ─▶ batches (memory reserved) ─▶ key columns ─▶ KeyEncoder ─▶ surrogates ┐ by parts,
//!         └▶ wanted columns ─────────────────────────────────────────────────────┤ side by side
//!                      BuildSide, shared by all probe partitions ◀── JoinTable ◀─┘
//! ```
//!
//! The counterpart of DataFusion's `collect_left_input`, except that the batches stay as they are:
//! only columns that the host will gather, and that do not outgrow an array's offsets, become one
//! array ([`arrays`](crate::join::arrays)). A device that fails leaves a build side whose lookups the
//! host answers ([`fallback`](crate::join::lookup::fallback)). Rows with a NULL key that equals nothing are kept
//! for outer joins but have no place in the table.

pub mod joined;
pub mod owed;
pub mod side;
pub mod spec;
