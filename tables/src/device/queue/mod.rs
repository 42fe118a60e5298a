//! The operations of a job on its device: allocate here, copy (`transfer`), run kernels (`launch`).
//!
//! ```text
//!  job ─▶ allocate, send, launch, fetch, … ─▶ in-order queue ─▶ events ─▶ check ─▶ Cost
//! ```
//!
//! The queue is in-order, so a job reads as straight-line code; only downloads wait. Every command
//! leaves an event. `check` asks the events how their commands ended, before the job uses what the
//! host was given. When the job ends, device clocks are added up into its [`Cost`], and `timeline`
//! shows them to whoever traces.
//!
//! The queue holds all memory that its commands use until they have finished (`pool`). Sizes of
//! zero are legal here: OpenCL refuses them, and `ocl` panics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ocl::core::{CommandQueue, Event, Kernel, Mem, OclPrm, ProfilingInfo};

use crate::error::{Error, Result};

use super::buffer::Buffer;
use super::context::{Access, Opened};
use super::in_use::InUse;
use super::info::DeviceInfo;
use super::job::{Answer, Cost};
use super::kind::KernelBody;
use super::opencl;
use super::pool::Block;
use super::staging::Staging;
use super::status::Failed;
use super::watchdog;

use timeline::{Command, JobClock, Stage};

pub(super) mod launch;
mod timeline;
mod transfer;

