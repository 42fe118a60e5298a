//! Lets programs that use the `ocl` crate build, link and start on machines without OpenCL.
//!
//! `ocl` links libOpenCL when a program is built, so a program that merely depends on it does
//! not start where that library is missing; and where the library has no platform, `ocl` sleeps
//! ten seconds and fails. This crate stands between the two:
//!
//! ```text
//! link time  -lOpenCL ─▶ an empty archive (build.rs)   clXxx ─▶ the forwarders in this crate
//! run time   ocl ─▶ clXxx here ─▶ its symbol, looked up once ─▶ libOpenCL.so.1 ─▶ drivers
//!                      └─▶ no library: zero platforms, CL_INVALID_OPERATION, null objects
//! ```
//!
//! A call costs an atomic load and an indirect call more than before: nanoseconds, against
//! microseconds in a driver. The library is opened at the first call that needs it.
//!
//! - **Linking.** It is enough that this crate is part of the program; [`link`] makes it so. rustc
//!   itself asks the linker for the exported functions of all crates. So the order of the libraries
//!   does not matter to GNU ld either.
//! - **No name leaves the program.** The forwarders are hidden ELF symbols. Without that, a cdylib
//!   (or a program linked with `-rdynamic`) exports `clXxx`. Every library in the process that
//!   looks up a name of its own, libOpenCL and the drivers included, then finds ours.
//!   `RTLD_DEEPBIND` would shield libOpenCL only, and it splits the heap of a library from that of
//!   a program that brings its own `malloc`.
//! - **Why not an OpenCL crate that loads lazily, instead of `ocl`?** This is little code beside
//!   a table of names, and it serves every crate in the program that links OpenCL.
//!
//! [`LIBRARY_VARIABLE`] names another library. For Windows and macOS this compiles; it has not
//! been run there.

#![deny(missing_docs)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod api;
mod library;

pub use library::{LIBRARY_VARIABLE, LoaderStatus, status};

/// Does nothing, but a program that contains a call of it contains the OpenCL functions too.
pub fn link() {}
