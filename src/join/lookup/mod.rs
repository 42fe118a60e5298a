//! Lookups of a probe chunk: two engines behind one vocabulary.
//!
//! ```text
//!  keys ─▶ device: a JoinTable ─────┐
//!       └▶ host: a HostTable ───────┴─▶ result: counts, bits, windows of pairs
//!            ▲
//!         failover: when the host takes over, and what is kept for that
//! ```
//!
//! * [`result`]: what a lookup brings back
//! * [`table`]: the build side's table on the device; [`columns`]: its columns there
//! * [`visited_bits`]: the rows that lookups there found
//! * [`upload`]: how all of it comes there
//! * [`tables`]: the tables of one build side, one per device
//! * [`device`]: lookups there
//! * [`host`]: the host's own table, made once the device has failed
//! * [`failover`]: from the device to the host

pub mod columns;
pub mod device;
pub mod failover;
pub mod host;
pub mod result;
pub mod table;
pub mod tables;
pub mod upload;
pub mod visited_bits;