/// An in-order queue of an opened device; lives on its queue thread.
pub struct Queue {
    opened: Arc<Opened>,
    limit: u64,
    body: KernelBody,
    commands: CommandQueue,
    kernels: HashMap<(String, &'static str), Kernel>,
    /// The memory of commands that are not known to be done.
    in_use: InUse,
    issued: Vec<Command>,
    /// The number of commands that are known to have ended well.
    checked: usize,
    clock: JobClock,
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
            issued: Vec::new(),
            checked: 0,
            clock: JobClock::default(),
            cost: Cost::default(),
            opened,
        })
    }

    /// Runs one job: resets costs and limits, runs it, waits for its commands and adds up costs.
    pub(super) fn job<T>(
        &mut self,
        job: impl FnOnce(&mut Queue) -> Result<T>,
    ) -> Result<Answer<T>> {
        let _work = tracing::trace_span!("job").entered();
        self.clock = JobClock::begin();
        self.limit = u64::MAX;
        self.body = self.opened.info.body();
        self.cost = Cost::default();
        self.issued.clear();
        self.checked = 0;
        let value = job(self);
        let finished = self.finish();
        let value = match (value, finished) {
            // The device's first failure is returned: it may have caused what follows.
            (Err(error), _) if error.is_of_device() => return Err(error),
            (_, Err(error)) => return Err(error),
            // Another thread's kernel failed meanwhile, and may have overwritten this one's memory.
            (Ok(_), Ok(())) if self.is_lost() => return Err(self.opened.foreign()),
            (value, Ok(())) => value?,
        };
        self.record_cost();
        Ok(Answer {
            value,
            cost: self.cost,
        })
    }

    /// Waits for all commands and checks how they ended. This includes the commands of a failed
    /// job, which may still use its buffers.
    pub(super) fn finish(&mut self) -> Result<()> {
        watchdog::expect(self.in_use.bytes());
        if let Err(failed) = opencl::finish(&self.commands, "") {
            let error = self.fail("clFinish", &failed);
            self.opened.lose(&error);
            // The commands may still run. A driver knows which of its buffers they use, but not
            // whose host memory.
            self.in_use.strand_on_host();
            return Err(error);
        }
        let checked = self.check();
        if checked.is_err() {
            // The pools of a lost context keep nothing.
            self.in_use.clear();
        }
        checked
    }

    /// Checks how the commands so far ended, which are all done, and frees their memory.
    fn check(&mut self) -> Result<()> {
        for command in &self.issued[self.checked..] {
            self.opened.check(command.stage.name(), &command.event)?;
        }
        self.checked = self.issued.len();
        self.in_use.clear();
        Ok(())
    }

    /// Returns the device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.opened.info
    }

    /// Returns the kernels' body: the device's own, or the one that the job asked for.
    pub fn body(&self) -> KernelBody {
        self.body
    }

    /// Returns whether a volatile load sees what atomics wrote, which costs less than an atomic
    /// load.
    pub(crate) fn volatile_sees_atomics(&self) -> bool {
        self.body.volatile_sees_atomics() || self.info().has_coherent_caches()
    }

    /// Sets the kernels' body for the rest of this job, to compare bodies or to test one where it
    /// is slow.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the device does not support it.
    pub fn use_body(&mut self, body: KernelBody) -> Result<()> {
        if !self.info().supports(body) {
            return Err(Error::Invalid(format!(
                "OpenCL device '{}' does not support the kernel body '{body}'",
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

    /// Allocates a buffer of `len` elements with unspecified contents; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] over the budget or the device's largest allocation,
    /// [`Error::OpenCl`] if the driver refuses.
    pub fn allocate<T: OclPrm>(&mut self, what: &'static str, len: usize) -> Result<Buffer<T>> {
        self.allocate_for(what, Access::Streamed, len)
    }

    /// Allocates a buffer that lookups read at random places: on CPUs, in large pages.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_table<T: OclPrm>(
        &mut self,
        what: &'static str,
        len: usize,
    ) -> Result<Buffer<T>> {
        self.allocate_for(what, Access::Random, len)
    }

    fn allocate_for<T: OclPrm>(
        &mut self,
        what: &'static str,
        access: Access,
        len: usize,
    ) -> Result<Buffer<T>> {
        let bytes = (len.max(1) as u64).saturating_mul(size_of::<T>() as u64);
        let opened = Arc::clone(&self.opened);
        let limit = self.limit;
        let block =
            |queue: &mut Self| opened.block(what, access, bytes, limit, Some(&mut queue.in_use));
        let block = match block(self) {
            // Some memory is held by commands alone: it is free once they are done.
            Err(_) if !self.is_lost() && self.in_use.has_free() => {
                self.wait("memory")?;
                block(self)?
            }
            found => found?,
        };
        self.buffer(block, len)
    }

    /// Waits for the commands so far and checks how they ended.
    fn wait(&mut self, what: &'static str) -> Result<()> {
        watchdog::expect(self.in_use.bytes());
        opencl::finish(&self.commands, what).map_err(|e| self.fail("clFinish", &e))?;
        self.check()
    }

    /// Makes `block` a buffer of later commands.
    fn buffer<T>(&mut self, block: Arc<Block>, len: usize) -> Result<Buffer<T>> {
        let unmapped = block
            .memory()
            .to_device(&self.commands)
            .map_err(|e| self.fail("clEnqueueUnmapMemObject", &e))?;
        if let Some(event) = unmapped {
            self.in_use.hold(&block);
            self.note(Stage::Upload, event);
        }
        Ok(Buffer {
            block,
            len,
            _element: std::marker::PhantomData,
        })
    }

    /// Takes host memory for `len` elements, with unspecified contents.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); page-locked memory does not count for the budget.
    pub fn staging<T: OclPrm>(&mut self, what: &'static str, len: usize) -> Result<Staging<T>> {
        self.opened.staging(what, len)
    }

    /// Notes a command that was issued.
    fn note(&mut self, stage: Stage, event: Event) {
        let seen = self.clock.now();
        self.issued.push(Command { stage, event, seen });
    }

    /// Adds the device times of the job's commands to its cost.
    fn record_cost(&mut self) {
        self.clock.show(&self.issued);
        for command in self.issued.drain(..) {
            let took = elapsed(&command.event);
            match command.stage {
                Stage::Upload => self.cost.upload += took,
                Stage::Kernel(name) => {
                    log::trace!("kernel {name}: {took:?}");
                    self.cost.kernel += took;
                }
                Stage::Download => self.cost.download += took,
            }
        }
    }

    /// Holds and returns the memory of a buffer for a command.
    fn use_buffer<'a, T>(&mut self, buffer: &'a Buffer<T>) -> Result<&'a Mem> {
        self.use_block(&buffer.block)?;
        Ok(buffer.block.memory().mem())
    }

    /// Holds memory until the job has finished; it must be of this queue's context.
    fn use_block(&mut self, block: &Arc<Block>) -> Result<()> {
        if !self.opened.owns(block) {
            return Err(self.opened.foreign());
        }
        self.in_use.hold(block);
        Ok(())
    }

    /// Makes the error for an answer that cannot be right.
    pub fn wrong_answer(&self, what: String) -> Error {
        Error::WrongAnswer {
            device: self.info().label(),
            what,
        }
    }

    /// Releases the queue, unless its driver hangs: that call might, too.
    pub(super) fn release(self) {
        if self.opened.is_abandoned() {
            std::mem::forget(self);
        }
    }

    /// Returns whether the device must be opened again.
    pub(super) fn is_lost(&self) -> bool {
        self.opened.is_lost()
    }

    fn fail(&self, call: impl Into<String>, failed: &Failed) -> Error {
        self.opened.fail(call, failed)
    }
}

/// Returns the device time of a finished command; zero where the driver does not say.
fn elapsed(event: &Event) -> Duration {
    let clock = |when| opencl::event_time(event, when);
    match (clock(ProfilingInfo::Start), clock(ProfilingInfo::End)) {
        (Ok(start), Ok(end)) => Duration::from_nanos(end.saturating_sub(start)),
        _ => Duration::ZERO,
    }
}
