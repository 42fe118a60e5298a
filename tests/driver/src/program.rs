//! Programs and kernels, and the launches of kernels.
//!
//! ```text
//!  source ─▶ build ─▶ code object ─▶ kernels ─ arguments ─▶ a launch, in line of a queue
//! ```

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::code::{Code, binary_of};
use crate::launch::{Argument, Launch};
use crate::memory::Buffer;
use crate::objects::{Object, Ptr, find};
use crate::settings::{Settings, settings};
use crate::status::{
    BUILD_PROGRAM_FAILURE, Called, INVALID_ARG_INDEX, INVALID_BINARY, INVALID_KERNEL,
    INVALID_KERNEL_ARGS, INVALID_KERNEL_NAME, INVALID_PROGRAM, INVALID_PROGRAM_EXECUTABLE,
    OUT_OF_RESOURCES,
};

const ARGUMENTS_MAX: u32 = 64;

/// A program.
pub struct Program {
    pub context: Ptr,
    /// OpenCL C, or a code object.
    origin: Origin,
    built: Mutex<Built>,
}

enum Origin {
    Source(String),
    Binary(Vec<u8>),
}

#[derive(Default)]
struct Built {
    code: Option<Arc<Code>>,
    binary: Vec<u8>,
    log: String,
}

// SAFETY: `context` is a number that stands for an object; nobody follows it.
unsafe impl Send for Program {}
// SAFETY: as above.
unsafe impl Sync for Program {}

impl Object for Program {
    const INVALID: i32 = INVALID_PROGRAM;
}

impl Program {
    /// Returns the program of OpenCL C.
    pub fn of_source(context: Ptr, source: String) -> Arc<Self> {
        Self::of(context, Origin::Source(source))
    }

    /// Returns the program of a code object.
    ///
    /// # Errors
    /// The status of bytes that are none.
    pub fn of_binary(context: Ptr, binary: Vec<u8>) -> Called<Arc<Self>> {
        if !binary.starts_with(b"\x7fELF") {
            return Err(INVALID_BINARY);
        }
        Ok(Self::of(context, Origin::Binary(binary)))
    }

    fn of(context: Ptr, origin: Origin) -> Arc<Self> {
        Arc::new(Self {
            context,
            origin,
            built: Mutex::default(),
        })
    }

    /// Builds it.
    ///
    /// # Errors
    /// The status of a program that does not compile; the log has the reason.
    pub fn build(&self, options: &str) -> Called<()> {
        let binary = match &self.origin {
            Origin::Source(source) => binary_of(source, options),
            Origin::Binary(binary) => Ok(binary.clone()),
        };
        let loaded = binary.and_then(|binary| Ok((Code::load(&binary)?, binary)));
        let mut built = self.built();
        match loaded {
            Ok((code, binary)) => {
                *built = Built {
                    code: Some(code),
                    binary,
                    log: String::new(),
                };
                Ok(())
            }
            Err(log) => {
                built.log = log;
                Err(BUILD_PROGRAM_FAILURE)
            }
        }
    }

    /// Returns whether it is built.
    pub fn is_built(&self) -> bool {
        self.built().code.is_some()
    }

    /// Returns what the compiler said.
    pub fn log(&self) -> String {
        self.built().log.clone()
    }

    /// Returns the code object; no bytes before it is built.
    pub fn binary(&self) -> Vec<u8> {
        self.built().binary.clone()
    }

    fn built(&self) -> MutexGuard<'_, Built> {
        self.built.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A kernel, with the arguments of its next launch.
pub struct Kernel {
    /// The handle of its program.
    pub program: Ptr,
    pub context: Ptr,
    pub name: String,
    code: Arc<Code>,
    arguments: Mutex<Vec<Option<Vec<u8>>>>,
}

// SAFETY: the handles are numbers that stand for objects; nobody follows them.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Object for Kernel {
    const INVALID: i32 = INVALID_KERNEL;
}

impl Kernel {
    /// Returns the kernel `name` of the program whose handle is `program`.
    ///
    /// # Errors
    /// The status of a program that is not built, or has no such kernel.
    pub fn new(program: Ptr, name: &str) -> Called<Arc<Self>> {
        let of = find::<Program>(program)?;
        let code = of.built().code.clone();
        let code = code.ok_or(INVALID_PROGRAM_EXECUTABLE)?;
        if !code.has_kernel(name) {
            return Err(INVALID_KERNEL_NAME);
        }
        Ok(Arc::new(Self {
            program,
            context: of.context,
            name: name.to_owned(),
            code,
            arguments: Mutex::default(),
        }))
    }

