//! Somebody else on the device, whose memory grows and shrinks.
//!
//! ```text
//!  limit ┬─────────────┐        ┌──────┐
//!        │             │ joins  │      │       joins wait, make do with less, or ask the host
//!        │  neighbour  └────────┘      └───
//! ```
//!
//! Joins wait for device memory only if it is short for a moment. So it is taken all but a little,
//! held for some milliseconds, and given back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use horton_join::device::Device;

use super::super::numbers::Random;

/// A thread that uses the device until this is dropped.
pub struct Neighbour {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// Takes most of `limit` bytes of `device` by turns, as `seed` says.
    pub fn on(device: &Device, limit: u64, seed: u64) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (device, ends) = (device.clone(), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut random = Random::new(seed);
            while !ends.load(Ordering::Relaxed) {
                stay(&device, limit, &mut random);
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Takes what is free but a part of the limit, for a moment.
fn stay(device: &Device, limit: u64, random: &mut Random) {
    let free = limit.saturating_sub(device.budget().used());
    let words = free.saturating_sub(limit / 16 * random.below(8) as u64) / 4;
    if words > 0 {
        let taken = device
            .run_blocking(move |queue| queue.allocate::<u32>("a neighbour's", words as usize));
        std::thread::sleep(Duration::from_millis(1 + random.below(12) as u64));
        drop(taken);
    }
    std::thread::sleep(Duration::from_micros(200 * random.below(10) as u64));
}
