//! An OpenCL library of an AMD GPU that is not there: its kernels run as machine code, instruction
//! by instruction, or on PoCL; and its queues out of step by a seed.
//!
//! ```text
//!  ocl ─▶ the loader's forwarders ─▶ HORTON_OPENCL_LIBRARY = this
//!                                        │ api: programs, kernels, buffers, commands
//!   clBuildProgram ─▶ code ┬ compile: clang ─▶ code_object ─▶ functions of C, for instructions
//!                          └ native ─▶ pocl
//!   clEnqueue…     ─▶ queue: a thread that falls behind ─▶ code ┬ launch ─▶ waves ─▶ functions
//!                                                               └ native ─▶ pocl
//! ```
//!
//! Nobody here has such a GPU, and PoCL finishes each command before the next. So neither waves of
//! 64 nor commands that are late have ever met our kernels and queues. This library has both. It
//! says nothing on speed, caches or the drivers' own compilers. A program that opens it can have it
//! fail, too (`faults`). For many seeds of that, PoCL runs the kernels (`native`).
//!
//! It has three parts. The emulator makes machine code of a program and runs it, in at most 2,500
//! lines: `compile`, `runtime.cl`, `tools`, `target`, `code_object`, `isa`, `functions`, `launch`
//! and `waves`. The search for races looks at what it does (`races`). All other files are the
//! OpenCL library around these two.
//!
//! | word of `HORTON_DRIVER` | |
//! |---|---|
//! | `gfx90a`, `gfx942`, `gfx1100` | the chip; `gfx1100` if none is said |
//! | `pocl` | PoCL compiles and runs the kernels of a device that says it is the chip; no `rusticl` |
//! | `rusticl` | passes for Mesa's driver: shuffles, no 64-bit atomics. Otherwise for ROCm |
//! | `mixed` | waves take turns at random, instead of one after the other |
//! | `races` | accesses that race are looked for (`races`), and are an error of their launch |
//! | `seed=N` | commands run in threads of their queues, each some time after its call |
//! | `memory=MB` | megabytes of the device's memory; 4096 if not said |
//! | `units=N` | compute units that it says it has; 2 if not said |
//! | `log=FILE` | a line for each launch goes there |
//! | `cache=DIR` | folder of what was compiled; one in the folder for temporary files if not said |

#![cfg(target_os = "linux")]

pub mod api;
pub mod code;
pub mod code_object;
pub mod compile;
pub mod device;
pub mod faults;
pub mod functions;
pub mod isa;
pub mod launch;
pub mod memory;
pub mod native;
pub mod objects;
pub mod pocl;
pub mod program;
pub mod queue;
mod races;
pub mod settings;
pub mod status;
pub mod target;
mod tools;
pub mod waves;
