//! The things that the queue threads of one opened device share: its context, compiled programs and
//! pools.
//!
//! ```text
//!  queue thread ─▶ Opened { context, programs, pools } ── a fatal status ─▶ lost ─▶ a new one
//! ```
//!
//! A driver that reports a kernel's fault, or no longer knows a queue, has lost the context with
//! all its memory. Queue threads then open the device again for their next job. Buffers of the old
//! context can no longer be used: the error says so, as no buffer may reach a kernel of another
//! context.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ocl::core::{CommandQueue, Context, Event, Mem, MemFlags, OclPrm, Program};

use crate::error::{Error, Result};

use super::budget::{Budget, Grant, Refused};
use super::host;
use super::host_pages::HostPages;
use super::huge_pages;
use super::in_use::InUse;
use super::info::DeviceInfo;
use super::kind::DeviceKind;
use super::locked::{LockedMemory, LockedRange, range_bytes};
use super::memory::Memory;
use super::memory_threads::MemoryThreads;
use super::opencl::{self, Called};
use super::pool::{Block, Pool, block_bytes};
use super::program::{self, ProgramText};
use super::releases::Releases;
use super::staging::{Staging, StagingMemory};
use super::status::Failed;
use super::watchdog::{self, COMPILER_PATIENCE};

/// Bytes of page-locked memory that stay when idle, at most. Sixteen partitions use as much at
/// once, each with two chunks of a million rows and four matches per row. Locking again takes a
/// third of a millisecond per megabyte.
const LOCKED_BYTES_MAX: u64 = 2 << 30;

/// Fraction of the host's memory that stays page-locked when idle, at most: no budget counts it.
const LOCKED_FRACTION: u64 = 16;

/// Times that idle memory is waited for which others release at the moment, each a millisecond at
/// most. A driver may take its time for large memory.
const IDLE_TRIES: usize = 500;

/// The way in which a buffer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// It is read from one end to the other.
    Streamed,
    /// At random places: what lookups read. A CPU's gets large pages.
    Random,
}

/// The origin of a block's bytes.
enum Room {
    /// Memory that was idle.
    Idle(Arc<Block>),
    /// Memory that is to be created.
    New(Grant),
}

/// An opened device.
pub(super) struct Opened {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) budget: Arc<Budget>,
    pub(super) context: Context,
    /// Queue that maps idle memory, and unmaps memory that is released; kernels never run there.
    host: Arc<CommandQueue>,
    programs: Mutex<HashMap<String, Program>>,
    blocks: Arc<Pool>,
    tables: Arc<Pool>,
    locked: Arc<LockedMemory>,
    releases: Arc<Releases>,
    /// Whether the driver locks pages of this process, once it was asked to.
    takes_pages: OnceLock<bool>,
    /// The error that this context was lost by.
    loss: OnceLock<String>,
    /// True if its driver hangs.
    is_abandoned: AtomicBool,
    /// That of the context before.
    earlier_loss: Option<String>,
}

impl Opened {
    /// Opens the device, again after an `earlier_loss`. Memory that nobody needs is released by
    /// `threads`.
    pub(super) fn new(
        info: Arc<DeviceInfo>,
        budget: Arc<Budget>,
        threads: &MemoryThreads,
        earlier_loss: Option<String>,
    ) -> Result<Self> {
        let context = opencl::create_context(info.platform_id, info.device_id)
            .map_err(|e| e.error("clCreateContext", &info.label()))?;
        let host = opencl::create_queue(&context, info.device_id)
            .map_err(|e| e.error("clCreateCommandQueue", &info.label()))?;
        // A sixteenth: enough for the chunks of some queries, little beside the tables. It counts
        // in the budget, and goes when others ask for it.
        let releases = Releases::new(threads);
        let [blocks, tables] = [(); 2].map(|()| Pool::new(budget.limit() / 32, &releases));
        let locked_bytes = LOCKED_BYTES_MAX.min(host::memory() / LOCKED_FRACTION);
        Ok(Self {
            info,
            budget,
            context,
            host: Arc::new(host),
            programs: Mutex::default(),
            blocks,
            tables,
            locked: LockedMemory::new(locked_bytes, &releases),
            releases,
            takes_pages: OnceLock::new(),
            loss: OnceLock::new(),
            is_abandoned: AtomicBool::new(false),
            earlier_loss,
        })
    }

