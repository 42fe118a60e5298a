//! OpenCL C to AMD machine code, by LLVM's compiler, as AMD's own driver does it.
//!
//! ```text
//!  source, options ─▶ clang-19 ┬ with runtime.cl (work-items, barriers, atomics, …) ─▶ lld
//!                              └ with libclc (the rest of OpenCL's functions)  ─▶ code object
//! ```
//!
//! ROCm's device library is not to be had alone, and libclc has another idea of where a work-item's
//! number is. So what depends on the device is in `runtime.cl`. What was compiled stays in a
//! folder, under a name made of all that it depends on.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::settings::{Settings, settings};
use crate::target::Driver;

const RUNTIME: &str = include_str!("runtime.cl");
const LIBCLC: &str = "/usr/lib/clc/amdgcn--amdhsa.bc";
const COMPILER: &str = "clang-19";

/// For programs and the functions of `runtime.cl`.
const FLAGS: &str = "-target amdgcn-amd-amdhsa -nogpulib -O3 \
    -mcode-object-version=5 -Wno-unused-command-line-argument -Xclang -finclude-default-header";

/// What is wrong with an instruction is told by its line of the program.
const LINES: &str = "-gline-tables-only -fdebug-compilation-dir=cl";

/// Returns the code object of a program, and what the compiler said if there is none.
///
/// # Errors
/// The compiler's messages, or why it could not be run.
pub fn compile(source: &str, options: &str) -> Result<Vec<u8>, String> {
    let settings = settings();
    let failed = |error: io::Error| format!("{COMPILER}: {error}");
    std::fs::create_dir_all(&settings.cache).map_err(failed)?;
    let runtime = runtime(settings)?;
    let (target, driver) = (settings.target.name(), settings.driver);
    let name = name_of((source, options, RUNTIME, (FLAGS, LINES), driver));
    let object = settings.cache.join(format!("{name}.{target}.co"));
    if let Ok(known) = std::fs::read(&object) {
        return Ok(known);
    }
    let file = settings.cache.join(format!("{name}.cl"));
    write(&file, source.as_bytes()).map_err(failed)?;
    let mut command = Command::new(COMPILER);
    command.args(["-x", "cl"]).args(options.split_whitespace());
    if !options.contains("-cl-std=") {
        command.arg("-cl-std=CL1.2");
    }
    if driver == Driver::Rusticl {
        command.args([
            "-Xclang",
            "-cl-ext=-cl_khr_int64_base_atomics,-cl_khr_int64_extended_atomics",
            "-Dcl_khr_subgroup_shuffle=1",
            "-D__opencl_c_subgroups=1",
        ]);
    }
    common(&mut command, settings);
    command.args(LINES.split_whitespace());
    command.args(["-mllvm", "-amdgpu-internalize-symbols", "-fuse-ld=lld"]);
    for library in [runtime.as_path(), Path::new(LIBCLC)] {
        command.args(["-Xclang", "-mlink-builtin-bitcode", "-Xclang"]);
        command.arg(library);
    }
    command.arg(&file);
    run(command, &object)?;
    std::fs::read(&object).map_err(failed)
}

/// Returns what the functions of `runtime.cl` are compiled to.
fn runtime(settings: &Settings) -> Result<PathBuf, String> {
    let name = name_of((RUNTIME, FLAGS, settings.target.name()));
    let compiled = settings.cache.join(format!("{name}.bc"));
    if !compiled.exists() {
        let source = settings.cache.join(format!("{name}.cl"));
        write(&source, RUNTIME.as_bytes()).map_err(|error| error.to_string())?;
        let mut command = Command::new(COMPILER);
        command.args(["-x", "cl", "-cl-std=CL2.0"]);
        common(&mut command, settings);
        command.args(["-fno-builtin", "-emit-llvm", "-c"]);
        command.arg(&source);
        run(command, &compiled)?;
    }
    Ok(compiled)
}

fn common(command: &mut Command, settings: &Settings) {
    command.args(FLAGS.split_whitespace());
    command.arg(format!("-mcpu={}", settings.target.name()));
}

/// Runs a compiler that writes `result`, which is there whole or not at all.
fn run(mut command: Command, result: &Path) -> Result<(), String> {
    let begun = unfinished(result);
    let output = command.arg("-o").arg(&begun).output();
    let output = output.map_err(|error| format!("{COMPILER}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::rename(&begun, result).map_err(|error| error.to_string())
}

/// Writes a file that is there whole or not at all.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let begun = unfinished(file);
    std::fs::write(&begun, bytes)?;
    std::fs::rename(&begun, file)
}

/// Returns the name of a file that becomes `file`: threads and processes may write it at a time.
fn unfinished(file: &Path) -> PathBuf {
    let thread = std::thread::current().id();
    let process = std::process::id();
    file.with_added_extension(format!("{process}.{thread:?}"))
}

fn name_of(parts: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
