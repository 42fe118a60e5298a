//! What a job can do on its device: allocate, copy, fill, launch.
//!
//! The queue is in-order, so a job reads as straight-line code; only downloads wait. Every
//! command leaves an event behind, and when the job ends their device clocks are added up
//! into its [`Cost`]. Sizes of zero are legal here (OpenCL refuses them, `ocl` panics):
//! an empty buffer holds one element, an empty transfer or launch does nothing. Global
//! sizes are padded to the work-group size, so every kernel checks its index.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ocl::core::{
    self as cl, ArgVal, CommandQueue, CommandQueueProperties, Context, ContextProperties, Event,
    Kernel, Mem, MemFlags, OclPrm, ProfilingInfo, Program,
};

use crate::error::{Error, Result};

use super::info::{DeviceInfo, KernelBody};
use super::memory::{Budget, Grant};
use super::owner::{Answer, Cost};
use super::program::{self, ProgramText};
use super::status::opencl;

/// A device buffer of `len` elements; its bytes return to the budget when it is dropped.
#[derive(Debug)]
pub struct Buffer<T> {
    mem: Mem,
    len: usize,
    _grant: Grant,
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

#[derive(Debug, Clone, Copy)]
enum Stage {
    Upload,
    Kernel(&'static str),
    Download,
}

/// The state of one opened device; lives on its owner thread.
pub struct Queue {
    info: Arc<DeviceInfo>,
    budget: Arc<Budget>,
    limit: u64,
    body: KernelBody,
    context: Context,
    commands: CommandQueue,
    programs: HashMap<String, Program>,
    kernels: HashMap<(String, &'static str), Kernel>,
    events: Vec<(Stage, Event)>,
    cost: Cost,
}

impl Queue {
    pub(super) fn open(info: Arc<DeviceInfo>, budget: Arc<Budget>) -> Result<Self> {
        let fail = |call: &str, e: &cl::Error| opencl(call, &info.label(), e);
        let body = info.body();
        let properties = ContextProperties::new().platform(info.platform_id);
        let context = cl::create_context(Some(&properties), &[info.device_id], None, None)
            .map_err(|e| fail("clCreateContext", &e))?;
        let commands = cl::create_command_queue(
            &context,
            info.device_id,
            Some(CommandQueueProperties::PROFILING_ENABLE),
        )
        .map_err(|e| fail("clCreateCommandQueue", &e))?;
        Ok(Self {
            info,
            budget,
            limit: u64::MAX,
            body,
            context,
            commands,
            programs: HashMap::new(),
            kernels: HashMap::new(),
            events: Vec::new(),
            cost: Cost::default(),
        })
    }

    /// Runs one job: fresh costs and limits before, waiting and adding up after.
    pub(super) fn job<T>(
        &mut self,
        job: impl FnOnce(&mut Queue) -> Result<T>,
    ) -> Result<Answer<T>> {
        self.limit = u64::MAX;
        self.body = self.info.body();
        self.cost = Cost::default();
        self.events.clear();
        let value = job(self);
        // Wait in any case: buffers of a failed job may still be in use.
        let finished = cl::finish(&self.commands).map_err(|e| self.fail("clFinish", &e));
        let value = value?;
        finished?;
        self.settle();
        Ok(Answer {
            value,
            cost: self.cost,
        })
    }

    /// The device's description.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// How kernels use the device: its own way, or what the job asked for.
    pub fn body(&self) -> KernelBody {
        self.body
    }

