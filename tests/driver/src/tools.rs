//! LLVM's tools, and the folder of what they made.
//!
//! ```text
//!  made HASH.so ─▶ it is there, or else: a tool writes HASH.so.PROCESS.THREAD ─ rename ─▶ HASH.so
//! ```
//!
//! Names are made of all that a file depends on. Threads and processes may make a file at a time:
//! it is there whole or not at all. A lock would have them wait for each other's compilers.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;

/// Returns a file that `make` writes, unless it is there.
pub(crate) fn made(
    file: PathBuf,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    if file.exists() {
        return Ok(file);
    }
    let failed = |error: io::Error| format!("{}: {error}", file.display());
    let folder = file.parent().map_or(Ok(()), fs::create_dir_all);
    folder.map_err(failed)?;
    let (process, thread) = (process::id(), thread::current().id());
    let begun = file.with_added_extension(format!("{process}.{thread:?}"));
    make(&begun)?;
    fs::rename(begun, &file).map_err(failed)?;
    Ok(file)
}

/// Returns a file with that content.
pub(crate) fn written(file: PathBuf, content: &[u8]) -> Result<PathBuf, String> {
    let write = |to: &Path| fs::write(to, content);
    made(file, |to| write(to).map_err(|error| error.to_string()))
}

/// Returns what a tool prints, which is kept in a file. Loading LLVM takes longer than its work.
pub(crate) fn printed(file: PathBuf, command: &mut Command) -> Result<String, String> {
    let failed = |error: io::Error| error.to_string();
    let kept = made(file, |to| fs::write(to, output(command)?).map_err(failed))?;
    fs::read_to_string(kept).map_err(failed)
}

/// Returns the name of a file, without its extension.
pub(crate) fn name_of(parts: impl Hash) -> String {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Returns what a tool prints. An error is what it says.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let tool = command.get_program().to_owned();
    let output = command.output();
    let output = output.map_err(|error| format!("{}: {error}", tool.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
