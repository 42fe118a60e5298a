//! `HortonJoinExec` against `HashJoinExec`, the join that it stands for.
//!
//! ```text
//!  Case ─┬─▶ HashJoinExec                    ─▶ rows ─┐
//!        └─▶ HortonJoinExec on a device      ─▶ rows ─┴─▶ equal; kernels were launched
//! ```
//!
//! Everything here is deterministic: data come from seeded generators and partitions run one
//! after the other unless a test says otherwise. Where `HashJoinExec` promises an order, rows
//! are compared as sequences, else as multisets. The device is `auto`, or what
//! `HORTON_TEST_DEVICE` names; `make test` sees to it that it is PoCL's.

mod ahead;
mod build_columns;
mod engines;
mod errors;
mod hostile;
mod join_types;
mod key_types;
mod limits;
mod linear;
mod parked;
mod resources;
mod session;
mod shapes;
mod short;
mod spill;
mod spill_files;
mod tables;
