//! What a job can do on its device: allocate, copy, fill, launch.
//!
//! The queue is in-order, so a job reads as straight-line code; only downloads wait. Every command
//! leaves an event behind. It tells how the command ended, which is looked at before the job uses
//! what the host has been given; and when the job ends, device clocks are added up into its
//! [`Cost`]. The queue holds all memory that its commands use until they have finished (`pool`).
//! Sizes of zero are legal here (OpenCL refuses them, `ocl` panics): an empty buffer holds one
//! element, an empty transfer or launch does nothing. Global sizes are padded to the work-group
//! size, so every kernel checks its index.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ocl::core::{ArgVal, CommandQueue, Event, Kernel, Mem, OclPrm, ProfilingInfo};

use crate::error::{Error, Result};

use super::call;
use super::context::{Access, Opened};
use super::info::{DeviceInfo, KernelBody, SubGroupShuffle};
use super::owner::{Answer, Cost};
use super::pool::{Block, InUse};
use super::program::{INT64_ATOMICS, ProgramText};
use super::staging::Staging;
use super::status::Failed;

/// A device buffer of `len` elements; its bytes return to the budget when it is dropped and the
/// commands that use it are known to be done.
#[derive(Debug)]
pub struct Buffer<T> {
    block: Arc<Block>,
    len: usize,
    _element: std::marker::PhantomData<T>,
}

