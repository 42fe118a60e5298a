//! Programs that PoCL compiles and runs, as fast as this machine can.
//!
//! ```text
//!  source, options ─▶ binary_of: the text itself ─▶ build: PoCL ─▶ a launch at a time, which works
//!                                                                  on the bytes of our buffers
//! ```
//!
//! Whoever looks for mistakes around the device needs its queues, memory and faults, and not its
//! instructions. Nothing but guards watches what a native kernel touches. So none may run on what
//! a failed command has left (`queue`).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::launch::{Argument, Launch};
use crate::pocl::{self, pocl};

/// The beginning of what stands for compiled code: that of an ELF file, and what it is.
const MAGIC: &str = "\x7fELF, which is a text for PoCL with options ";

/// Held while a kernel runs. Kernels that ran at once would only share the cores.
static RUNS: Mutex<()> = Mutex::new(());

/// A program.
pub struct Program {
    program: pocl::Program,
    kernels: Mutex<HashMap<String, pocl::Kernel>>,
}

/// Returns the bytes that stand for a compiled program. PoCL keeps what it has compiled by itself.
pub fn binary_of(source: &str, options: &str) -> Vec<u8> {
    format!("{MAGIC}{options}\n{source}").into_bytes()
}

impl Program {
    /// Compiles the program of these bytes.
    ///
    /// # Errors
    /// If they are none of [`binary_of`], or the compiler's messages.
    pub fn build(binary: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(binary).ok();
        let text = text.and_then(|text| text.strip_prefix(MAGIC)?.split_once('\n'));
        let (options, source) = text.ok_or("these are no bytes of such a program")?;
        Ok(Self {
            program: pocl()?.build(source, options)?,
            kernels: Mutex::default(),
        })
    }

    /// Returns whether it has a kernel of that name.
    pub fn has_kernel(&self, name: &str) -> bool {
        self.with_kernel(name, |_| Ok(())).is_ok()
    }

    /// Runs a launch.
    ///
    /// # Errors
    /// What PoCL refused.
    pub fn run(&self, launch: &Launch) -> Result<(), String> {
        let mut buffers = launch.buffers.iter();
        let arguments = launch.arguments.iter().map(|argument| {
            let Argument { is_memory, value } = argument;
            match is_memory.then(|| buffers.next()).flatten() {
                Some((from, to)) => Ok(pocl::Argument::Memory(*from, (to - from) as usize)),
                None if value.len() != size_of::<u64>() => Ok(pocl::Argument::Value(value)),
                None if value.iter().all(|byte| *byte == 0) => Ok(pocl::Argument::Null),
                None => Err("an argument is a buffer that was released"),
            }
        });
        let arguments = arguments.collect::<Result<Vec<_>, _>>()?;
        let local = launch.local as usize;
        let items = launch.groups as usize * local;
        self.with_kernel(launch.kernel, |kernel| {
            let _alone = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the launch holds its buffers, and commands of other queues use them only by
            // a mistake of the caller's. Kernels stay within them on data that is whole.
            unsafe { pocl()?.run(kernel, (items, local), &arguments) }
        })
    }

    /// Uses the kernel of that name, which is created once.
    fn with_kernel(
        &self,
        name: &str,
        use_it: impl FnOnce(&mut pocl::Kernel) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if !kernels.contains_key(name) {
            let kernel = pocl()?.kernel(&self.program, name)?;
            kernels.insert(name.to_owned(), kernel);
        }
        kernels.get_mut(name).map_or(Ok(()), use_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_program_are_refused() {
        let binary = binary_of("kernel void k() {}", "-cl-std=CL1.2");
        assert!(binary.starts_with(b"\x7fELF"));
        assert!(Program::build(&binary[4..]).is_err());
        assert!(Program::build(&MAGIC.as_bytes()[..20]).is_err());
    }
}
