//! Makes the shim depend on the system's libOpenCL, so that whoever opens the shim finds there what
//! it does not define. An empty library of that name is linked, as the real one need not be there
//! yet.

use std::path::Path;
use std::process::Command;
use std::{env, io};

const NAME: &str = "libOpenCL.so.1";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return Ok(());
    }
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let linked = Command::new("cc")
        .args(["-shared", "-nostdlib", "-x", "c", "/dev/null"])
        .arg(format!("-Wl,-soname,{NAME}"))
        .arg("-o")
        .arg(Path::new(&out).join(NAME))
        .status()?;
    if !linked.success() {
        return Err(io::Error::other(format!("cc: {linked}")));
    }
    for arg in [
        "-Wl,--no-as-needed",
        &format!("-L{out}"),
        &format!("-l:{NAME}"),
    ] {
        println!("cargo::rustc-cdylib-link-arg={arg}");
    }
    Ok(())
}