impl<T> Buffer<T> {
    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the elements from `len` on; their memory stays.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

/// Elements on their way to the host.
#[derive(Debug)]
pub(crate) struct Fetching<T: OclPrm>(Staging<T>);

/// One kernel argument.
#[derive(Debug, Clone, Copy)]
pub enum Arg<'a> {
    /// A buffer of 32-bit words.
    Words(&'a Buffer<u32>),
    /// A buffer of 64-bit words.
    Longs(&'a Buffer<u64>),
    /// A 32-bit scalar.
    U32(u32),
    /// No buffer: a null pointer.
    Null,
}

/// What a command is for.
#[derive(Debug, Clone, Copy)]
enum Stage {
    Upload,
    Kernel(&'static str),
    Download,
}

impl Stage {
    /// What errors call it.
    fn name(self) -> &'static str {
        match self {
            Stage::Upload => "upload",
            Stage::Kernel(name) => name,
            Stage::Download => "download",
        }
    }
}

/// One lane of an opened device: an in-order queue; lives on its owner thread.
pub struct Queue {
    opened: Arc<Opened>,
    limit: u64,
    body: KernelBody,
    commands: CommandQueue,
    kernels: HashMap<(String, &'static str), Kernel>,
    /// Memory that commands use, as far as they are not known to be done.
    in_use: InUse,
    events: Vec<(Stage, Event)>,
    /// How many of them are known to have ended well.
    checked: usize,
    cost: Cost,
}

impl Queue {
    pub(super) fn open(opened: Arc<Opened>) -> Result<Self> {
        Ok(Self {
            limit: u64::MAX,
            body: opened.info.body(),
            commands: opened.command_queue()?,
            kernels: HashMap::new(),
            in_use: InUse::default(),
            events: Vec::new(),
            checked: 0,
            cost: Cost::default(),
            opened,
        })
    }

    /// Runs one job: fresh costs and limits before, waiting and adding up after.
    pub(super) fn job<T>(
        &mut self,
        job: impl FnOnce(&mut Queue) -> Result<T>,
    ) -> Result<Answer<T>> {
        self.limit = u64::MAX;
        self.body = self.opened.info.body();
        self.cost = Cost::default();
        self.events.clear();
        self.checked = 0;
        let value = job(self);
        let finished = self.finish();
        let value = match (value, finished) {
            // The first failure of the device is the one to tell of; it may be behind what the job
            // says.
            (Err(error), _) if error.is_of_device() => return Err(error),
            (_, Err(error)) => return Err(error),
            // Another lane's kernel failed meanwhile; what it left in this one's memory, nobody
            // knows.
            (Ok(_), Ok(())) if self.is_lost() => return Err(self.opened.foreign()),
            (value, Ok(())) => value?,
        };
        self.settle();
        Ok(Answer {
            value,
            cost: self.cost,
        })
    }

    /// Waits for all commands, of a failed job too: they may still use its buffers. Looks how they
    /// ended.
    pub(super) fn finish(&mut self) -> Result<()> {
        let finished = call::finish(&self.commands, "").map_err(|e| {
            let error = self.fail("clFinish", &e);
            // What was enqueued may still run, or may not have.
            self.opened.lose(&error);
            error
        });
        let finished = finished.and_then(|()| self.check());
        if finished.is_err() {
            // The pools of a lost context keep nothing.
            self.in_use.clear();
        }
        finished
    }

    /// Looks how the commands ended that are done by now: all so far. Their memory is free.
    fn check(&mut self) -> Result<()> {
        for (stage, event) in &self.events[self.checked..] {
            self.opened.check(stage.name(), event)?;
        }
        self.checked = self.events.len();
        self.in_use.clear();
        Ok(())
    }

    /// The device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.opened.info
    }

    /// How kernels use the device: its own way, or what the job asked for.
    pub fn body(&self) -> KernelBody {
        self.body
    }

    /// Whether a volatile load sees what atomics wrote, which costs less than an atomic load.
    pub(crate) fn volatile_sees_atomics(&self) -> bool {
        self.body.volatile_sees_atomics() || self.info().has_coherent_caches()
    }

    /// Runs the kernels of the rest of this job with another body than the device's own: to
    /// compare them, or to exercise one where it is slow.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the device does not support it.
    pub fn use_body(&mut self, body: KernelBody) -> Result<()> {
        if !self.info().supports(body) {
            return Err(Error::Invalid(format!(
                "device '{}' does not support the kernel body '{body}'",
                self.info().label()
            )));
        }
        self.body = body;
        Ok(())
    }

    /// Lowers the budget for the rest of this job to `bytes` in use on the device.
    pub fn limit_memory(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// A buffer of `len` elements with unspecified contents; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] over the budget or the device's largest allocation,
    /// [`Error::OpenCl`] if the driver refuses.
    pub fn allocate<T: OclPrm>(&mut self, what: &'static str, len: usize) -> Result<Buffer<T>> {
        self.allocate_for((what, Access::Streamed), len)
    }

    /// The same for a buffer that lookups read, at random places: on CPUs, in large pages.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_table<T: OclPrm>(
        &mut self,
        what: &'static str,
        len: usize,
    ) -> Result<Buffer<T>> {
        self.allocate_for((what, Access::Random), len)
    }

    fn allocate_for<T: OclPrm>(
        &mut self,
        what: (&'static str, Access),
        len: usize,
    ) -> Result<Buffer<T>> {
        let bytes = (len.max(1) as u64).saturating_mul(size_of::<T>() as u64);
        let opened = Arc::clone(&self.opened);
        let limit = self.limit;
        let block = |queue: &mut Self| opened.block(what, bytes, limit, Some(&mut queue.in_use));
        let block = match block(self) {
            // Commands alone hold some memory: it is free once they are done.
            Err(_) if !self.is_lost() && self.in_use.has_free() => {
                self.wait("memory")?;
                block(self)?
            }
            found => found?,
        };
        self.buffer(block, len)
    }

    /// Waits for the commands so far, and looks how they ended.
    fn wait(&mut self, what: &'static str) -> Result<()> {
        call::finish(&self.commands, what).map_err(|e| self.fail("clFinish", &e))?;
        self.check()
    }

    /// Memory as a buffer of later commands.
    fn buffer<T>(&mut self, block: Arc<Block>, len: usize) -> Result<Buffer<T>> {
        let unmapped = block
            .memory()
            .to_device(&self.commands)
            .map_err(|e| self.fail("clEnqueueUnmapMemObject", &e))?;
        if let Some(event) = unmapped {
            self.in_use.hold(&block);
            self.events.push((Stage::Upload, event));
        }
        Ok(Buffer {
            block,
            len,
            _element: std::marker::PhantomData,
        })
    }

    /// Host memory for `len` elements, with what an earlier use left in them.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); page-locked memory does not count for the budget.
    pub fn staging<T: OclPrm>(&mut self, what: &'static str, len: usize) -> Result<Staging<T>> {
        self.opened.staging(what, len)
    }

    /// The staged elements as a buffer: copied while the job goes on, or as they stand where
    /// the device is the host's CPU.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn send<T: OclPrm>(
        &mut self,
        what: &'static str,
        staging: Staging<T>,
    ) -> Result<Buffer<T>> {
        let len = staging.len;
        if self.opened.on_host() {
            if !self.opened.owns(&staging.block) {
                return Err(self.opened.foreign());
            }
            self.cost.uploaded += (len * size_of::<T>()) as u64;
            return self.buffer(staging.block, len);
        }
        let buffer = self.allocate(what, len)?;
        self.send_to(&buffer, 0, staging)?;
        Ok(buffer)
    }

    /// Copies the staged elements to the buffer's from `offset`, while the job goes on.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn send_to<T: OclPrm>(
        &mut self,
        buffer: &Buffer<T>,
        offset: usize,
        staging: Staging<T>,
    ) -> Result<()> {
        within(buffer, offset, staging.len)?;
        if staging.len == 0 {
            return Ok(());
        }
        let mem = self.use_buffer(buffer)?;
        // Held before the call: the staging memory's, too, is no one else's before the copy is
        // done.
        self.in_use.hold(&staging.block);
        // SAFETY: the range was checked above; `in_use` keeps the elements until the copy is done.
        let event =
            unsafe { call::write(&self.commands, mem, (false, "staged"), offset, &staging[..]) }
                .map_err(|e| self.fail("clEnqueueWriteBuffer", &e))?;
        self.cost.uploaded += size_of_val(&staging[..]) as u64;
        self.events.push((Stage::Upload, event));
        Ok(())
    }

    /// The first `len` elements of the buffer on the host, after all commands before: copied,
    /// or as they stand where the device is the host's CPU.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are fewer, [`Error::OpenCl`] if the driver fails.
    pub fn fetch<T: OclPrm>(&mut self, buffer: Buffer<T>, len: usize) -> Result<Staging<T>> {
        within(&buffer, 0, len)?;
        if self.opened.on_host() {
            self.cost.downloaded += (len * size_of::<T>()) as u64;
            let (staging, mapped) = self.opened.mapped(buffer.block, len, &self.commands)?;
            if let Some(event) = mapped {
                self.events.push((Stage::Download, event));
                self.check()?;
            }
            return Ok(staging);
        }
        let mut staging = self.staging("downloads", len)?;
        self.download(&buffer, 0, &mut staging)?;
        Ok(staging)
    }

    /// As [`fetch`](Self::fetch), without waiting for a copy. What the copy needs goes to later commands of
    /// the job at once.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn begin_fetch<T: OclPrm>(
        &mut self,
        buffer: Buffer<T>,
        len: usize,
    ) -> Result<Fetching<T>> {
        if self.opened.on_host() {
            return Ok(Fetching(self.fetch(buffer, len)?));
        }
        let mut staging = self.staging("downloads", len)?;
        self.in_use.hold(&staging.block);
        // SAFETY: nobody sees the elements before `end_fetches` has waited; dropped earlier,
        // `in_use` holds them until the copy is done, as it does the buffer's.
        unsafe { self.read_to(&buffer, (false, 0), &mut staging)? };
        Ok(Fetching(staging))
    }

