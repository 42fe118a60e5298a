//! A memory object that belongs to the host or to the device, by turns.
//!
//! ```text
//!   ┌▶ the host's (mapped) ──to_device: unmap, in the queue of the commands that come next──┐
//!   └──to_host: map, waits for that queue────────── the device's (not mapped) ◀─────────────┘
//! ```
//!
//! Memory that the host is done with stays mapped. The next host use makes no call. The next
//! kernel's queue unmaps it. So no command depends on an unmap in another queue. OpenCL does not
//! order queues, and some runtimes write a copy of the host's back when the unmap runs (Mesa's
//! rusticl). Unmapping at once would need a wait.
//!
//! A driver may take its time for each of these calls, and for releasing the memory, or hang in it.
//! So they are made on threads that the watchdog looks after (`pool`, `memory_threads`).

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ocl::core::{CommandQueue, Event, Mem, MemMap};

use super::host_pages::HostPages;
use super::opencl::{self, Called};
use super::watchdog;

/// A memory object, and its address on the host while it is the host's.
#[derive(Debug)]
pub(super) struct Memory {
    /// Taken out in `drop` only.
    mem: Option<Mem>,
    bytes: u64,
    /// While it is the host's.
    map: Mutex<Option<MemMap<u8>>>,
    /// The queue that unmaps it before it is released, and runs no other command of it.
    host: Arc<CommandQueue>,
    /// The pages that it lies in, if they are not the driver's.
    pages: Option<HostPages>,
}

impl Memory {
    /// Wraps new memory of so many `bytes`, which is the device's.
    pub(super) fn new(mem: Mem, bytes: u64, host: &Arc<CommandQueue>) -> Self {
        Self {
            mem: Some(mem),
            bytes,
            map: Mutex::default(),
            host: Arc::clone(host),
            pages: None,
        }
    }

    /// Wraps new memory that lies in `pages`.
    pub(super) fn in_pages(mem: Mem, pages: HostPages, host: &Arc<CommandQueue>) -> Self {
        let mut memory = Self::new(mem, pages.bytes() as u64, host);
        memory.pages = Some(pages);
        memory
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the memory object.
    pub(super) fn mem(&self) -> &Mem {
        match &self.mem {
            Some(mem) => mem,
            None => unreachable!("it has its memory object until it is dropped"),
        }
    }

    /// Returns whether it is the host's.
    pub(super) fn is_on_host(&self) -> bool {
        self.map().is_some()
    }

    /// Returns its address on the host, if it is the host's.
    pub(super) fn host_address(&self) -> Option<NonNull<u8>> {
        let held = self.map();
        NonNull::new(held.as_ref()?.as_ptr().cast_mut())
    }

    fn map(&self) -> MutexGuard<'_, Option<MemMap<u8>>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives all `bytes` to the host, after earlier commands of `commands`. Returns their address,
    /// and the event of the mapping if one was needed.
    pub(super) fn to_host(
        &self,
        bytes: usize,
        commands: &CommandQueue,
    ) -> Called<(NonNull<u8>, Option<Event>)> {
        let mut held = self.map();
        let mut event = None;
        let map = match held.take() {
            Some(map) => map,
            None => {
                watchdog::expect(self.bytes);
                // SAFETY: callers map what the buffer has, and commands use it only after
                // `to_device`.
                let (map, mapped) = unsafe { opencl::map(commands, self.mem(), bytes, "") }?;
                event = Some(mapped);
                map
            }
        };
        let address = NonNull::new(map.as_ptr().cast_mut());
        *held = Some(map);
        match address {
            Some(address) => Ok((address, event)),
            None => unreachable!("`ocl` makes no map of a null pointer"),
        }
    }

    /// Gives the memory to later commands of `commands`; the host must be done with it.
    ///
    /// # Errors
    /// The driver's: then it is still the host's.
    pub(super) fn to_device(&self, commands: &CommandQueue) -> Called<Option<Event>> {
        let mut held = self.map();
        let Some(map) = held.as_ref() else {
            return Ok(None);
        };
        let event = opencl::unmap(commands, self.mem(), map, "to send")?;
        *held = None;
        Ok(Some(event))
    }

    /// Takes memory that is to be released away from the host. If its pages are this process's own,
    /// it waits until no command uses them.
    fn give_up(&self, mem: &Mem, map: Option<&MemMap<u8>>, waits: bool) -> Called<()> {
        watchdog::expect(self.bytes);
        let unmap = |map| opencl::unmap(&self.host, mem, map, "to release");
        let unmapped = map.map(unmap).transpose()?;
        if !waits {
            return opencl::flush(&self.host);
        }
        watchdog::expect(self.bytes);
        opencl::finish(&self.host, "release")?;
        unmapped.map_or(Ok(()), |event| opencl::event_status(&event, "unmap"))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let map = self.map().take();
        let Some(mem) = self.mem.take() else { return };
        let pages = self.pages.take();
        let given_up = match (&map, &pages) {
            (None, None) => Ok(()),
            _ => self.give_up(&mem, map.as_ref(), pages.is_some()),
        };
        if let Err(error) = &given_up {
            log::debug!("memory was released while it was mapped: {error}");
        }
        watchdog::expect(self.bytes);
        let released = opencl::release(mem);
        if let Err(error) = &released {
            log::debug!("memory was not released: {error}");
        }
        if let Some(pages) = pages
            && (given_up.is_err() || released.is_err())
        {
            pages.leave_to_driver();
        }
    }
}
