//! Tests that need a process of their own: drivers, memory as the system counts it, faults.
//!
//! ```text
//!  drivers    a library that is wrong, between us and the driver   ─▶ child processes
//!  no_device  no library, or no platform                           ─▶ child processes
//!  resident   bytes that became resident                           ─▶ child processes
//!  faults     every OpenCL call made to fail                       ─▶ here, one test at a time
//! ```
//!
//! The first three ask nothing of a device here: each test runs itself again
//! (`horton_test_support::child`), as the library is opened once per process, and what is resident
//! counts for all. So only `faults` uses the device of this process, and its fault layer, which is
//! one for the process, meets no other test.

#[cfg(target_os = "linux")]
mod drivers;
#[cfg(all(debug_assertions, target_os = "linux"))]
mod faults;
mod no_device;
mod resident;