    /// What was begun to be fetched in this job, once all copies are done.
    ///
    /// # Errors
    /// [`Error::OpenCl`] if the driver fails.
    pub(crate) fn end_fetches<T: OclPrm>(
        &mut self,
        begun: Vec<Fetching<T>>,
    ) -> Result<Vec<Staging<T>>> {
        if !self.opened.on_host() && !begun.is_empty() {
            self.wait("downloads")?;
        }
        Ok(begun.into_iter().map(|fetching| fetching.0).collect())
    }

    /// A buffer with the contents of `data`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate) and [`upload`](Self::upload).
    pub fn buffer_from<T: OclPrm>(&mut self, what: &'static str, data: &[T]) -> Result<Buffer<T>> {
        let buffer = self.allocate(what, data.len())?;
        self.upload(&buffer, 0, data)?;
        Ok(buffer)
    }

    /// Copies `data` to the buffer's elements from `offset`.
    ///
    /// # Errors
    /// [`Error::Invalid`] outside the buffer, [`Error::OpenCl`] if the driver fails.
    pub fn upload<T: OclPrm>(
        &mut self,
        buffer: &Buffer<T>,
        offset: usize,
        data: &[T],
    ) -> Result<()> {
        within(buffer, offset, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        let mem = self.use_buffer(buffer)?;
        // SAFETY: blocking, so `data` outlives the copy; the range was checked above.
        let event = unsafe { call::write(&self.commands, mem, (true, "direct"), offset, data) }
            .map_err(|e| self.fail("clEnqueueWriteBuffer", &e))?;
        self.cost.uploaded += size_of_val(data) as u64;
        self.events.push((Stage::Upload, event));
        Ok(())
    }

    /// Copies the buffer's elements from `offset` into `out`, waiting for all commands before.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn download<T: OclPrm>(
        &mut self,
        buffer: &Buffer<T>,
        offset: usize,
        out: &mut [T],
    ) -> Result<()> {
        // SAFETY: blocking, so `out` outlives the copy.
        unsafe { self.read_to(buffer, (true, offset), out) }
    }