    /// Returns a new in-order queue of this device.
    pub(super) fn command_queue(&self) -> Result<CommandQueue> {
        opencl::create_queue(&self.context, self.info.device_id)
            .map_err(|e| self.fail("clCreateCommandQueue", &e))
    }

    /// Returns the error of a failed `call`; the context may be lost with it.
    pub(super) fn fail(&self, call: impl Into<String>, failed: &Failed) -> Error {
        let error = failed.error(call, &self.info.label());
        if failed.is_fatal() {
            self.lose(&error);
        }
        error
    }

    /// Marks the context as lost by `error`: it is not used for further jobs.
    pub(super) fn lose(&self, error: &Error) {
        self.loss.get_or_init(|| error.problem());
        self.keep_nothing();
    }

    /// Marks the context as lost for `reason`, as its driver hangs. It is never released, nor what
    /// is of it: calls that do so may hang, too.
    pub(super) fn abandon(self: &Arc<Self>, reason: &str) {
        self.is_abandoned.store(true, Ordering::Release);
        self.loss.get_or_init(|| reason.to_owned());
        // In this order: what is let go then is not released any more.
        self.releases.abandon();
        self.keep_nothing();
        std::mem::forget(Arc::clone(self));
    }

    /// Keeps no memory from now on that nobody uses: commands of a lost context may still write to
    /// it.
    fn keep_nothing(&self) {
        for pool in self.pools() {
            pool.close();
        }
        self.locked.close();
    }

    fn pools(&self) -> [&Arc<Pool>; 2] {
        [&self.blocks, &self.tables]
    }

    /// Returns the text of the error that the context was lost by, if it is lost.
    pub(super) fn loss(&self) -> Option<String> {
        self.loss.get().cloned()
    }

    /// Returns the error for memory that is not of this context.
    pub(super) fn foreign(&self) -> Error {
        let loss = self.loss.get().or(self.earlier_loss.as_ref());
        let reason = loss.map_or("another device", String::as_str);
        let failed = Failed::Status(format!("its context is gone: {reason}"));
        failed.error("use of a buffer", &self.info.label())
    }

    /// Returns whether the context is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Returns whether its driver hangs: what is of it must not be released.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// Returns whether `block` is memory of this context.
    pub(super) fn owns(&self, block: &Block) -> bool {
        self.pools().iter().any(|pool| block.is_of(pool))
    }

    /// Returns whether `staging` is memory of this context.
    pub(super) fn owns_staging<T: OclPrm>(&self, staging: &Staging<T>) -> bool {
        match &staging.memory {
            StagingMemory::Mapped(block) => self.owns(block),
            StagingMemory::Locked(range) => range.is_of(&self.locked),
        }
    }

