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

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use ocl::core::{CommandQueue, Event, Mem, MemMap};

use super::opencl::{self, Called};

/// A memory object, and its address on the host while it is the host's.
#[derive(Debug)]
pub(super) struct Memory {
    mem: Mem,
    /// While it is the host's.
    map: Mutex<Option<MemMap<u8>>>,
    /// The queue that unmaps it before it is released, and runs no other command of it.
    host: CommandQueue,
}

impl Memory {
    /// Wraps new memory, which is the device's.
    pub(super) fn new(mem: Mem, host: &CommandQueue) -> Self {
        Self {
            mem,
            map: Mutex::default(),
            host: host.clone(),
        }
    }

    /// Returns the memory object.
    pub(super) fn mem(&self) -> &Mem {
        &self.mem
    }

    /// Gives all `bytes` to the host, after earlier commands of `commands`. Returns their address,
    /// and the event of the mapping if one was needed.
    pub(super) fn to_host(
        &self,
        bytes: usize,
        commands: &CommandQueue,
    ) -> Called<(NonNull<u8>, Option<Event>)> {
        let mut held = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let mut event = None;
        let map = match held.take() {
            Some(map) => map,
            None => {
                // SAFETY: callers map what the buffer has, and commands use it only after
                // `to_device`.
                let (map, mapped) = unsafe { opencl::map(commands, &self.mem, bytes, "") }?;
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
        let mut held = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(map) = held.as_ref() else {
            return Ok(None);
        };
        let event = opencl::unmap(commands, &self.mem, map, "to send")?;
        *held = None;
        Ok(Some(event))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let held = self.map.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(map) = held.take() else { return };
        let unmapped = opencl::unmap(&self.host, &self.mem, &map, "to release")
            .and_then(|_| opencl::flush(&self.host));
        if let Err(error) = unmapped {
            log::debug!("memory was released while it was mapped: {error}");
        }
    }
}
