//! Code that is ready to run: machine code of the chip, or what PoCL makes of the same text.
//!
//! ```text
//!  source, options ─▶ binary_of ─▶ bytes ─▶ load ─▶ KNOWN ─▶ Code ┬ Emulated: instructions
//!                          the caller's cache keeps them          └ Native: PoCL
//! ```
//!
//! Who loses a context builds all programs anew. To read machine code costs more than to run a
//! small join, and so does PoCL's compiler. So what was loaded once stays for the process. Whether
//! such a call fails is drawn elsewhere (`faults`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::compile::compile;
use crate::launch::{self, Launch, LoadedCode};
use crate::native;
use crate::settings::settings;

/// A program's code.
pub enum Code {
    /// Instructions that are emulated.
    Emulated(LoadedCode),
    /// What PoCL has compiled.
    Native(native::Program),
}

/// Returns the bytes of a program, from which [`Code::load`] makes its code.
///
/// # Errors
/// The compiler's messages.
pub fn binary_of(source: &str, options: &str) -> Result<Vec<u8>, String> {
    match settings().is_native {
        true => Ok(native::binary_of(source, options)),
        false => compile(source, options),
    }
}

impl Code {
    /// Returns the code of these bytes, which is loaded once in a process.
    ///
    /// # Errors
    /// Why they cannot be loaded.
    pub fn load(binary: &[u8]) -> Result<Arc<Self>, String> {
        static KNOWN: Mutex<Option<HashMap<Vec<u8>, Arc<Code>>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_default();
        if let Some(code) = known.get(binary) {
            return Ok(Arc::clone(code));
        }
        let settings = settings();
        let code = Arc::new(match settings.is_native {
            true => Self::Native(native::Program::build(binary)?),
            false => Self::Emulated(LoadedCode::load(settings.target, binary, &settings.cache)?),
        });
        known.insert(binary.to_vec(), Arc::clone(&code));
        Ok(code)
    }

    /// Returns whether it has a kernel of that name.
    pub fn has_kernel(&self, name: &str) -> bool {
        match self {
            Self::Emulated(code) => code.has_kernel(name),
            Self::Native(program) => program.has_kernel(name),
        }
    }

    /// Runs a launch. Returns its instructions, if they are counted, and errors that did not stop
    /// it.
    ///
    /// # Errors
    /// Why it was stopped.
    pub fn run(&self, launch: &Launch) -> Result<(u64, Vec<String>), String> {
        match self {
            Self::Emulated(code) => launch::run(code, launch),
            Self::Native(program) => program.run(launch).map(|()| (0, Vec::new())),
        }
    }
}
