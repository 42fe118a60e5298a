//! Copies between the host and the device, and on the device.
//!
//! ```text
//!            waits for its copy          goes on meanwhile
//!  upload    upload, buffer_from         send, send_to        (Staging)
//!  download  download, read, fetch       begin_fetch … end_fetches
//! ```
//!
//! Each checks its range first, as a driver may not. Memory is held until the copies that use it
//! have ended, so staging memory may be dropped at once.

use ocl::core::OclPrm;

use crate::error::Result;

use super::super::buffer::{Buffer, within};
use super::super::opencl;
use super::super::staging::{Staging, StagingMemory};
use super::super::watchdog;
use super::{Queue, Stage};

/// Elements on their way to the host.
#[derive(Debug)]
pub struct Fetching<T: OclPrm>(Staging<T>);

impl Queue {
    /// Turns the staged elements into a buffer. A GPU gets a copy while the job goes on; a CPU
    /// device gets the memory itself.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn send<T: OclPrm>(
        &mut self,
        what: &'static str,
        staging: Staging<T>,
    ) -> Result<Buffer<T>> {
        let len = staging.len;
        if let StagingMemory::Mapped(block) = staging.memory {
            if !self.opened.owns(&block) {
                return Err(self.opened.foreign());
            }
            self.cost.uploaded += (len * size_of::<T>()) as u64;
            return self.buffer(block, len);
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
        // Held before the call, so that nobody gets the staging memory before the copy is done.
        self.in_use.hold_staged(&staging.memory);
        // SAFETY: the range was checked above; `in_use` keeps the elements until the copy is done.
        let event =
            unsafe { opencl::write(&self.commands, mem, false, "staged", offset, &staging[..]) }
                .map_err(|e| self.fail("clEnqueueWriteBuffer", &e))?;
        self.cost.uploaded += size_of_val(&staging[..]) as u64;
        self.note(Stage::Upload, event);
        Ok(())
    }

    /// Brings the first `len` elements of the buffer to the host, after all earlier commands. A GPU
    /// copies them; a CPU device gives the memory itself.
    ///
    /// # Errors
    /// [`Invalid`](crate::error::Error::Invalid) if there are fewer,
    /// [`OpenCl`](crate::error::Error::OpenCl) if the driver fails.
    pub fn fetch<T: OclPrm>(&mut self, buffer: Buffer<T>, len: usize) -> Result<Staging<T>> {
        within(&buffer, 0, len)?;
        if self.opened.on_host() {
            self.cost.downloaded += (len * size_of::<T>()) as u64;
            watchdog::expect(self.in_use.bytes());
            let (staging, mapped) = self.opened.mapped(buffer.block, len, &self.commands)?;
            if let Some(event) = mapped {
                self.note(Stage::Download, event);
                self.check()?;
            }
            return Ok(staging);
        }
        let mut staging = self.staging("downloads", len)?;
        // A call that fails may have begun the copy.
        self.in_use.hold_staged(&staging.memory);
        self.download(&buffer, 0, &mut staging)?;
        Ok(staging)
    }

    /// Begins a [`fetch`](Self::fetch) and does not wait for the copy. Later commands of the job
    /// may have the buffer's memory at once.
    ///
    /// # Errors
    /// Those of [`fetch`](Self::fetch).
    pub fn begin_fetch<T: OclPrm>(&mut self, buffer: Buffer<T>, len: usize) -> Result<Fetching<T>> {
        if self.opened.on_host() {
            return Ok(Fetching(self.fetch(buffer, len)?));
        }
        let mut staging = self.staging("downloads", len)?;
        self.in_use.hold_staged(&staging.memory);
        // SAFETY: nobody sees the elements before `end_fetches` has waited; dropped earlier,
        // `in_use` holds them until the copy is done, as it does the buffer's.
        unsafe { self.read_to(&buffer, false, 0, &mut staging)? };
        Ok(Fetching(staging))
    }

    /// Waits for the fetches that this job has begun.
    ///
    /// # Errors
    /// [`OpenCl`](crate::error::Error::OpenCl) if the driver fails.
    pub fn end_fetches<T: OclPrm>(&mut self, begun: Vec<Fetching<T>>) -> Result<Vec<Staging<T>>> {
        if !self.opened.on_host() && !begun.is_empty() {
            self.wait("downloads")?;
        }
        Ok(begun.into_iter().map(|fetching| fetching.0).collect())
    }

    /// Allocates a buffer with the contents of `data`.
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
    /// [`Invalid`](crate::error::Error::Invalid) outside of the buffer,
    /// [`OpenCl`](crate::error::Error::OpenCl) if the driver fails.
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
        watchdog::expect(self.in_use.bytes());
        // SAFETY: blocking, so `data` outlives the copy; the range was checked above.
        let event = unsafe { opencl::write(&self.commands, mem, true, "direct", offset, data) }
            .map_err(|e| self.fail("clEnqueueWriteBuffer", &e))?;
        self.cost.uploaded += size_of_val(data) as u64;
        self.note(Stage::Upload, event);
        Ok(())
    }

    /// Copies the buffer's elements from `offset` into `out`, after all earlier commands.
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
        unsafe { self.read_to(buffer, true, offset, out) }
    }

    /// Copies the buffer's elements from `offset` into `out`; waits for that if `blocking`.
    ///
    /// # Safety
    /// Unless it is `blocking`, `out` must not be touched or released before the command is done.
    unsafe fn read_to<T: OclPrm>(
        &mut self,
        buffer: &Buffer<T>,
        blocking: bool,
        offset: usize,
        out: &mut [T],
    ) -> Result<()> {
        within(buffer, offset, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let mem = self.use_buffer(buffer)?;
        watchdog::expect(self.in_use.bytes());
        // SAFETY: the range was checked above; the rest is the caller's promise.
        let event = unsafe { opencl::read(&self.commands, mem, blocking, offset, out) }
            .map_err(|e| self.fail("clEnqueueReadBuffer", &e))?;
        self.cost.downloaded += size_of_val(out) as u64;
        self.note(Stage::Download, event);
        if blocking {
            self.check()?;
        }
        Ok(())
    }

    /// Reads the first `len` elements of the buffer.
    ///
    /// # Errors
    /// As [`download`](Self::download).
    pub fn read<T: OclPrm>(&mut self, buffer: &Buffer<T>, len: usize) -> Result<Vec<T>> {
        let mut out = vec![T::default(); len];
        self.download(buffer, 0, &mut out)?;
        Ok(out)
    }

    /// Reads the count of `what` that kernels left in the word at `at`.
    ///
    /// # Errors
    /// [`WrongAnswer`](crate::error::Error::WrongAnswer) if it is more than `most`; those of
    /// [`download`](Self::download).
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
    /// [`OpenCl`](crate::error::Error::OpenCl) if the driver fails.
    pub fn fill<T: OclPrm>(&mut self, buffer: &Buffer<T>, value: T) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let mem = self.use_buffer(buffer)?;
        let event = opencl::fill(&self.commands, mem, value, buffer.len)
            .map_err(|e| self.fail("clEnqueueFillBuffer", &e))?;
        self.note(Stage::Kernel("fill"), event);
        Ok(())
    }

    /// Copies the elements of `from` to the start of `to`, on the device.
    ///
    /// # Errors
    /// [`Invalid`](crate::error::Error::Invalid) if `to` is shorter,
    /// [`OpenCl`](crate::error::Error::OpenCl) if the driver fails.
    pub fn copy<T: OclPrm>(&mut self, from: &Buffer<T>, to: &Buffer<T>) -> Result<()> {
        within(to, 0, from.len)?;
        if from.is_empty() {
            return Ok(());
        }
        let (source, target) = (self.use_buffer(from)?, self.use_buffer(to)?);
        let event = opencl::copy::<T>(&self.commands, source, target, from.len)
            .map_err(|e| self.fail("clEnqueueCopyBuffer", &e))?;
        self.note(Stage::Kernel("copy"), event);
        Ok(())
    }
}
