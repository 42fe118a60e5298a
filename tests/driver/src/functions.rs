//! The functions of a program's instructions, as native code.
//!
//! ```text
//!   code object ─ llvm-objdump ─▶ text ─ isa ─▶ C ─ clang, once ─▶ CACHE/HASH.so ─▶ table
//!   table     address / 4:   0 f17   1 f4   2 -   3 f4   …        -: within one, or unknown
//! ```
//!
//! A function does an instruction in all active lanes of a wave. It checks what it touches by the
//! library's global `memory`, and notes the first fault there.
//!
//! Source: LLVM's "User Guide for AMDGPU Backend". An interpreter would need no compiler, but would
//! decode each instruction each time.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;

use libloading::Library;

use crate::isa::{self, Instruction};
use crate::target::Target;
use crate::tools::{made, name_of, output, printed, written};

const FLAGS: &str = "-O2 -fwrapv -fno-strict-aliasing -Wno-everything -fPIC -shared";

/// It gets scalar and vector registers, local and private memory, and its numbers.
pub(crate) type Function = unsafe extern "C" fn(*mut u32, *mut u32, *mut u8, *mut u8, *const i64);

/// Global memory from an address up to another.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range(pub u64, pub u64);

/// Bytes that a lane touched.
#[repr(C)]
pub(crate) struct Touch {
    /// Of local memory, the offset.
    pub address: u64,
    pub bytes: u32,
    pub lane: u32,
}

/// The global `memory` of a library.
#[repr(C)]
pub(crate) struct Memory {
    pub count: u64,
    pub ranges: *const Range,
    pub local_bytes: u64,
    /// The first fault, in 1 global, 2 local or 3 private memory, and its address.
    pub fault: u64,
    pub address: u64,
    /// The range that was found last.
    pub last: u64,
    /// Whether `touches` are noted, and how many there are.
    pub notes: u64,
    pub touched: u64,
    pub touches: [Touch; 128],
}

/// The functions of a code object.
pub struct Functions {
    /// What begins at each fourth byte of the code. An error is why nothing that is known does.
    table: Vec<Result<Instruction, String>>,
    disassembly: String,
    functions: NonNull<Function>,
    pub(crate) memory: NonNull<Memory>,
    /// Has the functions and the memory.
    _library: Library,
}

// SAFETY: the pointers are into the library, which stays loaded, on any thread.
unsafe impl Send for Functions {}
// SAFETY: all is only read, but for `memory`, which only the holder of `launch`'s lock touches.
unsafe impl Sync for Functions {}

impl Functions {
    /// Makes the functions of the code object in a file, whose code has so many bytes when it is
    /// loaded.
    ///
    /// # Errors
    /// If LLVM's tools are missing or fail, or if the library cannot be opened.
    pub fn load(target: Target, object: &Path, bytes: usize, cache: &Path) -> Result<Self, String> {
        let mut objdump = Command::new("llvm-objdump-19");
        objdump.args(["-d", "-l"]).arg(object);
        let disassembly = printed(object.with_added_extension("objdump"), &mut objdump)?;
        let translated = isa::translate(target, &disassembly);
        let mut table = vec![];
        table.resize_with(bytes.div_ceil(4), || Err("no instruction".to_owned()));
        for (address, instruction) in translated.table {
            let entry = table.get_mut(address as usize / 4);
            *entry.ok_or("an instruction out of the code")? = instruction;
        }
        let file = compile(target, &translated.source, cache)?;
        let failed = |error: libloading::Error| format!("{}: {error}", file.display());
        // SAFETY: loading runs no code of the library's.
        let library = unsafe { Library::new(&file) }.map_err(failed)?;
        // SAFETY: the prelude declares it so.
        let memory = unsafe { library.get(b"memory\0") }.map_err(failed)?;
        // SAFETY: it is an array of functions with these parameters.
        let functions = unsafe { library.get(b"functions\0") }.map_err(failed)?;
        Ok(Self {
            table,
            disassembly,
            functions: *functions,
            memory: *memory,
            _library: library,
        })
    }

    /// Returns what is at an offset of the code.
    ///
    /// # Errors
    /// If it is out of the code, or not known.
    pub(crate) fn instruction(&self, offset: u64) -> Result<&Instruction, String> {
        let entry = self.table.get((offset / 4) as usize);
        entry
            .ok_or("out of the code")?
            .as_ref()
            .map_err(String::clone)
    }

    /// Returns the function of an instruction.
    pub(crate) fn function(&self, instruction: &Instruction) -> Function {
        // SAFETY: the source that was compiled has a function for each instruction in the table.
        unsafe { self.functions.add(instruction.function).read() }
    }

    /// Returns the fewest bytes that an instruction moves, but no more than 4.
    pub(crate) fn word(&self) -> u32 {
        let known = self.table.iter().flatten();
        let bytes = known.filter_map(|instruction| Some(instruction.access?.bytes));
        bytes.min().unwrap_or(4)
    }

    /// Returns the offset, the text and the source's line of the instruction there.
    pub(crate) fn text(&self, offset: u64) -> String {
        let place = format!("// {offset:012X}:");
        let mut lines = self.disassembly.lines();
        let mut source = "?";
        let text = lines.find_map(|line| {
            let is_line = line.starts_with("; ") && line.contains('.');
            source = line.get(2..).filter(|_| is_line).unwrap_or(source);
            line.split_once(&place).map(|(text, _)| text.trim())
        });
        format!("{offset:#x}, {}, {source}", text.unwrap_or("?"))
    }
}

/// Returns the library of that source, in a file.
fn compile(target: Target, source: &str, cache: &Path) -> Result<PathBuf, String> {
    let name = cache.join(name_of((FLAGS, target, source)));
    let file = written(name.with_extension("c"), source.as_bytes())?;
    let wave = format!("-DW={}", target.wave_size());
    let library = made(name.with_extension("so"), |to| {
        let mut clang = Command::new("clang-19");
        clang.args(FLAGS.split(' ')).arg(wave).arg(file);
        output(clang.arg("-o").arg(to).arg("-lm")).map(drop)
    })?;
    // A name without a folder would be looked for elsewhere.
    library.canonicalize().map_err(|error| error.to_string())
}
