//! What the lanes of one opened device share: its context, compiled programs and pools.
//!
//! A driver that reports a kernel's fault, or a queue or context that it does not know any more,
//! has lost the context with all its memory. It is marked then: lanes open the device anew for
//! their next job, and what stood in the old context can no longer be used, which is an error
//! (a buffer of one context must not reach a kernel of another).

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ocl::core::{CommandQueue, Context, Mem, MemFlags, OclPrm, Program};

use crate::error::{Error, Result};

use super::call::{self, Called};
use super::info::{DeviceInfo, DeviceKind};
use super::memory::{Budget, Grant};
use super::pages;
use super::pool::{Block, Memory, Pool, block_bytes};
use super::program::{self, ProgramText};
use super::staging::{Mapping, Staging};
use super::status::Failed;

/// Idle page-locked memory that is kept, in bytes: what sixteen partitions have under way at once, two chunks of a million
/// rows each with four matches a row. What is beyond is locked anew, which takes a millisecond a megabyte.
const LOCKED_CAP: u64 = 2 << 30;

/// How a buffer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// From one end to the other.
    Streamed,
    /// At random places: what lookups read. A CPU's gets large pages.
    Random,
}

/// An opened device.
pub(super) struct Opened {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) budget: Arc<Budget>,
    pub(super) context: Context,
    /// For mapping and unmapping; nothing is ever waited for on it.
    pub(super) host: CommandQueue,
    programs: Mutex<HashMap<String, Program>>,
    blocks: Arc<Pool>,
    tables: Arc<Pool>,
    locked: Arc<Pool>,
    /// The error that this context was lost by.
    loss: OnceLock<String>,
    /// That of the context before.
    earlier_loss: Option<String>,
}

impl Opened {
    /// Opens the device, again after an `earlier_loss`.
    pub(super) fn new(
        info: Arc<DeviceInfo>,
        budget: Arc<Budget>,
        earlier_loss: Option<String>,
    ) -> Result<Self> {
        let context = call::create_context(info.platform_id, info.device_id)
            .map_err(|e| e.error("clCreateContext", &info.label()))?;
        let host = call::create_queue(&context, info.device_id)
            .map_err(|e| e.error("clCreateCommandQueue", &info.label()))?;
        // A sixteenth: enough for the chunks of some queries, little beside the tables.
        let [blocks, tables] = [(); 2].map(|()| Pool::new(budget.limit() / 32));
        Ok(Self {
            info,
            budget,
            context,
            host,
            programs: Mutex::default(),
            blocks,
            tables,
            locked: Pool::new(LOCKED_CAP),
            loss: OnceLock::new(),
            earlier_loss,
        })
    }

    /// A new in-order queue of this device.
    pub(super) fn command_queue(&self) -> Result<CommandQueue> {
        call::create_queue(&self.context, self.info.device_id)
            .map_err(|e| self.fail("clCreateCommandQueue", &e))
    }

    /// The error of a failed `call`; the context may be lost with it.
    pub(super) fn fail(&self, call: impl Into<String>, failed: &Failed) -> Error {
        let error = failed.error(call, &self.info.label());
        if failed.is_fatal() {
            self.lose(&error);
        }
        error
    }

    /// The context is not to be used for further jobs.
    pub(super) fn lose(&self, error: &Error) {
        self.loss.get_or_init(|| error.to_string());
    }

    /// The error that the context was lost by, if it is.
    pub(super) fn loss(&self) -> Option<String> {
        self.loss.get().cloned()
    }

    /// The error for memory that is not of this context.
    pub(super) fn foreign(&self) -> Error {
        let reason = self.earlier_loss.as_deref().unwrap_or("another device");
        let failed = Failed::Status(format!("its context is gone: {reason}"));
        failed.error("use of a buffer", &self.info.label())
    }

    /// Whether the context is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Whether `block` is memory of this context.
    pub(super) fn owns(&self, block: &Block) -> bool {
        [&self.blocks, &self.tables, &self.locked]
            .iter()
            .any(|pool| block.is_of(pool))
    }

    /// The compiled program, compiled now if it is asked for the first time.
    pub(super) fn program(&self, text: &ProgramText) -> Result<Program> {
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(program) = programs.get(text.key()) {
            return Ok(program.clone());
        }
        let program = program::build(&self.context, &self.info, text)?;
        programs.insert(text.key().to_owned(), program.clone());
        Ok(program)
    }