    /// # Safety
    /// Unless it is `blocking`, `out` must not be touched or released before the command is done.
    unsafe fn read_to<T: OclPrm>(
        &mut self,
        buffer: &Buffer<T>,
        (blocking, offset): (bool, usize),
        out: &mut [T],
    ) -> Result<()> {
        within(buffer, offset, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let mem = self.use_buffer(buffer)?;
        // SAFETY: the range was checked above; the rest is the caller's promise.
        let event = unsafe { call::read(&self.commands, mem, (blocking, offset), out) }
            .map_err(|e| self.fail("clEnqueueReadBuffer", &e))?;
        self.cost.downloaded += size_of_val(out) as u64;
        self.events.push((Stage::Download, event));
        match blocking {
            true => self.check(),
            false => Ok(()),
        }
    }

    /// The first `len` elements of the buffer.
    ///
    /// # Errors
    /// As [`download`](Self::download).
    pub fn read<T: OclPrm>(&mut self, buffer: &Buffer<T>, len: usize) -> Result<Vec<T>> {
        let mut out = vec![T::default(); len];
        self.download(buffer, 0, &mut out)?;
        Ok(out)
    }

    /// The count of `what` that kernels left in the word at `at`.
    ///
    /// # Errors
    /// [`Error::WrongAnswer`] if it is more than `most`, those of [`download`](Self::download).
    pub(crate) fn count(
        &mut self,
        (buffer, at): (&Buffer<u32>, usize),
        (what, most): (&str, usize),
    ) -> Result<usize> {
        let mut count = [0u32];
        self.download(buffer, at, &mut count)?;
        match count[0] as usize {
            count if count <= most => Ok(count),
            count => Err(self.wrong_answer(format!("{count} {what} of {most}"))),
        }
    }

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// [`Error::OpenCl`] if the driver fails.
    pub fn fill<T: OclPrm>(&mut self, buffer: &Buffer<T>, value: T) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let mem = self.use_buffer(buffer)?;
        let event = call::fill(&self.commands, mem, value, buffer.len)
            .map_err(|e| self.fail("clEnqueueFillBuffer", &e))?;
        self.events.push((Stage::Kernel("fill"), event));
        Ok(())
    }

