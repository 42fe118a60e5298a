//! Program text from `.cl` parts and defines, and compiling it.
//!
//! ```text
//!  #define SLOTS 8 …          constants, all from Rust
//!  #line 1 "hash.cl" …        the parts, in order
//!        │ sha-256 with device and driver
//!        ▼
//!  <cache>/<hash>.bin
//! ```
//!
//! Compiling the kernels costs 0.3-0.6 s, and loading them 1-5 ms, so binaries are kept (`cache`).
//! One that is torn, or that the driver refuses, is compiled again. PoCL keeps kernels itself, and
//! a binary costs it three times the compilation, so it is asked for none. Defines stand in the
//! text because `-D` options with parentheses fail on two runtimes.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use ocl::core::{Context, Program};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

use super::cache::{cache_file, read_file, store_file};
use super::info::DeviceInfo;
pub(crate) use super::kind::INT64_ATOMICS;
use super::opencl::{self, Called};
use super::status::Failed;

/// A complete OpenCL C program.
#[derive(Debug, Clone)]
pub struct ProgramText {
    name: &'static str,
    options: &'static str,
    source: Arc<str>,
    key: Arc<str>,
    needs_int64_atomics: bool,
    /// Lanes that its tiles have, if they talk through sub-groups; else 0.
    sub_group_lanes: usize,
}

impl ProgramText {
    /// Puts `defines` before `parts` (file name, text); `name` says which family it is.
    pub fn new(
        name: &'static str,
        defines: &[(&str, String)],
        parts: &[(&str, &'static str)],
    ) -> Self {
        let mut source = String::new();
        for (define, value) in defines {
            let _ = writeln!(source, "#define {define} {value}");
        }
        for (file, text) in parts {
            let _ = writeln!(source, "#line 1 \"{file}\"\n{text}");
        }
        let key = format!("{:x}", Sha256::digest(source.as_bytes()));
        let enables = format!("#pragma OPENCL EXTENSION {INT64_ATOMICS} : enable");
        Self {
            name,
            options: "",
            needs_int64_atomics: source.contains(&enables),
            sub_group_lanes: 0,
            source: source.into(),
            key: key.into(),
        }
    }

    /// Returns the text of a family's `variant`, which is made once in a process. Making and
    /// hashing one takes as long as some launches.
    pub(crate) fn once(
        family: &'static str,
        variant: &dyn Debug,
        make: impl FnOnce() -> Self,
    ) -> Self {
        static MADE: Mutex<BTreeMap<(&'static str, String), ProgramText>> =
            Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry((family, format!("{variant:?}")))
            .or_insert_with(make)
            .clone()
    }

    /// Returns the same text, compiled with `options`.
    pub(crate) fn with_options(self, options: &'static str) -> Self {
        let key = format!(
            "{:x}",
            Sha256::digest(format!("{options}\n{}", self.source))
        );
        Self {
            options,
            key: key.into(),
            ..self
        }
    }

    /// Returns the same text, whose kernels need sub-groups of a multiple of `lanes` work-items.
    pub(crate) fn with_sub_group_lanes(self, lanes: usize) -> Self {
        Self {
            sub_group_lanes: lanes,
            ..self
        }
    }

    /// Returns the lanes of its tiles, which must fit its sub-groups; 0 if it has none.
    pub(super) fn sub_group_lanes(&self) -> usize {
        self.sub_group_lanes
    }

    /// Returns the options for the compiler.
    pub fn options(&self) -> &'static str {
        self.options
    }

    /// Returns the name of the program's family.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the text of the program, as the compiler sees it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns whether it uses atomics on 64-bit words.
    pub(super) fn needs_int64_atomics(&self) -> bool {
        self.needs_int64_atomics
    }

    /// Returns the hash of text and options: the program's identity within a process.
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

/// Returns the compiled program: from the cache if it is there and the driver takes it.
pub(super) fn build(context: &Context, info: &DeviceInfo, text: &ProgramText) -> Result<Program> {
    let file = if info.keeps_kernels() {
        None
    } else {
        cache_file(info, text.key(), "bin")
    };
    if let Some(program) = file
        .as_deref()
        .and_then(|file| read_file(file).ok())
        .and_then(|binary| from_binary(context, info, text, &binary))
    {
        return Ok(program);
    }
    let program = from_source(context, info, text)?;
    if let Some(file) = file
        && let Some(binary) = binary_of(&program, text)
        && let Err(error) = store_file(&file, &binary)
    {
        log::debug!("kernel cache {} not written: {error}", file.display());
    }
    Ok(program)
}

fn from_source(context: &Context, info: &DeviceInfo, text: &ProgramText) -> Result<Program> {
    let device = info.label();
    let source = CString::new(text.source())
        .map_err(|_| Error::Invalid("a program text contains a NUL byte".to_owned()))?;
    let program = opencl::program_from_source(context, source, text.name())
        .map_err(|e| e.error("clCreateProgramWithSource", &device))?;
    compile(&program, info, text).map_err(|e| match e {
        Failed::BuildLog(log) => Error::ProgramBuild {
            program: text.name().to_owned(),
            device: device.clone(),
            log,
        },
        other => other.error("clBuildProgram", &device),
    })?;
    Ok(program)
}

fn from_binary(
    context: &Context,
    info: &DeviceInfo,
    text: &ProgramText,
    binary: &[u8],
) -> Option<Program> {
    let program = opencl::program_from_binary(context, info.device_id, binary, text.name()).ok()?;
    compile(&program, info, text).ok()?;
    Some(program)
}

fn compile(program: &Program, info: &DeviceInfo, text: &ProgramText) -> Called<()> {
    let options = CString::new(text.options()).unwrap_or_default();
    opencl::build_program(program, info.device_id, &options, text.name())
}

fn binary_of(program: &Program, text: &ProgramText) -> Option<Vec<u8>> {
    let binaries = opencl::program_binaries(program, text.name()).ok()?;
    binaries.into_iter().next().filter(|b| !b.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defines_stand_before_the_parts() {
        let text = ProgramText::new("t", &[("A", "1".into())], &[("a.cl", "int a;")]);
        assert_eq!(text.source(), "#define A 1\n#line 1 \"a.cl\"\nint a;\n");
    }
}