    /// Device memory for `bytes` if at most `limit` are then in use.
    pub(super) fn block(
        &self,
        (what, access): (&'static str, Access),
        bytes: u64,
        limit: u64,
    ) -> Result<(Block, Grant)> {
        let refused = |limit: u64, used: u64| Error::DeviceMemory {
            what,
            device: self.info.label(),
            wanted: bytes,
            limit,
            used,
        };
        if bytes > self.info.max_allocation {
            return Err(refused(self.info.max_allocation, self.budget.used()));
        }
        let size = block_bytes(bytes).min(self.info.max_allocation);
        let limit = limit.min(self.budget.limit());
        let grant = self
            .budget
            .take(size, limit)
            .map_err(|used| refused(limit, used))?;
        let pool = match access {
            Access::Streamed => &self.blocks,
            Access::Random => &self.tables,
        };
        let block = pool.take(size, || {
            self.create(what, size, access).or_else(|error| {
                if self.is_lost() {
                    return Err(error);
                }
                self.blocks.clear();
                self.tables.clear();
                self.create(what, size, access)
            })
        })?;
        Ok((block, grant))
    }

    fn create(&self, what: &'static str, bytes: u64, access: Access) -> Result<Memory> {
        let flags = match self.on_host() {
            true => MemFlags::READ_WRITE | MemFlags::ALLOC_HOST_PTR,
            false => MemFlags::READ_WRITE,
        };
        let mut mem = self.create_buffer(flags, bytes, what)?;
        let asks = self.on_host() && access == Access::Random && bytes >= pages::WORTH;
        if asks && let Err(error) = self.ask_for_large_pages(&mem, bytes) {
            // They are for speed alone; but who knows what that buffer has been left in.
            log::debug!("no large pages for {bytes} bytes: {error:?}");
            mem = self.create_buffer(flags, bytes, what)?;
        }
        Ok(Memory { mapping: None, mem })
    }

    /// Asks for large pages under a new buffer of a CPU's, which nobody has touched yet.
    fn ask_for_large_pages(&self, mem: &Mem, bytes: u64) -> Called<()> {
        const WHAT: &str = "pages";
        // SAFETY: the buffer has `bytes`, and no kernel knows it yet.
        let map = unsafe { call::map(&self.host, mem, bytes as usize, WHAT) }?;
        pages::ask(map.as_ptr() as usize, bytes as usize);
        call::unmap(&self.host, mem, &map, WHAT)?;
        // Kernels of other queues may use it only once it is unmapped.
        call::finish(&self.host, WHAT)
    }

    fn create_buffer(&self, flags: MemFlags, bytes: u64, what: &'static str) -> Result<Mem> {
        call::create_buffer(&self.context, flags, bytes, what).map_err(|e| {
            let call = format!("clCreateBuffer of {bytes} bytes for {what}");
            self.fail(call, &e)
        })
    }

    /// Whether the device's memory is the host's.
    pub(super) fn on_host(&self) -> bool {
        self.info.kind == DeviceKind::Cpu
    }

    /// Host memory for `len` elements that the device can copy from or use directly.
    pub(super) fn staging<T: OclPrm>(&self, what: &'static str, len: usize) -> Result<Staging<T>> {
        let bytes = (len.max(1) * size_of::<T>()) as u64;
        if self.on_host() {
            let (block, grant) = self.block((what, Access::Streamed), bytes, u64::MAX)?;
            return self.mapped(block, grant, len, &self.host);
        }
        let size = block_bytes(bytes);
        let block = self.locked.take(size, || self.lock(what, size))?;
        Ok(Staging {
            mapping: None,
            block,
            grant: None,
            len,
            element: PhantomData,
        })
    }

    /// Page-locked memory, mapped for good.
    fn lock(&self, what: &'static str, bytes: u64) -> Result<Memory> {
        let flags = MemFlags::READ_WRITE | MemFlags::ALLOC_HOST_PTR;
        let mem = self.create_buffer(flags, bytes, what)?;
        let mapping = Mapping::new(&mem, bytes as usize, &self.host, &self.host)
            .map_err(|e| self.fail("clEnqueueMapBuffer", &e))?;
        Ok(Memory {
            mapping: Some(mapping),
            mem,
        })
    }

    /// A CPU's buffer as host memory, after the commands before it in `commands`.
    pub(super) fn mapped<T: OclPrm>(
        &self,
        block: Block,
        grant: Grant,
        len: usize,
        commands: &CommandQueue,
    ) -> Result<Staging<T>> {
        let bytes = block.bytes() as usize;
        let mapping = Mapping::new(&block.memory().mem, bytes, commands, &self.host)
            .map_err(|e| self.fail("clEnqueueMapBuffer", &e))?;
        Ok(Staging {
            mapping: Some(mapping),
            block,
            grant: Some(grant),
            len,
            element: PhantomData,
        })
    }
}