    /// Copies the elements of `from` to the start of `to`, on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `to` is shorter, [`Error::OpenCl`] if the driver fails.
    pub fn copy<T: OclPrm>(&mut self, from: &Buffer<T>, to: &Buffer<T>) -> Result<()> {
        within(to, 0, from.len)?;
        if from.is_empty() {
            return Ok(());
        }
        let (source, target) = (self.use_buffer(from)?, self.use_buffer(to)?);
        let event = call::copy::<T>(&self.commands, source, target, from.len)
            .map_err(|e| self.fail("clEnqueueCopyBuffer", &e))?;
        self.events.push((Stage::Kernel("copy"), event));
        Ok(())
    }

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
            self.set_arg((call, kernel), index as u32, *arg)?;
        }
        let global = items.div_ceil(group) * group;
        // SAFETY: the arguments were set just above with live buffers, which `in_use` keeps
        // until the command has run; kernels check their index against their lengths.
        let event = unsafe { call::enqueue(&self.commands, (call, kernel), global, group) }
            .map_err(|e| self.fail(format!("kernel {kernel}"), &e))?;
        self.cost.launches += 1;
        self.events.push((Stage::Kernel(kernel), event));
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
        let created = call::create_kernel(&program, kernel)
            .map_err(|e| self.fail(format!("clCreateKernel {kernel}"), &e))?;
        self.check_sub_groups(text, (&created, kernel), group)?;
        self.kernels.insert(id, created);
        Ok(())
    }

    /// Sees that the tiles of a kernel fit its sub-groups. What a device says of all kernels may
    /// not hold for this one; but Intel's devices list the sizes that there are.
    fn check_sub_groups(
        &self,
        text: &ProgramText,
        (kernel, name): (&Kernel, &'static str),
        group: usize,
    ) -> Result<()> {
        let lanes = text.sub_group_lanes();
        if lanes == 0 {
            return Ok(());
        }
        let info = self.info();
        let width = match info.sub_group_shuffle() {
            Some(SubGroupShuffle::Khronos) => {
                call::sub_group_size(kernel, name, info.device_id, group)
                    .map_err(|e| self.fail(format!("clGetKernelSubGroupInfo {name}"), &e))?
            }
            Some(SubGroupShuffle::Intel) | None => info.sub_group_width,
        };
        match width > 0 && width.is_multiple_of(lanes) {
            true => Ok(()),
            false => Err(Error::ProgramBuild {
                program: text.name().to_owned(),
                device: info.label(),
                log: format!(
                    "kernel {name} has sub-groups of {width} work-items, which tiles of {lanes} do not fit"
                ),
            }),
        }
    }

    /// Adds the device clocks of the job's events, which have ended well, to its cost.
    fn settle(&mut self) {
        for (stage, event) in self.events.drain(..) {
            let took = elapsed(&event);
            match stage {
                Stage::Upload => self.cost.upload += took,
                Stage::Kernel(name) => {
                    log::trace!("kernel {name}: {took:?}");
                    self.cost.kernel += took;
                }
                Stage::Download => self.cost.download += took,
            }
        }
    }

    fn set_arg(
        &self,
        (kernel, name): (&Kernel, &'static str),
        index: u32,
        arg: Arg<'_>,
    ) -> Result<()> {
        let value = match &arg {
            Arg::Words(buffer) => ArgVal::mem(buffer.block.memory().mem()),
            Arg::Longs(buffer) => ArgVal::mem(buffer.block.memory().mem()),
            Arg::U32(value) => ArgVal::scalar(value),
            Arg::Null => ArgVal::mem_null(),
        };
        call::set_arg(kernel, name, index, value)
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

    /// The memory of a buffer for a command.
    fn use_buffer<'a, T>(&mut self, buffer: &'a Buffer<T>) -> Result<&'a Mem> {
        self.use_block(&buffer.block)?;
        Ok(buffer.block.memory().mem())
    }

    /// Holds memory, which must be of this queue's context, until the job has finished.
    fn use_block(&mut self, block: &Arc<Block>) -> Result<()> {
        if !self.opened.owns(block) {
            return Err(self.opened.foreign());
        }
        self.in_use.hold(block);
        Ok(())
    }

    /// The error for an answer that cannot be right.
    pub(crate) fn wrong_answer(&self, what: String) -> Error {
        Error::WrongAnswer {
            device: self.info().label(),
            what,
        }
    }

    /// Whether the device must be opened anew.
    pub(super) fn is_lost(&self) -> bool {
        self.opened.is_lost()
    }

    fn fail(&self, call: impl Into<String>, failed: &Failed) -> Error {
        self.opened.fail(call, failed)
    }
}

fn within<T>(buffer: &Buffer<T>, offset: usize, len: usize) -> Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= buffer.len => Ok(()),
        _ => Err(Error::Invalid(format!(
            "elements {offset}..+{len} are outside a device buffer of {}",
            buffer.len
        ))),
    }
}

/// Device time of a finished command; zero where the driver does not say.
fn elapsed(event: &Event) -> Duration {
    let clock = |when| call::event_time(event, when);
    match (clock(ProfilingInfo::Start), clock(ProfilingInfo::End)) {
        (Ok(start), Ok(end)) => Duration::from_nanos(end.saturating_sub(start)),
        _ => Duration::ZERO,
    }
}
