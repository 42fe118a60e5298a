//! Hash tables on OpenCL devices of any vendor: [Horton tables](table::horton), the multimap that
//! joins build of them, and the tables of other papers to compare with.
//!
//! ```text
//!  kernel_sources   the files of cl/, each once
//!        │
//!  device           OpenCL: devices, queues, memory, programs; the one home of `unsafe`
//!        │
//!  table            hash tables in device memory: multimap ─▶ horton ─▶ primitives; baselines
//!        │
//!  self_test        every kernel that joins use, held against a hash map
//!        │
//!  report           the devices of a machine, as text for people
//! ```
//!
//! ```
//! use horton_tables::device::Device;
//! use horton_tables::table::horton::{HortonTable, TableConfig};
//!
//! fn main() -> horton_tables::Result<()> {
//!     let device = Device::open("auto")?;
//!     let config = TableConfig { load_factor: 0.9, ..TableConfig::default() };
//!     let table = HortonTable::from_pairs(&device, &[7, 3, 9], &[70, 30, 90], &config)?;
//!     assert_eq!(table.lookup_blocking(&device, &[9, 8, 7])?, [Some(90), None, Some(70)]);
//!     Ok(())
//! }
//! ```
//!
//! `horton-join` is the hash join of Apache DataFusion on these tables. This crate knows neither
//! DataFusion nor Arrow.

#![deny(missing_docs, unsafe_op_in_unsafe_fn)]
#![warn(clippy::match_bool)]

pub mod device;
pub mod error;
mod kernel_sources;
mod report;
mod self_test;
pub mod table;

pub use error::{Error, Result};
pub use report::{DeviceReport, report_devices};
pub use self_test::{self_test, self_test_again};
