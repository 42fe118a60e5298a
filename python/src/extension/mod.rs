//! Joins on devices for the sessions of PyPI's `datafusion`, by its interface for extensions.
//!
//! ```text
//!  with_extensions(Extension()) ─▶ bundle: codecs, and a rule that runs after datafusion's own
//!
//!  datafusion's plan ─▶ rule ─▶ each HashJoinExec ─▶ transcript: the same join in this library
//!                               becomes a DeviceJoin          └─ codec, parcel: by way of bytes
//!
//!  datafusion's node ─▶ DeviceJoin ─▶ HortonJoinExec ─▶ HostInput ─▶ datafusion's node
//!                       our memory, threads              its memory, threads, object stores
//! ```
//!
//! The two libraries share no types, only the C structs of `datafusion-ffi`. All but the joins
//! stays in `datafusion`: scans, functions, tables, statements. So nothing else of a session
//! changes, and batches cross as Arrow's C structs, without a copy. A query planner of ours would
//! get each query as bytes instead, and those leave out object stores, COPY and DESCRIBE.

mod bundle;
mod codec;
mod decisions;
mod device_join;
mod guarded;
mod host;
mod host_input;
mod parcel;
mod rule;
mod session;
mod shown;
mod transcript;

pub use bundle::Extension;