    /// Runs the kernels of the rest of this job with another body than the device's own: to
    /// compare them, or to exercise one where it is slow.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the device does not support it.
    pub fn use_body(&mut self, body: KernelBody) -> Result<()> {
        if !self.info.supports(body) {
            return Err(Error::Invalid(format!(
                "device '{}' does not support the kernel body '{body}'",
                self.info.label()
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
        let elements = len.max(1);
        let bytes = (elements as u64).saturating_mul(size_of::<T>() as u64);
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
        let limit = self.limit.min(self.budget.limit());
        let grant = self
            .budget
            .take(bytes, limit)
            .map_err(|used| refused(limit, used))?;
        // SAFETY: no host pointer is handed over (`data` is None), so the buffer aliases nothing.
        let mem = unsafe {
            cl::create_buffer::<_, T>(&self.context, MemFlags::READ_WRITE, elements, None)
        }
        .map_err(|e| self.fail(format!("clCreateBuffer of {bytes} bytes for {what}"), &e))?;
        Ok(Buffer {
            mem,
            len,
            _grant: grant,
            _element: std::marker::PhantomData,
        })
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
        let mut event = Event::null();
        // SAFETY: blocking, so `data` outlives the copy; the range was checked above.
        unsafe {
            cl::enqueue_write_buffer(
                &self.commands,
                &buffer.mem,
                true,
                offset,
                data,
                None::<()>,
                Some(&mut event),
            )
        }
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
        within(buffer, offset, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let mut event = Event::null();
        // SAFETY: blocking, so `out` outlives the copy; the range was checked above.
        unsafe {
            cl::enqueue_read_buffer(
                &self.commands,
                &buffer.mem,
                true,
                offset,
                out,
                None::<()>,
                Some(&mut event),
            )
        }
        .map_err(|e| self.fail("clEnqueueReadBuffer", &e))?;
        self.cost.downloaded += size_of_val(out) as u64;
        self.events.push((Stage::Download, event));
        Ok(())
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

    /// Sets every element to `value`.
    ///
    /// # Errors
    /// [`Error::OpenCl`] if the driver fails.
    pub fn fill<T: OclPrm>(&mut self, buffer: &Buffer<T>, value: T) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let mut event = Event::null();
        cl::enqueue_fill_buffer(
            &self.commands,
            &buffer.mem,
            value,
            0,
            buffer.len,
            None::<()>,
            Some(&mut event),
            None,
        )
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
        let mut event = Event::null();
        cl::enqueue_copy_buffer::<T, _, _, _>(
            &self.commands,
            &from.mem,
            &to.mem,
            0,
            0,
            from.len,
            None::<()>,
            Some(&mut event),
        )
        .map_err(|e| self.fail("clEnqueueCopyBuffer", &e))?;
        self.events.push((Stage::Kernel("copy"), event));
        Ok(())
    }

    /// Launches `kernel` of `program` over at least `items` work-items in groups of `group`.
    ///
    /// # Errors
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
        self.prepare(program, kernel)?;
        let call = &self.kernels[&(program.key().to_owned(), kernel)];
        for (index, arg) in args.iter().enumerate() {
            set_arg(call, index as u32, *arg)
                .map_err(|e| self.fail(format!("argument {index} of kernel {kernel}"), &e))?;
        }
        let global = items.div_ceil(group) * group;
        let mut event = Event::null();
        // SAFETY: the arguments were set just above with live buffers, which the driver keeps
        // alive until the command has run; kernels check their index against their lengths.
        unsafe {
            cl::enqueue_kernel(
                &self.commands,
                call,
                1,
                None,
                &[global, 1, 1],
                Some([group, 1, 1]),
                None::<()>,
                Some(&mut event),
            )
        }
        .map_err(|e| self.fail(format!("kernel {kernel}"), &e))?;
        self.cost.launches += 1;
        self.events.push((Stage::Kernel(kernel), event));
        Ok(())
    }

    /// Compiles the program and creates the kernel unless that was done before.
    fn prepare(&mut self, text: &ProgramText, kernel: &'static str) -> Result<()> {
        let id = (text.key().to_owned(), kernel);
        if self.kernels.contains_key(&id) {
            return Ok(());
        }
        if !self.programs.contains_key(text.key()) {
            let program = program::build(&self.context, &self.info, text)?;
            self.programs.insert(text.key().to_owned(), program);
        }
        let created = cl::create_kernel(&self.programs[text.key()], kernel)
            .map_err(|e| self.fail(format!("clCreateKernel {kernel}"), &e))?;
        self.kernels.insert(id, created);
        Ok(())
    }

    /// Adds the device clocks of the job's finished events to its cost.
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

    fn fail(&self, call: impl Into<String>, error: &cl::Error) -> Error {
        opencl(call, &self.info.label(), error)
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

fn set_arg(kernel: &Kernel, index: u32, arg: Arg<'_>) -> cl::Result<()> {
    let value = match &arg {
        Arg::Words(buffer) => ArgVal::mem(&buffer.mem),
        Arg::Longs(buffer) => ArgVal::mem(&buffer.mem),
        Arg::U32(value) => ArgVal::scalar(value),
        Arg::Null => ArgVal::mem_null(),
    };
    cl::set_kernel_arg(kernel, index, value)
}

/// Device time of a finished command; zero where the driver does not say.
fn elapsed(event: &Event) -> Duration {
    let clock = |what| {
        cl::get_event_profiling_info(event, what)
            .ok()
            .and_then(|info| info.time().ok())
    };
    match (clock(ProfilingInfo::Start), clock(ProfilingInfo::End)) {
        (Some(start), Some(end)) => Duration::from_nanos(end.saturating_sub(start)),
        _ => Duration::ZERO,
    }
}
