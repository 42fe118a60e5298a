//! Satisfies `-lOpenCL`, which the crate `cl-sys` puts on every link line, with an empty archive.
//! The functions come from this crate's forwarders, so linking needs nothing of the real library.
//!
//! - Linux, the BSDs, Android, and Windows with the GNU tools look for `libOpenCL.a`. Our folder
//!   comes before the system's, so an installed `libOpenCL.so` is not picked up: a program built
//!   on a machine with OpenCL starts on one without.
//! - zig's linker, which releases are built with, looks for `libOpenCL.so` alone. For it there is a
//!   linker script that names the archive. Others must not find it: cargo puts our folder on the
//!   library path of what it runs.
//! - Windows with Microsoft's tools looks for `OpenCL.lib`, an archive too (tried with LLVM's
//!   linker only).
//! - macOS links its OpenCL framework, which every version has: nothing to do.

use std::path::Path;
use std::{env, fs, io};

/// An `ar` archive is this magic line followed by its members: here, none.
const EMPTY_ARCHIVE: &str = "!<arch>\n";

/// The variable in which cargo-zigbuild, which maturin contains, names its target.
const BY_ZIG: &str = "CARGO_ZIGBUILD_TARGET";

/// A linker script in the place of a shared library.
const SCRIPT: &str = "INPUT(libOpenCL.a)\n";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("VENDOR") == "apple" {
        return Ok(());
    }
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let folder = Path::new(&out);
    if target("ENV") == "msvc" {
        fs::write(folder.join("OpenCL.lib"), EMPTY_ARCHIVE)?;
    } else {
        fs::write(folder.join("libOpenCL.a"), EMPTY_ARCHIVE)?;
    }
    println!("cargo::rerun-if-env-changed={BY_ZIG}");
    if env::var_os(BY_ZIG).is_some() {
        fs::write(folder.join("libOpenCL.so"), SCRIPT)?;
    }
    println!("cargo::rustc-link-search=native={out}");
    Ok(())
}
