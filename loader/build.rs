//! Satisfies `-lOpenCL`, which the crate `cl-sys` puts on every link line, with an empty archive.
//! The functions come from this crate's forwarders, so linking needs nothing of the real library.
//!
//! - Linux, the BSDs, Android, and Windows with the GNU tools look for `libOpenCL.a`. Our folder
//!   comes before the system's, so an installed `libOpenCL.so` is not picked up: a program built
//!   on a machine with OpenCL starts on one without.
//! - Windows with Microsoft's tools looks for `OpenCL.lib`, an archive too (tried with LLVM's
//!   linker only).
//! - macOS links its OpenCL framework, which every version has: nothing to do.

use std::path::Path;
use std::{env, fs, io};

/// An `ar` archive is this magic line followed by its members: here, none.
const EMPTY_ARCHIVE: &str = "!<arch>\n";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |key: &str| env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("VENDOR") == "apple" {
        return Ok(());
    }
    let name = match target("ENV").as_str() {
        "msvc" => "OpenCL.lib",
        _ => "libOpenCL.a",
    };
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join(name), EMPTY_ARCHIVE)?;
    println!("cargo::rustc-link-search=native={out}");
    Ok(())
}
