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

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;

use crate::isa::{self, Access};
use crate::target::Target;
use crate::tools::{made, name_of, output, written};

const FLAGS: &str = "-O1 -fwrapv -fno-strict-aliasing -Wno-everything -fPIC -shared";

/// It gets scalar and vector registers, null, local and private memory, and accumulators.
type Function = unsafe extern "C" fn(*mut u32, *mut u32, *mut c_void, *mut u8, *mut u8, *mut u32);

/// An instruction; without a function if none that is known begins there.
#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    pub function: Option<Function>,
    pub is_barrier: bool,
    pub access: Option<Access>,
}

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
    table: Vec<Entry>,
    /// Instructions that are not known. To meet one is an error.
    pub(crate) unknown: Vec<String>,
    disassembly: String,
    pub(crate) memory: NonNull<Memory>,
    /// Has the functions and the memory.
    _library: Library,
}

// SAFETY: the pointers are into the library, which stays loaded, on any thread.
unsafe impl Send for Functions {}
// SAFETY: all is only read, but for `memory`, which only the holder of `launch`'s lock touches.
unsafe impl Sync for Functions {}

impl Functions {
    /// Makes the functions of a code object, whose code has so many bytes when it is loaded.
    ///
    /// # Errors
    /// If LLVM's tools are missing or fail, or if the library cannot be opened.
    pub fn load(target: Target, object: &[u8], bytes: u64, cache: &Path) -> Result<Self, String> {
        let file = written(cache.join(name_of(object)).with_extension("elf"), object)?;
        let disassembly = output(Command::new("llvm-objdump-19").args(["-d", "-l"]).arg(file))?;
        let translated = isa::translate(target, &disassembly);
        let library = Library::open(&compile(target, &translated.source, cache)?)?;
        let functions = library.symbol(c"functions")?.cast();
        let mut table = vec![Entry::default(); bytes.div_ceil(4) as usize];
        for instruction in translated.table {
            let entry = table.get_mut(instruction.address as usize / 4);
            let entry = entry.ok_or("an instruction out of the code")?;
            // SAFETY: the source that was compiled has a function of each number in the table.
            entry.function = Some(unsafe { functions.add(instruction.function).read() });
            entry.is_barrier = instruction.is_barrier;
            entry.access = instruction.access;
        }
        Ok(Self {
            table,
            unknown: translated.unknown,
            disassembly,
            memory: library.symbol(c"memory")?.cast(),
            _library: library,
        })
    }

    /// Returns what is at an offset of the code, if that is not out of it.
    pub(crate) fn entry(&self, offset: u64) -> Option<Entry> {
        self.table.get((offset / 4) as usize).copied()
    }

    /// Returns the fewest bytes that an instruction moves, but no more than 4.
    pub(crate) fn word(&self) -> u32 {
        let accesses = self.table.iter().filter_map(|entry| entry.access);
        accesses.map(|access| access.bytes).min().unwrap_or(4)
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

/// Returns the library of that source.
fn compile(target: Target, source: &str, cache: &Path) -> Result<PathBuf, String> {
    let name = cache.join(name_of((FLAGS, target, source)));
    let file = written(name.with_extension("c"), source.as_bytes())?;
    let wave = format!("-DW={}", target.wave_size());
    made(name.with_extension("so"), |to| {
        let mut clang = Command::new("clang-19");
        clang.args(FLAGS.split(' ')).arg(wave).arg(file);
        output(clang.arg("-o").arg(to).arg("-lm")).map(drop)
    })
}

/// A library that is loaded.
struct Library(NonNull<c_void>);

impl Library {
    fn open(path: &Path) -> Result<Self, String> {
        // A name without a folder would be looked for elsewhere.
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        let name = CString::new(path.as_os_str().as_bytes());
        let name = name.map_err(|error| error.to_string())?;
        // SAFETY: the name ends with a zero, and loading runs no code of the library's.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).map(Self);
        handle.ok_or_else(|| format!("dlopen: {} cannot be loaded", path.display()))
    }

    fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, String> {
        // SAFETY: the library is loaded, and the name ends with a zero.
        let symbol = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        NonNull::new(symbol).ok_or_else(|| format!("dlsym: no {name:?}"))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: it is open, and its owner's pointers into it are not used any more.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}