    /// Returns the compiled program, compiled now if it is asked for the first time.
    pub(super) fn program(&self, text: &ProgramText) -> Result<Program> {
        // Another thread may hold it while it compiles.
        let waits = watchdog::call("clBuildProgram", COMPILER_PATIENCE);
        let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waits);
        if let Some(program) = programs.get(text.key()) {
            return Ok(program.clone());
        }
        let program = program::build(&self.context, &self.info, text)?;
        programs.insert(text.key().to_owned(), program.clone());
        Ok(program)
    }

    /// Returns memory for `bytes` if at most `limit` are then in use: an idle block, or one that
    /// the commands of a queue thread were the last to use, for later commands of the same queue.
    pub(super) fn block(
        &self,
        what: &'static str,
        access: Access,
        bytes: u64,
        limit: u64,
        in_use: Option<&mut InUse>,
    ) -> Result<Arc<Block>> {
        if self.is_abandoned() {
            return Err(self.foreign());
        }
        let refused = |wanted: u64, limit: u64, used: u64| Error::DeviceMemory {
            what,
            device: self.info.label(),
            wanted,
            limit,
            used,
        };
        let most = self.info.max_allocation;
        if bytes > most {
            return Err(refused(bytes, most, self.budget.used()));
        }
        let size = block_bytes(bytes).min(most);
        let pool = match access {
            Access::Streamed => &self.blocks,
            Access::Random => &self.tables,
        };
        if let Some(block) = in_use.and_then(|in_use| in_use.take(pool, size)) {
            return Ok(block);
        }
        let limit = limit.min(self.budget.limit());
        let found = self.room(pool, size, limit);
        match found.map_err(|used| refused(size, limit, used))? {
            Room::Idle(block) => Ok(block),
            Room::New(grant) => {
                let memory = self.or_without_idle(|| self.create(what, size, access))?;
                Ok(pool.block(memory, size, grant))
            }
        }
    }

    /// Returns room for `size` bytes of `pool` if at most `limit` are then taken. Other idle memory
    /// is released for it. Fails with the bytes in use.
    fn room(&self, pool: &Arc<Pool>, size: u64, limit: u64) -> Result<Room, u64> {
        let mut tries = 0;
        loop {
            let found = match pool.take_idle(size, limit) {
                Ok(Some(block)) => Ok(Room::Idle(block)),
                Ok(None) => self.budget.take(size, limit).map(Room::New),
                Err(refused) => Err(refused),
            };
            match found {
                Ok(room) => return Ok(room),
                Err(Refused::Used(used)) => return Err(used),
                // Should others take it first, the next turn says so.
                Err(Refused::Idle(over)) => {
                    let released = self.pools().map(|pool| pool.release(over));
                    // Another thread may be about to release it.
                    if released == [false; 2] {
                        tries += 1;
                        self.budget.wait_for_any(Duration::from_millis(1));
                    }
                    if tries > IDLE_TRIES {
                        return Err(self.budget.used());
                    }
                }
            }
        }
    }

    /// Returns what `create` makes. Tries once more without idle memory if that fails.
    fn or_without_idle(&self, create: impl Fn() -> Result<Memory>) -> Result<Memory> {
        create().or_else(|error| {
            if self.is_lost() {
                return Err(error);
            }
            for pool in self.pools() {
                pool.clear();
            }
            self.locked.clear();
            create()
        })
    }

    fn create(&self, what: &'static str, bytes: u64, access: Access) -> Result<Memory> {
        let flags = if self.on_host() {
            MemFlags::READ_WRITE | MemFlags::ALLOC_HOST_PTR
        } else {
            MemFlags::READ_WRITE
        };
        let mut mem = self.create_buffer(flags, bytes, what)?;
        let asks =
            self.on_host() && access == Access::Random && bytes >= huge_pages::HUGE_BUFFER_BYTES;
        if asks && let Err(error) = self.ask_for_large_pages(&mem, bytes) {
            // They are for speed alone; but who knows what that buffer has been left in.
            log::debug!("no large pages for {bytes} bytes: {error:?}");
            mem = self.create_buffer(flags, bytes, what)?;
        }
        Ok(Memory::new(mem, bytes, &self.host))
    }

    /// Asks for large pages under a new buffer of a CPU's, which nobody has touched yet.
    fn ask_for_large_pages(&self, mem: &Mem, bytes: u64) -> Called<()> {
        const WHAT: &str = "pages";
        // SAFETY: the buffer has `bytes`, and no kernel knows it yet.
        let (map, _) = unsafe { opencl::map(&self.host, mem, bytes as usize, WHAT) }?;
        huge_pages::ask(map.as_ptr() as usize, bytes as usize);
        opencl::unmap(&self.host, mem, &map, WHAT)?;
        // Kernels of other queues may use it only once it is unmapped.
        opencl::finish(&self.host, WHAT)
    }

    fn create_buffer(&self, flags: MemFlags, bytes: u64, what: &'static str) -> Result<Mem> {
        opencl::create_buffer(&self.context, flags, bytes, what).map_err(|e| {
            let call = format!("clCreateBuffer of {bytes} bytes for {what}");
            self.fail(call, &e)
        })
    }

    /// Returns whether the device's memory is the host's.
    pub(super) fn on_host(&self) -> bool {
        self.info.kind == DeviceKind::Cpu
    }

    /// Returns host memory for `len` elements that the device can copy from or use directly.
    pub(super) fn staging<T: OclPrm>(&self, what: &'static str, len: usize) -> Result<Staging<T>> {
        let bytes = staging_bytes::<T>(len);
        if !self.on_host() {
            return Ok(Staging::locked(self.locked_range(what, bytes)?, len));
        }
        // No memory of a queue thread: commands may still use it.
        let block = self.block(what, Access::Streamed, bytes, u64::MAX, None)?;
        let (staging, mapped) = self.mapped(block, len, &self.host)?;
        if let Some(event) = mapped {
            self.check("map", &event)?;
        }
        Ok(staging)
    }

    /// Returns host memory as [`staging`](Self::staging) does, if some is idle and mapped. Calls no
    /// driver.
    pub(super) fn idle_staging<T: OclPrm>(&self, len: usize) -> Option<Staging<T>> {
        let bytes = staging_bytes::<T>(len);
        if !self.on_host() {
            return Some(Staging::locked(self.locked.take(bytes)?, len));
        }
        let size = block_bytes(bytes).min(self.info.max_allocation);
        let limit = self.budget.limit();
        let found = self.blocks.take_idle_if(size, limit, Memory::is_on_host);
        let block = found.ok().flatten()?;
        let address = block.memory().host_address()?;
        Some(Staging::mapped(address, block, len))
    }

    /// Has host memory for `len` elements idle and mapped. Returns it if it is too much for a pool
    /// to keep, or if others are `not_to_take` it.
    pub(super) fn stock<T: OclPrm>(
        &self,
        what: &'static str,
        len: usize,
        not_to_take: bool,
    ) -> Result<Option<Staging<T>>> {
        let staging = match self.idle_staging(len) {
            Some(staging) => staging,
            None => self.staging(what, len)?,
        };
        let goes_back = staging.is_kept() && !not_to_take;
        Ok(Some(staging).filter(|_| !goes_back))
    }

    /// Returns page-locked memory for `bytes` bytes. It has no bytes of the budget, so none are
    /// refused.
    fn locked_range(&self, what: &'static str, bytes: u64) -> Result<Arc<LockedRange>> {
        if self.is_abandoned() {
            return Err(self.foreign());
        }
        if let Some(range) = self.locked.take(bytes) {
            return Ok(range);
        }
        let usual = self.or_without_idle(|| self.lock(what, self.locked.next_region(bytes)));
        let memory = usual.or_else(|error| {
            if self.is_lost() {
                return Err(error);
            }
            self.lock(what, range_bytes(bytes) as u64)
        })?;
        let (address, mapped) = memory
            .to_host(memory.bytes() as usize, &self.host)
            .map_err(|e| self.fail("clEnqueueMapBuffer", &e))?;
        if let Some(event) = mapped {
            self.check("map", &event)?;
        }
        let range = self.locked.add((memory, address), bytes);
        let too_small = || Error::Internal(format!("{bytes} bytes have no room in a new region"));
        range.ok_or_else(too_small)
    }

    /// Returns page-locked memory: in pages of this process, or of the driver if there are none or
    /// it takes none.
    fn lock(&self, what: &'static str, bytes: u64) -> Result<Memory> {
        let _work = tracing::trace_span!("lock memory", bytes).entered();
        watchdog::expect(bytes);
        if self.takes_pages.get() != Some(&false)
            && let Some(pages) = HostPages::new(bytes)
        {
            // SAFETY: `Memory` holds the pages until the buffer is released.
            match unsafe { opencl::create_buffer_in(&self.context, &pages, what) } {
                Ok(mem) => {
                    self.takes_pages.get_or_init(|| true);
                    return Ok(Memory::in_pages(mem, pages, &self.host));
                }
                Err(error) if *self.takes_pages.get_or_init(|| false) => {
                    let call = format!("clCreateBuffer in {bytes} bytes for {what}");
                    return Err(self.fail(call, &error));
                }
                Err(error) => log::debug!("the driver takes no pages of this process: {error}"),
            }
        }
        let flags = MemFlags::READ_WRITE | MemFlags::ALLOC_HOST_PTR;
        let mem = self.create_buffer(flags, bytes, what)?;
        Ok(Memory::new(mem, bytes, &self.host))
    }

    /// Maps memory for the host, after the commands before in `commands`. Returns the mapping's
    /// event, too, if it was not mapped.
    pub(super) fn mapped<T: OclPrm>(
        &self,
        block: Arc<Block>,
        len: usize,
        commands: &CommandQueue,
    ) -> Result<(Staging<T>, Option<Event>)> {
        let bytes = block.bytes() as usize;
        let (address, mapped) = block
            .memory()
            .to_host(bytes, commands)
            .map_err(|e| self.fail("clEnqueueMapBuffer", &e))?;
        Ok((Staging::mapped(address, block, len), mapped))
    }

    /// Looks how a command ended, which the caller knows to be done.
    ///
    /// # Errors
    /// [`Error::OpenCl`] if it failed. Other contents of the context may be wrong, too, so the
    /// context is lost then.
    pub(super) fn check(&self, command: &'static str, event: &Event) -> Result<()> {
        opencl::event_status(event, command).map_err(|e| {
            let error = self.fail(command, &e);
            self.lose(&error);
            error
        })
    }
}

/// Returns the bytes of `len` elements of staging memory, of which there is always one.
fn staging_bytes<T>(len: usize) -> u64 {
    (len.max(1) * size_of::<T>()) as u64
}
