//! Launching kernels.
//!
//! ```text
//!  launch(program, kernel, (items, group), args)
//!     ├─ prepare: compile, create the kernel, check its sub-groups; once for each kernel
//!     ├─ hold the buffers among the arguments
//!     └─ enqueue `items` rounded up to whole groups
//! ```
//!
//! Kernels check their index, because OpenCL 1.2 has no global sizes but multiples of a group.

use ocl::core::{ArgVal, Kernel};

use crate::error::{Error, Result};

use super::super::buffer::Buffer;
use super::super::kind::{INT64_ATOMICS, SubGroupShuffle};
use super::super::opencl;
use super::super::program::ProgramText;
use super::{Queue, Stage};

/// One kernel argument.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// A buffer of 32-bit words.
    Words(&'a Buffer<u32>),
    /// A buffer of 64-bit words.
    Longs(&'a Buffer<u64>),
    /// A 32-bit scalar.
    U32(u32),
    /// A null pointer instead of a buffer.
    Null,
}

impl Queue {
    /// Launches `kernel` of `program` over at least `items` work-items in groups of `group`.
    ///
    /// # Errors
    /// [`Error::MissingExtension`] if the device lacks what the program uses,
    /// [`Error::ProgramBuild`] with the compiler's log, [`Error::OpenCl`] if the driver fails.
    pub fn launch(
        &mut self,
        program: &ProgramText,
        kernel: &'static str,
        (items, group): (usize, usize),
        args: &[Arg<'_>],
    ) -> Result<()> {
        if items == 0 {
            return Ok(());
        }
        self.prepare(program, kernel, group)?;
        for arg in args {
            self.use_arg(*arg)?;
        }
        let call = &self.kernels[&(program.key().to_owned(), kernel)];
        for (index, arg) in args.iter().enumerate() {
            self.set_arg(call, kernel, index as u32, *arg)?;
        }
        let global = items.div_ceil(group) * group;
        // SAFETY: the arguments were set just above with live buffers, which `in_use` keeps
        // until the command has run; kernels check their index against their lengths.
        let event = unsafe { opencl::enqueue(&self.commands, call, kernel, global, group) }
            .map_err(|e| self.fail(format!("kernel {kernel}"), &e))?;
        self.cost.launches += 1;
        self.note(Stage::Kernel(kernel), event);
        Ok(())
    }

    /// Compiles the program and creates the kernel, for work-groups of `group`, unless that was
    /// done before.
    fn prepare(&mut self, text: &ProgramText, kernel: &'static str, group: usize) -> Result<()> {
        let id = (text.key().to_owned(), kernel);
        if self.kernels.contains_key(&id) {
            return Ok(());
        }
        if text.needs_int64_atomics() && !self.info().has_int64_atomics() {
            return Err(Error::MissingExtension {
                program: text.name(),
                device: self.info().label(),
                extension: INT64_ATOMICS,
            });
        }
        let program = self.opened.program(text)?;
        let created = opencl::create_kernel(&program, kernel)
            .map_err(|e| self.fail(format!("clCreateKernel {kernel}"), &e))?;
        self.check_sub_groups(text, &created, kernel, group)?;
        self.kernels.insert(id, created);
        Ok(())
    }

    /// Checks that the tiles of a kernel fit its sub-groups. What a device says of all kernels may
    /// not hold for this one. Intel's devices list all sizes, so theirs holds.
    fn check_sub_groups(
        &self,
        text: &ProgramText,
        kernel: &Kernel,
        name: &'static str,
        group: usize,
    ) -> Result<()> {
        let lanes = text.sub_group_lanes();
        if lanes == 0 {
            return Ok(());
        }
        let info = self.info();
        let width = match info.sub_group_shuffle() {
            Some(SubGroupShuffle::Khronos) => {
                opencl::sub_group_size(kernel, name, info.device_id, group)
                    .map_err(|e| self.fail(format!("clGetKernelSubGroupInfo {name}"), &e))?
            }
            Some(SubGroupShuffle::Intel) | None => info.sub_group_width,
        };
        if width > 0 && width.is_multiple_of(lanes) {
            return Ok(());
        }
        Err(Error::ProgramBuild {
            program: text.name().to_owned(),
            device: info.label(),
            log: format!(
                "the sub-groups of kernel {name} have {width} work-items, but its tiles need a \
                 multiple of {lanes}"
            ),
        })
    }

    fn set_arg(&self, kernel: &Kernel, name: &'static str, index: u32, arg: Arg<'_>) -> Result<()> {
        let value = match &arg {
            Arg::Words(buffer) => ArgVal::mem(buffer.block.memory().mem()),
            Arg::Longs(buffer) => ArgVal::mem(buffer.block.memory().mem()),
            Arg::U32(value) => ArgVal::scalar(value),
            Arg::Null => ArgVal::mem_null(),
        };
        opencl::set_arg(kernel, name, index, value)
            .map_err(|e| self.fail(format!("argument {index} of kernel {name}"), &e))
    }

    /// Holds the memory of an argument for a command.
    fn use_arg(&mut self, arg: Arg<'_>) -> Result<()> {
        match arg {
            Arg::Words(buffer) => self.use_block(&buffer.block),
            Arg::Longs(buffer) => self.use_block(&buffer.block),
            Arg::U32(_) | Arg::Null => Ok(()),
        }
    }
}