    /// Sets argument `index`.
    ///
    /// # Errors
    /// The status of an index that no kernel has.
    pub fn set(&self, index: u32, value: Vec<u8>) -> Called<()> {
        if index >= ARGUMENTS_MAX {
            return Err(INVALID_ARG_INDEX);
        }
        let mut arguments = lock(&self.arguments);
        let index = index as usize;
        if arguments.len() <= index {
            arguments.resize(index + 1, None);
        }
        arguments[index] = Some(value);
        Ok(())
    }

    /// Returns a launch with the arguments as they are now.
    ///
    /// # Errors
    /// The status of arguments that are not set.
    pub fn launch(&self, groups: u32, local: u32) -> Called<KernelLaunch> {
        let (mut values, mut buffers) = (Vec::new(), Vec::new());
        for value in lock(&self.arguments).iter() {
            let value = value.clone().ok_or(INVALID_KERNEL_ARGS)?;
            let buffer = handle(&value).and_then(|handle| find::<Buffer>(handle).ok());
            values.push(match &buffer {
                Some(buffer) => Argument {
                    is_memory: true,
                    value: buffer.range().0.to_le_bytes().to_vec(),
                },
                None => Argument {
                    is_memory: false,
                    value,
                },
            });
            buffers.extend(buffer);
        }
        Ok(KernelLaunch {
            name: self.name.clone(),
            code: Arc::clone(&self.code),
            groups,
            local,
            values,
            buffers,
        })
    }
}

/// Returns the handle that an argument may be.
fn handle(value: &[u8]) -> Option<Ptr> {
    let bytes: [u8; 8] = value.try_into().ok()?;
    Some(usize::from_le_bytes(bytes) as Ptr)
}

/// A launch of a kernel, which holds its buffers.
pub struct KernelLaunch {
    name: String,
    code: Arc<Code>,
    groups: u32,
    local: u32,
    values: Vec<Argument>,
    buffers: Vec<Arc<Buffer>>,
}

impl KernelLaunch {
    /// Runs it.
    ///
    /// # Errors
    /// The status of a kernel that met memory which is none of its buffers, or that was stopped
    /// for another reason. Standard error has the reason.
    pub fn run(self) -> Called<()> {
        static LAUNCHES: AtomicU64 = AtomicU64::new(0);
        let settings = settings();
        let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        let seed = settings.seed.unwrap_or(1).wrapping_mul(1_000_003) + number;
        let ranges: Vec<_> = self.buffers.iter().map(|buffer| buffer.range()).collect();
        let launch = Launch {
            kernel: &self.name,
            groups: self.groups,
            local: self.local,
            arguments: &self.values,
            buffers: &ranges,
            mixed: settings.is_mixed.then_some(seed),
            finds_races: settings.finds_races,
        };
        let began = Instant::now();
        let ended = self.code.run(&launch);
        let (instructions, mut wrong) = ended.unwrap_or_else(|why| (0, vec![why]));
        let written = self
            .buffers
            .iter()
            .filter(|buffer| !buffer.is_guard_whole());
        wrong.extend(written.map(|buffer| format!("WROTE BEHIND {} bytes", buffer.size)));
        let wrong = wrong.join("; ");
        if !wrong.is_empty() {
            eprintln!("horton-driver: {}: {wrong}", self.name);
        }
        let took = began.elapsed().as_secs_f64() * 1e3;
        self.note(
            settings,
            &format!("{instructions} instructions {took:.1} ms {wrong}"),
        );
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(OUT_OF_RESOURCES),
        }
    }

    /// Writes a line into the log, if there is one.
    fn note(&self, settings: &Settings, what: &str) {
        static LOG: Mutex<()> = Mutex::new(());
        let Some(file) = &settings.log else {
            return;
        };
        let _turn = lock(&LOG);
        let options = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(file);
        let line = format!("{} {} x {}: {what}", self.name, self.groups, self.local);
        if let Err(error) = options.and_then(|mut file| writeln!(file, "{}", line.trim_end())) {
            eprintln!("horton-driver: {}: {error}", file.display());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
