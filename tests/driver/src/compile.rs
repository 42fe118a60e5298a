//! OpenCL C to AMD machine code, by LLVM's compiler, as AMD's own driver does it.
//!
//! ```text
//!  source, options ─▶ clang-19 ┬ with runtime.cl (work-items, barriers, atomics, …) ─▶ lld
//!                              └ with libclc (the rest of OpenCL's functions)  ─▶ code object
//! ```
//!
//! ROCm's device library is not to be had alone, and libclc has another idea of where a work-item's
//! number is. So what depends on the device is in `runtime.cl`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::settings::{Settings, settings};
use crate::target::Driver;
use crate::tools::{made, name_of, output, written};

const RUNTIME: &str = include_str!("runtime.cl");
const LIBCLC: &str = "/usr/lib/clc/amdgcn--amdhsa.bc";

/// For programs and the functions of `runtime.cl`.
const FLAGS: &str = "-target amdgcn-amd-amdhsa -nogpulib -O3 \
    -mcode-object-version=5 -Wno-unused-command-line-argument -Xclang -finclude-default-header";

/// Of Mesa's driver: it has no 64-bit atomics, but shuffles.
const RUSTICL: &str = "-Xclang -cl-ext=-cl_khr_int64_base_atomics,-cl_khr_int64_extended_atomics \
    -Dcl_khr_subgroup_shuffle=1 -D__opencl_c_subgroups=1";

/// What is wrong with an instruction is told by its line of the program.
const LINES: &str = "-gline-tables-only -fdebug-compilation-dir=cl";

/// Returns the code object of a program, and what the compiler said if there is none.
///
/// # Errors
/// The compiler's messages, or why it could not be run.
pub fn compile(source: &str, options: &str) -> Result<Vec<u8>, String> {
    let settings = settings();
    let (target, driver) = (settings.target.name(), settings.driver);
    let name = name_of((source, options, RUNTIME, (FLAGS, LINES), driver));
    let name = settings.cache.join(name);
    let object = made(name.with_extension(format!("{target}.co")), |to| {
        let file = written(name.with_extension("cl"), source.as_bytes())?;
        let mut clang = clang(settings);
        clang.args(options.split_whitespace());
        if !options.contains("-cl-std=") {
            clang.arg("-cl-std=CL1.2");
        }
        if driver == Driver::Rusticl {
            clang.args(RUSTICL.split_whitespace());
        }
        clang.args(LINES.split_whitespace());
        clang.args(["-mllvm", "-amdgpu-internalize-symbols", "-fuse-ld=lld"]);
        for library in [runtime(settings)?.as_path(), Path::new(LIBCLC)] {
            clang.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]);
            clang.arg(library);
        }
        output(clang.arg(file).arg("-o").arg(to)).map(drop)
    })?;
    std::fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))
}

/// Returns what the functions of `runtime.cl` are compiled to.
fn runtime(settings: &Settings) -> Result<PathBuf, String> {
    let name = name_of((RUNTIME, FLAGS, settings.target.name()));
    let name = settings.cache.join(name);
    made(name.with_extension("bc"), |to| {
        let file = written(name.with_extension("cl"), RUNTIME.as_bytes())?;
        let mut clang = clang(settings);
        clang.args(["-cl-std=CL2.0", "-fno-builtin", "-emit-llvm", "-c"]);
        output(clang.arg(file).arg("-o").arg(to)).map(drop)
    })
}

/// Returns the compiler, for the chip.
fn clang(settings: &Settings) -> Command {
    let mut clang = Command::new("clang-19");
    clang.args(["-x", "cl"]).args(FLAGS.split_whitespace());
    clang.arg(format!("-mcpu={}", settings.target.name()));
    clang
}
